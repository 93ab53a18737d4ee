//! Tests that generated Parquet files are loaded with the rows that arrow's own reader finds, and
//! that broken ones never give other rows.

use std::{
    fs::{self, File},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Date32Array, Date64Array, Decimal32Array, Decimal64Array, Decimal128Array,
        Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
        TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
        UInt8Array, UInt16Array, UInt32Array, UInt64Array,
    },
    compute::cast,
    datatypes::{DataType, Field, Schema},
};
use fastrand::Rng;
use parquet::{
    arrow::{
        ArrowSchemaConverter, ArrowWriter,
        arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder},
        arrow_writer::ArrowWriterOptions,
    },
    basic::{
        BrotliLevel, Compression, Encoding, GzipLevel, LogicalType, Repetition, Type as Physical, ZstdLevel,
    },
    file::properties::{EnabledStatistics, WriterProperties, WriterVersion},
    schema::types::{ColumnPath, SchemaDescriptor, Type},
};
use rackscan_datasets::{LoadOptions, LoadSummary, parquet as loads};

use super::{
    assert_same,
    cells::{Row, rows_of},
    columns, in_time, seeds, spec, stored,
    values::{self, DAY_MICROS, day, integer, time_of_day},
};
use crate::cluster::TestCluster;

async fn load(cluster: &TestCluster, seed: u64, path: &Path, key: &str) -> Result<LoadSummary, String> {
    let table = spec(key, seed.is_multiple_of(7).then_some(key));
    let options = LoadOptions { segment_rows: 1024, ..LoadOptions::default() };
    in_time(seed, loads::load(&cluster.cluster, path, &table, &options, &|_| ())).await
}

/// Draws the values of a column, of which some are null.
fn some<T>(random: &mut Rng, rows: usize, mut value: impl FnMut(&mut Rng) -> T) -> Vec<Option<T>> {
    let nulls_of_8 = *random.choice(&[0, 0, 1, 4, 7, 8]).expect("one");
    (0..rows).map(|_| (random.u8(..8) >= nulls_of_8).then(|| value(random))).collect()
}

fn timestamp(random: &mut Rng) -> i64 {
    day(random) * DAY_MICROS + time_of_day(random)
}

fn narrow<T: TryFrom<i64>>(number: i64) -> T {
    T::try_from(number).unwrap_or_else(|_| panic!("{number} has been drawn for a narrower type"))
}

/// Integers of every width.
fn integers(random: &mut Rng, rows: usize) -> ArrayRef {
    macro_rules! column {
        ($array:ty, $type:ty, $max:expr) => {
            Arc::new(<$array>::from(some(random, rows, |random| {
                narrow::<$type>(integer(random, i64::try_from(<$type>::MIN).unwrap_or(0), $max))
            })))
        };
    }
    match random.u8(..8) {
        0 => column!(Int8Array, i8, i8::MAX.into()),
        1 => column!(Int16Array, i16, i16::MAX.into()),
        2 => column!(Int32Array, i32, i32::MAX.into()),
        3 => column!(UInt8Array, u8, u8::MAX.into()),
        4 => column!(UInt16Array, u16, u16::MAX.into()),
        5 => column!(UInt32Array, u32, u32::MAX.into()),
        // Those beyond are refused, as another test shows.
        6 => column!(UInt64Array, u64, i64::MAX),
        _ => column!(Int64Array, i64, i64::MAX),
    }
}

/// Dates and times of every unit, some with a zone.
fn times(random: &mut Rng, rows: usize) -> ArrayRef {
    let zone = *random.choice(&[None, None, Some("UTC"), Some("+02:00"), Some("-11:30")]).expect("one");
    let nanos = (i64::MIN / 1000, i64::MAX / 1000);
    match random.u8(..6) {
        0 => Arc::new(Date32Array::from(some(random, rows, |random| narrow::<i32>(day(random))))),
        1 => Arc::new(Date64Array::from(some(random, rows, |random| {
            day(random) * (DAY_MICROS / 1000) + if random.bool() { 0 } else { time_of_day(random) / 1000 }
        }))),
        2 => {
            let values = some(random, rows, |random| timestamp(random).div_euclid(1_000_000));
            Arc::new(TimestampSecondArray::from(values).with_timezone_opt(zone))
        }
        3 => {
            let values = some(random, rows, |random| timestamp(random).div_euclid(1000));
            Arc::new(TimestampMillisecondArray::from(values).with_timezone_opt(zone))
        }
        4 => {
            let values = some(random, rows, timestamp);
            Arc::new(TimestampMicrosecondArray::from(values).with_timezone_opt(zone))
        }
        _ => {
            let values = some(random, rows, |random| match random.u8(..8) {
                0 => i64::MIN,
                1 => i64::MAX,
                2 => random.i64(-2000..2000),
                _ => timestamp(random).clamp(nanos.0 + 1, nanos.1 - 1) * 1000 + random.i64(0..1000),
            });
            Arc::new(TimestampNanosecondArray::from(values).with_timezone_opt(zone))
        }
    }
}

