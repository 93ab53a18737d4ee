//! Keeps the regions that the peer may access over this connection.
//!
//! Invariants
//! - Key, access, bounds and alignment are checked for every frame that names memory, before a byte
//!   moves.

use std::collections::HashMap;

use crate::{
    access::Access,
    error::OperationError,
    guarded::Guarded,
    operation::{RemoteSpan, check_grant},
    region::Region,
};

/// Regions granted to the peer, shared by the application, which grants them, and the responder,
/// which looks them up.
#[derive(Debug, Default)]
pub(super) struct Grants {
    granted: Guarded<HashMap<u64, Grant>>,
}

#[derive(Debug)]
struct Grant {
    region: Region,
    access: Access,
    wakes: bool,
}

/// A span in a granted region.
#[derive(Debug)]
pub(super) struct GrantedSpan {
    pub(super) region: Region,
    pub(super) offset: usize,
    /// Whether a write there wakes the connection's owner.
    pub(super) wakes: bool,
}

impl Grants {
    pub(super) fn grant(&self, key: u64, region: &Region, access: Access) {
        self.granted.lock().insert(key, Grant { region: region.clone(), access, wakes: false });
    }

    /// A write to the registration wakes the connection's owner from now on.
    pub(super) fn wake_on_write(&self, key: u64) {
        if let Some(grant) = self.granted.lock().get_mut(&key) {
            grant.wakes = true;
        }
    }

    pub(super) fn revoke(&self, key: u64) {
        self.granted.lock().remove(&key);
    }

    pub(super) fn clear(&self) {
        self.granted.lock().clear();
    }

    /// Looks up a span that the peer wants to access.
    pub(super) fn find(&self, span: RemoteSpan, needed: Access) -> Result<GrantedSpan, OperationError> {
        let granted = self.granted.lock();
        let grant = granted.get(&span.key).ok_or(OperationError::UnknownKey { key: span.key })?;
        let offset = check_grant(span, needed, grant.access, grant.region.bytes())?;
        Ok(GrantedSpan { region: grant.region.clone(), offset, wakes: grant.wakes })
    }
}
