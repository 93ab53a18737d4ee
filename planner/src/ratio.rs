//! Learns by what factor an estimate is wrong.
//!
//! [`Ratio`] is the median of the last few ratios of measured to estimated, pulled towards 1 while
//! there are few of them. [`PassingRatio`] is for quantities that may change while nobody measures:
//! it returns to 1 with time.
//!
//! Invariants
//! - One outlier among at least three measurements that agree does not move the ratio outside the
//!   range of those three.
//! - The ratio is finite and within [`RATIO_MAX`] of 1 in both directions, whatever is observed.

use serde::{Deserialize, Serialize};

/// How many of the last measurements count.
const RECENT_MAX: usize = 5;
/// Ratios are limited to this factor in both directions.
pub const RATIO_MAX: f64 = 10_000.0;

/// The ratio of measured to estimated, from the last few measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Logarithms of the last ratios, the newest at `(count - 1) % RECENT_MAX`.
    recent: [f64; RECENT_MAX],
    /// Measurements so far, until the ring is full; then a number from `RECENT_MAX` to
    /// `2 * RECENT_MAX - 1` that tells the newest slot.
    count: u32,
}

impl Ratio {
    /// Adds a measurement. Returns whether it was usable: `measured` must be a finite number from
    /// 0, `estimated` a finite number above 0.
    pub fn observe(&mut self, measured: f64, estimated: f64) -> bool {
        if !(measured.is_finite() && estimated.is_finite() && measured >= 0.0 && estimated > 0.0) {
            return false;
        }
        let ratio = (measured / estimated).clamp(1.0 / RATIO_MAX, RATIO_MAX);
        let slot = self.count as usize % RECENT_MAX;
        self.recent[slot] = ratio.ln();
        // Going back by one turn of the ring keeps the slot, and `count` cannot overflow.
        self.count = if self.count as usize == 2 * RECENT_MAX - 1 {
            u32::try_from(RECENT_MAX).expect("RECENT_MAX is small and fits in u32")
        } else {
            self.count + 1
        };
        true
    }

    /// Whether anything was measured.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.count > 0
    }

    /// The ratio; 1 if nothing was measured.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let mut recent = self.recent;
        let recent = &mut recent[..self.known()];
        recent.sort_unstable_by(f64::total_cmp);
        match recent.len() {
            0 => 1.0,
            odd if odd % 2 == 1 => self.damped(recent[odd / 2]),
            even => self.damped(f64::midpoint(recent[even / 2 - 1], recent[even / 2])),
        }
    }

    /// The minimum of the last few ratios: for measurements that disturbances can only increase. 1
    /// if nothing was measured.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.recent[..self.known()]
            .iter()
            .copied()
            .min_by(f64::total_cmp)
            .map_or(1.0, |least| self.damped(least))
    }

    /// How many slots of `recent` are filled.
    fn known(&self) -> usize {
        (self.count as usize).min(RECENT_MAX)
    }

    /// A logarithm as a factor, pulled towards 1 while there are few measurements.
    fn damped(&self, logarithm: f64) -> f64 {
        let weight = f64::from(self.count.min(16)).powi(2);
        (logarithm * weight / (weight + 0.25)).exp()
    }
}

/// After this many seconds without a measurement, the logarithm of the factor has halved.
const HALF_LIFE_S: f64 = 30.0;
/// For this many seconds a measurement counts as recent. Until then nothing is explored to renew
/// it, and segments may leave the default placement for the measured one (`is_known`). Prices use
/// the measured share of bytes that a node reads from its devices (`as_measured`); later they use
/// the share that its cache leaves.
const KNOWN_FOR_S: f64 = 60.0;

/// A ratio of something that may change while nobody measures it. All times are seconds of one
/// clock, which the caller chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassingRatio {
    ratio: Ratio,
    measured_at_s: f64,
}

