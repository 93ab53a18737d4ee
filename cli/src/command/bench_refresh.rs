//! `rackscan lab refresh`: measures queries while refresh functions (inserts and deletes of orders)
//! run.
//!
//! Two processes of this program take part: one measures queries and tells the other, `rackscan lab
//! refresh-streams`, when to refresh.

use super::{bench::write_lines, load, query::selected};
use crate::{
    args::{BenchRefresh, BenchRefreshStreams, Global},
    failure::Failure,
    output::{Cell, PrintError, TextTable},
    progress,
    session::{Session, threads},
};
use rackscan_bench::refresh::{
    self, Answer, InterferenceLine, InterferenceOptions, Streams, StreamsIn, StreamsOptions, StreamsProcess,
};
use std::{
    io::{Write, stdin, stdout},
    os::unix::process::CommandExt,
    process::Command,
};

/// Runs the measurement with a progress bar.
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
        streams_in: asked.streams_in,
        nice: asked.nice,
        policy: asked.placement,
        threads: threads(global),
    };
    let bar = progress::turns();
    let measure = |streams: &mut dyn Streams| {
        refresh::run(session.engine(), &session.handle(), &options, streams, &mut |step| {
            progress::show(&bar, step);
        })
    };
    let lines = match options.streams_in {
        StreamsIn::Process => {
            StreamsProcess::start(process(global, asked)?).and_then(|mut streams| measure(&mut streams))
        }
        StreamsIn::Thread => {
            let streams = StreamsOptions {
                scale: asked.scale,
                streams: asked.streams,
                first_stream: asked.first,
                nice: asked.nice,
            };
            refresh::by_turns(session.engine(), &session.handle(), &streams, measure)
        }
    };
    bar.finish_and_clear();
    let lines = lines?;
    write_lines(&lines, asked.json.as_deref(), &shown(&lines))
}

/// The command that starts the process of the streams, over the same nodes and with the same
/// options as this one.
fn process(global: &Global, asked: &BenchRefresh) -> Result<Command, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Runtime(format!("cannot find the file of this program: {error}")))?;
    let mut command = Command::new(program);
    command.args(global.words()).args(["lab", "refresh-streams"]);
    command.args(["--scale", &asked.scale.to_string()]);
    command.args(["--streams", &asked.streams.to_string(), "--first", &asked.first.to_string()]);
    command.args(["--nice", &asked.nice.to_string(), "--placement", &asked.placement.to_string()]);
    // A process group of its own: Ctrl-C reaches only this command, with which the other process
    // ends.
    command.process_group(0);
    Ok(command)
}

/// `rackscan lab refresh-streams`: refreshes when standard input says so. Reports errors to the
/// process that started it.
pub(crate) fn streams(global: &Global, asked: &BenchRefreshStreams) -> Result<(), Failure> {
    serve(global, asked).or_else(|failure| {
        say(&Answer::Failed { reason: failure.to_string() }).map_err(PrintError::from)?;
        Err(Failure::Said)
    })
}

fn serve(global: &Global, asked: &BenchRefreshStreams) -> Result<(), Failure> {
    let session = Session::open_nice(global, asked.nice)?;
    session.engine().set_policy(asked.placement);
    let &BenchRefreshStreams { scale, streams, first: first_stream, .. } = asked;
    // The streams inherit the niceness of this thread.
    let options = StreamsOptions { scale, streams, first_stream, nice: 0 };
    let done = refresh::by_turns(session.engine(), &session.handle(), &options, |streams| {
        refresh::answer(streams, stdin().lock(), &mut say)
    });
    session.rest();
    Ok(done?)
}

fn say(answer: &Answer) -> std::io::Result<()> {
    let mut out = stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The table, with a row for each query, and a summary.
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
        "{text}{} transactions ({} orders inserted, {} deleted), {:.0} in a second of refreshing; {} looks at {} orders, each whole; {} rows had changed at the end\n",
        line.transactions,
        line.inserted,
        line.deleted,
        line.transactions_per_s,
        line.looks,
        line.orders_checked,
        line.changed_rows
    )
}
