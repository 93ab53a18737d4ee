//! Tests that EXPLAIN reports what a query did. Goal: the figures of a run add up and agree between
//! placements. Method: the same query under each placement, its figures compared with each other
//! and with the table.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{
    AggregatePushdown, EngineOptions, ExplainMode, Explanation, ReasonCount, ScanFigures, ScanReason,
    arrow::array::AsArray,
};
use rackscan_fabric::Wire;
use rackscan_planner::{Placement, Policy};
use rackscan_storage_node::ByteSize;

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
    // What one placement leaves in a node's cache the next would not read.
    let uncached = TestCluster::start_with(2, |config| config.cache = Some(ByteSize(0)));
    let cluster = uncached.expect("a cluster");
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
    // There is one conjunct, so it alone is why zone maps skip pages.
    assert_eq!(scan.zone_maps[0].pages_ruled_out, local.work.pages_skipped_by_zone);
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
        "remaining filter   CAST(CAST(l_quantity",
        "placement          remote-process -> ",
        "remote-fetch",
        "bytes on the wire",
        "useful bytes",
        "zone maps alone",
        "(above the scan: expression not supported)",
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

/// What one explanation says of its scan, for people and for programs.
struct Explained {
    text: String,
    scan: serde_json::Value,
}

impl Explained {
    fn count(&self, pointer: &str) -> u64 {
        let value = self.scan.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {:#}", self.scan));
        value.as_u64().unwrap_or_else(|| panic!("{pointer} is {value}, no count"))
    }

    fn line(&self, name: &str) -> &str {
        let found = self.text.lines().find(|line| line.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("no line {name:?} in\n{}", self.text))
    }

    /// Every number of people's lines is one of the fields of programs.
    fn numbers_agree(&self) {
        let ms = |pointer: &str| {
            format!("{}.{:02} ms", self.count(pointer) / 1000, self.count(pointer) % 1000 / 10)
        };
        let work = |field: &str| format!("/actual/{field}");
        for (name, expected) in [
            ("pages read", vec![self.count(&work("pages_read")).to_string()]),
            (
                "pages skipped",
                vec![
                    format!("{} by zone maps", self.count(&work("pages_skipped_by_zone"))),
                    format!("{} by empty selections", self.count(&work("pages_skipped_by_selection"))),
                ],
            ),
            (
                "round trips",
                vec![
                    format!(" {},", self.count(&work("round_trips"))),
                    format!("{} requests", self.count(&work("requests"))),
                ],
            ),
            (
                "rows  ",
                vec![format!("{} of {} estimated", self.count("/estimated_rows"), self.count("/rows"))],
            ),
            ("engine time", vec![format!("{} CPU", ms(&work("engine_cpu_us")))]),
            ("node time", vec![format!("{} CPU of scans", ms(&work("node_cpu_us")))]),
            (
                "ran: segments",
                vec![
                    format!("local {}", self.count(&work("segments/local"))),
                    format!("remote-fetch {}", self.count(&work("segments/remote_fetch"))),
                    format!("remote-process {}", self.count(&work("segments/remote_process"))),
                ],
            ),
        ] {
            for expected in expected {
                assert!(self.line(name).contains(&expected), "{expected:?} is not in {:?}", self.line(name));
            }
        }
        let scanned = format!(
            "{} scanned, {} selected, {} came out",
            self.count(&work("rows_scanned")),
            self.count(&work("rows_selected")),
            self.count(&work("rows_out"))
        );
        assert!(self.text.contains(&scanned), "{scanned} is not in\n{}", self.text);
        for (name, field) in [
            ("bytes from disk", "disk_bytes"),
            ("bytes on the wire", "wire_bytes"),
            ("useful bytes", "useful_bytes"),
        ] {
            assert!(self.count(&work(field)) > 0, "{field}");
            assert!(self.line(name).contains('B'), "{name}");
        }
    }

    /// Planned against actual; where, and why there; why not elsewhere, and at which price.
    fn placements_agree(&self) {
        let planned: u64 = ["local", "remote_fetch", "remote_process"]
            .map(|name| self.count(&format!("/planned/{name}")))
            .iter()
            .sum();
        assert_eq!(planned, self.count("/segments"));
        let reasons = self.scan["actual"]["reasons"].as_array().expect("reasons");
        assert_eq!(
            reasons.iter().map(|each| each["segments"].as_u64().expect("a count")).sum::<u64>(),
            planned
        );
        assert!(
            reasons.iter().any(|each| each["reason"] == "price") && self.text.contains("(price)"),
            "{}",
            self.text
        );
        // Why not elsewhere, and at which price.
        let why_not = self.scan["prices"]["local"]["why_not"].as_str().expect("a reason");
        assert!(why_not.starts_with("not attached: "), "{why_not}");
        assert!(self.line("local ").contains(&format!("cannot apply: {why_not}")), "{}", self.text);
        assert!(
            self.scan["prices"]["local"]["milliseconds"].is_null()
                && self.count("/actual/segments/local") == 0
        );
        for placement in ["remote-fetch", "remote-process"] {
            let price = |field: &str| self.scan["prices"][placement][field].as_f64().expect("a price");
            let (first, last) = (price("milliseconds"), price("corrected_milliseconds"));
            let expected = format!("{first:.2} ms at first, {last:.2} ms at last");
            assert!(
                self.line(&format!("{placement} ")).contains(&expected),
                "{expected} is not in\n{}",
                self.text
            );
        }
    }

    /// Which filter skipped how much, and which one could not go down.
    fn filters_agree(&self) {
        let zones = self.scan["zone_maps"].as_array().expect("one for each conjunct");
        assert_eq!(zones.len(), 2);
        for (zone, conjunct) in zones.iter().zip(self.scan["pushed_filter"].as_array().expect("conjuncts")) {
            let expected = format!(
                "{} of {} rows, {} pages by {}",
                zone["rows_ruled_out"],
                self.count("/rows"),
                zone["pages_ruled_out"],
                conjunct.as_str().expect("SQL")
            );
            assert!(self.text.contains(&expected), "{expected} is not in\n{}", self.text);
        }
        let remaining = &self.scan["remaining_filter"][0];
        assert_eq!(remaining["reason"], "expression not supported");
        let sql = remaining["sql"].as_str().expect("SQL");
        assert!(
            self.line("remaining filter")
                .contains(&format!("{sql} (above the scan: expression not supported)"))
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_text_says_json_says_item_by_item() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    // Whoever opens an engine now cannot open the devices by their paths any more; the nodes have
    // them open.
    for device in [cluster.devices(0), cluster.devices(1)].concat() {
        std::fs::rename(&device, device.with_extension("elsewhere")).expect("it is renamed");
    }
    // Rows were loaded by order, and orders do not know their dates; keys are what zone maps can
    // tell apart.
    let sql =
        "select l_comment from lineitem where l_orderkey < 5000 and l_quantity < 3 and l_quantity / 2 < 10";
    let options = EngineOptions { aggregates: AggregatePushdown::Never, ..options(Policy::Auto) };
    let engine = cluster.engine(Wire::Shm, options).await.expect("an engine");
    let explanation = engine.explain(sql, ExplainMode::Analyze).await.expect("it runs");
    let json = explanation.to_json().expect("it is JSON");
    let explained = Explained { text: explanation.to_string(), scan: json["scans"][0].clone() };
    explained.numbers_agree();
    explained.placements_agree();
    explained.filters_agree();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_segments_on_their_way_are_bounded_in_bytes() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(Shape { segment_rows: 65_536, page_size: 4 << 10 }).await.expect("data");
    let mut requests = Vec::new();
    for partition_page_bytes in [EngineOptions::default().partition_page_bytes, 1 << 20] {
        let options = EngineOptions {
            segments_in_flight: 16,
            partition_page_bytes,
            aggregates: AggregatePushdown::Never,
            ..options(Policy::RemoteFetch)
        };
        let engine = cluster.engine(Wire::Shm, options).await.expect("an engine");
        let outcome = engine.sql("select l_orderkey, l_comment, l_extendedprice from lineitem").await;
        let work = outcome.expect("it runs").report.total.work;
        let share = (partition_page_bytes as u64 / 16).min(64 << 20);
        // A sixteenth at a time: no fetch brings more.
        assert!(work.wire_bytes / work.round_trips.max(1) <= share, "{partition_page_bytes}: {work:?}");
        requests.push(work.requests);
    }
    assert!(requests[1] >= 8 * requests[0], "a small share is fetched in many parts: {requests:?}");
}
