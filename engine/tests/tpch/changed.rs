//! Tests what statements see after rows were inserted, updated and deleted. Goal: wherever segments
//! are scanned, statements give the rows of another engine that has executed the same statements,
//! and see all of a transaction or nothing of it. Method: clusters of in-process nodes beside
//! DataFusion's tables in memory.

use crate::cluster::{Outcome, Shape, TestCluster, options};
use datafusion::{
    arrow::{
        array::{AsArray, RecordBatch},
        datatypes::{Int64Type, UInt64Type},
        util::pretty::pretty_format_batches,
    },
    datasource::MemTable,
    execution::SessionStateBuilder,
    prelude::{SessionConfig, SessionContext},
};
use rackscan_engine::{Engine, EngineError, ExplainMode, SqlSession, with_answers};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

pub(crate) const SHAPE: Shape = Shape { segment_rows: 4096, page_size: 8 << 10 };

/// Queries whose answers depend on every column of what is changed.
const QUERIES: [&str; 8] = [
    "select count(*) as rows from orders",
    "select count(*) as rows, sum(o_totalprice) as sum, min(o_orderdate) as first, max(o_comment) as last from orders",
    "select * from orders where o_orderkey < 60 or o_orderkey > 59900 order by 1",
    "select o_orderstatus, o_orderpriority, count(*) as rows, sum(o_shippriority) as sum from orders group by 1, 2 order by 1, 2",
    "select l_orderkey, count(*) as rows, sum(l_extendedprice * (1 - l_discount)) as revenue from lineitem \
     where l_shipdate >= date '1995-01-01' group by 1 order by 3 desc, 1 limit 30",
    "select l_returnflag, l_linestatus, sum(l_quantity) as sum, avg(l_discount) as avg, count(*) as rows from lineitem \
     where l_shipdate <= date '1998-09-02' group by 1, 2 order by 1, 2",
    "select o_orderpriority, count(*) as rows, sum(l_quantity) as sum from orders join lineitem on o_orderkey = l_orderkey \
     where o_orderdate < date '1993-06-01' or l_shipmode = 'SHIP' group by 1 order by 1",
    "select distinct l_shipmode from lineitem where l_shipinstruct <> 'NONE' order by 1",
];

/// Statements that change rows that were loaded, rows that were inserted, rows that were changed
/// before, and none.
pub(crate) const CHANGES: [&str; 14] = [
    "update orders set o_totalprice = o_totalprice + 1.25, o_comment = 'changed' where o_orderkey % 7 = 0",
    "delete from lineitem where l_orderkey % 11 = 3 and l_linenumber > 1 and l_orderkey < 20000",
    "insert into orders values (900001, 37, 'O', 1234.56, date '1997-01-02', '1-URGENT', 'Clerk#000000001', 0, 'new'), \
     (900002, 61, 'F', -0.01, date '1992-02-29', '5-LOW', 'Clerk#000000002', 7, 'newer')",
    "insert into lineitem (l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag, \
     l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment) \
     select l_orderkey + 900000, l_partkey, l_suppkey, l_linenumber, l_quantity * 2, l_extendedprice, l_discount, l_tax, 'X', l_linestatus, \
     l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, 'SLED', l_comment from lineitem where l_orderkey < 100",
    "update orders set o_shippriority = o_shippriority + 3 where o_orderkey > 900000",
    "update lineitem set l_shipdate = date '1998-12-01', l_discount = 0.1 where l_shipmode = 'SLED' and l_linenumber = 1",
    "delete from orders where o_orderkey = 900002",
    "update orders set o_comment = o_orderstatus || ' again' where o_comment = 'changed' and o_orderkey < 30000",
    "delete from orders where o_orderkey % 7 = 0 and o_orderkey > 50000",
    "insert into orders select o_orderkey + 800000, o_custkey, 'P', o_totalprice, o_orderdate, o_orderpriority, o_clerk, 1, o_comment \
     from orders where o_orderkey in (select l_orderkey from lineitem where l_shipmode = 'SLED' or l_quantity = 50 limit 0) or o_orderkey < 200",
    "delete from lineitem where l_orderkey in (select o_orderkey from orders where o_orderpriority = '2-HIGH' and o_orderkey < 3000)",
    "update lineitem set l_quantity = 1 where l_orderkey = -5",
    "delete from orders where o_orderkey between 100 and 160",
    "update orders set o_orderpriority = '2-HIGH' where o_orderkey > 800000",
];

