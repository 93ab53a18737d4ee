//! Tests queries over corrupt pages. Goal: an error that names the page, under every placement, and
//! never an answer. Method: bytes of device files are overwritten while the nodes do not notice.

use crate::cluster::{Outcome, Shape, TestCluster, options};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::{fs::File, os::unix::fs::FileExt, path::Path};

const SHAPE: Shape = Shape { segment_rows: 8192, page_size: 16 << 10 };

/// Overwrites some bytes of every sector that may hold a page. The first megabyte may hold a label.
fn spoil(device: &Path) -> Outcome<()> {
    let file = File::options().write(true).open(device)?;
    for sector in 256..4096_u64 {
        file.write_all_at(&[0x5a; 64], sector * 4096 + 1024)?;
    }
    Ok(file.sync_all()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_page_is_named_under_every_placement() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    for device in cluster.devices(0) {
        spoil(&device).expect("the device file can be written");
    }
    for policy in Policy::ALL {
        let engine = cluster.engine(Wire::Tcp, options(policy)).await.expect("an engine");
        let error = engine.sql("select sum(l_extendedprice), max(l_comment) from lineitem").await;
        let error = error.expect_err("its pages are wrong").to_string();
        assert!(error.contains("page ") && error.contains("segment "), "{policy}: {error}");
    }
}
