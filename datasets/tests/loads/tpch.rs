//! Tests that the tables of TPC-H arrive as their generator produces them.

use std::{collections::BTreeMap, sync::Mutex};

use arrow::array::RecordBatch;
use rackscan_datasets::{
    LoadError, LoadOptions,
    tpch::{self, SortBy, TABLES},
};
use rackscan_format::{ids::NodeId, participant::KeyHash};
use tpchgen::generators::{LineItemGenerator, NationGenerator, OrderGenerator, PartSuppGenerator};
use tpchgen_arrow::{LineItemArrow, NationArrow, OrderArrow, PartSuppArrow};

use crate::{
    cluster::{Outcome, TestCluster},
    rows,
};

const SCALE: f64 = 0.002;

fn generated(
    batches: impl Iterator<Item = Result<RecordBatch, arrow::error::ArrowError>>,
) -> Outcome<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        rows.extend(rows::lines(&batch?)?);
    }
    rows.sort_unstable();
    Ok(rows)
}

/// A column of a line.
fn key(line: &str, column: usize) -> i64 {
    line.split('|').nth(column).and_then(|text| text.parse().ok()).expect("a key")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_arrives_exactly_once_whatever_the_sizes_of_segments_and_pages() {
    let cluster = TestCluster::start(3).await.unwrap();
    let lines = generated(LineItemArrow::new(LineItemGenerator::new(SCALE, 1, 1))).unwrap();
    for (segment_rows, page_size, threads) in [(1024, 4096, 1), (2048, 16384, 3), (131_072, 131_072, 2)] {
        let options = LoadOptions { segment_rows, page_size, threads, ..LoadOptions::default() };
        let summary = tpch::load(&cluster.cluster, SCALE, &[], &options, &|_| ()).await.unwrap();
        assert_eq!(summary.tables.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), TABLES);
        assert_eq!(rows::stored_set(&cluster, "lineitem").await.unwrap(), lines);
        let catalog = cluster.cluster.catalog().await.unwrap();
        let stored: u64 = catalog.tables.iter().map(|table| table.stored_bytes()).sum();
        assert_eq!(summary.stored_bytes, stored);
        assert_eq!(summary.rows, catalog.tables.iter().map(|table| table.definition.rows).sum::<u64>());
    }
    let orders = generated(OrderArrow::new(OrderGenerator::new(SCALE, 1, 1))).unwrap();
    assert_eq!(rows::stored_set(&cluster, "orders").await.unwrap(), orders);
    let supplies = generated(PartSuppArrow::new(PartSuppGenerator::new(SCALE, 1, 1))).unwrap();
    assert_eq!(rows::stored_set(&cluster, "partsupp").await.unwrap(), supplies);
    let nations = generated(NationArrow::new(NationGenerator::new(SCALE, 1, 1))).unwrap();
    assert_eq!(rows::stored_set(&cluster, "nation").await.unwrap(), nations);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_and_its_lines_are_at_the_participant_of_their_key() {
    let cluster = TestCluster::start(4).await.unwrap();
    tpch::load(&cluster.cluster, SCALE, &[], &LoadOptions::default(), &|_| ()).await.unwrap();
    let mut rows_of: BTreeMap<NodeId, usize> = BTreeMap::new();
    for table in ["orders", "lineitem"] {
        for (node, rows) in rows::stored(&cluster, table).await.unwrap() {
            *rows_of.entry(node).or_default() += rows.len();
            for line in rows {
                let participant = KeyHash::of_integer(key(&line, 0)).position(4);
                assert_eq!(usize::from(node.0), participant, "{table}: {line}");
            }
        }
    }
    assert_eq!(rows_of.len(), 4);
    let (least, most) = (rows_of.values().min().unwrap(), rows_of.values().max().unwrap());
    assert!(most - least < most / 4, "{rows_of:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_stay_near_their_neighbours_so_that_keys_pack_into_few_bits() {
    let cluster = TestCluster::start(2).await.unwrap();
    let options = LoadOptions { threads: 4, ..LoadOptions::default() };
    tpch::load(&cluster.cluster, 0.01, &[], &options, &|_| ()).await.unwrap();
    for (node, rows) in rows::stored(&cluster, "lineitem").await.unwrap() {
        let keys: Vec<i64> = rows.iter().map(|line| key(line, 0)).collect();
        // Four pieces of 4,096 orders, whose keys use 8 of every 32 numbers.
        let span = 4 * 4096 * 4;
        let far = keys.windows(2).filter(|pair| pair[0] - pair[1] > span).count();
        assert_eq!(far, 0, "node {node}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_ends_with_every_row_stored_and_totals_are_near() {
    let cluster = TestCluster::start(1).await.unwrap();
    let last: Mutex<BTreeMap<String, (u64, u64, u64)>> = Mutex::default();
    let note = |progress: &rackscan_datasets::Progress<'_>| {
        let state = (progress.rows_read, progress.rows_stored, progress.rows_total.unwrap_or(0));
        last.lock().unwrap().insert(progress.table.to_owned(), state);
    };
    let summary = tpch::load(&cluster.cluster, 0.01, &[], &LoadOptions::default(), &note).await.unwrap();
    let last = last.into_inner().unwrap();
    for table in &summary.tables {
        let (read, stored, total) = last[&table.name];
        assert_eq!((read, stored), (table.rows, table.rows), "{}", table.name);
        assert!(total.abs_diff(table.rows) <= table.rows / 100, "{}: {total} of {}", table.name, table.rows);
    }
}

#[test]
fn raw_bytes_are_those_of_the_files_that_the_generator_would_write() {
    let scale = 0.01;
    let mut bytes = 0;
    macro_rules! add {
        ($($generator:ident),*) => { $(
            for row in tpchgen::generators::$generator::new(scale, 1, 1).iter() {
                bytes += row.to_string().len() as u64 + 1;
            }
        )* };
    }
    add!(RegionGenerator, NationGenerator, SupplierGenerator, CustomerGenerator);
    add!(PartGenerator, PartSuppGenerator, OrderGenerator, LineItemGenerator);
    assert_eq!(tpch::raw_bytes(1.0), 1_100_693_130);
    let stated = tpch::raw_bytes(scale);
    assert!(stated.abs_diff(bytes) <= bytes / 20, "{stated} stated, {bytes} written");
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_cannot_work_are_refused_before_anything_is_loaded() {
    let cluster = TestCluster::start(1).await.unwrap();
    let sort = |text: &str| vec![text.parse::<SortBy>().unwrap()];
    let load = async |scale: f64, sort_by: Vec<SortBy>, options: LoadOptions| {
        let loaded = tpch::load(&cluster.cluster, scale, &sort_by, &options, &|_| ()).await;
        loaded.map(|summary| summary.rows).unwrap_err()
    };
    let error = load(0.0, vec![], LoadOptions::default()).await.to_string();
    assert_eq!(error, "the scale factor is 0, expected 0.001 to 100000");
    let error = load(f64::NAN, vec![], LoadOptions::default()).await;
    assert!(matches!(error, LoadError::Option { .. }), "{error}");
    let error = load(SCALE, sort("lines.l_shipdate"), LoadOptions::default()).await.to_string();
    assert!(error.contains("\"lines\"") && error.contains("lineitem"), "{error}");
    let error = load(SCALE, sort("lineitem.shipdate"), LoadOptions::default()).await.to_string();
    assert!(error.contains("\"shipdate\"") && error.contains("l_shipdate"), "{error}");
    let error =
        load(SCALE, vec![], LoadOptions { page_size: 5000, ..LoadOptions::default() }).await.to_string();
    assert!(error.contains("5000 bytes"), "{error}");
    let error = load(SCALE, vec![], LoadOptions { threads: 0, ..LoadOptions::default() }).await.to_string();
    assert_eq!(error, "the number of threads is 0, expected 1 to 256");
    assert!("lineitem".parse::<SortBy>().unwrap_err().to_string().contains("TABLE.COLUMN"));
    let options = LoadOptions::default();
    let unknown = tpch::load_some(&cluster.cluster, SCALE, &["lines"], &[], &options, &|_| ());
    let error = unknown.await.map(|summary| summary.rows).unwrap_err().to_string();
    assert!(error.contains("the table to load is \"lines\"") && error.contains("lineitem"), "{error}");
    assert!(cluster.cluster.catalog().await.unwrap().tables.is_empty());
}
