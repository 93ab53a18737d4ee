//! Provides methods for random choices that are easy to read at their call sites.

use rackscan_fabric::sim::{Random, Seed};

/// Choices from a stream of random numbers.
pub(crate) trait Draw {
    /// Whether something happens that does so in `percent` of a hundred cases.
    fn percent(&mut self, percent: u64) -> bool;
    /// One of several.
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T;
    /// A number between two, both included.
    fn between(&mut self, low: i64, high: i64) -> i64;
    /// The position of a weight, as often as it is heavy.
    fn weighted(&mut self, weights: &[u64]) -> usize;
}

impl Draw for Random {
    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = high.abs_diff(low);
        let offset = if width == u64::MAX { self.next_u64() } else { self.below(width + 1) };
        low.wrapping_add_unsigned(offset)
    }

    fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (position, weight) in weights.iter().enumerate() {
            if left < *weight {
                return position;
            }
            left -= weight;
        }
        0
    }
}

/// The stream of one case, whatever other cases of its round were drawn before.
pub(crate) fn of_case(round: Seed, case: u64) -> Random {
    let mut mixed = Random::new(Seed::new(round.number() ^ (case + 1).rotate_right(20)));
    Random::new(Seed::new(mixed.next_u64()))
}
