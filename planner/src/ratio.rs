//! By how much is an estimate wrong?
//!
//! The median of the last few ratios of measured to estimated, drawn towards 1 while there are few of them.
//!
//! Invariants
//! - One measurement among at least three others that agree changes the ratio to nothing outside of theirs.
//! - The ratio is finite and within [`RATIO_MAX`] of 1 in both directions, whatever is observed.

use serde::{Deserialize, Serialize};

/// How many of the last measurements count.
const RECENT_MAX: usize = 5;
/// No estimate is believed to be wrong by more than this factor.
pub const RATIO_MAX: f64 = 10_000.0;

/// Measured to estimated, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Logarithms of the last ratios, the newest at `(count - 1) % RECENT_MAX`.
    recent: [f64; RECENT_MAX],
    count: u32,
}

impl Ratio {
    /// Takes a measurement. Where nothing was expected and nothing found there is nothing to learn.
    pub fn observe(&mut self, measured: f64, estimated: f64) {
        if !(measured.is_finite() && estimated.is_finite() && measured >= 0.0 && estimated > 0.0) {
            return;
        }
        let ratio = (measured / estimated).clamp(1.0 / RATIO_MAX, RATIO_MAX);
        let slot = self.count as usize % RECENT_MAX;
        self.recent[slot] = ratio.ln();
        // A full turn more keeps the slot and never overflows.
        self.count = if self.count as usize == 2 * RECENT_MAX - 1 {
            u32::try_from(RECENT_MAX).unwrap_or(1)
        } else {
            self.count + 1
        };
    }

    /// Whether anything was measured.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.count > 0
    }

    /// The ratio; 1 if nothing was measured.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let known = (self.count as usize).min(RECENT_MAX);
        let mut recent = self.recent;
        let recent = &mut recent[..known];
        recent.sort_unstable_by(f64::total_cmp);
        let middle = match known {
            0 => return 1.0,
            odd if odd % 2 == 1 => recent[odd / 2],
            even => f64::midpoint(recent[even / 2 - 1], recent[even / 2]),
        };
        let weight = f64::from(self.count.min(16)).powi(2);
        (middle * weight / (weight + 0.25)).exp()
    }

    /// The ratio `seconds` after the last measurement: it goes back to 1 as what was measured may have passed.
    #[must_use]
    pub fn factor_after(&self, seconds: f64) -> f64 {
        /// Seconds in which half of what was learned is forgotten.
        const HALF_LIFE_S: f64 = 30.0;
        self.factor().powf(0.5_f64.powf(seconds.max(0.0) / HALF_LIFE_S))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(observed: &[f64]) -> Ratio {
        let mut ratio = Ratio::default();
        observed.iter().for_each(|measured| ratio.observe(*measured, 1.0));
        ratio
    }

    #[test]
    fn nothing_measured_changes_nothing() {
        assert!((Ratio::default().factor() - 1.0).abs() < 1e-12 && !Ratio::default().is_known());
    }

    #[test]
    fn measurements_that_agree_are_soon_believed() {
        assert!(of(&[10.0]).factor() > 6.0);
        assert!((of(&[10.0; 4]).factor() - 10.0).abs() < 0.5);
        assert!((of(&[0.1; 25]).factor() - 0.1).abs() < 0.005);
    }

    #[test]
    fn one_outlier_among_others_changes_little() {
        for outlier in [0.0, 1e9] {
            for position in 0..4 {
                let mut observed = [3.0; 4];
                observed[position] = outlier;
                let factor = of(&observed).factor();
                assert!((2.5..=3.5).contains(&factor), "{factor}");
            }
        }
    }

    #[test]
    fn what_changes_for_good_is_followed() {
        let mut observed = vec![1.0; 20];
        observed.extend([8.0; 3]);
        assert!(of(&observed).factor() > 7.0);
    }

    #[test]
    fn nonsense_is_not_believed() {
        let mut ratio = Ratio::default();
        for (measured, estimated) in
            [(f64::NAN, 1.0), (1.0, 0.0), (f64::INFINITY, 1.0), (-1.0, 1.0), (0.0, 0.0)]
        {
            ratio.observe(measured, estimated);
        }
        assert!(!ratio.is_known());
        assert!(of(&[0.0; 5]).factor() >= 1.0 / RATIO_MAX / 2.0);
    }

    #[test]
    fn what_was_learned_is_forgotten() {
        let ratio = of(&[16.0; 5]);
        assert!((ratio.factor_after(0.0) - ratio.factor()).abs() < 1e-9);
        assert!((3.8..4.2).contains(&ratio.factor_after(30.0)));
        assert!(ratio.factor_after(600.0) < 1.01);
    }
}
