//! `rackscan lab replay`: replays a trace.
//!
//! Invariants
//! - If a replay ends early, its report is printed before the error, and says that it is partial.
//! - Wrong arguments and unreadable files end the command before a node is started.

use super::{bench, signals::stop_on_signals};
use crate::{
    args::{Global, Replay as Asked},
    cluster::{ReplayDevices, ReplayDevicesOptions, ScratchNodes, ScratchOptions},
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
    progress,
};
use indicatif::ProgressBar;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::{
    Provenance, check_threads,
    limits::{DEPTH_MAX, SERVING_MAX},
    replay::{
        self, Plan, PlanOptions, Replay, ReplayCase, ReplayLine, ReplayReport, Replayed, Setting, Timing,
    },
};
use rackscan_trace::{OnDefect, ReadOptions, Record, TraceError, TraceReader};
use serde::Serialize;
use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// How often the progress bar is updated.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Number of records between two checks for progress and interruption.
const RECORDS_PER_LOOK: u64 = 1 << 14;

/// Replays a trace, or compares two earlier replays.
pub(crate) fn run(global: &Global, asked: &Asked) -> Result<(), Failure> {
    let earlier = asked.compare.iter().map(|path| report_in(path)).collect::<Result<Vec<_>, _>>()?;
    let Some(file) = &asked.file else {
        let [a, b] = earlier.as_slice() else {
            let text = "--compare with one report compares a replay with it: name a trace, or two reports";
            return Err(Failure::Usage(text.to_owned()));
        };
        return print_text(&differences(a, b).to_string());
    };
    if earlier.len() > 1 {
        let text = "--compare with two reports replays nothing: leave out the trace, or one report";
        return Err(Failure::Usage(text.to_owned()));
    }
    let cases = asked.axes(global.wire).cases();
    let is_one = cases.len() == 1 && asked.repeat == 1;
    if !is_one && !earlier.is_empty() {
        let text = "--compare compares one replay: give one value to each option, and leave out --repeat";
        return Err(Failure::Usage(text.to_owned()));
    }
    check(asked, &cases)?;
    let stop = stop_on_signals()?;
    // A trace that cannot be read ends the command before a file is written for it.
    drop(TraceReader::open(file, &read_options(asked))?);
    let mut scratch = scratch(asked)?;
    let mut grounds = Grounds { global, asked, file, scratch: scratch.as_mut(), stop: &stop };
    if !is_one {
        return several(&mut grounds, &cases);
    }
    let (report, replayed) = grounds.replay(cases[0], true)?;
    publish(asked, &report, earlier.first())?;
    ended(&report, &replayed)
}

/// Checks every replay before the first one runs.
fn check(asked: &Asked, cases: &[ReplayCase]) -> Result<(), Failure> {
    let found = cases.len() as u64 * u64::from(asked.repeat);
    if found > REPLAYS_MAX {
        return Err(Failure::Usage(format!("{found} replays, at most {REPLAYS_MAX} are possible")));
    }
    for case in cases {
        if case.depth > DEPTH_MAX {
            let depth = case.depth;
            return Err(Failure::Usage(format!("--depths {depth}: at most {DEPTH_MAX} requests in flight")));
        }
        let is_static = case.bridge == Some(BridgeKind::Static);
        if let Some(threads) = case.io_threads
            && (is_static || case.local)
        {
            let pools = if is_static { case.connections.min(SERVING_MAX.into()) } else { case.connections };
            check_threads(pools, threads).map_err(|error| Failure::Usage(error.to_string()))?;
        }
    }
    Ok(())
}

/// Maximum number of replays of one command.
const REPLAYS_MAX: u64 = 10_000;

/// The node and file of `--folder`, if it is given.
fn scratch(asked: &Asked) -> Result<Option<ScratchNodes>, Failure> {
    let Some(folder) = asked.folder.clone() else { return Ok(None) };
    let options = ScratchOptions {
        folder,
        file_bytes: asked.file_size,
        keep: asked.keep,
        cache_bytes: asked.cache.unwrap_or(0),
        verbs: None,
    };
    ScratchNodes::create(&options).map(Some)
}

/// What all replays of a command share.
struct Grounds<'a> {
    global: &'a Global,
    asked: &'a Asked,
    file: &'a Path,
    scratch: Option<&'a mut ScratchNodes>,
    stop: &'a AtomicBool,
}

