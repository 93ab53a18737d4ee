//! Tests that rows withheld from a table's snapshot stay out of every answer, wherever its segments
//! are scanned.
//!
//! Method: storage nodes in this process contain a part of TPC-H. A scan returns the place of each
//! row (its segment and its number there), rows are withheld by these places, and statements are
//! answered by the engine under every policy and by DataFusion alone, over the remaining rows.

use super::*;
use crate::{
    exec::ScanExec,
    pushdown::ProgramBuilder,
    request::{ScanRequest, distribute},
    snapshot::TableSnapshot,
    table::Table,
};
use datafusion::{
    arrow::{
        array::{AsArray, BooleanArray},
        compute::{concat_batches, filter_record_batch, sort_to_indices, take_record_batch},
        datatypes::{DataType, Field, Int64Type, Schema},
        util::pretty::pretty_format_batches,
    },
    common::stats::Precision,
    datasource::MemTable,
    execution::SessionStateBuilder,
    physical_plan::collect,
    prelude::SessionContext,
};
use rackscan_client::{ClusterOptions, NodeEndpoint};
use rackscan_datasets::{LoadOptions, tpch};
use rackscan_fabric::{Address, ClusterKey, Wire};
use rackscan_format::{
    ids::{ColumnId, NodeId, SegmentId},
    program::{Node as ProgramNode, NodeIndex, Output},
    row_place::RowPlace,
    withheld::WithheldRows,
};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::Path,
};
use tempfile::TempDir;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const TABLES: [&str; 2] = ["orders", "lineitem"];

const STATEMENTS: [&str; 9] = [
    "select count(*) as rows from lineitem",
    "select count(l_comment) as comments, min(l_orderkey) as first, max(l_shipdate) as last, min(l_comment) as text from lineitem",
    "select sum(l_extendedprice * l_discount) as revenue from lineitem where l_shipdate >= date '1994-01-01' \
     and l_shipdate < date '1995-01-01' and l_discount between 0.05 and 0.07 and l_quantity < 24",
    "select l_returnflag, l_linestatus, sum(l_quantity) as sum, avg(l_discount) as avg, count(*) as rows from lineitem \
     where l_shipdate <= date '1998-09-02' group by 1, 2 order by 1, 2",
    "select l_orderkey, count(*) as rows, max(l_shipmode) as mode from lineitem group by 1 order by 1 limit 2000",
    "select l_orderkey, l_linenumber, l_comment from lineitem where l_quantity < 3 order by 1, 2",
    "select l_orderkey, l_linenumber from lineitem order by l_extendedprice desc, 1, 2 limit 50",
    "select count(*) as rows from lineitem where l_orderkey >= 0",
    "select o_orderpriority, count(*) as rows, sum(l_quantity) as sum from orders join lineitem on o_orderkey = l_orderkey \
     where o_orderdate < date '1993-06-01' group by 1 order by 1",
];

/// Running nodes and their folders.
struct TestCluster {
    nodes: Vec<NodeHandle>,
    key: ClusterKey,
    _folders: [TempDir; 2],
}

impl TestCluster {
    fn start(nodes: u16) -> Outcome<Self> {
        // Beside the test itself: O_DIRECT needs a filesystem on a disk.
        let binary = std::env::current_exe()?;
        let data = TempDir::new_in(binary.parent().ok_or("a file in a folder")?)?;
        let sockets = TempDir::new()?;
        let key = ClusterKey::generate()?;
        fs::write(data.path().join("key"), key.to_hex())?;
        let nodes = (0..nodes).map(|node| start_node(node, data.path(), sockets.path()));
        let nodes = nodes.collect::<Outcome<_>>()?;
        Ok(Self { nodes, key, _folders: [data, sockets] })
    }

