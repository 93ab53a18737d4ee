//! Tests that parts of a device that a node has in its cache are read there, by the node and
//! one-sidedly, and never after they have changed.

use rackscan_client::DirectLine;
use rackscan_device::Wait;
use rackscan_format::message::{BridgeKind, CacheStatus, RawRead, RawWrite};

use crate::{BRIDGES, one, read, scratch, support::NodeFolder};

fn bytes_of(line: &DirectLine, part: &RawRead) -> Vec<u8> {
    let place = |bytes: u64| usize::try_from(bytes).expect("small");
    line.memory().to_vec(place(part.target_offset_bytes), part.length_bytes as usize).expect("inside")
}

fn status(line: &mut DirectLine) -> CacheStatus {
    line.ask_status().expect("nothing is outstanding").cache
}

#[test]
fn a_part_that_was_read_is_taken_without_the_node_and_is_the_same() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_with(bridge, 128, 4 << 20);
        for (wire, mut line) in node_folder.lines(&node) {
            let (area, align) = scratch(&line);
            assert!(line.open_cache().expect("the node answers"), "{bridge:?} {wire}");
            let before = status(&mut line);
            let device = node_folder.device_bytes();
            for (nth, length) in [align, 4096, 16_384, 65_536].into_iter().enumerate() {
                let part = read(area.offset_bytes + (nth as u64) * 131_072, length, 8192);
                let expected =
                    &device[usize::try_from(part.offset_bytes).expect("small")..][..length as usize];
                let mut one_sided = 0;
                for round in 0..4 {
                    line.memory().zero(0, 1 << 20).expect("inside");
                    line.read(round, &[part]).expect("there is room");
                    let done = one(&mut line);
                    let cost = done.outcome.expect("it can be read");
                    assert_eq!((done.id, cost.pages_read + cost.pages_cached), (round, 1));
                    assert!(bytes_of(&line, &part) == expected, "{bridge:?} {wire}: {part:?}, round {round}");
                    one_sided += u32::from(done.is_one_sided);
                }
                assert_eq!(one_sided, 3, "{bridge:?} {wire}: the first reply tells where it lies");
            }
            let now = status(&mut line);
            assert_eq!(now.one_sided_hits - before.one_sided_hits, 12, "{bridge:?} {wire}");
            assert_eq!(now.hits + now.misses - before.hits - before.misses, 4, "{bridge:?} {wire}");
        }
        node.stop();
    }
}

#[test]
fn what_is_written_is_never_read_as_it_was() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with(BridgeKind::Reactor, 128, 4 << 20);
    let mut lines = node_folder.lines(&node);
    for (_, line) in &mut lines {
        line.open_cache().expect("the node answers");
    }
    let (area, _) = scratch(&lines[0].1);
    let whole = read(area.offset_bytes, 8192, 0);
    let behind = read(area.offset_bytes + 8192, 4096, 0);
    for round in 1..40_u8 {
        for (wire, line) in &mut lines {
            for part in [&whole, &behind] {
                line.read(1, &[*part]).expect("there is room");
                one(line).outcome.expect("it can be read");
                let found = bytes_of(line, part);
                assert!(round == 1 || found.iter().all(|byte| *byte == round - 1), "{wire}, round {round}");
            }
        }
        // Any part of what is cached, over one of the wires, while the other reads what it knows.
        let (writer, reader) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        lines[writer].1.memory().copy_in(1 << 20, &[round; 12_288]).expect("inside");
        for at in [0, 4096, 8192] {
            let write = RawWrite {
                device: whole.device,
                offset_bytes: area.offset_bytes + at,
                length_bytes: 4096,
                source_offset_bytes: (1 << 20) + at,
            };
            lines[writer].1.write(2, &[write]).expect("there is room");
            lines[writer].1.flush().expect("the line is open");
            lines[reader].1.read(3, &[whole]).expect("there is room");
            one(&mut lines[reader].1).outcome.expect("it can be read");
            one(&mut lines[writer].1).outcome.expect("it can be written");
        }
    }
    assert!(status(&mut lines[0].1).withdrawals > 0);
    drop(lines);
    node.stop();
}

#[test]
fn many_parts_at_once_over_a_small_cache_are_all_right() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_with(BridgeKind::Reactor, 128, 256 << 10);
    for (wire, mut line) in node_folder.lines(&node) {
        line.open_cache().expect("the node answers");
        let (area, _) = scratch(&line);
        let device = node_folder.device_bytes();
        let mut one_sided = 0;
        for round in 0..30_u64 {
            // A hot third, and others that come once in a while.
            let part = |slot: u64| {
                let which = if slot.is_multiple_of(3) { slot } else { (round * 31 + slot * 7) % 200 };
                read(area.offset_bytes + which * 16_384, 16_384, slot * 16_384)
            };
            let mut done = Vec::new();
            for slot in 0..32 {
                line.read(slot, &[part(slot)]).expect("there is room");
            }
            while done.len() < 32 {
                line.reap(Wait::ForOne, &mut done).expect("the node answers");
            }
            for end in done {
                one_sided += u32::from(end.is_one_sided);
                end.outcome.expect("it can be read");
                let part = part(end.id);
                let expected = &device[usize::try_from(part.offset_bytes).expect("small")..][..16_384];
                assert!(bytes_of(&line, &part) == expected, "{wire}, round {round}: {part:?}");
            }
        }
        let now = status(&mut line);
        assert!(one_sided > 50 && now.evictions > 0 && now.used_bytes <= now.budget_bytes, "{wire}: {now:?}");
    }
    node.stop();
}

#[test]
fn a_node_without_a_cache_is_read_as_ever() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    for (wire, mut line) in node_folder.lines(&node) {
        assert!(!line.open_cache().expect("the node answers"), "{wire}");
        let (area, _) = scratch(&line);
        for round in 0..3 {
            line.read(round, &[read(area.offset_bytes, 4096, 0)]).expect("there is room");
            let done = one(&mut line);
            assert!(!done.is_one_sided && done.outcome.expect("it can be read").pages_cached == 0, "{wire}");
        }
    }
    node.stop();
}
