//! Tests that a reader that copies a slot while it changes never accepts an invalid image.
//!
//! Goal: what `decode` accepts was the valid image at some time between copying the first and the
//! last word. Method: the memory is recorded after every word that its owner writes; a reader takes
//! each 8 or 64 bytes from any of a few consecutive states, in any order.

use super::{Slot, SlotArea, SlotMemory, decode};
use crate::{
    item::{Fingerprint, Key, Metadata, Value, Version},
    timestamp::{ClientId, Timestamp},
};
use proptest::{prelude::*, test_runner::Config};

const BYTES: usize = 1024;
const LIFE: u64 = 5;

/// Memory that remembers every state.
struct Filmed {
    states: Vec<Vec<u8>>,
}

impl Filmed {
    fn word(&mut self, offset: usize, word: &[u8]) {
        let mut next = self.states.last().unwrap().clone();
        next[offset..offset + 8].copy_from_slice(word);
        self.states.push(next);
    }
}

impl SlotMemory for Filmed {
    fn bytes(&self) -> usize {
        BYTES
    }

    fn write(&mut self, offset: usize, words: &[u8]) {
        assert!(words.len().is_multiple_of(8) && offset.is_multiple_of(8), "only whole words");
        // Copies into registered memory promise no order.
        let order: Vec<usize> = (0..words.len() / 8).collect();
        let (even, odd): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|at| at.is_multiple_of(2));
        for at in odd.into_iter().rev().chain(even) {
            self.word(offset + 8 * at, &words[8 * at..8 * at + 8]);
        }
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        self.word(offset, &word.to_le_bytes());
    }
}

/// What the owner does to the slots of two keys.
#[derive(Clone, Debug)]
enum Act {
    Publish { second: bool, bytes: usize },
    Invalidate,
    Revalidate,
    GiveUp,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let publish = (any::<bool>(), prop_oneof![0_usize..40, 0_usize..400]);
    let act = prop_oneof![
        6 => publish.prop_map(|(second, bytes)| Act::Publish { second, bytes }),
        2 => Just(Act::Invalidate),
        1 => Just(Act::Revalidate),
        1 => Just(Act::GiveUp),
    ];
    prop::collection::vec(act, 2..12)
}

fn key(second: bool) -> Key {
    Key::new(if second { b"the second key" } else { b"the first key " }).unwrap()
}

fn version(time: u64, bytes: usize) -> Version {
    // Values that resemble each other: a mixed one has a better chance to pass.
    let value: Vec<u8> = (0..bytes).map(|at| u8::from(at % 7 == 0) * u8::try_from(time).unwrap()).collect();
    let metadata = Metadata::WriteSet(vec![Fingerprint(time), Fingerprint(time + 1)]);
    Version {
        timestamp: Timestamp { time, client: ClientId(1) },
        metadata,
        value: Value::new(&value).unwrap(),
    }
}

/// When a version became the valid one of a key, and when it no longer was: positions in the
/// states.
struct Span {
    key: Key,
    version: Version,
    from: usize,
    to: usize,
}

/// Carries out the acts; what was valid when, and all states.
fn film(acts: &[Act]) -> (Vec<Span>, Vec<Vec<u8>>) {
    let mut area = SlotArea::new(Filmed { states: vec![vec![0; BYTES]] }, LIFE);
    let mut slots: [Option<(Slot, Version)>; 2] = [None, None];
    let mut spans: Vec<Span> = Vec::new();
    for (time, act) in (1..).zip(acts) {
        let before = area.memory().states.len() - 1;
        match act {
            Act::Publish { second, bytes } => {
                let (key, version) = (key(*second), version(time, *bytes));
                let slot = slots[usize::from(*second)].take().map(|(slot, _)| slot);
                spans
                    .iter_mut()
                    .filter(|span| span.key == key)
                    .for_each(|span| span.to = span.to.min(before + 1));
                let slot = area.publish(slot, &key, &version);
                let from = area.memory().states.len() - 1;
                if let Some(slot) = slot {
                    spans.push(Span { key, version: version.clone(), from, to: usize::MAX });
                    slots[usize::from(*second)] = Some((slot, version));
                }
            }
            Act::Invalidate => {
                let Some((slot, _)) = &mut slots[0] else { continue };
                area.invalidate(slot);
                let first = spans.iter_mut().filter(|span| span.key == key(false));
                first.for_each(|span| span.to = span.to.min(before + 1));
            }
            Act::Revalidate => {
                let Some((slot, version)) = &mut slots[0] else { continue };
                area.revalidate(slot);
                let from = area.memory().states.len() - 1;
                spans.push(Span { key: key(false), version: version.clone(), from, to: usize::MAX });
            }
            Act::GiveUp => {
                let Some((slot, _)) = slots[1].take() else { continue };
                area.give_up(slot);
                let second = spans.iter_mut().filter(|span| span.key == key(true));
                second.for_each(|span| span.to = span.to.min(before + 1));
            }
        }
    }
    let states = area.memory().states.clone();
    (spans, states)
}

proptest! {
    #![proptest_config(Config { cases: 400, ..Config::default() })]
    #[test]
    fn what_is_believed_was_valid_while_it_was_read(
        acts in acts(),
        start in any::<prop::sample::Index>(),
        window in 1_usize..120,
        step in prop_oneof![Just(8_usize), Just(64)],
        moments in prop::collection::vec(any::<prop::sample::Index>(), BYTES / 8),
        second in any::<bool>(),
    ) {
        let (spans, states) = film(&acts);
        let from = start.index(states.len());
        let to = (from + window).min(states.len() - 1);
        // Many readers begin at each possible slot.
        for slot in (0..BYTES - 128).step_by(64) {
            let mut copy = vec![0; BYTES - slot];
            for (at, moment) in (0..copy.len()).step_by(step).zip(&moments) {
                let state = &states[from + moment.index(to - from + 1)];
                let end = (at + step).min(copy.len());
                copy[at..end].copy_from_slice(&state[slot + at..slot + end]);
            }
            let Ok(found) = decode(&copy, &key(second), LIFE) else { continue };
            let fits = |span: &&Span| span.key == key(second) && span.version == found && span.from <= to && span.to > from;
            prop_assert!(spans.iter().any(|span| fits(&span)), "{:?} was not valid in {}..={}", found, from, to);
        }
    }
}

#[test]
fn readers_of_states_that_do_not_change_believe_what_is_valid() {
    let acts = [Act::Publish { second: false, bytes: 30 }, Act::Publish { second: true, bytes: 300 }];
    let (spans, states) = film(&acts);
    let last = states.last().unwrap();
    let found: Vec<Version> =
        (0..BYTES).step_by(64).filter_map(|at| decode(&last[at..], &key(true), LIFE).ok()).collect();
    assert_eq!(found, [spans[1].version.clone()]);
}

#[test]
fn the_word_that_makes_another_image_valid_says_nothing_of_the_one_before() {
    let publish = |second| Act::Publish { second, bytes: 16 };
    let (_, given_up) = film(&[publish(true), Act::GiveUp]);
    let (_, reused) = film(&[publish(true), Act::GiveUp, publish(false)]);
    // All is copied before the slot is reused, but the valid word afterwards.
    let mut copy = given_up.last().unwrap().clone();
    copy[8..16].copy_from_slice(&reused.last().unwrap()[8..16]);
    let fault = decode(&copy, &key(true), LIFE);
    assert_eq!(fault, Err(super::SlotFault::Invalid { found: 4, expected: 2 }));
}
