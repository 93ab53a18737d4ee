//! Defines the reasons why a wire could not be measured: the wire failed, or the partner process
//! did.

use rackscan_fabric::Event;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum FabricBenchError {
    /// Listening at an address failed.
    #[error(transparent)]
    Listen(#[from] rackscan_fabric::ListenError),
    /// The processes could not connect.
    #[error(transparent)]
    Connect(#[from] rackscan_fabric::ConnectError),
    /// Memory could not be allocated.
    #[error(transparent)]
    Region(#[from] rackscan_fabric::RegionError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] rackscan_fabric::RegisterError),
    /// An inbox could not be created.
    #[error(transparent)]
    Inbox(#[from] rackscan_fabric::inbox::InboxError),
    /// A sender could not be assigned another ring.
    #[error(transparent)]
    Assign(#[from] rackscan_fabric::inbox::AssignError),
    /// An operation was not accepted.
    #[error(transparent)]
    Post(#[from] rackscan_fabric::PostError),
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] rackscan_fabric::OperationError),
    /// Access outside of a region.
    #[error(transparent)]
    Bounds(#[from] rackscan_fabric::OutOfBounds),
    /// The other process could not be started, or its pipes failed.
    #[error("the measurement with a second process failed: cannot {action}: {source}")]
    Process {
        /// What was attempted.
        action: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The other process did not do what was expected.
    #[error("the second process of the measurement: found {found}, expected {expected}")]
    Partner {
        /// What it did.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
}

/// The error for an event that was not expected.
pub(crate) fn unexpected(event: &Event, expected: &'static str) -> FabricBenchError {
    FabricBenchError::Partner { found: format!("{event:?}"), expected }
}
