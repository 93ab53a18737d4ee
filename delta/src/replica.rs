//! What do all homes together say about the rows beside segments, at one moment?
//!
//! ```text
//! once:   mark every feed, then scan every home           -> scanned
//! then:   rounds: read every feed to its end              -> record, and after each home's feed: round_ended
//! ```
//!
//! A transaction that is committed at any home is prepared at all of them, so it counts at all of
//! them, as soon as its rows have been read: that is the set of transactions which all scans of a
//! statement see, and no home is asked whether it knows yet.
//!
//! Invariants
//! - When [`Replica::round_ended`] says so, what is there is read-atomic: of a transaction that is
//!   visible in one row every row is, or something newer.
//! - What was acknowledged before a round began is visible after it.
//! - Rows only move forward: an older version never replaces a newer one.
//! - The same records in any order of homes make the same rows.
//! - What is derived from rows ([`crate::derived`]) is in all of this like rows. Feeds must tell of
//!   it: [`crate::identity::SYSTEM_PREFIX`].
//!
//! A scan has several pages, and a transaction may be prepared between two of them. So who has
//! heard a scan has not heard all of a transaction: only its record in the feed says that, which
//! comes once and has every item of that home. Transactions that only scans have told of are looked
//! for in one more round.
//!
//! Why a round may not be enough: a feed that was read early in it may lack what was prepared, on
//! another home, for a commit that was read late in it. Homes publish what they prepare before they
//! say so, so the next round has it.

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
    message::{Found, HomeId, Part},
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the closing of a table says of the new version that is about to take its place
/// ([`Closing::noted`]).
#[must_use]
pub fn note_of_new_version(new_version: TableId) -> [u8; 4] {
    new_version.0.to_be_bytes()
}

/// The newest visible version of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowVersion {
    /// Which transaction wrote it.
    pub timestamp: Timestamp,
    /// Its bytes ([`crate::row`]), or that it is deleted.
    pub value: Value,
}

/// The rows of one table beside its segments.
#[derive(Clone, Debug, Default)]
pub struct TableRows {
    rows: BTreeMap<RowIdentity, RowVersion>,
    /// Which have changed since somebody took this.
    changed: BTreeSet<RowIdentity>,
}

impl TableRows {
    /// All of them: stored ones that were updated or deleted, and inserted ones, deleted or not.
    pub fn rows(&self) -> impl Iterator<Item = (RowIdentity, &RowVersion)> {
        self.rows.iter().map(|(row, version)| (*row, version))
    }

    /// Those that are not the same in `earlier`, ascending.
    pub fn since<'t>(&'t self, earlier: &'t Self) -> impl Iterator<Item = RowIdentity> + 't {
        let is_new = |(row, version): &(&RowIdentity, &RowVersion)| {
            earlier.rows.get(row).is_none_or(|known| known.timestamp != version.timestamp)
        };
        self.rows.iter().filter(is_new).map(|(row, _)| *row)
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A newer version of a row.
    pub fn insert(&mut self, row: RowIdentity, version: RowVersion) {
        if self.rows.get(&row).is_none_or(|known| known.timestamp < version.timestamp) {
            self.rows.insert(row, version);
            self.changed.insert(row);
        }
    }

    /// A row.
    #[must_use]
    pub fn row(&self, row: RowIdentity) -> Option<&RowVersion> {
        self.rows.get(&row)
    }
}

/// A transaction that is prepared somewhere, and not known to be committed.
#[derive(Debug, Default)]
struct Open {
    /// All its homes; `None` if only a scan has told of it.
    homes: Option<Vec<HomeId>>,
    /// The homes whose records were read.
    heard: BTreeSet<HomeId>,
    items: Vec<(Key, Value)>,
}

/// What is known of all homes.
#[derive(Debug, Default)]
pub struct Replica {
    tables: BTreeMap<TableId, TableRows>,
    /// What is derived from rows, as visible as they are.
    derived: DerivedItems,
    /// Tables that take no writes any more, but for emptied ones.
    closed: BTreeSet<TableId>,
    /// Those whose rows have moved away: whatever is told of them counts no more.
    emptied: BTreeSet<TableId>,
    /// What whoever flushed a table said when he closed it: the new version that he was making, and
    /// the table. Nothing takes that back.
    new_versions: BTreeMap<TableId, TableId>,
    open: HashMap<Timestamp, Open>,
    /// Committed ones of which not all items may have been read, and in which round that was
    /// learnt.
    committed: HashMap<Timestamp, u64>,
    round: u64,
}

impl Replica {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A table's rows beside its segments; `None` if there are none.
    #[must_use]
    pub fn table(&self, table: TableId) -> Option<&TableRows> {
        self.tables.get(&table)
    }

    /// Tables that have such rows.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        self.tables.keys().copied()
    }

    /// The rows that have changed since this was last called.
    pub fn take_changed(&mut self, table: TableId) -> BTreeSet<RowIdentity> {
        self.tables.get_mut(&table).map(|rows| std::mem::take(&mut rows.changed)).unwrap_or_default()
    }

