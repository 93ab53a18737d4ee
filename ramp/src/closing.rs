//! Closes a key prefix at all participants: from then on they refuse to write any key that begins
//! with it. A prefix is never opened again.
//!
//! A client closes a prefix before it moves or drops the items under it, for example when it
//! flushes the changed rows of a table into segments:
//!
//! ```text
//! what the client does                                          what each participant does
//! 1 writes a closing key at every participant, in one           from its PREPARE on, refuses to prepare keys under the prefix; transactions that were
//!   transaction                                                 prepared before still commit or abort, and the feed has their records before the reply
//! 2 reads the items under the prefix and stores them elsewhere
//! 3 writes the same closing keys with another value             drops all items under the prefix: the prefix is emptied
//! ```
//!
//! | bytes of a closing key | |
//! |---|---|
//! | 0..2 | 0, `c` |
//! | 2.. | the prefix |
//! | the last 2 | a number, big-endian, chosen so that the hash of the key assigns it to the intended participant |
//!
//! Invariants
//! - A closed prefix is never opened again. No later write needs it, because prefixes contain
//!   numbers that are never reused.
//! - No closed prefix begins with another closed prefix.
//! - A closing is an ordinary transaction: it is durable, it is in log replicas and in feeds, and
//!   either all participants close the prefix or none does.

use crate::{
    item::{Key, Value},
    message::{ParticipantId, participant_of},
};
use std::collections::BTreeMap;

/// The first bytes of closing keys.
pub const CLOSING_PREFIX: &[u8] = b"\0c";

const SALT_BYTES: usize = 2;
const CLOSED: [u8; 1] = [1];
const EMPTIED: [u8; 1] = [2];

/// The state of a closed prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Nothing new is prepared under it.
    Closed,
    /// As [`Closing::Closed`], and its items are dropped.
    Emptied,
}

impl Closing {
    /// The state in the value of a closing key.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        // An unknown state of a later release closes the prefix, too.
        if value.bytes() == Some(EMPTIED.as_slice()) { Self::Emptied } else { Self::Closed }
    }

    /// The items that write this state at every one of `participants`, which are all participants,
    /// in order.
    ///
    /// `None` if the prefix is too long for a key, or if no number leads to some participant, which
    /// does not happen with up to [`PARTICIPANTS_MAX`](crate::limits::PARTICIPANTS_MAX)
    /// participants.
    #[must_use]
    pub fn items(self, prefix: &[u8], participants: &[ParticipantId]) -> Option<Vec<(Key, Value)>> {
        let state = match self {
            Self::Closed => CLOSED,
            Self::Emptied => EMPTIED,
        };
        items(&state, prefix, participants)
    }

    /// The items of a [`Closing::Closed`] with a note for readers of feeds ([`note_of`]).
    /// Participants do not read it. An emptied prefix has no note any more.
    #[must_use]
    pub fn noted(note: &[u8], prefix: &[u8], participants: &[ParticipantId]) -> Option<Vec<(Key, Value)>> {
        items(&[&CLOSED, note].concat(), prefix, participants)
    }
}

fn items(value: &[u8], prefix: &[u8], participants: &[ParticipantId]) -> Option<Vec<(Key, Value)>> {
    let value = Value::new(value).ok()?;
    participants
        .iter()
        .map(|participant| Some((key_at(prefix, *participant, participants)?, value.clone())))
        .collect()
}

/// The note of a closing; empty if it has none.
#[must_use]
pub fn note_of(value: &Value) -> &[u8] {
    value.bytes().and_then(|bytes| bytes.strip_prefix(&CLOSED)).unwrap_or_default()
}

/// The closing key of a prefix that this participant keeps.
fn key_at(prefix: &[u8], participant: ParticipantId, participants: &[ParticipantId]) -> Option<Key> {
    let key = |salt: u16| Key::new(&[CLOSING_PREFIX, prefix, &salt.to_be_bytes()].concat()).ok();
    (0..=u16::MAX).map_while(key).find(|key| participant_of(key.placement(), participants) == participant)
}

/// The prefix that a closing key closes; `None` for other keys.
#[must_use]
pub fn prefix_of(key: &Key) -> Option<&[u8]> {
    let rest = key.bytes().strip_prefix(CLOSING_PREFIX)?;
    rest.len().checked_sub(SALT_BYTES).map(|length| &rest[..length])
}

/// The closed prefixes of a participant.
#[derive(Debug, Default)]
pub(crate) struct Closings {
    prefixes: BTreeMap<Vec<u8>, State>,
}

