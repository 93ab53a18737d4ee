//! Does EXPLAIN say what happened? Goal: the figures of a run add up and agree between placements. Method: the same
//! query under each placement, its figures held against each other and against the table.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{
    AggregatePushdown, EngineOptions, ExplainMode, Explanation, ReasonCount, ScanFigures, ScanReason,
    arrow::array::AsArray,
};
use rackscan_fabric::Wire;
use rackscan_planner::{Placement, Policy};

const SHAPE: Shape = Shape { segment_rows: 8192, page_size: 16 << 10 };
const SQL: &str =
    "select l_orderkey, l_comment from lineitem where l_shipdate < date '1992-03-01' and l_quantity / 2 < 10";

async fn figures(cluster: &TestCluster, policy: Policy) -> (Explanation, ScanFigures) {
    let options = EngineOptions { aggregates: AggregatePushdown::Never, ..options(policy) };
    let engine = cluster.engine(Wire::Shm, options).await.expect("an engine");
    let explanation = engine.explain(SQL, ExplainMode::Analyze).await.expect("it runs");
    let figures = explanation.scans[0].actual.clone().expect("it ran");
    (explanation, figures)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placements_differ_only_in_where_the_work_is_done() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let (explanation, local) = figures(&cluster, Policy::Local).await;
    let (_, fetch) = figures(&cluster, Policy::RemoteFetch).await;
    let (_, process) = figures(&cluster, Policy::RemoteProcess).await;

    let scan = &explanation.scans[0];
    assert_eq!(scan.table, "lineitem");
    assert_eq!(scan.pushed_filter, ["l_shipdate < DATE '1992-03-01'"]);
    assert_eq!(
        scan.remaining_filter.len(),
        1,
        "a division stays above the scan: {:?}",
        scan.remaining_filter
    );
    assert_eq!(scan.prices.len(), Placement::ALL.len());
    assert!(scan.prices.values().all(|price| price.milliseconds.is_some_and(|ms| ms > 0.0)));
    assert!(scan.estimated_rows > 0 && scan.estimated_rows < scan.rows);

    for figures in [&local, &fetch, &process] {
        assert_eq!(figures.segments.total(), scan.segments);
        assert_eq!(figures.nodes, 2);
        assert_eq!(figures.work.rows_selected, local.work.rows_selected);
        assert_eq!(figures.work.rows_scanned, local.work.rows_scanned);
        assert_eq!(figures.work.rows_out, local.work.rows_out);
        assert_eq!(figures.work.pages_read, local.work.pages_read);
        assert_eq!(figures.work.pages_skipped_by_zone, local.work.pages_skipped_by_zone);
        assert_eq!(figures.work.pages_skipped_by_selection, local.work.pages_skipped_by_selection);
        assert_eq!(figures.work.useful_bytes, local.work.useful_bytes);
        // The rows' bytes: an integer of 64 bits and a text of 10 to 43 characters each.
        let rows = figures.work.rows_out;
        assert!((18 * rows..=51 * rows).contains(&figures.work.useful_bytes), "{figures:?}");
        assert_eq!(figures.work.disk_bytes, local.work.disk_bytes);
        assert!(figures.work.pages_read > 0 && figures.work.disk_bytes > 0);
    }
    assert!(scan.zone_maps.len() == 1 && scan.zone_maps[0].rows_ruled_out < scan.rows);
    assert_eq!((local.work.wire_bytes, local.work.round_trips), (0, 0));
    assert_eq!((local.work.node_cpu_us, fetch.work.node_cpu_us), (0, 0), "only scans take a node's CPU time");
    assert!(process.work.node_cpu_us > 0 && local.work.engine_cpu_us > process.work.engine_cpu_us);
    for (figures, placement) in
        [(&local, Placement::Local), (&fetch, Placement::RemoteFetch), (&process, Placement::RemoteProcess)]
    {
        assert_eq!(figures.by_placement.keys().collect::<Vec<_>>(), [&placement]);
        assert_eq!(figures.by_placement[&placement], figures.work);
        let reason = ReasonCount { placement, reason: ScanReason::Forced, segments: scan.segments };
        assert_eq!(figures.reasons, [reason]);
    }
    assert!(fetch.work.wire_bytes >= fetch.work.disk_bytes, "every page travels");
    assert!(process.work.wire_bytes < fetch.work.wire_bytes, "few rows travel");
    assert!(process.work.round_trips >= scan.segments);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanations_are_readable_by_people_and_programs() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let (explanation, _) = figures(&cluster, Policy::RemoteProcess).await;
    let text = explanation.to_string();
    for expected in [
        "scan 1 of lineitem",
        "pushed filter      l_shipdate < DATE '1992-03-01'",
        "remaining filter   l_quantity",
        "placement          remote-process -> ",
        "remote-fetch",
        "bytes on the wire",
        "useful bytes",
        "zone maps alone",
        "expression not supported",
        "(forced)",
        "at first",
        "round trips",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let json = explanation.to_json().expect("it is JSON");
    assert_eq!(json["scans"][0]["table"], "lineitem");
    assert!(json["scans"][0]["actual"]["disk_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert!(json["scans"][0]["prices"]["remote-fetch"]["milliseconds"].is_number());
    assert!(json["scans"][0]["prices"]["remote-fetch"]["corrected_milliseconds"].is_number());
    assert_eq!(json["scans"][0]["actual"]["reasons"][0]["reason"], "forced");
    assert!(json["scans"][0]["actual"]["by_placement"]["remote-process"]["node_cpu_us"].is_number());

    let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.expect("an engine");
    let planned =
        engine.sql("explain select count(*) from orders where o_custkey < 10").await.expect("it plans");
    assert_eq!(planned.schema.field(0).name(), "plan");
    assert!(planned.rows() > 5);
    let sql = "explain (analyze, format pgjson) select count(*) from orders where o_custkey < 10";
    let json = engine.sql(sql).await.expect("it runs");
    let first = &json.batches[0].column(0);
    let text: String = first.as_string::<i32>().iter().flatten().collect();
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(json["run"]["elapsed_ms"].is_number(), "{json}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_summary_says_where_the_scans_ran() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteFetch)).await.expect("an engine");
    let outcome = engine.sql("select sum(o_totalprice) from orders").await.expect("it runs");
    let summary = outcome.report.summary();
    assert!(
        summary.starts_with("scans: ") && summary.contains(" remote-fetch (2 nodes), 0 bounced; "),
        "{summary}"
    );
    let outcome = engine.sql("select 1").await.expect("it runs");
    assert_eq!(outcome.report.summary(), "scans: none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_without_analyze_reads_nothing() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteFetch)).await.expect("an engine");
    let pages_read = async || {
        let mut pages = 0;
        for node in engine.cluster().nodes() {
            pages += engine.cluster().status(node).await.expect("a status").counters.pages_read;
        }
        pages
    };
    let before = pages_read().await;
    // A sum over both partitions: its operators read ahead as soon as they are started.
    let sql = "select sum(l_quantity / 2) from lineitem";
    let explanation = engine.explain(sql, ExplainMode::Plan).await.expect("it is planned");
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(explanation.scans[0].actual.is_none(), "it ran");
    assert_eq!(pages_read().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_segment_of_an_automatic_placement_has_a_reason_and_prices_are_corrected_by_what_happened() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    // Zone maps know nothing of texts inside texts: of this filter the estimate is far off.
    let sql = "select l_orderkey, l_comment from lineitem where l_comment like '%furiously even deposits%'";
    let options = EngineOptions { aggregates: AggregatePushdown::Never, ..options(Policy::Auto) };
    let engine = cluster.engine(Wire::Shm, options).await.expect("an engine");
    let explanation = engine.explain(sql, ExplainMode::Analyze).await.expect("it runs");
    let scan = &explanation.scans[0];
    let figures = scan.actual.as_ref().expect("it ran");
    assert_eq!(scan.planned.total(), scan.segments);
    assert_eq!(figures.reasons.iter().map(|count| count.segments).sum::<u64>(), scan.segments);
    for count in &figures.reasons {
        assert!(matches!(count.reason, ScanReason::Price | ScanReason::Explored), "{count:?}");
    }
    let mut sum = 0;
    for (placement, work) in &figures.by_placement {
        assert!(figures.segments.of(*placement) > 0, "{placement}");
        sum += work.rows_scanned;
    }
    assert_eq!(sum, figures.work.rows_scanned);
    for (placement, price) in &scan.prices {
        let (first, last) = (price.milliseconds, price.corrected_milliseconds);
        assert!(first.is_some() && last.is_some() && first != last, "{placement}: {price:?}");
    }
}
