//! Tests that the rows of a Parquet file arrive, with their types and nulls.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, DictionaryArray,
        Float32Array, Int8Array, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
        TimestampMillisecondArray, TimestampNanosecondArray, UInt32Array, UInt64Array, types::Int32Type,
    },
    datatypes::{Field, Schema},
};
use parquet::arrow::ArrowWriter;
use rackscan_datasets::{LoadError, LoadOptions, TableSpec, parquet as loads};
use rackscan_format::schema::ColumnType;

use crate::{
    cluster::{Outcome, TestCluster},
    rows,
};

/// Writes rows into a file of several row groups.
pub(crate) fn write_file(folder: &Path, rows: &RecordBatch) -> Outcome<PathBuf> {
    let path = folder.join("rows.parquet");
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(7000))
        .build();
    let mut writer = ArrowWriter::try_new(File::create(&path)?, rows.schema(), Some(properties))?;
    writer.write(rows)?;
    writer.close()?;
    Ok(path)
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(schema), arrays).expect("columns that agree")
}

fn spec() -> TableSpec {
    TableSpec { name: "trips".into(), partition_by: "key".into(), sort_by: None }
}

async fn load(cluster: &TestCluster, rows: &RecordBatch, options: &LoadOptions) -> Result<u64, LoadError> {
    let file = write_file(cluster.folder(), rows).expect("a file");
    Ok(loads::load(&cluster.cluster, &file, &spec(), options, &|_| ()).await?.rows)
}

