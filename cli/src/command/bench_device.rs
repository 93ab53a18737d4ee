//! `rackscan lab device`: measures devices of this host under reads, writes, mixes and trims.
//!
//! Invariants
//! - Devices that the user names are written only with `--overwrite`, and only if they hold
//!   nothing.
//! - If the measurement ends early, its lines and table so far are printed before the error.

use super::{
    bench::{append_lines, ended, publish},
    signals::stop_on,
};
use crate::{
    args::{BenchDevice, Layout},
    cluster::own_folder,
    failure::{Failure, at_path},
    output::{Cell, TextTable},
    progress,
};
use az::SaturatingAs;
use rackscan_lab::{
    Arrivals, Bounds, Distribution, LoopKind, Provenance, Region, Spread, allowed_cores,
    devices::{
        DeviceAxes, DeviceCase, DeviceExperiment, DeviceLine, IoEngine, Measurement, StopRule, best_below,
        check_writable, job::Job, report,
    },
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

/// Maximum number of devices of one measurement.
const DEVICES_MAX: usize = 64;
/// Intervals of all turns that are kept, and of all threads of one turn.
const INTERVALS_OF_ALL_MAX: u32 = 1_000_000;
/// The region is a multiple of this, the largest alignment of direct IO.
const REGION_MULTIPLE_BYTES: u64 = 4096;
/// The longest turn of a job file that ends by its size.
const TURN_MAX: Duration = Duration::from_secs(24 * 3600);

/// Measures the grid that the options, or a job file, describe.
pub(crate) fn run(asked: &BenchDevice) -> Result<(), Failure> {
    let jobs = match &asked.job {
        Some(path) => jobs(asked, path)?,
        None => vec![asked.clone()],
    };
    for job in &jobs {
        check(job)?;
    }
    // A closed terminal, too: the file of this command must be removed.
    let stop = stop_on(&[SIGINT, SIGTERM, SIGHUP])?;
    let mut all = Vec::new();
    let mut outcome = Ok(());
    for job in &jobs {
        outcome = measure(job, &stop, &mut all);
        if outcome.is_err() {
            break;
        }
    }
    tell(asked, &mut all)?;
    outcome
}

/// Refuses what cannot be measured, or must not be overwritten, before anything is measured.
fn check(job: &BenchDevice) -> Result<(), Failure> {
    let cases = cases(job)?;
    let devices = job.devices.len();
    if devices > DEVICES_MAX {
        return Err(Failure::Usage(format!(
            "--devices: {devices} are too many; at most {DEVICES_MAX} are measured"
        )));
    }
    if let Some(twice) = same_device(&job.devices)? {
        return Err(Failure::Usage(format!("--devices: {twice} is named twice")));
    }
    let fio = job.engines.contains(&IoEngine::Fio);
    let sequential = job.patterns.contains(&Distribution::Sequential);
    let per_thread = job.layout == Layout::PerThread;
    let rules = [
        (fio && devices > 1, "--engines fio compares one device; give one to --devices"),
        (
            fio && (job.open_loop.is_some() || job.count.is_some() || job.verify),
            "--engines fio has no --open-loop, --count or --verify; measure fio without them",
        ),
        (
            fio && sequential && job.jobs.iter().any(|jobs| *jobs > 1),
            "--engines fio --patterns sequential: all threads of fio begin at the same offset; use --jobs 1",
        ),
        (
            per_thread && job.jobs.iter().any(|jobs| (*jobs as usize) < devices),
            "--layout per-thread needs at least as many --jobs as --devices",
        ),
        (
            job.fsync_every.is_some() && job.engines.contains(&IoEngine::UringIopoll),
            "--fsync-every is not possible with --engines uring-iopoll: such a ring has no flushes",
        ),
    ];
    if let Some((_, why)) = rules.into_iter().find(|(is_so, _)| *is_so) {
        return Err(Failure::Usage(why.to_owned()));
    }
    check_intervals(job, cases.len())?;
    cores(job)?;
    let changes = job.precondition > 0 || cases.iter().any(|case| case.mix.changes_data());
    if devices > 0 && changes { allow_writes(job) } else { Ok(()) }
}

/// Intervals must be in a turn, and not too many for memory.
fn check_intervals(job: &BenchDevice, cases: usize) -> Result<(), Failure> {
    let Some(interval) = job.intervals else { return Ok(()) };
    let in_turn = job.seconds / interval.as_secs_f64();
    if in_turn < 1.0 {
        return Err(Failure::Usage(format!("--intervals {interval:?}: a turn has only {} s", job.seconds)));
    }
    let rounds = if job.steady || job.confidence.is_some() { job.repeat_max } else { job.repeat };
    let turns = f64::from(rounds.max(job.rounds_min())) * f64::from(cases.saturating_as::<u32>());
    let threads_most = f64::from(job.jobs.iter().copied().max().unwrap_or(1));
    let count = in_turn * turns.max(threads_most);
    if count > f64::from(INTERVALS_OF_ALL_MAX) {
        return Err(Failure::Usage(format!(
            "--intervals {interval:?}: up to {count:.0} intervals, at most {INTERVALS_OF_ALL_MAX} are kept; give longer ones"
        )));
    }
    Ok(())
}

/// A device that is in the list under two names.
fn same_device(paths: &[PathBuf]) -> Result<Option<String>, Failure> {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    let mut seen = Vec::new();
    for path in paths {
        let about = fs::metadata(path).map_err(at_path(path))?;
        let is_block = about.file_type().is_block_device();
        let identity = if is_block { (true, 0, about.rdev()) } else { (false, about.dev(), about.ino()) };
        if seen.contains(&identity) {
            return Ok(Some(path.display().to_string()));
        }
        seen.push(identity);
    }
    Ok(None)
}

/// The jobs of a file as options; what a job does not say is taken from the command line.
fn jobs(asked: &BenchDevice, path: &Path) -> Result<Vec<BenchDevice>, Failure> {
    let text = fs::read_to_string(path).map_err(at_path(path))?;
    let jobs = Job::parse(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    let of = |job: Job| {
        let count =
            job.size_bytes.filter(|_| !job.is_time_based).map(|size| size / u64::from(job.block_bytes));
        if count.is_none() && job.runtime.is_none() {
            let name = &job.name;
            return Err(Failure::Usage(format!(
                "{}: the job [{name}] has no end; give it a runtime or a size",
                path.display()
            )));
        }
        // fio puts names that are not absolute into the directory.
        let folder = job.directory.clone();
        let placed =
            |file: PathBuf| folder.as_ref().map_or_else(|| file.clone(), |folder| folder.join(&file));
        Ok(BenchDevice {
            job_name: Some(job.name),
            file_size: job.size_bytes.unwrap_or(asked.file_size),
            region: job.size_bytes.filter(|_| !job.files.is_empty()),
            folder: job.directory.unwrap_or_else(|| asked.folder.clone()),
            devices: job.files.into_iter().map(placed).collect(),
            workloads: vec![job.mix],
            patterns: vec![job.distribution],
            sizes: vec![job.block_bytes],
            jobs: vec![job.threads],
            depths: vec![job.depth],
            engines: vec![job.engine],
            fsync_every: job.fsync_every,
            verify: job.verify,
            seconds: job.runtime.unwrap_or(TURN_MAX).as_secs_f64(),
            warm_up: job.warm_up.as_secs_f64(),
            open_loop: None,
            count,
            ..asked.clone()
        })
    };
    jobs.into_iter().map(of).collect()
}

/// A file that this command created; it is removed with this value.
struct OwnFile {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl OwnFile {
    /// Creates and writes it: reads of blocks that were never written do not reach the device.
    fn create(folder: &Path, bytes: u64) -> Result<Self, Failure> {
        let folder = own_folder(folder)?;
        let made = tempfile::Builder::new().prefix("rackscan-lab-device-").tempdir_in(&folder);
        let made = made.map_err(at_path(&folder))?;
        let path = made.path().join("device");
        rackscan_device::Device::create(&path, bytes).map_err(|error| Failure::Runtime(error.to_string()))?;
        Ok(Self { path, _folder: made })
    }
}

fn measure(job: &BenchDevice, stop: &AtomicBool, all: &mut Vec<Measurement>) -> Result<(), Failure> {
    let own = match job.devices.as_slice() {
        [] => Some(OwnFile::create(&job.folder, job.file_size)?),
        _ => None,
    };
    let paths = own.as_ref().map_or_else(|| job.devices.clone(), |own| vec![own.path.clone()]);
    let mut experiment = experiment(job, paths)?;
    if own.is_some() {
        experiment.precondition = experiment.precondition.max(1);
    }
    let bar = progress::turns();
    let outcome = experiment.run(stop, &mut |step| progress::show(&bar, step));
    bar.finish_and_clear();
    all.extend(outcome.measurements);
    ended(&outcome.failures, "measurements failed", outcome.stopped)
}

fn allow_writes(job: &BenchDevice) -> Result<(), Failure> {
    if !job.overwrite {
        return Err(Failure::Usage(
            "this workload overwrites the devices; add --overwrite if nothing on them is needed".to_owned(),
        ));
    }
    for path in &job.devices {
        check_writable(path).map_err(|error| Failure::Runtime(error.to_string()))?;
    }
    Ok(())
}

/// The combinations to measure.
fn cases(job: &BenchDevice) -> Result<Vec<DeviceCase>, Failure> {
    let axes = DeviceAxes {
        mixes: job.workloads.clone(),
        distributions: job.patterns.clone(),
        sizes: job.sizes.clone(),
        threads: job.jobs.clone(),
        depths: job.depths.clone(),
        engines: job.engines.clone(),
    };
    axes.cases().map_err(|error| Failure::Usage(error.to_string()))
}

fn experiment(job: &BenchDevice, paths: Vec<PathBuf>) -> Result<DeviceExperiment, Failure> {
    let length_bytes = region_of(job, &paths)?;
    let devices = u16::try_from(paths.len()).expect("at most DEVICES_MAX");
    Ok(DeviceExperiment {
        job: job.job_name.clone(),
        paths,
        region: Region { device: 0, offset_bytes: 0, length_bytes },
        spread: match (devices, job.layout) {
            (1, _) => Spread::One,
            (_, Layout::Striped) => Spread::Striped(devices),
            (_, Layout::PerThread) => Spread::PerConnection(devices),
        },
        cases: cases(job)?,
        fsync_every: job.fsync_every,
        verify: job.verify,
        precondition: job.precondition,
        loop_kind: match job.open_loop {
            Some(rate) => LoopKind::Open { rate, arrivals: Arrivals::Poisson },
            None => LoopKind::Closed,
        },
        cores: cores(job)?,
        rounds_min: job.rounds_min(),
        rounds_max: match (job.steady, job.confidence) {
            (false, None) => job.repeat,
            _ => job.repeat_max.max(job.rounds_min()),
        },
        rule: match job.confidence {
            Some(share) => StopRule::Confidence(share),
            None if job.steady => StopRule::SteadyState,
            None => StopRule::Rounds,
        },
        warm_up: Duration::from_secs_f64(job.warm_up),
        bounds: Bounds { duration: Duration::from_secs_f64(job.seconds), count_max: job.count },
        interval: job.intervals,
        counts_events: job.events,
        seed: job.seed,
        provenance: Provenance::now("device", gibibytes(length_bytes)),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a size for people: 53 bits are plenty")]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// The bytes of each device to use: as many as the smallest has, or as asked.
fn region_of(job: &BenchDevice, paths: &[PathBuf]) -> Result<u64, Failure> {
    let mut least = u64::MAX;
    for path in paths {
        let device = rackscan_device::Device::open(path, rackscan_device::Access::ReadOnly)
            .map_err(|error| Failure::Runtime(error.to_string()))?;
        least = least.min(device.bytes());
        if let Some(asked) = job.region.filter(|asked| *asked > device.bytes()) {
            let (path, bytes) = (path.display(), device.bytes());
            return Err(Failure::Usage(format!("--region {asked}: {path} has {bytes} bytes only")));
        }
    }
    let length_bytes = job.region.unwrap_or(least);
    Ok(length_bytes - length_bytes % REGION_MULTIPLE_BYTES)
}

/// The cores to pin threads to; none if threads are not pinned.
fn cores(job: &BenchDevice) -> Result<Vec<usize>, Failure> {
    let allowed = allowed_cores();
    let asked = match job.numa_node {
        None => job.cores.clone(),
        Some(node) => {
            let path = PathBuf::from(format!("/sys/devices/system/node/node{node}/cpulist"));
            let list = fs::read_to_string(&path).map_err(|_error| {
                Failure::Usage(format!("--numa-node {node}: this host has no such node ({})", path.display()))
            })?;
            let cores = core_list(list.trim());
            if cores.is_empty() {
                return Err(Failure::Usage(format!(
                    "--numa-node {node}: this node has memory only, and no core"
                )));
            }
            cores
        }
    };
    match asked.iter().find(|core| !allowed.contains(core)) {
        Some(core) => Err(Failure::Usage(format!("core {core} is not one of this process: {allowed:?}"))),
        None => Ok(asked),
    }
}

/// The cores of a list of the kernel: `0-3,8`.
fn core_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Prints lines, table, and what else was asked for.
fn tell(asked: &BenchDevice, all: &mut [Measurement]) -> Result<(), Failure> {
    let rates: Vec<_> = all.iter().map(Measurement::rates).collect();
    all.iter_mut().for_each(|one| one.compare(&rates));
    let lines: Vec<DeviceLine> = all.iter().map(|one| one.line.clone()).collect();
    let outputs = (asked.json.as_deref(), asked.report.as_deref());
    publish(&lines, &figures(&lines), outputs, &|| report(all))?;
    if let Some(path) = &asked.json {
        for one in all.iter().filter(|one| !one.intervals.is_empty()) {
            append_lines(&one.intervals, path)?;
        }
    }
    if let Some(folder) = &asked.percentiles {
        write_percentiles(folder, all)?;
    }
    if let Some(limit) = asked.p99_below {
        note!("{}", best(&lines, limit));
    }
    Ok(())
}

fn write_percentiles(folder: &Path, all: &[Measurement]) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(at_path(folder))?;
    // fio reports percentiles only, no distribution.
    for one in all.iter().filter(|one| one.case.engine != IoEngine::Fio) {
        let DeviceLine { job, workload, pattern, size_bytes, threads, depth, engine, .. } = &one.line;
        let job = job.as_ref().map_or_else(String::new, |job| format!("{job}-"));
        let name = format!("{job}{workload}-{pattern}-{size_bytes}-{threads}x{depth}-{engine}.hgrm");
        let name = name.replace([':', '/'], "-");
        let path = folder.join(name);
        let mut bytes = Vec::new();
        one.write_percentiles(&mut bytes).map_err(at_path(&path))?;
        fs::write(&path, bytes).map_err(at_path(&path))?;
    }
    note!("percentile distributions: {}", folder.display());
    Ok(())
}

/// Which measurement of each load is the fastest below a limit of latency, in words.
fn best(lines: &[DeviceLine], limit: Duration) -> String {
    let mut words = Vec::new();
    let load = |line: &DeviceLine| {
        let DeviceLine { workload, pattern, size_bytes, engine, .. } = line;
        let load = format!("{workload} {pattern}, {size_bytes} bytes, {engine}");
        line.job.as_ref().map_or_else(|| load.clone(), |job| format!("{job}: {load}"))
    };
    let mut loads: Vec<String> = Vec::new();
    for name in lines.iter().map(load) {
        if !loads.contains(&name) {
            loads.push(name);
        }
    }
    for name in loads {
        let of = lines.iter().filter(|line| load(line) == name);
        words.push(match best_below(of, limit.as_secs_f64() * 1e6) {
            Some(DeviceLine { median_iops, threads, depth, latency, .. }) => format!(
                "{name}: most IOs per second with a 99th percentile below {limit:?}: {median_iops:.0}, by {threads} threads of \
                 depth {depth} (99th percentile {:.0} us)",
                latency.p99_us
            ),
            None => format!("{name}: no measurement has a 99th percentile below {limit:?}"),
        });
    }
    words.join("\n")
}

/// The table: a row for each line.
fn figures(lines: &[DeviceLine]) -> TextTable {
    let mut heads = vec![
        "workload",
        "pattern",
        "size",
        "engine",
        "threads",
        "depth",
        "IOPS",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "cpu ns/IO",
        "turns",
        "95 %",
        "note",
    ];
    let some = |of: fn(&DeviceLine) -> bool| lines.iter().any(of);
    let (has_writes, has_fsyncs) =
        (some(|line| line.write_latency.is_some()), some(|line| line.fsync_latency.is_some()));
    let (has_events, has_fio) = (some(|line| line.events.is_some()), some(|line| line.over_fio.is_some()));
    heads.extend(has_writes.then_some("writes p99 us"));
    heads.extend(has_fsyncs.then_some("fsync p99 us"));
    heads.extend(
        has_events.then_some(["cycles/IO", "instr/IO", "switches/IO", "calls/IO"]).into_iter().flatten(),
    );
    heads.extend(has_fio.then_some("of fio"));
    let mut table = TextTable::new(&heads);
    let number = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
    let optional = |value: Option<f64>, digits: usize| {
        Cell::Number(value.map_or_else(String::new, |value| format!("{value:.digits$}")))
    };
    for line in lines {
        let latency = &line.latency;
        let mut row = vec![
            Cell::from(line.workload.clone()),
            Cell::from(line.pattern.clone()),
            Cell::Bytes(line.size_bytes.into()),
            Cell::from(line.engine.to_string()),
            Cell::Count(line.threads.into()),
            Cell::Count(line.depth.into()),
            number(line.median_iops, 0),
            number(line.mb_per_s, 1),
            number(latency.p50_us, 1),
            number(latency.p99_us, 1),
            number(latency.p999_us, 1),
            number(latency.max_us, 1),
            number(line.cpu_ns, 0),
            Cell::Count(line.iops.len() as u64),
            Cell::Number(
                line.judgement.interval.map_or_else(String::new, |share| format!("+-{:.1} %", share * 100.0)),
            ),
            Cell::from(note_of(line)),
        ];
        let p99 = |summary: &Option<rackscan_lab::LatencySummary>| summary.map(|summary| summary.p99_us);
        row.extend(has_writes.then(|| optional(p99(&line.write_latency), 1)));
        row.extend(has_fsyncs.then(|| optional(p99(&line.fsync_latency), 1)));
        if has_events {
            let events = line.events.unwrap_or_default();
            row.extend([optional(events.cycles, 0), optional(events.instructions, 0)]);
            row.extend([optional(events.context_switches, 2), optional(events.system_calls, 2)]);
        }
        row.extend(has_fio.then(|| optional(line.over_fio, 3)));
        table.push(row);
    }
    table
}

fn note_of(line: &DeviceLine) -> String {
    let mut notes = Vec::new();
    notes.extend(line.partial.as_ref().map(|_| "partial".to_owned()));
    notes.extend((line.verified > 0).then(|| format!("{} verified", line.verified)));
    if line.loop_kind == "open" {
        notes.push(format!("{} late, {} not issued", line.late, line.unissued));
    }
    notes.extend(
        line.judgement.is_steady.map(|steady| if steady { "steady" } else { "not steady" }.to_owned()),
    );
    notes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(core_list("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(core_list("5"), [5]);
        assert!(core_list("").is_empty());
    }
}
