//! What do the two processes say over their Unix socket, beside their rings?
//!
//! Invariants
//! - A control is 32 bytes and at most three descriptors, sent at once: the kernel queues all of it
//!   or nothing.
//! - What arrives is checked here for its form and by its users for its content.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags,
    },
};

use crate::region::Access;

const CONTROL_BYTES: usize = 32;
const DESCRIPTORS_MAX: usize = 3;

/// One thing said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// With the sender's ring and doorbell: the first thing said.
    Setup { ring_bytes: u64 },
    /// With the memory and the doorbell of an inbox, and the sender's doorbell: the first thing
    /// said, instead of `Setup`, by who receives through an inbox. The receiver is the inbox's
    /// sender of this index.
    SetupInbox { bytes: u64, index: u16 },
    /// With the region's memory: the receiver may use it.
    Grant { key: u64, bytes: u64, access: Access },
    /// The receiver may not use it any more.
    Revoke { key: u64 },
    /// The sender closes on purpose.
    Goodbye,
}

impl Control {
    fn encode(self) -> [u8; CONTROL_BYTES] {
        let (kind, access, key, bytes) = match self {
            Self::Setup { ring_bytes } => (1_u32, 0_u32, 0, ring_bytes),
            Self::SetupInbox { bytes, index } => (5, 0, u64::from(index), bytes),
            Self::Grant { key, bytes, access: Access::Read } => (2, 1, key, bytes),
            Self::Grant { key, bytes, access: Access::Write } => (2, 2, key, bytes),
            Self::Grant { key, bytes, access: Access::ReadWrite } => (2, 3, key, bytes),
            Self::Revoke { key } => (3, 0, key, 0),
            Self::Goodbye => (4, 0, 0, 0),
        };
        let mut control = [0; CONTROL_BYTES];
        control[..4].copy_from_slice(&kind.to_le_bytes());
        control[4..8].copy_from_slice(&access.to_le_bytes());
        control[8..16].copy_from_slice(&key.to_le_bytes());
        control[16..24].copy_from_slice(&bytes.to_le_bytes());
        control
    }

    fn decode(control: &[u8; CONTROL_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| control[at + i]));
        let (first, key, bytes) = (word(0), word(8), word(16));
        match (first & u64::from(u32::MAX), first >> 32) {
            (1, 0) => Some(Self::Setup { ring_bytes: bytes }),
            (2, 1) => Some(Self::Grant { key, bytes, access: Access::Read }),
            (2, 2) => Some(Self::Grant { key, bytes, access: Access::Write }),
            (2, 3) => Some(Self::Grant { key, bytes, access: Access::ReadWrite }),
            (3, 0) => Some(Self::Revoke { key }),
            (4, 0) => Some(Self::Goodbye),
            (5, 0) => u16::try_from(key).ok().map(|index| Self::SetupInbox { bytes, index }),
            _ => None,
        }
    }
}

/// What the socket holds.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    HungUp,
    Control(Control, Vec<OwnedFd>),
    /// Bytes that are no control, described.
    Nonsense(String),
}

/// Says `control`; `Errno::AGAIN` when the peer has too much to read already.
pub(super) fn say(socket: &OwnedFd, control: Control, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = control.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags)
    })?;
    // A Unix socket takes so few bytes at once; less would leave the peer out of step.
    if sent == CONTROL_BYTES { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Hears the next control, without waiting.
pub(super) fn hear(socket: &OwnedFd) -> Heard {
    let mut bytes = [0; CONTROL_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
    });
    let received = match received {
        Ok(received) => received,
        Err(Errno::AGAIN) => return Heard::Nothing,
        Err(_) => return Heard::HungUp,
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Heard::HungUp;
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Heard::Nonsense("descriptors that could not be taken over (too many are open?)".to_owned());
    }
    let complete = (received.bytes == CONTROL_BYTES).then(|| Control::decode(&bytes)).flatten();
    match complete {
        Some(control) => Heard::Control(control, fds),
        None => {
            Heard::Nonsense(format!("{} control bytes: {:02x?}", received.bytes, &bytes[..received.bytes]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLS: [Control; 7] = [
        Control::Setup { ring_bytes: 77 },
        Control::SetupInbox { bytes: 1 << 33, index: u16::MAX },
        Control::Grant { key: u64::MAX, bytes: 4096, access: Access::Read },
        Control::Grant { key: 1, bytes: 8192, access: Access::Write },
        Control::Grant { key: 2, bytes: 1 << 40, access: Access::ReadWrite },
        Control::Revoke { key: 3 },
        Control::Goodbye,
    ];

    #[test]
    fn what_is_said_is_heard_with_its_descriptors() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let (a, b) = (OwnedFd::from(a), OwnedFd::from(b));
        for control in CONTROLS {
            say(&a, control, &[a.as_fd(), b.as_fd()]).unwrap();
            match hear(&b) {
                Heard::Control(heard, fds) => assert_eq!((heard, fds.len()), (control, 2)),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(hear(&b), Heard::Nothing));
        drop(a);
        assert!(matches!(hear(&b), Heard::HungUp));
    }

    #[test]
    fn other_bytes_are_nonsense() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let (a, b) = (OwnedFd::from(a), OwnedFd::from(b));
        for bytes in [&[0_u8; 32][..], &[255; 32], &[1]] {
            rustix::net::send(&a, bytes, SendFlags::empty()).unwrap();
            assert!(matches!(hear(&b), Heard::Nonsense(_)), "{bytes:?}");
        }
    }
}
