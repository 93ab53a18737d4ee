//! Finds the rows that a transaction has read again after a flush has moved them to a new table
//! version.
//!
//! ```text
//! a row in a segment that the new version still contains, unchanged  -> is found in that segment
//! any other row                                                      -> is found in a segment that was written since, by its values
//! ```
//!
//! A row that was not changed since still has the values that the transaction read. Rows with equal
//! values are interchangeable for a statement: each of them may be used, but only once.
//!
//! Invariants
//! - A row that another transaction has changed or deleted since is not found, and the transaction
//!   fails with a conflict.
//! - The write to a moved row has the condition that the row has not changed since it was moved.

use super::{PENDING, Read, Transaction, Written};
use crate::{changes::has_sums, error::EngineError, snapshot::TableSnapshot, table::Table};
use rackscan_delta::{identity::RowIdentity, replica::TableRows};
use rackscan_format::ids::{SegmentId, TableId};
use rackscan_ramp::timestamp::Timestamp;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// The segments of `now` that `before` did not have. They are compared with their table ids, as
/// segment numbers alone may repeat.
pub(crate) fn new_segments(before: &TableSnapshot, now: &TableSnapshot) -> BTreeSet<SegmentId> {
    let old: BTreeSet<(TableId, SegmentId)> =
        before.stored().map(|(_, directory)| (directory.table, directory.segment)).collect();
    let segments = now.stored().map(|(_, directory)| (directory.table, directory.segment));
    segments.filter(|segment| !old.contains(segment)).map(|(_, segment)| segment).collect()
}

impl Transaction {
    /// The table `id` as the transaction sees it: as it was at the beginning, or the newer version
    /// to which its writes were moved.
    pub(crate) fn seen(&self, id: TableId) -> Option<&Table> {
        if let Some(table) = self.followed.get(&id) {
            return Some(table);
        }
        let known = self.moment.stored(self.moment.name(id)?)?;
        known.whole().ok().map(|table| &**table)
    }

    /// Moves the writes from the table `id` to `now`, which came from it by flushes. `rows` are the
    /// unchanged rows of its new segments.
    ///
    /// # Errors
    /// [`EngineError::Conflict`].
    pub(crate) fn follow(&mut self, id: TableId, now: &Table, rows: &TableRows) -> Result<(), EngineError> {
        let Some(written) = self.written.get(&id) else { return Ok(()) };
        let conflict = || EngineError::Conflict { table: now.definition().name.clone() };
        // What other transactions inserted before the flush can no longer be told.
        if written.guard.is_some() {
            return Err(conflict());
        }
        let before = self.seen(id).map(|table| &*table.snapshot).ok_or_else(conflict)?;
        let mut places: HashMap<&[u8], VecDeque<RowIdentity>> = HashMap::new();
        for (row, version) in rows.rows() {
            if let Some(bytes) = version.value.bytes() {
                places.entry(bytes).or_default().push_back(row);
            }
        }
        let mut moved = Written::of(now.definition());
        (moved.inserted, moved.is_conditional) = (written.inserted, written.is_conditional);
        for (row, value) in &written.rows {
            if matches!(row, RowIdentity::Inserted { by: PENDING, .. }) {
                moved.rows.insert(*row, value.clone());
                continue;
            }
            let read = written.read.get(row).ok_or_else(conflict)?;
            let stays = stays(*row, read, (before, &now.snapshot), written.is_conditional);
            let to = if stays {
                *row
            } else {
                let found = read.values.as_deref().and_then(|values| places.get_mut(values)?.pop_front());
                found.ok_or_else(conflict)?
            };
            if has_sums(now.definition()) {
                moved.stored.insert(to, read.values.clone().ok_or_else(conflict)?);
            }
            moved.rows.insert(to, value.clone());
            moved.read.insert(to, Read { timestamp: Timestamp::FIRST, values: read.values.clone() });
        }
        self.written.remove(&id);
        self.followed.insert(now.definition().id, now.clone());
        self.written.insert(now.definition().id, moved);
        Ok(())
    }
}

/// Whether a row is still at its place: in a segment, and unchanged. Without conditions a changed
/// row counts, too.
fn stays(
    row: RowIdentity,
    read: &Read,
    (before, now): (&TableSnapshot, &TableSnapshot),
    is_conditional: bool,
) -> bool {
    let RowIdentity::Stored { segment, row } = row else { return false };
    let written_under = |snapshot: &TableSnapshot| {
        snapshot
            .stored()
            .find(|(_, directory)| directory.segment == segment)
            .map(|(_, directory)| directory.table)
    };
    let gone = if is_conditional { &now.withheld } else { &*now.flushed };
    read.timestamp == Timestamp::FIRST
        && written_under(now).is_some_and(|table| written_under(before) == Some(table))
        && gone.get(&segment).is_none_or(|rows| !rows.contains(row))
}
