//! Maintains a replica: a reader's copy of the delta stores of all tables as of one point in time,
//! built from the feeds of all participants.
//!
//! ```text
//! once:   record the position of every feed, then scan every participant    -> scanned
//! then:   rounds: read every feed to its end                                -> record, and after each round: round_ended
//! ```
//!
//! A transaction that is committed at one participant is prepared at all of them. So the replica
//! counts it at all participants as soon as its rows have been read, and asks no participant for
//! outcomes. All scans of a statement see the same set of transactions.
//!
//! Invariants
//! - When [`Replica::round_ended`] returns true, the rows are read-atomic: if a row of a
//!   transaction is visible, then all its rows are visible, or newer versions of them.
//! - A transaction that was acknowledged before a round began is visible after it.
//! - An older version of a row never replaces a newer one.
//! - The same records build the same rows, in whatever order participants are read.
//! - All of this also holds for the entries that are derived from rows ([`crate::derived`]). Feeds
//!   must contain them: [`crate::identity::SYSTEM_PREFIX`].
//!
//! A scan has several pages, and a transaction may be prepared between two of them, so a scan may
//! show only a part of a transaction. In the feed, a transaction has one record with all items of
//! that participant. So one more round looks for transactions that only scans have shown.
//!
//! One round may not be enough: a feed that was read early in a round may lack the prepare record
//! of a transaction whose commit record, at another participant, was read late in the round.
//! Participants publish what they prepare before they acknowledge it, so the next round finds the
//! record.

