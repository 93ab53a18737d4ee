//! Connects two ends of a wire, and offers the small steps of which every promise consists.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Address, ClusterKey, ConnectError, Connection, Done, Event, Listener, Operation, OperationError, Region,
    RemoteRegion, connect,
    sim::{Seed, SimConfig, SimNet, Threads},
};

/// The wires that must keep the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestWire {
    Shm,
    Tcp,
    #[cfg(feature = "verbs")]
    Verbs,
    /// With the number of a seed.
    Sim(u64),
}

impl TestWire {
    /// Whether a connection continues after a refused operation.
    pub(crate) fn outlives_refusal(self) -> bool {
        match self {
            Self::Shm | Self::Tcp | Self::Sim(_) => true,
            #[cfg(feature = "verbs")]
            Self::Verbs => false,
        }
    }

    /// Whether its listeners can be called, and its callers answered, by plain sockets that speak
    /// no fabric protocol.
    pub(crate) fn has_sockets(self) -> bool {
        !matches!(self, Self::Sim(_))
    }
}

/// The simulated networks of all promises, which must outlive the addresses in them.
static NETWORKS: Mutex<Vec<SimNet>> = Mutex::new(Vec::new());

/// The network of a `sim` address.
pub(crate) fn network_of(address: &Address) -> SimNet {
    let networks = NETWORKS.lock().expect("the networks");
    networks.iter().find(|network| network.address("listener") == *address).expect("a network").clone()
}

fn fresh_network(seed: u64) -> Address {
    let config = SimConfig { threads: Threads::Many, ..SimConfig::default() };
    let network = SimNet::new(Seed::new(seed), config);
    let address = network.address("listener");
    NETWORKS.lock().expect("the networks").push(network);
    address
}

/// No step of any promise takes as long, on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn cluster_key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

/// A place to listen at that no other test uses.
pub(crate) fn fresh_address(wire: TestWire) -> Address {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    match wire {
        TestWire::Shm => {
            let name = format!("rs-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            Address::Shm { path: std::env::temp_dir().join(name) }
        }
        TestWire::Tcp => Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        #[cfg(feature = "verbs")]
        TestWire::Verbs => {
            let place =
                std::env::var("RACKSCAN_VERBS_LISTEN").expect("RACKSCAN_VERBS_LISTEN: device@address");
            format!("verbs:{place}:0").parse().expect("an address")
        }
        TestWire::Sim(seed) => fresh_network(seed),
    }
}

/// The address that a caller uses for a listener: on `verbs`, with the caller's own device.
pub(crate) fn seen_by_caller(address: &Address) -> Address {
    match address {
        Address::Verbs { host, port, .. } => {
            let (device, host) = (std::env::var("RACKSCAN_VERBS_CALL").ok(), host.clone());
            Address::Verbs { device, host, port: *port }
        }
        other => other.clone(),
    }
}

/// Connects to a listener.
pub(crate) fn call(address: &Address) -> Connection {
    try_call(address).expect("connect")
}

pub(crate) fn try_call(address: &Address) -> Result<Connection, ConnectError> {
    connect(&seen_by_caller(address), &cluster_key(), soon())
}

pub(crate) fn listen(wire: TestWire) -> Listener {
    Listener::bind(&fresh_address(wire), &cluster_key()).expect("bind")
}

/// A further pair of ends over `listener`: the caller's and the listener's.
pub(crate) fn meet(listener: &mut Listener) -> (Connection, Connection) {
    let caller = call(listener.address());
    let accepted = listener.accept_until(soon()).expect("accept").expect("a caller in time");
    (caller, accepted)
}

pub(crate) fn pair(wire: TestWire) -> (Connection, Connection) {
    meet(&mut listen(wire))
}

/// Waits for the next events.
pub(crate) fn events(connection: &mut Connection) -> Vec<Event> {
    let mut events = Vec::new();
    assert!(connection.wait(&mut events, soon()) > 0, "nothing happened on {connection:?}");
    events
}

/// Waits for `count` events.
pub(crate) fn events_of(connection: &mut Connection, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let deadline = soon();
    while events.len() < count {
        assert!(
            connection.wait(&mut events, deadline) > 0,
            "{} of {count} events on {connection:?}",
            events.len()
        );
    }
    events
}

/// Waits for the next message, and for nothing else.
pub(crate) fn message(connection: &mut Connection) -> Vec<u8> {
    match events(connection).as_slice() {
        [Event::Message { bytes }] => bytes.clone(),
        other => panic!("expected one message, found {other:?}"),
    }
}

/// Waits for the next message, skipping successful completions. Other events stay in `stash` for
/// the next call.
pub(crate) fn next_message(connection: &mut Connection, stash: &mut Vec<Event>) -> Vec<u8> {
    loop {
        while !stash.is_empty() {
            match stash.remove(0) {
                Event::Message { bytes } => return bytes,
                Event::Completed { outcome: Ok(_), .. } => {}
                other => panic!("expected a message, found {other:?}"),
            }
        }
        stash.extend(events(connection));
    }
}

/// Posts an operation and waits for its outcome.
pub(crate) fn run(connection: &mut Connection, operation: Operation<'_>) -> Result<Done, OperationError> {
    connection.post(4711, operation).expect("post");
    match events(connection).as_slice() {
        [Event::Completed { id: 4711, outcome }] => outcome.clone(),
        other => panic!("expected one completion, found {other:?}"),
    }
}

/// Waits until the owner of `remote` sees all that was written to it. A write may complete earlier,
/// but a read that is posted after it is executed later.
pub(crate) fn flush(connection: &mut Connection, remote: &RemoteRegion) {
    let local = Region::allocate(4096).expect("allocate");
    let target = local.slice(0, 1).expect("slice");
    let read = run(connection, Operation::Read { source: *remote, source_offset: 0, target });
    assert_eq!(read, Ok(Done::Moved { bytes: 1 }));
}

/// Sends the name of a region.
pub(crate) fn tell(connection: &mut Connection, remote: &RemoteRegion) {
    let sent = run(connection, Operation::Send { bytes: &remote.to_bytes() });
    assert_eq!(sent, Ok(Done::Moved { bytes: RemoteRegion::ENCODED_BYTES as u64 }));
}

/// Receives the name of a region.
pub(crate) fn hear(connection: &mut Connection) -> RemoteRegion {
    let bytes = message(connection);
    RemoteRegion::from_bytes(bytes.as_slice().try_into().expect("the name of a region"))
}

/// Bytes that tell apart every offset and every seed.
pub(crate) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| {
            let mixed = (at ^ (seed as u64).wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B);
            mixed.to_le_bytes()[2]
        })
        .collect()
}