fn decimals(random: &mut Rng, rows: usize) -> ArrayRef {
    let bits = *random.choice(&[32, 64, 128]).expect("one");
    // Of one digit and 32 bits arrow's writer makes 64 bits, and fails.
    let precision = if bits == 32 { random.u8(2..=9) } else { random.u8(1..=18) };
    let scale = narrow::<i8>(random.i64(0..=precision.into()));
    let max = 10_i64.pow(precision.into()) - 1;
    let values = some(random, rows, |random| integer(random, -max, max));
    macro_rules! column {
        ($array:ty, $type:ty) => {{
            let values = values.into_iter().map(|value| value.map(|value| narrow::<$type>(value)));
            let array = values.collect::<$array>().with_precision_and_scale(precision, scale);
            Arc::new(array.expect("decimals that fit"))
        }};
    }
    match bits {
        32 => column!(Decimal32Array, i32),
        64 => column!(Decimal64Array, i64),
        _ => column!(Decimal128Array, i128),
    }
}

/// Texts in every layout, of few or of many values.
fn texts(random: &mut Rng, rows: usize) -> ArrayRef {
    let parts = ["a", "Zo\u{eb}", " ", "\n", "\"", ",", "\u{6771}\u{4eac}", "\u{1f600}", "\0", "0"]
        .map(str::to_owned);
    let few: Vec<String> = (0..random.usize(1..40)).map(|_| values::text(random, &parts)).collect();
    let are_few = random.bool();
    let values = some(random, rows, |random| match are_few {
        true => random.choice(&few).expect("one").clone(),
        false => values::text(random, &parts),
    });
    let array: ArrayRef = Arc::new(StringArray::from(values));
    let key = random.choice([DataType::Int32, DataType::UInt16, DataType::Int64]).expect("one");
    let layout = match random.u8(..4) {
        0 => DataType::LargeUtf8,
        1 => DataType::Utf8View,
        2 => DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8)),
        _ => DataType::Utf8,
    };
    cast(&array, &layout).expect("texts in another layout")
}

fn column(random: &mut Rng, rows: usize) -> ArrayRef {
    match random.u8(..8) {
        0 => Arc::new(BooleanArray::from(some(random, rows, Rng::bool))),
        1 => Arc::new(Float64Array::from(some(random, rows, values::double))),
        2 => Arc::new(Float32Array::from(some(random, rows, |random| {
            let any = f32::from_bits(random.u32(..));
            *random.choice(&[any, f32::MIN, f32::MAX, f32::NAN, f32::INFINITY, -0.0, 0.1]).expect("one")
        }))),
        3 => times(random, rows),
        4 => decimals(random, rows),
        5 => integers(random, rows),
        _ if random.bool() => times(random, rows),
        _ => texts(random, rows),
    }
}

/// Rows of a random schema, the first column a number that is never null.
fn draw(random: &mut Rng, rows: usize) -> RecordBatch {
    let keys = Int64Array::from_iter_values(0..narrow(rows as i64));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(keys)];
    columns.extend((0..random.usize(1..9)).map(|_| column(random, rows)));
    let field = |(number, array): (usize, &ArrayRef)| {
        let is_nullable = array.null_count() > 0 || random.bool();
        Field::new(format!("c{number}"), array.data_type().clone(), is_nullable)
    };
    let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns that agree")
}

