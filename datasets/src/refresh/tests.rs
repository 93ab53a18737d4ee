//! Tests that the rows of the refresh functions are those of the specification, and have the form
//! in which the loader stores rows.

use super::*;
use crate::{stored::Conversion, tpch};
use arrow::{
    array::{Array, ArrayRef, RecordBatch, cast::AsArray},
    datatypes::{DataType, Int64Type},
};
use rackscan_delta::row::{decode, encode};
use rackscan_format::{
    ids::{ColumnId, NodeId, TableId},
    schema::TableDefinition,
};
use std::collections::BTreeSet;
use tpchgen_arrow::{LineItemArrow, OrderArrow};

const SCALE: f64 = 0.01;
const STREAMS: [u32; 5] = [1, 2, 17, 500, REFRESH_STREAMS_MAX];
/// 1992-01-01 and 1998-12-31, as days.
const DAYS: (i64, i64) = (8035, 10591);
/// 1995-06-17, as days: what was shipped by then is shipped.
const TODAY: i64 = 9298;

fn table(name: &str) -> TableDefinition {
    TableDefinition {
        id: TableId(1),
        name: name.to_owned(),
        columns: tpch::columns(name).unwrap(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 1024,
        nodes: vec![NodeId(0)],
        rows: 0,
        source: tpch::source(SCALE),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    }
}

fn number(row: &[Datum], column: usize) -> i64 {
    let Datum::Integer(value) = &row[column] else { panic!("column {column} of {row:?}") };
    *value
}

fn words(row: &[Datum], column: usize) -> &str {
    let Datum::Text(text) = &row[column] else { panic!("column {column} of {row:?}") };
    text
}

/// The rows of a batch as the loader stores them.
fn stored(table: &str, batch: &RecordBatch) -> Vec<Vec<Datum>> {
    let schema = batch.schema();
    let conversion = Conversion::of(table, schema.fields().iter().map(AsRef::as_ref)).unwrap();
    let rows = conversion.stored(batch.columns()).unwrap();
    let datum = |array: &ArrayRef, row: usize| match array.data_type() {
        DataType::Int64 => Datum::Integer(array.as_primitive::<Int64Type>().value(row)),
        DataType::Utf8View => Datum::Text(array.as_string_view().value(row).to_owned()),
        other => panic!("a stored column of {other}"),
    };
    (0..rows.rows).map(|row| rows.columns.iter().map(|array| datum(array, row)).collect()).collect()
}

fn loaded_keys() -> BTreeSet<i64> {
    OrderGenerator::new(SCALE, 1, 1).into_iter().map(|order| order.o_orderkey).collect()
}

#[test]
fn a_row_of_a_refresh_has_the_form_in_which_a_loaded_one_is_stored() {
    let batch = OrderArrow::new(OrderGenerator::new(SCALE, 3, 100)).next().unwrap().unwrap();
    let ours = OrderGenerator::new(SCALE, 3, 100).into_iter();
    let ours: Vec<_> = ours.map(|order| order_row(order.o_orderkey, &order)).collect();
    assert_eq!(stored("orders", &batch), ours);
    let batch = LineItemArrow::new(LineItemGenerator::new(SCALE, 3, 100)).next().unwrap().unwrap();
    let ours = LineItemGenerator::new(SCALE, 3, 100).into_iter();
    let ours: Vec<_> = ours.map(|line| line_row(line.l_orderkey, &line)).collect();
    assert_eq!(stored("lineitem", &batch), ours);
}

#[test]
fn every_row_fits_the_loaded_tables_and_there_are_as_many_as_specified() {
    let (orders, lineitem) = (table("orders"), table("lineitem"));
    for stream in STREAMS {
        let sales: Vec<RefreshOrder> = new_sales(SCALE, stream).unwrap().collect();
        assert_eq!(sales.len(), 15, "1,500 x scale");
        assert_eq!(orders_per_stream(SCALE, stream), Ok(15));
        for sale in sales {
            let bytes = encode(&orders, &sale.order).unwrap();
            assert_eq!(decode(&orders, &bytes).unwrap(), sale.order);
            assert!((1..=7).contains(&sale.lines.len()), "{sale:?}");
            for (at, line) in sale.lines.iter().enumerate() {
                let bytes = encode(&lineitem, line).unwrap();
                assert_eq!(&decode(&lineitem, &bytes).unwrap(), line);
                assert_eq!(number(line, 3), at as i64 + 1, "lines are numbered from 1");
                assert_eq!(number(line, 0), sale.key);
            }
            assert_eq!(number(&sale.order, 0), sale.key);
        }
    }
    assert_eq!(orders_per_stream(1.0, 1), Ok(1500));
    assert_eq!(orders_per_stream(0.001, 1), Ok(1), "at least one, however small");
}

#[test]
fn no_two_streams_share_a_key_and_rf1_inserts_none_that_was_loaded_and_rf2_deletes_loaded_ones() {
    let loaded = loaded_keys();
    let (mut inserted, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for stream in STREAMS {
        let keys: Vec<i64> = new_sales(SCALE, stream).unwrap().map(|sale| sale.key).collect();
        assert!(keys.is_sorted());
        for key in keys {
            assert!(!loaded.contains(&key), "{key} was loaded");
            assert!((8..16).contains(&(key % 32)), "{key} is not among the second 8 of 32");
            assert!(inserted.insert(key), "{key} twice");
        }
    }
    for stream in 1..=REFRESH_STREAMS_MAX {
        for key in old_sales(SCALE, stream).unwrap() {
            assert!(loaded.contains(&key), "{key} was not loaded");
            assert!(deleted.insert(key), "{key} twice");
        }
    }
    assert_eq!(deleted.len(), 999 * 15);
    // Numbers 1 to 15, as mk_sparse of dbgen spreads them with 0 and 1 in its two unused bits.
    let old: Vec<i64> = old_sales(SCALE, 1).unwrap().collect();
    assert_eq!(old, [1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39]);
    let new: Vec<i64> = new_sales(SCALE, 1).unwrap().map(|sale| sale.key).collect();
    assert_eq!(new, [9, 10, 11, 12, 13, 14, 15, 40, 41, 42, 43, 44, 45, 46, 47]);
}

#[test]
fn totals_and_statuses_are_those_of_the_lines() {
    for sale in STREAMS.into_iter().flat_map(|stream| new_sales(SCALE, stream).unwrap()) {
        let price = |line: &Vec<Datum>| {
            let discounted = number(line, 5) * (100 - number(line, 6)) / 100;
            discounted * (100 + number(line, 7)) / 100
        };
        assert_eq!(number(&sale.order, 3), sale.lines.iter().map(price).sum::<i64>(), "{sale:?}");
        let shipped = sale.lines.iter().filter(|line| words(line, 9) == "F").count();
        let status = match sale.lines.len() - shipped {
            0 => "F",
            open if open == sale.lines.len() => "O",
            _ => "P",
        };
        assert_eq!(words(&sale.order, 2), status, "{sale:?}");
    }
}

#[test]
fn values_are_those_that_the_specification_allows() {
    for sale in STREAMS.into_iter().flat_map(|stream| new_sales(SCALE, stream).unwrap()) {
        let (customer, day) = (number(&sale.order, 1), number(&sale.order, 4));
        assert!((1..=1500).contains(&customer) && customer % 3 != 0, "customer {customer}");
        assert!((DAYS.0..=DAYS.1 - 151).contains(&day), "day {day}");
        assert_eq!(number(&sale.order, 7), 0);
        assert!((19..=78).contains(&words(&sale.order, 8).len()), "{sale:?}");
        for line in &sale.lines {
            let (part, supplier, quantity) = (number(line, 1), number(line, 2), number(line, 4));
            assert!((1..=2000).contains(&part) && (100..=5000).contains(&quantity) && quantity % 100 == 0);
            let suppliers = 100;
            let of_part = |of: i64| (part + of * (suppliers / 4 + (part - 1) / suppliers)) % suppliers + 1;
            assert!((0..4).any(|of| of_part(of) == supplier), "part {part} is not sold by {supplier}");
            let retail = 90_000 + (part / 10) % 20_001 + 100 * (part % 1000);
            assert_eq!(number(line, 5), quantity / 100 * retail);
            assert!((0..=10).contains(&number(line, 6)) && (0..=8).contains(&number(line, 7)));
            let (ship, commit, receipt) = (number(line, 10), number(line, 11), number(line, 12));
            assert!((1..=121).contains(&(ship - day)) && (30..=90).contains(&(commit - day)));
            assert!((1..=30).contains(&(receipt - ship)));
            assert_eq!(words(line, 9), if ship <= TODAY { "F" } else { "O" });
            let flags: &[&str] = if receipt <= TODAY { &["R", "A"] } else { &["N"] };
            assert!(flags.contains(&words(line, 8)), "{line:?}");
            assert!((10..=43).contains(&words(line, 15).len()), "{line:?}");
        }
    }
}

#[test]
fn rows_are_always_the_same_and_those_of_no_other_stream() {
    let of = |stream| new_sales(SCALE, stream).unwrap().collect::<Vec<_>>();
    assert_eq!(of(7), of(7));
    // Without keys, which differ anyway.
    let values = |stream| of(stream).into_iter().map(|sale| sale.order[1..].to_vec()).collect::<Vec<_>>();
    let loaded = OrderGenerator::new(SCALE, 1, 1).into_iter();
    let loaded: Vec<_> = loaded.map(|order| order_row(0, &order)[1..].to_vec()).collect();
    let (first, second) = (values(1), values(2));
    assert!(first.iter().all(|row| !second.contains(row) && !loaded.contains(row)));
}

#[test]
fn what_is_no_refresh_is_named() {
    let error = old_sales(SCALE, 0).err().unwrap().to_string();
    assert!(error.starts_with("the stream of a refresh is 0, expected 1 to 999"), "{error}");
    assert!(new_sales(SCALE, REFRESH_STREAMS_MAX + 1).is_err());
    for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = new_sales(scale, 1).err().unwrap().to_string();
        assert!(error.starts_with("the scale factor of a refresh is"), "{error}");
    }
}
