//! `rackscan refresh`: runs the refresh functions of TPC-H.

use super::load::tpch_scale;
use crate::{
    args::{Global, Refresh},
    failure::Failure,
    output::{Cell, TextTable, print_text},
    progress,
    session::Session,
};
use rackscan_bench::refresh::{RefreshError, Refresher, StreamOutcome};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Runs the streams in parallel, with a progress bar.
pub(crate) fn run(global: &Global, asked: &Refresh) -> Result<(), Failure> {
    let session = &Session::open_nice(global, asked.nice)?;
    let scale = tpch_scale(session)?;
    let mut total = 0;
    for stream in asked.first..asked.first.saturating_add(asked.streams) {
        total += rackscan_datasets::refresh::orders_per_stream(scale, stream)
            .map_err(|fault| Failure::Usage(fault.to_string()))?;
    }
    let bar = progress::requests(total);
    let stop = AtomicBool::new(false);
    let outcomes = thread::scope(|scope| {
        let mut running = Vec::new();
        for stream in asked.first..asked.first.saturating_add(asked.streams) {
            let (bar, stop) = (&bar, &stop);
            let one = move || {
                let outcome = Refresher::open(session.engine(), session.handle(), scale)
                    .and_then(|mut refresher| refresher.run(asked.function, stream, stop, &|_| bar.inc(1)));
                // A failed stream stops the others between two transactions.
                stop.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            };
            running.push((
                stream,
                thread::Builder::new().name(format!("stream {stream}")).spawn_scoped(scope, one),
            ));
        }
        let joined = running.into_iter().map(|(stream, thread)| {
            let thread = thread.map_err(|source| RefreshError::Thread { stream, source });
            let panicked = |_| std::panic::panic_any(format!("stream {stream} has panicked"));
            (stream, thread.and_then(|thread| thread.join().unwrap_or_else(panicked)))
        });
        joined.collect::<Vec<_>>()
    });
    bar.finish_and_clear();
    session.rest();
    shown(asked, outcomes)
}

/// Prints what each stream did, then returns the first failure.
fn shown(asked: &Refresh, outcomes: Vec<(u32, Result<StreamOutcome, RefreshError>)>) -> Result<(), Failure> {
    let mut table = TextTable::new(&[
        "stream",
        "orders",
        "lines",
        "not there",
        "seconds",
        "orders/s",
        "p50 ms",
        "p99 ms",
    ]);
    let mut failed = None;
    for (stream, outcome) in outcomes {
        match outcome {
            Ok(mut outcome) => {
                let ms = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64() * 1e3;
                let (median, last) = (ms(outcome.latency(0.5)), ms(outcome.latency(0.99)));
                let seconds = outcome.elapsed.as_secs_f64();
                #[expect(clippy::cast_precision_loss, reason = "a rate")]
                let rate = outcome.orders as f64 / seconds.max(f64::MIN_POSITIVE);
                let StreamOutcome { orders, lines, absent, .. } = outcome;
                let figure = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
                table.push(vec![
                    Cell::Number(stream.to_string()),
                    Cell::from(orders),
                    Cell::from(lines),
                    Cell::from(absent),
                    figure(seconds, 2),
                    figure(rate, 0),
                    figure(median, 2),
                    figure(last, 2),
                ]);
            }
            Err(error) => failed = failed.or(Some((stream, error))),
        }
    }
    print_text(&table.render(asked.format))?;
    match failed {
        None => Ok(()),
        Some((stream, error)) => Err(Failure::Runtime(format!(
            "stream {stream}: {error}; earlier transactions are committed, and no order is incomplete"
        ))),
    }
}
