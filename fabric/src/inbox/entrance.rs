//! Creates the shared receive queue of an RDMA adapter for an inbox when the first caller needs it.
//!
//! Invariants
//! - An inbox has at most one shared receive queue for each adapter.

use std::{
    any::Any,
    sync::{Arc, atomic::Ordering},
};

use super::{
    handle::{InboxHandle, JoinError},
    supply::{Entrance, Supply, SupplySize},
};
use crate::error::RegionError;

/// Both sides of a new shared receive queue: the inbox's and the callers' (its gate).
pub(crate) type NewSupply<G> = (Box<dyn Supply>, Arc<G>);

impl InboxHandle {
    /// Returns the gate of an adapter, and its number for [`InboxHandle::join_through`]. Makes both
    /// sides at the first call for this adapter.
    pub(crate) fn entrance<G: Any + Send + Sync>(
        &self,
        adapter: &str,
        make: impl FnOnce(SupplySize) -> Result<NewSupply<G>, RegionError>,
    ) -> Result<(u16, Arc<G>), JoinError> {
        let mut entrances = self.shared.entrances.lock();
        if self.shared.closed.load(Ordering::SeqCst) {
            return Err(JoinError::Closed);
        }
        let count = entrances.known.len();
        let at = entrances.known.iter().position(|entrance| entrance.adapter == adapter).unwrap_or(count);
        if at == count {
            let size = SupplySize::of(&self.shared.map.layout.shape);
            let no_queue = |source: RegionError| JoinError::NoQueue { reason: source.to_string() };
            let (supply, gate) = make(size).map_err(no_queue)?;
            let gate: Arc<dyn Any + Send + Sync> = gate;
            let (adapter, bytes) = (adapter.to_owned(), size.bytes());
            entrances.known.push(Entrance { adapter, gate, bytes });
            entrances.new.push(supply);
            self.shared.has_news.store(true, Ordering::SeqCst);
            self.shared.bell.ring();
        }
        let gate = Arc::clone(&entrances.known[at].gate).downcast::<G>();
        let reason = "the adapter is used by another wire".to_owned();
        let gate = gate.map_err(|_| JoinError::NoQueue { reason })?;
        Ok((u16::try_from(at).expect("a machine has few adapters"), gate))
    }
}
