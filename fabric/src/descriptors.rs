//! Raises the limit on file descriptors of this process, and says how many a connection uses.
//!
//! Invariants
//! - The limit is only raised, and never above the hard limit that the system sets.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Maximum number of descriptors of one end of a connection: its socket, two doorbells, and the
/// epoll instance that watches them; on `verbs` the channel of its completions.
pub const CONNECTION_DESCRIPTORS: u64 = 5;

/// Raises the soft limit on this process's descriptors to its hard limit. Returns the limit that
/// then holds.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let (before, most) = (limit.current, limit.maximum);
    limit.current = most;
    // `None` means no limit, which is the largest.
    let is_lower = before.unwrap_or(u64::MAX) < most.unwrap_or(u64::MAX);
    if is_lower && let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, ?before, ?most, "the limit of descriptors stays as it is");
        return before.unwrap_or(u64::MAX);
    }
    if is_lower { most } else { before }.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_descriptors_is_raised_to_the_most_that_may_be_had_and_stays_there() {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_descriptor_limit(), most);
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), most);
        assert_eq!(raise_descriptor_limit(), most);
    }
}