fn properties(random: &mut Rng, schema: &Schema) -> WriterProperties {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4_RAW,
        Compression::LZ4,
        Compression::ZSTD(ZstdLevel::default()),
    ];
    let statistics = [EnabledStatistics::None, EnabledStatistics::Chunk, EnabledStatistics::Page];
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let mut properties = WriterProperties::builder()
        .set_compression(*random.choice(&compressions).expect("one"))
        .set_writer_version(*random.choice(&versions).expect("one"))
        .set_dictionary_enabled(random.bool())
        .set_dictionary_page_size_limit(random.usize(1..4000))
        .set_data_page_size_limit(random.usize(1..20_000))
        .set_data_page_row_count_limit(random.usize(1..2000))
        .set_write_batch_size(random.usize(1..500))
        .set_max_row_group_row_count(Some(random.usize(100..3000)))
        .set_statistics_enabled(*random.choice(&statistics).expect("one"))
        .set_statistics_truncate_length(random.bool().then_some(3))
        .set_bloom_filter_enabled(random.u8(..4) == 0)
        .set_offset_index_disabled(random.bool())
        .set_coerce_types(random.u8(..4) == 0);
    for field in schema.fields() {
        let encodings: &[Encoding] = match field.data_type() {
            DataType::Int32 | DataType::Int64 | DataType::Timestamp(..) => {
                &[Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT]
            }
            DataType::Float32 | DataType::Float64 => &[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
            DataType::Boolean => &[Encoding::PLAIN, Encoding::RLE],
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                &[Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY]
            }
            _ => continue,
        };
        if random.bool() {
            let encoding = *random.choice(encodings).expect("one");
            properties = properties.set_column_encoding(ColumnPath::from(field.name().as_str()), encoding);
        }
    }
    properties.build()
}

/// The file's schema, with decimals as bytes, which other writers make of them.
fn with_bytes(schema: &Schema) -> SchemaDescriptor {
    let plain = ArrowSchemaConverter::new().convert(schema).expect("a schema");
    let fields = plain.root_schema().get_fields().iter().zip(schema.fields()).map(|(plain, field)| {
        let (DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)) = field.data_type()
        else {
            return Arc::clone(plain);
        };
        let repetition = if field.is_nullable() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let (precision, scale) = (i32::from(*precision), i32::from(*scale));
        // As many bytes as the digits need: arrow's writer makes no more.
        let size = (1..16).find(|bytes| 10_f64.powi(precision) < 2_f64.powi(8 * bytes - 1)).unwrap_or(16);
        let decimal = Type::primitive_type_builder(field.name(), Physical::FIXED_LEN_BYTE_ARRAY)
            .with_repetition(repetition)
            .with_logical_type(Some(LogicalType::decimal(scale, precision)))
            .with_length(size)
            .with_precision(precision)
            .with_scale(scale)
            .build();
        Arc::new(decimal.expect("a decimal"))
    });
    let root = Type::group_type_builder("schema").with_fields(fields.collect()).build();
    SchemaDescriptor::new(Arc::new(root.expect("a schema")))
}

/// Writes rows in some way; whether arrow's types are written with them.
fn write(random: &mut Rng, path: &Path, rows: &RecordBatch) -> bool {
    let properties = properties(random, &rows.schema());
    let has_types = random.u8(..4) > 0 && !properties.coerce_types();
    let mut options =
        ArrowWriterOptions::new().with_skip_arrow_metadata(!has_types).with_properties(properties.clone());
    if !properties.coerce_types() && random.u8(..4) == 0 {
        options = options.with_parquet_schema(with_bytes(&rows.schema()));
    }
    let file = File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new_with_options(file, rows.schema(), options).expect("a writer");
    let mut begin = 0;
    while begin < rows.num_rows() {
        let length = random.usize(1..3000).min(rows.num_rows() - begin);
        writer.write(&rows.slice(begin, length)).expect("rows");
        begin += length;
    }
    writer.close().expect("a footer");
    has_types
}

/// The rows that arrow's own reader sees.
fn read(path: &Path) -> Result<Vec<Row>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(file).and_then(ParquetRecordBatchReaderBuilder::build);
    let mut rows = Vec::new();
    for batch in reader.map_err(|error| error.to_string())? {
        rows.extend(rows_of(&batch.map_err(|error| error.to_string())?));
    }
    Ok(rows)
}

