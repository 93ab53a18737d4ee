//! Tests that derived entries are visible with their rows or not at all, and agree with them.
//!
//! Each feature is tested twice: without concurrency control, where readers must find
//! contradictions, and with RAMP, where they must find none. Then each part is tested by itself.

mod changes;
mod families;
mod world;

use super::*;
use crate::{
    identity::{RowIdentity, table_prefix},
    replica::Replica,
    row::{Datum, encode},
};
use changes::Changes;
use families::Families;
use proptest::prelude::*;
use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind, Factor, SumDefinition},
    ids::{ColumnId, NodeId, SegmentId, TableId},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};
use rackscan_ramp::{
    algorithm::Algorithm,
    closing::Closing,
    item::{Key, Metadata, Value},
    log::Record,
    message::{Guard, Part, ParticipantId},
    timestamp::{ClientId, Timestamp},
};
use std::ops::Bound;
use world::{Participants, all_is_well_by_ramp, runs};

const MONEY: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };

/// What tests' tables differ in.
struct Columns {
    id: TableId,
    name: &'static str,
    columns: &'static [(&'static str, ColumnType)],
    derived: Vec<DerivedDefinition>,
}

fn orders() -> Columns {
    let columns = &[("o_orderkey", ColumnType::Int64), ("o_lines", ColumnType::Int64)];
    Columns { id: TableId(1), name: "orders", columns, derived: vec![families::parents()] }
}

fn lines() -> Columns {
    let columns = &[
        ("l_orderkey", ColumnType::Int64),
        ("l_suppkey", ColumnType::Int64),
        ("l_extendedprice", MONEY),
        ("l_discount", MONEY),
        ("l_shipdate", ColumnType::Date32),
    ];
    let derived = vec![changes::index(), families::children(), changes::revenue()];
    Columns { id: TableId(0x1234_5678), name: "lineitem", columns, derived }
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
        derived: of.derived.clone(),
        protection: None,
    }
}

fn row(number: u32) -> RowIdentity {
    RowIdentity::Stored { segment: SegmentId(3), row: number }
}

fn line(supplier: i64, price: i64, discount: i64, day: i64) -> Vec<Datum> {
    [1, supplier, price, discount, day].map(Datum::Integer).to_vec()
}

/// What is derived from lines.
fn of_lines(number: usize) -> Derived {
    Derived::all_of(&table(&lines())).swap_remove(number)
}

fn index() -> Derived {
    of_lines(0)
}

fn children() -> Derived {
    of_lines(1)
}

fn revenue() -> Derived {
    of_lines(2)
}

/// A sum of other factors.
fn sum_of(factors: Vec<Factor>) -> (TableDefinition, Derived) {
    let mut table = table(&lines());
    let sum = SumDefinition { group: ColumnId(1), factors, within: None, base: None };
    table.derived = vec![DerivedDefinition { name: "sum".to_owned(), kind: DerivedKind::Sum(sum) }];
    let derived = Derived::all_of(&table).remove(0);
    (table, derived)
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
        let timestamp = Timestamp { time, client: ClientId(1) };
        let metadata = Metadata::Timestamp;
        let part = Part { timestamp, participants: Vec::new(), guard: Guard::Open, metadata, items };
        self.replica.record(ParticipantId(0), Record::Put(part)).unwrap();
    }

    fn change(&mut self, derived: &Derived, change: RowChange<'_>) {
        self.time += 10;
        self.change_at(self.time, derived, change);
    }

    fn change_at(&mut self, time: u64, derived: &Derived, change: RowChange<'_>) {
        let table = table(&lines());
        let taken = self.replica.derived().taken_away(derived, [change.row]).ok();
        let mut items = derived.maintain(&table, &[change], taken.as_ref()).unwrap();
        let value = change
            .after
            .map_or(Value::DELETED, |values| Value::new(&encode(&table, values).unwrap()).unwrap());
        items.push((change.row.key(table.id).unwrap(), value));
        self.put(time, items);
    }

    fn index(&self) -> Vec<(Datum, RowIdentity)> {
        self.replica.derived().rows_in(&index(), Bound::Unbounded, Bound::Unbounded).unwrap()
    }

    fn revenue(&self) -> Vec<(Datum, Amount)> {
        self.replica.derived().sums_in(&revenue(), Bound::Unbounded, Bound::Unbounded).unwrap()
    }
}

