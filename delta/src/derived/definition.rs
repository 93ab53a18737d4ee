//! Defines a derivation: one index, side of a foreign key, or sum of a table, with the id that
//! begins the keys of its entries.
//!
//! Invariants
//! - An id consists of a table id and the position of the derivation in the table's definition,
//!   which never changes. A table with another definition has another id, and ids are never reused.
//!   So the entries of a table version are separate from those of earlier and later versions, and
//!   are dropped with its rows.
//! - The entries of a verified definition can be computed for every row that fits its table, unless
//!   values are too large.

use super::{
    DerivedFault,
    entry::{DerivedId, Role, span},
};
use crate::row::Datum;
use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind, SumDefinition},
    ids::TableId,
    schema::TableDefinition,
};
use std::ops::Bound;

/// One derivation of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    pub(super) id: DerivedId,
    pub(super) definition: DerivedDefinition,
}

impl Derived {
    /// All derivations of a table. A transaction that changes its rows maintains all of them.
    #[must_use]
    pub fn all_of(table: &TableDefinition) -> Vec<Self> {
        // A verified definition has fewer derivations than 16 bits count.
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

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &DerivedKind {
        &self.definition.kind
    }

    /// Whether it is derived from rows of this table.
    #[must_use]
    pub fn concerns(&self, table: TableId) -> bool {
        self.id.table == table
    }

    /// The prefix of its entries' keys.
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

    /// The range of keys (from, inclusive, and until, exclusive) of the entries whose values are in
    /// a range. It is used to list keys at participants.
    #[must_use]
    pub fn span(&self, from: Bound<&Datum>, to: Bound<&Datum>) -> (Vec<u8>, Vec<u8>) {
        span(&self.prefix(), from, to)
    }

    /// Its definition if it is a sum.
    pub(super) fn sum(&self) -> Result<&SumDefinition, DerivedFault> {
        match self.kind() {
            DerivedKind::Sum(sum) => Ok(sum),
            _ => Err(self.is_not("a sum".to_owned())),
        }
    }

    /// The error for a question that only another kind of derivation can answer.
    pub(super) fn is_not(&self, expected: String) -> DerivedFault {
        DerivedFault::Kind { name: self.name().to_owned(), found: self.kind().to_string(), expected }
    }
}
