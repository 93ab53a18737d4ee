//! Tests that SQL statements give the answers of PostgreSQL, under every placement of scans.
//!
//! Method: the files of `queries/slt` in the format of sqllogictest, over tables that are loaded
//! from `queries/slt/tables`. The expected answers are those of PostgreSQL 15, or of DuckDB for
//! statements that PostgreSQL does not support. `RACKSCAN_SLT` is the name of one file to run, or
//! `all`, and runs it under all placements; without it each file is run under one of two
//! placements.

#[path = "../tpch/cluster.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod cluster;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::Array,
    datatypes::{DataType, FieldRef},
    util::display::{ArrayFormatter, FormatOptions},
};
use cluster::{TestCluster, options};
use rackscan_datasets::{
    LoadOptions, TableSpec,
    csv::{self, CsvOptions},
};
use rackscan_engine::{Engine, EngineError, EngineOptions, SpillOptions, SqlSession};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};

/// For what statements make: some would make more than the host has.
const MEMORY_BYTES: usize = 1 << 30;
const SPILL_BYTES_MAX: u64 = 256 << 20;

/// A session of one engine.
struct Database {
    engine: Arc<Engine>,
    session: SqlSession,
}

#[derive(Debug)]
struct Refused(EngineError);

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for Refused {}

#[async_trait::async_trait]
impl AsyncDB for Database {
    type Error = Refused;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Refused> {
        let outcome = self.engine.sql_in(&mut self.session, sql).await.map_err(Refused)?;
        let fields = outcome.schema.fields();
        let mut rows = Vec::new();
        for batch in &outcome.batches {
            for row in 0..batch.num_rows() {
                let cells =
                    batch.columns().iter().zip(fields).map(|(column, field)| cell(column, field, row));
                rows.push(cells.collect());
            }
        }
        Ok(DBOutput::Rows { types: fields.iter().map(column_type).collect(), rows })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "rackscan"
    }

    fn error_sql_state(error: &Refused) -> Option<String> {
        Some(error.0.sqlstate().to_owned())
    }
}

fn column_type(field: &FieldRef) -> DefaultColumnType {
    match field.data_type() {
        found if found.is_integer() => DefaultColumnType::Integer,
        found if found.is_floating() || found.is_decimal() => DefaultColumnType::FloatingPoint,
        _ => DefaultColumnType::Text,
    }
}

/// A value as PostgreSQL writes it, with `(empty)` for an empty text.
fn cell(column: &dyn Array, field: &FieldRef, row: usize) -> String {
    if column.is_null(row) || field.data_type() == &DataType::Null {
        return "NULL".to_owned();
    }
    let formatter = ArrayFormatter::try_new(column, &FormatOptions::default()).expect("a formatter");
    let text = formatter.value(row).to_string();
    match field.data_type() {
        DataType::Boolean => text[..1].to_owned(),
        // Doubles that are whole have no fraction.
        found if found.is_floating() => text.strip_suffix(".0").map_or(text.clone(), str::to_owned),
        DataType::Timestamp(..) => text.replace('T', " "),
        _ if text.is_empty() => "(empty)".to_owned(),
        _ => text,
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../queries/slt")
}

/// The paths of a folder's files with this extension, in their order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no .{extension}", folder.display());
    files
}

async fn load_tables(cluster: &TestCluster) {
    let nodes = cluster.connect(Wire::Shm).await.expect("a client");
    for path in files(&folder().join("tables"), "csv") {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let text = std::fs::read_to_string(&path).expect("a table");
        let first = text.split([',', '\n']).next().expect("a column").to_owned();
        let table = TableSpec { name, partition_by: first, sort_by: None };
        let options = LoadOptions { segment_rows: 1024, page_size: 4096, ..LoadOptions::default() };
        let loaded = csv::load(&nodes, &path, &CsvOptions::default(), &table, &options, &|_| ()).await;
        loaded.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_answer_as_in_postgresql_under_every_placement() {
    let only = std::env::var("RACKSCAN_SLT").ok();
    // Each file has one of two placements, or all of them if the variable asks for that.
    let policies =
        if only.is_some() { &Policy::ALL[..] } else { &[Policy::RemoteProcess, Policy::RemoteFetch] };
    for (turn, policy) in policies.iter().enumerate() {
        // Statements change tables, so each placement begins with tables of its own.
        let cluster = TestCluster::start(2).expect("nodes");
        load_tables(&cluster).await;
        let spilled = tempfile::tempdir().expect("a folder");
        let spill = Some(SpillOptions { folder: spilled.path().to_owned(), bytes_max: SPILL_BYTES_MAX });
        let options = EngineOptions { memory_bytes: Some(MEMORY_BYTES), spill, ..options(*policy) };
        let engine = Arc::new(cluster.engine(Wire::Shm, options).await.expect("an engine"));
        let (mut problems, mut files_run) = (Vec::new(), 0);
        for (at, path) in files(&folder(), "slt").into_iter().enumerate() {
            let is_wanted = match only.as_deref() {
                None => at % policies.len() == turn,
                Some("all") => true,
                Some(only) => path.file_stem().is_some_and(|name| name == only),
            };
            if is_wanted {
                files_run += 1;
                problems.extend(differing(&engine, *policy, &path).await);
            }
        }
        assert!(files_run > 0, "queries/slt has no {}.slt", only.as_deref().unwrap_or_default());
        assert!(problems.is_empty(), "{} statements differ:\n{}", problems.len(), problems.join("\n\n"));
    }
}

/// The statements of a file that are not answered as it says.
async fn differing(engine: &Arc<Engine>, policy: Policy, path: &Path) -> Vec<String> {
    let records = sqllogictest::parse_file::<DefaultColumnType>(path).expect("a file of statements");
    let mut runner = Runner::new(|| {
        let engine = Arc::clone(engine);
        async { Ok(Database { engine, session: SqlSession::default() }) }
    });
    let mut problems = Vec::new();
    for record in records {
        if let Err(error) = runner.run_async(record).await {
            problems.push(format!("{policy}: {}", error.display(false)));
        }
    }
    problems
}
