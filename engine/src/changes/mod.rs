//! Reads the rows that have changed since tables were loaded, and writes changes as transactions.
//!
//! ```text
//! before a statement:    changes from all participants -> a replica in memory -> layers over tables (catalog)
//! INSERT, UPDATE, DELETE -> the rows to change, and their new values    [statement]
//!                        -> writes of one transaction                   [transaction]
//! COMMIT                 -> items under the keys of the rows -> participants
//! ```
//!
//! Invariants
//! - A statement sees every write that was acknowledged before it began, and of each transaction
//!   all writes or none.
//! - A catalog is used only with changed rows that were read after it, and changed rows are used
//!   only with a catalog that contains their tables ([`catalogs`]).
//! - A transaction is visible as a whole or not at all. Until it commits, it sees its own writes
//!   and no other write that happened after it began.
//! - Two transactions that update a row at the same time do not wait for each other. The first one
//!   commits. The second one fails with a conflict, unless it is [`Isolation::ReadAtomic`]: then
//!   the write with the later timestamp stays.

mod catalogs;
mod derive;
mod statement;
mod transaction;
mod values;
mod writer;

use crate::{
    catalog::{Moment, Tables},
    deriving::Sums,
    error::EngineError,
    limits::{CHANGES_MEMORY_BYTES, CHANGES_TIMEOUT, ENDINGS_POLL_TIME, FOLLOWER_MEMORY_BYTES, RENEWALS_MAX},
};
use rackscan_client::{
    Cluster, FollowError, Follower, FollowerOptions, LinesOptions, Retry, Session, SessionOptions,
    TransactionError, Written,
};
use rackscan_delta::{
    derived,
    identity::{RowIdentity, table_prefix},
    replica::{Replica, TableRows, note_of_new_version},
};
use rackscan_format::{ids::TableId, schema::TableDefinition};
use rackscan_ramp::{
    algorithm::{Abortion, Algorithm},
    closing::Closing,
    item::{Key, SYSTEM_PREFIX, Value, Write},
    message::{ParticipantId, Refusal},
    timestamp::Timestamp,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use catalogs::{CatalogRead, Catalogs};
pub(crate) use derive::has_sums;
pub(crate) use statement::{ChangeStatement, Verb, old_columns, quoted};
pub use transaction::Isolation;
pub(crate) use transaction::{Care, Row, Transaction, new_segments};
pub(crate) use values::{encoded, rows_of};
pub use writer::{FoundRow, RowChange, RowWriter};

/// The engine's connections to the participants of all nodes, by which changed rows are read and
/// written.
#[derive(Debug)]
pub(crate) struct Changes {
    cluster: Cluster,
    lines: LinesOptions,
    followed: Mutex<Followed>,
    writer: Mutex<Option<Session>>,
}

#[derive(Debug, Default)]
struct Followed {
    follower: Option<Follower>,
    replica: Replica,
    /// The nodes of this cluster keep no changed rows.
    is_unchangeable: bool,
    /// All layers that tables were given are out of date, because participants were scanned from
    /// the beginning.
    is_anew: bool,
    agreement: Agreement,
    catalogs: Catalogs,
}

/// Whether the replica and the tables are of the same point in time.
#[derive(Debug, Default)]
enum Agreement {
    #[default]
    Whole,
    /// The replica is newer: the catalog has to be read first.
    Untold,
    /// The replica is incomplete: not all participants could be read.
    Unheard(String),
}

/// Tables, and what changed rows add to their sums, at one point in time.
pub(crate) type OneMoment = (Arc<Moment>, Arc<Sums>);

/// The result of telling tables about changed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Tables know all that participants report.
    Whole,
    /// The catalog does not fit what participants report, and tables are unchanged. Or the catalog
    /// may not be the newest.
    Stale,
}

