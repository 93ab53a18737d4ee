//! Tests that a direct line (a connection that one thread drives) returns the bytes on a real
//! node's device, and says what is wrong when it cannot.

mod cached;
mod support;

use std::time::{Duration, Instant};

use rackscan_client::{ClientError, DirectDone, DirectError, DirectLine, limits::DIRECT_DEPTH_MAX};
use rackscan_device::Wait;
use rackscan_format::{
    ids::DeviceId,
    message::{BridgeKind, RawRead, RawWrite, RefusalCode, ScratchArea},
};

use support::{MEMORY_BYTES, NodeFolder};

pub(crate) const BRIDGES: [BridgeKind; 3] = [BridgeKind::Reactor, BridgeKind::Static, BridgeKind::Dynamic];

pub(crate) fn scratch(line: &DirectLine) -> (ScratchArea, u32) {
    let device = &line.status().devices[0];
    (device.scratch.expect("one is configured"), device.align_bytes)
}

pub(crate) fn read(offset_bytes: u64, length_bytes: u32, target_offset_bytes: u64) -> RawRead {
    RawRead { device: DeviceId(0), offset_bytes, length_bytes, target_offset_bytes }
}

pub(crate) fn one(line: &mut DirectLine) -> DirectDone {
    let mut done = Vec::new();
    line.reap(Wait::ForOne, &mut done).expect("the node answers");
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0)
}

#[test]
fn reads_of_the_smallest_and_of_large_parts_bring_what_the_device_holds() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    for (wire, mut line) in node_folder.lines(&node) {
        let (area, align) = scratch(&line);
        let device = node_folder.device_bytes();
        let mut target = 0;
        let mut parts = Vec::new();
        for (nth, length) in [align, 4096, 65_536, 1 << 20].into_iter().enumerate() {
            parts.push(read(area.offset_bytes + nth as u64 * u64::from(align), length, target));
            target += u64::from(length);
        }
        line.read(7, &parts).expect("there is room");
        let done = one(&mut line);
        assert_eq!(done.id, 7);
        let cost = done.outcome.expect("the node reads them");
        assert_eq!((cost.pages_read, cost.disk_bytes), (4, target), "{wire}");
        for part in parts {
            let place = |bytes: u64| usize::try_from(bytes).expect("small");
            let length = place(part.length_bytes.into());
            let found = line.memory().to_vec(place(part.target_offset_bytes), length).expect("inside");
            assert!(found == device[place(part.offset_bytes)..][..length], "{wire}: {part:?}");
            assert!(found.iter().any(|byte| *byte != 0), "{wire}: the scratch area was not filled");
        }
    }
    node.stop();
}

#[test]
fn what_is_written_is_read_again_over_every_wire() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_over(bridge);
        for (nth, (wire, mut line)) in (1_u8..).zip(node_folder.lines(&node)) {
            let (area, align) = scratch(&line);
            let bytes: Vec<u8> = (0..8192_u32).map(|at| (at % 251) as u8 ^ nth).collect();
            line.memory().copy_in(65_536, &bytes).expect("inside");
            let write = |at: u64, length_bytes| RawWrite {
                device: DeviceId(0),
                offset_bytes: area.offset_bytes + at,
                length_bytes,
                source_offset_bytes: 65_536 + at,
            };
            let small = u64::from(align);
            line.write(1, &[write(0, align), write(small, 8192 - align)]).expect("there is room");
            let done = one(&mut line);
            assert_eq!(done.outcome.map(|cost| cost.disk_bytes), Ok(8192), "{bridge} {wire}");
            line.read(2, &[read(area.offset_bytes, 8192, 0)]).expect("there is room");
            one(&mut line).outcome.expect("the node reads it");
            assert!(line.memory().to_vec(0, 8192).expect("inside") == bytes, "{bridge} {wire}");
        }
        node.stop();
    }
}

