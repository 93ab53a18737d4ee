//! Tests statements that read a view more than once. Goal: the input of the view's grouping is
//! scanned once, and all readers get the same rows. Method: plans, figures of scans and answers,
//! compared with the view's own rows.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{
    Engine, ExplainMode,
    arrow::{array::AsArray, datatypes::Decimal128Type, util::pretty::pretty_format_batches},
};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;

const SHAPE: Shape = Shape { segment_rows: 8192, page_size: 16 << 10 };
const VIEW: &str = "with v as (select l_suppkey as k, sum(l_quantity) as q from lineitem group by l_suppkey)";

async fn plan(engine: &Engine, sql: &str) -> String {
    engine.explain(sql, ExplainMode::Plan).await.expect("it is planned").to_string()
}

fn count(plan: &str, operator: &str) -> usize {
    plan.lines().filter(|line| line.trim_start().starts_with(operator)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_is_read_four_times_is_scanned_once() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::Local)).await.expect("an engine");
    let sums = engine.sql(&format!("{VIEW} select q from v order by q")).await.expect("it runs").batches;
    let sums: Vec<i128> = sums
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Decimal128Type>().values().to_vec())
        .collect();
    let sql = format!(
        "{VIEW} select q from v where q = (select max(q) from v) \
         union all select q from v where q = (select min(q) from v) order by q"
    );
    for policy in Policy::ALL {
        engine.set_policy(policy);
        let explanation = engine.explain(&sql, ExplainMode::Analyze).await.expect("it runs");
        let shown = explanation.to_string();
        assert_eq!((count(&shown, "SharedExec"), count(&shown, "ScanExec")), (4, 1), "{shown}");
        let [scan] = &explanation.scans[..] else { panic!("{shown}") };
        let figures = scan.actual.as_ref().expect("it ran");
        assert_eq!(figures.work.rows_scanned, scan.rows, "{shown}");
        let batches = engine.sql(&sql).await.expect("it runs").batches;
        let found: Vec<i128> = batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Decimal128Type>().values().to_vec())
            .collect();
        assert_eq!(found, [sums[0], sums[sums.len() - 1]], "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_early_takes_nothing_from_another() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteProcess)).await.expect("an engine");
    let sql = format!(
        "{VIEW} select count(distinct q + k) > 0, count(*) as n \
         from (select k, q from v union all (select k, q from v limit 1)) as both_of_them"
    );
    assert!(plan(&engine, &sql).await.contains("SharedExec"));
    let outcome = engine.sql(&sql).await.expect("it runs");
    let shown = pretty_format_batches(&outcome.batches).expect("it is shown").to_string();
    assert!(shown.contains("| 101 "), "100 suppliers and one: {shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_differs_is_not_shared_and_what_fails_fails_for_all_readers() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.expect("an engine");
    let pair = |one: &str, two: &str| {
        let group =
            |what: &str| format!("select l_suppkey as k, {what} as q from lineitem group by l_suppkey");
        format!("select q from ({}) as a union all select q from ({}) as b", group(one), group(two))
    };
    assert!(plan(&engine, &pair("sum(l_quantity)", "sum(l_quantity)")).await.contains("SharedExec"));
    let different = [
        ("sum(l_quantity)", "sum(l_tax)"),
        ("count(l_linenumber)", "count(distinct l_linenumber)"),
        ("sum(l_quantity)", "sum(l_quantity) filter (where l_tax > 0.02)"),
        ("sum(l_quantity * random())", "sum(l_quantity * random())"),
    ];
    for (one, two) in different {
        let shown = plan(&engine, &pair(one, two)).await;
        assert!(!shown.contains("SharedExec"), "{one}, {two}: {shown}");
    }
    let failing = "sum(cast(l_comment as bigint))";
    assert!(plan(&engine, &pair(failing, failing)).await.contains("SharedExec"));
    let error = engine.sql(&pair(failing, failing)).await.expect_err("comments are no numbers");
    assert_eq!(error.sqlstate(), "22P02", "{error}");
}