pub use crate::table_rows::{RowVersion, TableRows};
use crate::{
    derived::{self, DerivedItems, DerivedView},
    identity::{NotARow, RowIdentity, table_of, table_prefix},
};
use rackscan_format::ids::TableId;
use rackscan_ramp::{
    closing::{self, Closing},
    feed::Follow,
    item::{Key, Value},
    log::Record,
    message::{Found, Part, ParticipantId},
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The note in the closing of a table that names the new version that replaces it
/// ([`Closing::noted`]).
#[must_use]
pub fn note_of_new_version(new_version: TableId) -> [u8; 4] {
    new_version.0.to_be_bytes()
}

/// A transaction that is prepared at some participant, and not known to be committed.
#[derive(Debug, Default)]
struct Open {
    /// All its participants; `None` if only a scan has shown it.
    participants: Option<Vec<ParticipantId>>,
    /// The participants whose records were read.
    heard: BTreeSet<ParticipantId>,
    items: Vec<(Key, Value)>,
}

/// The delta stores of all tables, and the transactions that are still open.
#[derive(Debug, Default)]
pub struct Replica {
    tables: BTreeMap<TableId, TableRows>,
    /// What is derived from the visible rows.
    derived: DerivedItems,
    /// Closed tables, which take no writes any more, except emptied ones.
    closed: BTreeSet<TableId>,
    /// Emptied tables, whose rows have moved elsewhere: later records about them do not count.
    emptied: BTreeSet<TableId>,
    /// For each new version, the table from which a flush makes it, as noted in the closing of that
    /// table. Notes are permanent.
    new_versions: BTreeMap<TableId, TableId>,
    open: HashMap<Timestamp, Open>,
    /// Committed transactions of which items may be missing, with the round in which the commit was
    /// read.
    committed: HashMap<Timestamp, u64>,
    round: u64,
}

impl Replica {
    /// An empty replica.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The delta store of a table; `None` if there is none.
    #[must_use]
    pub fn table(&self, table: TableId) -> Option<&TableRows> {
        self.tables.get(&table)
    }

    /// The tables that have a delta store.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.keys().copied()
    }

    /// The rows that have changed since this was last called.
    pub fn take_changed(&mut self, table: TableId) -> BTreeSet<RowIdentity> {
        self.tables.get_mut(&table).map(TableRows::take_changed).unwrap_or_default()
    }

    /// What is derived from the visible rows.
    #[must_use]
    pub fn derived(&self) -> DerivedView<'_> {
        DerivedView::new(&self.derived, &self.tables)
    }

    /// Forgets a dropped table, and what was derived from it.
    pub fn forget(&mut self, table: TableId) {
        self.tables.remove(&table);
        self.derived.forget(table);
    }

    /// Whether participants have anything, even if deleted, that is derived from rows of a table.
    /// Then a transaction that empties its rows must empty this, too ([`derived::prefixes`]).
    #[must_use]
    pub fn has_derived(&self, table: TableId) -> bool {
        self.derived.has(table)
    }

    /// Whether a table takes no writes any more, of its rows or of what is derived from them.
    #[must_use]
    pub fn is_closed(&self, table: TableId) -> bool {
        self.closed.contains(&table) || self.emptied.contains(&table)
    }

    /// Closed tables, of which participants may still have rows.
    pub fn closed_tables(&self) -> impl Iterator<Item = TableId> {
        self.closed.iter().copied()
    }

    /// Whether a published table was made from another one by flushes alone, as far as known.
    #[must_use]
    pub fn descends(&self, table: TableId, from: TableId) -> bool {
        let mut at = table;
        // Wrong notes might form a cycle, so the number of steps is bounded.
        for _ in 0..=self.new_versions.len() {
            match self.new_versions.get(&at) {
                _ if at == from => return true,
                Some(before) => at = *before,
                None => return false,
            }
        }
        false
    }

    /// Whether the rows of a table have moved into segments, or were dropped.
    #[must_use]
    pub fn is_emptied(&self, table: TableId) -> bool {
        self.emptied.contains(&table)
    }

    /// Whether an open transaction writes rows of a table, or what is derived from them.
    #[must_use]
    pub fn is_open(&self, table: TableId) -> bool {
        let (rows, entries) = (table_prefix(table), derived::prefixes(table));
        let mut items = self.open.values().flat_map(|open| &open.items);
        items.any(|(key, _)| {
            key.bytes().starts_with(&rows) || entries.iter().any(|prefix| key.bytes().starts_with(prefix))
        })
    }

    /// Takes rows of a participant, from a scan that began after its feed was marked.
    ///
    /// # Errors
    /// [`NotARow`]: a key that this release does not understand.
    pub fn scanned(&mut self, _: ParticipantId, items: Vec<(Key, Found)>) -> Result<(), NotARow> {
        for (key, Found { version, beside, .. }) in items {
            if version.timestamp > Timestamp::FIRST {
                self.committed.insert(version.timestamp, self.round);
                self.apply(version.timestamp, &key, version.value)?;
            }
            for prepared in beside {
                self.open.entry(prepared.timestamp).or_default().items.push((key.clone(), prepared.value));
            }
        }
        Ok(())
    }

    /// Takes the next record of a participant's feed.
    ///
    /// # Errors
    /// [`NotARow`].
    pub fn record(&mut self, participant: ParticipantId, record: Record) -> Result<(), NotARow> {
        match record {
            Record::Prepare(part) if self.committed.contains_key(&part.timestamp) => self.apply_part(part),
            Record::Prepare(Part { timestamp, participants, items, .. }) => {
                let open = self.open.entry(timestamp).or_default();
                open.participants = Some(participants);
                open.heard.insert(participant);
                // A scan may have shown some of these items already.
                open.items.extend(items);
                Ok(())
            }
            Record::Put(part) => {
                // A scan may have shown it before it was committed.
                self.open.remove(&part.timestamp);
                self.apply_part(part)
            }
            Record::Commit(timestamp) => self.commit(timestamp),
            Record::Refuse(timestamp) => {
                self.open.remove(&timestamp);
                Ok(())
            }
            Record::Settle(_) | Record::Floor(_) | Record::End(_) => Ok(()),
        }
    }

    /// All feeds were read to their ends, each to an end that was read after the previous round had
    /// ended. Returns whether the rows are read-atomic now. If not, another round makes them so, as
    /// far as the transactions of this round are concerned.
    ///
    /// # Errors
    /// [`NotARow`].
    pub fn round_ended(&mut self) -> Result<bool, NotARow> {
        // Transactions that scans have shown as committed may be open at other participants.
        let decided: Vec<Timestamp> =
            self.open.keys().copied().filter(|timestamp| self.committed.contains_key(timestamp)).collect();
        for timestamp in decided {
            self.commit(timestamp)?;
        }
        // All items of these were read by now: the round began after they were known to be
        // committed.
        let ended = self.round;
        self.committed.retain(|_, learnt| *learnt >= ended);
        // Round 0 is the scan, as distinguished from the first round over the feeds.
        self.round += 1;
        Ok(self.committed.is_empty())
    }

    fn commit(&mut self, timestamp: Timestamp) -> Result<(), NotARow> {
        // It is not open: the commit of another participant came first, or a scan has shown it as
        // committed.
        let Some(Open { participants, heard, items }) = self.open.remove(&timestamp) else { return Ok(()) };
        let is_whole = participants
            .is_some_and(|participants| participants.iter().all(|participant| heard.contains(participant)));
        if !is_whole {
            self.committed.entry(timestamp).or_insert(self.round);
        }
        items.into_iter().try_for_each(|(key, value)| self.apply(timestamp, &key, value))
    }

    fn apply_part(&mut self, part: Part) -> Result<(), NotARow> {
        part.items.into_iter().try_for_each(|(key, value)| self.apply(part.timestamp, &key, value))
    }

    fn closed(&mut self, prefix: &[u8], value: &Value) {
        let rows_of = table_of(prefix);
        let Some(table) = rows_of.or_else(|| derived::table_of(prefix)) else { return };
        // If entries are closed, their rows are closed, too: both are written together.
        if !self.emptied.contains(&table) {
            self.closed.insert(table);
        }
        if let Ok(new_version) = closing::note_of(value).try_into() {
            self.new_versions.insert(TableId(u32::from_be_bytes(new_version)), table);
        }
        match (Closing::of(value), rows_of) {
            (Closing::Closed, _) => {}
            (Closing::Emptied, Some(_)) => {
                self.emptied.insert(table);
                self.closed.remove(&table);
                self.tables.remove(&table);
            }
            (Closing::Emptied, None) => self.derived.empty(prefix),
        }
    }

    fn apply(&mut self, timestamp: Timestamp, key: &Key, value: Value) -> Result<(), NotARow> {
        // A transaction may also write closings and entries.
        let Some((table, row)) = RowIdentity::of(key)? else {
            if let Some(prefix) = closing::prefix_of(key) {
                self.closed(prefix, &value);
            } else {
                self.derived.apply(timestamp, key, value);
            }
            return Ok(());
        };
        if self.emptied.contains(&table) {
            return Ok(());
        }
        self.tables.entry(table).or_default().insert(row, RowVersion { timestamp, value });
        Ok(())
    }
}

impl Follow for Replica {
    type Fault = NotARow;

    fn begin_anew(&mut self) {
        // Notes of closings are permanent, and may not be read again.
        *self = Self { new_versions: std::mem::take(&mut self.new_versions), ..Self::new() };
    }

    fn scanned(&mut self, participant: ParticipantId, items: Vec<(Key, Found)>) -> Result<(), NotARow> {
        Replica::scanned(self, participant, items)
    }

    fn record(&mut self, participant: ParticipantId, record: Record) -> Result<(), NotARow> {
        Replica::record(self, participant, record)
    }

    fn round_ended(&mut self) -> Result<bool, NotARow> {
        Replica::round_ended(self)
    }
}

#[cfg(test)]
mod tests;
