//! Lists the cases of an experiment that the figures of a sweep need.
//!
//! Invariants
//! - If the caller asks for a smaller effort, an axis loses values between its ends, but neither
//!   end, so that every figure keeps its range.

use std::time::Duration;

use az::SaturatingAs;
use rackscan_fabric::Wire;
use rackscan_format::message::{BridgeKind, IoKind};

use crate::experiment::{Case, Mode, NodeShape};

/// Sizes of the paper, in bytes.
pub(super) const SIZES: [u32; 4] = [512, 4096, 16_384, 65_536];
/// Size of figures 4.10 to 4.13, in bytes.
pub(super) const SMALL: u32 = 512;
/// Number of connections of figure 4.12.
pub(super) const CONNECTIONS_FIXED: u32 = 10;
/// Threads of each connection in figure 4.13.
pub(super) const THREADS_FIXED: u16 = 100;

const CONNECTIONS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const STATIC_CONNECTIONS: [u32; 4] = [1, 2, 5, CONNECTIONS_FIXED];
const STATIC_THREADS: [u16; 5] = [1, 4, 16, 50, THREADS_FIXED];
const LOCAL_THREADS: [u32; 6] = [1, 4, 16, 50, 100, 200];
const REACTOR_CONNECTIONS: [u32; 3] = [1, 2, 4];
/// Reads in flight of a connection where the figure does not say it.
pub(super) const DEPTH: u32 = 32;
/// The paper sends a message for each read.
const BATCH: Option<u32> = Some(1);
const TURN: Duration = Duration::from_secs(1);
const TURN_LEAST: Duration = Duration::from_millis(50);

/// A sweep to measure.
#[derive(Debug, Clone)]
pub struct SweepPlan {
    /// Its cases.
    pub cases: Vec<Case>,
    /// Duration of each turn.
    pub turn: Duration,
    /// Warm-up of each turn.
    pub warm_up: Duration,
    /// The case of figure 4.11: how busy the cores are with a thread per read.
    pub watched: Case,
}

/// The sweep over one wire. An `effort` of 1 is usual; less shortens axes and turns.
#[must_use]
pub fn sweep(effort: f64, wire: Wire) -> SweepPlan {
    let mut cases = Vec::new();
    let cores = cores_of_this_host();
    // In the paper's bridges, each connection is a polling thread on either side.
    let possible: Vec<u32> = CONNECTIONS.into_iter().filter(|count| *count <= cores * 8).collect();
    for size_bytes in SIZES {
        let of = |connections, depth, node, mode| Case {
            size_bytes,
            connections,
            depth,
            batch: BATCH,
            wire,
            node,
            modes: vec![mode],
        };
        let connections = thinned(&possible, effort);
        for &count in &connections {
            cases.push(of(count, DEPTH, reactor(count, cores, false), Mode::Wire));
            if size_bytes == SMALL && count <= cores {
                cases.push(of(count, DEPTH, reactor(count, cores, true), Mode::Wire));
            }
            if size_bytes == SMALL {
                cases.push(of(count, DEPTH, poller(BridgeKind::Dynamic, count, 0, false), Mode::Remote));
                cases.push(of(count, DEPTH, poller(BridgeKind::Dynamic, count, 0, true), Mode::Remote));
            }
        }
        // Figure 4.18 shows the best of each bridge, so the dynamic one is measured at every size.
        cases.push(of(1, DEPTH, poller(BridgeKind::Dynamic, 1, 0, false), Mode::Remote));
        let ring = reactor(1, cores, false);
        for &threads in &thinned(&LOCAL_THREADS, effort) {
            // The paper's way: threads that each read and wait, and share nothing.
            let waiting = NodeShape { io: IoKind::Pread, ..ring };
            cases.push(of(threads, 1, waiting, Mode::Local));
            cases.push(of(1, threads, ring, Mode::Local));
        }
        for &rings in &thinned(&REACTOR_CONNECTIONS, effort) {
            cases.push(of(rings, DEPTH, ring, Mode::Local));
        }
        for &count in &thinned(&STATIC_CONNECTIONS, effort) {
            for &threads in &thinned(&STATIC_THREADS, effort) {
                let node = poller(BridgeKind::Static, count, threads, false);
                // One more than there are threads, so that no thread waits for a message.
                cases.push(of(count, u32::from(threads) + 1, node, Mode::Remote));
            }
        }
        for &count in &thinned(&REACTOR_CONNECTIONS, effort) {
            cases.push(of(count, DEPTH, reactor(count, cores, false), Mode::Remote));
        }
    }
    let mut plain: Vec<Case> = Vec::with_capacity(cases.len());
    for case in cases {
        if !plain.contains(&case) {
            plain.push(case);
        }
    }
    crate::experiment::together(&mut plain);
    let watched = Case {
        size_bytes: SMALL,
        connections: 1,
        depth: DEPTH,
        batch: BATCH,
        wire,
        node: poller(BridgeKind::Dynamic, 1, 0, false),
        modes: vec![Mode::Remote],
    };
    let turn = TURN.mul_f64(effort).max(TURN_LEAST);
    SweepPlan { cases: plain, turn, warm_up: turn / 5, watched }
}

