//! Test data: order lines that overlapping transactions insert, update and delete, with an index of
//! their suppliers, or with a sum of each supplier's revenue in a quarter.

use super::{lines, table, world::Workload};
use crate::{
    derived::{Amount, Before, Derived, Entry, Role, RowChange, TakenAway},
    identity::RowIdentity,
    replica::Replica,
    row::{Datum, decode, encode},
};
use fastrand::Rng;
use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind, Factor, SumDefinition, Within},
    ids::{ColumnId, SegmentId},
    schema::TableDefinition,
};
use rackscan_ramp::{
    item::{Key, Value},
    timestamp::Timestamp,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// Rows that were loaded.
const STORED: u32 = 6;
const SUPPLIERS: i64 = 4;
/// Days of which some are within the quarter.
pub(super) const QUARTER: (i64, i64) = (100, 190);

pub(super) fn index() -> DerivedDefinition {
    let kind = DerivedKind::Index { column: ColumnId(1) };
    DerivedDefinition { name: "by supplier".to_owned(), kind }
}

/// What Q15 of TPC-H adds up: price x (1 - discount), of a quarter, by supplier.
pub(super) fn revenue() -> DerivedDefinition {
    let sum = SumDefinition {
        group: ColumnId(1),
        factors: vec![Factor::Column(ColumnId(2)), Factor::OneMinus(ColumnId(3))],
        within: Some(Within { column: ColumnId(4), from: QUARTER.0, until: QUARTER.1 }),
        base: None,
    };
    DerivedDefinition { name: "revenue".to_owned(), kind: DerivedKind::Sum(sum) }
}

type Row = Option<Vec<Datum>>;

/// A row as its segment has it; none for an inserted one.
fn stored(row: RowIdentity) -> Row {
    let RowIdentity::Stored { row, .. } = row else { return None };
    let mut random = Rng::with_seed(row.into());
    Some(values(&mut random, -1))
}

fn values(random: &mut Rng, order: i64) -> Vec<Datum> {
    let integer = Datum::Integer;
    vec![
        integer(order),
        integer(random.i64(1..=SUPPLIERS)),
        integer(random.i64(90_000..10_000_000)),
        integer(random.i64(0..=10)),
        integer(random.i64(80..220)),
    ]
}

/// The workload; what it derives decides what is checked.
pub(super) struct Changes {
    table: TableDefinition,
    derived: Derived,
    /// The newest version of each row that was acknowledged, and its transaction.
    known: BTreeMap<RowIdentity, (Timestamp, Row)>,
    open: BTreeMap<Timestamp, Vec<(RowIdentity, Row)>>,
    /// What a reader saw last, on which writers rely: the delta store, and what rows of segments
    /// have taken away.
    seen: (BTreeMap<RowIdentity, Row>, Option<TakenAway>),
}

impl Changes {
    pub(super) fn new(derived: Derived) -> Self {
        let row = |row| (RowIdentity::Stored { segment: SegmentId(0), row }, (Timestamp::FIRST, None));
        let known = (0..STORED).map(row).collect();
        let (open, seen) = (BTreeMap::new(), (BTreeMap::new(), None));
        Self { table: table(&lines()), derived, known, open, seen }
    }

    /// The delta store in a view.
    fn rows(&self, seen: &Replica) -> BTreeMap<RowIdentity, Row> {
        let rows = seen.table(self.table.id).into_iter().flat_map(crate::replica::TableRows::rows);
        let values = |value: &Value| value.bytes().map(|bytes| decode(&self.table, bytes).unwrap());
        rows.map(|(row, version)| (row, values(&version.value))).collect()
    }

    fn check_index(&self, seen: &Replica) -> Result<(), String> {
        let supplier = |(row, values): (RowIdentity, Row)| Some((row, values?.swap_remove(1)));
        let rows: BTreeMap<RowIdentity, Datum> = self.rows(seen).into_iter().filter_map(supplier).collect();
        let (one, three) = (Datum::Integer(1), Datum::Integer(3));
        let ranges = [
            (Bound::Unbounded, Bound::Unbounded),
            (Bound::Included(&three), Bound::Included(&three)),
            (Bound::Excluded(&one), Bound::Excluded(&three)),
        ];
        for (from, to) in ranges {
            let found = seen.derived().rows_in(&self.derived, from, to).map_err(|fault| fault.to_string())?;
            let is_in = |value: &Datum| {
                let Datum::Integer(value) = value else { return false };
                match (from, to) {
                    (Bound::Unbounded, _) => true,
                    (Bound::Included(_), _) => *value == 3,
                    (Bound::Excluded(_), _) => *value == 2,
                }
            };
            let expected: BTreeSet<RowIdentity> =
                rows.iter().filter(|(_, value)| is_in(value)).map(|(row, _)| *row).collect();
            let answered: BTreeSet<RowIdentity> = found.iter().map(|(_, row)| *row).collect();
            if let Some(row) = expected.difference(&answered).next() {
                return Err(format!("{row} is not in the index"));
            }
            if let Some((value, row)) = found.iter().find(|(value, row)| rows.get(row) != Some(value)) {
                return Err(format!("the index has {row} with {value:?}, which it has not"));
            }
            if found.len() != expected.len() {
                return Err(format!("the index has {} rows twice", found.len() - expected.len()));
            }
        }
        Ok(())
    }

    /// Said otherwise than in the code that is tested.
    fn revenue(values: &[Datum]) -> Option<(i64, i128)> {
        let number = |column: usize| match values[column] {
            Datum::Integer(value) => value,
            _ => panic!("{values:?}"),
        };
        let is_within = number(4) >= QUARTER.0 && number(4) < QUARTER.1;
        is_within.then(|| (number(1), i128::from(number(2)) * (100 - i128::from(number(3)))))
    }

    fn check_sum(&self, seen: &Replica) -> Result<(), String> {
        let mut base: BTreeMap<i64, (i128, i64)> = BTreeMap::new();
        let mut visible = base.clone();
        let rows = self.rows(seen);
        let add = |to: &mut BTreeMap<i64, (i128, i64)>, values: &Row| {
            if let Some((group, revenue)) = values.as_ref().and_then(|values| Self::revenue(values)) {
                let total = to.entry(group).or_default();
                *total = (total.0 + revenue, total.1 + 1);
            }
        };
        for row in (0..STORED).map(|row| RowIdentity::Stored { segment: SegmentId(0), row }) {
            add(&mut base, &stored(row));
            if !rows.contains_key(&row) {
                add(&mut visible, &stored(row));
            }
        }
        rows.values().for_each(|values| add(&mut visible, values));
        let changes = seen.derived().sums_in(&self.derived, Bound::Unbounded, Bound::Unbounded);
        for (group, Amount { sum, rows }) in changes.map_err(|fault| fault.to_string())? {
            let Datum::Integer(group) = group else { panic!("{group:?}") };
            let total = base.entry(group).or_default();
            *total = (total.0 + sum, total.1 + rows);
        }
        base.retain(|_, total| *total != (0, 0));
        if base == visible {
            return Ok(());
        }
        Err(format!("the revenue is {base:?}, but visible lines add up to {visible:?}"))
    }
}

impl Workload for Changes {
    fn begin(&mut self, random: &mut Rng, timestamp: Timestamp) -> Vec<(Key, Value)> {
        let mut changed: BTreeMap<RowIdentity, Row> = BTreeMap::new();
        let all: Vec<RowIdentity> = self.known.keys().copied().collect();
        for _ in 0..random.usize(1..4) {
            let row = all[random.usize(0..all.len())];
            changed.insert(row, (random.u8(0..4) > 0).then(|| values(random, 1)));
        }
        for number in 0..random.u32(0..3) {
            changed.insert(RowIdentity::Inserted { by: timestamp, number }, Some(values(random, 2)));
        }
        let mut items = Vec::new();
        for (row, after) in &changed {
            let value = after
                .as_ref()
                .map_or(Value::DELETED, |values| Value::new(&encode(&self.table, values).unwrap()).unwrap());
            items.push((row.key(self.table.id).unwrap(), value));
            let stored = stored(*row);
            // As the last reader saw it. Another writer may have changed it, or be about to.
            let (rows, taken) = &self.seen;
            let known = || self.known.get(row).and_then(|(_, values)| values.as_deref());
            let before = match (rows.get(row), &stored) {
                (Some(values), _) => Before::Beside(values.as_deref()),
                (None, Some(stored)) => Before::Stored(stored),
                (None, None) => Before::Beside(known()),
            };
            let change = RowChange { row: *row, before, after: after.as_deref() };
            items.extend(self.derived.maintain(&self.table, &[change], taken.as_ref()).unwrap());
        }
        self.open.insert(timestamp, changed.into_iter().collect());
        items
    }

    fn keys(&self, items: &[(Key, Value)]) -> Vec<Key> {
        let mut keys = Vec::new();
        for (key, _) in items {
            keys.push(key.clone());
            let Ok(Some((_, row))) = RowIdentity::of(key) else { continue };
            let roles = match self.derived.kind() {
                DerivedKind::Sum(_) => &[Role::Stored, Role::Present][..],
                _ => &[Role::Indexed],
            };
            for role in roles {
                let by = self.derived.id();
                let entry = |supplier| Entry { by, role: *role, value: Datum::Integer(supplier), row };
                keys.extend((1..=SUPPLIERS).map(|supplier| entry(supplier).key().unwrap()));
            }
        }
        keys
    }

    fn aborted(&mut self, timestamp: Timestamp) {
        self.open.remove(&timestamp);
    }

    fn ended(&mut self, timestamp: Timestamp) {
        for (row, values) in self.open.remove(&timestamp).unwrap() {
            let known = self.known.entry(row).or_default();
            if known.0 < timestamp {
                *known = (timestamp, values);
            }
        }
    }

    fn check(&mut self, seen: &Replica) -> Result<(), String> {
        let is_sum = matches!(self.derived.kind(), DerivedKind::Sum(_));
        let checked = if is_sum { self.check_sum(seen) } else { self.check_index(seen) };
        let rows = self.known.keys().copied();
        let taken = is_sum.then(|| seen.derived().taken_away(&self.derived, rows)).transpose();
        // A change that is not possible writes nothing.
        if let Ok(taken) = taken {
            self.seen = (self.rows(seen), taken);
        }
        checked
    }
}
