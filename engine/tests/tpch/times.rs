//! Tests the time in SQL, such as `now()`. Goal: a statement and a transaction have one time, as in
//! PostgreSQL, under every placement.

use crate::{
    changed::one,
    cluster::{Shape, TestCluster, options},
};
use rackscan_engine::{Engine, SqlSession};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;

const SHAPE: Shape = Shape { segment_rows: 8192, page_size: 16 << 10 };

/// Whether all of it is true.
async fn holds(engine: &Engine, condition: &str) -> bool {
    let sql = format!("select cast(count(*) as bigint) from nation where {condition}");
    one(engine, &mut SqlSession::default(), &sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")) == 25
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_has_one_time_under_every_placement() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    for policy in Policy::ALL {
        let engine = cluster.engine(Wire::Shm, options(policy)).await.unwrap();
        for condition in [
            "now() = current_timestamp and now() = localtimestamp and now() = transaction_timestamp()",
            "current_date = cast(now() as date) and current_time = cast(now() as time)",
            "now() > timestamp '2026-01-01 00:00:00'",
            "n_nationkey < 100 and extract(year from now()) >= 2026",
            "now() - interval '1 hour' < now() and arrow_typeof(now()) = arrow_typeof(current_timestamp)",
        ] {
            assert!(holds(&engine, condition).await, "{policy}: {condition}");
        }
        let mut session = SqlSession::default();
        for (sql, expected) in [
            ("select cast(count(*) as bigint) from orders where o_orderdate > now() - interval '1 hour'", 0),
            ("select cast(count(*) as bigint) from orders where o_orderdate > current_date", 0),
            ("select cast(count(distinct now()) as bigint) from lineitem", 1),
        ] {
            assert_eq!(one(&engine, &mut session, sql).await.unwrap(), expected, "{policy}: {sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_has_one_time_and_rows_can_be_written_with_it() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.unwrap();
    let time = "select cast(arrow_cast(now(), 'Int64') as bigint)";
    let mut session = SqlSession::default();
    let before = one(&engine, &mut session, time).await.unwrap();
    engine.sql_in(&mut session, "begin").await.unwrap();
    let first = one(&engine, &mut session, time).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    assert_eq!(one(&engine, &mut session, time).await.unwrap(), first);
    let write = "update orders set o_orderdate = current_date where o_orderkey = 1";
    engine.sql_in(&mut session, write).await.unwrap();
    engine.sql_in(&mut session, "commit").await.unwrap();
    let after = one(&engine, &mut session, time).await.unwrap();
    assert!(before < first && first < after, "{before}, {first}, {after}");
    let written = "select cast(count(*) as bigint) from orders where o_orderdate = current_date";
    assert_eq!(one(&engine, &mut session, written).await.unwrap(), 1);
}