fn cores_of_this_host() -> u32 {
    rackscan_device::allowed_cores().len().saturating_as::<u32>().max(1)
}

/// The bridge `reactor`: few threads for many connections.
fn reactor(connections: u32, cores: u32, pin: bool) -> NodeShape {
    let serving = connections.min(cores.div_ceil(2)).saturating_as::<u16>();
    NodeShape { bridge: BridgeKind::Reactor, io: IoKind::Uring, io_threads: 0, serving, pin }
}

/// The paper's bridges: a poller for each connection.
fn poller(bridge: BridgeKind, connections: u32, io_threads: u16, pin: bool) -> NodeShape {
    let serving = connections.saturating_as::<u16>().min(crate::limits::SERVING_MAX);
    NodeShape { bridge, io: IoKind::Pread, io_threads, serving, pin }
}

/// As many values as the effort allows, at least both ends.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "axes have a handful of values"
)]
fn thinned<T: Copy>(values: &[T], effort: f64) -> Vec<T> {
    let wanted = ((values.len() as f64 * effort).ceil() as usize).clamp(2, values.len());
    (0..wanted).map(|index| values[index * (values.len() - 1) / (wanted - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_effort_keeps_both_ends_of_an_axis() {
        assert_eq!(thinned(&[1, 2, 3, 4, 5], 0.001), [1, 5]);
        assert_eq!(thinned(&[1, 2, 3, 4, 5], 0.5), [1, 3, 5]);
        assert_eq!(thinned(&[1, 2, 3], 7.0), [1, 2, 3]);
    }

    #[test]
    fn a_sweep_measures_each_case_once_within_the_limits() {
        let whole = sweep(1.0, Wire::Shm);
        for (index, case) in whole.cases.iter().enumerate() {
            assert!(!whole.cases[..index].contains(case), "{case:?}");
            assert!(
                case.depth <= crate::limits::DEPTH_MAX
                    && case.node.io_threads <= crate::limits::IO_THREADS_MAX
            );
        }
        let fixed =
            |case: &&Case| case.node.io_threads == THREADS_FIXED && case.node.bridge == BridgeKind::Static;
        assert!(whole.cases.iter().filter(fixed).count() >= STATIC_CONNECTIONS.len());
        assert!(whole.cases.contains(&whole.watched));
        let little = sweep(0.01, Wire::Shm);
        let is_static = |case: &Case| case.node.bridge == BridgeKind::Static;
        assert!(little.cases.iter().any(|case| is_static(case) && case.connections == CONNECTIONS_FIXED));
        assert!(little.cases.iter().any(|case| is_static(case) && case.node.io_threads == THREADS_FIXED));
        assert!(little.cases.len() < whole.cases.len() / 2 && little.turn == TURN_LEAST);
    }
}
