//! `--compare-placements`: measures the time of a query under each placement, and checks that its
//! answer is always the same.
//!
//! Invariants
//! - The placements alternate, so that changes of the environment affect all of them.
//! - Answers are compared as bags of rows, because the order is undefined without ORDER BY.
//!   Floating-point numbers are compared to nine digits, because the order of summation is
//!   undefined, too.

use crate::{
    args::Format,
    failure::Failure,
    output::{Cell, TextTable, print_text},
    session::Session,
};
use arrow::{
    array::RecordBatch,
    datatypes::DataType,
    error::ArrowError,
    util::display::{ArrayFormatter, DurationFormat, FormatOptions},
};
use rackscan_engine::{EngineError, QueryOutcome, ScanFigures};
use rackscan_planner::{Placement, Policy};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

/// Fewer repetitions do not show how much times vary.
const TURNS_MIN: u32 = 3;

/// Runs a statement under every placement, alternating, and prints the times.
pub(crate) fn compare(session: &Session, sql: &str, repeat: u32, format: Format) -> Result<(), Failure> {
    let mut runs = Policy::ALL.map(|policy| Runs { policy, ..Runs::default() });
    for _ in 0..repeat.max(TURNS_MIN) {
        for runs in &mut runs {
            runs.turn(session, sql)?;
        }
    }
    let answers: Vec<Answer> = runs.iter().flat_map(|runs| runs.answers.iter().copied()).collect();
    let mut table = TextTable::new(&[
        "placement",
        "best_ms",
        "median_ms",
        "disk_bytes",
        "wire_bytes",
        "engine_cpu_ms",
        "node_cpu_ms",
        "local",
        "remote_fetch",
        "remote_process",
        "bounced",
        "rows",
        "answer",
    ]);
    for runs in &runs {
        table.push(runs.row(&answers, table.columns()));
    }
    print_text(&table.render(format))?;
    if answers.iter().all(|answer| Some(answer) == answers.first()) {
        return Ok(());
    }
    Err(Failure::Runtime(
        "the answers of the placements differ: please report this, unless the query may have several right answers (LIMIT without ORDER BY)".to_owned(),
    ))
}

/// All runs under one placement.
#[derive(Default)]
struct Runs {
    policy: Policy,
    times: Vec<Duration>,
    answers: Vec<Answer>,
    /// Figures of the last run.
    figures: ScanFigures,
    cannot_apply: Option<String>,
}

/// A bag of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    rows: u64,
    digest: u64,
}

impl Runs {
    fn turn(&mut self, session: &Session, sql: &str) -> Result<(), Failure> {
        if self.cannot_apply.is_some() {
            return Ok(());
        }
        session.engine().set_policy(self.policy);
        let outcome: QueryOutcome =
            match session.block_on(async { Ok::<_, Failure>(session.engine().sql(sql).await) })? {
                Ok(outcome) => outcome,
                Err(EngineError::Placement(error)) => {
                    self.cannot_apply = Some(error.to_string());
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
        self.times.push(outcome.report.elapsed);
        self.figures = outcome.report.total;
        let answer = Answer::of(&outcome.batches);
        self.answers
            .push(answer.map_err(|error| Failure::Runtime(format!("cannot read the answer: {error}")))?);
        Ok(())
    }

    fn row(&self, answers: &[Answer], columns: usize) -> Vec<Cell> {
        let name = Cell::from(self.policy.to_string());
        if let Some(reason) = &self.cannot_apply {
            let unknown = (2..columns).map(|_| Cell::from("-"));
            return [name].into_iter().chain(unknown).chain([Cell::from(reason.clone())]).collect();
        }
        let mut times = self.times.clone();
        times.sort_unstable();
        let ms = |time: Option<&Duration>| {
            Cell::Number(format!("{:.1}", time.copied().unwrap_or_default().as_secs_f64() * 1e3))
        };
        let cpu = |us: u64| Cell::Number(format!("{:.1}", Duration::from_micros(us).as_secs_f64() * 1e3));
        let work = self.figures.all_work();
        let same = answers.iter().all(|answer| Some(answer) == answers.first());
        let rows = self.answers.last().map_or(0, |answer| answer.rows);
        let mut cells = vec![name, ms(times.first()), ms(times.get(times.len() / 2))];
        cells.extend([Cell::Bytes(work.disk_bytes), Cell::Bytes(work.wire_bytes)]);
        cells.extend([cpu(work.engine_cpu_us), cpu(work.node_cpu_us)]);
        cells.extend(
            [Placement::Local, Placement::RemoteFetch, Placement::RemoteProcess]
                .map(|placement| Cell::from(self.figures.segments.of(placement))),
        );
        let verdict = if same { "equal" } else { "DIFFERENT" };
        cells.extend([Cell::from(self.figures.bounced), Cell::from(rows), Cell::from(verdict)]);
        cells
    }
}

impl Answer {
    fn of(batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let mut answer = Self::default();
        let options = FormatOptions::default().with_null("NULL").with_duration_format(DurationFormat::Pretty);
        for batch in batches {
            let columns = batch.columns().iter().map(|column| {
                let floats = matches!(column.data_type(), DataType::Float32 | DataType::Float64);
                Ok((ArrayFormatter::try_new(column.as_ref(), &options)?, floats))
            });
            let columns: Vec<(ArrayFormatter<'_>, bool)> = columns.collect::<Result<_, ArrowError>>()?;
            for row in 0..batch.num_rows() {
                let mut hasher = DefaultHasher::new();
                for (column, floats) in &columns {
                    let text = column.value(row).try_to_string()?;
                    match text.parse::<f64>() {
                        Ok(number) if *floats => format!("{number:.8e}").hash(&mut hasher),
                        _ => text.hash(&mut hasher),
                    }
                }
                answer.rows += 1;
                answer.digest = answer.digest.wrapping_add(hasher.finish());
            }
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Float64Array, Int64Array};
    use std::sync::Arc;

    fn rows(keys: &[i64], values: &[f64]) -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let values: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        RecordBatch::try_from_iter([("key", keys), ("value", values)]).unwrap()
    }

    #[test]
    fn answers_are_equal_whatever_the_order_of_rows_and_of_sums() {
        let one = Answer::of(&[rows(&[1, 2], &[0.1 + 0.2, 5.0])]).unwrap();
        let other = Answer::of(&[rows(&[2], &[5.0]), rows(&[1], &[0.3])]).unwrap();
        assert_eq!(one, other);
    }

    #[test]
    fn a_row_more_or_another_value_is_another_answer() {
        let one = Answer::of(&[rows(&[1, 2], &[1.0, 2.0])]).unwrap();
        for other in [rows(&[1, 2], &[2.0, 1.0]), rows(&[1], &[1.0]), rows(&[1, 2, 2], &[1.0, 2.0, 2.0])] {
            assert_ne!(Answer::of(&[other]).unwrap(), one);
        }
    }
}
