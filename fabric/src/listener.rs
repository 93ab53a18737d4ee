//! How do two processes find each other?

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use crate::{
    address::Address,
    connection::Connection,
    error::{ConnectError, ListenError},
    key::ClusterKey,
};

/// Accepts connections at an address.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    doorbell: OwnedFd,
}

impl Listener {
    /// Starts to listen at `address`; callers must prove `key`.
    ///
    /// # Errors
    /// When the address is in use or the system refuses.
    pub fn bind(address: &Address, _key: &ClusterKey) -> Result<Self, ListenError> {
        Err(ListenError::InUse { address: address.to_string() })
    }

    /// Where it listens, with the port that was chosen if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next peer that has proved itself, if any. An error is about one caller; the listener goes on.
    ///
    /// # Errors
    /// Why one caller was turned away.
    pub fn accept(&mut self) -> Result<Option<Connection>, ConnectError> {
        Ok(None)
    }

    /// As `accept`, but waits until the deadline; `None` when it has passed.
    ///
    /// # Errors
    /// Why one caller was turned away.
    pub fn accept_until(&mut self, _deadline: Instant) -> Result<Option<Connection>, ConnectError> {
        Ok(None)
    }

    /// Readable when `accept` has something.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

/// Connects to a listener and proves `key` to it, as it does to us.
///
/// # Errors
/// See [`ConnectError`].
pub fn connect(address: &Address, _key: &ClusterKey, _deadline: Instant) -> Result<Connection, ConnectError> {
    Err(ConnectError::TimedOut { peer: address.to_string(), phase: "connect" })
}
