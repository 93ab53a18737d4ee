//! Commits a transaction while others change its rows, or flush, replace and drop its tables.
//!
//! ```text
//! PREPARE -> committed
//!        \-> table closed: flushed           -> the same writes, to the new places of the rows -> PREPARE
//!        |                 replaced, dropped -> refused
//!        \-> conflict -> refused; a statement outside of a transaction runs again
//! ```
//!
//! A participant refuses writes to a closed table, which is about to get a new version.
//!
//! Invariant: a refused transaction has written nothing.

use super::Engine;
use crate::{
    catalog::{Known, View},
    changes::Transaction,
    error::EngineError,
    limits::{CONFLICT_PAUSE_MAX, FLUSHED_ATTEMPTS_MAX, NEW_VERSION_POLL_TIME, UNHEARD_CLOSING_WAIT},
    parsing::with_stack_for,
};
use datafusion::sql::parser::Statement;
use rackscan_client::Retry;
use rackscan_format::ids::TableId;
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

impl Engine {
    /// Writes the changes of a transaction. Returns its timestamp as text.
    pub(super) async fn commit(&self, transaction: &Arc<Transaction>) -> Result<String, EngineError> {
        if transaction.is_empty() {
            return Ok("committed; nothing was written".to_owned());
        }
        let written = self.changes.commit(transaction).await?;
        self.flush_what_is_due();
        Ok(format!("committed by {}", written.timestamp))
    }

    /// The same for a session's transaction: its writes are moved along with its rows through
    /// flushes.
    pub(super) async fn commit_through_flushes(&self, open: Transaction) -> Result<String, EngineError> {
        let mut open = Arc::new(open);
        let (mut moves, mut last_moved) = (Retry::new(FLUSHED_ATTEMPTS_MAX), Instant::now());
        loop {
            let error = match self.commit(&open).await {
                Err(error @ (EngineError::Flushed | EngineError::Conflict { .. })) => error,
                done => return done,
            };
            let is_conflict = matches!(error, EngineError::Conflict { .. });
            let mut next = Transaction::clone(&open);
            if self.follow_flushes(&mut next).await? {
                if !moves.again() {
                    return Err(of_table(error, &open));
                }
                last_moved = Instant::now();
            } else if is_conflict || last_moved.elapsed() > UNHEARD_CLOSING_WAIT {
                return Err(of_table(error, &open));
            } else {
                // Participants refuse writes from the PREPARE of a close on, which is not visible
                // to others before it is committed.
                tokio::time::sleep(NEW_VERSION_POLL_TIME).await;
            }
            open = Arc::new(next);
        }
    }

    /// Moves the writes of a transaction to the tables that came by flushes from those it has
    /// written to. Returns whether there are any.
    async fn follow_flushes(&self, open: &mut Transaction) -> Result<bool, EngineError> {
        let mut has_moved = false;
        for (name, id) in open.named() {
            self.refresh().await?;
            if self.changes.is_closed(id) {
                self.flusher.wait_for_new_version(&name, Some(id)).await?;
            }
            if let Some(why) = self.is_gone(&name, id) {
                return Err(why);
            }
            let view = self.tables.view();
            let Some(now) = view.get(&name).map(Known::whole).transpose()? else { continue };
            let Some(before) = open.seen(id).cloned() else { continue };
            if now.definition().id == id {
                continue;
            }
            match self.flusher.rows_since(&before, now).await {
                Ok(rows) => open.follow(id, now, &rows)?,
                // The table was flushed again meanwhile.
                Err(error) if error.may_be_of_another_time() => {}
                Err(error) => return Err(error),
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Why a table of the transaction is gone; `None` if it is still there, or has only been
    /// flushed.
    fn is_gone(&self, name: &str, id: TableId) -> Option<EngineError> {
        let (moment, table) = (self.tables.moment(), name.to_owned());
        match moment.stored(name) {
            Some(Known::Whole(now) | Known::Unreadable(now, _)) => {
                (!self.changes.descends(now.definition(), id)).then_some(EngineError::Replaced { table })
            }
            // That is not known until its nodes are back.
            Some(Known::Broken(_)) => None,
            Some(Known::View(_)) => Some(EngineError::Replaced { table }),
            None => Some(EngineError::Dropped { table }),
        }
    }

    /// Why a query of a transaction can no longer be answered over the tables that it sees.
    pub(super) fn why_not(&self, statement: &Statement, seen: &View) -> EngineError {
        let references =
            with_stack_for(statement, |statement| self.state.resolve_table_references(statement))
                .unwrap_or_default();
        let ids = references.iter().filter_map(|reference| {
            let name = reference.table();
            let known = seen.get(name).filter(|known| !matches!(known, Known::View(_)))?;
            Some((name, known.id()?))
        });
        ids.into_iter().find_map(|(name, id)| self.is_gone(name, id)).unwrap_or(EngineError::Flushed)
    }
}

/// A conflict error with the name of its table, if the transaction has written to only one.
fn of_table(error: EngineError, open: &Transaction) -> EngineError {
    match (error, open.named().as_slice()) {
        (EngineError::Conflict { .. }, [(table, _)]) => EngineError::Conflict { table: table.clone() },
        (error, _) => error,
    }
}

/// Pauses for a random time that grows with the number of conflicts, so that two statements do not
/// collide again.
pub(super) async fn pause_after(conflicts: u32) {
    let longest = CONFLICT_PAUSE_MAX.min(Duration::from_millis(1 << conflicts.min(16)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The last digits of the clock are random enough, and differ between processes.
    tokio::time::sleep(longest * (now.subsec_nanos() / 64 % 1024) / 1024).await;
}
