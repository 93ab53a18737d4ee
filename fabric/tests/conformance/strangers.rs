//! Promises about many callers without the cluster key: whatever they do, callers that hold the key
//! are served meanwhile.

use std::{
    io::{ErrorKind, Read, Write},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rackscan_fabric::{FABRIC_MAGIC, FABRIC_VERSION, Listener};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::{
    handshake::{hello, stranger},
    pair::{TestWire, call, listen, soon},
};

/// Legitimate callers, one after the other.
const RIGHT: usize = 20;
const SILENT: usize = 1000;

/// Silent callers are descriptors of the test's own process.
fn allow_descriptors(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= count);
    assert!(enough(limit.maximum), "this test needs {count} descriptors (ulimit -Hn); found {limit:?}");
    if !enough(limit.current) {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).expect("raise the limit of descriptors");
    }
}

/// Legitimate callers are served in time, after all callers that were turned away.
fn assert_serves_many(listener: &mut Listener) {
    for number in 0..RIGHT {
        let caller = call(listener.address());
        let deadline = soon();
        loop {
            match listener.accept_until(deadline) {
                Ok(Some(accepted)) => break drop((caller, accepted)),
                Ok(None) => panic!("caller {number} was not served in time"),
                Err(_) => {}
            }
        }
    }
}

pub(crate) fn a_thousand_silent_callers_delay_nobody(wire: TestWire) {
    allow_descriptors(4096);
    let mut listener = listen(wire);
    let silent: Vec<_> = (0..SILENT).map(|_| stranger(listener.address())).collect();
    assert_serves_many(&mut listener);
    // And some that begin a valid hello and then send nothing.
    let speaking: Vec<_> = (0..SILENT / 2)
        .map(|_| {
            let mut stranger = stranger(listener.address());
            // It may have been dropped already.
            let _ = stranger.write_all(&hello(FABRIC_VERSION));
            stranger
        })
        .collect();
    assert_serves_many(&mut listener);
    drop((silent, speaking));
}

pub(crate) fn callers_that_say_a_byte_at_a_time_delay_nobody_and_end_in_time(wire: TestWire) {
    let mut listener = listen(wire);
    let mut slow: Vec<_> = (0..100).map(|_| stranger(listener.address())).collect();
    let (bytes, over) = (hello(FABRIC_VERSION), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (slow, over) = (&mut slow, &over);
        scope.spawn(move || {
            for byte in bytes.iter().take(40) {
                for stranger in slow.iter_mut() {
                    let _ = stranger.write_all(&[*byte]);
                }
                if over.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        assert_serves_many(&mut listener);
        over.store(true, Ordering::Relaxed);
    });
    for stranger in &mut slow {
        let ended = stranger.read_to_end(&mut Vec::new());
        let waits = |kind: ErrorKind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!ended.as_ref().is_err_and(|error| waits(error.kind())), "{ended:?}");
    }
}

pub(crate) fn garbage_and_hang_ups_in_a_loop_delay_nobody(wire: TestWire) {
    let mut listener = listen(wire);
    let (address, over) = (listener.address().clone(), AtomicBool::new(false));
    let mut lengths = FABRIC_MAGIC.to_vec();
    lengths.resize(4096, 0xFF);
    let said: [&[u8]; 5] = [b"", b"GET / HTTP/1.1\r\n\r\n", &FABRIC_MAGIC, &[0xFF; 4096], &lengths];
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (address, over, said) = (&address, &over, &said);
            scope.spawn(move || {
                let mut round = thread;
                while !over.load(Ordering::Relaxed) {
                    let mut stranger = stranger(address);
                    let _ = stranger.write_all(said[round % said.len()]);
                    round += 1;
                    // An emulated machine has one slow processor, which it shares.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_serves_many(&mut listener);
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = served {
            std::panic::resume_unwind(panic);
        }
    });
}