#[derive(Debug, Default)]
struct State {
    /// Versions of closing keys, prepared or committed.
    versions: usize,
    emptied: bool,
}

impl Closings {
    /// A version of a key was added; most keys close nothing.
    pub(crate) fn added(&mut self, key: &Key) {
        if let Some(prefix) = prefix_of(key) {
            self.prefixes.entry(prefix.to_vec()).or_default().versions += 1;
        }
    }

    /// A version of a key was removed.
    pub(crate) fn removed(&mut self, key: &Key) {
        let Some(prefix) = prefix_of(key) else { return };
        if let Some(state) = self.prefixes.get_mut(prefix) {
            state.versions -= 1;
            if state.versions == 0 {
                self.prefixes.remove(prefix);
            }
        }
    }

    /// Marks a prefix as emptied. Returns whether it was not marked before.
    pub(crate) fn empty(&mut self, prefix: &[u8]) -> bool {
        self.prefixes.get_mut(prefix).is_some_and(|state| !std::mem::replace(&mut state.emptied, true))
    }

    /// The emptied prefixes.
    pub(crate) fn emptied(&self) -> impl Iterator<Item = &[u8]> {
        self.prefixes.iter().filter(|(_, state)| state.emptied).map(|(prefix, _)| prefix.as_slice())
    }

    /// Whether a key is under a closed prefix. No closed prefix begins with another one, so only
    /// the last prefix that is not above the key can be a prefix of it.
    pub(crate) fn covers(&self, key: &Key) -> bool {
        let up_to = (std::ops::Bound::Unbounded, std::ops::Bound::Included(key.bytes()));
        let last = self.prefixes.range::<[u8], _>(up_to).next_back();
        last.is_some_and(|(prefix, _)| key.bytes().starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PARTICIPANTS_MAX;

    #[test]
    fn every_participant_of_the_largest_cluster_has_a_closing_key_of_its_own() {
        let participants: Vec<ParticipantId> = (0..PARTICIPANTS_MAX)
            .map(|participant| ParticipantId(u16::try_from(3 * participant).unwrap()))
            .collect();
        for table in 0..4_u32 {
            let prefix = [b"\0r".as_slice(), &table.to_be_bytes()].concat();
            let items = Closing::Closed.items(&prefix, &participants).unwrap();
            let found: Vec<ParticipantId> =
                items.iter().map(|(key, _)| participant_of(key.placement(), &participants)).collect();
            assert_eq!(found, participants);
            assert!(items.iter().all(|(key, value)| {
                prefix_of(key) == Some(&prefix) && Closing::of(value) == Closing::Closed
            }));
        }
    }

    #[test]
    fn a_closing_with_a_note_closes_as_one_without_and_gives_it_back() {
        let participants = [ParticipantId(0), ParticipantId(1)];
        let noted = Closing::noted(b"\x02x", b"\0rabcd", &participants).unwrap();
        let plain = Closing::Closed.items(b"\0rabcd", &participants).unwrap();
        let emptied = Closing::Emptied.items(b"\0rabcd", &participants).unwrap();
        for ((noted, plain), emptied) in noted.iter().zip(&plain).zip(&emptied) {
            assert_eq!(noted.0, plain.0);
            assert_eq!((Closing::of(&noted.1), note_of(&noted.1)), (Closing::Closed, b"\x02x".as_slice()));
            assert_eq!((note_of(&plain.1), note_of(&emptied.1)), (b"".as_slice(), b"".as_slice()));
            assert_eq!(Closing::of(&emptied.1), Closing::Emptied);
        }
    }

    #[test]
    fn a_key_is_closed_if_and_only_if_it_begins_with_a_closed_prefix() {
        let mut closings = Closings::default();
        let key = |bytes: &[u8]| Key::new(bytes).unwrap();
        closings.added(&key(b"\0cab\0\0"));
        closings.added(&key(b"\0cab\0\x01"));
        closings.added(&key(b"\0cad\0\0"));
        for (bytes, is_closed) in [
            (b"ab".as_slice(), true),
            (b"abz", true),
            (b"ac", false),
            (b"a", false),
            (b"ad", true),
            (b"ae", false),
        ] {
            assert_eq!(closings.covers(&key(bytes)), is_closed, "{bytes:?}");
        }
        closings.removed(&key(b"\0cab\0\0"));
        assert!(closings.covers(&key(b"abz")), "another version still closes it");
        closings.removed(&key(b"\0cab\0\x01"));
        assert!(!closings.covers(&key(b"abz")) && closings.covers(&key(b"adz")));
    }
}
