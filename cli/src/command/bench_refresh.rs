//! `rackscan bench refresh`: what queries cost while refresh functions run.

use super::{bench::write_lines, load, query::selected};
use crate::{
    args::{BenchRefresh, Global},
    failure::Failure,
    output::{Cell, TextTable},
    progress,
    session::{Session, threads},
};
use rackscan_bench::refresh::{self, InterferenceLine, InterferenceOptions};

/// Measures with a progress bar.
pub(crate) fn run(global: &Global, asked: &BenchRefresh) -> Result<(), Failure> {
    let queries = selected(&asked.queries)?;
    let session = Session::open(global)?;
    load::ensure_tpch_at(&session, asked.scale)?;
    let options = InterferenceOptions {
        scale: asked.scale,
        queries,
        repeat: asked.repeat,
        streams: asked.streams,
        first_stream: asked.first,
        nice: asked.nice,
        policy: asked.placement.into(),
        threads: threads(global),
    };
    let bar = progress::turns();
    let lines = refresh::run(session.engine(), &session.handle(), &options, &mut |step| {
        bar.set_length(step.total);
        bar.set_position(step.done);
        bar.set_message(step.doing.to_owned());
    });
    bar.finish_and_clear();
    let lines = lines.map_err(|error| Failure::Runtime(error.to_string()))?;
    write_lines(&lines, asked.json.as_deref(), &shown(&lines))
}

/// What was measured, a row for each query, and what it comes to.
fn shown(lines: &[InterferenceLine]) -> String {
    let mut table = TextTable::new(&["query", "idle ms", "refreshing ms", "ratio"]);
    for line in lines {
        let figure = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
        table.push(vec![
            Cell::from(line.query.as_str()),
            figure(line.idle_median_ms, 2),
            figure(line.busy_median_ms, 2),
            figure(line.busy_over_idle, 3),
        ]);
    }
    let text = table.render(crate::args::Format::Table);
    let Some(line) = lines.first() else { return text };
    format!(
        "{text}{} transactions, {:.0} in a second of refreshing; {} looks at {} orders, each whole; {} rows had changed at the end\n",
        line.transactions, line.transactions_per_s, line.looks, line.orders_checked, line.changed_rows
    )
}