    async fn connect(&self, wire: Wire) -> Outcome<Cluster> {
        let endpoints = (0..).zip(&self.nodes).map(|(id, node)| {
            let addresses = node.addresses().to_vec();
            NodeEndpoint { id: NodeId(id), addresses }
        });
        let mut options = ClusterOptions::new(endpoints.collect(), self.key.clone());
        options.wire = Some(wire);
        options.memory_bytes = 64 << 20;
        Ok(Cluster::connect(options).await?)
    }
}

fn start_node(node: u16, data: &Path, sockets: &Path) -> Outcome<NodeHandle> {
    let folder = data.join(format!("node{node}"));
    fs::create_dir_all(&folder)?;
    let device =
        DeviceConfig { path: folder.join("device0"), size: Some(ByteSize(256 << 20)), reserve: false };
    let cluster = ClusterId::of_name("test");
    let mut config = Config::new(NodeId(node), cluster, folder, device, data.join("key"));
    config.listen = vec![
        Address::Shm { path: sockets.join(format!("node{node}")) },
        Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
    ];
    config.memory_budget = ByteSize(160 << 20);
    config.scan_workers = 1;
    Ok(Node::start(config)?)
}

/// All rows of a table as the snapshot has them, each with its place as the last column, sorted by
/// place.
async fn placed_rows(engine: &Engine, snapshot: &Arc<TableSnapshot>, policy: Policy) -> Outcome<RecordBatch> {
    let state = engine.state_for(policy, chrono::Utc::now(), &tracing::Span::none(), Bounds::Told);
    let query = state.config().get_extension::<QueryContext>().ok_or("a query")?;
    let definition = &snapshot.definition;
    let mut builder = ProgramBuilder::over_table(definition);
    let mut outputs = Vec::new();
    for column in 0..definition.columns.len() {
        let column = builder.column(ColumnId(u16::try_from(column)?));
        outputs.push(column.map_err(|reason| reason.0)?);
    }
    let mut program = builder.finish(Output::Rows(outputs.clone()), None).map_err(|reason| reason.0)?;
    outputs.push(NodeIndex::try_from(program.nodes.len())?);
    program.nodes.push(ProgramNode::RowNumber);
    program.output = Output::Rows(outputs);
    let place = Arc::new(Field::new("place", DataType::Int64, true));
    let fields: Vec<_> = snapshot.schema.fields().iter().cloned().chain([place]).collect();
    let schema = Arc::new(Schema::new(fields));
    let partitions = distribute(snapshot.places(), 2);
    let request = ScanRequest { table: definition.name.clone(), program, partitions, policy };
    let scan = ScanExec::new(request, Arc::clone(&schema), Arc::clone(snapshot), query)?;
    let context = SessionContext::new_with_state(state);
    let rows = concat_batches(&schema, &collect(Arc::new(scan), context.task_ctx()).await?)?;
    let order = sort_to_indices(rows.column(rows.num_columns() - 1), None, None)?;
    Ok(take_record_batch(&rows, &order)?)
}

fn places_of(rows: &RecordBatch) -> Vec<i64> {
    rows.column(rows.num_columns() - 1).as_primitive::<Int64Type>().values().to_vec()
}

/// One segment as a whole; of others every third row, a run that ends within a block, single rows,
/// and none.
fn withheld_of(snapshot: &TableSnapshot) -> Outcome<BTreeMap<SegmentId, Arc<WithheldRows>>> {
    let mut withheld = BTreeMap::new();
    for (index, (segment, (_, directory))) in snapshot.segments.iter().enumerate() {
        let is_withheld = |row: &u32| match index % 5 {
            0 => row % 3 == 1,
            1 => index == 1,
            2 => (900..5000).contains(row),
            3 => [0, 77, directory.rows - 1].contains(row),
            _ => false,
        };
        let rows = WithheldRows::of((0..directory.rows).filter(is_withheld))?;
        withheld.insert(*segment, Arc::new(rows));
    }
    Ok(withheld)
}

