//! Tests which part of each query runs inside its scans. Goal: the plans of all 22 queries are
//! written down, so that an effect of a change of the engine or of DataFusion is visible. Method:
//! golden files in `queries/tpch/plans`; run with `UPDATE_PLANS=1` to write them again, and read
//! the difference before committing it.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::ExplainMode;
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::{fs, path::PathBuf};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_plan_is_the_one_written_down() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(Shape { segment_rows: 16_384, page_size: 128 << 10 }).await.expect("data");
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteProcess)).await.expect("an engine");
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../queries/tpch/plans");
    let update = std::env::var_os("UPDATE_PLANS").is_some();
    let mut wrong = Vec::new();
    for query in rackscan_queries::tpch() {
        let plan = engine.explain(query.sql, ExplainMode::Plan).await.expect("it is planned").plan;
        let path = folder.join(format!("{}.txt", query.name()));
        if update {
            fs::create_dir_all(&folder).expect("the folder of plans");
            fs::write(&path, &plan).expect("a plan is written");
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if expected != plan {
            wrong.push(format!("{}, expected:\n{expected}\nfound:\n{plan}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{} plans differ\n{}", wrong.len(), wrong.join("\n"));
}
