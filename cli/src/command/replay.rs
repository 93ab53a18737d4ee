//! `rackscan lab replay`: replays a trace.
//!
//! Invariants
//! - If a replay ends early, its report is printed before the error, and says that it is partial.
//! - Wrong arguments and unreadable files end the command before a node is started.

use crate::{
    args::{Global, Replay as Asked},
    cluster::{ReplayDevices, ReplayDevicesOptions, ScratchOptions},
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
    progress,
};
use indicatif::ProgressBar;
use rackscan_format::message::IoKind;
use rackscan_lab::{
    Provenance,
    replay::{self, Plan, PlanOptions, Replay, ReplayReport, Replayed, Setting, Timing},
};
use rackscan_trace::{OnDefect, ReadOptions, Record, TraceError, TraceReader};
use serde::Serialize;
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
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
    let stop = watched()?;
    let mut reader = TraceReader::open(file, &read_options(asked))?;
    let bar = progress::steps();
    bar.set_message(match &asked.folder {
        Some(folder) => format!("writing {} bytes in {}", asked.file_size, folder.display()),
        None => "looking at the cluster".to_owned(),
    });
    let devices = ReplayDevices::prepare(global, devices_options(asked));
    bar.finish_and_clear();
    let devices = devices?;
    let plan = read(&mut reader, &devices, asked, &stop)?;
    note_defects(&reader);
    let setting = setting(file, &reader, &devices, asked);
    let (report, replayed) = replayed(asked, (&plan, &devices), setting, &stop)?;
    drop(devices);
    publish(asked, &report, earlier.first())?;
    ended(&report, &replayed)
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

fn devices_options(asked: &Asked) -> ReplayDevicesOptions {
    let scratch = asked.folder.clone().map(|folder| ScratchOptions {
        folder,
        file_bytes: asked.file_size,
        keep: asked.keep,
        cache_bytes: asked.cache.unwrap_or(0),
        verbs: None,
    });
    ReplayDevicesOptions {
        local: asked.local,
        bridge: asked.bridge,
        io: asked.io,
        io_threads: asked.io_threads,
        cache_bytes: asked.cache,
        connections: asked.connections,
        scratch,
    }
}

/// A flag that Ctrl-C or SIGTERM sets.
fn watched() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::Runtime(format!("cannot watch for signals: {error}")))?;
    }
    Ok(stop)
}

/// Reads the whole trace as requests.
fn read(
    reader: &mut TraceReader,
    devices: &ReplayDevices,
    asked: &Asked,
    stop: &AtomicBool,
) -> Result<Plan, Failure> {
    let options = PlanOptions { offsets: asked.offsets, strict: asked.strict, records_max: asked.records };
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

fn setting(file: &Path, reader: &TraceReader, devices: &ReplayDevices, asked: &Asked) -> Setting {
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
    }
}

/// Runs the replay with a progress bar.
fn replayed(
    asked: &Asked,
    (plan, devices): (&Plan, &ReplayDevices),
    setting: Setting,
    stop: &AtomicBool,
) -> Result<(ReplayReport, Replayed), Failure> {
    let (ended, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let run = Replay {
        plan,
        timing: if asked.no_stall { Timing::NoStall } else { Timing::AtSpeed(asked.speed) },
        connections: asked.connections,
        depth: asked.depth,
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
