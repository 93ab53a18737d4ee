//! Writes a value under every key before a measurement.
//!
//! Invariants
//! - Keys are written in transactions of the given size, so that the sibling list of a version (the
//!   other keys of its transaction) is as long as after the run's own writes.
//! - A failed transaction is retried for a limited time. The first transaction that fails for
//!   longer ends the load on all threads.

use super::driver::{epoch, out_of_patience};
use super::store::{Failure, OpenSession, TransactionStore};
use super::token::{Token, value};
use super::workload::{Names, Span};
use crate::limits::{FAILURE_PAUSE, KEYS_MAX, SESSIONS_MAX, TRANSACTION_KEYS_MAX};
use rackscan_ramp::item::{Key, Value};
use std::{
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};

/// One load.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Number of keys; they are numbered from 0.
    pub keys: u32,
    /// Bytes of each value.
    pub value_bytes: Span,
    /// Keys per transaction.
    pub per_transaction: u32,
    /// Number of threads, each with a session.
    pub threads: u32,
    /// Seed of the lengths, if there are several.
    pub seed: u64,
    /// How long a transaction is retried.
    pub patience: Duration,
    /// Set by the caller to end the load early.
    pub stop: &'a AtomicBool,
}

/// Why a load failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The options are not possible.
    #[error(
        "a load of {keys} keys in transactions of {per_transaction} keys by {threads} threads is not possible; expected 1 to {KEYS_MAX} keys, \
         1 to {TRANSACTION_KEYS_MAX} keys in a transaction and 1 to {SESSIONS_MAX} threads"
    )]
    Shape {
        /// Number of keys.
        keys: u32,
        /// Keys per transaction.
        per_transaction: u32,
        /// Number of threads.
        threads: u32,
    },
    /// A transaction failed until there was no more patience.
    #[error("keys {first} to {last} could not be loaded: {failure}")]
    Failed {
        /// Number of its first key.
        first: u32,
        /// Number of its last key.
        last: u32,
        /// The cause.
        failure: Failure,
    },
    /// A thread could not be started.
    #[error("cannot start thread {thread} of the load: {source}")]
    Thread {
        /// Number of the thread.
        thread: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The caller stopped it.
    #[error("the load was stopped after {done} of {keys} keys")]
    Stopped {
        /// Keys that were loaded.
        done: u64,
        /// Keys to load.
        keys: u32,
    },
}

/// Loads keys; `on_progress` receives how many of how many are loaded.
///
/// # Errors
/// [`LoadError`] if it is not possible, fails, or is stopped.
pub fn load(
    load: &Load<'_>,
    open: &OpenSession<'_>,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<(), LoadError> {
    let Load { keys, per_transaction, threads, .. } = *load;
    let possible = (1..=KEYS_MAX).contains(&keys)
        && (1..=TRANSACTION_KEYS_MAX).contains(&per_transaction)
        && (1..=SESSIONS_MAX).contains(&threads);
    if !possible {
        return Err(LoadError::Shape { keys, per_transaction, threads });
    }
    let (next, failed, epoch) = (AtomicU32::new(0), AtomicBool::new(false), epoch());
    let (loaded, from_loaders) = channel();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (next, failed, loaded) = (&next, &failed, loaded.clone());
            let builder = std::thread::Builder::new().name(format!("loader {thread}"));
            let work = move || Loader { load, open, thread, epoch, next, failed }.run(&loaded);
            let spawned = builder.spawn_scoped(scope, work);
            if let Err(source) = spawned {
                failed.store(true, Ordering::Relaxed);
                return Err(LoadError::Thread { thread, source });
            }
        }
        drop(loaded);
        let (mut done, mut first) = (0, None);
        for report in from_loaders {
            match report {
                Ok(count) => {
                    done += u64::from(count);
                    on_progress(done, keys.into());
                }
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        match first {
            Some(error) => Err(error),
            None if done < u64::from(keys) => Err(LoadError::Stopped { done, keys }),
            None => Ok(()),
        }
    })
}

struct Loader<'l, 'a> {
    load: &'l Load<'l>,
    open: &'l OpenSession<'a>,
    thread: u32,
    epoch: u32,
    next: &'l AtomicU32,
    failed: &'l AtomicBool,
}

impl<'a> Loader<'_, 'a> {
    fn run(&self, loaded: &Sender<Result<u32, LoadError>>) {
        let Load { keys, per_transaction, stop, .. } = *self.load;
        let transactions = keys.div_ceil(per_transaction);
        let mut random = fastrand::Rng::with_seed(self.load.seed ^ u64::from(self.thread) << 32);
        let (mut session, mut names, mut buffer) = (None, Names::new(1), Vec::new());
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let over = self.failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
            if number >= transactions || over {
                return;
            }
            let first = number * per_transaction;
            let last = first.saturating_add(per_transaction).min(keys);
            let token = Token::of(self.epoch, self.thread, number);
            let items: Vec<(Key, Value)> = (first..last)
                .filter_map(|key| {
                    let length = self.load.value_bytes.draw(&mut random);
                    Some((names.key(key)?, value(token, key, length, &mut buffer)?))
                })
                .collect();
            let written = self.write(&mut session, &items).map_err(|failure| {
                self.failed.store(true, Ordering::Relaxed);
                LoadError::Failed { first, last: last.saturating_sub(1), failure }
            });
            // The caller waits for the last report.
            let _sent = loaded.send(written.map(|()| last - first));
        }
    }

    fn write(
        &self,
        session: &mut Option<Box<dyn TransactionStore + 'a>>,
        items: &[(Key, Value)],
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let failure = match self.try_write(session, items) {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            if failure.session_over {
                *session = None;
            }
            if out_of_patience(begun, self.load.patience, self.load.stop) {
                return Err(failure);
            }
            std::thread::sleep(FAILURE_PAUSE * 10);
        }
    }

    fn try_write(
        &self,
        session: &mut Option<Box<dyn TransactionStore + 'a>>,
        items: &[(Key, Value)],
    ) -> Result<(), Failure> {
        let session = match session {
            Some(session) => session,
            none => none.insert((self.open)(self.thread)?),
        };
        session.write(items.to_vec()).map(drop).map_err(|failed| failed.failure)
    }
}
