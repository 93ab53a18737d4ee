//! Measures queries while refresh functions run at full rate.
//!
//! Method: turns without and with refreshes alternate; in each, every query runs once. In turns
//! with refreshes every stream inserts and deletes without a pause. After each query, in both kinds
//! of turns, one statement checks whether any order is only partly visible; so each query follows
//! the same statement, and finds the same data in caches. Streams are sessions of their own, in a
//! process of their own unless the caller asks otherwise.
//!
//! Invariants
//! - Ratios are medians over adjacent turns, in one run.
//! - Rows that refreshes have changed stay changed: later turns without refreshes scan these rows,
//!   too.
//! - Every order that a stream has inserted or deleted is checked, at the latest from the next turn
//!   on.

use super::{Expected, RefreshError, Streams};
use crate::Provenance;
use az::SaturatingAs;
use rackscan_datasets::refresh::orders_per_stream;
use rackscan_engine::Engine;
use rackscan_lab::{Step, median};
use rackscan_planner::Policy;
use rackscan_queries::Query;
use serde::Serialize;
use std::time::Instant;
use tokio::runtime::Handle;

/// Maximum orders per stream that the check includes ahead of a turn; further ones are checked
/// after it.
const ORDERS_AHEAD: u64 = 3_000;
/// Minimum number of streams ahead that the check includes, per working stream.
const STREAMS_AHEAD_MIN: u64 = 4;

/// Where streams run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamsIn {
    /// In a process of their own.
    Process,
    /// In threads of the querying process.
    Thread,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct InterferenceOptions {
    /// The scale factor of the loaded tables.
    pub scale: f64,
    /// The queries.
    pub queries: Vec<Query>,
    /// Number of turns that count, without and with refreshes each.
    pub repeat: u32,
    /// Number of concurrent streams.
    pub streams: u32,
    /// The first stream that has not been run; each can run once.
    pub first_stream: u32,
    /// Where the streams run.
    pub streams_in: StreamsIn,
    /// Niceness of the streams.
    pub nice: u8,
    /// Where scans run.
    pub policy: Policy,
    /// Threads of the engine.
    pub threads: usize,
}

/// One query.
#[derive(Clone, Debug, Serialize)]
pub struct InterferenceLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The query.
    pub query: String,
    /// Where scans ran.
    pub placement: String,
    /// Threads of the engine.
    pub threads: usize,
    /// Number of concurrent streams.
    pub streams: u32,
    /// Where the streams ran.
    pub streams_in: StreamsIn,
    /// Niceness of the streams.
    pub nice: u8,
    /// Milliseconds of each turn without refreshes.
    pub idle_ms: Vec<f64>,
    /// Milliseconds of each turn with refreshes.
    pub busy_ms: Vec<f64>,
    /// Median of the turns without refreshes.
    pub idle_median_ms: f64,
    /// Median of the turns with refreshes.
    pub busy_median_ms: f64,
    /// Median of the ratios of adjacent turns.
    pub busy_over_idle: f64,
    /// Transactions that committed in all turns with refreshes.
    pub transactions: u64,
    /// Orders inserted by RF1.
    pub inserted: u64,
    /// Orders deleted by RF2.
    pub deleted: u64,
    /// Transactions per second of those turns.
    pub transactions_per_s: f64,
    /// Orders checked for being complete, over all checks.
    pub orders_checked: u64,
    /// Number of checks.
    pub looks: u64,
    /// Number of changed rows at the end.
    pub changed_rows: u64,
}

/// Times of a query, without and with refreshes.
#[derive(Clone, Debug, Default)]
struct Times {
    idle: Vec<f64>,
    busy: Vec<f64>,
}

/// Results over all turns.
#[derive(Default)]
struct Gathered {
    times: Vec<Times>,
    inserted: u64,
    deleted: u64,
    busy_s: f64,
    looks: u64,
    orders_checked: u64,
}