/// DataFusion alone, with the tables as the engine has them now.
pub(crate) async fn alone(engine: &Engine) -> Outcome<SessionContext> {
    let mut config = SessionConfig::new().with_target_partitions(2);
    config.options_mut().sql_parser.parse_float_as_decimal = true;
    let state = with_answers(SessionStateBuilder::new().with_default_features().with_config(config))?;
    let context = SessionContext::new_with_state(state);
    for table in ["orders", "lineitem"] {
        let rows = engine.sql(&format!("select * from {table}")).await?;
        let table_of_rows = MemTable::try_new(Arc::clone(&rows.schema), vec![rows.batches])?;
        context.register_table(table, Arc::new(table_of_rows))?;
    }
    Ok(context)
}

/// Executes a statement by DataFusion alone; the rows that it was about. DataFusion's tables in
/// memory pass over subqueries of DELETE: those keep the rows that are left.
pub(crate) async fn change_alone(alone: &SessionContext, change: &str) -> Outcome<u64> {
    let Some((table, condition)) =
        change.strip_prefix("delete from ").and_then(|rest| rest.split_once(" where "))
    else {
        return Ok(count(&alone.sql(change).await?.collect().await?));
    };
    let all = alone.sql(&format!("select * from {table}")).await?.collect().await?;
    let left = alone.sql(&format!("select * from {table} where not ({condition})")).await?;
    let schema = Arc::new(left.schema().as_arrow().clone());
    let left = left.collect().await?;
    let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    let deleted = rows(&all) - rows(&left);
    alone.deregister_table(table)?;
    alone.register_table(table, Arc::new(MemTable::try_new(schema, vec![left])?))?;
    Ok(deleted as u64)
}

pub(crate) fn count(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.column(0).as_primitive::<UInt64Type>().value(0)).sum()
}

fn text(batches: &[RecordBatch]) -> Outcome<String> {
    Ok(pretty_format_batches(batches)?.to_string())
}

pub(crate) async fn check_answers(engines: &[Engine], alone: &SessionContext, after: &str) -> Outcome<()> {
    for query in QUERIES {
        let expected = text(&alone.sql(query).await?.collect().await?)?;
        for engine in engines {
            for policy in Policy::ALL {
                engine.set_policy(policy);
                let found = text(&engine.sql(query).await?.batches)?;
                assert_eq!(found, expected, "{policy}, after {after}: {query}");
            }
        }
    }
    Ok(())
}

async fn changes_are_seen_by_all() -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let shm = cluster.engine(Wire::Shm, options(Policy::Auto)).await?;
    let tcp = cluster.engine(Wire::Tcp, options(Policy::Auto)).await?;
    let alone = alone(&shm).await?;
    let engines = [shm, tcp];
    for (turn, change) in CHANGES.iter().enumerate() {
        let expected = change_alone(&alone, change).await?;
        // By turns: what one has written the other sees.
        let found = count(&engines[turn % 2].sql(change).await?.batches);
        assert_eq!(found, expected, "{change}");
        // By turns, too.
        let asked = (turn + 1) % 2;
        check_answers(&engines[asked..=asked], &alone, change).await?;
    }
    // Who comes later sees the same.
    let late = [cluster.engine(Wire::Shm, options(Policy::Auto)).await?];
    check_answers(&engines, &alone, "all").await?;
    check_answers(&late, &alone, "all").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rows_are_in_every_answer_wherever_segments_are_scanned() {
    changes_are_seen_by_all().await.unwrap();
}

pub(crate) async fn one(engine: &Engine, session: &mut SqlSession, sql: &str) -> Outcome<i64> {
    let outcome = engine.sql_in(session, sql).await?;
    Ok(outcome.batches.iter().map(|batch| batch.column(0).as_primitive::<Int64Type>().value(0)).sum())
}

