//! Defines the control messages that the two processes of a `shm` connection send over their Unix
//! socket, beside their rings.
//!
//! Invariants
//! - A control message is 32 bytes and at most three descriptors, sent at once: the kernel queues
//!   all of it or nothing.
//! - The form of an incoming control message is checked here, its content by the code that uses it.

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

use crate::access::Access;

const CONTROL_BYTES: usize = 32;
const DESCRIPTORS_MAX: usize = 3;

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// The first control, with the descriptors of the sender's ring and doorbell.
    Setup { ring_bytes: u64 },
    /// The first control, instead of `Setup`, of a side that receives through an inbox: with the
    /// descriptors of the inbox's memory and doorbell and of its own doorbell. The other side
    /// becomes the inbox's sender with this index.
    SetupInbox { bytes: u64, index: u16 },
    /// The other side may use a region, whose memory descriptor comes with this.
    Grant { key: u64, bytes: u64, access: Access },
    /// The other side may no longer use the region.
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

/// What was received from the socket.
#[derive(Debug)]
pub(super) enum ReceivedControl {
    Nothing,
    HungUp,
    Control(Control, Vec<OwnedFd>),
    /// A description of bytes that are no control.
    Nonsense(String),
}

/// Sends `control`. `Errno::AGAIN` if the socket's buffer is full.
pub(super) fn send_control(socket: &OwnedFd, control: Control, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
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
    // A Unix socket takes so few bytes as a whole. A partial control would put the peer out of
    // step.
    if sent == CONTROL_BYTES { Ok(()) } else { Err(Errno::MSGSIZE) }
}

/// Receives the next control, without waiting.
pub(super) fn receive_control(socket: &OwnedFd) -> ReceivedControl {
    let mut bytes = [0; CONTROL_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
    });
    let received = match received {
        Ok(received) => received,
        Err(Errno::AGAIN) => return ReceivedControl::Nothing,
        Err(_) => return ReceivedControl::HungUp,
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return ReceivedControl::HungUp;
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return ReceivedControl::Nonsense(
            "it sent descriptors that this process could not open (probably too many are open)".to_owned(),
        );
    }
    let complete = (received.bytes == CONTROL_BYTES).then(|| Control::decode(&bytes)).flatten();
    match complete {
        Some(control) => ReceivedControl::Control(control, fds),
        None => ReceivedControl::Nonsense(format!(
            "it sent {} bytes that are not a control message: {:02x?}",
            received.bytes,
            &bytes[..received.bytes]
        )),
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
    fn a_control_arrives_with_its_descriptors() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let (a, b) = (OwnedFd::from(a), OwnedFd::from(b));
        for control in CONTROLS {
            send_control(&a, control, &[a.as_fd(), b.as_fd()]).unwrap();
            match receive_control(&b) {
                ReceivedControl::Control(heard, fds) => assert_eq!((heard, fds.len()), (control, 2)),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(receive_control(&b), ReceivedControl::Nothing));
        drop(a);
        assert!(matches!(receive_control(&b), ReceivedControl::HungUp));
    }

    #[test]
    fn other_bytes_are_nonsense() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        let (a, b) = (OwnedFd::from(a), OwnedFd::from(b));
        for bytes in [&[0_u8; 32][..], &[255; 32], &[1]] {
            rustix::net::send(&a, bytes, SendFlags::empty()).unwrap();
            assert!(matches!(receive_control(&b), ReceivedControl::Nonsense(_)), "{bytes:?}");
        }
    }
}
