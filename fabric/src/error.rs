//! Defines the errors of this crate.
//!
//! Invariants
//! - There is one type for each boundary: allocating a region, listening, connecting, registering,
//!   posting and completing.
//! - Every error names the thing that failed, what was found and what was expected.
//! - If the peer refuses an operation, that operation fails ([`OperationError`]), and the
//!   connection continues.

use std::{io, net::IpAddr, path::PathBuf};

use crate::access::Access;

/// An access outside of the memory it was aimed at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes at offset {offset} do not fit in a region of {region_bytes} bytes")]
pub struct OutOfBounds {
    /// First byte of the access, from the start of the region.
    pub offset: u64,
    /// Length of the access.
    pub length: u64,
    /// Length of the region.
    pub region_bytes: u64,
}

/// Why a region could not be made or used by its owner.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The length is zero, not a multiple of 4 KiB, or beyond the limit.
    #[error(
        "cannot allocate a region of {bytes} bytes: expected a multiple of {multiple} from {multiple} to {bytes_max}"
    )]
    Length {
        /// Bytes asked for.
        bytes: usize,
        /// [`crate::limits::REGION_ALIGNMENT_BYTES`].
        multiple: usize,
        /// [`crate::limits::REGION_BYTES_MAX`].
        bytes_max: usize,
    },
    /// The kernel refused the memory.
    #[error("could not {action} a region of {bytes} bytes: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// Size of the region.
        bytes: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The access does not fit.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// An atomic access to an offset that is not a multiple of 8.
    #[error("an atomic access begins at offset {offset}, expected a multiple of 8")]
    Misaligned {
        /// The offset.
        offset: u64,
    },
}

/// Why no adapter of this machine could be used for a `verbs` address.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is none.
    #[error("this machine has no RDMA device (ibv_devices lists none); use a tcp address")]
    None,
    /// There is none with that name.
    #[error("this machine has no RDMA device '{device}'; it has {existing}")]
    Unknown {
        /// The name that was given.
        device: String,
        /// The names that exist.
        existing: String,
    },
    /// Several exist, and none has the address of our end.
    #[error("none of the RDMA devices {existing} has the address {local}; name one: verbs:device@host:port")]
    Ambiguous {
        /// Our end of the TCP connection.
        local: IpAddr,
        /// The names that exist.
        existing: String,
    },
    /// It cannot open memory to a single connection.
    #[error(
        "RDMA device {device} does not support memory windows of type 2, which regions are shared by; use another device or a tcp address"
    )]
    NoWindows {
        /// Its name.
        device: String,
    },
    /// No port of it has an address.
    #[error("no port of RDMA device {device} has an IP address; assign one to its network interface")]
    NoAddress {
        /// Its name.
        device: String,
    },
    /// Its port is not active.
    #[error("port {port} of RDMA device {device} is down; bring its network interface up")]
    PortDown {
        /// Its name.
        device: String,
        /// Number of the port.
        port: u8,
    },
    /// The system refused.
    #[error("could not {action} RDMA device {device}: {source}")]
    Os {
        /// Its name.
        device: String,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// Why an address could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address '{text}' is invalid: {problem}; expected shm:/path/to.sock, tcp:host:port, verbs:host:port or sim:network/place"
)]
pub struct AddressError {
    /// What was given.
    pub text: String,
    /// What is wrong with the text.
    pub problem: &'static str,
}

/// Why a cluster key could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a cluster key is 64 hexadecimal digits; found {found}")]
pub struct ClusterKeyError {
    /// What was found, without revealing the key.
    pub found: String,
}

