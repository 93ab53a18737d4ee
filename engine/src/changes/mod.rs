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
//! - A transaction is visible wholly or not at all, and knows before it commits of nothing that happened after it began but its own writes.
//! - Two transactions that update a row at the same time do not wait for each other: the later stamp stays. RAMP keeps what is read
//!   together together; it does not count for a writer that what it has read is still so.

mod statement;
mod transaction;
mod values;
mod writer;

use crate::{
    catalog::Tables,
    error::EngineError,
    limits::{CHANGES_MEMORY_BYTES, CHANGES_TIMEOUT},
};
use rackscan_client::{
    Cluster, FollowError, Follower, FollowerOptions, LinesOptions, Session, SessionOptions, TransactionError,
    Written,
};
use rackscan_delta::replica::Replica;
use rackscan_ramp::{
    algorithm::Algorithm,
    item::{Key, SYSTEM_PREFIX, Value},
    stamp::Stamp,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use statement::{ChangeStatement, Verb, quoted};
pub(crate) use transaction::{Row, Transaction};
pub(crate) use values::encoded;
pub use writer::{RowChange, RowWriter};

/// The engine's ways to the homes of all nodes.
#[derive(Debug)]
pub(crate) struct Changes {
    lines: LinesOptions,
    followed: Mutex<Followed>,
    writer: Mutex<Option<Session>>,
}

#[derive(Debug, Default)]
struct Followed {
    follower: Option<Follower>,
    replica: Replica,
    /// Whether all that was acknowledged was known here once.
    was_whole: bool,
    /// Nodes of this cluster keep no changed rows.
    is_unchangeable: bool,
}

impl Changes {
    /// Ways to the homes of the nodes of this cluster, which are gone when they are needed.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let lines = cluster.lines(CHANGES_MEMORY_BYTES, CHANGES_TIMEOUT);
        Self { lines, followed: Mutex::default(), writer: Mutex::default() }
    }

    /// What other connections to the homes are made with.
    pub(crate) fn lines(&self) -> &LinesOptions {
        &self.lines
    }

    /// Lets `tables` know of everything that was acknowledged before this was called.
    /// If a node is away of which this has heard before, says why what that one has written since may be missing.
    pub(crate) async fn catch_up(
        self: &Arc<Self>,
        tables: &Arc<Tables>,
    ) -> Result<Option<String>, EngineError> {
        let (changes, tables) = (Arc::clone(self), Arc::clone(tables));
        apart(move || changes.follow(&tables)).await
    }

    fn follow(&self, tables: &Tables) -> Result<Option<String>, EngineError> {
        let Followed { follower, replica, was_whole, is_unchangeable } = &mut *lock(&self.followed);
        if *is_unchangeable {
            return Ok(None);
        }
        let follower = match follower {
            Some(follower) => follower,
            None => {
                let (lines, prefix) = (self.lines.clone(), SYSTEM_PREFIX.to_vec());
                let options = FollowerOptions { lines, prefix, timeout: CHANGES_TIMEOUT };
                follower.insert(Follower::open(options).map_err(EngineError::Catalog)?)
            }
        };
        match follower.catch_up(replica) {
            Ok(caught_up) => {
                *was_whole = true;
                tables.change(replica, caught_up.began_anew);
                Ok(None)
            }
            Err(FollowError::NoFeed { .. } | FollowError::Home(TransactionError::NoHome { .. })) => {
                *is_unchangeable = true;
                Ok(None)
            }
            Err(error @ FollowError::Home(TransactionError::NodeDown { .. })) if *was_whole => {
                // Where it matters, scans cannot do without the node either. Its devices may be read here without it.
                tracing::warn!(%error, "what was written since this engine last heard of all homes is not seen");
                Ok(Some(error.to_string()))
            }
            Err(error) => Err(EngineError::Changes(error.to_string())),
        }
    }

    /// Writes items in one transaction; they are made for its stamp.
    pub(crate) async fn write(
        self: &Arc<Self>,
        items: impl FnOnce(Stamp) -> Vec<(Key, Value)> + Send + 'static,
    ) -> Result<Written, EngineError> {
        let changes = Arc::clone(self);
        apart(move || {
            let mut writer = lock(&changes.writer);
            let session = match &mut *writer {
                Some(session) => session,
                None => writer.insert(writing(&changes.lines)?),
            };
            session.write_stamped(items).map_err(EngineError::from)
        })
        .await
    }
}

/// A session that writes rows.
fn writing(lines: &LinesOptions) -> Result<Session, EngineError> {
    let options = SessionOptions {
        timeout: CHANGES_TIMEOUT,
        // Who follows feeds needs no list of all rows of a transaction beside each of them.
        algorithm: Algorithm::Small,
        ..SessionOptions::new(lines.clone())
    };
    Session::open(options).map_err(EngineError::Catalog)
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
        Self::Transaction(Box::new(error))
    }
}