impl Changes {
    /// For the nodes of this cluster. Connections are opened when they are needed.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let lines = cluster.lines(CHANGES_MEMORY_BYTES, CHANGES_TIMEOUT);
        Self { cluster: cluster.clone(), lines, followed: Mutex::default(), writer: Mutex::default() }
    }

    /// Brings `tables` up to date with all writes that were acknowledged before this call.
    ///
    /// # Errors
    /// A node is unavailable, and no replica of its log is proved to be complete.
    pub(crate) async fn catch_up(self: &Arc<Self>, tables: &Arc<Tables>) -> Result<(), EngineError> {
        match self.follow(tables, None).await? {
            Heard::Whole => Ok(()),
            Heard::Stale => self.renew(tables).await,
        }
    }

    /// As [`Self::catch_up`], and also with all tables that were loaded, dropped or flushed before.
    pub(crate) async fn renew(self: &Arc<Self>, tables: &Arc<Tables>) -> Result<(), EngineError> {
        if lock(&self.followed).follower.is_none() {
            // Participants are read before the catalog, so that it need not be read twice.
            self.follow(tables, None).await?;
        }
        let mut retry = Retry::new(RENEWALS_MAX);
        loop {
            let reading = lock(&self.followed).catalogs.begin_reading();
            let catalog = self.cluster.catalog().await.map_err(EngineError::Catalog)?;
            if self.follow(tables, Some(reading.ended(catalog))).await? == Heard::Whole {
                return Ok(());
            }
            if !retry.again() {
                let why = format!(
                    "tables were loaded, dropped or flushed during each of {} attempts; run the statement again",
                    retry.attempts()
                );
                return Err(EngineError::Changes(why));
            }
        }
    }

    async fn follow(
        self: &Arc<Self>,
        tables: &Arc<Tables>,
        read: Option<CatalogRead>,
    ) -> Result<Heard, EngineError> {
        let (changes, tables) = (Arc::clone(self), Arc::clone(tables));
        apart(move || changes.follow_here(&tables, read)).await
    }

    fn follow_here(&self, tables: &Tables, read: Option<CatalogRead>) -> Result<Heard, EngineError> {
        let followed = &mut *lock(&self.followed);
        if followed.is_unchangeable {
            return Ok(followed.take_unchangeable(tables, read));
        }
        let follower = match &mut followed.follower {
            Some(follower) => follower,
            None => {
                let lines = LinesOptions { memory_bytes: FOLLOWER_MEMORY_BYTES, ..self.lines.clone() };
                let prefix = SYSTEM_PREFIX.to_vec();
                let copies = Some(self.cluster.clone());
                let options = FollowerOptions { lines, prefix, timeout: CHANGES_TIMEOUT, copies };
                followed.follower.insert(Follower::open(options).map_err(EngineError::Catalog)?)
            }
        };
        match follower.catch_up(&mut followed.replica) {
            Ok(caught_up) => {
                if caught_up.began_anew {
                    followed.is_anew = true;
                    followed.catalogs.participants_were_scanned();
                }
                Ok(followed.take(tables, read))
            }
            Err(FollowError::Participant(TransactionError::KeepsNoKeys { .. })) => {
                followed.is_unchangeable = true;
                Ok(followed.take_unchangeable(tables, read))
            }
            Err(error) => {
                followed.agreement = Agreement::Unheard(error.to_string());
                Err(EngineError::Changes(error.to_string()))
            }
        }
    }

    /// The changed rows of a closed table, once no transaction on it is prepared any more. `None`
    /// if the rows have been moved.
    pub(crate) async fn ended_rows(
        self: &Arc<Self>,
        tables: &Arc<Tables>,
        table: TableId,
        wait: Duration,
    ) -> Result<Option<TableRows>, EngineError> {
        let deadline = Instant::now() + wait;
        loop {
            self.follow(tables, None).await?;
            {
                let followed = lock(&self.followed);
                if followed.replica.is_emptied(table) {
                    return Ok(None);
                }
                if !followed.replica.is_open(table) {
                    return Ok(Some(followed.replica.table(table).cloned().unwrap_or_default()));
                }
            }
            if Instant::now() >= deadline {
                let why = format!(
                    "prepared transactions that write to the table have not ended within {wait:?}; try again"
                );
                return Err(EngineError::Changes(why));
            }
            tokio::time::sleep(ENDINGS_POLL_TIME).await;
        }
    }

    /// The changed rows of a table, as far as this engine has read them.
    pub(crate) fn rows(&self, table: TableId) -> TableRows {
        lock(&self.followed).replica.table(table).cloned().unwrap_or_default()
    }

    /// All tables, and what changed rows add to the sums that they derive, or to the sums named in
    /// `of`: both of one point in time. If not all participants could be read, the sums say why
    /// they are unknown.
    pub(crate) async fn sums(
        self: &Arc<Self>,
        tables: &Arc<Tables>,
        of: Option<BTreeSet<String>>,
    ) -> Result<OneMoment, EngineError> {
        let mut retry = Retry::new(RENEWALS_MAX + 1);
        loop {
            let (changes, own, of) = (Arc::clone(self), Arc::clone(tables), of.clone());
            let is_last = retry.is_last();
            if let Some(both) = apart(move || changes.sums_here(&own, of.as_ref(), is_last)).await? {
                return Ok(both);
            }
            assert!(retry.again(), "the last attempt has a result");
            // Another statement has read changes that tables do not know yet, or could not read
            // all.
            self.catch_up(tables).await?;
        }
    }

    /// One attempt of [`Self::sums`]. `None` if the replica and the tables are not of one point in
    /// time.
    fn sums_here(
        &self,
        tables: &Tables,
        of: Option<&BTreeSet<String>>,
        is_last: bool,
    ) -> Result<Option<OneMoment>, EngineError> {
        // While this lock is held, neither changes.
        let followed = lock(&self.followed);
        let (moment, derived) = (tables.moment(), followed.replica.derived());
        let wanted: Vec<_> =
            moment.sums().filter(|sum| of.is_none_or(|of| of.contains(sum.name()))).collect();
        let mut sums = Sums::default();
        match &followed.agreement {
            _ if wanted.is_empty() => {}
            Agreement::Whole => {
                for sum in wanted {
                    let changed = derived.sums_in(&sum, Bound::Unbounded, Bound::Unbounded);
                    let changed = changed.map_err(|fault| EngineError::Changes(fault.to_string()))?;
                    sums.changed.insert(sum.id(), changed);
                }
            }
            Agreement::Unheard(why) if is_last => sums.unknown = Some(why.clone()),
            Agreement::Untold if is_last => {
                sums.unknown = Some("tables were loaded, dropped or flushed during every attempt".to_owned())
            }
            Agreement::Untold | Agreement::Unheard(_) => return Ok(None),
        }
        Ok(Some((moment, Arc::new(sums))))
    }

    /// The newest known versions of [`RowIdentity::GUARD`], by table.
    pub(crate) fn guards(&self) -> BTreeMap<TableId, Timestamp> {
        let replica = &lock(&self.followed).replica;
        let guard = |id: TableId| Some((id, replica.table(id)?.row(RowIdentity::GUARD)?.timestamp));
        replica.tables().filter_map(guard).collect()
    }

    /// Whether a table is known to take no more writes.
    pub(crate) fn is_closed(&self, table: TableId) -> bool {
        lock(&self.followed).replica.is_closed(table)
    }

    /// Whether a table came from the table `from` by flushes alone.
    pub(crate) fn descends(&self, table: &TableDefinition, from: TableId) -> bool {
        let replica = &lock(&self.followed).replica;
        table.id == from
            || [Some(table.id), table.succeeds]
                .into_iter()
                .flatten()
                .any(|id| id == from || replica.descends(id, from))
    }

    /// Dropped tables of which participants still have rows.
    pub(crate) fn left_behind(&self) -> Vec<TableId> {
        let followed = lock(&self.followed);
        followed.catalogs.left_behind(&followed.replica)
    }

    /// Makes participants refuse further writes to a table, because a new version is about to take
    /// its place.
    pub(crate) async fn close(
        self: &Arc<Self>,
        table: TableId,
        new_version: TableId,
    ) -> Result<(), EngineError> {
        let items =
            Closing::noted(&note_of_new_version(new_version), &table_prefix(table), &self.participants());
        self.write_closing(table, items).await
    }

    /// Makes participants drop all rows of a table, and what is derived from them.
    pub(crate) async fn empty(self: &Arc<Self>, table: TableId) -> Result<(), EngineError> {
        let mut prefixes = vec![table_prefix(table).to_vec()];
        if lock(&self.followed).replica.has_derived(table) {
            prefixes.extend(derived::prefixes(table));
        }
        let participants = self.participants();
        let items = prefixes.iter().map(|prefix| Closing::Emptied.items(prefix, &participants));
        let items: Option<Vec<_>> = items.collect();
        self.write_closing(table, items.map(|items| items.into_iter().flatten().collect())).await
    }

    fn participants(&self) -> Vec<ParticipantId> {
        self.lines.nodes.iter().map(|node| ParticipantId(node.id.0)).collect()
    }

    async fn write_closing(
        self: &Arc<Self>,
        table: TableId,
        items: Option<Vec<(Key, Value)>>,
    ) -> Result<(), EngineError> {
        let items = items.ok_or_else(|| {
            EngineError::Changes(format!("table {table} cannot be closed: some nodes have no key for it"))
        })?;
        self.write(move |_| Ok(items.clone())).await.map(drop)
    }

    /// Writes all changes of a transaction.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        transaction: &Arc<Transaction>,
    ) -> Result<Written, EngineError> {
        let (changes, transaction) = (Arc::clone(self), Arc::clone(transaction));
        self.write(move |timestamp| changes.items_of(&transaction, timestamp)).await
    }

    /// The items of a transaction: rows, and what is derived from them.
    fn items_of(&self, transaction: &Transaction, timestamp: Timestamp) -> Result<Vec<Write>, EngineError> {
        if transaction.needs_what_was_heard() {
            let followed = lock(&self.followed);
            if let Agreement::Unheard(why) = &followed.agreement {
                return Err(EngineError::Changes(format!(
                    "the changes of other transactions cannot be read: {why}; nothing was written: begin the transaction again"
                )));
            }
            transaction.items(timestamp, &followed.replica)
        } else {
            transaction.items(timestamp, &Replica::default())
        }
    }

    /// Writes items in one transaction. `items` makes them for the transaction's timestamp, again
    /// for each attempt.
    pub(crate) async fn write<W: Into<Write> + 'static>(
        self: &Arc<Self>,
        items: impl FnMut(Timestamp) -> Result<Vec<W>, EngineError> + Send + 'static,
    ) -> Result<Written, EngineError> {
        let changes = Arc::clone(self);
        apart(move || {
            let mut writer = lock(&changes.writer);
            let session = match &mut *writer {
                Some(session) => session,
                None => writer.insert(changes.writing()?),
            };
            session.write_with_timestamp(items)
        })
        .await
    }

    /// A session that writes rows.
    fn writing(&self) -> Result<Session, EngineError> {
        let options = SessionOptions {
            timeout: CHANGES_TIMEOUT,
            // Reads come from the follower, not from this session.
            reads: false,
            // Followers of a feed need no list of all the transaction's rows beside each row.
            algorithm: Algorithm::Small,
            wall: self.cluster.wall().clone(),
            ..SessionOptions::new(self.lines.clone())
        };
        Session::open(options).map_err(EngineError::Catalog)
    }
}

