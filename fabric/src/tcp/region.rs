//! Which of our regions may the peer touch over this connection?
//!
//! Invariants
//! - Key, access, bounds and alignment are checked for every frame that names memory, before a byte moves.

use std::collections::HashMap;

use crate::{
    error::OperationError,
    guarded::Guarded,
    operation::{RemoteSpan, check_grant},
    region::{Access, Region},
};

/// Regions granted to the peer; shared by the application, which grants, and the responder, which looks up.
#[derive(Debug, Default)]
pub(super) struct Grants {
    granted: Guarded<HashMap<u64, (Region, Access)>>,
}

impl Grants {
    pub(super) fn grant(&self, key: u64, region: &Region, access: Access) {
        self.granted.lock().insert(key, (region.clone(), access));
    }

    pub(super) fn revoke(&self, key: u64) {
        self.granted.lock().remove(&key);
    }

    pub(super) fn clear(&self) {
        self.granted.lock().clear();
    }

    /// The region and the offset in it of a span that the peer wants to touch.
    pub(super) fn find(&self, span: RemoteSpan, needed: Access) -> Result<(Region, usize), OperationError> {
        let granted = self.granted.lock();
        let (region, access) = granted.get(&span.key).ok_or(OperationError::UnknownKey { key: span.key })?;
        let offset = check_grant(span, needed, *access, region.bytes())?;
        Ok((region.clone(), offset))
    }
}
