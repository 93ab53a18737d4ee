//! The limit of memory that this process may lock for registered buffers.
//!
//! Registering buffers pins their pages, which counts against RLIMIT_MEMLOCK (8 MiB by default) for
//! every process without CAP_IPC_LOCK. The limit counts all locked memory of the user, so this
//! module removes the limit rather than guess how much else is locked.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Removes the limit where that is allowed (CAP_SYS_RESOURCE), otherwise raises the soft limit to
/// the hard limit. Returns whether the limit was raised.
pub(super) fn raise_limit() -> bool {
    let before = getrlimit(Resource::Memlock);
    if before.current.is_none() {
        return false;
    }
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_ok() {
        return true;
    }
    let soft_to_hard = Rlimit { current: before.maximum, maximum: before.maximum };
    before.current != before.maximum && setrlimit(Resource::Memlock, soft_to_hard).is_ok()
}

/// The soft limit in bytes; `None` means unlimited.
pub(super) fn limit_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}
