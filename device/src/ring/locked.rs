//! How much memory may this process lock for registered buffers?
//!
//! Registering buffers pins their pages, which counts against RLIMIT_MEMLOCK (8 MiB by default) for
//! every process without CAP_IPC_LOCK. The limit counts all locked memory of the user, so we ask
//! for no limit rather than guess what else is locked.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit: to none where that is allowed (CAP_SYS_RESOURCE), else the soft limit to the
/// hard one. Returns true if anything was raised.
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

/// The soft limit in bytes; `None` is unlimited.
pub(super) fn limit_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}
