//! Tests that the rows of generated CSV files arrive with the values from which the files were
//! generated.

use std::{fs, path::Path, sync::Arc};

use arrow::{
    array::{Array, AsArray},
    csv::ReaderBuilder,
    datatypes::{DataType, Field, Schema},
    error::ArrowError,
};
use fastrand::Rng;
use rackscan_datasets::{
    LoadOptions, LoadSummary,
    csv::{self, CsvOptions},
};

use super::{
    assert_same, columns,
    compression::Compression,
    csv_files::{CsvFile, Wish},
    in_time, seeds, spec, stored,
};
use crate::cluster::TestCluster;

/// Loads bytes with the file's options.
pub(super) async fn load(
    cluster: &TestCluster,
    seed: u64,
    file: &CsvFile,
    bytes: &[u8],
    reject: Option<&Path>,
) -> Result<LoadSummary, String> {
    let path = cluster.folder().join("generated.csv");
    fs::write(&path, bytes).expect("a file");
    let options = CsvOptions { reject: reject.map(Path::to_owned), ..file.options.clone() };
    // Some are sorted by their key, too.
    let table = spec(file.key(), seed.is_multiple_of(7).then(|| file.key()));
    let loads = LoadOptions { segment_rows: 1024, ..LoadOptions::default() };
    in_time(seed, csv::load(&cluster.cluster, &path, &options, &table, &loads, &|_| ())).await
}

/// How many rows a file has: few often, at times more than a piece.
pub(super) fn row_count(random: &mut Rng) -> usize {
    match random.u8(..100) {
        0 => 17_000,
        1..4 => 0,
        4..30 => random.usize(1..4),
        _ => random.usize(1..60),
    }
}

/// The texts of all fields as arrow's own reader sees them, an absent one as an empty one.
pub(super) fn arrow_texts(
    text: &str,
    options: &CsvOptions,
    columns: usize,
) -> Result<Vec<Vec<String>>, ArrowError> {
    let field = |column: usize| Field::new(format!("{column}"), DataType::Utf8, true);
    let schema = Arc::new(Schema::new((0..columns).map(field).collect::<Vec<_>>()));
    // A byte that no text has stands for the quote where there is none.
    let mut reader = ReaderBuilder::new(schema)
        .with_header(options.has_header)
        .with_delimiter(options.delimiter)
        .with_quote(options.quote.unwrap_or(0xff));
    if let Some(escape) = options.escape.filter(|escape| Some(*escape) != options.quote) {
        reader = reader.with_escape(escape);
    }
    let mut rows = Vec::new();
    for batch in reader.build(text.as_bytes())? {
        let batch = batch?;
        let columns: Vec<_> = batch.columns().iter().map(|array| array.as_string::<i32>()).collect();
        let text = |row: usize| {
            let texts = columns.iter().map(|array| if array.is_null(row) { "" } else { array.value(row) });
            texts.map(str::to_owned).collect()
        };
        rows.extend((0..batch.num_rows()).map(text));
    }
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_csv_file_says_in_whichever_dialect_is_what_is_stored_and_what_arrow_reads() {
    let cluster = TestCluster::start(2).await.unwrap();
    for seed in seeds(200) {
        let random = &mut Rng::with_seed(seed);
        let compression = *random.choice(&Compression::ALL).expect("one");
        let rows = row_count(random);
        let file = CsvFile::draw(random, Wish { compression, is_plain_text: false, rows });
        let text = file.text();
        let options = &file.options;
        let texts = arrow_texts(&text, options, file.columns.len());
        let texts = texts.unwrap_or_else(|error| panic!("seed {seed:#x}: {error}, {options:?} {text:?}"));
        let drawn: Vec<Vec<String>> = file.rows.iter().map(|row| row.texts.clone()).collect();
        let differ = texts.iter().zip(&drawn).find(|(read, drawn)| read != drawn);
        assert!(texts == drawn, "seed {seed:#x}, arrow, {options:?}: {differ:?} {text:?}");
        let bytes = file.bytes(random, &text);
        let loaded = load(&cluster, seed, &file, &bytes, None).await;
        let loaded = loaded.unwrap_or_else(|error| panic!("seed {seed:#x}: {error}, {options:?} {text:?}"));
        assert_eq!((loaded.rows, loaded.rows_rejected), (rows as u64, 0), "seed {seed:#x}");
        assert_eq!(columns(&cluster).await, file.columns, "seed {seed:#x}, {options:?} {text:?}");
        let what = format!("{options:?}");
        assert_same(seed, &what, stored(&cluster).await, file.stored_rows());
    }
}
