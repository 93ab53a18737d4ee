//! Promises about the end of a connection: on purpose, and by a peer that disappears.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Access, Connection, Ending, Event, Listener, Operation, OperationError, PostError, Region, RemoteRegion,
    limits::SEND_BYTES_MAX, sim::SimNet,
};

use crate::pair::{TestWire, call, cluster_key, events, hear, listen, network_of, pair, soon};

const PEER_ADDRESS: &str = "RACKSCAN_CONFORMANCE_PEER";

/// The program of the process that is killed: it grants a region and then neither polls nor ends.
pub(crate) fn be_the_peer() {
    let Ok(address) = std::env::var(PEER_ADDRESS) else { return };
    let mut connection = call(&address.parse().expect("an address"));
    let region = Region::allocate(1 << 20).expect("allocate");
    let remote = connection.register(&region, Access::ReadWrite).expect("register");
    connection.post(0, Operation::Send { bytes: &remote.to_bytes() }).expect("post");
    std::thread::sleep(Duration::from_secs(60));
    panic!("nobody killed this process");
}

/// A peer that will disappear.
enum Doomed {
    /// By `kill -9`.
    Process(Child),
    /// By a crash of its simulated place; the connection is its end.
    Place(SimNet, Box<Connection>),
}

const DOOMED_PLACE: &str = "doomed";

/// Starts such a peer, which does what `be_the_peer` does, and connects to it.
fn meet_doomed(wire: TestWire) -> (Doomed, Connection, RemoteRegion) {
    let mut listener = listen(wire);
    if !matches!(wire, TestWire::Sim(_)) {
        return meet_process(&mut listener);
    }
    let network = network_of(listener.address());
    let mut theirs = network.connect(DOOMED_PLACE, listener.address(), &cluster_key()).expect("connect");
    let mut ours = listener.accept_until(soon()).expect("accept").expect("the caller in time");
    let region = Region::allocate(1 << 20).expect("allocate");
    let remote = theirs.register(&region, Access::ReadWrite).expect("register");
    theirs.post(0, Operation::Send { bytes: &remote.to_bytes() }).expect("post");
    let remote = hear(&mut ours);
    (Doomed::Place(network, Box::new(theirs)), ours, remote)
}

fn meet_process(listener: &mut Listener) -> (Doomed, Connection, RemoteRegion) {
    let child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "peer_in_a_process_of_its_own", "--nocapture"])
        .env(PEER_ADDRESS, listener.address().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawn");
    let mut connection = listener.accept_until(soon()).expect("accept").expect("the process in time");
    let remote = hear(&mut connection);
    (Doomed::Process(child), connection, remote)
}

impl Doomed {
    fn disappear(self) {
        match self {
            Self::Process(mut child) => {
                child.kill().expect("kill");
                child.wait().expect("wait");
            }
            Self::Place(network, connection) => {
                network.crash(DOOMED_PLACE);
                drop(connection);
            }
        }
    }
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
    let (doomed, mut connection, _) = meet_doomed(wire);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        doomed.disappear();
        Instant::now()
    });
    let found = events(&mut connection);
    let noticed = Instant::now();
    assert!(matches!(found.as_slice(), [Event::Closed(Ending::Lost { .. })]), "{found:?}");
    let killed = killer.join().expect("the killer");
    assert!(noticed.saturating_duration_since(killed) < Duration::from_secs(1));
    assert_dead(&mut connection);
}

pub(crate) fn a_killed_peer_is_noticed_by_an_owner_that_only_polls_memory(wire: TestWire) {
    let (doomed, mut connection, _) = meet_doomed(wire);
    let mut found = Vec::new();
    let deadline = soon();
    while !connection.arm() {
        connection.poll(&mut found);
    }
    doomed.disappear();
    while connection.ended().is_none() {
        connection.poll_memory(&mut found);
        assert!(Instant::now() < deadline, "{found:?}");
    }
    assert!(matches!(found.as_slice(), [Event::Closed(Ending::Lost { .. })]), "{found:?}");
}

