//! Reads the wall clock and the name of this host.
//!
//! Clients make timestamps with the clock, and nodes compare it with theirs. A clock is a value
//! that is passed in, so that tests can pass clocks that are wrong.
//!
//! Invariants
//! - This file only reads the time; decisions from it are made elsewhere.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use az::SaturatingAs;

/// A wall clock.
#[derive(Clone, Default)]
pub struct WallClock(Source);

#[derive(Clone, Default)]
enum Source {
    /// The clock of this host.
    #[default]
    Host,
    Custom(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl WallClock {
    /// A clock that shows what `read` returns, in milliseconds since 1970.
    #[must_use]
    pub fn new(read: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Source::Custom(Arc::new(read)))
    }

    /// Milliseconds since 1970; 0 before that.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Source::Host => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                since.as_millis().saturating_as::<u64>()
            }
            Source::Custom(read) => read(),
        }
    }
}

impl PartialEq for WallClock {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Source::Host, Source::Host) => true,
            (Source::Custom(one), Source::Custom(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for WallClock {}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({} ms)", self.now_ms())
    }
}

/// The name of this host, for errors that name it.
#[must_use]
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().take(HOST_NAME_CHARACTERS_MAX).collect();
    if name.is_empty() { "this host".to_owned() } else { name }
}

/// Longer names are cut.
const HOST_NAME_CHARACTERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_says_what_it_is_made_of_and_the_default_one_is_after_this_was_written() {
        let told = WallClock::new(|| 7);
        assert_eq!((told.now_ms(), told.clone()), (7, told.clone()));
        assert_ne!(told, WallClock::default());
        assert_eq!(WallClock::default(), WallClock::default());
        assert!(WallClock::default().now_ms() > 1_700_000_000_000);
        assert!(!host_name().is_empty());
    }
}
