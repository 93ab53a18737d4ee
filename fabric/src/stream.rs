//! Reads from and writes to a socket before a deadline.
//!
//! Invariants
//! - The socket is non-blocking; all waiting happens in [`Stream::wait_for`] and ends at the
//!   deadline.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{RecvFlags, SendFlags},
};

use crate::{error::ConnectError, timeout::poll_timeout};

/// A connected, non-blocking socket during its handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream<'a> {
    socket: BorrowedFd<'a>,
    peer: &'a str,
    deadline: Instant,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(socket: &'a impl AsFd, peer: &'a str, deadline: Instant) -> Self {
        Self { socket: socket.as_fd(), peer, deadline }
    }

    pub(crate) fn peer(&self) -> String {
        self.peer.to_owned()
    }

    /// Whether the deadline has passed.
    #[cfg(feature = "verbs")]
    pub(crate) fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Waits until the socket is ready for `flags`.
    pub(crate) fn wait_for(&self, flags: PollFlags, phase: &'static str) -> Result<(), ConnectError> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ConnectError::TimedOut { peer: self.peer(), phase });
            }
            let timeout = poll_timeout(left);
            let mut fds = [PollFd::from_borrowed_fd(self.socket, flags)];
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(self.failed(e, phase)),
            }
        }
    }

    /// Fills `bytes`.
    pub(crate) fn read_exact(&self, bytes: &mut [u8], phase: &'static str) -> Result<(), ConnectError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::net::recv(self.socket, &mut bytes[filled..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ConnectError::HungUp { peer: self.peer(), phase }),
                Ok((count, _)) => filled += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for(PollFlags::IN, phase)?,
                Err(e) => return Err(self.failed(e, phase)),
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`.
    pub(crate) fn write_all(&self, mut bytes: &[u8], phase: &'static str) -> Result<(), ConnectError> {
        while !bytes.is_empty() {
            match rustix::net::send(self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for(PollFlags::OUT, phase)?,
                Err(e) => return Err(self.failed(e, phase)),
            }
        }
        Ok(())
    }

    /// The connection error for an error of the socket.
    pub(crate) fn failed(&self, errno: Errno, phase: &'static str) -> ConnectError {
        match errno {
            Errno::PIPE | Errno::CONNRESET => ConnectError::HungUp { peer: self.peer(), phase },
            other => ConnectError::Os { action: phase, peer: self.peer(), source: io::Error::from(other) },
        }
    }
}
