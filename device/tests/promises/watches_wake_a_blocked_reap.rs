//! Promise: a thread that blocks in `reap` wakes up for watched descriptors as well as for devices,
//! with rings, threads and the simulator.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::support::{each, patterned, pool, scratch};
use rackscan_device::sim::{SimConfig, SimDisk, SimIo};
use rackscan_device::{
    Completion, DeviceIndex, DeviceIo, Interest, Read, Readiness, Repeat, Token, Wait, Watch,
};
use rustix::event::{EventfdFlags, eventfd};

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("event descriptors exist")
}

fn ring_bell(bell: &OwnedFd) {
    rustix::io::write(bell, &1_u64.to_le_bytes()).expect("an event descriptor takes a count");
}

fn silence(bell: &OwnedFd) {
    rustix::io::read(bell, &mut [0_u8; 8]).expect("the bell was rung");
}

/// Every implementation, over a small device.
fn with_all(promise: impl Fn(&mut dyn DeviceIo)) {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    each(8, &device, &pool(), |_, mut io| promise(&mut *io));
    promise(&mut SimIo::new(SimConfig::seeded(1), vec![SimDisk::zeroed(1 << 20)]));
}

fn reap(io: &mut dyn DeviceIo, wait: Wait) -> Vec<(Token, Readiness)> {
    let mut ready = Vec::new();
    io.reap(wait, &mut |completion| {
        if let Completion::Ready { token, readiness } = completion {
            ready.push((token, readiness));
        }
    })
    .expect("waiting works");
    ready
}

const READABLE: Readiness = Readiness { readable: true, writable: false, hung_up: false, failed: false };

#[test]
fn a_bell_rung_by_another_thread_ends_a_blocking_wait() {
    with_all(|io| {
        let bell = bell();
        let watch =
            Watch { fd: bell.as_fd(), interest: Interest::Readable, repeat: Repeat::Once, token: Token(77) };
        io.watch(watch).unwrap();
        let ringer = bell.try_clone().unwrap();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            ring_bell(&ringer);
        });
        assert_eq!(reap(io, Wait::ForOne), [(Token(77), READABLE)]);
        other.join().unwrap();
        assert_eq!(io.watches(), 0, "a watch for one report is gone after it");
    });
}

#[test]
fn a_descriptor_that_is_ready_already_is_reported_at_once() {
    with_all(|io| {
        let bell = bell();
        ring_bell(&bell);
        for token in [Token(1), Token(2)] {
            let watch = Watch { fd: bell.as_fd(), interest: Interest::Readable, repeat: Repeat::Once, token };
            io.watch(watch).unwrap();
            assert_eq!(reap(io, Wait::ForOne), [(token, READABLE)], "not drained, so ready again");
        }
    });
}

#[test]
fn a_repeated_watch_reports_every_change_until_unwatched() {
    with_all(|io| {
        let bell = bell();
        let repeat = Repeat::EveryChange;
        let watch = Watch { fd: bell.as_fd(), interest: Interest::Readable, repeat, token: Token(5) };
        let id = io.watch(watch).unwrap();
        for _ in 0..100 {
            ring_bell(&bell);
            assert_eq!(reap(io, Wait::ForOne), [(Token(5), READABLE)]);
            silence(&bell);
        }
        assert_eq!(io.watches(), 1);
        io.unwatch(id).unwrap();
        assert_eq!(io.watches(), 0);
        ring_bell(&bell);
        assert_eq!(reap(io, Wait::Until(Instant::now() + Duration::from_millis(20))), []);
        io.unwatch(id).unwrap();
    });
}

#[test]
fn a_closed_connection_is_reported_as_hung_up() {
    with_all(|io| {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let repeat = Repeat::EveryChange;
        io.watch(Watch { fd: ours.as_fd(), interest: Interest::Readable, repeat, token: Token(3) }).unwrap();
        drop(theirs);
        let ready = reap(io, Wait::ForOne);
        assert!(matches!(ready[..], [(Token(3), Readiness { hung_up: true, .. })]), "{ready:?}");
    });
}

#[test]
fn devices_and_bells_share_one_wait() {
    let folder = scratch();
    let (_, device) = patterned(&folder, 1 << 20);
    let pool = pool();
    each(8, &device, &pool, |name, mut io| {
        let bell = bell();
        let watch =
            Watch { fd: bell.as_fd(), interest: Interest::Readable, repeat: Repeat::Once, token: Token(1) };
        io.watch(watch).unwrap();
        let into = pool.take(4096).unwrap().into();
        let read =
            Read { device: DeviceIndex(0), offset_bytes: 0, length_bytes: 4096, into, token: Token(2) };
        io.submit_read(read).unwrap();
        ring_bell(&bell);
        let mut tokens = Vec::new();
        while tokens.len() < 2 {
            io.reap(Wait::ForOne, &mut |completion| tokens.push(completion.token())).unwrap();
        }
        tokens.sort();
        assert_eq!(tokens, [Token(1), Token(2)], "{name}");
    });
}
