//! What do queries cost while refresh functions run at full rate?
//!
//! Method: turns without and with refreshes follow each other; in each, every query runs once. In turns with refreshes every stream inserts and
//! deletes without a pause. After each query, in both, one statement looks whether any order is there in part: so each query follows the same one, and finds the
//! same in caches.
//!
//! Invariants
//! - Ratios are medians of turns that were made next to each other, in one run.
//! - Rows that refreshes have changed stay changed: later turns without refreshes scan them, too.

use super::{Expected, Function, RefreshError, Refresher};
use crate::Provenance;
use rackscan_engine::Engine;
use rackscan_lab::median;
use rackscan_planner::Policy;
use rackscan_queries::Query;
use serde::Serialize;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// What is measured.
#[derive(Clone, Debug)]
pub struct InterferenceOptions {
    /// The scale factor of the loaded tables.
    pub scale: f64,
    /// Which queries.
    pub queries: Vec<Query>,
    /// Turns without and with refreshes that count.
    pub repeat: u32,
    /// Streams that refresh at a time.
    pub streams: u32,
    /// The first stream that is not done yet; each is done once.
    pub first_stream: u32,
    /// How nice their threads are.
    pub nice: u8,
    /// Where scans run.
    pub policy: Policy,
    /// Threads of the engine.
    pub threads: usize,
}

/// One query.
#[derive(Clone, Debug, Serialize)]
pub struct InterferenceLine {
    /// Where the figures come from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The query.
    pub query: String,
    /// Where scans ran.
    pub placement: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Streams that refreshed at a time.
    pub streams: u32,
    /// How nice their threads were.
    pub nice: u8,
    /// Milliseconds of each turn without refreshes.
    pub idle_ms: Vec<f64>,
    /// Milliseconds of each turn with them.
    pub busy_ms: Vec<f64>,
    /// The median of both.
    pub idle_median_ms: f64,
    /// Likewise.
    pub busy_median_ms: f64,
    /// The median of the ratios of neighbouring turns.
    pub busy_over_idle: f64,
    /// Transactions that committed in all turns with refreshes.
    pub transactions: u64,
    /// In a second of those turns.
    pub transactions_per_s: f64,
    /// Orders that were looked at for being whole, in all looks.
    pub orders_checked: u64,
    /// Looks.
    pub looks: u64,
    /// Rows that had changed at the end.
    pub changed_rows: u64,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Step<'s> {
    /// Turns that were made.
    pub done: u64,
    /// Turns in all.
    pub total: u64,
    /// What is being done.
    pub doing: &'s str,
}

/// What the streams of all turns have done.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    next_stream: AtomicU32,
    transactions: AtomicU64,
    failed: Mutex<Option<RefreshError>>,
}

impl Work {
    /// Inserts and deletes, one stream after the other, until it is told to stop.
    fn go_on(&self, refresher: &mut Refresher<'_>, nice: u8) {
        if let Err(error) = refresher.be_nice(nice) {
            return self.fail(error);
        }
        while !self.stop.load(Ordering::Relaxed) {
            let stream = self.next_stream.fetch_add(1, Ordering::Relaxed);
            let count = || {
                self.transactions.fetch_add(1, Ordering::Relaxed);
            };
            for function in [Function::NewSales, Function::OldSales] {
                if let Err(error) = refresher.run(function, stream, &self.stop, &count) {
                    return self.fail(error);
                }
            }
        }
    }

