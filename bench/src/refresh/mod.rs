//! Runs TPC-H's refresh functions, and measures queries meanwhile.
//!
//! RF1 inserts new orders with their lines, RF2 deletes old ones (TPC-H 2.27 and 2.28); each order
//! with its lines is one transaction. A stream is a thread with connections of its own, which waits
//! for each of its transactions.
//!
//! A stream runs as fast as its transactions are answered. On processors that it shares with
//! queries it would take as much time as it can get: if an order costs less, the stream does more
//! orders. Therefore the stream, and every thread that works for it, has a high nice value: it gets
//! all processors that no query needs, and a small share of the others.
//!
//! Invariants
//! - If a stream ends early, no order is visible without its lines.

mod apart;
mod interference;
mod invariant;
mod turns;

pub use apart::{Answer, StreamsProcess, answer};
pub use interference::{InterferenceLine, InterferenceOptions, StreamsIn, run};
pub use invariant::{Expected, Fracture};
pub use turns::{Streams, StreamsOptions, Turn, by_turns};

use rackscan_client::Retry;
use rackscan_datasets::refresh::{self, RefreshFault, RefreshOrder};
use rackscan_engine::{Engine, EngineError, RowChange, RowWriter};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// Default niceness of a stream: a tenth of the weight of a query's threads.
pub const STREAM_NICE: u8 = 10;
/// Orders that RF2 searches for together.
const SOUGHT_TOGETHER: usize = 128;
/// Number of orders after which a stream checks whether changed rows should be flushed.
const LOOKED_AFTER: u64 = 256;
/// Attempts of an order whose tables are flushed meanwhile.
const ATTEMPTS_MAX: u32 = 16;

/// A refresh function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// RF1.
    NewSales,
    /// RF2.
    OldSales,
}

/// Why a refresh could not continue.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// The refresh does not exist.
    #[error(transparent)]
    Fault(#[from] RefreshFault),
    /// A statement of the engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A thread could not be started.
    #[error("cannot start a thread for stream {stream}: {source}")]
    Thread {
        /// Number of the stream.
        stream: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system refused to change the niceness of a thread.
    #[error("cannot set the nice value (priority) of a thread to {nice}: {source}; try --nice 0")]
    Nice {
        /// The requested niceness.
        nice: u8,
        /// The system's error.
        source: std::io::Error,
    },
    /// A bug: a stream's thread ended without a report.
    #[error("the thread of a refresh stream has panicked; please report this")]
    Panicked,
    /// The process of the streams cannot be started, or its pipes failed.
    #[error("the process that runs the refresh streams: cannot {action}: {source}")]
    Process {
        /// What was attempted.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process of the streams has given up.
    #[error("the process of the streams failed: {reason}")]
    Streams {
        /// The reason that it gave.
        reason: String,
    },
    /// The process of the streams gave an unexpected answer, or ended.
    #[error("the process of the streams {found}, expected {expected}")]
    Answer {
        /// What it did.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The process of the streams received an unknown command.
    #[error("the process of the streams received the unknown command {found:?}, expected `go` or `pause`")]
    Word {
        /// The command.
        found: String,
    },
    /// Rows were visible that no transaction has left in this state.
    #[error(transparent)]
    Fractured(#[from] Fracture),
}

/// Gives the calling thread, and threads that it starts later, this niceness, unless theirs is
/// higher; 0 changes nothing.
///
/// # Errors
/// The system refuses.
pub fn be_nice(nice: u8) -> Result<(), RefreshError> {
    rackscan_fabric::be_nice(nice).map_err(|source| RefreshError::Nice { nice, source })
}

/// Result of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamOutcome {
    /// Orders that were inserted or deleted, each by a transaction.
    pub orders: u64,
    /// Their lines.
    pub lines: u64,
    /// Orders to delete that did not exist.
    pub absent: u64,
    /// From the first transaction to the last, including pauses between them.
    pub elapsed: Duration,
    /// Duration of each transaction.
    pub latencies: Vec<Duration>,
}

impl StreamOutcome {
    /// The latency that this share of the transactions did not exceed; `None` without transactions.
    #[must_use]
    pub fn latency(&mut self, share: f64) -> Option<Duration> {
        self.latencies.sort_unstable();
        let last = self.latencies.len().checked_sub(1)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a list"
        )]
        let place = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        self.latencies.get(place).copied()
    }
}

/// A stream of refreshes on the caller's thread.
pub struct Refresher<'e> {
    engine: &'e Engine,
    runtime: Handle,
    writer: RowWriter,
    scale: f64,
}