#[test]
fn a_row_is_found_by_what_it_has_and_no_more_by_what_it_had() {
    let (one, two) = (line(1, 0, 0, 0), line(2, 0, 0, 0));
    let mut seen = Seen::default();
    let change = |before, after| RowChange { row: row(7), before, after };
    seen.change(&index(), change(Before::Stored(&two), Some(&one[..])));
    assert_eq!(seen.index(), [(Datum::Integer(1), row(7))]);
    seen.change(&index(), change(Before::Beside(Some(&one)), Some(&two[..])));
    assert_eq!(seen.index(), [(Datum::Integer(2), row(7))]);
    seen.change(&index(), change(Before::Beside(Some(&two)), None));
    assert_eq!(seen.index(), []);
}

#[test]
fn what_a_change_leaves_behind_is_deleted_and_what_stays_is_written_anew() {
    let values = [line(1, 100, 0, 100), line(2, 200, 0, 100), line(2, 300, 0, 100)];
    let inserted = RowIdentity::Inserted { by: Timestamp::FIRST, number: 0 };
    let maintain = |derived: &Derived, before: usize, after: Option<usize>| {
        let change = RowChange {
            row: inserted,
            before: Before::Beside(Some(&values[before])),
            after: after.map(|after| &values[after][..]),
        };
        let items = derived.maintain(&table(&lines()), &[change], None).unwrap();
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
        before: Before::Stored(&values[number]),
        after: (number % 3 != 1).then_some(&values[5 - number]),
    };
    let forwards: Vec<_> = (0..6).map(change).collect();
    let backwards: Vec<_> = (0..6).rev().map(change).collect();
    for derived in [index(), children(), revenue()] {
        let items = derived.maintain(&table(&lines()), &forwards, None).unwrap();
        assert!(items.len() >= 4 && items.is_sorted_by(|(a, _), (b, _)| a < b), "{items:?}");
        assert_eq!(derived.maintain(&table(&lines()), &backwards, None), Ok(items));
    }
}

