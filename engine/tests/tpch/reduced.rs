//! Tests statements that were once answered wrongly. Method: statements that the differential tests
//! found, reduced, over TPC-H: with as many computations inside the scan as possible, and with as
//! few as possible.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{AggregatePushdown, EngineOptions, arrow::util::pretty::pretty_format_batches};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;

/// The rows of a statement with aggregates in the scan and without; it says in which order they
/// are.
async fn both(sql: &str) -> [String; 2] {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(Shape { segment_rows: 8192, page_size: 16 << 10 }).await.expect("data");
    let mut answers = [String::new(), String::new()];
    for (answer, aggregates) in answers.iter_mut().zip([AggregatePushdown::Always, AggregatePushdown::Never])
    {
        let options = EngineOptions { aggregates, ..options(Policy::RemoteProcess) };
        let engine = cluster.engine(Wire::Shm, options).await.expect("an engine");
        let outcome = engine.sql(sql).await.expect("it runs");
        let is_pushed = outcome.scans().iter().any(|scan| !scan.pushed_aggregates.is_empty());
        assert_eq!(is_pushed, aggregates == AggregatePushdown::Always && sql.contains("avg("));
        *answer = pretty_format_batches(&outcome.batches).expect("it is shown").to_string();
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_values_has_no_average() {
    let sql = "select l_linenumber, avg(case when l_linenumber < 5 then l_tax end) as decimals, \
               avg(case when l_linenumber < 3 then l_orderkey end) as doubles \
               from lineitem group by l_linenumber order by l_linenumber";
    let [inside, outside] = both(sql).await;
    assert_eq!(inside, outside);
    assert!(!inside.contains("NaN") && inside.lines().last().is_some(), "{inside}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_is_put_out_twice_can_be_sorted_by_twice() {
    let sql = "select n_nationkey as one, n_name as two, n_nationkey as three, 7 as four from nation \
               order by 1, 3, 4, 2 limit 4";
    let [inside, outside] = both(sql).await;
    assert_eq!(inside, outside);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_top_k_by_doubles_keeps_the_same_rows_as_a_sort_of_all_among_them_both_zeros() {
    let sql = "select case l_linenumber % 3 when 0 then 0.0::double when 1 then -(0.0::double) end as zero, l_orderkey, \
               l_linenumber from lineitem order by 1 desc nulls last, 2, 3";
    let [all, _] = both(sql).await;
    let [inside, outside] = both(&format!("{sql} limit 5000")).await;
    let first = |shown: &str| shown.lines().take(5_003).collect::<Vec<_>>().join("\n");
    assert!(first(&inside) == first(&all) && first(&outside) == first(&all));
    assert!(all.contains("| -0.0 |") && all.contains("| 0.0  |"), "both zeros");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cast_that_fails_for_bounds_of_columns_but_for_no_row_gives_rows() {
    let sql = "select count(*) as rows from lineitem \
               where cast(l_orderkey::double / l_orderkey::double as smallint) < 1000";
    let [inside, outside] = both(sql).await;
    assert_eq!(inside, outside);
    let [all, _] = both("select count(*) as rows from lineitem").await;
    assert_eq!(inside, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_for_which_a_function_of_a_column_is_the_column_can_be_sorted_by_it() {
    let sql = "select l_shipmode, l_orderkey + l_linenumber as sum from lineitem \
               where substring(l_shipmode, 0, 4) = l_shipmode order by 1, 2";
    let [inside, outside] = both(sql).await;
    assert_eq!(inside, outside);
    assert!(inside.contains("| AIR") && !inside.contains("SHIP"), "{}", &inside[..500]);
}