impl<'e> Refresher<'e> {
    /// A stream with connections of its own, over TPC-H tables that were loaded at this scale
    /// factor.
    ///
    /// # Errors
    /// The nodes cannot be reached.
    pub fn open(engine: &'e Engine, runtime: Handle, scale: f64) -> Result<Self, RefreshError> {
        let writer = runtime.block_on(engine.row_writer())?;
        Ok(Self { engine, runtime, writer, scale })
    }

    /// Runs a function of this stream (from 1), until it is told to stop. `on_order` is called
    /// after each order with the counts so far; the stream continues when it returns.
    ///
    /// # Errors
    /// The first transaction that fails; those before it are committed.
    pub fn run(
        &mut self,
        function: Function,
        stream: u32,
        stop: &AtomicBool,
        on_order: &dyn Fn(&StreamOutcome),
    ) -> Result<StreamOutcome, RefreshError> {
        let mut outcome = StreamOutcome::default();
        let began = Instant::now();
        match function {
            Function::NewSales => {
                for RefreshOrder { order, lines, .. } in refresh::new_sales(self.scale, stream)? {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let lines: Vec<_> = lines.into_iter().map(RowChange::Insert).collect();
                    self.insert(&RowChange::Insert(order), &lines, &mut outcome)?;
                    on_order(&outcome);
                }
            }
            Function::OldSales => {
                let keys: Vec<i64> = refresh::old_sales(self.scale, stream)?.collect();
                for keys in keys.chunks(SOUGHT_TOGETHER) {
                    self.delete(keys, stop, on_order, &mut outcome)?;
                }
            }
        }
        outcome.elapsed = began.elapsed();
        Ok(outcome)
    }

    /// Inserts an order with its lines.
    fn insert(
        &mut self,
        order: &RowChange,
        lines: &[RowChange],
        outcome: &mut StreamOutcome,
    ) -> Result<(), RefreshError> {
        let mut retry = Retry::new(ATTEMPTS_MAX);
        while !self.write(vec![order.clone()], lines.to_vec(), outcome)? {
            if !retry.again() {
                return Err(EngineError::Flushed.into());
            }
        }
        Ok(())
    }

    /// Deletes orders with their lines, each in a transaction.
    fn delete(
        &mut self,
        mut keys: &[i64],
        stop: &AtomicBool,
        on_order: &dyn Fn(&StreamOutcome),
        outcome: &mut StreamOutcome,
    ) -> Result<(), RefreshError> {
        let mut retry = Retry::new(ATTEMPTS_MAX);
        loop {
            let done = self.delete_found(keys, stop, on_order, outcome)?;
            keys = keys.get(done..).unwrap_or_default();
            if keys.is_empty() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if !retry.again() {
                return Err(EngineError::Flushed.into());
            }
        }
    }

    /// Searches for orders and deletes them, until rows have moved into other segments. Returns how
    /// many were deleted.
    fn delete_found(
        &mut self,
        keys: &[i64],
        stop: &AtomicBool,
        on_order: &dyn Fn(&StreamOutcome),
        outcome: &mut StreamOutcome,
    ) -> Result<usize, RefreshError> {
        if stop.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let find = |table, column| self.runtime.block_on(self.engine.rows_with_keys(table, column, keys));
        let (mut orders, mut lines) = (find("orders", "o_orderkey")?, find("lineitem", "l_orderkey")?);
        let deleted = |rows: Option<Vec<_>>| -> Vec<RowChange> {
            rows.into_iter().flatten().map(RowChange::Delete).collect()
        };
        for (done, key) in keys.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Ok(done);
            }
            let (order, lines) = (deleted(orders.remove(key)), deleted(lines.remove(key)));
            if order.is_empty() && lines.is_empty() {
                outcome.absent += 1;
            } else if !self.write(order, lines, outcome)? {
                return Ok(done);
            }
            on_order(outcome);
        }
        Ok(keys.len())
    }

    /// Writes an order and its lines. Returns false if a table was flushed meanwhile: then nothing
    /// was written, and the rows must be searched for again.
    fn write(
        &mut self,
        orders: Vec<RowChange>,
        lines: Vec<RowChange>,
        outcome: &mut StreamOutcome,
    ) -> Result<bool, RefreshError> {
        let count = lines.len() as u64;
        let began = Instant::now();
        match self.writer.write(vec![("orders", orders), ("lineitem", lines)]) {
            Ok(_) => {}
            Err(EngineError::Flushed) => {
                self.runtime.block_on(self.engine.renew_writer(&mut self.writer))?;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        outcome.latencies.push(began.elapsed());
        outcome.orders += 1;
        outcome.lines += count;
        if outcome.orders.is_multiple_of(LOOKED_AFTER) {
            self.runtime.block_on(self.engine.flush_if_due())?;
        }
        Ok(true)
    }
}