#[test]
fn an_update_that_was_lost_leaves_no_trace_in_an_index_or_a_sum() {
    // Both transactions know the row as it was loaded, and neither knows of the other.
    let (loaded, one, two) = (line(1, 1000, 0, 100), line(2, 2000, 0, 100), line(3, 4000, 0, 100));
    for derived in [index(), revenue()] {
        let change = |after| RowChange { row: row(7), before: Before::Stored(&loaded), after };
        for order in [[1, 2], [2, 1]] {
            let mut seen = Seen::default();
            for time in order {
                seen.change_at(time, &derived, change(Some(if time == 1 { &one[..] } else { &two[..] })));
            }
            let amount = |sum, rows| Amount { sum, rows };
            match derived.kind() {
                DerivedKind::Index { .. } => assert_eq!(seen.index(), [(Datum::Integer(3), row(7))]),
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
        let row = RowIdentity::Inserted { by: Timestamp::FIRST, number };
        seen.change(&revenue(), RowChange { row, before: Before::Beside(None), after: Some(after) });
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
    let (table, derived) = sum_of(vec![Factor::Column(ColumnId(0)); 3]);
    let mut values = line(1, 0, 0, 100);
    values[0] = Datum::Integer(i64::MAX);
    let inserted = RowIdentity::Inserted { by: Timestamp::FIRST, number: 0 };
    let change = RowChange { row: inserted, before: Before::Beside(None), after: Some(&values) };
    let error = derived.maintain(&table, &[change], None).unwrap_err();
    assert!(matches!(error, DerivedFault::Overflow { .. }), "{error}");
    // Each fits, and two do not.
    let (_, derived) = sum_of(vec![Factor::Column(ColumnId(0)); 2]);
    let mut seen = Seen::default();
    for number in 0..3 {
        let row = RowIdentity::Inserted { by: Timestamp::FIRST, number };
        seen.change(&derived, RowChange { row, ..change });
    }
    let error = seen.replica.derived().sums_in(&derived, Bound::Unbounded, Bound::Unbounded).unwrap_err();
    assert!(matches!(error, DerivedFault::Overflow { .. }), "{error}");
}

#[test]
fn a_stored_row_of_which_nobody_knows_what_its_segment_has_is_not_taken_out_of_a_sum() {
    let values = line(1, 1, 1, 100);
    let change = RowChange { row: row(7), before: Before::Beside(None), after: Some(&values) };
    let maintain = |taken| revenue().maintain(&table(&lines()), &[change], taken);
    let error = Err(DerivedFault::NotStored { name: "revenue".to_owned(), row: row(7) });
    assert_eq!(maintain(None), error);
    let (_, other) = sum_of(Vec::new());
    let seen = Replica::new();
    let of_another = seen.derived().taken_away(&other, [row(7)]).unwrap();
    assert_eq!(maintain(Some(&of_another)), error, "what another sum has taken away says nothing");
    let of_another = seen.derived().taken_away(&revenue(), [row(8)]).unwrap();
    assert_eq!(maintain(Some(&of_another)), error, "what another row has taken away says nothing");
    let nothing = seen.derived().taken_away(&revenue(), [row(7)]).unwrap();
    assert_eq!(maintain(Some(&nothing)).map(|items| items.len()), Ok(1), "its segment adds nothing");
}

#[test]
fn a_stored_row_is_changed_again_without_its_segment() {
    let (from, until) = changes::QUARTER;
    let inside = line(1, 1000, 0, from);
    let outside = line(1, 1000, 0, until);
    let later: [Option<Vec<Datum>>; 4] =
        [Some(line(2, 2000, 0, from)), None, Some(line(3, 4000, 10, from)), Some(line(1, 7, 0, until))];
    let amount = |group, sum, rows| (Datum::Integer(group), Amount { sum, rows });
    for (stored, taken) in [(&inside, Some(amount(1, -100_000, -1))), (&outside, None)] {
        let mut seen = Seen::default();
        let first = line(1, 500, 0, from);
        seen.change(
            &revenue(),
            RowChange { row: row(7), before: Before::Stored(stored), after: Some(&first) },
        );
        let mut before = Some(first);
        for (after, now) in
            later.iter().zip([Some(amount(2, 200_000, 1)), None, Some(amount(3, 360_000, 1)), None])
        {
            let change =
                RowChange { row: row(7), before: Before::Beside(before.as_deref()), after: after.as_deref() };
            seen.change(&revenue(), change);
            let expected: Vec<(Datum, Amount)> = taken.iter().cloned().chain(now).collect();
            assert_eq!(seen.revenue(), expected, "{after:?}");
            before.clone_from(after);
        }
        let taken_away = seen.replica.derived().taken_away(&revenue(), [row(7)]).unwrap();
        assert_eq!(taken_away.entries[&row(7)].is_some(), taken.is_some());
    }
}

#[test]
fn a_table_and_its_new_version_do_not_see_what_is_derived_from_the_other() {
    let old = table(&lines());
    // It derives the same by other numbers, and something else besides.
    let mut new = old.clone();
    (new.id, new.succeeds) = (TableId(old.id.0 + 1), Some(old.id));
    new.derived.reverse();
    let kind = DerivedKind::Index { column: ColumnId(4) };
    new.derived.push(DerivedDefinition { name: "by day".to_owned(), kind });
    let by_name = |table: &TableDefinition, name: &str| {
        Derived::all_of(table).into_iter().find(|derived| derived.name() == name).unwrap()
    };
    let (was, is) = (by_name(&old, "by supplier"), by_name(&new, "by supplier"));
    let by_day = by_name(&new, "by day");
    assert_eq!((was.id().number, is.id().number), (0, 2));
    let values = [line(1, 0, 0, 0), line(2, 0, 0, 77)];
    let mut seen = Seen::default();
    for (time, (table, derived, values)) in (1..).zip([(&old, &was, &values[0]), (&new, &is, &values[1])]) {
        let change = RowChange { row: row(7), before: Before::Stored(values), after: Some(values) };
        let mut items = Vec::new();
        for derived in Derived::all_of(table) {
            items.extend(derived.maintain(table, &[change], None).unwrap());
        }
        let value = Value::new(&encode(table, values).unwrap()).unwrap();
        items.push((row(7).key(table.id).unwrap(), value));
        seen.put(time, items);
        let other = if table.id == old.id { &new } else { &old };
        assert_eq!(derived.maintain(other, &[change], None), Ok(Vec::new()), "of another table");
    }
    let rows = |seen: &Seen, derived| {
        seen.replica.derived().rows_in(derived, Bound::Unbounded, Bound::Unbounded).unwrap()
    };
    assert_eq!(rows(&seen, &was), [(Datum::Integer(1), row(7))]);
    assert_eq!(rows(&seen, &is), [(Datum::Integer(2), row(7))]);
    assert_eq!(rows(&seen, &by_day), [(Datum::Integer(77), row(7))]);
    assert!(seen.replica.has_derived(old.id) && seen.replica.has_derived(new.id));
    seen.replica.forget(old.id);
    assert!(!seen.replica.has_derived(old.id) && seen.replica.has_derived(new.id));
    assert_eq!(rows(&seen, &was), []);
    assert_eq!(rows(&seen, &is), [(Datum::Integer(2), row(7))]);
}

#[test]
fn entries_whose_prefix_is_emptied_are_forgotten_for_good_and_no_others() {
    let of_lines = lines().id;
    let neighbour = TableId(of_lines.0 + 1);
    let values = line(1, 500, 0, 100);
    let inserted = RowIdentity::Inserted { by: Timestamp::FIRST, number: 0 };
    let change = RowChange { row: inserted, before: Before::Beside(None), after: Some(&values) };
    let items = |id| {
        let of = TableDefinition { id, ..table(&lines()) };
        let derived = Derived::all_of(&of);
        derived.iter().flat_map(|derived| derived.maintain(&of, &[change], None).unwrap()).collect::<Vec<_>>()
    };
    let participants = [ParticipantId(0), ParticipantId(1), ParticipantId(2)];
    let all = prefixes(of_lines);
    assert_eq!(items(of_lines).len(), all.len(), "one of each kind");
    let mut seen = Seen::default();
    assert!(!seen.replica.has_derived(of_lines));
    seen.put(1, [items(of_lines), items(neighbour)].concat());
    for (number, prefix) in all.iter().enumerate() {
        assert!(seen.replica.has_derived(of_lines));
        seen.put(2, Closing::Closed.items(prefix, &participants).unwrap());
        assert!(seen.replica.has_derived(of_lines) && seen.replica.is_closed(of_lines));
        // A scan or another participant may tell of it in any order.
        seen.put(3, Closing::Emptied.items(prefix, &participants).unwrap());
        assert!(!seen.replica.is_emptied(of_lines), "its rows are there");
        seen.put(4, items(of_lines).into_iter().filter(|(key, _)| key.bytes().starts_with(prefix)).collect());
        assert_eq!(seen.replica.has_derived(of_lines), number + 1 < all.len());
    }
    assert!(seen.replica.has_derived(neighbour) && !seen.replica.is_closed(neighbour));
    seen.put(5, Closing::Emptied.items(b"\0x1234", &participants).unwrap());
    seen.put(5, Closing::Emptied.items(&prefixes(neighbour)[0][..5], &participants).unwrap());
    assert!(seen.replica.has_derived(neighbour), "those of others are theirs");
    seen.put(6, Closing::Emptied.items(&table_prefix(neighbour), &participants).unwrap());
    assert!(seen.replica.is_emptied(neighbour));
    assert!(seen.replica.has_derived(neighbour), "whoever emptied its rows has left that at participants");
}

#[test]
fn participants_write_no_entry_under_a_closed_prefix_and_keep_none_under_an_emptied_one() {
    let (lines, new_version) = (table(&lines()), TableDefinition { id: TableId(9), ..table(&lines()) });
    let values = line(1, 500, 0, 100);
    let value = Value::new(&encode(&lines, &values).unwrap()).unwrap();
    let items = |of: &TableDefinition, number| {
        let row = RowIdentity::Inserted { by: Timestamp::FIRST, number };
        let change = RowChange { row, before: Before::Beside(None), after: Some(&values) };
        let mut items = vec![(row.key(of.id).unwrap(), value.clone())];
        for derived in Derived::all_of(of) {
            items.extend(derived.maintain(of, &[change], None).unwrap());
        }
        items
    };
    let mut participants = Participants::new();
    let ids = participants.ids();
    for number in 0..20 {
        assert!(participants.write(items(&lines, number)) && participants.write(items(&new_version, number)));
    }
    let all_of = |table| [vec![table_prefix(table).to_vec()], prefixes(table).to_vec()].concat();
    let state = |state: Closing| {
        let prefixes = all_of(lines.id).into_iter();
        prefixes.flat_map(|prefix| state.items(&prefix, &ids).unwrap()).collect::<Vec<_>>()
    };
    assert!(participants.write(state(Closing::Closed)));
    for item in items(&lines, 20) {
        assert!(!participants.write(vec![item.clone()]), "{item:?}");
    }
    assert!(participants.write(items(&new_version, 20)), "another table is open");
    for (rows, is_emptied) in [(20, false), (0, true)] {
        if is_emptied {
            assert!(participants.write(state(Closing::Emptied)));
        }
        for of in [&lines, &new_version] {
            let expected = if of.id == lines.id { rows } else { 21 };
            let found =
                all_of(of.id).iter().map(|prefix| participants.keys_under(prefix)).collect::<Vec<_>>();
            assert_eq!(found, [expected; 4], "{is_emptied}");
        }
        let scanned = participants.scanned();
        for replica in [&participants.replica, &scanned] {
            assert!(replica.is_closed(lines.id) && !replica.is_closed(new_version.id));
            assert_eq!(replica.is_emptied(lines.id), is_emptied);
            assert_eq!(replica.has_derived(lines.id), !is_emptied);
            let indexes = [&lines, &new_version].map(|of| Derived::all_of(of).remove(0));
            let found =
                indexes.map(|index| replica.derived().rows_in(&index, Bound::Unbounded, Bound::Unbounded));
            assert_eq!(found.map(|found| found.unwrap().len()), [rows, 21]);
        }
    }
}

#[test]
fn what_is_prepared_of_a_tables_entries_alone_is_open() {
    let values = line(1, 500, 0, 100);
    let change = RowChange { row: row(7), before: Before::Stored(&values), after: Some(&values) };
    for derived in [index(), children(), revenue()] {
        let items = derived.maintain(&table(&lines()), &[change], None).unwrap();
        let timestamp = Timestamp { time: 9, client: ClientId(1) };
        let part = Part {
            timestamp,
            participants: vec![ParticipantId(0)],
            guard: Guard::Open,
            metadata: Metadata::Timestamp,
            items,
        };
        let mut replica = Replica::new();
        replica.record(ParticipantId(0), Record::Prepare(part)).unwrap();
        assert!(replica.is_open(lines().id) && !replica.is_open(orders().id), "{derived:?}");
        assert!(!replica.has_derived(lines().id), "nobody sees it");
        replica.record(ParticipantId(0), Record::Commit(timestamp)).unwrap();
        assert!(!replica.is_open(lines().id) && replica.has_derived(lines().id));
    }
}

#[test]
fn who_asks_a_derivation_what_it_cannot_answer_is_told_what_it_is() {
    let parents = Derived::all_of(&table(&orders())).remove(0);
    let seen = Replica::new();
    let (view, all, key) = (seen.derived(), Bound::Unbounded, Datum::Integer(1));
    let error = view.rows_in(&revenue(), all, all).unwrap_err().to_string();
    assert_eq!(error, "\"revenue\" is a sum, expected an index");
    let error = view.sums_in(&index(), all, all).unwrap_err().to_string();
    assert_eq!(error, "\"by supplier\" is an index, expected a sum");
    assert!(matches!(view.taken_away(&parents, []), Err(DerivedFault::Kind { .. })));
    let error = view.family(&children(), &children(), &key).unwrap_err().to_string();
    assert_eq!(error, "\"lines of orders\" is a foreign key's children, expected a foreign key's parents");
    assert!(matches!(view.family(&parents, &parents, &key), Err(DerivedFault::Kind { .. })));
    let mut others = table(&lines());
    others.derived[1].name = "others".to_owned();
    let others = Derived::all_of(&others).remove(1);
    let error = view.family(&parents, &others, &key).unwrap_err().to_string();
    assert!(error.contains("expected the children of foreign key \"lines of orders\""), "{error}");
    assert_eq!(view.family(&parents, &children(), &key), Ok(Family::default()));
}

#[test]
fn a_text_that_no_key_has_room_for_is_refused_and_one_that_fits_is_found() {
    let mut table = table(&lines());
    table.columns[1].column_type = ColumnType::Text;
    let change = |values: &[Datum]| {
        let change = RowChange { row: row(7), before: Before::Beside(None), after: Some(values) };
        index().maintain(&table, &[change], None)
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
    let looked = seen.derived().rows_in(&index(), Bound::Included(short), Bound::Included(long));
    assert!(matches!(looked, Err(DerivedFault::Oversize { .. })));
    let none = seen.derived().rows_in(&index(), Bound::Excluded(short), Bound::Excluded(short));
    assert_eq!(none, Ok(Vec::new()), "an empty range");
}

#[test]
fn a_row_of_another_length_derives_nothing() {
    let values = [Datum::Null];
    let change = RowChange { row: row(7), before: Before::Beside(None), after: Some(&values) };
    let error = children().maintain(&table(&lines()), &[change], None).unwrap_err().to_string();
    assert!(error.contains("has 1 values, expected 5"), "{error}");
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
        table in any::<u32>(), at in any::<u16>(), value in value(), role in 0_usize..5, number in any::<u32>(), time in any::<u64>(),
    ) {
        let role = [Role::Indexed, Role::Parent, Role::Child, Role::Stored, Role::Present][role];
        let inserted = RowIdentity::Inserted { by: Timestamp { time, client: ClientId(number) }, number };
        for row in [row(number), inserted] {
            let by = DerivedId { table: TableId(table), number: at };
            let entry = Entry { by, role, value: value.clone(), row };
            let key = entry.key().unwrap();
            prop_assert_eq!(Entry::of(&key), Ok(Some(entry)));
            let definition = match role {
                Role::Indexed => changes::index(),
                Role::Parent => families::parents(),
                Role::Child => families::children(),
                Role::Stored | Role::Present => changes::revenue(),
            };
            let derived = Derived { id: by, definition };
            let of_table = prefixes(TableId(table)).into_iter().filter(|prefix| key.bytes().starts_with(prefix));
            prop_assert_eq!(of_table.count(), 1);
            prop_assert_eq!(table_of(&key.bytes()[..6]), Some(TableId(table)));
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
