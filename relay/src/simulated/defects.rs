//! Tests that the checksums find nodes that work wrongly. Method: nodes get plans with a defect and
//! run on the simulated network. In some runs the defect does no harm. In all runs, a stripe that
//! is reported as stored is right, and a session that ends does so because of a checksum.

use std::sync::Arc;

use rackscan_fabric::sim::Seed;
use rackscan_stripe::{Parity, Way};

use super::cluster::Cluster;
use crate::{
    Cause, SessionEnd, Shape, Task,
    plan::{Plan, Reader},
    shape::Layout,
};

const STRIPES: [(u64, u64); 3] = [(0, 12 * 4096), (1, 12 * 4096), (2, 9 * 4096)];

fn shape() -> Shape {
    Shape {
        parity: Parity::TwoD,
        task: Task::Write(Way::Relay),
        cell_bytes_max: 16 * 4096,
        slice_bytes: 4096,
        lanes: 2,
        slots: 2,
    }
}

/// Runs with a defect in every node's plans; how sessions ended that did not get through.
fn run(seeds: u64, spoil: impl Fn(&mut Plan)) -> Vec<SessionEnd> {
    let mut found = Vec::new();
    Seed::each(seeds, |seed| {
        let mut cluster = Cluster::new(seed, 4, shape());
        let mut layout = Layout::new(shape(), 4).unwrap();
        layout.rotations.iter_mut().flat_map(|rotation| &mut rotation.columns).for_each(&spoil);
        let layout = Arc::new(layout);
        for node in cluster.nodes.iter_mut().flatten() {
            node.layouts.made.push(Arc::clone(&layout));
        }
        let mut writer = cluster.open();
        cluster.write(&mut writer, &STRIPES);
        found.extend(writer.end().cloned());
        drop(writer);
        cluster.settle();
        cluster.assert_stored_is_there();
    })
    .unwrap();
    found
}

fn assert_found(found: &[SessionEnd], seeds: usize) {
    let is_one_seed = Seed::from_environment().unwrap().is_some();
    assert!(is_one_seed || found.len() * 4 > seeds, "only {} of {seeds} were found", found.len());
    for end in found {
        assert!(matches!(end.cause, Cause::Checksum), "{end}");
    }
    // Nodes see it themselves; the client would, too, behind them.
    assert!(is_one_seed || found.iter().any(|end| end.why.contains("has checksum")), "{found:?}");
}

#[test]
fn plans_without_a_defect_get_through() {
    assert_eq!(run(8, |_| {}), []);
}

#[test]
fn a_tail_that_leaves_out_the_forward_is_found_by_a_checksum() {
    let found = run(24, |plan| {
        for readers in &mut plan.readers {
            readers.retain(|reader| !matches!(reader, Reader::Send(_)));
        }
    });
    assert_found(&found, 24);
}

#[test]
fn a_tail_that_leaves_out_the_sum_is_found_by_a_checksum() {
    let found = run(24, |plan| {
        for readers in &mut plan.readers {
            readers.retain(|reader| !matches!(reader, Reader::Sum(_)));
        }
    });
    assert_found(&found, 24);
}

#[test]
fn a_tail_that_leaves_out_the_store_is_found_by_a_checksum() {
    let found = run(24, |plan| {
        for readers in &mut plan.readers {
            readers.retain(|reader| !matches!(reader, Reader::Keep(_)));
        }
    });
    assert_found(&found, 24);
}

#[test]
fn credit_that_is_given_as_soon_as_a_slice_arrives_is_found_by_a_checksum() {
    let found = run(24, |plan| plan.readers.iter_mut().for_each(Vec::clear));
    assert_found(&found, 24);
}

#[test]
fn a_sum_that_misses_an_input_is_found_by_the_client() {
    let found = run(4, |plan| {
        for (sum, inputs) in plan.sums.iter_mut().enumerate() {
            let missed = inputs.pop();
            if let Some(missed) = missed {
                plan.readers[missed].retain(|reader| *reader != Reader::Sum(sum));
            }
        }
    });
    assert_eq!(found.len(), 4, "nobody on the way can see it");
    for end in &found {
        assert!(end.cause == Cause::Checksum && end.why.contains("is not the XOR of its data"), "{end}");
    }
}

#[test]
fn a_sum_of_the_wrong_input_is_found_by_the_client() {
    let found = run(4, |plan| {
        let origins = plan.origins.len();
        for sum in &mut plan.sums {
            let other = (0..origins).find(|origin| !sum.contains(origin));
            sum[0] = other.unwrap_or(sum[0]);
        }
    });
    assert_eq!(found.len(), 4);
}
