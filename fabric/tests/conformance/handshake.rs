//! Promises about the handshake: a caller that does not prove the cluster key learns nothing and
//! stops nobody.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Address, ClusterKey, ConnectError, Ending, Event, FABRIC_MAGIC, FABRIC_VERSION, ListenError, Listener,
    Operation, connect,
};

use crate::pair::{
    PATIENCE, TestWire, call, cluster_key, events, fresh_address, listen, meet, message, run, seen_by_caller,
    soon,
};

pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A plain socket connected to a listener of ours.
pub(crate) fn stranger(address: &Address) -> Box<dyn Stream> {
    match address {
        Address::Shm { path } => {
            let stream = UnixStream::connect(path).expect("connect");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            Box::new(stream)
        }
        Address::Tcp { host, port } | Address::Verbs { host, port, .. } => {
            let stream = TcpStream::connect((host.as_str(), *port)).expect("connect");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            Box::new(stream)
        }
        Address::Sim { .. } => panic!("{address} has no plain socket"),
    }
}

/// A plain listener that runs `act` on its first caller.
fn strange_listener(wire: TestWire, act: impl FnOnce(Box<dyn Stream>) + Send + 'static) -> Address {
    match fresh_address(wire) {
        Address::Shm { path } => {
            let listener = UnixListener::bind(&path).expect("bind");
            let file = path.clone();
            std::thread::spawn(move || {
                act(Box::new(listener.accept().expect("accept").0));
                let _ = std::fs::remove_file(file);
            });
            Address::Shm { path }
        }
        Address::Tcp { host, .. } => {
            let listener = TcpListener::bind((host.as_str(), 0)).expect("bind");
            let port = listener.local_addr().expect("an address").port();
            std::thread::spawn(move || act(Box::new(listener.accept().expect("accept").0)));
            Address::Tcp { host, port }
        }
        Address::Verbs { device, host, .. } => {
            let listener = TcpListener::bind((host.as_str(), 0)).expect("bind");
            let port = listener.local_addr().expect("an address").port();
            std::thread::spawn(move || act(Box::new(listener.accept().expect("accept").0)));
            Address::Verbs { device, host, port }
        }
        address @ Address::Sim { .. } => panic!("{address} has no plain socket"),
    }
}

pub(crate) fn hello(version: u32) -> Vec<u8> {
    let mut hello = FABRIC_MAGIC.to_vec();
    hello.extend_from_slice(&version.to_le_bytes());
    hello.resize(48, 1);
    hello
}

fn turned_away(listener: &mut Listener) -> ConnectError {
    match listener.accept_until(soon()) {
        Err(error) => error,
        Ok(other) => panic!("expected a refusal, found {other:?}"),
    }
}

fn assert_serves(listener: &mut Listener) {
    let _ = meet(listener);
}

pub(crate) fn another_cluster_key_is_refused_on_both_sides(wire: TestWire) {
    let mut listener = listen(wire);
    let wrong = ClusterKey::from_bytes([8; 32]);
    let refusal = connect(&seen_by_caller(listener.address()), &wrong, soon());
    assert!(matches!(refusal, Err(ConnectError::WrongKey { .. })), "{refusal:?}");
    let refusal = turned_away(&mut listener);
    assert!(matches!(refusal, ConnectError::WrongKey { .. }), "{refusal:?}");
    assert_serves(&mut listener);
    if !wire.has_sockets() {
        return;
    }
    // A listener that cannot prove the key is rejected, even if it claims to accept ours.
    let address = strange_listener(wire, |mut caller| {
        caller.write_all(&hello(FABRIC_VERSION)).expect("write");
        caller.read_exact(&mut [0; 80]).expect("read");
        caller.write_all(&[1; 49]).expect("write");
        let _ = caller.read(&mut [0; 1]);
    });
    let refusal = connect(&seen_by_caller(&address), &cluster_key(), soon());
    assert!(matches!(refusal, Err(ConnectError::WrongKey { .. })), "{refusal:?}");
    assert_serves(&mut listener);
}

pub(crate) fn a_listener_proves_who_it_is_and_another_one_is_turned_away(wire: TestWire) {
    let key = cluster_key().of_cluster(7);
    let listener = Listener::bind(&fresh_address(wire), &key.of_node(1)).expect("listen");
    let address = seen_by_caller(listener.address());
    for (called, expected) in [
        (key.of_node(2), "node 2 of cluster 7"),
        (cluster_key().of_cluster(8).of_node(1), "node 1 of cluster 8"),
        (cluster_key().of_cluster(8), "a process of cluster 8"),
    ] {
        match connect(&address, &called, soon()) {
            Err(error @ ConnectError::OtherPeer { .. }) => {
                let error = error.to_string();
                assert!(error.contains("is node 1 of cluster 7") && error.contains(expected), "{error}");
            }
            other => panic!("expected another peer, found {other:?}"),
        }
    }
    for called in [&key.of_node(1), &key, &cluster_key()] {
        connect(&address, called, soon()).expect("it is the one that was called");
    }
}

pub(crate) fn another_version_is_named_on_both_sides(wire: TestWire) {
    let mut listener = listen(wire);
    let other = FABRIC_VERSION + 1;
    let mut old = stranger(listener.address());
    old.write_all(&hello(other)).expect("write");
    let refusal = turned_away(&mut listener);
    assert!(
        matches!(refusal, ConnectError::Version { found, expected: FABRIC_VERSION, .. } if found == other),
        "{refusal:?}"
    );
    let mut answer = [0; 16];
    old.read_exact(&mut answer).expect("the listener says its own version");
    assert_eq!((&answer[..8], &answer[8..12]), (&FABRIC_MAGIC[..], &FABRIC_VERSION.to_le_bytes()[..]));

    let address = strange_listener(wire, move |mut caller| {
        caller.write_all(&hello(other)).expect("write");
        let _ = caller.read(&mut [0; 1]);
    });
    let refusal = connect(&seen_by_caller(&address), &cluster_key(), soon());
    assert!(
        matches!(refusal, Err(ConnectError::Version { found, expected: FABRIC_VERSION, .. }) if found == other),
        "{refusal:?}"
    );
}

