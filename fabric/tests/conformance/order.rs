//! Promises about the order of reads and the operations that are posted after them.

use rackscan_fabric::{
    Access, Connection, Done, Ending, Event, Operation, Region, RemoteRegion, limits::SEND_BYTES_MAX,
};

use crate::pair::{TestWire, events, events_of, flush, hear, message, pair, pattern, soon, tell};

/// A region of the peer, and its name.
fn region_of_peer(ours: &mut Connection, theirs: &mut Connection, bytes: usize) -> (Region, RemoteRegion) {
    let region = Region::allocate(bytes).expect("allocate");
    let remote = theirs.register(&region, Access::ReadWrite).expect("register");
    tell(theirs, &remote);
    (region, hear(ours))
}

pub(crate) fn a_read_does_not_see_what_was_posted_after_it(wire: TestWire) {
    const BYTES: usize = 256 * 1024;
    let (mut ours, mut theirs) = pair(wire);
    let (region, remote) = region_of_peer(&mut ours, &mut theirs, BYTES);
    let (new, seen) =
        (Region::allocate(BYTES).expect("allocate"), Region::allocate(BYTES).expect("allocate"));
    for round in 1..=20_u8 {
        region.copy_in(0, &vec![0; BYTES]).expect("copy in");
        new.copy_in(0, &vec![round; BYTES]).expect("copy in");
        let read = Operation::Read { source: remote, source_offset: 0, target: seen.whole() };
        ours.post(1, read).expect("post");
        let at_its_end = Operation::FetchAdd { target: remote, target_offset: BYTES as u64 - 8, add: 1 };
        ours.post(2, at_its_end).expect("post");
        let write = Operation::Write { source: new.whole(), target: remote, target_offset: 0 };
        ours.post(3, write).expect("post");
        assert_eq!(
            events_of(&mut ours, 3)[1],
            Event::Completed { id: 2, outcome: Ok(Done::Found { value: 0 }) }
        );
        assert!(seen.to_vec(0, BYTES).expect("copy out") == vec![0; BYTES], "round {round}");
        flush(&mut ours, &remote);
        assert!(region.to_vec(0, BYTES).expect("copy out") == vec![round; BYTES], "round {round}");
    }
}

pub(crate) fn a_message_behind_a_read_is_seen_after_the_read_has_taken_its_bytes(wire: TestWire) {
    // So many bytes that they take longer than the message. The owner changes the last of them.
    const BYTES: usize = 16 << 20;
    const LAST: usize = BYTES - 4096;
    let (mut ours, mut theirs) = pair(wire);
    let (region, remote) = region_of_peer(&mut ours, &mut theirs, BYTES);
    let seen = Region::allocate(BYTES).expect("allocate");
    for round in 0..4_u8 {
        let read = Operation::Read { source: remote, source_offset: 0, target: seen.whole() };
        ours.post(1, read).expect("post");
        ours.post(2, Operation::Send { bytes: b"yours again" }).expect("post");
        // The owner polls before the reader does, and uses the memory for something else.
        assert_eq!(message(&mut theirs), b"yours again");
        region.copy_in(LAST, &[round + 1; 4096]).expect("copy in");
        let moved = |id, bytes| Event::Completed { id, outcome: Ok(Done::Moved { bytes }) };
        assert_eq!(events_of(&mut ours, 2), [moved(1, BYTES as u64), moved(2, 11)]);
        assert!(seen.to_vec(LAST, 4096).expect("copy out") == [round; 4096], "round {round}");
    }
}

/// Reads all of `seen` five times, then writes `source` after the part that was read, then sends
/// messages; then does all of that again.
fn read_write_and_tell(
    connection: &mut Connection,
    remote: &RemoteRegion,
    (seen, source): (&Region, &Region),
    messages: usize,
) {
    let target_offset = seen.bytes() as u64;
    let note = vec![1; SEND_BYTES_MAX];
    let mut posted = 0;
    for _ in 0..2 {
        for _ in 0..5 {
            let read = Operation::Read { source: *remote, source_offset: 0, target: seen.whole() };
            connection.post(0, read).expect("post");
        }
        let write = Operation::Write { source: source.whole(), target: *remote, target_offset };
        connection.post(0, write).expect("post");
        for _ in 0..messages {
            connection.post(0, Operation::Send { bytes: &note }).expect("post");
        }
        posted += 6 + messages;
    }
    let (mut completed, mut received, mut found) = (0, 0, Vec::new());
    while completed < posted || received < 2 * messages {
        let progress = connection.wait(&mut found, soon());
        assert!(progress > 0, "stuck: {completed} of {posted} completed, {received} received");
        for event in found.drain(..) {
            match event {
                Event::Completed { outcome: Ok(_), .. } => completed += 1,
                Event::Message { .. } => received += 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) fn reads_of_both_sides_and_operations_behind_them_do_not_block_each_other(wire: TestWire) {
    // Five times as much is more than the buffers of a socket hold.
    const BYTES: usize = 8 << 20;
    const MESSAGES: usize = 40;
    let (mut ours, mut theirs) = pair(wire);
    let (to_read, name) = region_of_peer(&mut ours, &mut theirs, 2 * BYTES);
    let (read_by_them, their_name) = region_of_peer(&mut theirs, &mut ours, 2 * BYTES);
    let side = move |mut connection: Connection, name: RemoteRegion, seed: usize| {
        let seen = Region::allocate(BYTES).expect("allocate");
        let source = Region::allocate(BYTES).expect("allocate");
        source.copy_in(0, &pattern(BYTES, seed)).expect("copy in");
        read_write_and_tell(&mut connection, &name, (&seen, &source), MESSAGES);
        assert!(seen.to_vec(0, BYTES).expect("copy out") == pattern(BYTES, 3), "read by side {seed}");
        connection
    };
    for region in [&to_read, &read_by_them] {
        region.copy_in(0, &pattern(BYTES, 3)).expect("copy in");
    }
    let other = std::thread::spawn(move || side(theirs, their_name, 2));
    let ours = side(ours, name, 1);
    let theirs = other.join().expect("the other side");
    // The last messages arrived after the writes.
    for (region, seed) in [(&to_read, 1), (&read_by_them, 2)] {
        assert!(
            region.to_vec(BYTES, BYTES).expect("copy out") == pattern(BYTES, seed),
            "written by side {seed}"
        );
    }
    drop((ours, theirs));
}

pub(crate) fn operations_posted_behind_a_read_are_sent_by_closing(wire: TestWire) {
    const BYTES: usize = 1 << 20;
    let (mut ours, mut theirs) = pair(wire);
    let (region, remote) = region_of_peer(&mut ours, &mut theirs, BYTES);
    let seen = Region::allocate(BYTES).expect("allocate");
    ours.post(1, Operation::Read { source: remote, source_offset: 0, target: seen.whole() }).expect("post");
    let write = Operation::WriteBytes { bytes: b"written", target: remote, target_offset: 0 };
    ours.post(2, write).expect("post");
    ours.post(3, Operation::Send { bytes: b"and told" }).expect("post");
    ours.close();
    let mut found = Vec::new();
    while theirs.ended().is_none() {
        found.extend(events(&mut theirs));
    }
    assert_eq!(found, [Event::Message { bytes: b"and told".to_vec() }, Event::Closed(Ending::Orderly)]);
    assert_eq!(region.to_vec(0, 7).expect("copy out"), b"written");
}
