//! Tests that a sender that dies at any instruction blocks nobody, that a sender that breaks the
//! rules ends only its own connection, and that no content of the memory makes the receiver panic,
//! hang or stay unusable. Method: the test takes each step of the senders itself, and writes into
//! their memory.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{
    Arrival, ArrivalKind, Inbox, InboxConfig, InboxFault, InboxSender, Membership, Progress, Sent, WhenFull,
    handle::JoinError,
    layout::{Control, Header, Kind, Packet, SenderWord, lap_of},
    packet_entry, sender,
};
use crate::{doorbell::Doorbell, limits::INBOX_IDLE_POLLS_PER_LOOK, operation::Report, region::Source};

fn small() -> InboxConfig {
    InboxConfig {
        ring_bytes: 8192,
        private_rings: 1,
        shared_rings: 1,
        packet_bytes: 1024,
        message_bytes_max: crate::limits::MESSAGE_BYTES_MAX,
        senders_max: 4,
        when_full: WhenFull::Stall,
    }
}

fn join(inbox: &Inbox) -> (Membership, InboxSender) {
    let bell = || Arc::new(Doorbell::new().unwrap());
    let member = inbox.handle().join(bell(), bell()).unwrap();
    let sender = member.sender();
    (member, sender)
}

fn send(sender: &mut InboxSender, bytes: &[u8]) -> Result<Sent, InboxFault> {
    sender.send(Source::Bytes(bytes), Report::PerMessage, &mut Progress::default())
}

/// Everything that arrives until the inbox has checked everything and found nothing.
fn arrivals(inbox: &mut Inbox) -> Vec<(Arrival, Vec<u8>)> {
    let mut found = Vec::new();
    let mut bytes = Vec::new();
    let mut idle_polls = 0;
    while idle_polls < 2 * INBOX_IDLE_POLLS_PER_LOOK {
        idle_polls += 1;
        if let Some(arrival) = inbox.next(&mut bytes) {
            found.push((arrival, bytes.clone()));
            idle_polls = 0;
        }
    }
    found
}

fn kinds(inbox: &mut Inbox) -> Vec<ArrivalKind> {
    arrivals(inbox).iter().map(|(arrival, _)| arrival.kind).collect()
}

#[test]
fn an_entry_that_its_sender_never_publishes_delays_nobody() {
    let mut inbox = Inbox::new(small()).unwrap();
    let (dead, mut dying) = join(&inbox);
    let (_alive, mut sender) = join(&inbox);
    dying.claim_entry().unwrap().unwrap();
    // More than all entries and all space of the rings, after the entry that stays claimed, while
    // its sender lives.
    for round in 0..20_u8 {
        assert_eq!(send(&mut sender, &[round; 100]), Ok(Sent::All));
        let found = arrivals(&mut inbox);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1, [round; 100]);
    }
    let stalled = (0..100).any(|_| {
        let stalled = send(&mut sender, b"small") == Ok(Sent::Stalled);
        arrivals(&mut inbox);
        stalled
    });
    assert!(stalled, "an entry in use is not used again");
    // Without end once it has gone.
    drop(dead);
    assert_eq!(kinds(&mut inbox), [ArrivalKind::Left]);
    for round in 0..100_u8 {
        assert_eq!(send(&mut sender, &[round; 100]), Ok(Sent::All));
        assert_eq!(arrivals(&mut inbox)[0].1, [round; 100]);
    }
}

#[test]
fn an_entry_that_is_published_late_arrives_late_and_once() {
    let mut inbox = Inbox::new(small()).unwrap();
    let (_first, mut late) = join(&inbox);
    let (_second, mut sender) = join(&inbox);
    let position = late.claim_entry().unwrap().unwrap();
    send(&mut sender, b"overtakes").unwrap();
    assert_eq!(arrivals(&mut inbox)[0].1, b"overtakes");
    let entry = sender::inline_entry(Source::Bytes(b"late"), Report::PerMessage).unwrap();
    late.publish_at(position, &entry).unwrap();
    send(&mut sender, b"next").unwrap();
    let found = arrivals(&mut inbox);
    assert_eq!((found.len(), found[0].1.as_slice(), found[1].1.as_slice()), (2, &b"late"[..], &b"next"[..]));
}

