//! Tests that the processor time of a node over each bridge is what another measure of the kernel
//! says, although the dynamic bridge makes a thread for each read.

use std::time::Duration;

use nix::sys::{
    resource::UsageWho,
    time::{TimeVal, TimeValLike},
};
use rackscan_fabric::Wire;
use rackscan_format::message::BridgeKind;
use rackscan_lab::{CpuSample, Io, IoOperation, NodeHost, NodeShape, Remote, Target, Wait};

use super::support::{NodeFolder, REACTOR};

const DEPTH: u32 = 8;
const ROUNDS: usize = 200;

/// What `getrusage` says of this process: in microseconds, by user and system mode.
fn rusage() -> Duration {
    let usage = nix::sys::resource::getrusage(UsageWho::RUSAGE_SELF).expect("of this process");
    let of =
        |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).expect("a time used"));
    of(usage.user_time()) + of(usage.system_time())
}

fn read_all(remote: &mut Remote, base_bytes: u64) {
    for slot in 0..DEPTH {
        let offset_bytes = base_bytes + u64::from(slot) * 4096;
        let io = Io { slot, operation: IoOperation::Read, device: 0, offset_bytes, length_bytes: 4096 };
        remote.submit(io).expect("there is room");
    }
    let mut done = Vec::new();
    while done.len() < DEPTH as usize {
        remote.reap(Wait::ForOne, &mut done).expect("the node runs");
    }
}

#[test]
fn the_time_of_threads_that_live_for_one_read_is_counted() {
    for bridge in [BridgeKind::Reactor, BridgeKind::Static, BridgeKind::Dynamic] {
        // The node and its client are threads of this process.
        let mut node_folder = NodeFolder::new();
        node_folder.start(&NodeShape { bridge, io_threads: 2, ..REACTOR }).unwrap();
        let mut remote = Remote::connect(&node_folder.line(Wire::Shm, DEPTH, None)).unwrap();
        let scratch = remote.status().devices[0].scratch.expect("one is configured").offset_bytes;
        read_all(&mut remote, scratch);

        // Other tests of this process use the processors meanwhile, so each sample is taken between
        // two readings of the other measure.
        let sample = || (rusage(), CpuSample::of_this_process().unwrap(), rusage());
        let (earliest, before, begun) = sample();
        (0..ROUNDS).for_each(|_| read_all(&mut remote, scratch));
        let (ended, after, latest) = sample();
        let (found, least, most) = (after.since(&before), ended - begun, latest - earliest);
        let inexact = Duration::from_millis(2);
        assert!(
            least <= found + inexact && found <= most + inexact,
            "{bridge}: {found:?}, getrusage says {least:?} to {most:?}"
        );
    }
}