#[test]
fn many_requests_are_outstanding_at_once_and_each_is_answered_once() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_over(bridge);
        for (wire, mut line) in node_folder.lines(&node) {
            let (area, _) = scratch(&line);
            let mut answered = vec![0_u32; DIRECT_DEPTH_MAX];
            let mut done = Vec::new();
            for round in 0..8 {
                for id in 0..DIRECT_DEPTH_MAX as u64 {
                    match (round + id) % 3 {
                        0 => line.echo(id, id * 4096, 4096),
                        1 => line.read(id, &[read(area.offset_bytes + id * 4096, 4096, id * 4096)]),
                        _ => line.read(
                            id,
                            &[read(area.offset_bytes, 2048, id * 4096), read(0, 2048, id * 4096 + 2048)],
                        ),
                    }
                    .expect("there is room");
                }
                assert!(matches!(line.echo(999, 0, 1), Err(DirectError::QueueFull { .. })));
                while line.outstanding() > 0 {
                    line.reap(Wait::ForOne, &mut done).expect("the node answers");
                }
                for DirectDone { id, outcome, .. } in done.drain(..) {
                    outcome.unwrap_or_else(|refusal| {
                        panic!("{bridge} {wire}: request {id} was refused: {refusal:?}")
                    });
                    answered[usize::try_from(id).expect("small")] += 1;
                }
            }
            assert!(answered.iter().all(|count| *count == 8), "{bridge} {wire}: {answered:?}");
        }
        node.stop();
    }
}

#[test]
fn a_shallow_queue_and_little_staging_memory_end_every_request_of_several_lines() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_with(bridge, 3, 0);
        let mut lines: Vec<(&str, DirectLine)> = (0..3).flat_map(|_| node_folder.lines(&node)).collect();
        let (area, _) = scratch(&lines[0].1);
        let place = |id: u64, part: u64| area.offset_bytes + (id + part) % 16 * 131_072;
        for (_, line) in &mut lines {
            for id in 0..16_u64 {
                let reads = [0, 1, 2].map(|part| read(place(id, part), 131_072, id * 131_072));
                let writes = [0, 1, 2].map(|part| RawWrite {
                    device: DeviceId(0),
                    offset_bytes: place(id, part),
                    length_bytes: 131_072,
                    source_offset_bytes: id * 131_072,
                });
                let queued = if id % 2 == 0 { line.read(id, &reads) } else { line.write(id, &writes) };
                queued.expect("there is room");
            }
            line.flush().expect("nothing is wrong");
        }
        for (wire, mut line) in lines {
            let mut done = Vec::new();
            while line.outstanding() > 0 {
                line.reap(Wait::ForOne, &mut done).unwrap_or_else(|error| panic!("{bridge} {wire}: {error}"));
            }
            assert!(done.iter().all(|done| done.outcome.is_ok()), "{bridge} {wire}: {done:?}");
        }
        node.stop();
    }
}

#[test]
fn parts_that_cannot_be_are_refused_with_numbers_and_the_line_goes_on() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    for (wire, mut line) in node_folder.lines(&node) {
        let (area, _) = scratch(&line);
        let capacity = line.status().devices[0].capacity_bytes;
        let mut refused = |parts: &[RawRead], number: &str| {
            line.read(1, parts).expect("it is the node that refuses");
            let refusal = one(&mut line).outcome.expect_err("the node refuses");
            assert_eq!(refusal.code, RefusalCode::Malformed, "{wire}");
            assert!(refusal.text.contains(number), "{wire}: {}", refusal.text);
        };
        refused(&[read(1, 512, 0)], "multiples of");
        refused(&[read(0, 100, 0)], "multiples of");
        refused(&[read(0, 0, 0)], "expected 1 to");
        refused(&[read(capacity, 4096, 0)], &capacity.to_string());
        refused(&[read(0, 4096, 0), read(u64::MAX - 511, 512, 0)], &capacity.to_string());
        refused(&[RawRead { device: DeviceId(9), ..read(0, 4096, 0) }], "no such device");
        let outside =
            RawWrite { device: DeviceId(0), offset_bytes: 0, length_bytes: 4096, source_offset_bytes: 0 };
        for offset_bytes in [0, area.offset_bytes - 4096, area.offset_bytes + area.length_bytes] {
            line.write(1, &[RawWrite { offset_bytes, ..outside }]).expect("it is the node that refuses");
            let refusal = one(&mut line).outcome.expect_err("the node refuses");
            assert!(refusal.text.contains(&area.length_bytes.to_string()), "{wire}: {}", refusal.text);
        }
        line.read(2, &[read(area.offset_bytes, 4096, 0)]).expect("the line goes on");
        one(&mut line).outcome.expect("the node reads it");
    }
    node.stop();
}

