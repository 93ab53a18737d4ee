//! Bundles what all stripes of a session use, and what all sessions of a node use, to pass it to
//! the functions that move a stripe.

use rackscan_device::DeviceIo;

use super::{disk::Disk, links::Links};
use crate::{
    checksum,
    counters::Counters,
    error::Failure,
    message::Cause,
    rings::{Incoming, Outgoing, Slots},
    shape::Layout,
    store::Store,
};

/// A place that sends to this node.
#[derive(Debug)]
pub(super) struct IncomingLink {
    pub(super) link: usize,
    /// The member; `None` for the client.
    pub(super) member: Option<usize>,
    pub(super) rings: Incoming,
}

/// A member that this node sends to.
#[derive(Debug)]
pub(super) struct OutgoingLink {
    pub(super) link: usize,
    pub(super) rings: Outgoing,
    /// Whether a slice waits for credit there.
    pub(super) waits: bool,
}

/// What all sessions of a node share.
pub(super) struct NodeShared<'a> {
    pub(super) links: &'a mut Links,
    pub(super) io: &'a mut dyn DeviceIo,
    pub(super) disk: &'a mut Disk,
    pub(super) store: &'a mut dyn Store,
}

/// What the stripes of a session share.
pub(super) struct SessionShared<'a> {
    pub(super) layout: &'a Layout,
    pub(super) me: usize,
    pub(super) incoming: &'a mut [Option<IncomingLink>],
    pub(super) outgoing: &'a mut [Option<OutgoingLink>],
    /// Slots of the node's own, for cells that it reads and for sums.
    pub(super) own: Option<&'a Slots>,
    pub(super) counters: &'a mut Counters,
    pub(super) zeros_of_slice: u32,
}

impl SessionShared<'_> {
    /// The checksum of `length` zeros.
    pub(super) fn zeros(&self, length: usize) -> u32 {
        if length == self.layout.shape.slice_bytes { self.zeros_of_slice } else { checksum::of_zeros(length) }
    }

    /// A failure of this node itself.
    pub(super) fn broken(&self, error: &impl ToString) -> Failure {
        Failure::new(Some(self.me), Cause::Violation, error.to_string())
    }
}
