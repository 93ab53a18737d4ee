//! What is written with the rows of a transaction?
//!
//! Rows are written with all that their table's definition derives from them
//! ([`rackscan_delta::derived`]), in the same transaction.
//!
//! What a row was is what this engine has heard of it last, be it later than what the statement has
//! seen: entries that are deleted are those that are there. Of a stored row of which no change was
//! heard it is what the statement has found in its segment, which never changes.
//!
//! Invariant: what cannot be derived is an error, and then the rows are not written either.

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

/// Whether changes of stored rows need what their segments have.
pub(crate) fn has_sums(table: &TableDefinition) -> bool {
    table.derived.iter().any(|derived| matches!(derived.kind, DerivedKind::Sum(_)))
}

/// What a row was.
enum Was {
    Stored(Vec<Datum>),
    Beside(Option<Vec<Datum>>),
}

/// A changed row, and what it was and becomes.
struct Changed {
    row: RowIdentity,
    was: Was,
    becomes: Option<Vec<Datum>>,
}

/// Adds what goes with these rows to the items of their transaction. `stored`: what segments have
/// of those that were found there.
///
/// # Errors
/// A value that nothing can be found by, a sum that is too large.
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
        // It was seen changed, and homes have no change of it any more.
        (RowIdentity::Stored { .. }, None) if has_sums(table) => Err(EngineError::Sealed),
        _ => Ok(Was::Beside(None)),
    }
}

fn values(table: &TableDefinition, bytes: &[u8]) -> Result<Vec<Datum>, EngineError> {
    decode(table, bytes).map_err(|fault| EngineError::Execution(fault.to_string()))
}

fn fault(fault: DerivedFault) -> EngineError {
    EngineError::Execution(fault.to_string())
}