    fn fail(&self, error: RefreshError) {
        self.stop.store(true, Ordering::Relaxed);
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn failure(&self) -> Result<(), RefreshError> {
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Times of a query, without and with refreshes.
#[derive(Clone, Debug, Default)]
struct Times {
    idle: Vec<f64>,
    busy: Vec<f64>,
}

/// What is gathered over all turns.
#[derive(Default)]
struct Gathered {
    times: Vec<Times>,
    busy: Duration,
    looks: u64,
    orders_checked: u64,
}

/// Measures; on a thread that may block.
///
/// # Errors
/// A query or transaction that fails, and an order that was seen in part.
pub fn run(
    engine: &Engine,
    runtime: &Handle,
    options: &InterferenceOptions,
    on_step: &mut dyn FnMut(Step<'_>),
) -> Result<Vec<InterferenceLine>, RefreshError> {
    engine.set_policy(options.policy);
    // Streams that the turns may come to; those beyond are not looked at.
    let looked_at: Vec<u32> = (options.first_stream..).take(options.streams as usize * 4).collect();
    let expected = runtime.block_on(Expected::of(engine, options.scale, &looked_at))?;
    let work = Work { next_stream: AtomicU32::new(options.first_stream), ..Work::default() };
    let mut gathered =
        Gathered { times: vec![Times::default(); options.queries.len()], ..Gathered::default() };
    let total = u64::from(options.repeat) * 2 + 1;
    on_step(Step { done: 0, total, doing: "warming up" });
    for query in &options.queries {
        runtime.block_on(engine.sql(query.sql))?;
    }
    for turn in 0..options.repeat {
        on_step(Step { done: u64::from(turn) * 2 + 1, total, doing: "without refreshes" });
        for (number, query) in options.queries.iter().enumerate() {
            let time = gathered.look_after(engine, runtime, query, &expected)?;
            gathered.times[number].idle.push(time);
        }
        on_step(Step { done: u64::from(turn) * 2 + 2, total, doing: "with refreshes" });
        busy_turn(engine, runtime, options, &work, &expected, &mut gathered)?;
    }
    runtime.block_on(engine.refresh())?;
    Ok(lines(engine, options, &work, &gathered))
}

impl Gathered {
    /// Milliseconds of a query, after which is looked whether every order is whole.
    fn look_after(
        &mut self,
        engine: &Engine,
        runtime: &Handle,
        query: &Query,
        expected: &Expected,
    ) -> Result<f64, RefreshError> {
        let began = Instant::now();
        runtime.block_on(engine.sql(query.sql))?;
        let time = began.elapsed();
        self.orders_checked += runtime.block_on(expected.check(engine))?;
        self.looks += 1;
        Ok(time.as_secs_f64() * 1e3)
    }
}

/// Every query once while all streams refresh.
fn busy_turn(
    engine: &Engine,
    runtime: &Handle,
    options: &InterferenceOptions,
    work: &Work,
    expected: &Expected,
    gathered: &mut Gathered,
) -> Result<(), RefreshError> {
    work.stop.store(false, Ordering::Relaxed);
    let mut refreshers = Vec::new();
    for _ in 0..options.streams {
        refreshers.push(Refresher::open(engine, runtime.clone(), options.scale)?);
    }
    let began = Instant::now();
    let measured = thread::scope(|scope| {
        for mut refresher in refreshers {
            scope.spawn(move || work.go_on(&mut refresher, options.nice));
        }
        // All of them are at work.
        let before = work.transactions.load(Ordering::Relaxed);
        while work.transactions.load(Ordering::Relaxed) < before + 20 && !work.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        let measured = options.queries.iter().enumerate().try_for_each(|(number, query)| {
            let time = gathered.look_after(engine, runtime, query, expected)?;
            gathered.times[number].busy.push(time);
            Ok(())
        });
        work.stop.store(true, Ordering::Relaxed);
        measured
    });
    gathered.busy += began.elapsed();
    work.failure()?;
    measured
}

fn lines(
    engine: &Engine,
    options: &InterferenceOptions,
    work: &Work,
    gathered: &Gathered,
) -> Vec<InterferenceLine> {
    let transactions = work.transactions.load(Ordering::Relaxed);
    let changed = engine.tables().iter().map(|table| table.changed_rows).sum();
    let line = |(query, times): (&Query, &Times)| {
        let ratios = times.idle.iter().zip(&times.busy).map(|(idle, busy)| busy / idle).collect();
        InterferenceLine {
            provenance: Provenance::now("refresh", options.scale),
            query: query.name(),
            placement: options.policy.to_string(),
            threads: options.threads,
            streams: options.streams,
            nice: options.nice,
            idle_ms: times.idle.clone(),
            busy_ms: times.busy.clone(),
            idle_median_ms: median(times.idle.clone()).unwrap_or(f64::NAN),
            busy_median_ms: median(times.busy.clone()).unwrap_or(f64::NAN),
            busy_over_idle: median(ratios).unwrap_or(f64::NAN),
            transactions,
            #[expect(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
            transactions_per_s: transactions as f64 / gathered.busy.as_secs_f64().max(f64::MIN_POSITIVE),
            orders_checked: gathered.orders_checked,
            looks: gathered.looks,
            changed_rows: changed,
        }
    };
    options.queries.iter().zip(&gathered.times).map(line).collect()
}
