//! Tests that the rows of each node are sorted, both in memory and with runs in files.

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use std::{fs, sync::Arc};

use rackscan_datasets::{
    LoadOptions, TableSpec, parquet as loads,
    tpch::{self, SortBy},
};

use crate::{
    cluster::{Outcome, TestCluster},
    parquet::write_file,
    rows,
};

/// How much is held while sorting: everything, or so little that runs are spilled and merged
/// several times.
const MEMORY_BYTES: [usize; 2] = [256 << 20, 200 << 10];

#[tokio::test(flavor = "multi_thread")]
async fn lines_sorted_by_date_are_the_same_lines_in_order() {
    let cluster = TestCluster::start(2).await.unwrap();
    tpch::load(&cluster.cluster, 0.005, &[], &LoadOptions::default(), &|_| ()).await.unwrap();
    let lines = rows::stored_set(&cluster, "lineitem").await.unwrap();
    let orders = rows::stored(&cluster, "orders").await.unwrap();
    let spill = cluster.folder().join("spill");
    fs::create_dir(&spill).unwrap();
    for sort_memory_bytes in MEMORY_BYTES {
        let options = LoadOptions {
            sort_memory_bytes,
            segment_rows: 4096,
            spill_folder: spill.clone(),
            ..LoadOptions::default()
        };
        let sort = vec!["lineitem.l_shipdate".parse::<SortBy>().unwrap()];
        tpch::load(&cluster.cluster, 0.005, &sort, &options, &|_| ()).await.unwrap();
        assert_eq!(rows::stored_set(&cluster, "lineitem").await.unwrap(), lines);
        for (node, rows) in rows::stored(&cluster, "lineitem").await.unwrap() {
            let dates: Vec<&str> = rows.iter().filter_map(|line| line.split('|').nth(10)).collect();
            assert!(dates.is_sorted() && dates.len() == rows.len(), "node {node}");
        }
        let catalog = cluster.cluster.catalog().await.unwrap();
        let definition = &catalog.table("lineitem").unwrap().definition;
        assert_eq!(definition.sorted_by, Some(definition.column("l_shipdate").unwrap().0));
        assert_eq!(rows::stored(&cluster, "orders").await.unwrap().len(), orders.len());
        assert_eq!(fs::read_dir(&spill).unwrap().count(), 0);
    }
}

/// Rows whose keys repeat, are null, are not numbers, or are empty.
fn odd_rows() -> RecordBatch {
    let numbers = (0..40_000_i64).map(|row| match row % 11 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(f64::NEG_INFINITY),
        _ => Some(f64::from(i32::try_from((row * 7919) % 1000).unwrap_or(0)) / 8.0 - 50.0),
    });
    let texts = (0..40_000_i64).map(|row| match row % 13 {
        0 => None,
        1 => Some(String::new()),
        _ => Some(format!("{:x}", (row * 104_729) % 5000)),
    });
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..40_000)),
        Arc::new(Float64Array::from_iter(numbers)),
        Arc::new(StringArray::from_iter(texts)),
    ];
    let field = |name: &str, data_type| Field::new(name, data_type, name != "id");
    let schema = Schema::new(vec![
        field("id", DataType::Int64),
        field("number", DataType::Float64),
        field("text", DataType::Utf8),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns that agree")
}

async fn load_sorted(
    cluster: &TestCluster,
    sort_by: &str,
    sort_memory_bytes: usize,
) -> Outcome<Vec<Vec<String>>> {
    let file = write_file(cluster.folder(), &odd_rows())?;
    let table = TableSpec { name: "odd".into(), partition_by: "id".into(), sort_by: Some(sort_by.into()) };
    let options = LoadOptions { sort_memory_bytes, segment_rows: 2048, ..LoadOptions::default() };
    loads::load(&cluster.cluster, &file, &table, &options, &|_| ()).await?;
    let mut expected = rows::lines(&odd_rows())?;
    expected.sort_unstable();
    assert_eq!(rows::stored_set(cluster, "odd").await?, expected);
    Ok(rows::stored(cluster, "odd").await?.into_iter().map(|(_, rows)| rows).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn nulls_come_last_and_texts_are_sorted_by_their_bytes() {
    let cluster = TestCluster::start(2).await.unwrap();
    for sort_memory_bytes in MEMORY_BYTES {
        for node in load_sorted(&cluster, "text", sort_memory_bytes).await.unwrap() {
            let texts: Vec<&str> = node.iter().filter_map(|line| line.split('|').nth(2)).collect();
            let nulls = texts.iter().position(|text| *text == "-").unwrap();
            assert!(texts[..nulls].is_sorted() && nulls > 0);
            assert!(texts[nulls..].iter().all(|text| *text == "-"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_come_before_nans_and_nans_before_nulls() {
    let cluster = TestCluster::start(1).await.unwrap();
    for sort_memory_bytes in MEMORY_BYTES {
        for node in load_sorted(&cluster, "number", sort_memory_bytes).await.unwrap() {
            let rank = |line: &String| match line.split('|').nth(1) {
                Some("-") => (2, 0.0),
                Some("NaN") => (1, 0.0),
                text => (0, text.and_then(|text| text.parse().ok()).expect("a number")),
            };
            let ranks: Vec<(i32, f64)> = node.iter().map(rank).collect();
            assert!(ranks.is_sorted());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spill_folder_that_is_not_there_is_named() {
    let cluster = TestCluster::start(1).await.unwrap();
    let file = write_file(cluster.folder(), &odd_rows()).unwrap();
    let table = TableSpec { name: "odd".into(), partition_by: "id".into(), sort_by: Some("text".into()) };
    let spill_folder = cluster.folder().join("no such folder");
    let options = LoadOptions { sort_memory_bytes: 1 << 10, spill_folder, ..LoadOptions::default() };
    let error =
        loads::load(&cluster.cluster, &file, &table, &options, &|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("no such folder"), "{error}");
    assert!(cluster.cluster.catalog().await.unwrap().tables.is_empty());
}
