//! Is what is derived seen with its rows or not at all, and does it say what the rows say?
//!
//! Each feature twice: written and read without concurrency control, where readers find what does not belong together, and by RAMP, where none ever does. Then what each part
//! promises by itself.

mod changes;
mod families;
mod world;

use super::*;
use crate::{
    identity::RowIdentity,
    replica::Replica,
    row::{Datum, encode},
};
use changes::Changes;
use families::Families;
use proptest::prelude::*;
use rackscan_format::{
    ids::{ColumnId, NodeId, SegmentId, TableId},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};
use rackscan_ramp::{
    algorithm::Algorithm,
    item::{Key, Metadata, Value},
    log::Record,
    message::{Guard, HomeId, Part},
    stamp::{ClientId, Stamp},
};
use std::ops::Bound;
use world::{all_is_well_by_ramp, runs};

const ID: DerivedId = DerivedId(0x1234_5678);
const MONEY: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };

/// A table's id, name and columns.
struct Columns {
    id: TableId,
    name: &'static str,
    columns: &'static [(&'static str, ColumnType)],
}

fn orders() -> Columns {
    let columns = &[("o_orderkey", ColumnType::Int64), ("o_lines", ColumnType::Int64)];
    Columns { id: TableId(1), name: "orders", columns }
}

fn lines() -> Columns {
    let columns = &[
        ("l_orderkey", ColumnType::Int64),
        ("l_suppkey", ColumnType::Int64),
        ("l_extendedprice", MONEY),
        ("l_discount", MONEY),
        ("l_shipdate", ColumnType::Date32),
    ];
    Columns { id: TableId(2), name: "lineitem", columns }
}

