//! What can be derived, and how is that remembered?
//!
//! | bytes of a key | |
//! |---|---|
//! | 0..2 | 0, `d` |
//! | 2..6 | the id |
//!
//! The value is the version of its layout, 1, and the definition as [`rackscan_format::codec`] writes it. A definition is written by a transaction like any other item; who follows homes
//! learns of it as of rows.
//!
//! Invariants
//! - An id is drawn at random and never used again, as those of tables are.
//! - A definition that was checked against its tables can be maintained for every row that fits them, but for values that are too large.

use super::{DerivedFault, Role, entry::span};
use crate::{limits::FACTORS_MAX, row::Datum};
use rackscan_format::{
    codec,
    ids::{ColumnId, TableId},
    schema::{ColumnType, TableDefinition},
};
use rackscan_ramp::item::{Key, Oversize, Value};
use serde::{Deserialize, Serialize};
use std::{fmt, ops::Bound};

/// What the keys of all definitions begin with.
pub const DEFINITION_PREFIX: &[u8] = b"\0d";

/// The layout's version.
const VERSION: u8 = 1;

/// Which derivation is meant, in all of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DerivedId(pub u32);

impl fmt::Display for DerivedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Rows by a column's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Its id.
    pub id: DerivedId,
    /// Its name, for people.
    pub name: String,
    /// Whose rows.
    pub table: TableId,
    /// By which column.
    pub column: ColumnId,
}

/// Rows of two tables by a key that they share: an order and its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Its id.
    pub id: DerivedId,
    /// Its name, for people.
    pub name: String,
    /// The table in which the key is that of a row.
    pub parent: TableId,
    /// The key's column there.
    pub parent_key: ColumnId,
    /// The table in which the key says which row of the other is meant.
    pub child: TableId,
    /// The key's column there.
    pub child_key: ColumnId,
}

/// What amounts of rows add up to, by the value of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Its id.
    pub id: DerivedId,
    /// Its name, for people.
    pub name: String,
    /// Whose rows.
    pub table: TableId,
    /// By which column.
    pub group: ColumnId,
    /// A row's amount is the product of these; without any it is 1. Its digits behind the point are those of all columns together. A row
    /// in which one is missing counts nowhere.
    pub factors: Vec<Factor>,
    /// Which rows count; all if there is none.
    pub within: Option<Within>,
}

/// A factor of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Factor {
    /// A column's value.
    Column(ColumnId),
    /// One less a column's value: what is left after a discount.
    OneMinus(ColumnId),
    /// One and a column's value: what is paid with a tax.
    OnePlus(ColumnId),
}

impl Factor {
    /// The column.
    #[must_use]
    pub fn column(self) -> ColumnId {
        match self {
            Self::Column(column) | Self::OneMinus(column) | Self::OnePlus(column) => column,
        }
    }
}

/// A range of a column of which the values are stored as integers: days of a quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The column.
    pub column: ColumnId,
    /// The least value.
    pub from: i64,
    /// What all values are less than.
    pub until: i64,
}

/// What is written with rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Derived {
    /// A secondary index.
    Index(Index),
    /// A foreign key, in both directions.
    Pair(Pair),
    /// A materialised aggregate.
    Sum(Sum),
}

impl Derived {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> DerivedId {
        match self {
            Self::Index(index) => index.id,
            Self::Pair(pair) => pair.id,
            Self::Sum(sum) => sum.id,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Index(index) => &index.name,
            Self::Pair(pair) => &pair.name,
            Self::Sum(sum) => &sum.name,
        }
    }

    /// Whether rows of this table have entries in it.
    #[must_use]
    pub fn concerns(&self, table: TableId) -> bool {
        match self {
            Self::Index(index) => index.table == table,
            Self::Pair(pair) => pair.parent == table || pair.child == table,
            Self::Sum(sum) => sum.table == table,
        }
    }

    /// What its entries' keys begin with.
    #[must_use]
    pub fn prefix(&self) -> Vec<u8> {
        let role = match self {
            Self::Index(_) => Role::Indexed,
            Self::Pair(_) => Role::Parent,
            Self::Sum(_) => Role::Present,
        };
        role.prefix(self.id())
    }