#[test]
fn mistakes_of_the_caller_never_reach_the_node() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (_, mut line) = node_folder.lines(&node).remove(0);
    assert!(matches!(line.read(1, &[]), Err(DirectError::Parts { parts: 0, .. })));
    let too_many = vec![read(0, 512, 0); 65];
    assert!(matches!(line.read(1, &too_many), Err(DirectError::Parts { parts: 65, parts_max: 64 })));
    let memory = MEMORY_BYTES as u64;
    assert!(matches!(line.read(1, &[read(0, 512, memory - 511)]), Err(DirectError::Outside { .. })));
    assert!(matches!(line.echo(1, u64::MAX, 1), Err(DirectError::Outside { .. })));
    line.echo(1, 0, 4096).expect("there is room");
    assert!(matches!(line.echo(1, 0, 4096), Err(DirectError::InUse { id: 1 })));
    assert!(matches!(line.ask_status(), Err(DirectError::Unfinished { outstanding: 1 })));
    one(&mut line).outcome.expect("the node answers");
    let asked = line.ask_status().expect("the node answers");
    assert_eq!((asked.counters.raw_requests, asked.counters.refused_requests), (0, 0));
    node.stop();
}

#[test]
fn a_line_without_requests_waits_exactly_as_told() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (_, mut line) = node_folder.lines(&node).remove(0);
    let mut done = Vec::new();
    let began = Instant::now();
    assert_eq!(line.reap(Wait::ForOne, &mut done).expect("nothing is wrong"), 0);
    assert_eq!(line.reap(Wait::Now, &mut done).expect("nothing is wrong"), 0);
    assert!(began.elapsed() < Duration::from_secs(5));
    let later = began + Duration::from_millis(40);
    assert_eq!(line.reap(Wait::Until(later), &mut done).expect("nothing is wrong"), 0);
    assert!(Instant::now() >= later);
    node.stop();
}

#[test]
fn a_line_whose_node_stops_says_so_again_whatever_it_is_asked() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    for (wire, mut line) in node_folder.lines(&node) {
        if wire == "tcp" {
            node.stop();
            let mut done = Vec::new();
            let lost = line.reap(Wait::Until(Instant::now() + Duration::from_secs(10)), &mut done);
            assert!(matches!(lost, Err(DirectError::Node(ClientError::NodeLost { .. }))), "{lost:?}");
            assert!(matches!(line.echo(1, 0, 1), Err(DirectError::Node(ClientError::NodeLost { .. }))));
            assert!(matches!(line.flush(), Err(DirectError::Node(ClientError::NodeLost { .. }))));
            break;
        }
    }
}

#[test]
fn a_node_that_is_silent_for_too_long_ends_the_line() {
    let node_folder = NodeFolder::new();
    let mut silent = node_folder.silent();
    let mut line = silent.line(Duration::from_millis(50));
    line.echo(1, 0, 4096).expect("there is room");
    let began = Instant::now();
    let mut done = Vec::new();
    let outcome = line.reap(Wait::ForOne, &mut done);
    assert!(matches!(outcome, Err(DirectError::Node(ClientError::TimedOut { .. }))), "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(matches!(line.flush(), Err(DirectError::Node(ClientError::TimedOut { .. }))));
    drop(line);
    silent.end();
}

#[test]
fn the_scratch_area_stays_where_it_is_and_as_it_is_when_the_node_starts_again() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let (_, mut line) = node_folder.lines(&node).remove(0);
    let (area, _) = scratch(&line);
    line.memory().copy_in(0, &[0x5a; 4096]).expect("inside");
    let write = RawWrite {
        device: DeviceId(0),
        offset_bytes: area.offset_bytes,
        length_bytes: 4096,
        source_offset_bytes: 0,
    };
    line.write(1, &[write]).expect("there is room");
    one(&mut line).outcome.expect("the node writes it");
    node.stop();
    let node = node_folder.start();
    let (_, mut line) = node_folder.lines(&node).remove(0);
    assert_eq!(scratch(&line).0, area);
    line.read(1, &[read(area.offset_bytes, 4096, 8192)]).expect("there is room");
    one(&mut line).outcome.expect("the node reads it");
    assert!(line.memory().to_vec(8192, 4096).expect("inside") == [0x5a; 4096], "it was filled anew");
    node.stop();
}
