//! Tests that the rows of a CSV file arrive, and that the message about a row that does not parse
//! names its line and column.

use std::{fmt::Write, fs, path::PathBuf};

use rackscan_datasets::{
    LoadError, LoadOptions, LoadSummary, TableSpec,
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

/// Loads a text, leaves out rows that do not parse, and returns what was written about them.
async fn load_and_reject(
    cluster: &TestCluster,
    text: &str,
    options: CsvOptions,
) -> Result<(LoadSummary, String), LoadError> {
    let (path, reject) = (write_file(cluster, text), cluster.folder().join("rejected.csv"));
    let table = TableSpec { name: "cities".into(), partition_by: "id".into(), sort_by: None };
    let loads = LoadOptions { segment_rows: 1024, ..LoadOptions::default() };
    let options = CsvOptions { reject: Some(reject.clone()), ..options };
    let summary = csv::load(&cluster.cluster, &path, &options, &table, &loads, &|_| ()).await?;
    Ok((summary, fs::read_to_string(reject).expect("rejected rows")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_that_is_not_closed_is_an_error_on_its_line() {
    let cluster = TestCluster::start(1).await.unwrap();
    assert_eq!(
        refusal(&cluster, "id,v\n0,\"two\nlines\"\n1,\"abc\n2,def\n3,x\n").await,
        "cities.csv: line 4, column \"v\": the quote that opens here is not closed before the end of the file, expected a \
         second one; load with --quote none if \" is an ordinary character"
    );
    let mut long = String::from("id,v\n");
    for row in 0..50_000 {
        writeln!(long, "{row},x").unwrap();
    }
    long.push_str("1,\"open\n");
    let late = refusal(&cluster, &long).await;
    assert!(
        late.starts_with("cities.csv: line 50002, column \"v\": the quote that opens here is not closed"),
        "{late}"
    );
    let header = refusal(&cluster, "id,\"v\n1,2\n").await;
    assert!(header.starts_with("cities.csv: line 1: the quote"), "{header}");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_after_a_closing_quote_is_an_error_and_with_quote_none_every_quote_is_kept() {
    let cluster = TestCluster::start(1).await.unwrap();
    let text = "id\tname\n1\tplain\n2\t\"Nick\" and Nora\n3\t\"open quote\n4\tfour\n5\tsix\" end\n";
    let options = CsvOptions { delimiter: b'\t', ..CsvOptions::default() };
    let error = load_with(&cluster, text, &options).await.unwrap_err().to_string();
    let told = "line 3, column \"name\": the quote that opens here is closed before \" and Nora\", expected a delimiter";
    assert!(error.contains(told), "{error}");
    let options = CsvOptions { quote: None, ..options };
    assert_eq!(load_with(&cluster, text, &options).await.unwrap(), 5);
    assert_eq!(
        rows::stored_set(&cluster, "cities").await.unwrap(),
        ["1|plain", "2|\"Nick\" and Nora", "3|\"open quote", "4|four", "5|six\" end"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_parse_are_left_out_and_told_in_the_order_of_their_lines() {
    let cluster = TestCluster::start(2).await.unwrap();
    let text = "id,name,day\n1,a,2024-01-01\n2,\"b\" c,2024-01-02\n3,\"d, \"\"e\"\"\",2024-13-01\n4,f\n5,\"g,2024-01-05\n6,h,\n\
                7,i,2024-02-30\n";
    let (summary, rejected) = load_and_reject(&cluster, text, CsvOptions::default()).await.unwrap();
    assert_eq!((summary.rows, summary.rows_rejected), (2, 5));
    assert_eq!(rows::stored_set(&cluster, "cities").await.unwrap(), ["1|a|2024-01-01", "6|h|-"]);
    let lines: Vec<&str> = rejected.lines().collect();
    let begins = [
        "line,column,reason,row",
        "3,\"name\",\"the quote that opens here is closed before \"\" c,2024-01-02\"\"",
        "4,\"day\",\"found \"\"2024-13-01\"\", expected a value of type date\",\"3,\"\"d, \"\"\"\"e\"\"\"\"\"\",2024-13-01\"",
        "5,\"\",\"found 2 fields, expected the header's 3\",\"4,f\"",
        "6,\"name\",\"the quote that opens here is not closed",
        "8,\"day\",\"found \"\"2024-02-30\"\", expected a value of type date\",\"7,i,2024-02-30\"",
    ];
    assert_eq!(lines.len(), begins.len(), "{rejected}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}\nexpected {begin}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_are_left_out_and_all_others_arrive() {
    let cluster = TestCluster::start(2).await.unwrap();
    let mut text = String::from("id,v\n");
    for row in 0..60_000 {
        let odd = match row % 4 {
            // Not among the rows that say which types the columns have.
            1 if row > 20_000 => "x",
            2 if row > 20_000 => "1,2",
            _ => "7",
        };
        writeln!(text, "{row},{odd}").unwrap();
    }
    let (summary, rejected) = load_and_reject(&cluster, &text, CsvOptions::default()).await.unwrap();
    assert_eq!((summary.rows, summary.rows_rejected), (40_000, 20_000));
    let lines = rejected.lines().skip(1).map(|line| line.split(',').next().unwrap().parse::<u64>().unwrap());
    assert!(lines.is_sorted() && rejected.lines().count() == 20_001);
    assert!(
        rejected.contains("\n20003,\"v\",\"found \"\"x\"\", expected a value of type bigint\",\"20001,x\"\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_itself_is_not_overwritten_with_rejected_rows() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = write_file(&cluster, "id\n1\n");
    let options = CsvOptions { reject: Some(path.clone()), ..CsvOptions::default() };
    let error = load_with(&cluster, "id\n1\n", &options).await.unwrap_err().to_string();
    assert!(error.contains("expected another file than the one to load"), "{error}");
    assert_eq!(fs::read_to_string(path).unwrap(), "id\n1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_for_null_does_so_without_quotes_and_in_quotes_only_where_no_text_is_meant() {
    let cluster = TestCluster::start(1).await.unwrap();
    assert_eq!(load(&cluster, "id,text,number\n1,,\n2,\"\",\"\"\n3,x,3\n").await.unwrap(), 3);
    assert_eq!(rows::stored_set(&cluster, "cities").await.unwrap(), ["1|-|-", "2||-", "3|x|3"]);
    let options = CsvOptions { nulls: vec!["NA".into(), "\\N".into()], ..CsvOptions::default() };
    let text = "id,text,number\n1,NA,\\N\n2,\"NA\",\"NA\"\n3,,3\n";
    assert_eq!(load_with(&cluster, text, &options).await.unwrap(), 3);
    assert_eq!(rows::stored_set(&cluster, "cities").await.unwrap(), ["1|-|-", "2|NA|-", "3||3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_without_a_name_get_one_and_a_file_without_a_header_loses_no_row() {
    let cluster = TestCluster::start(1).await.unwrap();
    load(&cluster, ",id,,column1\n0,1,a,b\n").await.unwrap();
    let names = async || {
        let catalog = cluster.cluster.catalog().await.unwrap();
        let columns = &catalog.table("cities").unwrap().definition.columns;
        columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["column1_", "id", "column3", "column1"]);
    let path = write_file(&cluster, "1,a\n2,b\n");
    let table = TableSpec { name: "cities".into(), partition_by: "column1".into(), sort_by: None };
    let options = CsvOptions { has_header: false, ..CsvOptions::default() };
    let loads = LoadOptions::default();
    csv::load(&cluster.cluster, &path, &options, &table, &loads, &|_| ()).await.unwrap();
    assert_eq!(names().await, ["column1", "column2"]);
    assert_eq!(rows::stored_set(&cluster, "cities").await.unwrap(), ["1|a", "2|b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_no_column_type_holds_are_text_or_a_fault() {
    let cluster = TestCluster::start(1).await.unwrap();
    load(&cluster, "id,long,large\n1,12345678901234567890,1e999\n2,1,1\n").await.unwrap();
    assert_eq!(
        rows::stored_set(&cluster, "cities").await.unwrap(),
        ["1|12345678901234567890|1e999", "2|1|1"]
    );
    let mut text = String::from("id,v\n");
    for row in 0..20_000 {
        writeln!(text, "{row},1.5").unwrap();
    }
    text.push_str("1,1e999\n");
    drop(rows::stored_set(&cluster, "cities").await);
    let error = load(&cluster, &text).await.unwrap_err().to_string();
    assert!(
        error.contains("line 20002, column \"v\": found \"1e999\", expected a value of type double"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_line_is_a_null_in_a_file_of_one_column_and_nothing_in_others() {
    let cluster = TestCluster::start(1).await.unwrap();
    assert_eq!(load(&cluster, "id\n1\n\n2\n").await.unwrap(), 3);
    assert_eq!(rows::stored_set(&cluster, "cities").await.unwrap(), ["-", "1", "2"]);
    assert_eq!(load(&cluster, "id,v\n1,a\n\n2,b\n").await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn characters_that_cannot_mean_two_things_are_refused() {
    let cluster = TestCluster::start(1).await.unwrap();
    for options in [
        CsvOptions { delimiter: b'"', ..CsvOptions::default() },
        CsvOptions { delimiter: b'\n', ..CsvOptions::default() },
        CsvOptions { escape: Some(b','), ..CsvOptions::default() },
        CsvOptions { quote: None, escape: Some(b'\\'), ..CsvOptions::default() },
    ] {
        let error = load_with(&cluster, "id\n1\n", &options).await.unwrap_err().to_string();
        assert!(error.starts_with("delimiter, quote and escape is '"), "{error}");
        assert!(!error.contains("Some"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_would_have_made_a_column_another_one_are_faults_in_later_rows() {
    let cluster = TestCluster::start(1).await.unwrap();
    for (good, odd) in [
        ("2024-05-06", "2024-05-06 23:30:00"),
        ("2024-05-06", "2024-05-06T23:30:00-05:00"),
        ("2024-05-06 01:02:03", "2024-01-01T10:00:00+02:00"),
        ("true", "1"),
        ("true", "off"),
        ("7", " 5"),
        ("7", "+5"),
        ("7", "007"),
        ("1.5", "12345678901234567890"),
        ("1.5", "9007199254740993"),
        ("1.5", "1e-400"),
    ] {
        let mut text = String::from("id,v\n");
        for row in 0..17_000 {
            writeln!(text, "{row},{good}").unwrap();
        }
        writeln!(text, "1,{odd}").unwrap();
        let error = load(&cluster, &text).await.expect_err(odd).to_string();
        assert!(error.contains(&format!("line 17002, column \"v\": found {odd:?}, expected")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_lines_before_the_first_row_of_one_column_are_nulls_too() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = write_file(&cluster, "\n\n1\n\n2\n");
    let table = TableSpec { name: "cities".into(), partition_by: "column1".into(), sort_by: None };
    let options = CsvOptions { has_header: false, ..CsvOptions::default() };
    let loads = LoadOptions::default();
    let loaded = csv::load(&cluster.cluster, &path, &options, &table, &loads, &|_| ()).await.unwrap();
    assert_eq!(loaded.rows, 5);
    assert_eq!(rows::stored_set(&cluster, "cities").await.unwrap(), ["-", "-", "-", "1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_name_of_the_file_is_not_overwritten_either() {
    let cluster = TestCluster::start(1).await.unwrap();
    let (path, link) = (write_file(&cluster, "id\n1\n"), cluster.folder().join("link.csv"));
    fs::hard_link(&path, &link).unwrap();
    let options = CsvOptions { reject: Some(link), ..CsvOptions::default() };
    load_with(&cluster, "id\n1\n", &options).await.unwrap_err();
    assert_eq!(fs::read_to_string(path).unwrap(), "id\n1\n");
}
