//! How many descriptors may this process have, and what does a connection take of them?
//!
//! Invariants
//! - The limit is only raised, and never above what the system lets the process raise it to.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors that one end of a connection takes at most: its socket, two bells, and what it is
/// watched by; on `verbs` the channel of its completions.
pub const CONNECTION_DESCRIPTORS: u64 = 5;

/// Raises the number of descriptors that this process may have to the most that it may ask for.
/// Returns the limit that holds then.
pub fn raise_descriptor_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let (before, most) = (limit.current, limit.maximum);
    limit.current = most;
    // No limit is the largest.
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
