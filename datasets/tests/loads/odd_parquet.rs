//! Tests that Parquet files of other writers are read correctly, and broken ones refused with a
//! message of one line.
//!
//! `files/int96.parquet` and `files/checksums.parquet` were written by pyarrow 26, with
//! `use_deprecated_int96_timestamps` and `write_page_checksum`.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
    time::Duration,
};

use arrow::array::{ArrayRef, Date64Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray};
use parquet::{
    arrow::ArrowWriter,
    basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel},
    file::properties::WriterProperties,
};
use rackscan_datasets::{LoadError, LoadOptions, TableSpec, parquet as loads};

use crate::{cluster::TestCluster, rows};

async fn load(cluster: &TestCluster, path: &Path) -> Result<u64, LoadError> {
    let table = TableSpec { name: "trips".into(), partition_by: "key".into(), sort_by: None };
    let options = LoadOptions { segment_rows: 1024, ..LoadOptions::default() };
    Ok(loads::load(&cluster.cluster, path, &table, &options, &|_| ()).await?.rows)
}

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loads/files");
    fs::read(folder.join(name)).expect("a file of the project")
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_of_96_bits_are_right_in_every_year() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = cluster.folder().join("int96.parquet");
    fs::write(&path, file("int96.parquet")).unwrap();
    assert_eq!(load(&cluster, &path).await.unwrap(), 5);
    assert_eq!(
        rows::stored_set(&cluster, "trips").await.unwrap(),
        [
            "1|9999-12-31T01:00:00",
            "2|0001-01-01T00:00:00",
            "3|1969-12-31T23:59:59.999999",
            "4|-",
            "5|2262-04-12T00:00:00"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_of_96_bits_that_microseconds_do_not_hold_are_refused_with_their_row() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = cluster.folder().join("int96.parquet");
    let mut bytes = file("int96.parquet");
    // The Julian day of 9999-12-31.
    let day = 5_373_484_i32.to_le_bytes();
    let at = bytes.windows(day.len()).position(|found| found == day).expect("it is in the file");
    for beyond in [i32::MAX, i32::MIN, 120_000_000] {
        bytes[at..at + day.len()].copy_from_slice(&beyond.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let error = load(&cluster, &path).await.unwrap_err().to_string();
        assert!(error.contains("row 1, column \"at\": a time beyond"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn times_before_1970_that_are_finer_than_we_store_lie_in_the_microsecond_and_day_before() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = cluster.folder().join("fine.parquet");
    let nanos = TimestampNanosecondArray::from(vec![-1, -1000, -1001, 999]);
    let days = Date64Array::from(vec![-1, -86_400_000, -86_400_001, 86_399_999]);
    let columns: [(&str, ArrayRef); 3] = [
        ("key", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ("at", Arc::new(nanos)),
        ("day", Arc::new(days)),
    ];
    write(&path, &RecordBatch::try_from_iter(columns).unwrap(), Compression::UNCOMPRESSED);
    assert_eq!(load(&cluster, &path).await.unwrap(), 4);
    assert_eq!(
        rows::stored_set(&cluster, "trips").await.unwrap(),
        [
            "1|1969-12-31T23:59:59.999999|1969-12-31",
            "2|1969-12-31T23:59:59.999999|1969-12-31",
            "3|1969-12-31T23:59:59.999998|1969-12-30",
            "4|1970-01-01T00:00:00|1970-01-01"
        ]
    );
}

fn write(path: &Path, rows: &RecordBatch, compression: Compression) {
    let properties = WriterProperties::builder().set_compression(compression);
    let properties = properties.set_max_row_group_row_count(Some(150)).build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).expect("a file"), rows.schema(), Some(properties))
            .expect("a writer");
    writer.write(rows).expect("rows");
    writer.close().expect("a footer");
}

/// 400 rows of several types, with nulls.
fn some_rows() -> RecordBatch {
    let keys = Int64Array::from_iter_values(0..400);
    let numbers: Int64Array = (0..400).map(|row| (row % 7 != 0).then_some(row * row)).collect();
    let texts: StringArray =
        (0..400).map(|row| (row % 5 != 0).then(|| format!("text {}", row % 60))).collect();
    let columns: [(&str, ArrayRef); 3] =
        [("key", Arc::new(keys)), ("number", Arc::new(numbers)), ("text", Arc::new(texts))];
    RecordBatch::try_from_iter(columns).expect("columns that agree")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_every_compression_are_read() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = cluster.folder().join("compressed.parquet");
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        write(&path, &some_rows(), compression);
        assert_eq!(load(&cluster, &path).await.unwrap(), 400, "{compression}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_does_not_have_its_checksum_is_refused() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = cluster.folder().join("checksums.parquet");
    let whole = file("checksums.parquet");
    fs::write(&path, &whole).unwrap();
    assert_eq!(load(&cluster, &path).await.unwrap(), 200);
    // The end of the time in the first page's gzip header says nothing about the rows.
    let begin = whole.windows(3).position(|bytes| bytes == [0x1f, 0x8b, 8]).expect("a page in gzip");
    let mut changed = whole;
    changed[begin + 5] ^= 1;
    fs::write(&path, changed).unwrap();
    let error = load(&cluster, &path).await.unwrap_err().to_string();
    assert!(error.contains("checksums.parquet") && error.contains("CRC"), "{error}");
}

/// A run of malformed files by a seed: `RACKSCAN_CASES` is how many, `RACKSCAN_SEED` the first
/// one's.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_in_a_file_it_is_loaded_or_refused_in_one_line() {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number")),
        Err(_) => default,
    };
    let (cases, first) = (number("RACKSCAN_CASES", 150), number("RACKSCAN_SEED", 0x5eed));
    let cluster = TestCluster::start(1).await.unwrap();
    let path = cluster.folder().join("changed.parquet");
    let compressions =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())];
    let wholes = compressions.map(|compression| {
        write(&path, &some_rows(), compression);
        fs::read(&path).unwrap()
    });
    let mut refused = 0;
    for seed in first..first + cases {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = random.choice(&wholes).expect("one").clone();
        for _ in 0..random.usize(1..8) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        if random.u8(..10) == 0 {
            bytes.truncate(random.usize(..bytes.len()));
        }
        fs::write(&path, &bytes).unwrap();
        let loaded = tokio::time::timeout(Duration::from_secs(60), load(&cluster, &path)).await;
        match loaded.unwrap_or_else(|_| panic!("seed {seed}: still loading after a minute")) {
            Ok(_) => {}
            Err(LoadError::Defect { problem, .. }) => panic!("seed {seed}: {problem}"),
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains('\n'), "seed {seed}: {error}");
            }
        }
    }
    assert!(refused > cases / 10, "only {refused} of {cases} files were refused");
}
