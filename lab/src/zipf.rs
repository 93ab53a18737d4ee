//! Draws ranks of a Zipf distribution: rank n has a probability in proportion to `1 / n^skew`.
//!
//! By J. Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, as in
//! the Yahoo! Cloud Serving Benchmark (`ZipfianGenerator`): the two most popular ranks are exact,
//! the others come from a formula that takes one power.
//!
//! Invariants
//! - A rank is below the count.
//! - The same numbers give the same ranks.

/// Ranks of a Zipf distribution.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    count: u64,
    skew: f64,
    alpha: f64,
    eta: f64,
    /// The sum of `1 / n^skew` over all ranks, from 1.
    zeta: f64,
}

/// Terms of the sum that are added one by one; an integral replaces the others and differs by less
/// than a millionth.
const ZETA_TERMS: u64 = 10_000;

impl Zipf {
    /// Creates a distribution of `count` ranks, at least 1; `skew` is above 0 and below 1.
    pub(crate) fn new(count: u64, skew: f64) -> Self {
        let (count, zeta) = (count.max(1), zeta(count.max(1), skew));
        let mut this = Self { count, skew, alpha: 1.0 / (1.0 - skew), eta: 0.0, zeta };
        this.fit();
        this
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn fit(&mut self) {
        let two = zeta(self.count.min(2), self.skew);
        self.eta = (1.0 - (2.0 / self.count as f64).powf(1.0 - self.skew)) / (1.0 - two / self.zeta);
    }

    /// The sum over all ranks.
    #[cfg(test)]
    pub(crate) fn zeta(&self) -> f64 {
        self.zeta
    }

    /// Extends the distribution to `count` ranks; each new rank costs a power, so a few at a time
    /// are cheap. A smaller count changes nothing.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(crate) fn grow(&mut self, count: u64) {
        if count <= self.count {
            return;
        }
        self.zeta = if count - self.count <= ZETA_TERMS {
            let added = self.count + 1..=count;
            self.zeta + added.map(|rank| (rank as f64).powf(-self.skew)).sum::<f64>()
        } else {
            zeta(count, self.skew)
        };
        self.count = count;
        self.fit();
    }

    /// The rank, from 0, for a number drawn from [0, 1).
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "at most the number of ranks, which is far below 2^53"
    )]
    pub(crate) fn draw(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        if scaled < 1.0 || self.count <= 2 {
            return u64::from(scaled >= 1.0);
        }
        if scaled < 1.0 + 0.5_f64.powf(self.skew) {
            return 1;
        }
        let rank = (self.count as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64;
        rank.min(self.count - 1)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn zeta(count: u64, skew: f64) -> f64 {
    let summed = count.min(ZETA_TERMS);
    let sum: f64 = (1..=summed).map(|rank| (rank as f64).powf(-skew)).sum();
    let antiderivative = |at: f64| at.powf(1.0 - skew) / (1.0 - skew);
    sum + antiderivative(count as f64 + 0.5) - antiderivative(summed as f64 + 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_over_ten_thousand_million_ranks_is_the_one_that_ycsb_has() {
        // ScrambledZipfianGenerator.ZETAN of YCSB, for ITEM_COUNT = 10,000,000,000 and 0.99.
        let found = Zipf::new(10_000_000_000, 0.99).zeta();
        assert!((found - 26.469_028_201_783_02).abs() < 1e-6, "{found}");
    }

    #[test]
    fn ranks_that_were_added_later_are_drawn_as_if_they_had_always_been_there() {
        let (mut grown, whole) = (Zipf::new(10, 0.99), Zipf::new(3000, 0.99));
        for count in [11, 500, 499, 3000] {
            grown.grow(count);
        }
        assert!((grown.zeta() - whole.zeta()).abs() < 1e-6, "{} {}", grown.zeta(), whole.zeta());
        for step in 0..1000 {
            let uniform = f64::from(step) / 1000.0;
            assert!(grown.draw(uniform).abs_diff(whole.draw(uniform)) <= 1);
        }
    }

    #[test]
    fn a_rank_is_below_the_count_whatever_is_drawn() {
        for count in [1, 2, 3, 10, 1_000_000] {
            let zipf = Zipf::new(count, 0.99);
            for uniform in [0.0, 0.5, 0.999_999, 1.0 - f64::EPSILON / 2.0] {
                assert!(zipf.draw(uniform) < count, "{uniform} of {count}");
            }
        }
    }
}