/// Makes the footer say one row more or less than there are.
fn change_row_count(bytes: &mut [u8], rows: usize) {
    // Thrift's compact form of a signed number, between the marks of its field and of the next.
    let doubled = rows as u64 * 2;
    let digits = doubled.to_le_bytes().map(|byte| byte & 0x7f);
    let count = if doubled < 0x80 {
        vec![0x16, digits[0], 0x19]
    } else {
        vec![0x16, digits[0] | 0x80, (doubled >> 7).to_le_bytes()[0], 0x19]
    };
    let at = bytes.windows(count.len()).rposition(|window| window == count);
    bytes[at.expect("the footer's number of rows") + 1] ^= 2;
}

fn path_in(cluster: &TestCluster) -> PathBuf {
    cluster.folder().join("generated.parquet")
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_parquet_file_holds_in_whichever_layout_is_what_is_stored_and_what_arrow_reads() {
    let cluster = TestCluster::start(2).await.unwrap();
    let path = path_in(&cluster);
    for seed in seeds(120) {
        let random = &mut Rng::with_seed(seed);
        let rows = match random.u8(..60) {
            0 => 17_000,
            1..4 => 0,
            4..10 => random.usize(1..3000),
            _ => random.usize(1..300),
        };
        let drawn = draw(random, rows);
        let has_types = write(random, &path, &drawn);
        let what = format!("{:?}", drawn.schema());
        let expected = read(&path).unwrap_or_else(|error| panic!("seed {seed:#x}: {error}, {what}"));
        if has_types {
            assert_same(seed, &format!("arrow, {what}"), expected.clone(), rows_of(&drawn));
        }
        let loaded = load(&cluster, seed, &path, "c0").await;
        let loaded = loaded.unwrap_or_else(|error| panic!("seed {seed:#x}: {error}, {what}"));
        assert_eq!(loaded.rows, rows as u64, "seed {seed:#x}");
        assert_same(seed, &what, stored(&cluster).await, expected);
        let names: Vec<String> = columns(&cluster).await.into_iter().map(|(name, _)| name).collect();
        let schema = drawn.schema();
        assert!(names.iter().eq(schema.fields().iter().map(|field| field.name())), "seed {seed:#x}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parquet_file_that_is_cut_off_is_refused_and_a_changed_one_has_the_rows_that_its_footer_says() {
    let cluster = TestCluster::start(1).await.unwrap();
    let path = path_in(&cluster);
    let (mut refused, mut loaded, mut cases) = (0, 0, 0);
    for seed in seeds(250) {
        let random = &mut Rng::with_seed(seed);
        let rows = random.usize(1..200);
        let drawn = draw(random, rows);
        write(random, &path, &drawn);
        let mut bytes = fs::read(&path).unwrap();
        let is_cut = random.u8(..5) == 0;
        if is_cut {
            bytes.truncate(random.usize(..bytes.len()));
        } else if random.u8(..6) == 0 {
            change_row_count(&mut bytes, rows);
        } else {
            let footer = bytes.len().saturating_sub(random.usize(1..2000));
            for _ in 0..random.usize(1..4) {
                // In the footer half of the time.
                let from = if random.bool() { footer } else { 0 };
                let at = random.usize(from..bytes.len());
                bytes[at] = if random.bool() { random.u8(..) } else { bytes[at] ^ (1 << random.u8(..8)) };
            }
        }
        fs::write(&path, &bytes).unwrap();
        cases += 1;
        let summary = match load(&cluster, seed, &path, "c0").await {
            Ok(summary) => summary,
            Err(_) => {
                refused += 1;
                continue;
            }
        };
        assert!(!is_cut, "seed {seed:#x}: loaded {} rows of a file that is cut off", summary.rows);
        loaded += 1;
        let footer = ArrowReaderMetadata::load(&File::open(&path).unwrap(), Default::default()).unwrap();
        let rows = footer.metadata().file_metadata().num_rows();
        assert_eq!(u64::try_from(rows), Ok(summary.rows), "seed {seed:#x}");
        let found = stored(&cluster).await;
        assert_eq!(found.len() as u64, summary.rows, "seed {seed:#x}");
        // Nothing but what is there, changed or not.
        if let Ok(Ok(expected)) = catch_unwind(AssertUnwindSafe(|| read(&path))) {
            assert_same(seed, &format!("{:?}", drawn.schema()), found, expected);
        }
    }
    assert!(
        (refused * 10 > cases && loaded * 10 > cases) || cases < 50,
        "{refused} refused, {loaded} loaded"
    );
}
