//! Tests that generated CSV and Parquet files are loaded with exactly the rows that they contain,
//! and broken files are refused.
//!
//! A seed determines a file: its columns and rows, with extremes and NULLs, and how they are
//! written.
//!
//! - Valid files: the rows in the cluster are the generated ones, value by value and with their
//!   types, and arrow's own reader finds the same rows in the same bytes.
//! - Files with invalid rows, CSV only: the message names one of these rows. A load that leaves
//!   such rows out stores exactly the other rows, and reports exactly the invalid ones.
//! - Broken files: bytes are changed, or the end is missing. The load never panics, and an error
//!   has one line. If the file is loaded all the same, the rows are those that arrow's reader
//!   finds. If the changed bytes are covered by a checksum, the load stores the original rows or
//!   fails.
//!
//! ```text
//! cells          one value, independent of its arrow type
//! values         generated values: numbers, times, texts, with their extremes
//! csv_values     texts that represent such a value
//! compression    compressed files of one or two members
//! csv_files      CSV files, with the rows that they contain
//! csv            tests of valid CSV files
//! csv_broken     tests of CSV files with invalid rows or changed bytes
//! parquet        tests of Parquet files, valid and broken
//! ```
//!
//! `RACKSCAN_CASES` is how many files each test generates, `RACKSCAN_SEED` the seed of the first
//! one; a failure prints the file's seed. Without these variables the run is short.

mod cells;
mod compression;
mod csv;
mod csv_broken;
mod csv_files;
mod csv_values;
mod parquet;
mod values;

use std::{ops::Range, time::Duration};

use rackscan_datasets::{LoadError, LoadSummary, TableSpec};

use crate::{cluster::TestCluster, rows};
use cells::{Row, rows_of};

/// The table that every file becomes.
const TABLE: &str = "generated";

/// The seeds of a test that draws so many files unless the environment asks for another number.
fn seeds(cases: u64) -> Range<u64> {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => {
            let parsed = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            parsed.unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number"))
        }
        Err(_) => default,
    };
    let first = number("RACKSCAN_SEED", 0x5eed);
    first..first + number("RACKSCAN_CASES", cases)
}

fn spec(partition_by: &str, sort_by: Option<&str>) -> TableSpec {
    TableSpec {
        name: TABLE.to_owned(),
        partition_by: partition_by.to_owned(),
        sort_by: sort_by.map(str::to_owned),
    }
}

/// The outcome of a load that ends, and fails in one line if it does.
async fn in_time(
    seed: u64,
    load: impl Future<Output = Result<LoadSummary, LoadError>>,
) -> Result<LoadSummary, String> {
    let loaded = tokio::time::timeout(Duration::from_secs(60), load).await;
    match loaded.unwrap_or_else(|_| panic!("seed {seed:#x}: still loading after a minute")) {
        Ok(summary) => Ok(summary),
        Err(LoadError::Defect { problem, .. }) => panic!("seed {seed:#x}: {problem}"),
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains('\n'), "seed {seed:#x}: {error}");
            Err(error)
        }
    }
}

/// The rows in the cluster, in an order that their values decide.
async fn stored(cluster: &TestCluster) -> Vec<Row> {
    let batches = rows::stored_batches(cluster, TABLE).await.expect("the table");
    let mut rows: Vec<Row> = batches.iter().flat_map(rows_of).collect();
    rows.sort_unstable();
    rows
}

/// The table's columns.
async fn columns(cluster: &TestCluster) -> Vec<(String, String)> {
    let catalog = cluster.cluster.catalog().await.expect("a catalog");
    let columns = &catalog.table(TABLE).expect("the table").definition.columns;
    columns.iter().map(|column| (column.name.clone(), column.column_type.to_string())).collect()
}

/// Demands the same rows in whatever order, and shows the first that differ.
fn assert_same(seed: u64, what: &str, mut found: Vec<Row>, mut expected: Vec<Row>) {
    found.sort_unstable();
    expected.sort_unstable();
    let differ = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "seed {seed:#x}, {what}: {} rows, expected {}; the first that differ: {differ:#?}",
        found.len(),
        expected.len()
    );
}
