//! Do the rows of a CSV file arrive, and does a message lead to one that does not parse?

use std::{fmt::Write, fs, path::PathBuf};

use rackscan_datasets::{
    LoadError, LoadOptions, TableSpec,
    csv::{self, CsvOptions},
};

use crate::{cluster::TestCluster, rows};

fn write_file(cluster: &TestCluster, text: &str) -> PathBuf {
    let path = cluster.folder().join("cities.csv");
    fs::write(&path, text).expect("a file");
    path
}

async fn load_with(cluster: &TestCluster, text: &str, options: &CsvOptions) -> Result<u64, LoadError> {
    let path = write_file(cluster, text);
    let table = TableSpec { name: "cities".into(), partition_by: "id".into(), sort_by: None };
    let loads = LoadOptions { segment_rows: 1024, ..LoadOptions::default() };
    Ok(csv::load(&cluster.cluster, &path, options, &table, &loads, &|_| ()).await?.rows)
}

async fn load(cluster: &TestCluster, text: &str) -> Result<u64, LoadError> {
    load_with(cluster, text, &CsvOptions::default()).await
}

/// The message without the folder's name, of a load that publishes nothing.
async fn refusal(cluster: &TestCluster, text: &str) -> String {
    let message = load(cluster, text).await.expect_err("a file that cannot be loaded").to_string();
    let catalog = cluster.cluster.catalog().await.expect("a catalog");
    assert!(catalog.tables.is_empty() && catalog.broken.is_empty());
    message.rsplit_once("cities.csv").map_or(message.clone(), |(_, rest)| format!("cities.csv{rest}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_get_the_types_of_their_fields_and_empty_fields_are_null() {
    let cluster = TestCluster::start(2).await.unwrap();
    let text = "id,name,area,founded,seen,capital,note\n\
                1,Oslo,454.1,1048-01-01,2024-05-06T07:08:09.5,true,\n\
                2,\"Paris, \"\"Lut\u{e8}ce\"\"\",105,,2024-05-06 07:08:09,true,\n\
                ,Nowhere,,,,,\n";
    assert_eq!(load(&cluster, text).await.unwrap(), 3);
    assert_eq!(
        rows::stored_set(&cluster, "cities").await.unwrap(),
        [
            "-|Nowhere|-|-|-|-|-",
            "1|Oslo|454.1|1048-01-01|2024-05-06T07:08:09.500|true|-",
            "2|Paris, \"Lut\u{e8}ce\"|105.0|-|2024-05-06T07:08:09|true|-",
        ]
    );
    let catalog = cluster.cluster.catalog().await.unwrap();
    let columns = &catalog.table("cities").unwrap().definition.columns;
    let types: Vec<String> = columns.iter().map(|column| column.column_type.to_string()).collect();
    assert_eq!(types.join(" "), "bigint text double date timestamp boolean text");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_of_another_delimiter_arrive_exactly_once() {
    let cluster = TestCluster::start(3).await.unwrap();
    let (mut text, mut expected) = (String::from("id;name\n"), Vec::new());
    for row in 0..50_000 {
        writeln!(text, "{row};name {}", row % 777).unwrap();
        expected.push(format!("{row}|name {}", row % 777));
    }
    let options = CsvOptions { delimiter: b';', ..CsvOptions::default() };
    assert_eq!(load_with(&cluster, &text, &options).await.unwrap(), 50_000);
    expected.sort_unstable();
    assert!(rows::stored_set(&cluster, "cities").await.unwrap() == expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_does_not_parse_is_named_by_file_line_and_column() {
    let cluster = TestCluster::start(1).await.unwrap();
    let mut text = String::from("id,name\n\"1\",\"two\nlines\"\n");
    for row in 0..40_000 {
        writeln!(text, "{row},x").unwrap();
    }
    text.push_str("12a,y\n");
    assert_eq!(
        refusal(&cluster, &text).await,
        "cities.csv: line 40004, column \"id\": found \"12a\", expected a value of type bigint"
    );
    let day = "id,day\n1,2024-02-29\n2,2024-02-30\n";
    assert_eq!(
        refusal(&cluster, day).await,
        "cities.csv: line 3, column \"day\": found \"2024-02-30\", expected a value of type date"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_too_few_or_too_many_fields_is_named_by_its_line() {
    let cluster = TestCluster::start(1).await.unwrap();
    let few = refusal(&cluster, "id,name\n1,a\n\n2\n3,c\n").await;
    assert_eq!(few, "cities.csv: line 4: found 1 fields, expected the header's 2");
    let many = refusal(&cluster, "id,name\n1,a\n2,b,c\n").await;
    assert_eq!(many, "cities.csv: line 3: found 3 fields, expected the header's 2");
    let mut late = String::from("id,name\n");
    for row in 0..20_000 {
        writeln!(late, "{row},x").unwrap();
    }
    late.push_str("1,2,3\n");
    assert_eq!(
        refusal(&cluster, &late).await,
        "cities.csv: line 20002: found 3 fields, expected the header's 2"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_empty_or_no_text_or_not_there_are_refused_by_name() {
    let cluster = TestCluster::start(1).await.unwrap();
    let empty = refusal(&cluster, "").await;
    assert!(empty.contains("expected a header line"), "{empty}");
    let path = write_file(&cluster, "");
    fs::write(&path, b"id,name\n1,\xff\xfe\n").unwrap();
    let table = TableSpec { name: "cities".into(), partition_by: "id".into(), sort_by: None };
    let load = async |path: PathBuf| {
        let (csv, options) = (CsvOptions::default(), LoadOptions::default());
        csv::load(&cluster.cluster, &path, &csv, &table, &options, &|_| ()).await.unwrap_err().to_string()
    };
    let binary = load(path).await;
    assert!(binary.contains("cities.csv") && binary.contains("UTF-8"), "{binary}");
    assert!(load("absent.csv".into()).await.starts_with("could not open absent.csv: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_partition_column_is_answered_with_the_columns_there_are() {
    let cluster = TestCluster::start(1).await.unwrap();
    let error = refusal(&cluster, "key,name\n1,a\n").await;
    assert_eq!(
        error,
        "table \"cities\" cannot be partitioned by \"id\": no such column; its columns are key, name"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_without_rows_is_an_empty_table() {
    let cluster = TestCluster::start(2).await.unwrap();
    assert_eq!(load(&cluster, "id,name\n").await.unwrap(), 0);
    assert!(rows::stored_set(&cluster, "cities").await.unwrap().is_empty());
}