fn table(of: &Columns) -> TableDefinition {
    let column = |(name, column_type): &(&str, ColumnType)| ColumnDefinition {
        name: (*name).to_owned(),
        column_type: *column_type,
        nullable: true,
    };
    TableDefinition {
        id: of.id,
        name: of.name.to_owned(),
        columns: of.columns.iter().map(column).collect(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 1024,
        nodes: vec![NodeId(0)],
        rows: 0,
        source: "a test".to_owned(),
        succeeds: None,
    }
}

fn row(number: u32) -> RowIdentity {
    RowIdentity::Stored { segment: SegmentId(3), row: number }
}

fn line(supplier: i64, price: i64, discount: i64, day: i64) -> Vec<Datum> {
    [1, supplier, price, discount, day].map(Datum::Integer).to_vec()
}

fn index() -> Derived {
    Derived::Index(changes::index())
}

fn revenue() -> Derived {
    Derived::Sum(changes::revenue())
}

fn pair() -> Derived {
    Derived::Pair(families::pair())
}

fn by_rows_alone(algorithm: Algorithm, found: &[&str], anomalies: &[String]) {
    for what in found {
        assert!(
            anomalies.iter().any(|anomaly| anomaly.contains(what)),
            "{algorithm}: nobody found that {what:?} in {} anomalies: {:?}",
            anomalies.len(),
            anomalies.first()
        );
    }
}

#[test]
fn without_ramp_readers_find_entries_of_an_index_without_their_rows_and_rows_without_entries() {
    let stats = runs(Algorithm::None, 60, || Changes::new(index()));
    by_rows_alone(Algorithm::None, &["is newer than its", "is not in the index"], &stats.anomalies);
}

#[test]
fn by_ramp_an_index_and_its_rows_are_seen_together_or_not_at_all() {
    all_is_well_by_ramp(|| Changes::new(index()));
}

#[test]
fn without_ramp_readers_find_lines_whose_order_is_missing_and_orders_without_all_of_their_lines() {
    let stats = runs(Algorithm::None, 60, Families::new);
    let found = ["is there, and its order is not", " lines of ", "by its key"];
    by_rows_alone(Algorithm::None, &found, &stats.anomalies);
}

#[test]
fn by_ramp_an_order_and_all_of_its_lines_are_seen_together_or_not_at_all() {
    all_is_well_by_ramp(Families::new);
}

#[test]
fn without_ramp_readers_find_a_revenue_that_is_not_that_of_the_lines_they_see() {
    let stats = runs(Algorithm::None, 60, || Changes::new(revenue()));
    by_rows_alone(Algorithm::None, &["the revenue is", "is newer than its"], &stats.anomalies);
}

#[test]
fn by_ramp_the_revenue_is_that_of_the_lines_that_are_seen() {
    all_is_well_by_ramp(|| Changes::new(revenue()));
}

/// A replica to which transactions are committed one after the other.
#[derive(Default)]
struct Seen {
    replica: Replica,
    time: u64,
}

impl Seen {
    fn put(&mut self, time: u64, items: Vec<(Key, Value)>) {
        let stamp = Stamp { time, client: ClientId(1) };
        let metadata = Metadata::Stamp;
        let part = Part { stamp, homes: Vec::new(), guard: Guard::Open, metadata, items };
        self.replica.record(HomeId(0), Record::Put(part)).unwrap();
    }

    fn change(&mut self, derived: &Derived, change: RowChange<'_>) {
        self.time += 10;
        self.change_at(self.time, derived, change);
    }

    fn change_at(&mut self, time: u64, derived: &Derived, change: RowChange<'_>) {
        let table = table(&lines());
        let mut items = derived.maintain(&table, &[change]).unwrap();
        let value = change
            .after
            .map_or(Value::DELETED, |values| Value::new(&encode(&table, values).unwrap()).unwrap());
        items.push((change.row.key(table.id).unwrap(), value));
        self.put(time, items);
    }

    fn index(&self) -> Vec<(Datum, RowIdentity)> {
        self.replica.derived().rows_in(&changes::index(), Bound::Unbounded, Bound::Unbounded).unwrap()
    }

    fn revenue(&self) -> Vec<(Datum, Amount)> {
        self.replica.derived().sums_in(&changes::revenue(), Bound::Unbounded, Bound::Unbounded).unwrap()
    }
}

#[test]
fn a_row_is_found_by_what_it_has_and_no_more_by_what_it_had() {
    let (one, two) = (line(1, 0, 0, 0), line(2, 0, 0, 0));
    let mut seen = Seen::default();
    let change = |before, after| RowChange { row: row(7), stored: None, before, after };
    seen.change(&index(), change(None, Some(&one[..])));
    assert_eq!(seen.index(), [(Datum::Integer(1), row(7))]);
    seen.change(&index(), change(Some(&one[..]), Some(&two[..])));
    assert_eq!(seen.index(), [(Datum::Integer(2), row(7))]);
    seen.change(&index(), change(Some(&two[..]), None));
    assert_eq!(seen.index(), []);
}

#[test]
fn what_a_change_leaves_behind_is_deleted_and_what_stays_is_written_anew() {
    let values = [line(1, 100, 0, 100), line(2, 200, 0, 100), line(2, 300, 0, 100)];
    let inserted = RowIdentity::Inserted { by: Stamp::FIRST, number: 0 };
    let maintain = |derived: &Derived, before: usize, after: Option<usize>| {
        let change = RowChange {
            row: inserted,
            stored: None,
            before: Some(&values[before]),
            after: after.map(|after| &values[after][..]),
        };
        let items = derived.maintain(&table(&lines()), &[change]).unwrap();
        let what =
            |(key, value): (Key, Value)| (Entry::of(&key).unwrap().unwrap().value, value.bytes().is_some());
        items.into_iter().map(what).collect::<Vec<_>>()
    };
    for derived in [index(), revenue()] {
        let number = Datum::Integer;
        assert_eq!(maintain(&derived, 0, Some(1)), [(number(1), false), (number(2), true)]);
        assert_eq!(maintain(&derived, 1, Some(2)), [(number(2), true)], "as new as the row");
        assert_eq!(maintain(&derived, 2, None), [(number(2), false)]);
    }
}

#[test]
fn items_are_ascending_each_once_whatever_the_order_of_changes() {
    let values: Vec<Vec<Datum>> = (0..6).map(|number| line(number % 3, 100, 0, 100)).collect();
    let change = |number: usize| RowChange {
        row: row(u32::try_from(number).unwrap()),
        stored: Some(&values[number]),
        before: number.is_multiple_of(2).then_some(&values[0]),
        after: (number % 3 != 1).then_some(&values[5 - number]),
    };
    let forwards: Vec<_> = (0..6).map(change).collect();
    let backwards: Vec<_> = (0..6).rev().map(change).collect();
    for derived in [index(), pair(), revenue()] {
        let items = derived.maintain(&table(&lines()), &forwards).unwrap();
        assert!(items.len() >= 4 && items.is_sorted_by(|(a, _), (b, _)| a < b), "{items:?}");
        assert_eq!(derived.maintain(&table(&lines()), &backwards), Ok(items));
    }
}

#[test]
fn an_update_that_was_lost_leaves_no_trace_in_an_index_or_a_sum() {
    // Both transactions know the row as it was loaded, and neither knows of the other.
    let (loaded, one, two) = (line(1, 1000, 0, 100), line(2, 2000, 0, 100), line(3, 4000, 0, 100));
    for derived in [index(), revenue()] {
        let change = |after| RowChange { row: row(7), stored: Some(&loaded[..]), before: None, after };
        for order in [[1, 2], [2, 1]] {
            let mut seen = Seen::default();
            for time in order {
                seen.change_at(time, &derived, change(Some(if time == 1 { &one[..] } else { &two[..] })));
            }
            let amount = |sum, rows| Amount { sum, rows };
            match derived {
                Derived::Index(_) => assert_eq!(seen.index(), [(Datum::Integer(3), row(7))]),
                _ => assert_eq!(
                    seen.revenue(),
                    [(Datum::Integer(1), amount(-100_000, -1)), (Datum::Integer(3), amount(400_000, 1)),]
                ),
            }
        }
    }
}

#[test]
fn a_sum_is_exact_and_of_the_rows_in_its_range() {
    let (from, until) = changes::QUARTER;
    let mut seen = Seen::default();
    let rows = [
        line(1, 2_116_823, 4, from),
        line(1, 999_999_999_999_999, 10, until - 1),
        line(1, 1, 0, until),
        line(1, 1, 0, from - 1),
        vec![Datum::Integer(1), Datum::Null, Datum::Integer(500), Datum::Integer(0), Datum::Integer(100)],
        vec![Datum::Integer(1), Datum::Integer(1), Datum::Null, Datum::Integer(0), Datum::Integer(100)],
    ];
    for (number, after) in (0_u32..).zip(&rows) {
        let row = RowIdentity::Inserted { by: Stamp::FIRST, number };
        seen.change(&revenue(), RowChange { row, stored: None, before: None, after: Some(after) });
    }
    let sum = 2_116_823 * 96 + 999_999_999_999_999 * 90;
    assert_eq!(
        seen.revenue(),
        [(Datum::Null, Amount { sum: 50_000, rows: 1 }), (Datum::Integer(1), Amount { sum, rows: 2 }),],
        "of four digits behind the point"
    );
}

#[test]
fn what_does_not_fit_128_bits_is_a_fault_and_no_sum() {
    let mut sum = changes::revenue();
    sum.factors = vec![Factor::Column(ColumnId(0)); 3];
    let derived = Derived::Sum(sum.clone());
    let mut values = line(1, 0, 0, 100);
    values[0] = Datum::Integer(i64::MAX);
    let table = table(&lines());
    let inserted = RowIdentity::Inserted { by: Stamp::FIRST, number: 0 };
    let change = RowChange { row: inserted, stored: None, before: None, after: Some(&values) };
    let error = derived.maintain(&table, &[change]).unwrap_err();
    assert!(matches!(error, DerivedFault::Overflow { .. }), "{error}");
    // Each fits, and two do not.
    sum.factors.truncate(2);
    let derived = Derived::Sum(sum.clone());
    let mut seen = Seen::default();
    for number in 0..3 {
        let row = RowIdentity::Inserted { by: Stamp::FIRST, number };
        seen.change(&derived, RowChange { row, ..change });
    }
    let error = seen.replica.derived().sums_in(&sum, Bound::Unbounded, Bound::Unbounded).unwrap_err();
    assert!(matches!(error, DerivedFault::Overflow { .. }), "{error}");
}

#[test]
fn a_stored_row_without_what_its_segment_has_is_not_taken_out_of_a_sum() {
    let values = line(1, 1, 1, 100);
    let change = RowChange { row: row(7), stored: None, before: None, after: Some(&values) };
    let error = revenue().maintain(&table(&lines()), &[change]).unwrap_err();
    assert_eq!(error, DerivedFault::NotStored { name: "revenue".to_owned(), row: row(7) });
}

#[test]
fn a_definition_is_remembered_and_goes_with_its_table() {
    let mut seen = Seen::default();
    let others = Derived::Index(Index { id: DerivedId(9), table: TableId(5), ..changes::index() });
    for derived in [&index(), &others] {
        let (key, value) = derived.item().unwrap();
        assert_eq!(Derived::of(&key, &value), Ok(Some(derived.clone())));
        seen.put(1, vec![(key, value)]);
    }
    let values = line(1, 0, 0, 0);
    seen.change(&index(), RowChange { row: row(7), stored: None, before: None, after: Some(&values) });
    assert_eq!(seen.replica.derived().definitions(), Ok(vec![others.clone(), index()]), "by id");
    assert_eq!(seen.index().len(), 1);
    seen.replica.forget(lines().id);
    assert_eq!(seen.replica.derived().definitions(), Ok(vec![others]));
    assert_eq!(seen.index(), []);
    for derived in [revenue(), pair()] {
        let (key, value) = derived.item().unwrap();
        assert_eq!(Derived::of(&key, &value), Ok(Some(derived)));
        assert_eq!(Derived::of(&key, &Value::DELETED), Ok(None));
        let newer = Value::new(&[2]).unwrap();
        assert!(matches!(Derived::of(&key, &newer), Err(DerivedFault::Layout { found: Some(2), .. })));
        let torn = Value::new(&value.bytes().unwrap()[..5]).unwrap();
        assert!(matches!(Derived::of(&key, &torn), Err(DerivedFault::Unreadable { .. })));
    }
}

#[test]
fn a_definition_that_does_not_fit_its_table_is_named() {
    let of = |derived: Derived| derived.check(&table(&lines())).unwrap_err().to_string();
    let error = of(Derived::Index(Index { column: ColumnId(5), ..changes::index() }));
    assert!(error.contains("the indexed column is column 5, expected below 5"), "{error}");
    let mut sum = changes::revenue();
    sum.factors = vec![Factor::Column(ColumnId(4))];
    assert!(of(Derived::Sum(sum.clone())).contains("a factor is a date"));
    sum.factors = vec![Factor::Column(ColumnId(2)); crate::limits::FACTORS_MAX + 1];
    assert!(of(Derived::Sum(sum)).contains("5 factors, expected at most 4"));
    assert_eq!(index().maintain(&table(&orders()), &[]), Ok(Vec::new()), "of another table");
}

#[test]
fn a_text_that_no_key_has_room_for_is_refused_and_one_that_fits_is_found() {
    let mut table = table(&lines());
    table.columns[1].column_type = ColumnType::Text;
    let change = |values: &[Datum]| {
        let change = RowChange { row: row(7), stored: None, before: None, after: Some(values) };
        index().maintain(&table, &[change])
    };
    let mut values = line(1, 0, 0, 0);
    values[1] = Datum::Text("x".repeat(900));
    let items = change(&values).unwrap();
    let entry = Entry::of(&items[0].0).unwrap().unwrap();
    assert_eq!((entry.value, entry.row, entry.role), (values[1].clone(), row(7), Role::Indexed));
    values[1] = Datum::Text("x".repeat(1024));
    let error = change(&values).unwrap_err().to_string();
    assert!(error.contains("row 7 of segment 3 has a value that is too long"), "{error}");
    let (long, short) = (&values[1], &Datum::Null);
    let seen = Replica::new();
    let looked = seen.derived().rows_in(&changes::index(), Bound::Included(short), Bound::Included(long));
    assert!(matches!(looked, Err(DerivedFault::Oversize { .. })));
    let none = seen.derived().rows_in(&changes::index(), Bound::Excluded(short), Bound::Excluded(short));
    assert_eq!(none, Ok(Vec::new()), "an empty range");
}

#[test]
fn a_row_of_another_length_derives_nothing() {
    let values = [Datum::Null];
    let change = RowChange { row: row(7), stored: None, before: None, after: Some(&values) };
    let error = pair().maintain(&table(&lines()), &[change]).unwrap_err().to_string();
    assert!(error.contains("with 1 values, expected 5"), "{error}");
}

fn value() -> impl Strategy<Value = Datum> {
    prop_oneof![
        Just(Datum::Null),
        any::<i64>().prop_map(Datum::Integer),
        (-9.0_f64..9.0).prop_map(Datum::Float),
        ".{0,20}".prop_map(Datum::Text),
    ]
}

proptest! {
    #[test]
    fn an_entry_survives_its_key_and_lies_where_its_value_is_looked_for(
        by in any::<u32>(), value in value(), role in 0_usize..5, number in any::<u32>(), time in any::<u64>(),
    ) {
        let role = [Role::Indexed, Role::Parent, Role::Child, Role::Stored, Role::Present][role];
        let inserted = RowIdentity::Inserted { by: Stamp { time, client: ClientId(number) }, number };
        for row in [row(number), inserted] {
            let entry = Entry { by: DerivedId(by), role, value: value.clone(), row };
            let key = entry.key().unwrap();
            prop_assert_eq!(Entry::of(&key), Ok(Some(entry)));
            let derived = match role {
                Role::Indexed => Derived::Index(Index { id: DerivedId(by), ..changes::index() }),
                Role::Parent | Role::Child => Derived::Pair(Pair { id: DerivedId(by), ..families::pair() }),
                Role::Stored | Role::Present => Derived::Sum(Sum { id: DerivedId(by), ..changes::revenue() }),
            };
            prop_assert!(key.bytes().starts_with(&derived.prefix()));
            let (from, to) = derived.span(Bound::Included(&value), Bound::Included(&value));
            prop_assert!(from[..] < *key.bytes() && *key.bytes() < to[..]);
            let (behind, _) = derived.span(Bound::Excluded(&value), Bound::Unbounded);
            let (_, before) = derived.span(Bound::Unbounded, Bound::Excluded(&value));
            prop_assert!(before[..] < *key.bytes() && *key.bytes() < behind[..]);
            let (first, last) = derived.span(Bound::Unbounded, Bound::Unbounded);
            prop_assert!(first[..] < *key.bytes() && *key.bytes() < last[..]);
        }
    }

    #[test]
    fn a_key_of_any_bytes_is_an_entry_or_says_that_it_is_none(
        letter in prop::sample::select(&[b'i', b'f', b'a'][..]),
        bytes in prop::collection::vec(prop::sample::select(&[0_u8, 1, 2, 3, 97, 255][..]), 0..40),
    ) {
        let key = Key::new(&[&[0, letter][..], &bytes].concat()).unwrap();
        match Entry::of(&key) {
            Ok(Some(entry)) => prop_assert_eq!(entry.key().unwrap(), key),
            Ok(None) => prop_assert!(false, "it begins as entries do"),
            Err(error) => prop_assert_eq!(error, DerivedFault::NotAnEntry { key }),
        }
    }
}

#[test]
fn keys_of_others_are_no_entries() {
    for key in [&b"i"[..], b"\0", b"\0r123456", b"\0d1234"] {
        assert_eq!(Entry::of(&Key::new(key).unwrap()), Ok(None));
    }
}
