//! Promises about one-sided operations: the right bytes are moved, and no others.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rackscan_fabric::{Access, Connection, Done, Event, Operation, Region, RemoteRegion};

use crate::pair::{TestWire, events_of, flush, hear, listen, meet, pair, pattern, run, tell};

const MIB: usize = 1 << 20;

/// A region of the second end that the first one knows the name of.
fn shared(wire: TestWire, bytes: usize) -> (Connection, Connection, Region, RemoteRegion) {
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(bytes).expect("allocate");
    let remote = theirs.register(&region, Access::ReadWrite).expect("register");
    tell(&mut theirs, &remote);
    let heard = hear(&mut ours);
    assert_eq!(heard, remote);
    (ours, theirs, region, remote)
}

pub(crate) fn writes_and_reads_of_every_length_and_alignment_arrive_unchanged(wire: TestWire) {
    let bytes = 64 * MIB + 8192;
    let (mut ours, theirs, region, remote) = shared(wire, bytes);
    let local = Region::allocate(bytes).expect("allocate");
    let lengths = [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65_535, 65_536, 131_072, MIB + 1, 64 * MIB];
    for (seed, length) in lengths.into_iter().enumerate() {
        for (from, to) in [(0, 0), (1, 3), (4096, 5), (4095, 4096)] {
            if length > MIB + 1 && from != 1 {
                continue;
            }
            let expected = pattern(length, seed);
            local.copy_in(from, &expected).expect("copy in");
            // The byte on either side must stay as it is.
            region.copy_in(to + length, &[0xA5]).expect("copy in");
            let before = to.checked_sub(1);
            before.map_or(Ok(()), |at| region.copy_in(at, &[0x5A])).expect("copy in");
            let source = local.slice(from, length).expect("slice");
            let write = Operation::Write { source, target: remote, target_offset: to as u64 };
            assert_eq!(run(&mut ours, write), Ok(Done::Moved { bytes: length as u64 }));
            flush(&mut ours, &remote);
            assert!(region.to_vec(to, length).expect("copy out") == expected, "write {length} {from}->{to}");
            assert_eq!(region.to_vec(to + length, 1).expect("copy out"), [0xA5]);
            assert!(before.is_none_or(|at| region.to_vec(at, 1).expect("copy out") == [0x5A]));

            local.zero(from, length).expect("zero");
            let target = local.slice(from, length).expect("slice");
            let read = Operation::Read { source: remote, source_offset: to as u64, target };
            assert_eq!(run(&mut ours, read), Ok(Done::Moved { bytes: length as u64 }));
            assert!(local.to_vec(from, length).expect("copy out") == expected, "read {length} {to}->{from}");
        }
    }
    drop(theirs);
}

pub(crate) fn a_write_of_plain_bytes_takes_them_at_post(wire: TestWire) {
    let (mut ours, _theirs, region, remote) = shared(wire, MIB);
    for round in 0..100_usize {
        let mut bytes = pattern(round * 50, round);
        let expected = bytes.clone();
        let operation =
            Operation::WriteBytes { bytes: &bytes, target: remote, target_offset: 10_000 * round as u64 };
        ours.post(round as u64, operation).expect("post");
        bytes.fill(0xEE);
        assert_eq!(events_of(&mut ours, 1).len(), 1);
        flush(&mut ours, &remote);
        assert!(
            region.to_vec(10_000 * round, expected.len()).expect("copy out") == expected,
            "round {round}"
        );
    }
}

pub(crate) fn a_written_word_is_never_seen_in_part(wire: TestWire) {
    const WORDS: [u64; 2] = [0, u64::MAX];
    let (mut ours, theirs, region, remote) = shared(wire, 4096);
    let local = Region::allocate(4096).expect("allocate");
    let (stop, seen) = (AtomicBool::new(false), region.clone());
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let word = seen.load_u64(4088).expect("load");
                assert!(WORDS.contains(&word), "{word:#x}");
            }
        });
        for round in 0..5000 {
            let word = WORDS[round % 2].to_le_bytes();
            local.copy_in(round % 9, &word).expect("copy in");
            let source = local.slice(round % 9, 8).expect("slice");
            let write = match round % 3 {
                0 => Operation::Write { source, target: remote, target_offset: 4088 },
                _ => Operation::WriteBytes { bytes: &word, target: remote, target_offset: 4088 },
            };
            assert!(run(&mut ours, write).is_ok());
        }
        stop.store(true, Ordering::Relaxed);
        looks.join().expect("who looks");
    });
    drop(theirs);
}

pub(crate) fn atomics_find_and_change_the_word(wire: TestWire) {
    let (mut ours, _theirs, region, remote) = shared(wire, 4096);
    region.store_u64(4088, u64::MAX).expect("store");
    let add = Operation::FetchAdd { target: remote, target_offset: 4088, add: 3 };
    assert_eq!(run(&mut ours, add.clone()), Ok(Done::Found { value: u64::MAX }));
    assert_eq!(run(&mut ours, add), Ok(Done::Found { value: 2 }), "additions wrap");
    let swap =
        |expected| Operation::CompareSwap { target: remote, target_offset: 4088, expected, replacement: 99 };
    assert_eq!(run(&mut ours, swap(4)), Ok(Done::Found { value: 5 }));
    assert_eq!(region.load_u64(4088).expect("load"), 5, "another value than expected stays");
    assert_eq!(run(&mut ours, swap(5)), Ok(Done::Found { value: 5 }));
    assert_eq!(region.load_u64(4088).expect("load"), 99);
    assert_eq!(region.load_u64(4080).expect("load"), 0);
}

