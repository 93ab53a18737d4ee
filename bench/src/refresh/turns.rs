//! Runs refresh streams in turns, and lets them rest between the turns.
//!
//! Each stream is a thread that works on one order at a time: RF1 of a stream number that no thread
//! has begun, RF2 of the same number, then the next number. Between two orders the thread checks
//! whether it should rest.
//!
//! Invariants
//! - While streams rest, no transaction and no flush is in progress.
//! - A turn begins where the previous one ended: no order is inserted or deleted twice, and RF2
//!   gets its share of the time like RF1, however short turns are.

use super::{Function, RefreshError, Refresher, StreamOutcome, be_nice};
use rackscan_datasets::refresh;
use rackscan_engine::Engine;
use serde::{Deserialize, Serialize};
use std::{
    cell::Cell,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};
use tokio::runtime::Handle;

/// Number of transactions after which streams count as working.
const AT_WORK_AFTER: u64 = 20;

/// The streams to run.
#[derive(Clone, Copy, Debug)]
pub struct StreamsOptions {
    /// The scale factor of the loaded tables.
    pub scale: f64,
    /// Number of concurrent streams.
    pub streams: u32,
    /// The first stream that has not been run; each can run once.
    pub first_stream: u32,
    /// Niceness of their threads; 0 for that of the thread that starts them.
    pub nice: u8,
}

/// Result of all streams in a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Orders that RF1 inserted, each by a transaction.
    pub inserted: u64,
    /// Orders that RF2 deleted, each by a transaction.
    pub deleted: u64,
    /// Seconds from the command to go until the last commit.
    pub seconds: f64,
    /// The first stream that has not begun.
    pub next_stream: u32,
}

impl Turn {
    /// Transactions that were committed.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.inserted + self.deleted
    }
}

/// Streams that work in turns, and rest at first.
pub trait Streams {
    /// Begins a turn; returns when the streams are at work.
    ///
    /// # Errors
    /// The first transaction that fails.
    fn go(&mut self) -> Result<(), RefreshError>;

    /// Ends the turn; returns when all streams rest.
    ///
    /// # Errors
    /// The first transaction that failed since the turn began.
    fn pause(&mut self) -> Result<Turn, RefreshError>;
}

/// Runs refresh streams in threads of this process while `user` runs. They work only during the
/// turns that `user` begins and ends.
///
/// # Errors
/// The error of `user` or of a stream; nodes that cannot be reached; a thread that cannot start.
pub fn by_turns<T>(
    engine: &Engine,
    runtime: &Handle,
    options: &StreamsOptions,
    user: impl FnOnce(&mut dyn Streams) -> Result<T, RefreshError>,
) -> Result<T, RefreshError> {
    // The generator builds its texts at the first use, which must not be part of a turn.
    drop(refresh::new_sales(options.scale, options.first_stream)?);
    let mut refreshers = Vec::new();
    for _ in 0..options.streams {
        refreshers.push(Refresher::open(engine, runtime.clone(), options.scale)?);
    }
    let gate = Gate::new(options.streams, options.first_stream);
    thread::scope(|scope| {
        // Dropped in any case, so that no thread waits at the gate while it is joined.
        let mut here = Here { engine, runtime, gate: &gate, began: Instant::now() };
        for (mut refresher, stream) in refreshers.into_iter().zip(0..) {
            let gate = &gate;
            let work = move || {
                let worker = Worker(gate);
                worker.end(be_nice(options.nice).and_then(|()| gate.go_through(&mut refresher)));
            };
            thread::Builder::new()
                .name(format!("stream {stream}"))
                .spawn_scoped(scope, work)
                .map_err(|source| RefreshError::Thread { stream, source })?;
        }
        gate.until_all_rest()?;
        user(&mut here)
    })
}

/// Streams in threads of this process.
struct Here<'e> {
    engine: &'e Engine,
    runtime: &'e Handle,
    gate: &'e Gate,
    began: Instant,
}

impl Streams for Here<'_> {
    fn go(&mut self) -> Result<(), RefreshError> {
        self.began = Instant::now();
        self.gate.open();
        self.gate.until_at_work()
    }

    fn pause(&mut self) -> Result<Turn, RefreshError> {
        let turn = self.gate.close()?;
        let seconds = self.began.elapsed().as_secs_f64();
        self.runtime.block_on(self.engine.rest());
        Ok(Turn { seconds, ..turn })
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.gate.end(None);
    }
}

/// The gate that streams pass between two orders.
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    ended: AtomicBool,
}

struct State {
    phase: Phase,
    /// Number of streams that do not rest.
    at_work: u32,
    turn: Turn,
    failed: Option<RefreshError>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Rest,
    Work,
    End,
}

