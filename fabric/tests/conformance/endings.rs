//! Promises about the end of a connection: on purpose, and by `kill -9`.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Access, Connection, Ending, Event, Listener, Operation, OperationError, PostError, Region, RemoteRegion,
    connect, limits::SEND_BYTES_MAX,
};

use crate::pair::{TestWire, cluster_key, events, hear, listen, pair, soon};

const PEER_ADDRESS: &str = "RACKSCAN_CONFORMANCE_PEER";

/// The life of the process that is killed: it grants a region and then neither polls nor ends.
pub(crate) fn be_the_peer() {
    let Ok(address) = std::env::var(PEER_ADDRESS) else { return };
    let address = address.parse().expect("an address");
    let mut connection = connect(&address, &cluster_key(), soon()).expect("connect");
    let region = Region::allocate(1 << 20).expect("allocate");
    let remote = connection.register(&region, Access::ReadWrite).expect("register");
    connection.post(0, Operation::Send { bytes: &remote.to_bytes() }).expect("post");
    std::thread::sleep(Duration::from_secs(60));
    panic!("nobody killed this process");
}

/// Starts such a process and meets it.
fn meet_process(listener: &mut Listener) -> (Child, Connection, RemoteRegion) {
    let child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "peer_in_a_process_of_its_own", "--nocapture"])
        .env(PEER_ADDRESS, listener.address().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let mut connection = listener.accept_until(soon()).expect("accept").expect("the process in time");
    let remote = hear(&mut connection);
    (child, connection, remote)
}

/// `kill -9`.
fn kill(mut child: Child) {
    child.kill().expect("kill");
    child.wait().expect("wait");
}

fn assert_dead(connection: &mut Connection) {
    assert!(matches!(connection.ended(), Some(Ending::Lost { .. })), "{:?}", connection.ended());
    let refusal = connection.post(0, Operation::Send { bytes: b"x" });
    assert!(matches!(refusal, Err(PostError::Closed(Ending::Lost { .. }))), "{refusal:?}");
    let region = Region::allocate(4096).expect("allocate");
    assert!(connection.register(&region, Access::Read).is_err());
    assert_eq!((connection.in_flight(), connection.poll(&mut Vec::new())), (0, 0));
}

pub(crate) fn a_killed_peer_is_noticed_by_a_sleeper(wire: TestWire) {
    let (child, mut connection, _) = meet_process(&mut listen(wire));
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        kill(child);
        Instant::now()
    });
    let found = events(&mut connection);
    let noticed = Instant::now();
    assert!(matches!(found.as_slice(), [Event::Closed(Ending::Lost { .. })]), "{found:?}");
    let killed = killer.join().expect("the killer");
    assert!(noticed.saturating_duration_since(killed) < Duration::from_secs(1));
    assert_dead(&mut connection);
}

