//! Tests that a load that ends early leaves nothing behind, and that the next load succeeds.

use rackscan_client::ClientError;
use rackscan_datasets::{LoadError, LoadOptions, Progress, tpch};
use rackscan_format::ids::NodeId;
use tokio::sync::Notify;

use crate::{
    cluster::{Outcome, TestCluster},
    rows,
};

const SCALE: f64 = 0.01;

/// Small segments, so that many are stored before the load is over.
fn options() -> LoadOptions {
    LoadOptions { segment_rows: 1024, ..LoadOptions::default() }
}

fn is_amid_lines(progress: &Progress<'_>) -> bool {
    progress.table == "lineitem" && progress.rows_stored > 5000
}

/// Drops a load while its lines are being stored.
async fn interrupt(cluster: &TestCluster) -> Outcome<()> {
    let amid = Notify::new();
    let watch = |progress: &Progress<'_>| {
        if is_amid_lines(progress) {
            amid.notify_one();
        }
    };
    let options = options();
    tokio::select! {
        biased;
        () = amid.notified() => Ok(()),
        loaded = tpch::load(&cluster.cluster, SCALE, &[], &options, &watch) => {
            Err(format!("the load ended before it was interrupted: {loaded:?}").into())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_dropped_leaves_nothing_and_the_next_one_succeeds() {
    let cluster = TestCluster::start(2).await.unwrap();
    interrupt(&cluster).await.unwrap();
    let catalog = cluster.cluster.catalog().await.unwrap();
    assert!(catalog.tables.is_empty() && catalog.broken.is_empty());
    let summary = tpch::load(&cluster.cluster, SCALE, &[], &options(), &|_| ()).await.unwrap();
    let lines = rows::stored_set(&cluster, "lineitem").await.unwrap();
    assert_eq!(lines.len() as u64, summary.tables.last().unwrap().rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_dropped_leaves_the_tables_of_an_earlier_one() {
    let cluster = TestCluster::start(2).await.unwrap();
    tpch::load(&cluster.cluster, 0.002, &[], &options(), &|_| ()).await.unwrap();
    let before = rows::stored_set(&cluster, "lineitem").await.unwrap();
    interrupt(&cluster).await.unwrap();
    let catalog = cluster.cluster.catalog().await.unwrap();
    assert_eq!(catalog.tables.len(), tpch::TABLES.len());
    assert!(catalog.tables.iter().all(|table| table.definition.source == tpch::source(0.002)));
    assert_eq!(rows::stored_set(&cluster, "lineitem").await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn space_of_interrupted_loads_is_free_again() {
    let cluster = TestCluster::start(1).await.unwrap();
    let used = async || -> Outcome<Vec<u64>> {
        let status = cluster.cluster.status(NodeId(0)).await?;
        Ok(status.devices.iter().map(|device| device.used_bytes).collect())
    };
    let before = used().await.unwrap();
    for _ in 0..3 {
        interrupt(&cluster).await.unwrap();
    }
    // Aborts of dropped loads are not waited for; one that is asked for later comes after them.
    for _ in 0..200 {
        if used().await.unwrap() == before {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{before:?} became {:?}", used().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_in_the_middle_of_a_load_is_named_and_nothing_is_published() {
    let cluster = TestCluster::start(3).await.unwrap();
    let stop = |progress: &Progress<'_>| {
        if is_amid_lines(progress) {
            cluster.stop_one();
        }
    };
    let error = tpch::load(&cluster.cluster, SCALE, &[], &options(), &stop).await.unwrap_err();
    let LoadError::Cluster(
        ClientError::NodeLost { .. } | ClientError::Refused { .. } | ClientError::Unreachable { .. },
    ) = &error
    else {
        panic!("expected a lost node, found {error:?}");
    };
    assert!(error.to_string().contains("node "), "{error}");
}