impl Gate {
    /// A closed gate that `streams` streams will reach.
    fn new(streams: u32, first_stream: u32) -> Self {
        let turn = Turn { next_stream: first_stream, ..Turn::default() };
        let state = State { phase: Phase::Rest, at_work: streams, turn, failed: None };
        Self { state: Mutex::new(state), changed: Condvar::new(), ended: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_it` holds, or a stream has failed.
    fn until(&self, is_it: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, RefreshError> {
        let waits = |state: &mut State| state.failed.is_none() && !is_it(state);
        let mut state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state),
        }
    }

    fn until_all_rest(&self) -> Result<Turn, RefreshError> {
        self.until(|state| state.at_work == 0).map(|state| state.turn)
    }

    fn until_at_work(&self) -> Result<(), RefreshError> {
        self.until(|state| state.turn.transactions() >= AT_WORK_AFTER || state.phase == Phase::End).map(drop)
    }

    /// Begins a turn.
    fn open(&self) {
        let mut state = self.state();
        if state.phase == Phase::Rest {
            state.phase = Phase::Work;
            state.turn = Turn { next_stream: state.turn.next_stream, ..Turn::default() };
        }
        self.changed.notify_all();
    }

    /// Ends a turn and returns its result.
    fn close(&self) -> Result<Turn, RefreshError> {
        let mut state = self.state();
        if state.phase == Phase::Work {
            state.phase = Phase::Rest;
        }
        drop(state);
        self.until_all_rest()
    }

    /// Makes all streams end, because of an error if there is one.
    fn end(&self, because: Option<RefreshError>) {
        let mut state = self.state();
        state.phase = Phase::End;
        state.failed = state.failed.take().or(because);
        self.ended.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Lets a stream rest while the gate is closed. Returns false if the stream must end.
    fn pass(&self, mut state: MutexGuard<'_, State>) -> bool {
        if state.phase == Phase::Rest {
            state.at_work -= 1;
            self.changed.notify_all();
            let rests = |state: &mut State| state.phase == Phase::Rest;
            state = self.changed.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner);
            state.at_work += 1;
        }
        state.phase == Phase::Work
    }

    /// Counts what a stream has done, and lets it pass during a turn.
    fn pass_with(&self, function: Function, orders: u64) {
        let mut state = self.state();
        let done = match function {
            Function::NewSales => &mut state.turn.inserted,
            Function::OldSales => &mut state.turn.deleted,
        };
        *done += orders;
        if state.turn.transactions() == AT_WORK_AFTER {
            self.changed.notify_all();
        }
        self.pass(state);
    }

    /// The work of a stream: one function after the other, until all streams must end.
    fn go_through(&self, refresher: &mut Refresher<'_>) -> Result<(), RefreshError> {
        while self.pass(self.state()) {
            let stream = {
                let mut state = self.state();
                state.turn.next_stream += 1;
                state.turn.next_stream - 1
            };
            for function in [Function::NewSales, Function::OldSales] {
                let counted = Cell::new(0);
                let on_order = |outcome: &StreamOutcome| {
                    self.pass_with(function, outcome.orders - counted.replace(outcome.orders));
                };
                refresher.run(function, stream, &self.ended, &on_order)?;
            }
        }
        Ok(())
    }
}

/// A stream's thread, which reports how it ended: one that fails ends the others between two
/// transactions.
struct Worker<'g>(&'g Gate);

impl Worker<'_> {
    fn end(self, outcome: Result<(), RefreshError>) {
        if let Err(error) = outcome {
            self.0.end(Some(error));
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end(Some(RefreshError::Panicked));
        }
        self.0.state().at_work -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Ends all streams if a test fails, so that none waits.
    struct Ends<'g>(&'g Gate);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.end(None);
        }
    }

    /// Streams that count instead of running transactions.
    fn with_streams(streams: u32, stream: impl Fn(&Gate, u32) -> bool + Sync, user: impl FnOnce(&Gate)) {
        let gate = Gate::new(streams, 1);
        thread::scope(|scope| {
            for number in 0..streams {
                let (gate, stream) = (&gate, &stream);
                scope.spawn(move || {
                    let worker = Worker(gate);
                    let mut goes_on = true;
                    while goes_on && gate.pass(gate.state()) {
                        goes_on = stream(gate, number);
                    }
                    worker.end(if goes_on { Ok(()) } else { Err(RefreshError::Panicked) });
                });
            }
            let _ends = Ends(&gate);
            user(&gate);
        });
    }

    #[test]
    fn nothing_is_under_way_while_streams_rest_and_each_turn_is_counted_by_itself() {
        let (under_way, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let stream = |gate: &Gate, number: u32| {
            under_way.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            done.fetch_add(1, Ordering::SeqCst);
            under_way.fetch_sub(1, Ordering::SeqCst);
            gate.pass_with(if number == 0 { Function::NewSales } else { Function::OldSales }, 1);
            true
        };
        with_streams(3, stream, |gate| {
            assert_eq!(gate.until_all_rest().unwrap().transactions(), 0);
            let mut counted = 0;
            for _ in 0..50 {
                gate.open();
                gate.until_at_work().unwrap();
                counted += gate.close().unwrap().transactions();
                assert_eq!((under_way.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (0, counted));
            }
            assert!(counted >= 50 * AT_WORK_AFTER);
        });
    }

    #[test]
    fn a_stream_that_fails_ends_the_turn_and_the_other_streams() {
        let stream = |gate: &Gate, number: u32| {
            gate.pass_with(Function::NewSales, 0);
            number != 1
        };
        with_streams(3, stream, |gate| {
            gate.open();
            let ended = gate.until_at_work();
            assert!(matches!(ended, Err(RefreshError::Panicked)), "{ended:?}");
            assert!(gate.state().phase == Phase::End, "no stream works on");
            assert!(gate.until_all_rest().is_ok(), "none is at work any more");
        });
    }
}