impl PassingRatio {
    /// Adds a measurement. Drops the earlier ones if the last of them is `HALF_LIFE_S` old or
    /// older.
    pub fn observe(&mut self, measured: f64, estimated: f64, now_s: f64) {
        let mut ratio = if self.age_s(now_s) < HALF_LIFE_S { self.ratio } else { Ratio::default() };
        if ratio.observe(measured, estimated) {
            *self = Self { ratio, measured_at_s: now_s };
        }
    }

    fn age_s(&self, now_s: f64) -> f64 {
        (now_s - self.measured_at_s).max(0.0)
    }

    /// Whether it was measured within the last `KNOWN_FOR_S` seconds.
    #[must_use]
    pub fn is_known(&self, now_s: f64) -> bool {
        self.ratio.is_known() && self.age_s(now_s) < KNOWN_FOR_S
    }

    /// [`Ratio::factor`], which goes back to 1 as the measurements age.
    #[must_use]
    pub fn factor(&self, now_s: f64) -> f64 {
        self.decayed(self.ratio.factor(), now_s)
    }

    /// [`Ratio::least`], which goes back to 1 as the measurements age.
    #[must_use]
    pub fn least(&self, now_s: f64) -> f64 {
        self.decayed(self.ratio.least(), now_s)
    }

    fn decayed(&self, factor: f64, now_s: f64) -> f64 {
        factor.powf(0.5_f64.powf(self.age_s(now_s) / HALF_LIFE_S))
    }

    /// The ratio as measured, without decay; `None` if it was not measured recently.
    #[must_use]
    pub fn as_measured(&self, now_s: f64) -> Option<f64> {
        self.is_known(now_s).then(|| self.ratio.factor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(observed: &[f64]) -> Ratio {
        let mut ratio = Ratio::default();
        observed.iter().for_each(|measured| assert!(ratio.observe(*measured, 1.0)));
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
        observed.extend([8.0; 2]);
        assert!(of(&observed).least() > 7.0);
    }

    #[test]
    fn four_that_were_disturbed_together_change_nothing_of_the_least() {
        let ratio = of(&[2.0, 2.1, 80.0, 70.0, 90.0, 60.0]);
        assert!((2.0..2.2).contains(&ratio.least()) && ratio.factor() > 60.0);
        assert!((Ratio::default().least() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn nonsense_is_not_believed() {
        let mut ratio = Ratio::default();
        for (measured, estimated) in
            [(f64::NAN, 1.0), (1.0, 0.0), (f64::INFINITY, 1.0), (-1.0, 1.0), (0.0, 0.0)]
        {
            assert!(!ratio.observe(measured, estimated));
        }
        assert!(!ratio.is_known());
        assert!(of(&[0.0; 5]).factor() >= 1.0 / RATIO_MAX / 2.0);
    }

    fn passing(observed: &[(f64, f64)]) -> PassingRatio {
        let mut ratio = PassingRatio::default();
        observed.iter().for_each(|(measured, at_s)| ratio.observe(*measured, 1.0, *at_s));
        ratio
    }

    #[test]
    fn what_was_learned_is_forgotten() {
        let ratio = passing(&[(16.0, 100.0); 5]);
        assert!((ratio.factor(100.0) - of(&[16.0; 5]).factor()).abs() < 1e-9);
        assert!((3.8..4.2).contains(&ratio.factor(130.0)));
        assert!(ratio.factor(700.0) < 1.01);
        assert!(ratio.is_known(159.0) && !ratio.is_known(161.0) && ratio.as_measured(161.0).is_none());
    }

    #[test]
    fn what_is_measured_after_a_pause_is_believed_at_once() {
        let mut observed = vec![(50.0, 0.0); 5];
        observed.push((1.0, 40.0));
        assert!(passing(&observed).factor(40.0) < 1.01);
        observed[5].1 = 20.0;
        assert!(passing(&observed).factor(20.0) > 40.0, "without a pause it is one among others");
    }

    #[test]
    fn what_says_nothing_does_not_make_old_measurements_young() {
        let ratio = passing(&[(50.0, 0.0), (f64::NAN, 20.0)]);
        assert!(!ratio.is_known(61.0));
    }
}
