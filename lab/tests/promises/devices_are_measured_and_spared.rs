//! Tests measurements of devices: what is written is what was meant, and nothing else is.
//!
//! Goal: figures of writes are of writes that arrived, and no data of anybody is overwritten.
//! Method: files on the build folder's filesystem as devices.

use rackscan_device::Device;
use rackscan_lab::devices::{DeviceAxes, DeviceExperiment, IoEngine, NotWritable, StopRule, check_writable};
use rackscan_lab::{Bounds, Distribution, IoMix, IoOperation, LoopKind, Provenance, Region, Spread};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

const BYTES: u64 = 8 << 20;

fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder is writable")
}

fn device(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    drop(Device::create(&path, BYTES).expect("a device"));
    path
}

fn axes(mixes: Vec<IoMix>, engines: Vec<IoEngine>) -> DeviceAxes {
    let (sizes, threads, depths) = (vec![4096], vec![2], vec![4]);
    DeviceAxes { mixes, distributions: vec![Distribution::Uniform], sizes, threads, depths, engines }
}

fn experiment(paths: Vec<PathBuf>, axes: &DeviceAxes) -> DeviceExperiment {
    let devices = u16::try_from(paths.len()).expect("a few");
    DeviceExperiment {
        job: None,
        spread: if devices == 1 { Spread::One } else { Spread::Striped(devices) },
        paths,
        region: Region { device: 0, offset_bytes: 0, length_bytes: BYTES },
        cases: axes.cases().expect("cases"),
        fsync_every: None,
        verify: false,
        precondition: 0,
        loop_kind: LoopKind::Closed,
        cores: Vec::new(),
        rounds_min: 1,
        rounds_max: 1,
        rule: StopRule::Rounds,
        warm_up: Duration::ZERO,
        bounds: Bounds { duration: Duration::from_secs(60), count_max: Some(300) },
        interval: None,
        counts_events: false,
        seed: 3,
        provenance: Provenance::now("device", 1.0),
    }
}

#[test]
fn every_engine_writes_what_is_read_again_on_all_devices() {
    let folder = folder();
    let paths = vec![device(&folder, "a"), device(&folder, "b")];
    let engines = vec![IoEngine::Uring, IoEngine::UringBatch, IoEngine::UringSqpoll, IoEngine::Pread];
    let mixes = vec![IoMix::Only(IoOperation::Write), IoMix::Mixed { read_percent: 50 }];
    let experiment = DeviceExperiment {
        verify: true,
        fsync_every: Some(20),
        ..experiment(paths.clone(), &axes(mixes, engines))
    };
    let outcome = experiment.run(&AtomicBool::new(false), &mut |_step| {});
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert_eq!(outcome.measurements.len(), 8);
    for one in &outcome.measurements {
        let line = &one.line;
        assert!(line.verified > 100 && line.median_iops > 0.0, "{line:?}");
        let fsyncs = line.fsync_latency.unwrap().count;
        let writes = line.write_latency.map_or(line.latency.count, |writes| writes.count);
        assert!(fsyncs.abs_diff(writes / 20) <= 2, "{fsyncs} flushes of {writes} writes");
    }
    for path in paths {
        let bytes = std::fs::read(path).unwrap();
        assert!(bytes.iter().any(|byte| *byte != 0), "both devices are used");
    }
}

#[test]
fn a_trimmed_device_reads_as_zeroes_and_has_no_blocks() {
    use std::os::unix::fs::MetadataExt as _;
    let folder = folder();
    let path = device(&folder, "a");
    let mut trims = axes(vec![IoMix::Only(IoOperation::Trim)], vec![IoEngine::Uring]);
    trims.distributions = vec![Distribution::Sequential];
    trims.threads = vec![1];
    let experiment = DeviceExperiment {
        precondition: 1,
        bounds: Bounds { duration: Duration::from_secs(60), count_max: Some(BYTES / 4096) },
        ..experiment(vec![path.clone()], &trims)
    };
    let outcome = experiment.run(&AtomicBool::new(false), &mut |_step| {});
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert_eq!(outcome.measurements[0].line.latency.count, BYTES / 4096);
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
}

#[test]
fn further_turns_are_taken_until_the_rule_is_content_or_the_most_are_taken() {
    let folder = folder();
    let path = device(&folder, "a");
    let reads = axes(vec![IoMix::Only(IoOperation::Read)], vec![IoEngine::Uring]);
    let turns = |rule, rounds_max| {
        let experiment =
            DeviceExperiment { rule, rounds_max, rounds_min: 2, ..experiment(vec![path.clone()], &reads) };
        let outcome = experiment.run(&AtomicBool::new(false), &mut |_step| {});
        outcome.measurements[0].line.iops.len()
    };
    assert_eq!(turns(StopRule::Rounds, 9), 2);
    assert_eq!(turns(StopRule::Confidence(1e-9), 4), 4, "no machine is as even as that");
    assert_eq!(turns(StopRule::Confidence(1e9), 9), 3, "any interval is small enough");
}

#[test]
fn intervals_add_up_to_the_turn() {
    let folder = folder();
    let reads = axes(vec![IoMix::Only(IoOperation::Read)], vec![IoEngine::Uring]);
    let experiment = DeviceExperiment {
        interval: Some(Duration::from_millis(20)),
        bounds: Bounds { duration: Duration::from_millis(200), count_max: None },
        ..experiment(vec![device(&folder, "a")], &reads)
    };
    let outcome = experiment.run(&AtomicBool::new(false), &mut |_step| {});
    let one = &outcome.measurements[0];
    assert_eq!(one.intervals.len(), 10);
    let ios: f64 = one.intervals.iter().map(|interval| interval.iops * 0.02).sum();
    let in_time = one.line.median_iops * 0.2;
    assert!((ios - in_time).abs() <= 1.0, "{ios} in intervals, {in_time} in the turn");
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let done = Command::new(program).args(arguments).arg(path).output().expect("it starts");
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_device_that_holds_something_is_not_overwritten() {
    let folder = folder();
    let path = device(&folder, "a");
    check_writable(&path).unwrap();
    let empty = std::fs::read(&path).unwrap();
    run("mkfs.ext4", &["-q", "-F"], &path);
    let refused = check_writable(&path).unwrap_err();
    assert!(matches!(refused, NotWritable::File { .. }), "{refused}");
    std::fs::write(&path, "a text of somebody\n".repeat(1000)).unwrap();
    let refused = check_writable(&path).unwrap_err().to_string();
    assert!(refused.contains("does not begin with zeroes"), "{refused}");
    std::fs::write(&path, empty).unwrap();
    check_writable(&path).unwrap();
    let label = rackscan_format::label::DeviceLabel {
        cluster: 1,
        node: rackscan_format::ids::NodeId(0),
        device: rackscan_format::ids::DeviceId(0),
        label: 7,
        capacity_bytes: BYTES,
    };
    let blank = std::fs::read(&path).unwrap();
    let sector = label.to_sector();
    // A node can recover its label from either copy.
    for copy in 0..rackscan_format::label::LABEL_COPIES {
        let mut bytes = blank.clone();
        bytes[copy * sector.len()..][..sector.len()].copy_from_slice(&sector);
        std::fs::write(&path, bytes).unwrap();
        let refused = check_writable(&path).unwrap_err().to_string();
        assert!(refused.contains("a label of Rackscan"), "copy {copy}: {refused}");
    }
    let open = Device::open(&path, rackscan_device::Access::ReadWrite).unwrap();
    let refused = check_writable(&path).unwrap_err();
    assert!(matches!(refused, NotWritable::Open(_)), "{refused}");
    drop(open);
}
