//! Tests that the end of a node during a measurement is a clear error, in time, and that what was
//! measured before is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::{Axes, Bounds, Experiment, Mode, NodeHost, NodeShape, RunningNode, Step};

use super::support::NodeFolder;
use super::turns_of_near_and_far_are_compared::{axes, experiment};

/// Ends the node some time after the first turn has begun.
struct Dying(NodeFolder, Arc<AtomicBool>);

/// Waits for the first turn, and then long enough for some reads to end.
fn wait_for_reads(begun: &AtomicBool) {
    while !begun.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_secs(2));
}

/// Records that a turn has begun.
fn note(begun: &AtomicBool, step: &Step<'_>) {
    begun.fetch_or(!step.doing.starts_with("starting"), Ordering::Relaxed);
}

impl NodeHost for Dying {
    fn start(&mut self, shape: &NodeShape) -> Result<RunningNode, String> {
        let node = self.0.start(shape)?;
        let (stop, begun) = (self.0.stopper(), Arc::clone(&self.1));
        std::thread::spawn(move || {
            wait_for_reads(&begun);
            stop();
        });
        Ok(node)
    }
}

fn long(modes: &[Mode]) -> Experiment {
    let axes = Axes {
        sizes: vec![4096],
        bridges: vec![BridgeKind::Reactor],
        ios: vec![IoKind::Uring],
        modes: modes.to_vec(),
        ..axes()
    };
    let bounds = Bounds { duration: Duration::from_secs(60), count_max: None };
    Experiment { bounds, rounds: 1, ..experiment(axes.cases().expect("the axes are possible")) }
}

#[test]
fn reads_of_a_node_that_ends_are_a_partial_line_and_an_error() {
    let begun = Instant::now();
    let measuring = Arc::new(AtomicBool::new(false));
    let mut host = Dying(NodeFolder::new(), Arc::clone(&measuring));
    let never = AtomicBool::new(false);
    let outcome = long(&[Mode::Remote]).run(&mut host, &never, &mut |step| note(&measuring, step));
    assert!(begun.elapsed() < Duration::from_secs(40), "it does not wait for the end of the turn");
    let text = outcome.failure.expect("the node is gone");
    assert!(text.contains("node"), "{text}");
    let [line] = outcome.lines.as_slice() else { panic!("one line: {:?}", outcome.lines) };
    assert!(line.median_iops > 0.0, "{line:?}");
    assert!(line.latency.count > 0 && line.partial.as_deref() == Some(text.as_str()), "{line:?}");
}

#[test]
fn an_experiment_that_is_told_to_stop_returns_what_it_has() {
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    let (mut node_folder, measuring) = (NodeFolder::new(), AtomicBool::new(false));
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_reads(&measuring);
            stop.store(true, Ordering::Relaxed);
        });
        long(&[Mode::Local, Mode::Remote]).run(&mut node_folder, &stop, &mut |step| note(&measuring, step))
    });
    assert!(begun.elapsed() < Duration::from_secs(40));
    assert!(outcome.stopped && outcome.failure.is_none());
    let [line] = outcome.lines.as_slice() else { panic!("one line: {:?}", outcome.lines) };
    assert!(line.mode == Mode::Local && line.latency.count > 0 && line.partial.is_some(), "{line:?}");
}
