//! What happens when a node is lost? Goal: one clear error that names it, at once, and no panic. Method: a node is
//! stopped before a query, and while a query's answer is being read.

use crate::cluster::{Outcome, Shape, TestCluster, options};
use rackscan_engine::EngineError;
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::time::Duration;

const SHAPE: Shape = Shape { segment_rows: 2048, page_size: 4 << 10 };
/// A lost node must be noticed well before any request's deadline.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// Reads a table while one of its nodes stops, and returns the error that comes instead of the rest.
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