#[test]
fn space_that_its_sender_never_reports_comes_back_when_it_is_gone() {
    let mut inbox = Inbox::new(small()).unwrap();
    let (dead, mut dying) = join(&inbox);
    let (_alive, mut sender) = join(&inbox);
    // The ring is full of claims of both, and nothing is reported of one.
    let ring = dying.current_ring().unwrap();
    let mut claimed = 0;
    while dying.claim_space(ring, 700).unwrap().is_some() {
        claimed += 1;
        if send(&mut sender, &[1; 700]).unwrap() != Sent::All {
            break;
        }
    }
    assert!(claimed > 2, "{claimed} claims");
    arrivals(&mut inbox);
    assert_eq!(send(&mut sender, &[1; 1000]), Ok(Sent::Stalled));
    drop(dead);
    assert_eq!(kinds(&mut inbox), [ArrivalKind::Left]);
    assert_eq!(inbox.memory().ring_bytes_in_use, 0);
    for _ in 0..100 {
        assert_eq!(send(&mut sender, &[2; 1000]), Ok(Sent::All));
        assert_eq!(arrivals(&mut inbox)[0].1, [2; 1000]);
    }
}

#[test]
fn what_a_sender_that_was_hung_up_on_has_claimed_waits_until_it_hangs_up() {
    let mut inbox = Inbox::new(small()).unwrap();
    let (mut member, mut dying) = join(&inbox);
    let (_alive, mut sender) = join(&inbox);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let space = dying.claim_space(1, 600).unwrap().unwrap();
    send(&mut sender, &[3; 600]).unwrap();
    send(&mut dying, b"said before").unwrap();
    member.leave(Some(OwnedFd::from(ours)));
    assert_eq!(kinds(&mut inbox), [ArrivalKind::Message, ArrivalKind::Message, ArrivalKind::Left]);
    // It does not know this yet, and continues.
    dying.publish(&packet_entry(&space, Report::PerMessage, 600, 0, 600)).unwrap();
    dying.claim_space(1, 600).unwrap().unwrap();
    assert_eq!(kinds(&mut inbox), [], "nothing follows its leaving");
    send(&mut sender, &[4; 600]).unwrap();
    assert_eq!(arrivals(&mut inbox).len(), 1);
    assert!(inbox.memory().ring_bytes_in_use > 0, "it may be writing there");
    drop(theirs);
    assert_eq!(kinds(&mut inbox), []);
    assert_eq!(inbox.memory().ring_bytes_in_use, 0);
}

#[test]
fn a_sender_that_breaks_the_rules_is_accused_and_others_are_not() {
    let whole = |length, position| Packet { ring: 1, position, length, offset: 0, message_bytes: length };
    let packets = [
        Packet { ring: 2, ..whole(100, 16) },
        Packet { ring: u16::MAX, ..whole(100, 16) },
        whole(1025, 16),
        whole(u32::MAX, 16),
        whole(100, 15),
        whole(100, 32),
        whole(100, u64::MAX),
        whole(600, 31),
        Packet { offset: 5, ..whole(100, 16) },
        Packet { offset: u32::MAX, message_bytes: u32::MAX, ..whole(100, 16) },
        Packet { message_bytes: 1 << 21, ..whole(100, 16) },
        Packet { message_bytes: 50, ..whole(100, 16) },
        Packet { message_bytes: 200, ..whole(0, 16) },
    ];
    for bad in packets {
        let mut inbox = Inbox::new(small()).unwrap();
        let (member, mut liar) = join(&inbox);
        let (honest, mut sender) = join(&inbox);
        let position = liar.claim_entry().unwrap().unwrap();
        let words = inbox.map.entry(position).unwrap();
        for (word, value) in words[1..].iter().zip(bad.encode()) {
            word.store(value, Ordering::Relaxed);
        }
        let lap = lap_of(position, inbox.map.layout.entries);
        let control = Control { lap, sender: member.id().index(), per_packet: false, kind: Kind::Packet };
        words[0].store(control.encode(), Ordering::Release);
        send(&mut sender, b"honest").unwrap();
        let found = arrivals(&mut inbox);
        assert_eq!((found.len(), found[0].1.as_slice()), (1, &b"honest"[..]), "{bad:?}");
        assert!(member.fault().is_some() && honest.fault().is_none(), "{bad:?}");
    }
}

