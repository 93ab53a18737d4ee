//! Tests that a peer that holds the key and breaks the rules ends its own connection and nothing
//! else. Method: the test itself holds the socket and the ring of the queue's peer.

use std::{
    io::Write,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{
    control::{Control, send_control},
    ends::{Incoming, Outgoing},
    queue::{IDLE_POLLS_PER_LOOK, ShmQueue},
    ring::{Consumer, Producer},
};
use crate::{
    access::Access,
    completion::Event,
    doorbell::Doorbell,
    error::Ending,
    operation::Operation,
    region::{Region, Source},
    wire::Queue,
};

/// The peer of a queue, which can break every rule.
struct Hostile {
    queue: ShmQueue,
    socket: UnixStream,
    ring: Producer,
    incoming: Consumer,
    bell: Arc<Doorbell>,
}

fn hostile() -> Hostile {
    let (ours, socket) = UnixStream::pair().unwrap();
    let (our_ring, their_ring) = (Consumer::new().unwrap(), Consumer::new().unwrap());
    let producer_to = |ring: &Consumer| Producer::new(&ring.memory().try_clone_to_owned().unwrap()).unwrap();
    let (ring, to_them) = (producer_to(&our_ring), producer_to(&their_ring));
    let bells = (Arc::new(Doorbell::new().unwrap()), Arc::new(Doorbell::new().unwrap()));
    let bell = Arc::clone(&bells.1);
    let ends = ((Incoming::Ring(our_ring), bells.0), (Outgoing::Ring(to_them), bells.1));
    let queue = ShmQueue::new(ours.into(), ends.0, ends.1).unwrap();
    Hostile { queue, socket, ring, incoming: their_ring, bell }
}

impl Hostile {
    fn say(&self, control: Control, fds: &[BorrowedFd<'_>]) {
        send_control(&OwnedFd::from(self.socket.try_clone().unwrap()), control, fds).unwrap();
    }

    /// What the queue reports in a poll that checks everything.
    fn ending(&mut self) -> Ending {
        let mut events = Vec::new();
        self.queue.arm();
        self.queue.poll(&mut events);
        self.queue.poll(&mut events);
        match events.pop() {
            Some(Event::Closed(ending)) => ending,
            other => panic!("expected an ending, found {other:?}"),
        }
    }
}

#[test]
fn nonsense_on_the_socket_is_a_violation() {
    let mut peer = hostile();
    peer.socket.write_all(&[0xC3; 32]).unwrap();
    assert!(matches!(peer.ending(), Ending::Violation { .. }));
}

#[test]
fn a_batch_wakes_its_receiver_once_at_the_end() {
    let mut peer = hostile();
    let rung = |bell: &Doorbell| {
        let mut fds = [PollFd::new(bell, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    };
    peer.incoming.set_sleeping(true);
    peer.queue.begin_batch();
    for id in 0..10 {
        peer.queue.post(id, Operation::Send { bytes: b"x" }).unwrap();
        assert!(!rung(&peer.bell));
    }
    peer.queue.end_batch();
    assert!(rung(&peer.bell));
    peer.bell.drain();
    peer.incoming.set_sleeping(true);
    peer.queue.post(10, Operation::Send { bytes: b"x" }).unwrap();
    assert!(rung(&peer.bell), "and what is posted alone, at once");
}

#[test]
fn a_grant_without_memory_or_with_unsealed_memory_is_a_violation() {
    let grant = Control::Grant { key: 1, bytes: 4096, access: Access::ReadWrite };
    let mut peer = hostile();
    peer.say(grant, &[]);
    assert!(matches!(peer.ending(), Ending::Violation { reason } if reason.contains("0 descriptors")));
    let mut peer = hostile();
    let file = tempfile::tempfile().unwrap();
    peer.say(grant, &[file.as_fd()]);
    assert!(matches!(peer.ending(), Ending::Violation { .. }));
    let mut peer = hostile();
    let region = Region::allocate(8192).unwrap();
    peer.say(grant, &[region.memory()]);
    assert!(matches!(peer.ending(), Ending::Violation { reason } if reason.contains("expected 4096")));
}

#[test]
fn a_revocation_of_nothing_and_a_second_set_up_are_violations() {
    let set_ups = [Control::Setup { ring_bytes: 4096 }, Control::SetupInbox { bytes: 4096, index: 0 }];
    for control in [Control::Revoke { key: 5 }].into_iter().chain(set_ups) {
        let mut peer = hostile();
        peer.say(control, &[]);
        assert!(matches!(peer.ending(), Ending::Violation { .. }), "{control:?}");
    }
}

#[test]
fn a_peer_that_vanishes_is_lost_and_one_that_says_goodbye_is_not() {
    let mut peer = hostile();
    let (other, _) = UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut peer.socket, other));
    assert!(matches!(peer.ending(), Ending::Lost { .. }));
    let mut peer = hostile();
    assert!(peer.ring.push_message(Source::Bytes(b"last"), &mut 0).unwrap());
    peer.say(Control::Goodbye, &[]);
    let mut events = Vec::new();
    // An owner that polls without sleeping would check the socket only from time to time.
    for _ in 0..2 * IDLE_POLLS_PER_LOOK {
        peer.queue.poll(&mut events);
    }
    assert_eq!(events, [Event::Message { bytes: b"last".to_vec() }, Event::Closed(Ending::Orderly)]);
}
