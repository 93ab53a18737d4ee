//! How does a side learn that its peer is gone, and whether on purpose?
//!
//! The TCP connection of the set-up stays open. The kernel closes it when a process dies, and a
//! peer that leaves on purpose says so over it first.
//!
//! Invariants
//! - At most one saying goes each way, and nothing after it.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::epoll,
    io::Errno,
    net::{RecvFlags, SendFlags},
};

const LAST_WORDS_BYTES: usize = 9;
const GOODBYE: u8 = 1;
const FAILED: u8 = 2;

/// The last words of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastWords {
    /// It leaves after its messages were sent up to there.
    Goodbye { sent: u64 },
    /// An operation of its failed with that status, and its queue pair with it.
    Failed { status: u64 },
    /// Nothing that this version says.
    Nonsense { kind: u8 },
}

/// The TCP connection, and what was heard over it.
#[derive(Debug)]
pub(super) struct Lifeline {
    socket: OwnedFd,
    heard: Vec<u8>,
    hung_up: bool,
}

impl Lifeline {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, heard: Vec::new(), hung_up: false }
    }

    /// Makes `watch` readable while there is something to hear.
    pub(super) fn watch_by(&self, watch: &OwnedFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        Ok(epoll::add(watch, &self.socket, epoll::EventData::new_u64(0), flags)?)
    }

    /// Ends that: a socket that has hung up would be readable for ever.
    pub(super) fn unwatch_by(&self, watch: &OwnedFd) {
        // It fails only if it was done before.
        let _ = epoll::delete(watch, &self.socket);
    }

    pub(super) fn say(&self, words: LastWords) {
        let (kind, argument) = match words {
            LastWords::Goodbye { sent } => (GOODBYE, sent),
            LastWords::Failed { status } => (FAILED, status),
            LastWords::Nonsense { kind } => (kind, 0),
        };
        let mut bytes = [kind; LAST_WORDS_BYTES];
        bytes[1..].copy_from_slice(&argument.to_le_bytes());
        // Who cannot be told any more will see the socket hang up.
        let _ = rustix::net::send(&self.socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    pub(super) fn has_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Hears what the peer has said, and whether it has hung up.
    pub(super) fn listen(&mut self) -> Option<LastWords> {
        // One byte more than the last words, which must not come: it makes them nonsense, and
        // asking for it shows a hang-up.
        let mut bytes = [0; LAST_WORDS_BYTES + 1];
        while self.heard.len() < bytes.len() && !self.hung_up {
            let room = bytes.len() - self.heard.len();
            match rustix::net::recv(&self.socket, &mut bytes[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.hung_up = true,
                Ok((count, _)) => self.heard.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.hung_up = true,
            }
        }
        let words = self.heard.first_chunk::<LAST_WORDS_BYTES>()?;
        let mut argument = [0; 8];
        argument.copy_from_slice(&words[1..]);
        let argument = u64::from_le_bytes(argument);
        Some(match words[0] {
            GOODBYE if self.heard.len() == LAST_WORDS_BYTES => LastWords::Goodbye { sent: argument },
            FAILED if self.heard.len() == LAST_WORDS_BYTES => LastWords::Failed { status: argument },
            kind => LastWords::Nonsense { kind },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use super::*;

    fn pair() -> (Lifeline, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Lifeline::new(ours.into()), theirs)
    }

    #[test]
    fn last_words_are_heard_whole_and_then_the_hang_up() {
        for words in [LastWords::Goodbye { sent: u64::MAX - 5 }, LastWords::Failed { status: 10 }] {
            let (mut ours, theirs) = pair();
            let theirs = Lifeline::new(theirs.into());
            assert_eq!((ours.listen(), ours.has_hung_up()), (None, false));
            theirs.say(words);
            assert_eq!((ours.listen(), ours.has_hung_up()), (Some(words), false));
            drop(theirs);
            assert_eq!((ours.listen(), ours.has_hung_up()), (Some(words), true));
        }
    }

    #[test]
    fn half_a_word_is_none_and_more_than_one_is_nonsense() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&[GOODBYE, 0, 0, 0]).unwrap();
        assert_eq!((ours.listen(), ours.has_hung_up()), (None, false));
        theirs.write_all(&[0; 20]).unwrap();
        assert_eq!(ours.listen(), Some(LastWords::Nonsense { kind: GOODBYE }));
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&[7; LAST_WORDS_BYTES]).unwrap();
        assert_eq!(ours.listen(), Some(LastWords::Nonsense { kind: 7 }));
        let (mut ours, theirs) = pair();
        drop(theirs);
        assert_eq!((ours.listen(), ours.has_hung_up()), (None, true));
    }
}
