//! Tests a scan that needs more memory or CPU time than its node allows for one scan (its quota).
//! Goal: the node bounces it with the reason, the engine fetches and scans the segment itself, the
//! rows are right, and EXPLAIN ANALYZE names the quota. Method: the smallest quotas that can be
//! configured, and statements that exceed them; beside each one a statement that stays within the
//! quota, to prove that the quota is the cause.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{AggregatePushdown, Engine, EngineOptions, ExplainMode, ReasonCount, ScanReason};
use rackscan_fabric::Wire;
use rackscan_planner::{Placement, Policy};
use rackscan_storage_node::{ByteSize, Config};

const SHAPE: Shape = Shape { segment_rows: 16_384, page_size: 256 << 10 };

async fn engine(cluster: &TestCluster) -> Engine {
    cluster.load(SHAPE).await.expect("data");
    let options = EngineOptions { aggregates: AggregatePushdown::Always, ..options(Policy::RemoteProcess) };
    cluster.engine(Wire::Shm, options).await.expect("an engine")
}

/// Segments are bounced for that reason, the rows are those of a scan without nodes, and EXPLAIN
/// ANALYZE says so.
async fn is_bounced_and_right(engine: &Engine, sql: &str, reason: ScanReason, named: &str) {
    engine.set_policy(Policy::Local);
    let local = engine.sql(sql).await.expect("it runs");
    engine.set_policy(Policy::RemoteProcess);
    let bounced = engine.sql(sql).await.expect("a quota is no error to the user");
    assert_eq!(bounced.batches, local.batches);

    let explanation = engine.explain(sql, ExplainMode::Analyze).await.expect("it runs");
    let scan = &explanation.scans[0];
    let figures = scan.actual.clone().expect("it ran");
    assert!(figures.bounced >= 2, "{figures:?}");
    assert_eq!(figures.segments.total(), scan.segments);
    let fetched = ReasonCount { placement: Placement::RemoteFetch, reason, segments: figures.bounced };
    assert!(figures.reasons.contains(&fetched), "{figures:?}");
    assert_eq!(figures.segments.remote_fetch, figures.bounced);
    assert_eq!(figures.work.rows_scanned, local.report.total.work.rows_scanned);
    let text = explanation.to_string();
    let why = format!("{} segments remote-fetch (bounced: {named})", figures.bounced);
    assert!(text.contains(&why), "{why} in\n{text}");
    let json = explanation.to_json().expect("it is JSON");
    let reasons = json["scans"][0]["actual"]["reasons"].to_string();
    assert!(reasons.contains(&format!("\"bounced: {named}\"")), "{json:#}");
}

/// The node scans every segment itself.
async fn is_scanned_there(engine: &Engine, sql: &str) {
    engine.set_policy(Policy::RemoteProcess);
    let figures = engine.sql(sql).await.expect("it runs").report.total;
    assert_eq!((figures.bounced, figures.segments.remote_fetch), (0, 0), "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_over_its_nodes_cpu_quota_is_fetched_and_explained() {
    let cluster = TestCluster::start_with(1, |config: &mut Config| config.scan_cpu_ms = 1);
    let cluster = cluster.expect("a cluster");
    let engine = engine(&cluster).await;
    // Each text is searched for every one of 60 pieces that none has.
    let searches: Vec<String> = (0..60).map(|piece| format!("l_comment not like '%{piece}z%'")).collect();
    let sql = format!("select count(*), sum(l_quantity) from lineitem where {}", searches.join(" and "));
    is_bounced_and_right(&engine, &sql, ScanReason::BouncedCpuQuota, "CPU quota").await;
    is_scanned_there(&engine, "select count(*) from lineitem where l_orderkey < 0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_over_its_nodes_memory_quota_is_fetched_and_explained() {
    let least = |config: &mut Config| config.scan_memory = ByteSize(256 << 10);
    let cluster = TestCluster::start_with(1, least).expect("a cluster");
    let engine = engine(&cluster).await;
    // A page of each of these columns of a full segment is more than the quota; a page of one of
    // them is not.
    let sql = "select count(l_comment), min(l_extendedprice), sum(l_partkey), sum(l_orderkey) from lineitem \
               where l_comment like '%a%' and l_partkey > 1 and l_suppkey > 1";
    is_bounced_and_right(&engine, sql, ScanReason::BouncedMemoryQuota, "memory quota").await;
    is_scanned_there(&engine, "select sum(l_linenumber) from lineitem").await;
}
