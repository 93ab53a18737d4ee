//! Two connected ends, and the small steps that every promise is made of.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Address, ClusterKey, Connection, Done, Event, Listener, Operation, OperationError, RemoteRegion, connect,
};

/// The wires that must keep the promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestWire {
    Shm,
    Tcp,
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
    }
}

pub(crate) fn listen(wire: TestWire) -> Listener {
    Listener::bind(&fresh_address(wire), &cluster_key()).expect("bind")
}

/// A further pair of ends over `listener`: the caller's and the listener's.
pub(crate) fn meet(listener: &mut Listener) -> (Connection, Connection) {
    let caller = connect(listener.address(), &cluster_key(), soon()).expect("connect");
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

/// Waits for the next message, past completions that succeeded. What comes with it stays in `stash` for the next call.
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