    /// The bytes that keys of entries are not less than, and those that they are less than, of which the values are in a range: for whoever lists
    /// keys at homes.
    #[must_use]
    pub fn span(&self, from: Bound<&Datum>, to: Bound<&Datum>) -> (Vec<u8>, Vec<u8>) {
        span(&self.prefix(), from, to)
    }

    /// The item by which it is remembered.
    ///
    /// # Errors
    /// [`DerivedFault::Unwritable`] and [`DerivedFault::Oversize`].
    pub fn item(&self) -> Result<(Key, Value), DerivedFault> {
        let oversize = |why: Oversize| DerivedFault::Oversize {
            name: self.name().to_owned(),
            row: "its definition".to_owned(),
            why,
        };
        let mut bytes = vec![VERSION];
        bytes.extend(
            codec::encode(self)
                .map_err(|why| DerivedFault::Unwritable { name: self.name().to_owned(), why })?,
        );
        let key = Key::new(&[DEFINITION_PREFIX, &self.id().0.to_be_bytes()].concat()).map_err(oversize)?;
        Ok((key, Value::new(&bytes).map_err(oversize)?))
    }

    /// The definition under a key; `None` if it is deleted, or the key is for something else.
    ///
    /// # Errors
    /// [`DerivedFault::Layout`] and [`DerivedFault::Unreadable`].
    pub fn of(key: &Key, value: &Value) -> Result<Option<Self>, DerivedFault> {
        let (true, Some(bytes)) = (key.bytes().starts_with(DEFINITION_PREFIX), value.bytes()) else {
            return Ok(None);
        };
        match bytes.split_first() {
            Some((&VERSION, bytes)) => codec::decode("a derived definition", bytes)
                .map(Some)
                .map_err(|why| DerivedFault::Unreadable { key: key.clone(), why }),
            other => {
                let found = other.map(|(version, _)| *version);
                Err(DerivedFault::Layout { key: key.clone(), found, expected: VERSION })
            }
        }
    }

    /// Whether it fits a table that it concerns.
    ///
    /// # Errors
    /// [`DerivedFault::Definition`].
    pub fn check(&self, table: &TableDefinition) -> Result<(), DerivedFault> {
        match self {
            Self::Index(index) => self.column(table, "the indexed column", index.column).map(drop),
            Self::Pair(pair) => {
                if pair.parent == table.id {
                    self.column(table, "the parent's key", pair.parent_key)?;
                }
                if pair.child == table.id {
                    self.column(table, "the child's key", pair.child_key)?;
                }
                Ok(())
            }
            Self::Sum(sum) => self.check_sum(table, sum),
        }
    }

    fn check_sum(&self, table: &TableDefinition, sum: &Sum) -> Result<(), DerivedFault> {
        self.column(table, "the group's column", sum.group)?;
        if sum.factors.len() > FACTORS_MAX {
            let found = format!("{} factors", sum.factors.len());
            return Err(self.fault("the amount", found, format!("at most {FACTORS_MAX}")));
        }
        for factor in &sum.factors {
            let found = self.column(table, "a factor", factor.column())?;
            if !matches!(found, ColumnType::Int32 | ColumnType::Int64 | ColumnType::Decimal { .. }) {
                let expected = "an int, a bigint or a decimal: sums are exact".to_owned();
                return Err(self.fault("a factor", format!("a {found}"), expected));
            }
        }
        if let Some(within) = &sum.within {
            let found = self.column(table, "the range's column", within.column)?;
            if !found.is_integer() {
                let expected = "of a type that is stored as integers".to_owned();
                return Err(self.fault("the range's column", format!("a {found}"), expected));
            }
        }
        Ok(())
    }

    fn column(
        &self,
        table: &TableDefinition,
        what: &'static str,
        column: ColumnId,
    ) -> Result<ColumnType, DerivedFault> {
        let found = table.columns.get(column.index());
        found.map(|column| column.column_type).ok_or_else(|| {
            let expected = format!("below {}, as table {:?} has columns", table.columns.len(), table.name);
            self.fault(what, format!("column {column}"), expected)
        })
    }

    fn fault(&self, what: &'static str, found: String, expected: String) -> DerivedFault {
        DerivedFault::Definition { name: self.name().to_owned(), what, found, expected }
    }
}
