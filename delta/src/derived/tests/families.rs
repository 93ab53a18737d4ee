//! Test data: orders that are inserted together with their lines and deleted together with them,
//! each time in one transaction.

use super::{lines, orders, table, world::Workload};
use crate::{
    derived::{Before, Derived, RowChange},
    identity::RowIdentity,
    replica::Replica,
    row::{Datum, decode, encode},
};
use fastrand::Rng;
use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind},
    ids::ColumnId,
    schema::TableDefinition,
};
use rackscan_ramp::{
    item::{Key, Value},
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "lines of orders";

pub(super) fn parents() -> DerivedDefinition {
    let kind = DerivedKind::Parent { key: ColumnId(0), child: "lineitem".to_owned() };
    DerivedDefinition { name: NAME.to_owned(), kind }
}

pub(super) fn children() -> DerivedDefinition {
    let kind = DerivedKind::Child { key: ColumnId(0), parent: "orders".to_owned() };
    DerivedDefinition { name: NAME.to_owned(), kind }
}

/// What is derived from one side's rows.
fn side(of: &TableDefinition) -> Derived {
    Derived::all_of(of).into_iter().find(|derived| derived.name() == NAME).unwrap()
}

/// An order with its lines.
#[derive(Clone)]
struct Order {
    parent: (RowIdentity, Vec<Datum>),
    children: Vec<(RowIdentity, Vec<Datum>)>,
}

/// The workload.
pub(super) struct Families {
    next: i64,
    /// Orders that are acknowledged, and that no transaction deletes yet.
    there: Vec<Order>,
    open: BTreeMap<Timestamp, Option<Order>>,
}

impl Families {
    pub(super) fn new() -> Self {
        Self { next: 0, there: Vec::new(), open: BTreeMap::new() }
    }

    fn rows(seen: &Replica, of: &TableDefinition) -> BTreeMap<RowIdentity, Vec<Datum>> {
        let rows = seen.table(of.id).into_iter().flat_map(crate::replica::TableRows::rows);
        let there = |(row, version): (RowIdentity, &crate::replica::RowVersion)| {
            Some((row, decode(of, version.value.bytes()?).unwrap()))
        };
        rows.filter_map(there).collect()
    }
}

fn items(of: &TableDefinition, rows: &[(RowIdentity, Vec<Datum>)], is_deleted: bool) -> Vec<(Key, Value)> {
    let mut items = Vec::new();
    for (row, values) in rows {
        let bytes = Value::new(&encode(of, values).unwrap()).unwrap();
        items.push((row.key(of.id).unwrap(), if is_deleted { Value::DELETED } else { bytes }));
    }
    let changes: Vec<RowChange<'_>> = rows
        .iter()
        .map(|(row, values)| {
            let (there, not) = (Some(values.as_slice()), None);
            let (before, after) = if is_deleted { (there, not) } else { (not, there) };
            RowChange { row: *row, before: Before::Beside(before), after }
        })
        .collect();
    items.extend(side(of).maintain(of, &changes, None).unwrap());
    items
}

fn all(order: &Order, is_deleted: bool) -> Vec<(Key, Value)> {
    let mut all = items(&table(&orders()), std::slice::from_ref(&order.parent), is_deleted);
    all.extend(items(&table(&lines()), &order.children, is_deleted));
    all
}

impl Workload for Families {
    fn begin(&mut self, random: &mut Rng, timestamp: Timestamp) -> Vec<(Key, Value)> {
        if !self.there.is_empty() && random.u8(0..3) == 0 {
            let order = self.there.swap_remove(random.usize(0..self.there.len()));
            self.open.insert(timestamp, None);
            return all(&order, true);
        }
        self.next += 1;
        let (key, count) = (Datum::Integer(self.next), random.u32(1..5));
        let inserted = |number| RowIdentity::Inserted { by: timestamp, number };
        let line = |number| {
            let rest = [1, 100, 0, 0].map(Datum::Integer);
            (inserted(number), [&[key.clone()][..], &rest].concat())
        };
        let order = Order {
            parent: (inserted(0), vec![key.clone(), Datum::Integer(count.into())]),
            children: (0..count).map(line).collect(),
        };
        let items = all(&order, false);
        self.open.insert(timestamp, Some(order));
        items
    }

    fn aborted(&mut self, timestamp: Timestamp) {
        // What it was to delete stays for ever.
        self.open.remove(&timestamp);
    }

    fn ended(&mut self, timestamp: Timestamp) {
        self.there.extend(self.open.remove(&timestamp).unwrap());
    }

    fn check(&mut self, seen: &Replica) -> Result<(), String> {
        let (orders, lines) = (table(&orders()), table(&lines()));
        let (parents, children) = (Self::rows(seen, &orders), Self::rows(seen, &lines));
        let (parent_side, child_side) = (side(&orders), side(&lines));
        let family_of = |key: &Datum| {
            let family = seen.derived().family(&parent_side, &child_side, key);
            family.map_err(|fault| fault.to_string())
        };
        let keys: BTreeMap<i64, &Datum> = parents.values().map(|row| (number(&row[0]), &row[1])).collect();
        for (row, values) in &children {
            if !keys.contains_key(&number(&values[0])) {
                return Err(format!("the line {row} is there, and its order is not"));
            }
        }
        for (row, values) in &parents {
            let is_own = |(_, line): &(&RowIdentity, &Vec<Datum>)| line[0] == values[0];
            let own: BTreeSet<RowIdentity> = children.iter().filter(is_own).map(|(row, _)| *row).collect();
            if i64::try_from(own.len()) != Ok(number(&values[1])) {
                return Err(format!("the order {row} has {} lines of {:?}", own.len(), values[1]));
            }
            let family = family_of(&values[0])?;
            if family.parents != [*row] {
                return Err(format!("the order {row} is {:?} by its key", family.parents));
            }
            if family.children.iter().copied().collect::<BTreeSet<_>>() != own {
                return Err(format!("the order {row} has {own:?}, and {:?} by its key", family.children));
            }
        }
        let gone = (1..=self.next).filter(|key| !keys.contains_key(key));
        for key in gone {
            let family = family_of(&Datum::Integer(key))?;
            if !(family.parents.is_empty() && family.children.is_empty()) {
                return Err(format!("there is no order {key}, and it has {family:?}"));
            }
        }
        Ok(())
    }
}

fn number(value: &Datum) -> i64 {
    let Datum::Integer(value) = value else { panic!("{value:?}") };
    *value
}
