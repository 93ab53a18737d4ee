//! Tells a side when its peer has gone, and whether it left on purpose, by the TCP connection of
//! the set-up.
//!
//! That TCP connection stays open. The kernel closes it when a process dies. A peer that leaves on
//! purpose first sends a goodbye over it.
//!
//! Invariants
//! - At most one message goes each way, and nothing after it.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::epoll,
    io::Errno,
    net::{RecvFlags, SendFlags},
};

const FINAL_MESSAGE_BYTES: usize = 9;
const GOODBYE: u8 = 1;
const FAILED: u8 = 2;

/// The final message of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinalMessage {
    /// It leaves on purpose. Its messages were sent up to this position.
    Goodbye { sent: u64 },
    /// One of its operations failed with this status, and its queue pair with it.
    Failed { status: u64 },
    /// Bytes that are no final message of this protocol version.
    Nonsense { kind: u8 },
}

/// The TCP connection, and the bytes that were received over it.
#[derive(Debug)]
pub(super) struct Lifeline {
    socket: OwnedFd,
    received: Vec<u8>,
    hung_up: bool,
}

impl Lifeline {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, received: Vec::new(), hung_up: false }
    }

    /// Makes `watch` readable while the socket has bytes or has hung up.
    pub(super) fn watch_by(&self, watch: &OwnedFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        Ok(epoll::add(watch, &self.socket, epoll::EventData::new_u64(0), flags)?)
    }

    /// Ends that, because a socket that has hung up would be readable for ever.
    pub(super) fn unwatch_by(&self, watch: &OwnedFd) {
        // It fails only if it was done before.
        let _ = epoll::delete(watch, &self.socket);
    }

    pub(super) fn send(&self, message: FinalMessage) {
        let (kind, argument) = match message {
            FinalMessage::Goodbye { sent } => (GOODBYE, sent),
            FinalMessage::Failed { status } => (FAILED, status),
            FinalMessage::Nonsense { kind } => (kind, 0),
        };
        let mut bytes = [kind; FINAL_MESSAGE_BYTES];
        bytes[1..].copy_from_slice(&argument.to_le_bytes());
        // A peer that cannot be told will see the socket hang up.
        let _ = rustix::net::send(&self.socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    pub(super) fn has_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Receives the peer's final message, if it has come, and notes whether the peer has hung up.
    pub(super) fn receive(&mut self) -> Option<FinalMessage> {
        // One byte more than a final message. The additional byte must not come, and makes the
        // message invalid. Asking for it reveals a hang-up.
        let mut bytes = [0; FINAL_MESSAGE_BYTES + 1];
        while self.received.len() < bytes.len() && !self.hung_up {
            let room = bytes.len() - self.received.len();
            match rustix::net::recv(&self.socket, &mut bytes[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.hung_up = true,
                Ok((count, _)) => self.received.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.hung_up = true,
            }
        }
        let message = self.received.first_chunk::<FINAL_MESSAGE_BYTES>()?;
        let mut argument = [0; 8];
        argument.copy_from_slice(&message[1..]);
        let argument = u64::from_le_bytes(argument);
        Some(match message[0] {
            GOODBYE if self.received.len() == FINAL_MESSAGE_BYTES => FinalMessage::Goodbye { sent: argument },
            FAILED if self.received.len() == FINAL_MESSAGE_BYTES => FinalMessage::Failed { status: argument },
            kind => FinalMessage::Nonsense { kind },
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
    fn a_final_message_is_received_whole_and_then_the_hang_up() {
        for words in [FinalMessage::Goodbye { sent: u64::MAX - 5 }, FinalMessage::Failed { status: 10 }] {
            let (mut ours, theirs) = pair();
            let theirs = Lifeline::new(theirs.into());
            assert_eq!((ours.receive(), ours.has_hung_up()), (None, false));
            theirs.send(words);
            assert_eq!((ours.receive(), ours.has_hung_up()), (Some(words), false));
            drop(theirs);
            assert_eq!((ours.receive(), ours.has_hung_up()), (Some(words), true));
        }
    }

    #[test]
    fn half_a_word_is_none_and_more_than_one_is_nonsense() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&[GOODBYE, 0, 0, 0]).unwrap();
        assert_eq!((ours.receive(), ours.has_hung_up()), (None, false));
        theirs.write_all(&[0; 20]).unwrap();
        assert_eq!(ours.receive(), Some(FinalMessage::Nonsense { kind: GOODBYE }));
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&[7; FINAL_MESSAGE_BYTES]).unwrap();
        assert_eq!(ours.receive(), Some(FinalMessage::Nonsense { kind: 7 }));
        let (mut ours, theirs) = pair();
        drop(theirs);
        assert_eq!((ours.receive(), ours.has_hung_up()), (None, true));
    }
}
