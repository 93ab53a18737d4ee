//! Tests that an encoded batch is decoded as it was, and that garbage is refused with an error.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
        Int64Array, RecordBatch, RecordBatchOptions, StringViewArray, TimestampMicrosecondArray, UInt32Array,
    },
    compute::take,
    datatypes::{Field, Schema, SchemaRef},
};
use proptest::{prelude::*, test_runner::Config};
use rackscan_format::program::Output;
use rackscan_scan::{ScanLimits, wire};
use std::sync::Arc;
use support::{
    draw::{Draw, Program, table},
    rows_of, same,
};

fn batch_of(columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    let fields = columns
        .iter()
        .enumerate()
        .map(|(index, column)| Field::new(index.to_string(), column.data_type().clone(), true));
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options).expect("columns of one length")
}

fn round_trip(batch: &RecordBatch) -> usize {
    let mut bytes = vec![0xaa; 64];
    wire::encode(batch, &mut bytes).expect("a type that scans yield");
    let encoded = bytes.split_off(64);
    let mut followed = encoded.clone();
    followed.extend_from_slice(&[0x55; 100]);
    let (decoded, consumed) = wire::decode(&followed, &batch.schema()).expect("what was encoded");
    assert_eq!(consumed, encoded.len());
    assert_eq!(decoded.num_rows(), batch.num_rows());
    assert_eq!(decoded.schema(), batch.schema());
    assert!(same(&rows_of([&decoded]), &rows_of([batch])));
    encoded.len()
}

#[test]
fn decimals_of_few_digits_travel_in_few_bytes() {
    let values: Vec<i128> = (0..8192).map(|row| 90_000 + row % 200).collect();
    let array = Decimal128Array::from(values).with_precision_and_scale(15, 2).unwrap();
    let bytes = round_trip(&batch_of(vec![Arc::new(array)], 8192));
    assert!(bytes < 8192 + 512, "{bytes} bytes for 8192 decimals that differ in 8 bits");
}

#[test]
fn texts_of_a_dictionary_travel_once() {
    let entries = StringViewArray::from(vec!["DELIVER IN PERSON", "COLLECT COD", "TAKE BACK RETURN", "NONE"]);
    let codes = UInt32Array::from_iter((0..8000).map(|row| (row % 11 != 0).then_some(row % 4)));
    let texts = take(&entries, &codes, None).unwrap();
    let bytes = round_trip(&batch_of(vec![texts], 8000));
    assert!(bytes < 8000 + 1000 + 512, "{bytes} bytes for 8000 texts of four kinds");
}

#[test]
fn extremes_and_nulls_of_every_type_come_back() {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        Arc::new(Int32Array::from(vec![Some(i32::MIN), Some(i32::MAX), None])),
        Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None])),
        Arc::new(Date32Array::from(vec![None, Some(-1), Some(9000)])),
        Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None, Some(i64::MIN)])),
        Arc::new(Decimal128Array::from(vec![Some(i128::MIN), Some(i128::MAX), None])),
        Arc::new(Float64Array::from(vec![Some(f64::NAN), Some(-0.0), None])),
        Arc::new(StringViewArray::from(vec![
            Some(""),
            None,
            Some("a text that is longer than a view \u{1f600}"),
        ])),
        Arc::new(StringViewArray::from(vec![None::<&str>; 3])),
    ];
    let batch = batch_of(columns, 3);
    round_trip(&batch);
    round_trip(&batch.slice(1, 2));
    round_trip(&batch.slice(0, 0));
}

#[test]
fn rows_without_columns_are_counted() {
    round_trip(&batch_of(vec![], 77));
}

#[test]
fn a_batch_of_another_schema_is_refused() {
    let numbers = batch_of(vec![Arc::new(Int64Array::from(vec![1 << 40, 5, 9]))], 3);
    let mut bytes = Vec::new();
    wire::encode(&numbers, &mut bytes).unwrap();
    let texts = batch_of(vec![Arc::new(StringViewArray::from(vec!["a"]))], 1);
    let narrower = batch_of(vec![Arc::new(Int32Array::from(vec![1]))], 1);
    for schema in [texts.schema(), narrower.schema(), batch_of(vec![], 0).schema()] {
        assert!(wire::decode(&bytes, &schema).is_err(), "{schema:?}");
    }
}

#[test]
fn every_flipped_byte_is_noticed() {
    let texts = StringViewArray::from(vec![Some("one"), None, Some("three")]);
    let batch = batch_of(vec![Arc::new(texts), Arc::new(Int64Array::from(vec![1, 200, 3]))], 3);
    let mut bytes = Vec::new();
    wire::encode(&batch, &mut bytes).unwrap();
    for at in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[at] ^= 0x20;
        assert!(wire::decode(&broken, &batch.schema()).is_err(), "byte {at}");
        assert!(wire::decode(&bytes[..at], &batch.schema()).is_err(), "{at} bytes");
    }
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn batches_of_random_scans_come_back(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        let mut nodes = Program::new();
        let outputs = (0..4).map(|_| nodes.value(&mut draw, &table, 1)).collect();
        let filter = vec![nodes.predicate(&mut draw, &table, 1)];
        let program = table.program(nodes.nodes, filter, Output::Rows(outputs));
        let (batches, _) = table.scan(&program, ScanLimits::default()).unwrap();
        for batch in batches {
            prop_assert_eq!(batch.batch.schema(), rackscan_scan::output_schema(&program));
            round_trip(&batch.batch);
        }
    }

    #[test]
    fn bytes_forged_with_the_right_checksum_never_panic(seed: u64, changes in 1..6_usize) {
        let mut draw = Draw(seed);
        let texts: Vec<Option<String>> =
            (0..300).map(|row| (row % 7 != 0).then(|| format!("text {} of a kind", row % 5))).collect();
        let plain = StringViewArray::from_iter(texts);
        let coded = take(&plain, &UInt32Array::from_iter_values((0..300).map(|row| row % 9)), None).unwrap();
        let batch = batch_of(
            vec![Arc::new(plain), coded, Arc::new(Int32Array::from_iter_values(0..300)),
                 Arc::new(Decimal128Array::from_iter_values((0..300).map(|row| i128::from(row) << 70)))],
            300,
        );
        let mut bytes = Vec::new();
        wire::encode(&batch, &mut bytes).unwrap();
        for _ in 0..changes {
            let descriptors = 32 + 4 * 64;
            let at = if draw.chance(70) { 8 + draw.below(descriptors - 8) } else { 8 + draw.below(bytes.len() - 8) };
            bytes[at] = draw.pick(&[0, 1, 2, 4, 8, 16, 0x7f, 0x80, 0xff]);
        }
        let checksum = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        if let Ok((decoded, consumed)) = wire::decode(&bytes, &batch.schema()) {
            prop_assert!(consumed <= bytes.len());
            prop_assert_eq!(decoded.num_columns(), 4);
            // Whatever came out is sound: every text can be looked at.
            for texts in [decoded.column(0).as_string_view(), decoded.column(1).as_string_view()] {
                prop_assert_eq!(texts.iter().flatten().map(str::len).count() + texts.null_count(), texts.len());
            }
        }
    }

    #[test]
    fn garbage_is_an_error(garbage in prop::collection::vec(any::<u8>(), 0..400)) {
        let schema = batch_of(vec![Arc::new(Int64Array::from(vec![1]))], 1).schema();
        prop_assert!(wire::decode(&garbage, &schema).is_err());
    }
}