#[test]
fn damaged_claims_end_everybody_and_then_the_inbox_goes_on() {
    let mut inbox = Inbox::new(small()).unwrap();
    let (first, mut liar) = join(&inbox);
    let (second, mut sender) = join(&inbox);
    send(&mut liar, b"fine so far").unwrap();
    assert_eq!(arrivals(&mut inbox).len(), 1);
    // A claim of no slots stands at the end of the status ring.
    let end = inbox.map.layout.entries + 1;
    inbox.map.status_claims().unwrap()[1]
        .store(u64::from(lap_of(end as u64, inbox.map.layout.entries)) << 32, Ordering::Relaxed);
    assert_eq!(send(&mut sender, b"x"), Err(InboxFault::Claims { ring: "status ring" }));
    assert_eq!(kinds(&mut inbox), []);
    for _ in 0..2000 {
        assert_eq!(inbox.next(&mut Vec::new()), None);
    }
    assert!(first.fault().is_some() && second.fault().is_some());
    let bell = || Arc::new(Doorbell::new().unwrap());
    assert_eq!(inbox.handle().join(bell(), bell()).unwrap_err(), JoinError::Damaged);
    assert!(inbox.arm(), "a damaged inbox sleeps until somebody leaves");
    drop((first, second));
    assert_eq!(kinds(&mut inbox), [ArrivalKind::Left; 2]);
    let (_third, mut sender) = join(&inbox);
    send(&mut sender, b"as new").unwrap();
    assert_eq!(arrivals(&mut inbox)[0].1, b"as new");
}

/// Where a hostile sender writes, and what.
#[derive(Debug, Clone)]
enum Scribble {
    Anywhere { word: usize, value: u64 },
    Header { word: usize, value: u64 },
    Line { sender: u16, word: usize, value: u64 },
    StatusClaim { ahead: u64, sender: u16, count: u16 },
    Entry { ahead: u64, low: u64, words: [u64; 3] },
    RingClaim { ring: usize, ahead: u64, sender: u16, count: u16 },
    RingHead { ring: usize, ahead: i64 },
}

fn any_scribble() -> impl Strategy<Value = Scribble> {
    let value = || prop_oneof![0_u64..40, any::<u64>(), (0_u64..4).prop_map(|lap| lap << 32 | 1)];
    let entry_words = (15_u64..40, (0_u64..3, 0_u64..1200), (0_u64..1200, 0_u64..3000)).prop_map(
        |(position, (ring, length), (offset, message))| {
            [position, ring << 32 | length, message << 32 | offset]
        },
    );
    let low = (0_u64..5, 0_u64..6, 0_u64..3, 0_u64..60)
        .prop_map(|(sender, kind, report, length)| sender << 16 | kind << 12 | report << 8 | length);
    prop_oneof![
        (any::<usize>(), value()).prop_map(|(word, value)| Scribble::Anywhere { word, value }),
        (0_usize..6, value()).prop_map(|(word, value)| Scribble::Header { word, value }),
        (0_u16..4, 0_usize..6, value()).prop_map(|(sender, word, value)| Scribble::Line {
            sender,
            word,
            value
        }),
        (0_u64..4, 0_u16..5, 0_u16..3).prop_map(|(ahead, sender, count)| Scribble::StatusClaim {
            ahead,
            sender,
            count
        }),
        (0_u64..4, low, entry_words).prop_map(|(ahead, low, words)| Scribble::Entry { ahead, low, words }),
        (0_usize..2, 0_u64..4, 0_u16..5, any::<u16>())
            .prop_map(|(ring, ahead, sender, count)| Scribble::RingClaim { ring, ahead, sender, count }),
        (0_usize..2, -20_i64..20).prop_map(|(ring, ahead)| Scribble::RingHead { ring, ahead }),
    ]
}