/// Withholds rows of a table from an engine, and gives DataFusion the others.
async fn withhold(engine: &Engine, table: &str, alone: &SessionContext) -> Outcome<Arc<TableSnapshot>> {
    let whole = engine.tables.snapshot(table).ok_or("the table")?;
    let withheld = withheld_of(&whole)?;
    let gone: BTreeSet<i64> = withheld
        .iter()
        .flat_map(|(segment, rows)| rows.rows().map(|row| RowPlace { segment: *segment, row }.number()))
        .collect();
    let all = placed_rows(engine, &whole, Policy::Local).await?;
    let places = places_of(&all);
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "every row has a place of its own");
    let is_left: BooleanArray = places.iter().map(|place| Some(!gone.contains(place))).collect();
    let left = filter_record_batch(&all, &is_left)?;
    let snapshot = Arc::new(whole.withholding(withheld)?);
    assert_eq!(all.num_rows() - left.num_rows(), gone.len(), "a row that is withheld was there");
    assert_eq!(snapshot.rows(), left.num_rows() as u64);
    for policy in Policy::ALL {
        assert_eq!(placed_rows(engine, &snapshot, policy).await?, left, "{table}, {policy}");
    }
    engine.tables.insert(table, Arc::new(Table::new(TableSnapshot::clone(&snapshot))));
    alone.register_table(table, Arc::new(MemTable::try_new(left.schema(), vec![vec![left]])?))?;
    Ok(snapshot)
}

async fn check(wire: Wire) -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    let client = cluster.connect(Wire::Shm).await?;
    let options = LoadOptions { segment_rows: 8192, page_size: 16 << 10, ..LoadOptions::default() };
    tpch::load_some(&client, 0.01, &TABLES, &[], &options, &|_| ()).await?;
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let engine = Engine::open(cluster.connect(wire).await?, options).await?;
    let alone = SessionStateBuilder::new().with_default_features();
    let alone = SessionContext::new_with_state(with_answers(alone)?);
    for table in TABLES {
        let snapshot = withhold(&engine, table, &alone).await?;
        let statistics = snapshot.statistics();
        assert!(matches!(statistics.num_rows, Precision::Inexact(_)), "{statistics:?}");
        let nulls = statistics.column_statistics.iter().map(|column| &column.null_count);
        assert!(nulls.clone().all(|nulls| matches!(nulls, Precision::Inexact(_))), "{statistics:?}");
    }
    for statement in STATEMENTS {
        let expected = pretty_format_batches(&alone.sql(statement).await?.collect().await?)?.to_string();
        for policy in Policy::ALL {
            engine.set_policy(policy);
            let outcome = engine.sql(statement).await?;
            let found = pretty_format_batches(&outcome.batches)?.to_string();
            assert_eq!(found, expected, "{wire:?}, {policy}: {statement}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withheld_rows_are_in_no_answer_wherever_segments_are_scanned() {
    for wire in [Wire::Shm, Wire::Tcp] {
        check(wire).await.unwrap();
    }
}

#[tokio::test]
async fn rows_that_a_table_does_not_have_cannot_be_withheld_from_it() {
    let cluster = TestCluster::start(1).unwrap();
    let client = cluster.connect(Wire::Shm).await.unwrap();
    tpch::load_some(&client, 0.01, &["nation"], &[], &LoadOptions::default(), &|_| ()).await.unwrap();
    let engine = Engine::open(client, EngineOptions::default()).await.unwrap();
    let nation = engine.tables.snapshot("nation").unwrap();
    let (segment, rows) = nation.places().first().map(|place| (place.segment, place.rows)).unwrap();
    let withhold = |segment, row| {
        let rows = Arc::new(WithheldRows::of([row]).unwrap());
        nation.withholding(BTreeMap::from([(segment, rows)])).map(|snapshot| snapshot.rows())
    };
    assert_eq!(withhold(segment, rows - 1), Ok(24));
    assert!(withhold(segment, rows).is_err() && withhold(SegmentId(u32::MAX), 0).is_err());
    assert!(nation.withheld.is_empty());
    assert!(matches!(nation.statistics().num_rows, Precision::Exact(25)));
}