pub(crate) fn a_killed_peer_is_noticed_by_a_poller_and_operations_in_flight_fail(wire: TestWire) {
    let (doomed, mut connection, remote) = meet_doomed(wire);
    // The peer does not poll, so these stay in flight, and so do the reads after them.
    let big = vec![0; SEND_BYTES_MAX];
    for id in 0..100 {
        connection.post(id, Operation::Send { bytes: &big }).expect("post");
    }
    let local = Region::allocate(4096).expect("allocate");
    let read = Operation::Read { source: remote, source_offset: 0, target: local.whole() };
    connection.post(100, read).expect("post");
    std::thread::sleep(Duration::from_millis(50));
    doomed.disappear();
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
    // As much as a receiver that does not poll can hold, so that it takes a while.
    let words = |number: u64| number.to_le_bytes().repeat(if number < 20 { 250 } else { 2000 });
    for number in 0..=20 {
        ours.post(number, Operation::Send { bytes: &words(number) }).expect("post");
    }
    ours.close();
    let mut found = Vec::new();
    while theirs.ended().is_none() {
        found.extend(events(&mut theirs));
    }
    let expected = (0..=20).map(|number| Event::Message { bytes: words(number) });
    let expected: Vec<_> = expected.chain([Event::Closed(Ending::Orderly)]).collect();
    assert!(found == expected, "{} events, the last is {:?}", found.len(), found.last());
    assert_eq!(theirs.post(0, Operation::Send { bytes: b"x" }), Err(PostError::Closed(Ending::Orderly)));
    let started = Instant::now();
    assert_eq!(theirs.wait(&mut found, soon()), 0, "nothing follows the ending");
    assert!(started.elapsed() < Duration::from_secs(5), "and nobody waits for it");
}

pub(crate) fn operations_in_flight_when_the_peer_closes_fail_as_orderly(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(4096).expect("allocate");
    let remote = theirs.register(&region, Access::Read).expect("register");
    // More than a receiver that does not poll can hold, and a read that waits behind it.
    let big = vec![0; SEND_BYTES_MAX];
    for id in 0..100 {
        ours.post(id, Operation::Send { bytes: &big }).expect("post");
    }
    let local = Region::allocate(4096).expect("allocate");
    let read = Operation::Read { source: remote, source_offset: 0, target: local.whole() };
    ours.post(100, read).expect("post");
    theirs.close();
    let mut found = Vec::new();
    while ours.ended().is_none() {
        found.extend(events(&mut ours));
    }
    assert_eq!(found.pop(), Some(Event::Closed(Ending::Orderly)));
    for (expected, event) in found.iter().enumerate() {
        let Event::Completed { id, outcome } = event else { panic!("{event:?}") };
        assert_eq!(*id, expected as u64);
        assert!(matches!(outcome, Ok(_) | Err(OperationError::Closed(Ending::Orderly))), "{id}: {outcome:?}");
    }
    assert!(
        matches!(found.last(), Some(Event::Completed { id: 100, outcome: Err(_) })),
        "{:?}",
        found.last()
    );
    assert_eq!((ours.in_flight(), region.holders(), local.holders()), (0, 1, 1));
}

pub(crate) fn a_listener_that_goes_leaves_its_connections(wire: TestWire) {
    let mut listener = listen(wire);
    let (mut ours, mut theirs) = crate::pair::meet(&mut listener);
    let address = listener.address().clone();
    drop(listener);
    assert!(crate::pair::try_call(&address).is_err());
    ours.post(0, Operation::Send { bytes: b"still here" }).expect("post");
    assert_eq!(events(&mut theirs), [Event::Message { bytes: b"still here".to_vec() }]);
}

pub(crate) fn a_caller_learns_that_its_listener_is_gone(wire: TestWire) {
    let listener = listen(wire);
    let mut waiting = call(listener.address());
    drop(listener);
    assert_eq!(events(&mut waiting), [Event::Closed(Ending::Orderly)]);
}

pub(crate) fn a_lost_peer_leaves_no_registration(wire: TestWire) {
    let (doomed, mut connection, _) = meet_doomed(wire);
    let region = Region::allocate(4096).expect("allocate");
    let remote = connection.register(&region, Access::ReadWrite).expect("register");
    doomed.disappear();
    while connection.ended().is_none() {
        let _ = events(&mut connection);
    }
    assert_eq!(region.holders(), 1, "the wire holds on to memory that nobody can reach any more");
    connection.deregister(&remote).expect("deregister");
    assert_eq!(connection.registered_count(), 0);
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
        if matches!(wire, TestWire::Sim(_)) {
            let network = network_of(listener.address());
            assert_eq!((network.registrations(), network.connections()), (0, 0));
        }
    };
    let mut listener = listen(wire);
    cycle(&mut listener);
    let before = (open_descriptors().len(), mapped_regions());
    for _ in 0..20 {
        cycle(&mut listener);
    }
    let deadline = soon();
    // A handshake's thread may still be closing one of its descriptors.
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
        #[cfg(feature = "verbs")]
        TestWire::Verbs => "verbs::closing_leaves_no_registration_and_no_descriptor",
        TestWire::Tcp => "tcp::closing_leaves_no_registration_and_no_descriptor",
        TestWire::Sim(_) => "sim::closing_leaves_no_registration_and_no_descriptor",
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
pub(crate) fn a_message_survives_its_sender(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    ours.post(0, Operation::Send { bytes: b"last words" }).expect("post");
    drop(ours);
    let found = events(&mut theirs);
    assert_eq!(found[0], Event::Message { bytes: b"last words".to_vec() });
}