/// Every type, every fifth value of a column null, each in another row.
fn every_type() -> RecordBatch {
    let rows = 0..20_000_i64;
    let small = |row: i64| i32::try_from(row % 20_000).unwrap_or(0);
    let some = |row: i64, column: i64| (row + column) % 5 != 0;
    let text = |row: i64, column: i64| some(row, column).then(|| format!("text {}", row * column % 3001));
    macro_rules! column {
        ($array:ty, $number:literal, $value:expr) => {
            Arc::new(rows.clone().map(|row| some(row, $number).then(|| $value(row))).collect::<$array>())
                as ArrayRef
        };
    }
    let decimals = column!(Decimal128Array, 8, |row: i64| i128::from(row * 1001 - 5_000_000));
    let decimals = decimals.as_any().downcast_ref::<Decimal128Array>().expect("decimals").clone();
    let dictionary = rows.clone().map(|row| text(row % 10, 13)).collect::<Vec<_>>();
    batch(vec![
        ("key", column!(UInt64Array, 1, |row: i64| row.unsigned_abs())),
        ("truth", column!(BooleanArray, 2, |row: i64| row % 3 == 0)),
        ("tiny", column!(Int8Array, 3, |row: i64| i8::try_from(row % 100).unwrap_or(0) - 50)),
        ("count", column!(UInt32Array, 4, |row: i64| u32::MAX - small(row).unsigned_abs())),
        ("half", column!(Float32Array, 5, |row: i64| small(row) as f32 / 2.0)),
        ("day", column!(Date32Array, 6, |row: i64| small(row) - 300)),
        ("day_64", column!(Date64Array, 7, |row: i64| (row - 300) * 86_400_000)),
        ("price", Arc::new(decimals.with_precision_and_scale(18, 4).expect("18 digits"))),
        ("milli", column!(TimestampMillisecondArray, 9, |row: i64| row * 1_234_567)),
        ("plain", Arc::new(rows.clone().map(|row| text(row, 10)).collect::<StringArray>())),
        ("large", Arc::new(rows.clone().map(|row| text(row, 11)).collect::<LargeStringArray>())),
        ("view", Arc::new(rows.clone().map(|row| text(row, 12)).collect::<StringViewArray>())),
        ("named", Arc::new(dictionary.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>())),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_arrives_with_its_nulls() {
    let cluster = TestCluster::start(2).await.unwrap();
    let rows = every_type();
    let mut expected = rows::lines(&rows).unwrap();
    // A date of 64 bits is shown with a time of day, and stored as the date that it is.
    expected.iter_mut().for_each(|line| *line = line.replace("T00:00:00|", "|"));
    expected.sort_unstable();
    for segment_rows in [1024, 3072, 131_072] {
        let options = LoadOptions { segment_rows, page_size: 8192, ..LoadOptions::default() };
        assert_eq!(load(&cluster, &rows, &options).await.unwrap(), 20_000);
        let mut stored = rows::stored_set(&cluster, "trips").await.unwrap();
        stored.iter_mut().for_each(|line| *line = line.replace("T00:00:00|", "|"));
        stored.sort_unstable();
        assert!(stored == expected, "{:?}", stored.iter().zip(&expected).find(|(a, b)| a != b));
    }
    let catalog = cluster.cluster.catalog().await.unwrap();
    let definition = &catalog.table("trips").unwrap().definition;
    let types: Vec<String> = definition.columns.iter().map(|column| column.column_type.to_string()).collect();
    assert_eq!(
        types.join(" "),
        "bigint boolean int bigint double date date decimal(18,4) timestamp text text text text"
    );
    assert!(definition.source.ends_with("rows.parquet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_with_a_zone_become_utc_and_nanoseconds_are_cut() {
    let cluster = TestCluster::start(1).await.unwrap();
    let zoned = TimestampNanosecondArray::from(vec![Some(1_000_001_999), None]).with_timezone("+02:00");
    let rows = batch(vec![("key", Arc::new(Int64Array::from(vec![1, 2]))), ("at", Arc::new(zoned))]);
    load(&cluster, &rows, &LoadOptions::default()).await.unwrap();
    assert_eq!(rows::stored_set(&cluster, "trips").await.unwrap(), ["1|1970-01-01T00:00:01.000001", "2|-"]);
    let catalog = cluster.cluster.catalog().await.unwrap();
    assert_eq!(
        catalog.table("trips").unwrap().definition.columns[1].column_type,
        ColumnType::TimestampMicros
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_does_not_fit_is_named_by_row_and_column() {
    let cluster = TestCluster::start(1).await.unwrap();
    let mut keys: Vec<u64> = (0..30_000).collect();
    keys[29_000] = u64::MAX;
    let error =
        load(&cluster, &batch(vec![("key", Arc::new(UInt64Array::from(keys)))]), &LoadOptions::default())
            .await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "table \"trips\": row 29001, column \"key\": found 18446744073709551615, expected a value of type bigint"
    );
    assert!(cluster.cluster.catalog().await.unwrap().tables.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_without_a_stored_form_is_named_with_those_that_have_one() {
    let cluster = TestCluster::start(1).await.unwrap();
    let error = async |name: &str, array: ArrayRef| {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        load(&cluster, &batch(vec![("key", keys), (name, array)]), &LoadOptions::default())
            .await
            .unwrap_err()
            .to_string()
    };
    let binary = error("blob", Arc::new(BinaryArray::from(vec![b"x".as_slice()]))).await;
    assert!(
        binary.contains("\"blob\" has type Binary") && binary.contains("decimals of up to 18 digits"),
        "{binary}"
    );
    let wide = Decimal128Array::from(vec![1]).with_precision_and_scale(19, 2).unwrap();
    let wide = error("price", Arc::new(wide)).await;
    assert!(wide.contains("Decimal128(19, 2)"), "{wide}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_column_is_answered_with_the_columns_there_are() {
    let cluster = TestCluster::start(1).await.unwrap();
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let rows = batch(vec![("id", ArrayRef::clone(&ids)), ("other", ids)]);
    let error = load(&cluster, &rows, &LoadOptions::default()).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "table \"trips\" cannot be partitioned by \"key\": no such column; its columns are id, other"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_parquet_or_cut_short_are_refused_by_name() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = write_file(cluster.folder(), &every_type()).unwrap();
    let whole = fs::read(&path).unwrap();
    for bytes in [&b"key\n1\n"[..], &[], &whole[..whole.len() / 2]] {
        fs::write(&path, bytes).unwrap();
        let error = loads::load(&cluster.cluster, &path, &spec(), &LoadOptions::default(), &|_| ())
            .await
            .unwrap_err();
        assert!(matches!(error, LoadError::Malformed { .. }), "{error}");
        assert!(error.to_string().contains("rows.parquet"), "{error}");
    }
    let absent = Path::new("absent.parquet");
    let error =
        loads::load(&cluster.cluster, absent, &spec(), &LoadOptions::default(), &|_| ()).await.unwrap_err();
    assert!(error.to_string().starts_with("could not open absent.parquet: "), "{error}");
}
