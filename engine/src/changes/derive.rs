//! Adds derived entries to the changed rows of a transaction.
//!
//! Derived entries are the rows that a table's indexes, foreign keys and materialised views need
//! ([`rackscan_delta::derived`]). One transaction writes the changed rows and all their entries.
//!
//! The entries to delete are computed from the old values of a row. These are the newest values
//! that this engine has received, even if they are newer than those that the statement saw, because
//! their entries are the existing ones. If no change of a stored row is known, they are the values
//! that the statement read from its segment, which never changes.
//!
//! Invariant: if an entry cannot be computed, the statement fails and its rows are not written.

use crate::error::EngineError;
use rackscan_delta::{
    derived::{Before, Derived, DerivedFault, RowChange},
    identity::RowIdentity,
    replica::{Replica, TableRows},
    row::{Datum, decode},
};
use rackscan_format::{derived::DerivedKind, schema::TableDefinition};
use rackscan_ramp::item::{Key, Value};
use std::collections::BTreeMap;

/// Whether changing a stored row needs its values in the segment.
pub(crate) fn has_sums(table: &TableDefinition) -> bool {
    table.derived.iter().any(|derived| matches!(derived.kind, DerivedKind::Sum(_)))
}

/// A row before the change: stored in a segment, or a changed row (`None` if there is none).
enum Was {
    Stored(Vec<Datum>),
    Beside(Option<Vec<Datum>>),
}

/// A row before and after the change.
struct Changed {
    row: RowIdentity,
    was: Was,
    becomes: Option<Vec<Datum>>,
}

/// Adds the derived entries of these rows to the items of their transaction. `stored` holds the
/// values of rows that were found in segments.
///
/// # Errors
/// A value that is too long for a key, or a sum that is too large.
pub(super) fn add_derived(
    table: &TableDefinition,
    rows: &[(RowIdentity, Value)],
    stored: &BTreeMap<RowIdentity, Vec<u8>>,
    replica: &Replica,
    items: &mut Vec<(Key, Value)>,
) -> Result<(), EngineError> {
    let heard = replica.table(table.id);
    let changed = rows.iter().map(|(row, value)| {
        let becomes = value.bytes().map(|bytes| values(table, bytes)).transpose()?;
        Ok(Changed { row: *row, was: was(table, *row, stored, heard)?, becomes })
    });
    let changed = changed.collect::<Result<Vec<_>, EngineError>>()?;
    let changes: Vec<RowChange<'_>> = changed.iter().map(Changed::as_change).collect();
    let changed_again = || {
        let is_again = |change: &&RowChange<'_>| {
            matches!((change.row, change.before), (RowIdentity::Stored { .. }, Before::Beside(_)))
        };
        changes.iter().filter(is_again).map(|change| change.row)
    };
    for derived in Derived::all_of(table) {
        let is_sum = matches!(derived.kind(), DerivedKind::Sum(_));
        let taken = is_sum.then(|| replica.derived().taken_away(&derived, changed_again())).transpose();
        items.extend(derived.maintain(table, &changes, taken.map_err(fault)?.as_ref()).map_err(fault)?);
    }
    Ok(())
}

impl Changed {
    fn as_change(&self) -> RowChange<'_> {
        let before = match &self.was {
            Was::Stored(values) => Before::Stored(values),
            Was::Beside(values) => Before::Beside(values.as_deref()),
        };
        RowChange { row: self.row, before, after: self.becomes.as_deref() }
    }
}

fn was(
    table: &TableDefinition,
    row: RowIdentity,
    stored: &BTreeMap<RowIdentity, Vec<u8>>,
    heard: Option<&TableRows>,
) -> Result<Was, EngineError> {
    if let Some(version) = heard.and_then(|rows| rows.row(row)) {
        return Ok(Was::Beside(version.value.bytes().map(|bytes| values(table, bytes)).transpose()?));
    }
    match (row, stored.get(&row)) {
        (RowIdentity::Stored { .. }, Some(bytes)) => Ok(Was::Stored(values(table, bytes)?)),
        // The row was found as a changed row, and participants no longer have it: it was flushed.
        (RowIdentity::Stored { .. }, None) if has_sums(table) => Err(EngineError::Flushed),
        _ => Ok(Was::Beside(None)),
    }
}

fn values(table: &TableDefinition, bytes: &[u8]) -> Result<Vec<Datum>, EngineError> {
    decode(table, bytes).map_err(|fault| EngineError::Execution(fault.to_string()))
}

fn fault(fault: DerivedFault) -> EngineError {
    EngineError::Execution(fault.to_string())
}
