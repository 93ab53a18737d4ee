//! Tests that all 22 queries give the expected rows wherever their scans run. Goal: every
//! placement, on both wires, with segments and pages so small that rows cross their boundaries.
//! Method: TPC-H at scale factor 0.01 in a cluster of in-process nodes, compared with answers of an
//! independent engine (`queries/README.md`).

use crate::{
    answers::Expected,
    cluster::{Outcome, Shape, TestCluster, options},
};
use rackscan_engine::{AggregatePushdown, EngineOptions};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;

/// Runs every query under each policy on each wire and lists what is wrong.
async fn differences(
    shape: Shape,
    runs: &[(Wire, Policy)],
    change: impl Fn(&mut EngineOptions),
) -> Outcome<Vec<String>> {
    let cluster = TestCluster::start(3)?;
    cluster.load(shape).await?;
    let mut wrong = Vec::new();
    for &(wire, policy) in runs {
        let mut options = options(policy);
        change(&mut options);
        let engine = cluster.engine(wire, options).await?;
        for query in rackscan_queries::tpch() {
            let name = query.name();
            let difference = match engine.sql(query.sql).await {
                Ok(outcome) => Expected::of_tpch("0.01", &name)?.difference(&outcome),
                Err(error) => Some(error.to_string()),
            };
            wrong.extend(difference.map(|what| format!("{name} {policy} {wire:?} {shape:?}: {what}")));
        }
    }
    Ok(wrong)
}

fn all_policies(wires: &[Wire]) -> Vec<(Wire, Policy)> {
    wires.iter().flat_map(|&wire| Policy::ALL.map(|policy| (wire, policy))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_is_right_under_every_placement_on_both_wires() {
    let shape = Shape { segment_rows: 8192, page_size: 16 << 10 };
    let runs = all_policies(&[Wire::Shm, Wire::Tcp]);
    let wrong = differences(shape, &runs, |_| ()).await.expect("a cluster with data");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_segments_and_pages_change_no_answer() {
    let shape = Shape { segment_rows: 2048, page_size: 4 << 10 };
    let runs = [(Wire::Tcp, Policy::RemoteProcess), (Wire::Shm, Policy::RemoteFetch)];
    // Groups of every segment cross the boundary between scan and engine.
    let wrong = differences(shape, &runs, |options| options.aggregates = AggregatePushdown::Always).await;
    let wrong = wrong.expect("a cluster with data");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_segments_and_pages_change_no_answer() {
    let shape = Shape { segment_rows: 131_072, page_size: 128 << 10 };
    let runs =
        [(Wire::Shm, Policy::RemoteProcess), (Wire::Tcp, Policy::RemoteFetch), (Wire::Shm, Policy::Local)];
    let wrong = differences(shape, &runs, |options| options.threads = 1).await.expect("a cluster with data");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
