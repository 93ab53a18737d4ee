//! How does an engine learn of rows that have changed, and how does it change some?
//!
//! ```text
//! before a statement:  what all homes have written since -> a replica -> layers over tables (catalog)
//! INSERT, UPDATE, DELETE -> which rows, and their new values    [statement]
//!                        -> writes of one transaction           [transaction]
//! COMMIT                 -> items under the rows' keys -> homes
//! ```
//!
//! Invariants
//! - What was acknowledged before a statement began is seen by it; what it sees is read-atomic.
//! - Tables and the rows that belong to them change together: a catalog is used only with rows that
//!   were heard after it was read, and rows only with a catalog that knows their tables
//!   ([`catalogs`]).
//! - A transaction is visible wholly or not at all, and knows before it commits of nothing that
//!   happened after it began but its own writes.
//! - Two transactions that update a row at the same time do not wait for each other. The first one
//!   commits; the second one is in conflict, unless it is
//!   [`Isolation::ReadAtomic`]: then the later timestamp stays.

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
    limits::{CHANGES_MEMORY_BYTES, CHANGES_TIMEOUT, ENDINGS_POLL_TIME, RENEWALS_MAX},
};
use rackscan_client::{
    Cluster, FollowError, Follower, FollowerOptions, LinesOptions, Session, SessionOptions, TransactionError,
    Written,
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
    message::{HomeId, Refusal},
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

/// The engine's ways to the homes of all nodes, and to their catalog.
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
    /// Nodes of this cluster keep no changed rows.
    is_unchangeable: bool,
    /// Nothing counts any more of what tables were told.
    is_anew: bool,
    agreement: Agreement,
    catalogs: Catalogs,
}

/// Whether what was heard last and what tables were told are of one moment.
#[derive(Debug, Default)]
enum Agreement {
    #[default]
    Whole,
    /// Tables do not know it yet: the catalog has to be read first.
    Untold,
    /// It is void, or a part: not all homes could be heard.
    Unheard(String),
}

/// Tables, and what rows beside their segments change of sums, at one moment.
pub(crate) type OneMoment = (Arc<Moment>, Arc<Sums>);

/// What the catalog is worth that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Tables know all that homes say.
    Whole,
    /// The catalog does not fit what the homes say, and tables are as they were; or it may not be
    /// the newest.
    Stale,
}

