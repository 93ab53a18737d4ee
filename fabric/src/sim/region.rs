//! Keeps the regions that one end of a simulated connection has granted to its peer.
//!
//! Invariants
//! - Key, access, bounds and alignment are checked when an operation reaches the memory, before a
//!   byte moves.

use std::collections::BTreeMap;

use crate::{
    access::Access,
    error::OperationError,
    operation::{RemoteSpan, check_grant},
    region::Region,
};

/// Regions that an end has granted to its peer.
#[derive(Debug, Default)]
pub(super) struct Grants {
    granted: BTreeMap<u64, (Region, Access)>,
}

impl Grants {
    pub(super) fn grant(&mut self, key: u64, region: &Region, access: Access) {
        self.granted.insert(key, (region.clone(), access));
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.granted.contains_key(&key)
    }

    pub(super) fn revoke(&mut self, key: u64) {
        self.granted.remove(&key);
    }

    pub(super) fn clear(&mut self) {
        self.granted.clear();
    }

    pub(super) fn count(&self) -> usize {
        self.granted.len()
    }

    /// The region, and the offset in it, of a span that the peer wants to access.
    pub(super) fn find(&self, span: RemoteSpan, needed: Access) -> Result<(Region, usize), OperationError> {
        let (region, access) =
            self.granted.get(&span.key).ok_or(OperationError::UnknownKey { key: span.key })?;
        let offset = check_grant(span, needed, *access, region.bytes())?;
        Ok((region.clone(), offset))
    }
}

/// Whether two regions are the same memory.
pub(super) fn same_memory(one: &Region, other: &Region) -> bool {
    std::ptr::eq(one.mapping(), other.mapping())
}