impl Grounds<'_> {
    /// Replays the trace once. Only the first replay of a command reports lines of the file that
    /// are no records.
    fn replay(&mut self, case: ReplayCase, is_first: bool) -> Result<(ReplayReport, Replayed), Failure> {
        let asked = self.asked;
        let mut reader = TraceReader::open(self.file, &read_options(asked))?;
        let bar = progress::steps();
        bar.set_message(match &asked.folder {
            Some(folder) => format!("preparing {} bytes in {}", asked.file_size, folder.display()),
            None => "looking at the cluster".to_owned(),
        });
        let options =
            ReplayDevicesOptions { case, io: asked.io, cache_bytes: asked.cache, batch: asked.batch };
        let devices = ReplayDevices::prepare(self.global, &options, self.scratch.as_deref_mut());
        bar.finish_and_clear();
        let devices = devices?;
        let plan = read(&mut reader, (&devices, case), asked, self.stop)?;
        if is_first {
            note_defects(&reader);
        }
        let setting = setting(self.file, &reader, (&devices, case), asked);
        replayed(asked, (&plan, &devices, case), setting, self.stop)
    }
}

/// Replays all cases in each round, and reports a line for each.
fn several(grounds: &mut Grounds<'_>, cases: &[ReplayCase]) -> Result<(), Failure> {
    let asked = grounds.asked;
    let mut rounds: Vec<Vec<ReplayReport>> = vec![Vec::new(); cases.len()];
    let mut failure = None;
    'rounds: for round in 0..asked.repeat {
        for (index, case) in cases.iter().enumerate() {
            match grounds.replay(*case, round == 0 && index == 0) {
                Ok((report, replayed)) => {
                    let ended = ended(&report, &replayed);
                    if replayed.cut_short.is_none() {
                        rounds[index].push(report);
                    }
                    failure = failure.or(ended.err());
                    if replayed.cut_short.is_some() {
                        break 'rounds;
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break 'rounds;
                }
            }
        }
    }
    let line = |rounds: &Vec<ReplayReport>| ReplayLine::of(Provenance::now("replay", 0.0), rounds);
    let lines: Vec<ReplayLine> = rounds.iter().filter_map(line).collect();
    let page = || {
        let file = grounds.file.display().to_string();
        replay::grid_report(&lines, Provenance::now("replay", 0.0).named(file))
    };
    bench::publish(&lines, &table(&lines), (asked.json.as_deref(), asked.report.as_deref()), &page)?;
    match failure {
        Some(Failure::Runtime(text)) if !lines.is_empty() => {
            Err(Failure::Runtime(format!("{text}; the lines above are of the replays before")))
        }
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn table(lines: &[ReplayLine]) -> TextTable {
    let head = [
        "mode",
        "wire",
        "bridge",
        "threads",
        "connections",
        "depth",
        "size",
        "requests",
        "seconds",
        "iops",
        "mb_per_s",
        "p50_us",
        "p99_us",
    ];
    let mut table = TextTable::new(&head);
    for ReplayLine { report, .. } in lines {
        let Setting { mode, wire, bridge, io_threads, size_bytes, .. } = &report.setting;
        let word = |word: &Option<String>| Cell::from(word.clone().unwrap_or_else(|| "-".to_owned()));
        let number = |number: Option<u32>| Cell::Number(number.map_or("-".to_owned(), |n| n.to_string()));
        table.push(vec![
            Cell::from(mode.clone()),
            word(wire),
            word(bridge),
            number(*io_threads),
            number(Some(report.connections)),
            number(Some(report.depth)),
            number(*size_bytes),
            Cell::Number(report.ios.to_string()),
            Cell::Number(format!("{:.3}", report.seconds)),
            Cell::Number(format!("{:.0}", report.iops)),
            Cell::Number(format!("{:.1}", report.mb_per_s)),
            Cell::Number(format!("{:.1}", report.from_issue.p50_us)),
            Cell::Number(format!("{:.1}", report.from_issue.p99_us)),
        ]);
    }
    table
}

fn read_options(asked: &Asked) -> ReadOptions {
    ReadOptions {
        format: asked.format.0,
        columns: asked.columns.clone(),
        on_defect: if asked.strict { OnDefect::Stop } else { OnDefect::Skip },
        time_unit: asked.time_unit,
        offset_unit: asked.offset_unit,
    }
}

/// Reads the whole trace as requests.
fn read(
    reader: &mut TraceReader,
    (devices, case): (&ReplayDevices, ReplayCase),
    asked: &Asked,
    stop: &AtomicBool,
) -> Result<Plan, Failure> {
    let options = PlanOptions {
        offsets: asked.offsets,
        strict: asked.strict,
        records_max: asked.records,
        size_bytes: case.size_bytes,
    };
    let bar = progress::steps();
    let plan = Plan::new(Watched { reader, bar: &bar, stop, records: 0 }, &devices.map, options);
    bar.finish_and_clear();
    Ok(plan?)
}

/// A reader that shows its progress and ends when the user interrupts it.
struct Watched<'a> {
    reader: &'a mut TraceReader,
    bar: &'a ProgressBar,
    stop: &'a AtomicBool,
    records: u64,
}

impl Iterator for Watched<'_> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records += 1;
        if self.records.is_multiple_of(RECORDS_PER_LOOK) {
            let (read, all) = self.reader.progress_bytes();
            let percent =
                (read * 100).checked_div(all).map_or_else(String::new, |part| format!(", {part} %"));
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            self.bar.set_message(format!("reading the trace: {} records{percent}", self.records));
        }
        self.reader.next()
    }
}

