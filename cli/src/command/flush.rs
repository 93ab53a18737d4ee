//! `rackscan flush`: flushes changed rows into segments.

use crate::{
    args::{Flush, warn_command},
    failure::Failure,
    output::{Cell, TextTable, print_text},
    progress,
    session::Session,
};
use rackscan_engine::{FlushOutcome, Flushed};

/// The same, by its old name.
pub(crate) fn run_by_old_name(session: &Session, asked: &Flush) -> Result<(), Failure> {
    warn_command("seal", "flush");
    run(session, asked)
}

/// Flushes tables one after the other, and lets nodes delete rows of dropped tables.
pub(crate) fn run(session: &Session, asked: &Flush) -> Result<(), Failure> {
    let engine = session.engine();
    let all = || engine.tables().into_iter().filter(|info| info.broken.is_none()).map(|info| info.name);
    let tables: Vec<String> = if asked.tables.is_empty() { all().collect() } else { asked.tables.clone() };
    let columns = ["table", "rows", "rewritten", "segments", "stored", "seconds", "closed ms", "outcome"];
    let mut shown = TextTable::new(&columns);
    let steps = progress::steps();
    for table in &tables {
        steps.set_message(format!("flushing {table}"));
        let outcome = session.block_on(engine.flush(table)).inspect_err(|_| steps.finish_and_clear())?;
        if outcome != FlushOutcome::Nothing || !asked.tables.is_empty() {
            shown.push(row(table, outcome));
        }
    }
    let swept = session.block_on(engine.sweep());
    steps.finish_and_clear();
    print_text(&shown.render(asked.format))?;
    match swept? {
        0 => {}
        tables => note!("nodes deleted the changed rows of {tables} dropped tables"),
    }
    Ok(())
}

fn row(table: &str, outcome: FlushOutcome) -> Vec<Cell> {
    let (flushed, said) = match outcome {
        FlushOutcome::Flushed(flushed) => (Some(flushed), "flushed"),
        FlushOutcome::Nothing => (None, "nothing has changed"),
        FlushOutcome::Overtaken => (None, "replaced or dropped meanwhile"),
    };
    let figure = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
    match flushed {
        Some(Flushed { rows, rewritten, segments, stored_bytes, elapsed, closed, .. }) => vec![
            Cell::from(table.to_owned()),
            Cell::from(rows),
            Cell::from(rewritten),
            Cell::from(segments),
            Cell::Bytes(stored_bytes),
            figure(elapsed.as_secs_f64(), 2),
            figure(closed.as_secs_f64() * 1e3, 1),
            Cell::from(said.to_owned()),
        ],
        None => vec![
            Cell::from(table.to_owned()),
            Cell::from(0_u64),
            Cell::from(0_u64),
            Cell::from(0_usize),
            Cell::Bytes(0),
            figure(0.0, 2),
            figure(0.0, 1),
            Cell::from(said.to_owned()),
        ],
    }
}