fn scribble(inbox: &Inbox, what: &Scribble) {
    let map = &inbox.map;
    let (entries, granules) = (map.layout.entries, map.layout.granules);
    let end = map.header(Header::StatusHead).unwrap().load(Ordering::Relaxed);
    let claim = |position: u64, capacity: usize, sender: u16, count: u16| {
        u64::from(lap_of(position, capacity)) << 32 | u64::from(sender) << 16 | u64::from(count)
    };
    match *what {
        Scribble::Anywhere { word, value } => {
            let words = map.mapping().words(0, map.layout.bytes / 8).unwrap();
            words[word % words.len()].store(value, Ordering::Relaxed);
        }
        Scribble::Header { word, value } => {
            map.mapping().word_to_store(word * 128).unwrap().store(value, Ordering::Relaxed);
        }
        Scribble::Line { sender, word, value } => {
            let line = [
                SenderWord::Ring,
                SenderWord::Controls,
                SenderWord::Stalled,
                SenderWord::ConnectionSleeps,
                SenderWord::Stalls,
                SenderWord::Refusals,
            ];
            map.line(sender, line[word]).unwrap().store(value, Ordering::Relaxed);
        }
        Scribble::StatusClaim { ahead, sender, count } => {
            let position = end.wrapping_add(ahead);
            let slot = super::layout::slot_of(position, entries);
            let value = claim(position, entries, sender, count);
            map.status_claims().unwrap()[slot].store(value, Ordering::Relaxed);
        }
        Scribble::Entry { ahead, low, words } => {
            let position = end.wrapping_add(ahead);
            let entry = map.entry(position).unwrap();
            for (word, value) in entry[1..].iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            entry[0].store(u64::from(lap_of(position, entries)) << 32 | low, Ordering::Release);
        }
        Scribble::RingClaim { ring, ahead, sender, count } => {
            let head = map.ring_head(ring).unwrap().load(Ordering::Relaxed);
            let position = head.wrapping_add(ahead);
            let slot = super::layout::slot_of(position, granules);
            map.ring_claims(ring).unwrap()[slot]
                .store(claim(position, granules, sender, count), Ordering::Relaxed);
        }
        Scribble::RingHead { ring, ahead } => {
            let head = map.ring_head(ring).unwrap();
            head.store(head.load(Ordering::Relaxed).wrapping_add_signed(ahead), Ordering::Relaxed);
        }
    }
}

/// Each takes about a millisecond.
const CASES: u32 = 600;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]
    #[test]
    fn no_content_of_the_memory_harms_more_than_the_connections(
        rounds in proptest::collection::vec(proptest::collection::vec(any_scribble(), 0..4), 1..12),
    ) {
        let mut inbox = Inbox::new(small()).unwrap();
        let started = Instant::now();
        let mut bytes = Vec::new();
        let mut people: Vec<_> = (0..3).map(|_| join(&inbox)).collect();
        for (at, what) in rounds.iter().enumerate() {
            for (_, sender) in &mut people {
                // Whatever becomes of it.
                let _ = send(sender, &vec![1; at * 300]);
            }
            for scribbled in what {
                scribble(&inbox, scribbled);
            }
            for _ in 0..1100 {
                inbox.next(&mut bytes);
            }
            inbox.arm();
            let memory = inbox.memory();
            prop_assert!(memory.assembly_bytes <= memory.assembly_bytes_max);
            let _ = (inbox.traffic(), inbox.counters());
        }
        // All senders leave. Damage that was not noticed may be found by the next sender, but by
        // none after it.
        drop(people);
        let served = (0..4).any(|_| {
            let bell = || Arc::new(Doorbell::new().unwrap());
            for _ in 0..2200 {
                inbox.next(&mut bytes);
            }
            let Ok(member) = inbox.handle().join(bell(), bell()) else { return false };
            let mut sender = member.sender();
            send(&mut sender, &[5; 600]) == Ok(Sent::All)
                && (0..4000).any(|_| {
                    inbox.next(&mut bytes).is_some_and(|arrival| arrival.sender == member.id()) && bytes == [5; 600]
                })
        });
        prop_assert!(served, "the inbox cannot be used any more");
        prop_assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}