impl Changes {
    /// Ways to the homes of the nodes of this cluster, which are gone when they are needed.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let lines = cluster.lines(CHANGES_MEMORY_BYTES, CHANGES_TIMEOUT);
        Self { cluster: cluster.clone(), lines, followed: Mutex::default(), writer: Mutex::default() }
    }

    /// Lets `tables` know of everything that was acknowledged before this was called.
    ///
    /// # Errors
    /// A node that is away, if no replica of its log is proved to have all of it.
    pub(crate) async fn catch_up(self: &Arc<Self>, tables: &Arc<Tables>) -> Result<(), EngineError> {
        match self.follow(tables, None).await? {
            Heard::Whole => Ok(()),
            Heard::Stale => self.renew(tables).await,
        }
    }

    /// The same, and of all tables that were loaded, dropped or sealed before.
    pub(crate) async fn renew(self: &Arc<Self>, tables: &Arc<Tables>) -> Result<(), EngineError> {
        if lock(&self.followed).follower.is_none() {
            // What homes have is looked at before the catalog is read, so that it needs not be read
            // twice.
            self.follow(tables, None).await?;
        }
        for _ in 0..RENEWALS_MAX {
            let reading = lock(&self.followed).catalogs.begin_reading();
            let catalog = self.cluster.catalog().await.map_err(EngineError::Catalog)?;
            if self.follow(tables, Some(reading.ended(catalog))).await? == Heard::Whole {
                return Ok(());
            }
        }
        let why = format!(
            "tables were loaded, dropped or sealed during each of {RENEWALS_MAX} attempts; ask again"
        );
        Err(EngineError::Changes(why))
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
                let (lines, prefix) = (self.lines.clone(), SYSTEM_PREFIX.to_vec());
                let copies = Some(self.cluster.clone());
                let options = FollowerOptions { lines, prefix, timeout: CHANGES_TIMEOUT, copies };
                followed.follower.insert(Follower::open(options).map_err(EngineError::Catalog)?)
            }
        };
        match follower.catch_up(&mut followed.replica) {
            Ok(caught_up) => {
                if caught_up.began_anew {
                    followed.is_anew = true;
                    followed.catalogs.homes_were_scanned();
                }
                Ok(followed.take(tables, read))
            }
            Err(FollowError::Home(TransactionError::KeepsNoKeys { .. })) => {
                followed.is_unchangeable = true;
                Ok(followed.take_unchangeable(tables, read))
            }
            Err(error) => {
                followed.agreement = Agreement::Unheard(error.to_string());
                Err(EngineError::Changes(error.to_string()))
            }
        }
    }

    /// The changed rows of a table of which nothing is prepared any more, because it was closed;
    /// `None` if they have moved away, or not all homes were heard.
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
                let why =
                    format!("transactions that were prepared have not ended within {wait:?}; try again");
                return Err(EngineError::Changes(why));
            }
            tokio::time::sleep(ENDINGS_POLL_TIME).await;
        }
    }

    /// The changed rows of a table, as far as is known here.
    pub(crate) fn rows(&self, table: TableId) -> TableRows {
        lock(&self.followed).replica.table(table).cloned().unwrap_or_default()
    }

    /// All tables as they are known here, and what rows beside segments change of the sums that
    /// they derive, or of those of these names: both of one moment. If not all was heard, sums say
    /// why they are not known.
    pub(crate) async fn sums(
        self: &Arc<Self>,
        tables: &Arc<Tables>,
        of: Option<BTreeSet<String>>,
    ) -> Result<OneMoment, EngineError> {
        for attempt in 1.. {
            let (changes, own, of) = (Arc::clone(self), Arc::clone(tables), of.clone());
            let is_last = attempt > RENEWALS_MAX;
            if let Some(both) = apart(move || changes.sums_here(&own, of.as_ref(), is_last)).await? {
                return Ok(both);
            }
            // Somebody has heard what tables do not know yet, or could not hear all.
            self.catch_up(tables).await?;
        }
        Err(EngineError::Sealed)
    }

    /// The same; `None` if what was heard and what tables were told are not of one moment.
    fn sums_here(
        &self,
        tables: &Tables,
        of: Option<&BTreeSet<String>>,
        is_last: bool,
    ) -> Result<Option<OneMoment>, EngineError> {
        // Under this lock both stay what they are.
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
            Agreement::Untold if is_last => sums.unknown = Some("tables change all the time".to_owned()),
            Agreement::Untold | Agreement::Unheard(_) => return Ok(None),
        }
        Ok(Some((moment, Arc::new(sums))))
    }

    /// The newest versions of [`RowIdentity::GUARD`] that are known here, by table.
    pub(crate) fn guards(&self) -> BTreeMap<TableId, Timestamp> {
        let replica = &lock(&self.followed).replica;
        let guard = |id: TableId| Some((id, replica.table(id)?.row(RowIdentity::GUARD)?.timestamp));
        replica.tables().filter_map(guard).collect()
    }

    /// Whether a table takes no writes any more, as far as is known here.
    pub(crate) fn is_closed(&self, table: TableId) -> bool {
        lock(&self.followed).replica.is_closed(table)
    }

    /// Whether a table has come of another one by flushes alone.
    pub(crate) fn descends(&self, table: &TableDefinition, from: TableId) -> bool {
        let replica = &lock(&self.followed).replica;
        table.id == from
            || [Some(table.id), table.succeeds]
                .into_iter()
                .flatten()
                .any(|id| id == from || replica.descends(id, from))
    }

    /// Tables of which homes have rows, and which are not there any more.
    pub(crate) fn left_behind(&self) -> Vec<TableId> {
        let followed = lock(&self.followed);
        followed.catalogs.left_behind(&followed.replica)
    }

    /// Lets homes take no more writes to a table, because a new version is about to take its place.
    pub(crate) async fn close(
        self: &Arc<Self>,
        table: TableId,
        new_version: TableId,
    ) -> Result<(), EngineError> {
        let items = Closing::noted(&note_of_new_version(new_version), &table_prefix(table), &self.homes());
        self.write_closing(table, items).await
    }

    /// Lets homes forget what they have of a table, together with what is derived from its rows.
    pub(crate) async fn empty(self: &Arc<Self>, table: TableId) -> Result<(), EngineError> {
        let mut prefixes = vec![table_prefix(table).to_vec()];
        if lock(&self.followed).replica.has_derived(table) {
            prefixes.extend(derived::prefixes(table));
        }
        let homes = self.homes();
        let items = prefixes.iter().map(|prefix| Closing::Emptied.items(prefix, &homes));
        let items: Option<Vec<_>> = items.collect();
        self.write_closing(table, items.map(|items| items.into_iter().flatten().collect())).await
    }

    fn homes(&self) -> Vec<HomeId> {
        self.lines.nodes.iter().map(|node| HomeId(node.id.0)).collect()
    }

    async fn write_closing(
        self: &Arc<Self>,
        table: TableId,
        items: Option<Vec<(Key, Value)>>,
    ) -> Result<(), EngineError> {
        let items = items
            .ok_or_else(|| EngineError::Changes(format!("table {table}: no keys close it at all homes")))?;
        self.write(move |_| Ok(items.clone())).await.map(drop)
    }

    /// Writes what a transaction has.
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
                    "what others have changed is not known: {why}; nothing was written, begin again"
                )));
            }
            transaction.items(timestamp, &followed.replica)
        } else {
            transaction.items(timestamp, &Replica::default())
        }
    }

    /// Writes items in one transaction; they are made for its timestamp, again for each attempt.
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
            // What is read is followed.
            reads: false,
            // Who follows feeds needs no list of all rows of a transaction beside each of them.
            algorithm: Algorithm::Small,
            wall: self.cluster.wall().clone(),
            ..SessionOptions::new(self.lines.clone())
        };
        Session::open(options).map_err(EngineError::Catalog)
    }
}

impl Followed {
    /// Tells tables what was heard, unless their catalog does not fit that.
    fn take(&mut self, tables: &Tables, read: Option<CatalogRead>) -> Heard {
        let is_read = read.is_some();
        // Somebody else may have read a later one meanwhile.
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

    /// The same where no homes say that tables were replaced: whoever wants to know reads the
    /// catalog.
    fn take_unchangeable(&mut self, tables: &Tables, read: Option<CatalogRead>) -> Heard {
        let is_read = read.is_some();
        let heard = self.take(tables, read);
        if is_read { heard } else { Heard::Stale }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks on a thread for such.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
) -> Result<T, EngineError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(EngineError::Changes(format!("the thread that talks to homes: {error}"))))
}

impl From<TransactionError> for EngineError {
    fn from(error: TransactionError) -> Self {
        if let TransactionError::Aborted {
            why: Abortion::Refused { why: Refusal::Closed { .. }, .. }, ..
        } = error
        {
            return Self::Sealed;
        }
        if let TransactionError::Conflict { key, .. } = &error {
            let table = RowIdentity::of(key).ok().flatten().map(|(table, _)| table.to_string());
            return Self::Conflict { table: table.unwrap_or_default() };
        }
        Self::Transaction(Box::new(error))
    }
}