impl Followed {
    /// Gives tables the changed rows of the replica, unless the catalog does not fit them.
    fn take(&mut self, tables: &Tables, read: Option<CatalogRead>) -> Heard {
        let is_read = read.is_some();
        // Another statement may have read a later catalog meanwhile.
        let read = read.filter(|read| self.catalogs.is_newer(read));
        if !self.catalogs.fits(&self.replica, read.as_ref()) {
            self.agreement = Agreement::Untold;
            return Heard::Stale;
        }
        self.agreement = Agreement::Whole;
        let anew = std::mem::take(&mut self.is_anew);
        match read {
            Some(read) => tables.renew(&self.catalogs.taken(read), &mut self.replica, anew),
            None => tables.change(&mut self.replica, anew),
        }
        if !is_read && self.catalogs.have_closed(&self.replica) { Heard::Stale } else { Heard::Whole }
    }

    /// As [`Self::take`] where nodes keep no changed rows and so do not report that tables were
    /// replaced: the caller has to read the catalog.
    fn take_unchangeable(&mut self, tables: &Tables, read: Option<CatalogRead>) -> Heard {
        let is_read = read.is_some();
        let heard = self.take(tables, read);
        if is_read { heard } else { Heard::Stale }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking work on a thread for such work.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(EngineError::Changes(format!("the thread that reads and writes them has failed: {error}")))
    })
}

impl From<TransactionError> for EngineError {
    fn from(error: TransactionError) -> Self {
        if let TransactionError::Aborted {
            why: Abortion::Refused { why: Refusal::Closed { .. }, .. }, ..
        } = error
        {
            return Self::Flushed;
        }
        if let TransactionError::Conflict { key, .. } = &error {
            let table = RowIdentity::of(key).ok().flatten().map(|(table, _)| table.to_string());
            return Self::Conflict { table: table.unwrap_or_default() };
        }
        Self::Transaction(Box::new(error))
    }
}
