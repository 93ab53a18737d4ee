//! Defines a mutex that ignores poisoning, for queues that a connection's owner and its responder
//! thread share.
//!
//! Invariants
//! - A guard is held only over code that does not panic, so the data behind a poisoned lock
//!   is consistent.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A mutex without poisoning.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(Mutex<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guard, or `None` if another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