    /// What is derived from these rows.
    #[must_use]
    pub fn derived(&self) -> DerivedView<'_> {
        DerivedView::new(&self.derived, &self.tables)
    }

    /// Forgets a table, because it is gone, and what was derived from it.
    pub fn forget(&mut self, table: TableId) {
        self.tables.remove(&table);
        self.derived.forget(table);
    }

    /// Whether homes have anything that is derived from rows of a table, be it deleted. Whoever
    /// empties its rows then empties this, too, in the same transaction ([`derived::prefixes`]).
    #[must_use]
    pub fn has_derived(&self, table: TableId) -> bool {
        self.derived.has(table)
    }

    /// Whether a table takes no writes any more, of its rows or of what is derived from them.
    #[must_use]
    pub fn is_closed(&self, table: TableId) -> bool {
        self.closed.contains(&table) || self.emptied.contains(&table)
    }

    /// Tables that take no writes any more and of which participants may still have rows.
    pub fn closed_tables(&self) -> impl Iterator<Item = TableId> {
        self.closed.iter().copied()
    }

    /// Whether a published table has come of another one by flushes alone, as far as was heard.
    #[must_use]
    pub fn descends(&self, table: TableId, from: TableId) -> bool {
        let mut at = table;
        // Whoever says what is not so may say it in a circle.
        for _ in 0..=self.new_versions.len() {
            match self.new_versions.get(&at) {
                _ if at == from => return true,
                Some(before) => at = *before,
                None => return false,
            }
        }
        false
    }

    /// Whether the rows of a table have moved away, into segments or nowhere.
    #[must_use]
    pub fn is_emptied(&self, table: TableId) -> bool {
        self.emptied.contains(&table)
    }

    /// Whether a transaction that is not known to have ended writes rows of a table, or what is
    /// derived from them.
    #[must_use]
    pub fn is_open(&self, table: TableId) -> bool {
        let (rows, entries) = (table_prefix(table), derived::prefixes(table));
        let mut items = self.open.values().flat_map(|open| &open.items);
        items.any(|(key, _)| {
            key.bytes().starts_with(&rows) || entries.iter().any(|prefix| key.bytes().starts_with(prefix))
        })
    }

    /// What a home has of rows, found by a scan that began after its feed was marked.
    ///
    /// # Errors
    /// [`NotARow`]: a key that this release does not understand.
    pub fn scanned(&mut self, _: HomeId, items: Vec<(Key, Found)>) -> Result<(), NotARow> {
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

    /// The next record of a home's feed.
    ///
    /// # Errors
    /// [`NotARow`].
    pub fn record(&mut self, home: HomeId, record: Record) -> Result<(), NotARow> {
        match record {
            Record::Prepare(part) if self.committed.contains_key(&part.timestamp) => self.apply_part(part),
            Record::Prepare(Part { timestamp, homes, items, .. }) => {
                let open = self.open.entry(timestamp).or_default();
                open.homes = Some(homes);
                open.heard.insert(home);
                // Some of them a scan may have told of already.
                open.items.extend(items);
                Ok(())
            }
            Record::Put(part) => {
                // A scan may have told of it before it was committed.
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

    /// All feeds were read to their ends, each to an end that was looked at after the round before
    /// had ended. Whether what is there now is read-atomic; if not, another round makes it so, as
    /// far as this round's transactions are concerned.
    ///
    /// # Errors
    /// [`NotARow`].
    pub fn round_ended(&mut self) -> Result<bool, NotARow> {
        // What scans have told of as committed may be open elsewhere.
        let decided: Vec<Timestamp> =
            self.open.keys().copied().filter(|timestamp| self.committed.contains_key(timestamp)).collect();
        for timestamp in decided {
            self.commit(timestamp)?;
        }
        // Items of these were looked for in a round that began after they were known to be
        // committed.
        let ended = self.round;
        self.committed.retain(|_, learnt| *learnt >= ended);
        // Round 0 is the scan's: it is told apart from the first reading of feeds.
        self.round += 1;
        Ok(self.committed.is_empty())
    }

    fn commit(&mut self, timestamp: Timestamp) -> Result<(), NotARow> {
        // Nothing open: another home's commit came first, or a scan has told of it.
        let Some(Open { homes, heard, items }) = self.open.remove(&timestamp) else { return Ok(()) };
        let is_whole = homes.is_some_and(|homes| homes.iter().all(|home| heard.contains(home)));
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
        // Who cannot write an entry cannot write its row either.
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
        // A transaction may write more than rows.
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
        // What was closed for whom stays true, and may not be told again.
        *self = Self { new_versions: std::mem::take(&mut self.new_versions), ..Self::new() };
    }

    fn scanned(&mut self, home: HomeId, items: Vec<(Key, Found)>) -> Result<(), NotARow> {
        Replica::scanned(self, home, items)
    }

    fn record(&mut self, home: HomeId, record: Record) -> Result<(), NotARow> {
        Replica::record(self, home, record)
    }

    fn round_ended(&mut self) -> Result<bool, NotARow> {
        Replica::round_ended(self)
    }
}

#[cfg(test)]
mod tests;