async fn transactions_are_kept_apart() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await?;
    let other = cluster.engine(Wire::Tcp, options(Policy::Auto)).await?;
    let (mut mine, mut theirs) = (SqlSession::default(), SqlSession::default());
    let rows = "select count(*) from nation where n_regionkey = 7";
    engine.sql_in(&mut mine, "begin").await?;
    engine
        .sql_in(&mut mine, "insert into nation values (70, 'ATLANTIS', 7, 'new'), (71, 'MU', 7, 'new')")
        .await?;
    engine.sql_in(&mut mine, "update nation set n_regionkey = 7 where n_nationkey < 3").await?;
    assert_eq!(one(&engine, &mut mine, rows).await?, 5, "a transaction sees its own rows");
    assert_eq!(one(&other, &mut theirs, rows).await?, 0, "and nobody else does");
    engine.sql_in(&mut mine, "delete from nation where n_name = 'MU' or n_nationkey = 2").await?;
    engine.sql_in(&mut mine, "update nation set n_comment = 'newer' where n_nationkey = 70").await?;
    assert_eq!(one(&engine, &mut mine, rows).await?, 3);
    other.sql("update nation set n_regionkey = 7 where n_nationkey = 20").await?;
    assert_eq!(one(&engine, &mut mine, rows).await?, 3, "what others commit meanwhile is not seen");
    engine.sql_in(&mut mine, "commit").await?;
    assert!(!mine.is_open());
    for (engine, session) in [(&engine, &mut mine), (&other, &mut theirs)] {
        assert_eq!(one(engine, session, rows).await?, 4, "all of it, and what the other has done");
        let newer = "select count(*) from nation where n_comment = 'newer' and n_nationkey = 70";
        assert_eq!(one(engine, session, newer).await?, 1);
        assert_eq!(one(engine, session, "select count(*) from nation").await?, 25);
    }
    engine.sql_in(&mut mine, "begin").await?;
    engine.sql_in(&mut mine, "delete from nation").await?;
    assert_eq!(one(&engine, &mut mine, "select count(*) from nation").await?, 0);
    engine.sql_in(&mut mine, "rollback").await?;
    assert_eq!(one(&engine, &mut mine, "select count(*) from nation").await?, 25);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_sees_its_own_writes_and_others_see_them_when_it_has_committed() {
    transactions_are_kept_apart().await.unwrap();
}