/// Why a listener could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another listener answers at the address.
    #[error("{address} is in use by a live listener; stop it or choose another address")]
    InUse {
        /// The address.
        address: String,
    },
    /// The path exists and is not a socket; it is left as it is.
    #[error("{} exists and is not a socket; remove it or choose another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The path does not fit in a socket address.
    #[error("the socket path {} is {bytes} bytes long, the maximum is {bytes_max}: choose a shorter path", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The wire is not in this build.
    #[error("cannot listen at {address}: this build has no {wire} wire; build with --features {wire}")]
    WireMissing {
        /// The address.
        address: String,
        /// The cargo feature.
        wire: &'static str,
    },
    /// The RDMA device that the address needs cannot be used.
    #[error("cannot listen at {address}: {source}")]
    Device {
        /// The address.
        address: String,
        /// Why.
        source: DeviceError,
    },
    /// An inbox could not be prepared for callers of this address.
    #[error("an inbox cannot receive messages at {address}: {reason}")]
    Inbox {
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The kernel refused.
    #[error("could not {action} {address}: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The address.
        address: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Why a connection could not be made, on either side.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens at the address, or it could not be reached.
    #[error("could not reach {peer}: {source}")]
    Refused {
        /// The peer.
        peer: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The deadline passed.
    #[error("{peer} did not finish the step '{phase}' of connecting in time")]
    TimedOut {
        /// The peer.
        peer: String,
        /// What was under way.
        phase: &'static str,
    },
    /// The peer hung up.
    #[error("{peer} closed the connection during the step '{phase}' of connecting")]
    HungUp {
        /// The peer.
        peer: String,
        /// What was under way.
        phase: &'static str,
    },
    /// Too many callers waited, and this one was chosen to be dropped.
    #[error(
        "{peer} was dropped before its connection was made: {waiting} callers wait for a connection, which is the limit; \
         call again, and find out which processes call without the cluster key"
    )]
    CrowdedOut {
        /// The peer.
        peer: String,
        /// How many callers waited.
        waiting: usize,
    },
    /// The process that answers is not a Rackscan peer.
    #[error("{peer} is not a rackscan peer: found {found}, expected {expected}")]
    NotAPeer {
        /// The peer.
        peer: String,
        /// What it sent.
        found: String,
        /// What it should have sent.
        expected: String,
    },
    /// The peer speaks another version of the fabric's protocol.
    #[error(
        "{peer} speaks fabric protocol version {found}; expected version {expected}: use the same release on both sides"
    )]
    Version {
        /// The peer.
        peer: String,
        /// Its version.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// The peer does not hold the same cluster key.
    #[error("{peer} does not hold our cluster key; both sides must be configured with the same key")]
    WrongKey {
        /// The peer.
        peer: String,
    },
    /// The peer holds the cluster key, but it is not the cluster or node that was called.
    #[error("{peer} is {found}, expected {expected}; check the address")]
    OtherPeer {
        /// The peer.
        peer: String,
        /// The identity that it proved.
        found: String,
        /// The identity that was called.
        expected: String,
    },
    /// A `shm` peer runs as another user.
    #[error("{peer} runs as user {found}; shm connects only processes of one user, here {expected}")]
    OtherUser {
        /// The peer.
        peer: String,
        /// Its user id.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// The kernel refused something that the connection needs.
    #[error("{peer} was not connected: the step '{action}' failed: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The peer.
        peer: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The wire is not in this build.
    #[error("{peer} cannot be used: this build has no {wire} wire; build with --features {wire}")]
    WireMissing {
        /// The peer.
        peer: String,
        /// The cargo feature.
        wire: &'static str,
    },
    /// The listener's inboxes cannot take another sender now.
    #[error("the listener {peer} refused this connection: {reason}")]
    NoSeat {
        /// The peer.
        peer: String,
        /// Why.
        reason: String,
    },
    /// The RDMA device that the connection needs cannot be used.
    #[error("{peer} cannot be used: {source}")]
    Device {
        /// The peer.
        peer: String,
        /// Why.
        source: DeviceError,
    },
    /// A region that the connection needs could not be made.
    #[error("could not allocate the queues of the connection with {peer}: {source}")]
    Memory {
        /// The peer.
        peer: String,
        /// Why.
        source: RegionError,
    },
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ending {
    /// The peer closed it on purpose.
    #[error("the peer closed the connection")]
    Orderly,
    /// The peer disappeared: its process died or the network failed.
    #[error("the peer was lost: {reason}")]
    Lost {
        /// What showed it.
        reason: String,
    },
    /// An operation of either side failed, and on this wire that ends the connection. Or a call to
    /// the adapter failed. Only on `verbs`.
    #[error("the connection ended because of a failure: {status}")]
    Failed {
        /// What the wire reported.
        status: String,
    },
    /// The peer broke the protocol, so this side closed the connection.
    #[error("the peer broke the protocol: {reason}")]
    Violation {
        /// What it sent.
        reason: String,
    },
}

impl Ending {
    /// The ending of a connection whose peer broke the protocol.
    pub(crate) fn violation(reason: impl ToString) -> Self {
        Self::Violation { reason: reason.to_string() }
    }
}

/// Why a region could not be registered or deregistered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// Too many registrations on this connection.
    #[error("{registered} regions are registered on this connection, expected fewer than {registered_max}")]
    TooMany {
        /// Registrations now.
        registered: usize,
        /// The limit.
        registered_max: usize,
    },
    /// The key is not one of this connection's registrations.
    #[error("no region with key {key:#018x} is registered on this connection")]
    UnknownKey {
        /// The key.
        key: u64,
    },
    /// The peer has not yet processed earlier announcements; try again after it has polled.
    #[error("the peer has not processed earlier registrations yet; try again later")]
    PeerBusy,
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Closed(Ending),
    /// The kernel refused.
    #[error("could not {action}: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Why an operation was not accepted. Nothing has happened and no completion will come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// Too many operations without a polled completion; poll and post again.
    #[error("{in_flight} operations are in flight, expected fewer than {depth_max}: poll first")]
    QueueFull {
        /// Operations in flight.
        in_flight: usize,
        /// [`crate::limits::QUEUE_DEPTH_MAX`].
        depth_max: usize,
    },
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Closed(Ending),
    /// The message is longer than a receiver is prepared to take.
    #[error("the message has {bytes} bytes, expected at most {bytes_max}")]
    MessageTooLong {
        /// Its length.
        bytes: usize,
        /// [`crate::limits::SEND_BYTES_MAX`] or [`crate::limits::MESSAGE_BYTES_MAX`].
        bytes_max: usize,
    },
    /// The transfer is longer than one operation may be.
    #[error("the transfer has {bytes} bytes, expected at most {bytes_max}: divide it")]
    TransferTooLong {
        /// Its length.
        bytes: usize,
        /// [`crate::limits::TRANSFER_BYTES_MAX`].
        bytes_max: usize,
    },
    /// The operation reaches outside of the remote region that it names.
    #[error("the operation reaches outside of the peer's region: {0}")]
    OutOfBounds(#[from] OutOfBounds),
    /// An atomic operation on an address that is not a multiple of 8.
    #[error("an atomic operation has the address {address:#x}, expected a multiple of 8")]
    Misaligned {
        /// The address.
        address: u64,
    },
}

/// Why only a part of a batch was accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {accepted} of the batch was not accepted: {error}")]
pub struct BatchError {
    /// How many operations were accepted before it.
    pub accepted: usize,
    /// Why the next one was not.
    pub error: PostError,
}

/// Why an accepted operation did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The peer has no region with that key registered on this connection, or has it no longer.
    #[error("the peer has no region with key {key:#018x} on this connection")]
    UnknownKey {
        /// The key.
        key: u64,
    },
    /// The operation reaches outside of the peer's region.
    #[error("the operation reaches outside of the peer's region: {0}")]
    OutOfBounds(OutOfBounds),
    /// The peer did not grant that access.
    #[error("the operation needs {needed:?} access; the peer granted {granted:?}")]
    AccessDenied {
        /// What the operation needs.
        needed: Access,
        /// What the region was registered with.
        granted: Access,
    },
    /// An atomic operation on an address that is not a multiple of 8.
    #[error("an atomic operation has the address {address:#x}, expected a multiple of 8")]
    Misaligned {
        /// The address.
        address: u64,
    },
    /// The peer's adapter refused the operation or could not be reached, or our own memory could
    /// not be registered. Only on `verbs`, where the adapter reports no more than a status.
    #[error("the RDMA device reports work completion status {code} ({text}), vendor code {vendor:#x}")]
    Status {
        /// The status as libibverbs numbers it.
        code: u32,
        /// Its text.
        text: String,
        /// A code of the adapter's vendor.
        vendor: u32,
    },
    /// The peer's inbox has no room and refuses ([`crate::inbox::WhenFull::Refuse`]). Nothing was
    /// delivered; post it again.
    #[error("the peer's inbox has no room for a message of {bytes} bytes; post it again later")]
    InboxFull {
        /// Its length.
        bytes: u64,
    },
    /// The connection ended first. The operation may or may not have happened.
    #[error("the connection ended before the operation completed: {0}")]
    Closed(Ending),
}
