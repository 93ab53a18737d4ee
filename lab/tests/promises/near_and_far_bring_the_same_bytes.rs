//! Tests that reads return the same bytes from every target (local or through a node), that writes
//! go to the right offset, and that impossible IOs are refused.

use std::sync::Arc;

use rackscan_device::{Access, Device};
use rackscan_fabric::Wire;
use rackscan_format::message::BridgeKind;
use rackscan_lab::{
    Cached, Io, IoDone, IoOperation, LineOptions, Local, LocalOptions, NodeHost, NodeShape, Remote, Target,
    TargetError, UringShape, Wait,
};

use super::support::{NodeFolder, REACTOR};

const DEPTH: u32 = 12;

fn ios(operation: IoOperation, base_bytes: u64) -> Vec<Io> {
    let lengths = [512_u32, 4096, 12_288, 65_536];
    let ios = (0..DEPTH).map(|slot| Io {
        slot,
        operation,
        device: 0,
        offset_bytes: base_bytes + u64::from(slot) * 69_632,
        length_bytes: lengths[slot as usize % lengths.len()],
    });
    ios.collect()
}

fn carry_out(target: &mut dyn Target, ios: &[Io]) -> Vec<IoDone> {
    for io in ios {
        target.submit(*io).expect("there is room");
    }
    let mut done = Vec::new();
    while done.len() < ios.len() {
        let before = done.len();
        target.reap(Wait::ForOne, &mut done).expect("the target is of use");
        assert!(done.len() > before, "a reap for one ends with one");
    }
    let mut slots: Vec<u32> = done.iter().map(|done| done.slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, ios.iter().map(|io| io.slot).collect::<Vec<_>>(), "every slot ends once");
    done
}

fn scratch_of(target: &Remote) -> u64 {
    target.status().devices[0].scratch.expect("one is configured").offset_bytes
}

#[test]
fn local_and_remote_reads_bring_the_bytes_of_the_file() {
    let mut node_folder = NodeFolder::new();
    node_folder.start(&REACTOR).unwrap();
    let file = std::fs::read(node_folder.device()).unwrap();
    let place = |io: &Io| usize::try_from(io.offset_bytes).unwrap();
    for wire in [Wire::Shm, Wire::Tcp] {
        for batch in [Some(1), Some(5), None] {
            let mut remote = Remote::connect(&node_folder.line(wire, DEPTH, batch)).unwrap();
            let ios = ios(IoOperation::Read, scratch_of(&remote));
            for done in carry_out(&mut remote, &ios) {
                done.outcome.unwrap();
            }
            for io in &ios {
                let expected = &file[place(io)..][..io.length_bytes as usize];
                assert!(expected.iter().any(|byte| *byte != 0), "the scratch area is filled");
                assert!(
                    remote.bytes(io.slot, io.length_bytes).unwrap() == expected,
                    "{wire} {batch:?} {io:?}"
                );
            }
        }
    }
    let device = Arc::new(Device::open(node_folder.device(), Access::ReadOnly).unwrap());
    let options = LocalOptions { depth: DEPTH, slot_bytes: 65_536 };
    let ios = ios(IoOperation::Read, 8192);
    let mut ring = Local::uring(vec![Arc::clone(&device)], UringShape::USUAL, options).unwrap();
    let mut threads = Local::pread(vec![device], 3, options).unwrap();
    carry_out(&mut ring, &ios);
    carry_out(&mut threads, &ios);
    for io in &ios {
        let expected = &file[place(io)..][..io.length_bytes as usize];
        assert_eq!(&ring.bytes(io.slot).unwrap()[..expected.len()], expected);
        assert_eq!(&threads.bytes(io.slot).unwrap()[..expected.len()], expected);
    }
}