pub(crate) fn concurrent_atomics_lose_no_update(wire: TestWire) {
    const ADDERS: u64 = 4;
    const ADDS: u64 = 500;
    let mut listener = listen(wire);
    let region = Region::allocate(4096).expect("allocate");
    let adders: Vec<_> = (0..ADDERS)
        .map(|_| {
            let (mut ours, mut theirs) = meet(&mut listener);
            let remote = theirs.register(&region, Access::ReadWrite).expect("register");
            tell(&mut theirs, &remote);
            std::thread::spawn(move || {
                let remote = hear(&mut ours);
                for _ in 0..ADDS {
                    let add = Operation::FetchAdd { target: remote, target_offset: 8, add: 1 };
                    assert!(run(&mut ours, add).is_ok());
                }
                theirs
            })
        })
        .collect();
    for adder in adders {
        drop(adder.join().expect("an adder"));
    }
    assert_eq!(region.load_u64(8).expect("load"), ADDERS * ADDS);
}

pub(crate) fn many_connections_and_threads_do_not_disturb_each_other(wire: TestWire) {
    const PAIRS: usize = 16;
    let mut listener = listen(wire);
    let region = Arc::new(Region::allocate(PAIRS * 65_536).expect("allocate"));
    let threads: Vec<_> = (0..PAIRS)
        .map(|number| {
            let (mut ours, mut theirs) = meet(&mut listener);
            let region = Arc::clone(&region);
            std::thread::spawn(move || {
                let remote = theirs.register(&region, Access::ReadWrite).expect("register");
                tell(&mut theirs, &remote);
                let part = hear(&mut ours).slice(number as u64 * 65_536, 65_536).expect("a part");
                let local = Region::allocate(65_536).expect("allocate");
                for round in 0..20 {
                    let expected = pattern(65_536, number * 1000 + round);
                    local.copy_in(0, &expected).expect("copy in");
                    let write = Operation::Write { source: local.whole(), target: part, target_offset: 0 };
                    assert!(run(&mut ours, write).is_ok());
                    local.zero(0, 65_536).expect("zero");
                    let read = Operation::Read { source: part, source_offset: 0, target: local.whole() };
                    assert!(run(&mut ours, read).is_ok());
                    assert!(local.to_vec(0, 65_536).expect("copy out") == expected, "{number} {round}");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a pair");
    }
}

pub(crate) fn a_peer_that_does_nothing_is_read_and_written(wire: TestWire) {
    // The second end never polls again; one-sided operations do not need it.
    let (mut ours, theirs, region, remote) = shared(wire, 4096);
    for round in 0..1000_u64 {
        let bytes = round.to_le_bytes();
        assert!(
            run(&mut ours, Operation::WriteBytes { bytes: &bytes, target: remote, target_offset: 16 })
                .is_ok()
        );
        flush(&mut ours, &remote);
        assert_eq!(region.load_u64(16).expect("load"), round);
    }
    assert_eq!(theirs.counters().messages, 0);
}

pub(crate) fn counters_count_what_was_done(wire: TestWire) {
    let (mut ours, mut theirs, _region, remote) = shared(wire, 4096);
    let local = Region::allocate(4096).expect("allocate");
    let before = ours.counters();
    let target = local.slice(0, 100).expect("slice");
    assert!(run(&mut ours, Operation::Read { source: remote, source_offset: 0, target }).is_ok());
    assert!(
        run(&mut ours, Operation::WriteBytes { bytes: &[1; 30], target: remote, target_offset: 0 }).is_ok()
    );
    assert!(run(&mut ours, Operation::FetchAdd { target: remote, target_offset: 0, add: 1 }).is_ok());
    assert!(run(&mut ours, Operation::Send { bytes: &[1; 20] }).is_ok());
    let wrong = RemoteRegion { key: !remote.key, ..remote };
    assert!(run(&mut ours, Operation::FetchAdd { target: wrong, target_offset: 0, add: 1 }).is_err());
    let after = ours.counters();
    assert_eq!((after.reads - before.reads, after.read_bytes - before.read_bytes), (1, 100));
    assert_eq!((after.writes - before.writes, after.written_bytes - before.written_bytes), (1, 30));
    assert_eq!((after.sends - before.sends, after.sent_bytes - before.sent_bytes), (1, 20));
    assert_eq!((after.atomics - before.atomics, after.completed - before.completed), (2, 4));
    assert_eq!((after.failed - before.failed, ours.in_flight()), (1, 0));
    assert_eq!(events_of(&mut theirs, 1), [Event::Message { bytes: vec![1; 20] }]);
    assert_eq!((theirs.counters().messages, theirs.counters().received_bytes), (1, 20));
}

pub(crate) fn a_mapped_remote_region_is_the_peers_memory(wire: TestWire) {
    let (mut ours, _theirs, _region, remote) = shared(wire, 8192);
    let mapped = ours.map_remote(&remote, 4096, 4096, Access::Write);
    match wire {
        TestWire::Tcp | TestWire::Sim(_) => assert!(mapped.is_none()),
        #[cfg(feature = "verbs")]
        TestWire::Verbs => assert!(mapped.is_none()),
        TestWire::Shm => {
            let mapped = mapped.expect("mapped");
            assert_eq!((mapped.len(), mapped.as_ptr().addr() % 4096, mapped.is_writable()), (4096, 0, true));
            assert!(ours.map_remote(&remote, 4096, 4097, Access::Write).is_none(), "beyond the end");
            let wrong = RemoteRegion { key: !remote.key, ..remote };
            assert!(ours.map_remote(&wrong, 0, 1, Access::Read).is_none(), "another key");
        }
    }
}
