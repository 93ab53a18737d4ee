//! Tests the errors of wrong SQL. Goal: each error names the mistake, with what was found and what
//! was expected. Method: a table of statements and their expected messages.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::EngineError;
use rackscan_fabric::Wire;
use rackscan_planner::Policy;

const SHAPE: Shape = Shape { segment_rows: 8192, page_size: 64 << 10 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mistake_is_named() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.expect("an engine");
    for (sql, expected) in [
        ("", "this is not SQL: the text is empty, expected one statement"),
        ("selec 1", "this is not SQL"),
        ("select 1; select 2", "a text of several statements is not supported"),
        ("select * from lineitems", "there is no table \"lineitems\"; did you mean lineitem?"),
        ("select l_quantit from lineitem", "l_quantit"),
        ("create table x (y int)", "CREATE TABLE is not supported"),
        ("drop table region", "DROP TABLE is not supported"),
        ("set datafusion.execution.batch_size = 1", "is not supported"),
        ("explain delete from region", "EXPLAIN DELETE is not supported"),
        ("select 1 / 0", "division by zero"),
        ("select 9223372036854775807 + 1", "bigint out of range: 9223372036854775807 + 1"),
        ("select cast('x' as int)", "x"),
    ] {
        let error = engine.sql(sql).await.expect_err(sql).to_string();
        assert!(error.contains(expected), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_values_have_the_codes_of_postgresql() {
    let cluster = TestCluster::start(1).expect("a cluster");
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.expect("an engine");
    for (sql, code) in [
        ("select 1 / 0", "22012"),
        ("select 9223372036854775807 + 1", "22003"),
        ("select cast(3000000000 as int)", "22003"),
        ("select cast(x as int) from (values (3000000000), (1)) t(x)", "22003"),
        ("select (select x from (values (1), (2)) t(x))", "21000"),
        ("select (select y from (values (1), (2)) u(y) where y >= x) from (values (1)) t(x)", "21000"),
        ("select cast('x' as int)", "22P02"),
        ("select cast('2024-13-01' as date)", "22008"),
    ] {
        let error = engine.sql(sql).await.expect_err(sql);
        assert_eq!(error.sqlstate(), code, "{sql}: {error}");
    }
    let error = engine.sql("select substring('foobar' from 'o.b')").await.expect_err("not supported");
    assert!(!error.to_string().contains("bug"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_loaded_after_the_engine_was_opened_is_found() {
    let cluster = TestCluster::start(1).expect("a cluster");
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.expect("an engine");
    let error = engine.sql("select * from region").await.expect_err("nothing is loaded");
    assert!(matches!(error, EngineError::UnknownTable { .. }), "{error}");
    cluster.load(SHAPE).await.expect("data");
    let outcome = engine.sql("select r_name from region").await.expect("it is there now");
    assert_eq!(outcome.rows(), 5);
}