/// Writers move amounts between rows of two tables for a while; whoever adds all up finds the same.
async fn sums_stay(wire: Wire) -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let engine = Arc::new(cluster.engine(wire, options(Policy::Auto)).await?);
    let sum = "select cast(s + c as bigint) from (select sum(s_acctbal) as s from supplier), (select sum(c_acctbal) as c from customer)";
    let mut session = SqlSession::default();
    let expected = one(&engine, &mut session, sum).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..2_u32 {
        let own = cluster.engine(Wire::Shm, options(Policy::Local)).await?;
        let is_over = Arc::clone(&is_over);
        writers.push(tokio::spawn(async move {
            let (mut session, mut moved) = (SqlSession::default(), 0);
            while !is_over.load(Ordering::Relaxed) {
                // Rows of this writer only: RAMP does not keep two writers of a row apart.
                let (row, amount) = (moved % 40 * 2 + writer + 1, moved % 13 + 1);
                own.sql_in(&mut session, "begin").await?;
                let take =
                    format!("update supplier set s_acctbal = s_acctbal - {amount} where s_suppkey = {row}");
                let give =
                    format!("update customer set c_acctbal = c_acctbal + {amount} where c_custkey = {row}");
                own.sql_in(&mut session, &take).await?;
                own.sql_in(&mut session, &give).await?;
                own.sql_in(&mut session, "commit").await?;
                moved += 1;
            }
            Ok::<u32, EngineError>(moved)
        }));
    }
    let until = Instant::now() + Duration::from_secs(3);
    let mut looked = 0;
    while Instant::now() < until {
        for policy in Policy::ALL {
            engine.set_policy(policy);
            assert_eq!(one(&engine, &mut session, sum).await?, expected, "{policy}, look {looked}");
            looked += 1;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await?? > 3, "nothing was moved");
    }
    assert_eq!(one(&engine, &mut session, sum).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_see_transactions_of_two_tables_wholly_or_not_at_all_while_they_run() {
    for wire in [Wire::Shm, Wire::Tcp] {
        sums_stay(wire).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_changed_is_said_and_nothing_is() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.unwrap();
    let wrong = [
        ("insert into nation values (1, 'x')", "got 2 values in row 0 but expected 4"),
        ("insert into nation select 1, 'x'", "Column count"),
        ("insert into nation (n_name) values ('x')", "n_nationkey"),
        ("insert into moon values (1)", "there is no table \"moon\""),
        ("update nation set n_moon = 1", "no column \"n_moon\""),
        ("update nation set n_name = 'a', n_name = 'b'", "set twice"),
        ("update nation set n_regionkey = 'many'", "many"),
        ("update nation set n_regionkey = n_name", "is of type bigint, and its new value of type text"),
        ("insert into nation select 1, 'x', n_name, 'x' from nation", "is of type bigint"),
        ("update nation set n_regionkey = null where n_nationkey = 3", "n_regionkey"),
        ("update orders set o_shippriority = 3000000000 where o_orderkey = 3", "o_shippriority"),
        ("update orders set o_totalprice = 99999999999999999.5 where o_orderkey = 1", "o_totalprice"),
        ("update nation set n_comment = r_name from region", "updated twice"),
        ("update nation set n_comment = 'x' returning n_name", "not supported"),
        ("delete from nation limit 3", "not supported"),
        ("delete from nation using region where n_moon = 1", "n_moon"),
        ("delete from lineitem", "divide it"),
        ("insert into nation select * from nation returning *", "not supported"),
        ("explain delete from nation", "not supported"),
        ("begin isolation level serializable", "--isolation"),
        ("commit", "no transaction is open"),
        ("rollback", "no transaction is open"),
        ("begin", "not supported"),
        ("truncate table nation", "INSERT, UPDATE and DELETE"),
    ];
    for (statement, expected) in wrong {
        let error = match engine.sql(statement).await {
            Ok(outcome) => panic!("{statement}: {}", text(&outcome.batches).unwrap()),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{statement}: {error}");
    }
    let mut session = SqlSession::default();
    assert_eq!(one(&engine, &mut session, "select count(*) from nation").await.unwrap(), 25);
    engine.sql_in(&mut session, "begin").await.unwrap();
    let error = engine.sql_in(&mut session, "begin").await.map(|outcome| outcome.rows()).unwrap_err();
    assert!(matches!(error, EngineError::InTransaction), "{error}");
    assert!(engine.sql_in(&mut session, "delete from moon").await.is_err());
    engine.sql_in(&mut session, "delete from nation where n_nationkey = 3").await.unwrap();
    engine.sql_in(&mut session, "commit").await.unwrap();
    assert_eq!(one(&engine, &mut session, "select count(*) from nation").await.unwrap(), 24, "it went on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_how_many_rows_have_changed() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteProcess)).await.unwrap();
    engine.sql("delete from orders where o_orderkey < 100").await.unwrap();
    engine.sql("update orders set o_shippriority = 5 where o_orderkey between 100 and 103").await.unwrap();
    let sql = "select sum(o_shippriority) from orders";
    let explanation = engine.explain(sql, ExplainMode::Analyze).await.unwrap();
    let [scan] = explanation.scans.as_slice() else { panic!("one scan") };
    let changed = &scan.actual.as_ref().unwrap().changed;
    assert_eq!((scan.rows_withheld, scan.rows_beside, changed.rows_scanned), (31, 4, 4), "{explanation}");
    let text = explanation.to_string();
    assert!(text.contains("31 stored rows withheld, 4 changed rows in no segment"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_that_a_limit_ends_reports_the_rows_that_it_found() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteFetch)).await.unwrap();
    let found = async |sql: &str| {
        let explanation = engine.explain(sql, ExplainMode::Analyze).await.unwrap();
        let [scan] = explanation.scans.as_slice() else { panic!("one scan") };
        let figures = scan.actual.clone().unwrap();
        (figures.work.rows_selected, figures.changed.rows_selected)
    };
    let (stored, changed) = found("select * from orders where o_orderkey = 3 limit 1").await;
    assert_eq!((stored, changed), (1, 0));
    engine.sql("update orders set o_shippriority = 5 where o_orderkey between 100 and 103").await.unwrap();
    let (stored, changed) = found("select * from orders where o_shippriority = 5 limit 1").await;
    assert!(changed >= 1 && stored == 0, "{stored} stored, {changed} changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_of_an_index_lookup_are_counted_apart_from_those_of_the_table() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteProcess)).await.unwrap();
    engine.sql("create index by_customer on orders (o_custkey)").await.unwrap();
    let sql = "select o_orderkey from orders where o_custkey = 370";
    let rows = engine.sql(sql).await.unwrap().rows() as u64;
    let explanation = engine.explain(sql, ExplainMode::Analyze).await.unwrap();
    let [scan] = explanation.scans.as_slice() else { panic!("one scan") };
    let figures = scan.actual.as_ref().unwrap();
    let lookup = figures.index_lookup.as_ref().expect("the index is read");
    assert!(rows > 0);
    assert_eq!((figures.work.rows_selected, figures.work.rows_out), (rows, rows), "{explanation}");
    assert_eq!(lookup.rows_selected, rows, "{explanation}");
    assert!(explanation.to_string().contains("besides, the index"), "{explanation}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_or_written_while_a_lost_node_may_have_written_more() {
    let mut cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.unwrap();
    engine.sql("delete from nation where n_nationkey > 19").await.unwrap();
    let rows = "select count(n_comment) from nation";
    assert_eq!(engine.sql(rows).await.unwrap().rows(), 1);
    cluster.stop(1).unwrap();
    // Zone maps say that no segment has such a row, so none is scanned.
    let none = "select n_comment from nation where n_nationkey = 77";
    for sql in [rows, none, "update nation set n_comment = 'x'"] {
        let error = engine.sql(sql).await.map(|outcome| outcome.rows()).unwrap_err();
        assert!(error.to_string().contains("participant 1"), "{sql}: {error}");
    }
}
