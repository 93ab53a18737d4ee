//! Tests that an experiment starts a node for each node configuration, alternates local and remote
//! turns, and returns lines with ratios.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rackscan_fabric::Wire;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::{
    Arrivals, Axes, Bounds, Case, Distribution, Experiment, LoopKind, Mode, Provenance, sweep, sweep_report,
};

use super::support::NodeFolder;

pub(crate) fn axes() -> Axes {
    Axes {
        sizes: vec![512, 16_384],
        modes: vec![Mode::Local, Mode::Wire, Mode::Remote],
        connections: vec![2],
        io_threads: vec![2],
        depths: vec![4],
        batches: vec![1],
        bridges: vec![BridgeKind::Reactor, BridgeKind::Static, BridgeKind::Dynamic],
        ios: vec![IoKind::Uring, IoKind::Pread],
        wires: vec![Wire::Shm],
        reactors: Some(1),
        pin: false,
    }
}

pub(crate) fn experiment(cases: Vec<Case>) -> Experiment {
    Experiment {
        cases,
        rounds: 2,
        warm_up: Duration::ZERO,
        bounds: Bounds { duration: Duration::from_secs(20), count_max: Some(20) },
        loop_kind: LoopKind::Closed,
        distribution: Distribution::Uniform,
        seed: 1,
        watched: None,
        provenance: Provenance::now("io", 0.01),
    }
}

#[test]
fn every_mode_of_every_case_has_a_line_and_remote_its_ratios() {
    let mut node_folder = NodeFolder::new();
    let cases = axes().cases().unwrap();
    let (mut steps, never) = (0, AtomicBool::new(false));
    let outcome = experiment(cases).run(&mut node_folder, &never, &mut |_| steps += 1);
    assert_eq!((outcome.failure, outcome.stopped), (None, false));
    // reactor with io_uring and with threads, static, dynamic; each with two sizes in three modes.
    assert_eq!(outcome.lines.len(), 4 * 2 * 3);
    assert_eq!(node_folder.starts, 2 * 4, "a node for each shape in each round");
    assert!(steps >= 2 * (24 + 4));
    for line in &outcome.lines {
        assert_eq!((line.iops.len(), line.latency.count), (2, 80), "{line:?}");
        assert!(line.median_iops > 0.0 && line.partial.is_none() && line.latency.max_us > 0.0, "{line:?}");
        let remote = line.mode == Mode::Remote;
        assert_eq!((line.over_local.is_some(), line.over_limit.is_some()), (remote, remote));
        assert_eq!(line.cpu.node_ns.is_some(), line.mode != Mode::Local);
        assert_eq!(line.batch, (line.mode != Mode::Local).then_some(1));
    }
}

#[test]
fn an_open_loop_issues_what_was_intended() {
    let mut node_folder = NodeFolder::new();
    let axes =
        Axes { sizes: vec![4096], bridges: vec![BridgeKind::Reactor], ios: vec![IoKind::Uring], ..axes() };
    let experiment = Experiment {
        loop_kind: LoopKind::Open { rate: 400.0, arrivals: Arrivals::Uniform },
        bounds: Bounds { duration: Duration::from_millis(500), count_max: None },
        rounds: 1,
        ..experiment(axes.cases().unwrap())
    };
    let outcome = experiment.run(&mut node_folder, &AtomicBool::new(false), &mut |_| ());
    assert_eq!(outcome.failure, None);
    for line in outcome.lines {
        // Two connections of 200 a second, half a second long; whether the last one counts depends
        // on the microsecond.
        assert!((198..=200).contains(&(line.latency.count + line.unissued)), "{line:?}");
        assert_eq!((line.loop_kind, line.rate), ("open", Some(400.0)));
    }
}

#[test]
fn threads_that_each_read_and_wait_are_compared_with_as_many_rings() {
    let mut node_folder = NodeFolder::new();
    let axes = Axes {
        sizes: vec![512],
        modes: vec![Mode::Local],
        connections: vec![3],
        depths: vec![1, 2],
        bridges: vec![BridgeKind::Reactor],
        ..axes()
    };
    let outcome =
        experiment(axes.cases().unwrap()).run(&mut node_folder, &AtomicBool::new(false), &mut |_| ());
    assert_eq!(outcome.failure, None);
    let found: Vec<_> = outcome.lines.iter().map(|line| (line.io, line.depth, line.io_threads)).collect();
    // A thread with one read in flight reads by itself; with two, other threads read for it.
    let (ring, pread) = (Some(IoKind::Uring), Some(IoKind::Pread));
    assert_eq!(found, [(ring, 1, 0), (ring, 2, 0), (pread, 1, 0), (pread, 2, 2)]);
    assert!(outcome.lines.iter().all(|line| line.latency.count == 2 * 3 * 20 && line.batch.is_none()));
}

#[test]
fn a_message_has_as_many_reads_as_it_is_asked_to_have() {
    let mut node_folder = NodeFolder::new();
    let axes = Axes {
        sizes: vec![512],
        modes: vec![Mode::Wire],
        bridges: vec![BridgeKind::Reactor],
        ios: vec![IoKind::Uring],
        batches: vec![1, 4],
        ..axes()
    };
    let outcome =
        experiment(axes.cases().unwrap()).run(&mut node_folder, &AtomicBool::new(false), &mut |_| ());
    assert_eq!(outcome.failure, None);
    let batches: Vec<_> = outcome.lines.iter().map(|line| line.batch).collect();
    assert_eq!(batches, [Some(1), Some(4)]);
}

#[test]
fn a_device_without_data_and_reads_that_it_cannot_do_are_named() {
    let mut node_folder = NodeFolder::new();
    node_folder.scratch = None;
    let never = AtomicBool::new(false);
    let outcome = experiment(axes().cases().unwrap()).run(&mut node_folder, &never, &mut |_| ());
    assert!(outcome.failure.as_ref().is_some_and(|text| text.contains("scratch")), "{outcome:?}");
    assert!(outcome.lines.is_empty());
}

#[test]
fn a_sweep_becomes_a_page_with_its_figures() {
    let mut node_folder = NodeFolder::new();
    let plan = sweep(0.01, Wire::Shm);
    let mut cases = plan.cases;
    // The node of the tests has little memory.
    cases.retain(|case| case.node.serving == 1 && case.connections <= 4 && case.depth <= 64);
    let experiment = Experiment { rounds: 1, watched: Some(plan.watched), ..experiment(cases) };
    let outcome = experiment.run(&mut node_folder, &AtomicBool::new(false), &mut |_| ());
    assert_eq!(outcome.failure, None);
    let folder = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let page = sweep_report(&outcome, &experiment.provenance).write(folder.path()).unwrap();
    let html = std::fs::read_to_string(page).unwrap();
    for figure in ["figure-4-02", "figure-4-09", "figure-4-11", "figure-4-14", "figure-4-18"] {
        assert!(html.contains(figure), "{figure}");
        let svg = std::fs::read_to_string(folder.path().join(format!("figures/{figure}.svg"))).unwrap();
        assert!(svg.contains("<svg"));
        assert!(folder.path().join(format!("figures/{figure}.png")).exists());
    }
    let points = std::fs::read_to_string(folder.path().join("points.jsonl")).unwrap();
    assert_eq!(points.lines().count(), outcome.lines.len());
    assert!(html.contains("85 %"), "the paper's shares stand beside ours");
}