#[test]
fn a_remote_write_reads_back_over_every_bridge() {
    for bridge in [BridgeKind::Reactor, BridgeKind::Static, BridgeKind::Dynamic] {
        let mut node_folder = NodeFolder::new();
        node_folder.start(&NodeShape { bridge, io_threads: 2, ..REACTOR }).unwrap();
        let mut remote = Remote::connect(&node_folder.line(Wire::Shm, DEPTH, None)).unwrap();
        let ios = ios(IoOperation::Write, scratch_of(&remote));
        let written: Vec<Vec<u8>> =
            ios.iter().map(|io| remote.bytes(io.slot, io.length_bytes).unwrap()).collect();
        for done in carry_out(&mut remote, &ios) {
            done.outcome.unwrap();
        }
        let file = std::fs::read(node_folder.device()).unwrap();
        for (io, bytes) in ios.iter().zip(written) {
            let at = usize::try_from(io.offset_bytes).unwrap();
            assert!(file[at..][..bytes.len()] == bytes, "{bridge} {io:?}");
        }
    }
}

#[test]
fn what_a_node_keeps_is_taken_one_sidedly_and_is_the_same() {
    for wire in [Wire::Shm, Wire::Tcp] {
        let mut node_folder = NodeFolder::new();
        node_folder.start(&REACTOR).unwrap();
        let reads_cache = true;
        let mut remote =
            Remote::connect(&LineOptions { reads_cache, ..node_folder.line(wire, DEPTH, None) }).unwrap();
        let ios = ios(IoOperation::Read, scratch_of(&remote));
        let file = std::fs::read(node_folder.device()).unwrap();
        let mut hits = Vec::new();
        for _ in 0..4 {
            for done in carry_out(&mut remote, &ios) {
                done.outcome.unwrap();
                hits.push(done.cached);
            }
            for io in &ios {
                let at = usize::try_from(io.offset_bytes).unwrap();
                let expected = &file[at..][..io.length_bytes as usize];
                assert!(remote.bytes(io.slot, io.length_bytes).unwrap() == expected, "{wire} {io:?}");
            }
        }
        let (first, last) = (&hits[..ios.len()], &hits[hits.len() - ios.len()..]);
        assert!(first.iter().all(Option::is_none), "{wire} {first:?}");
        assert!(last.contains(&Some(Cached::OneSidedly)), "{wire} {last:?}");
    }
}

#[test]
fn what_a_node_refuses_ends_only_that_io() {
    let mut node_folder = NodeFolder::new();
    node_folder.start(&REACTOR).unwrap();
    let mut remote = Remote::connect(&node_folder.line(Wire::Shm, DEPTH, Some(1))).unwrap();
    let base = scratch_of(&remote);
    let good = ios(IoOperation::Read, base)[0];
    let bad = [
        Io { slot: 1, offset_bytes: base + 1, ..good },
        Io { slot: 2, offset_bytes: 1 << 40, ..good },
        Io { slot: 3, device: 9, ..good },
        Io { slot: 4, device: u16::MAX, ..good },
        // Labels are at the beginning of a device: writes may go to the scratch area only.
        Io { slot: 5, operation: IoOperation::Write, offset_bytes: 0, ..good },
    ];
    let mut all = vec![good];
    all.extend(bad);
    for done in carry_out(&mut remote, &all) {
        match done.outcome {
            Ok(()) => assert_eq!(done.slot, 0),
            Err(error @ TargetError::ByNode { .. }) => {
                assert!(done.slot != 0 && !error.ends_the_target(), "{error}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(carry_out(&mut remote, &[good]).pop().unwrap().outcome.is_ok(), "the line is of use as before");
    for (io, refused) in [
        (Io { slot: DEPTH, ..good }, "no slot 12"),
        (Io { length_bytes: 0, ..good }, "0 bytes is not possible"),
        (Io { length_bytes: 65_537, ..good }, "65537 bytes is not possible"),
    ] {
        assert!(remote.submit(io).unwrap_err().to_string().contains(refused));
    }
}

#[test]
fn the_wire_alone_answers_every_slot_without_the_device() {
    let mut node_folder = NodeFolder::new();
    node_folder.start(&REACTOR).unwrap();
    for batch in [Some(1), Some(4)] {
        let mut wire = Remote::wire_only(&node_folder.line(Wire::Tcp, DEPTH, batch)).unwrap();
        // No device has these offsets.
        for done in carry_out(&mut wire, &ios(IoOperation::Read, 1 << 50)) {
            done.outcome.unwrap();
        }
    }
}
