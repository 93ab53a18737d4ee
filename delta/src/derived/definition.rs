//! Which derivation of which table is meant?
//!
//! What a table derives is said by its definition ([`rackscan_format::derived`]); here it has an
//! id, under which its entries lie.
//!
//! Invariants
//! - An id is that of a table and a place in its definition, which never changes: a table that
//!   derives something else has another id, and none is ever used again. So entries of a table lie
//!   apart from those of the tables before and after it, and go with its rows.
//! - What is made of a definition that was verified can be maintained for every row that fits it,
//!   but for values that are too large.

use super::{DerivedFault, Role, entry::span};
use crate::row::Datum;
use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind, SumDefinition},
    ids::TableId,
    schema::TableDefinition,
};
use std::{fmt, ops::Bound};

/// Which derivation is meant, in all of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DerivedId {
    /// From whose rows.
    pub table: TableId,
    /// Its place in that table's definition.
    pub number: u16,
}

impl fmt::Display for DerivedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.number)
    }
}

/// What is written with rows of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    pub(super) id: DerivedId,
    pub(super) definition: DerivedDefinition,
}

impl Derived {
    /// All that is derived from a table's rows: what whoever changes them writes with them.
    #[must_use]
    pub fn all_of(table: &TableDefinition) -> Vec<Self> {
        // A definition that was verified has fewer than 16 bits count.
        let numbered = (0_u16..).zip(&table.derived);
        let derived = |(number, definition): (u16, &DerivedDefinition)| Self {
            id: DerivedId { table: table.id, number },
            definition: definition.clone(),
        };
        numbered.map(derived).collect()
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> DerivedId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> &DerivedKind {
        &self.definition.kind
    }

    /// Whether it is derived from rows of this table.
    #[must_use]
    pub fn concerns(&self, table: TableId) -> bool {
        self.id.table == table
    }

    /// What its entries' keys begin with.
    #[must_use]
    pub fn prefix(&self) -> Vec<u8> {
        let role = match self.kind() {
            DerivedKind::Index { .. } => Role::Indexed,
            DerivedKind::Parent { .. } => Role::Parent,
            DerivedKind::Child { .. } => Role::Child,
            DerivedKind::Sum(_) => Role::Present,
        };
        role.prefix(self.id)
    }

    /// The bytes that keys of entries are not less than, and those that they are less than, of
    /// which the values are in a range: for whoever lists keys at homes.
    #[must_use]
    pub fn span(&self, from: Bound<&Datum>, to: Bound<&Datum>) -> (Vec<u8>, Vec<u8>) {
        span(&self.prefix(), from, to)
    }

    /// The sum that it is.
    pub(super) fn sum(&self) -> Result<&SumDefinition, DerivedFault> {
        match self.kind() {
            DerivedKind::Sum(sum) => Ok(sum),
            _ => Err(self.is_not("a sum".to_owned())),
        }
    }

    /// It was asked what only another derivation can answer.
    pub(super) fn is_not(&self, expected: String) -> DerivedFault {
        DerivedFault::Kind { name: self.name().to_owned(), found: self.kind().to_string(), expected }
    }
}
