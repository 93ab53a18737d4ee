//! Tests queries that lose a node. Goal: one clear error that names the node, at once, and no
//! panic; or the whole answer, if the node's devices can be read without it and no other placement
//! is forced. Method: a node is stopped before a query, and while a query's answer is being read.

use crate::cluster::{Outcome, Shape, TestCluster, options};
use rackscan_engine::{
    AggregatePushdown, Engine, EngineError, EngineOptions, QueryStream, ScanReason,
    arrow::{array::AsArray, datatypes::Int64Type},
};
use rackscan_fabric::Wire;
use rackscan_planner::{Calibration, Constant, Placement, Policy};
use std::time::Duration;

const SHAPE: Shape = Shape { segment_rows: 2048, page_size: 4 << 10 };
/// A lost node must be noticed well before any request's deadline.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// Reads a table while one of its nodes stops, and returns the error that comes instead of the
/// rest.
async fn error_in_mid_query(wire: Wire, policy: Policy) -> Outcome<Option<EngineError>> {
    let mut cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let mut options = options(policy);
    options.threads = 1;
    options.segments_in_flight = 1;
    let engine = cluster.engine(wire, options).await?;
    let mut stream = engine.stream("select * from lineitem").await?;
    assert!(stream.next().await?.is_some(), "the first rows come");
    cluster.stop(1)?;
    let rest = async {
        loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
    };
    Ok(tokio::time::timeout(NOTICED_WITHIN, rest).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_lost_in_mid_query_is_named_on_both_wires() {
    for (wire, policy) in [
        (Wire::Shm, Policy::RemoteFetch),
        (Wire::Tcp, Policy::RemoteFetch),
        (Wire::Shm, Policy::RemoteProcess),
        (Wire::Tcp, Policy::RemoteProcess),
    ] {
        let error = error_in_mid_query(wire, policy).await.expect("a cluster with data");
        let error = error.expect("half of the table is gone, so there is no answer").to_string();
        assert!(error.contains("node 1"), "{policy} {wire:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_after_the_loss_fail_at_once_and_other_tables_wait_for_nothing() {
    let mut cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteProcess)).await.expect("an engine");
    cluster.stop(1).expect("it stops");
    for _ in 0..2 {
        let answer = engine.sql("select sum(l_quantity) from lineitem");
        let answer = tokio::time::timeout(NOTICED_WITHIN, answer).await.expect("no hang");
        let error = answer.expect_err("a node is missing").to_string();
        assert!(error.contains("node 1"), "{error}");
    }
}

const ROWS: &str = "select l_orderkey from lineitem";

/// Rows and their sum, of what is left of an answer.
async fn rest(stream: &mut QueryStream) -> (usize, i64) {
    let (mut rows, mut sum) = (0, 0);
    while let Some(batch) = stream.next().await.expect("it goes on") {
        rows += batch.num_rows();
        sum += batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>();
    }
    (rows, sum)
}

/// An engine that is so slow, as it thinks, that every scan is better off in its node.
async fn slow_engine(cluster: &TestCluster, segments_in_flight: usize) -> Engine {
    let mut calibration = Calibration::default();
    calibration.engine.value_ns = Constant::measured(10_000.0, "for this test");
    let aggregates = AggregatePushdown::Never;
    let options = EngineOptions { calibration, segments_in_flight, aggregates, ..options(Policy::Auto) };
    cluster.engine(Wire::Shm, EngineOptions { threads: 1, ..options }).await.expect("an engine")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_automatic_scan_goes_on_without_a_lost_node_whose_devices_are_attached() {
    // One segment at a time; and several, of which the node bounces most, so that they are fetched
    // when it is lost, but by far not all that there are: some must be left when it is.
    for (segments_in_flight, scan_queue) in [(1, 64), (8, 1)] {
        let mut cluster = TestCluster::start_with(2, |config| config.scan_queue = scan_queue).expect("nodes");
        cluster.load(SHAPE).await.expect("data");
        let engine = slow_engine(&cluster, segments_in_flight).await;
        let whole = rest(&mut engine.stream(ROWS).await.expect("it is planned")).await;

        let mut stream = engine.stream(ROWS).await.expect("it is planned");
        let first = stream.next().await.expect("it begins").expect("rows");
        let first = first.column(0).as_primitive::<Int64Type>().values().to_vec();
        cluster.stop(1).expect("it stops");
        let (rows, sum) = rest(&mut stream).await;
        assert_eq!((first.len() + rows, first.iter().sum::<i64>() + sum), whole, "no row is lost or doubled");
        let figures = stream.scans()[0].actual.clone().expect("it ran");
        assert_eq!(figures.segments.total(), stream.scans()[0].segments);
        let why = |reason| figures.reasons.iter().find(|count| count.reason == reason);
        let lost = why(ScanReason::NodeLost).expect("segments of the lost node were left");
        assert!(lost.placement == Placement::Local && lost.segments > 0, "{:?}", figures.reasons);
        assert!(figures.segments.remote_process > 0, "{:?}", figures.reasons);
        assert_eq!(figures.losses.iter().map(|loss| loss.node).collect::<Vec<_>>(), [1]);
        assert!(figures.losses[0].text.contains("node 1"), "{:?}", figures.losses);

        // What the lost node has written since is not known to the next query.
        let error = engine.sql(ROWS).await.expect_err("nobody has a replica of its log").to_string();
        assert!(error.contains("participant 1"), "{error}");
    }
}
