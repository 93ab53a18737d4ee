//! Replaces the wire `verbs` in a build without the cargo feature `verbs`: every call fails.
//!
//! Invariants
//! - The functions are those of the wire itself; each returns an error that names the missing
//!   feature.

use std::{os::fd::OwnedFd, time::Instant};

use crate::{
    address::Address,
    connection::Connection,
    error::{ConnectError, ListenError},
    inbox::{InboxHandle, Inboxes},
    key::ClusterKey,
};

const FEATURE: &str = "verbs";

fn address(device: Option<&str>, host: &str, port: u16) -> String {
    Address::Verbs { device: device.map(str::to_owned), host: host.to_owned(), port }.to_string()
}

pub(crate) fn bind(
    device: Option<&str>,
    (host, port): (&str, u16),
    _inboxes: &[InboxHandle],
) -> Result<(OwnedFd, u16), ListenError> {
    Err(ListenError::WireMissing { address: address(device, host, port), wire: FEATURE })
}

pub(crate) fn call(
    device: Option<&str>,
    (host, port): (&str, u16),
    _key: &ClusterKey,
    _deadline: Instant,
) -> Result<Connection, ConnectError> {
    Err(ConnectError::WireMissing { peer: address(device, host, port), wire: FEATURE })
}

pub(crate) fn set_up(
    (_socket, peer): (OwnedFd, String),
    _device: Option<&str>,
    _inboxes: &Inboxes,
    _deadline: Instant,
) -> Result<Connection, ConnectError> {
    Err(ConnectError::WireMissing { peer, wire: FEATURE })
}