pub(crate) fn a_killed_peer_is_noticed_by_a_poller_and_fails_what_is_in_flight(wire: TestWire) {
    let (child, mut connection, remote) = meet_process(&mut listen(wire));
    // The peer does not poll, so these stay in flight; the reads behind them do too.
    let big = vec![0; SEND_BYTES_MAX];
    for id in 0..100 {
        connection.post(id, Operation::Send { bytes: &big }).expect("post");
    }
    let local = Region::allocate(4096).expect("allocate");
    let read = Operation::Read { source: remote, source_offset: 0, target: local.whole() };
    connection.post(100, read).expect("post");
    std::thread::sleep(Duration::from_millis(50));
    kill(child);
    let mut found = Vec::new();
    let deadline = soon();
    while connection.ended().is_none() {
        connection.poll(&mut found);
        assert!(Instant::now() < deadline, "{} events", found.len());
    }
    let last = found.pop();
    assert!(matches!(last, Some(Event::Closed(Ending::Lost { .. }))), "{last:?}");
    let completed: Vec<_> = found
        .iter()
        .map(|event| match event {
            Event::Completed { id, outcome } => (*id, outcome.is_ok()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(completed.iter().map(|c| c.0).collect::<Vec<_>>(), (0..101).collect::<Vec<_>>());
    let failed = completed.iter().filter(|c| !c.1).count();
    assert!(failed > 50, "{failed} operations failed");
    assert!(matches!(
        found.last(),
        Some(Event::Completed { id: 100, outcome: Err(OperationError::Closed(Ending::Lost { .. })) })
    ));
    assert_dead(&mut connection);
}

pub(crate) fn a_closed_connection_is_an_orderly_ending_after_all_messages(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    for number in 0..100_u64 {
        ours.post(number, Operation::Send { bytes: &number.to_le_bytes() }).expect("post");
    }
    ours.close();
    let mut found = Vec::new();
    while theirs.ended().is_none() {
        found.extend(events(&mut theirs));
    }
    let expected = (0..100_u64).map(|number| Event::Message { bytes: number.to_le_bytes().to_vec() });
    let expected: Vec<_> = expected.chain([Event::Closed(Ending::Orderly)]).collect();
    assert_eq!(found, expected);
    assert_eq!(theirs.post(0, Operation::Send { bytes: b"x" }), Err(PostError::Closed(Ending::Orderly)));
    let started = Instant::now();
    assert_eq!(theirs.wait(&mut found, soon()), 0, "nothing follows the ending");
    assert!(started.elapsed() < Duration::from_secs(1), "and nobody waits for it");
}

fn open_descriptors() -> Vec<String> {
    let folder = std::fs::read_dir("/proc/self/fd").expect("our descriptors");
    let links = folder.filter_map(|entry| std::fs::read_link(entry.expect("a descriptor").path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

fn mapped_regions() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
    maps.lines().filter(|line| line.contains("memfd:rackscan-region")).count()
}

/// Run in a process of its own, because the other tests open and close descriptors meanwhile.
fn leave_nothing_behind(wire: TestWire) {
    let cycle = |listener: &mut Listener| {
        let (mut ours, mut theirs) = crate::pair::meet(listener);
        let region = Region::allocate(4096).expect("allocate");
        for connection in [&mut ours, &mut theirs] {
            let remote = connection.register(&region, Access::ReadWrite).expect("register");
            connection.post(0, Operation::Send { bytes: &remote.to_bytes() }).expect("post");
        }
        let local = Region::allocate(4096).expect("allocate");
        while ours.counters().messages == 0 {
            let _ = events(&mut ours);
        }
        drop(ours);
        while theirs.ended().is_none() {
            let _ = events(&mut theirs);
        }
        drop(theirs);
        assert_eq!((region.holders(), local.holders()), (1, 1));
    };
    let mut listener = listen(wire);
    cycle(&mut listener);
    let before = (open_descriptors().len(), mapped_regions());
    for _ in 0..20 {
        cycle(&mut listener);
    }
    let deadline = soon();
    // A handshake's thread may still be closing its copy of something.
    while (open_descriptors().len(), mapped_regions()) != before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((open_descriptors().len(), mapped_regions()), before, "{:?}", open_descriptors());
}

pub(crate) fn closing_leaves_no_registration_and_no_descriptor(wire: TestWire) {
    const ALONE: &str = "RACKSCAN_CONFORMANCE_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return leave_nothing_behind(wire);
    }
    let name = match wire {
        TestWire::Shm => "shm::closing_leaves_no_registration_and_no_descriptor",
        TestWire::Tcp => "tcp::closing_leaves_no_registration_and_no_descriptor",
    };
    let output = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", name, "--test-threads", "1"])
        .env(ALONE, "1")
        .output()
        .expect("run alone");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// A message that arrives before a loss is not lost with the peer.
#[test]
fn a_message_survives_its_sender() {
    for wire in [TestWire::Shm, TestWire::Tcp] {
        let (mut ours, mut theirs) = pair(wire);
        ours.post(0, Operation::Send { bytes: b"last words" }).expect("post");
        drop(ours);
        let found = events(&mut theirs);
        assert_eq!(found[0], Event::Message { bytes: b"last words".to_vec() });
    }
}
