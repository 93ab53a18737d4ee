//! Tests that a statement gives the same rows wherever its scans run. Goal: one semantics. Method:
//! random tables and statements; each statement is answered under every placement, by nodes that
//! bounce segments, and by DataFusion alone over the same rows in memory.
//!
//! The rule for errors (a decimal that overflows, a cast that does not fit, a division by zero):
//! SQL does not define for which rows an expression is computed. Earlier conjuncts that rule a row
//! out, pruned pages and the size of batches decide whether the value that cannot be computed
//! occurs, in DataFusion alone as well. So
//! - if DataFusion alone fails, each way may fail or answer, and the ways that answer agree with
//!   each other;
//! - if DataFusion alone answers, each way gives its rows. A way may fail only if DataFusion alone
//!   also fails when it computes the same expressions for every row. A statement that never fails
//!   in DataFusion never fails in another way.
//!
//! A panic is never an answer.
//!
//! `RACKSCAN_CASES` is the number of cases, `RACKSCAN_SEED` the seed of the first round.

#[path = "../tpch/cluster.rs"]
#[expect(dead_code, reason = "the tests of TPC-H also load it, look at device files and stop nodes")]
mod cluster;
mod counters;
mod draw;
mod expression;
mod generate;
mod load;
mod query;
mod rows;
mod run;
mod table;
mod ways;

use run::Run;

/// Cases unless the environment asks for another number.
const CASES_DEFAULT: u64 = 320;

#[test]
fn every_placement_gives_the_rows_that_datafusion_gives_alone() {
    let cases = match std::env::var("RACKSCAN_CASES") {
        Ok(text) => text.parse().expect("RACKSCAN_CASES is a number"),
        Err(_) => CASES_DEFAULT,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let report = runtime
        .expect("a runtime")
        .block_on(Run::new(cases).expect("a seed").all())
        .expect("nodes and tables");
    println!("{}", report.line());
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n\n"));
    assert!(report.missed().is_empty(), "no case met: {}", report.missed().join(", "));
}