/// Runs the measurement with streams that rest at first. The calling thread may block.
///
/// # Errors
/// A query or transaction that fails, or an order that was partly visible.
pub fn run(
    engine: &Engine,
    runtime: &Handle,
    options: &InterferenceOptions,
    streams: &mut dyn Streams,
    on_step: &mut dyn FnMut(&Step<'_>),
) -> Result<Vec<InterferenceLine>, RefreshError> {
    engine.set_policy(options.policy);
    let mut watched = Watched::new(options)?;
    watched.reach(engine, runtime, options.first_stream)?;
    let mut gathered =
        Gathered { times: vec![Times::default(); options.queries.len()], ..Gathered::default() };
    let total = options.repeat as usize * 2 + 1;
    on_step(&Step { done: 0, total, doing: "warming up" });
    for query in &options.queries {
        runtime.block_on(engine.sql(query.sql))?;
    }
    for turn in 0..options.repeat {
        on_step(&Step { done: turn as usize * 2 + 1, total, doing: "without refreshes" });
        for (number, query) in options.queries.iter().enumerate() {
            let time = gathered.look_after(engine, runtime, query, &watched.expected)?;
            gathered.times[number].idle.push(time);
        }
        on_step(&Step { done: turn as usize * 2 + 2, total, doing: "with refreshes" });
        streams.go()?;
        for (number, query) in options.queries.iter().enumerate() {
            let time = gathered.look_after(engine, runtime, query, &watched.expected)?;
            gathered.times[number].busy.push(time);
        }
        let turn = streams.pause()?;
        gathered.inserted += turn.inserted;
        gathered.deleted += turn.deleted;
        gathered.busy_s += turn.seconds;
        watched.reach(engine, runtime, turn.next_stream)?;
    }
    // The orders of the last turn are checked, too.
    gathered.look(engine, runtime, &watched.expected)?;
    runtime.block_on(engine.refresh())?;
    Ok(lines(engine, options, &gathered))
}

/// The orders that are checked.
struct Watched {
    scale: f64,
    /// Number of streams that a turn may reach.
    ahead: u32,
    /// The first stream that is not checked.
    end: u32,
    expected: Expected,
}

impl Watched {
    fn new(options: &InterferenceOptions) -> Result<Self, RefreshError> {
        let touched = orders_per_stream(options.scale, options.first_stream)? * 2;
        let for_each = ORDERS_AHEAD.div_ceil(touched.max(1)).max(STREAMS_AHEAD_MIN);
        let ahead = options.streams.saturating_mul(for_each.saturating_as::<u32>());
        Ok(Self { scale: options.scale, ahead, end: options.first_stream, expected: Expected::default() })
    }

    /// Adds the orders of all streams that a turn starting with stream `next` may reach.
    fn reach(&mut self, engine: &Engine, runtime: &Handle, next: u32) -> Result<(), RefreshError> {
        if self.end > next && self.end >= next.saturating_add(self.ahead / 2) {
            return Ok(());
        }
        let exists = |stream: &u32| orders_per_stream(self.scale, *stream).is_ok();
        let more: Vec<u32> = (self.end..next.saturating_add(self.ahead)).take_while(exists).collect();
        runtime.block_on(self.expected.add(engine, self.scale, &more))?;
        self.end += more.len().saturating_as::<u32>();
        Ok(())
    }
}

impl Gathered {
    /// Milliseconds of a query; afterwards checks whether every order is complete.
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
        self.look(engine, runtime, expected)?;
        Ok(time.as_secs_f64() * 1e3)
    }

    /// Checks that every order is complete.
    fn look(&mut self, engine: &Engine, runtime: &Handle, expected: &Expected) -> Result<(), RefreshError> {
        self.orders_checked += runtime.block_on(expected.check(engine))?;
        self.looks += 1;
        Ok(())
    }
}

fn lines(engine: &Engine, options: &InterferenceOptions, gathered: &Gathered) -> Vec<InterferenceLine> {
    let transactions = gathered.inserted + gathered.deleted;
    let changed = engine.tables().iter().map(|table| table.changed_rows).sum();
    let line = |(query, times): (&Query, &Times)| {
        let ratios = times.idle.iter().zip(&times.busy).map(|(idle, busy)| busy / idle).collect();
        InterferenceLine {
            provenance: Provenance::now("refresh", options.scale),
            query: query.name(),
            placement: options.policy.to_string(),
            threads: options.threads,
            streams: options.streams,
            streams_in: options.streams_in,
            nice: options.nice,
            idle_ms: times.idle.clone(),
            busy_ms: times.busy.clone(),
            idle_median_ms: median(times.idle.clone()).unwrap_or(f64::NAN),
            busy_median_ms: median(times.busy.clone()).unwrap_or(f64::NAN),
            busy_over_idle: median(ratios).unwrap_or(f64::NAN),
            transactions,
            inserted: gathered.inserted,
            deleted: gathered.deleted,
            #[expect(clippy::cast_precision_loss, reason = "a rate: 53 bits are plenty")]
            transactions_per_s: transactions as f64 / gathered.busy_s.max(f64::MIN_POSITIVE),
            orders_checked: gathered.orders_checked,
            looks: gathered.looks,
            changed_rows: changed,
        }
    };
    options.queries.iter().zip(&gathered.times).map(line).collect()
}