fn note_defects(reader: &TraceReader) {
    if reader.defects().count() > 0 {
        note!("{}", reader.defects());
    }
}

fn setting(
    file: &Path,
    reader: &TraceReader,
    (devices, case): (&ReplayDevices, ReplayCase),
    asked: &Asked,
) -> Setting {
    let threads = match (&devices.bridge, devices.reads_by) {
        (Some(bridge), _) => Some(bridge.io_threads).filter(|threads| *threads > 0),
        (None, Some((IoKind::Pread, threads))) => Some(threads),
        _ => None,
    };
    let local = devices.reads_by.map(|(io, _)| format!("local, {io}"));
    Setting {
        trace: file.display().to_string(),
        format: reader.format().to_string(),
        units: reader.units().to_string(),
        defects: reader.defects().count(),
        mode: local.unwrap_or_else(|| "remote".to_owned()),
        target: devices.name.clone(),
        wire: devices.wire.clone(),
        bridge: devices.bridge.as_ref().map(|bridge| bridge.kind.to_string()),
        io_threads: threads.map(u32::from),
        offsets: asked.offsets.to_string(),
        size_bytes: case.size_bytes,
    }
}

/// Runs the replay with a progress bar.
fn replayed(
    asked: &Asked,
    (plan, devices, case): (&Plan, &ReplayDevices, ReplayCase),
    setting: Setting,
    stop: &AtomicBool,
) -> Result<(ReplayReport, Replayed), Failure> {
    let (ended, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let run = Replay {
        plan,
        timing: if asked.no_stall { Timing::NoStall } else { Timing::AtSpeed(asked.speed) },
        connections: case.connections,
        depth: case.depth,
        late_after: asked.late_after,
        strict: asked.strict,
        warm_ups: asked.warm_up,
        peers: &devices.pids,
        stop,
        ended: &ended,
    };
    let bar = progress::requests(plan.requests());
    let replayed = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                bar.set_position(ended.load(Ordering::Relaxed));
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        let replayed = replay::replay(&run, &|connection| devices.target(connection));
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        replayed
    });
    bar.finish_and_clear();
    let replayed = replayed?;
    Ok((ReplayReport::new(setting, &run, &replayed), replayed))
}

/// A report in the form that files hold.
#[derive(Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    provenance: Provenance,
    #[serde(flatten)]
    report: &'a ReplayReport,
}

/// Prints the report, and writes the files that were asked for.
fn publish(asked: &Asked, report: &ReplayReport, earlier: Option<&ReplayReport>) -> Result<(), Failure> {
    let mut table = TextTable::new(&["replay", "value"]);
    for (name, value) in report.rows() {
        table.push(vec![Cell::from(name), Cell::from(value)]);
    }
    let mut text = table.to_string();
    if let Some(earlier) = earlier {
        text = format!("{text}\n{}", differences(earlier, report));
    }
    print_text(&text)?;
    if let Some(path) = &asked.json {
        let kept = Kept { provenance: Provenance::now("replay", 0.0), report };
        let json = serde_json::to_string_pretty(&kept)
            .map_err(|error| Failure::Runtime(format!("cannot write the report as JSON: {error}")))?;
        fs::write(path, json + "\n").map_err(at_path(path))?;
    }
    if let Some(folder) = &asked.report {
        let file = asked.file.as_ref().map_or_else(String::new, |file| file.display().to_string());
        let provenance = Provenance::now("replay", 0.0).named(file);
        let page = report.page(earlier, provenance).write(folder)?;
        note!("{}: the report", page.display());
    }
    Ok(())
}

fn ended(report: &ReplayReport, replayed: &Replayed) -> Result<(), Failure> {
    if let Some(why) = &replayed.cut_short {
        let ReplayReport { ios, requests, .. } = report;
        return Err(Failure::Runtime(format!(
            "{why} (the report above covers {ios} of {requests} requests, which had succeeded)"
        )));
    }
    match &report.first_failure {
        Some(first) => {
            Err(Failure::Runtime(format!("{} requests failed, the first: {first}", report.failed)))
        }
        None => Ok(()),
    }
}

fn report_in(path: &Path) -> Result<ReplayReport, Failure> {
    let text = fs::read_to_string(path).map_err(at_path(path))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::Runtime(format!(
            "{}: this file is not a report that was written by --json of a replay: {error}",
            path.display()
        ))
    })
}

fn differences(a: &ReplayReport, b: &ReplayReport) -> TextTable {
    let mut table = TextTable::new(&["difference", "A", "B", "B / A"]);
    for row in replay::compared(a, b) {
        let ratio = row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        table.push(vec![Cell::from(row.what), Cell::Number(row.a), Cell::Number(row.b), Cell::Number(ratio)]);
    }
    table
}
