//! Tests that a node bounces segments when it has more scans than it can queue. Goal: the node
//! reports a reason, the engine fetches and scans the segments itself, and no row is lost or
//! doubled. Method: one scan worker with a queue of one, and requests for many more segments at a
//! time.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{AggregatePushdown, EngineOptions, ScanReason};
use rackscan_fabric::Wire;
use rackscan_format::message::BounceReason;
use rackscan_planner::{Placement, Policy};

const SHAPE: Shape = Shape { segment_rows: 2048, page_size: 4 << 10 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_that_a_busy_node_bounces_are_fetched_and_nothing_is_lost() {
    let cluster = TestCluster::start_with(1, |config| config.scan_queue = 1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let sql =
        "select sum(l_orderkey), count(l_comment), sum(l_quantity) from lineitem where l_linenumber < 6";
    for aggregates in [AggregatePushdown::Never, AggregatePushdown::Always] {
        let all_at_once =
            EngineOptions { segments_in_flight: 64, aggregates, ..options(Policy::RemoteProcess) };
        let engine = cluster.engine(Wire::Shm, all_at_once).await.expect("an engine");
        let bounced = engine.sql(sql).await.expect("it runs");
        engine.set_policy(Policy::Local);
        let local = engine.sql(sql).await.expect("it runs");
        assert_eq!(bounced.batches, local.batches, "{aggregates:?}");

        let figures = &bounced.report.total;
        assert!(figures.bounced > 0, "{aggregates:?}: {figures:?}");
        assert_eq!(figures.bounced, figures.segments.remote_fetch);
        assert_eq!(figures.segments.total(), bounced.scans()[0].segments);
        assert_eq!(figures.work.rows_scanned, local.report.total.work.rows_scanned);
        assert!(
            figures
                .bounces
                .iter()
                .all(|bounce| bounce.reason == BounceReason::Queue && !bounce.text.is_empty())
        );
        let queue = figures.reasons.iter().find(|count| count.reason == ScanReason::BouncedQueue);
        assert_eq!(
            queue.map(|count| (count.placement, count.segments)),
            Some((Placement::RemoteFetch, figures.bounced))
        );
        let forced = figures.reasons.iter().find(|count| count.reason == ScanReason::Forced);
        assert_eq!(forced.map_or(0, |count| count.segments), figures.segments.remote_process);
    }
}
