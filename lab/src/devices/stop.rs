//! Decides after each round whether the figures of a case are good enough to stop.
//!
//! Invariants
//! - A rule looks only at the turns of one case, in their order.

use serde::Serialize;

/// When a measurement has enough rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StopRule {
    /// After a fixed number of rounds.
    Rounds,
    /// When the last five turns are steady, by the rule of SNIA's "Solid State Storage Performance
    /// Test Specification" (2.0, section 2.1.24): they differ by at most 20 % of their mean, and
    /// the line that fits them best rises or falls by at most 10 % of it.
    SteadyState,
    /// When the 95 % confidence interval of the mean reaches at most this share of the mean to
    /// either side.
    Confidence(f64),
}

/// Turns that the steady state looks at.
pub const WINDOW: usize = 5;
/// Greatest difference of two turns of a steady window, as a share of its mean.
const RANGE_MAX: f64 = 0.2;
/// Greatest rise or fall of the fitted line in a steady window, as a share of its mean.
const SLOPE_MAX: f64 = 0.1;
/// Turns of which a confidence interval is computed at the earliest.
const CONFIDENCE_TURNS_MIN: usize = 3;

/// What a rule says of some turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Judgement {
    /// Whether they are enough.
    pub is_enough: bool,
    /// Half of the 95 % confidence interval of the mean, as a share of the mean.
    pub interval: Option<f64>,
    /// Whether the last turns are in a steady state; `None` if there are fewer than a window.
    pub is_steady: Option<bool>,
}

impl StopRule {
    /// The number of turns whose latencies are needed one by one; 0 if they are merged.
    pub(super) fn turns_looked_at(self) -> usize {
        match self {
            Self::SteadyState => WINDOW,
            Self::Rounds | Self::Confidence(_) => 0,
        }
    }

    /// The turns that count for figures: with a steady state, only those that it looks at.
    #[must_use]
    pub fn counted(self, turns: usize) -> std::ops::Range<usize> {
        match self {
            Self::SteadyState => turns.saturating_sub(WINDOW)..turns,
            Self::Rounds | Self::Confidence(_) => 0..turns,
        }
    }

    /// Judges the turns of one case.
    #[must_use]
    pub fn judge(self, turns: &[f64]) -> Judgement {
        let (interval, is_steady) = (confidence_interval(turns), is_steady(turns));
        let is_enough = match self {
            Self::Rounds => true,
            Self::SteadyState => is_steady == Some(true),
            Self::Confidence(share) => {
                turns.len() >= CONFIDENCE_TURNS_MIN && interval.is_some_and(|interval| interval <= share)
            }
        };
        Judgement { is_enough, interval, is_steady }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a handful of turns")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[expect(clippy::cast_precision_loss, reason = "a handful of turns")]
fn is_steady(turns: &[f64]) -> Option<bool> {
    let window = turns.last_chunk::<WINDOW>()?;
    let mean = mean(window);
    let range =
        window.iter().copied().fold(f64::MIN, f64::max) - window.iter().copied().fold(f64::MAX, f64::min);
    // The line of least squares over the numbers 0, 1, ... of the turns.
    let middle = (WINDOW - 1) as f64 / 2.0;
    let at = |number: usize| number as f64 - middle;
    let products = window.iter().enumerate().map(|(number, value)| at(number) * (value - mean));
    let squares: f64 = (0..WINDOW).map(|number| at(number).powi(2)).sum();
    let rise = products.sum::<f64>() / squares * (WINDOW - 1) as f64;
    Some(range <= RANGE_MAX * mean && rise.abs() <= SLOPE_MAX * mean)
}

/// Student's t for a two-sided interval of 95 %, by degrees of freedom from 1 on; further ones are
/// within 5 % of the last.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Half of the confidence interval of the mean over the mean.
#[expect(clippy::cast_precision_loss, reason = "a handful of turns")]
fn confidence_interval(turns: &[f64]) -> Option<f64> {
    let freedom = turns.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let mean = mean(turns);
    let variance = turns.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom as f64;
    let half = T_95[freedom.min(T_95.len()) - 1] * (variance / turns.len() as f64).sqrt();
    (mean > 0.0).then(|| half / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_state_neither_differs_nor_rises_too_much() {
        let steady = |turns: &[f64]| StopRule::SteadyState.judge(turns).is_steady;
        assert_eq!(steady(&[100.0; 4]), None, "too few");
        assert_eq!(steady(&[500.0, 100.0, 101.0, 99.0, 100.0, 102.0]), Some(true), "the first is outside");
        assert_eq!(steady(&[100.0, 100.0, 125.0, 100.0, 100.0]), Some(false), "they differ by 24 %");
        assert_eq!(steady(&[95.0, 98.0, 101.0, 104.0, 107.0]), Some(false), "they rise by 12 %");
        assert_eq!(steady(&[96.0, 98.0, 100.0, 102.0, 104.0]), Some(true), "they rise by 8 %");
    }

    #[test]
    fn figures_of_a_steady_state_are_of_its_turns_only() {
        assert_eq!(StopRule::SteadyState.counted(20), 15..20);
        assert_eq!(StopRule::SteadyState.counted(3), 0..3);
        assert_eq!(StopRule::Confidence(0.1).counted(20), 0..20);
    }

    #[test]
    fn the_confidence_interval_is_that_of_students_distribution() {
        // Mean 10, standard deviation 1, 4 turns: 3.182 * 1 / 2 over 10.
        let turns = [9.0, 11.0, 10.0 - 0.5_f64.sqrt(), 10.0 + 0.5_f64.sqrt()];
        let interval = confidence_interval(&turns).unwrap();
        assert!((interval - 0.1591).abs() < 1e-4, "{interval}");
        assert!(StopRule::Confidence(0.16).judge(&turns).is_enough);
        assert!(!StopRule::Confidence(0.15).judge(&turns).is_enough);
        assert!(!StopRule::Confidence(0.5).judge(&[10.0, 10.0]).is_enough, "two turns tell nothing");
        assert_eq!(confidence_interval(&[1.0]), None);
    }
}