pub(crate) fn garbage_is_turned_away_and_the_listener_goes_on(wire: TestWire) {
    let mut listener = listen(wire);
    let mut browser = stranger(listener.address());
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("write");
    let refusal = turned_away(&mut listener);
    assert!(
        matches!(&refusal, ConnectError::NotAPeer { found, .. } if found.contains("GET / HT")),
        "{refusal:?}"
    );
    // Every prefix of a hello and every length of noise, each of which hangs up at once.
    for length in (0..200).step_by(7) {
        let mut noise = hello(FABRIC_VERSION);
        noise.resize(length, 0xC3);
        let mut caller = stranger(listener.address());
        // The listener may have hung up before all of it is written.
        let _ = caller.write_all(&noise);
        drop(caller);
    }
    // A caller that comes after them is served; none of them is.
    let mut caller = call(listener.address());
    assert!(run(&mut caller, Operation::Send { bytes: b"no noise" }).is_ok());
    let mut accepted = loop {
        if let Ok(accepted) = listener.accept_until(soon()) {
            break accepted.expect("the caller in time");
        }
    };
    assert_eq!(message(&mut accepted), b"no noise", "noise was accepted");

    let address = strange_listener(wire, |mut caller| {
        let _ = caller.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = caller.read(&mut [0; 1]);
    });
    let refusal = connect(&seen_by_caller(&address), &cluster_key(), soon());
    assert!(
        matches!(&refusal, Err(ConnectError::NotAPeer { found, .. }) if found.contains("SSH-2.0-")),
        "{refusal:?}"
    );
}

pub(crate) fn a_caller_that_says_nothing_delays_nobody(wire: TestWire) {
    let mut listener = listen(wire);
    let silent: Vec<_> = (0..8).map(|_| stranger(listener.address())).collect();
    let started = Instant::now();
    assert_serves(&mut listener);
    assert!(started.elapsed() < Duration::from_secs(1), "a caller waited for the silent ones");
    for _ in &silent {
        let refusal = turned_away(&mut listener);
        assert!(matches!(refusal, ConnectError::TimedOut { phase: "hello", .. }), "{refusal:?}");
    }
}

pub(crate) fn a_listener_that_says_nothing_costs_the_deadline(wire: TestWire) {
    let address = strange_listener(wire, |mut caller| {
        let _ = caller.read_to_end(&mut Vec::new());
    });
    let started = Instant::now();
    let refusal = connect(&seen_by_caller(&address), &cluster_key(), started + Duration::from_millis(200));
    assert!(matches!(refusal, Err(ConnectError::TimedOut { .. })), "{refusal:?}");
    assert!((Duration::from_millis(200)..Duration::from_secs(2)).contains(&started.elapsed()));
}

pub(crate) fn nobody_listening_is_a_refusal(wire: TestWire) {
    let address = listen(wire).address().clone();
    let refusal = connect(&seen_by_caller(&address), &cluster_key(), soon());
    assert!(matches!(refusal, Err(ConnectError::Refused { .. })), "{refusal:?}");
}

pub(crate) fn an_address_in_use_is_refused(wire: TestWire) {
    let mut first = listen(wire);
    let second = Listener::bind(first.address(), &cluster_key());
    assert!(matches!(second, Err(ListenError::InUse { .. })), "{second:?}");
    assert_serves(&mut first);
}

/// A peer that knows the key and then breaks the protocol: our own handshake through a relay that
/// garbles everything after it. Only over TCP, because a relay cannot pass descriptors on;
/// `shm::hostile` has unit tests with a hostile peer.
#[test]
fn garbage_after_the_handshake_ends_that_tcp_connection_only() {
    let wire = TestWire::Tcp;
    let mut listener = listen(wire);
    for seed in 1..=20_u64 {
        let (to, noise) = (listener.address().clone(), noise(seed));
        let relay = strange_listener(wire, move |mut caller| {
            let mut server = stranger(&to);
            // Hello and proof one way, hello and verdict with identity and proof the other way.
            relay_bytes(&mut *caller, &mut *server, 48);
            relay_bytes(&mut *server, &mut *caller, 48);
            relay_bytes(&mut *caller, &mut *server, 32);
            relay_bytes(&mut *server, &mut *caller, 49);
            let _ = server.write_all(&noise);
            let _ = server.read(&mut [0; 1]);
        });
        let caller = connect(&seen_by_caller(&relay), &cluster_key(), soon()).expect("connect");
        let mut accepted = listener.accept_until(soon()).expect("accept").expect("in time");
        let found = events(&mut accepted);
        let Some(Event::Closed(ending)) = found.last() else { panic!("seed {seed}: {found:?}") };
        assert!(matches!(ending, Ending::Violation { .. }), "seed {seed}: {ending:?}");
        drop(caller);
    }
    assert_serves(&mut listener);
}

fn relay_bytes(from: &mut dyn Stream, to: &mut dyn Stream, count: usize) {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes).expect("read");
    to.write_all(&bytes).expect("write");
}

/// 4 KiB of noise that does not begin with a frame that is allowed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut noise: Vec<u8> = (0..4096)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        })
        .collect();
    // An existing kind in half of the cases, so that the later checks are reached, too.
    noise[0] = [0, 1, 3, 4, 16, 17, 18, 19, 5, 255][usize::try_from(seed % 10).expect("small")];
    noise
}
