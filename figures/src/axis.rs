//! Computes the range of an axis, the positions of values on it, and its ticks.
//!
//! Invariants
//! - The range encloses all values and is never empty, even for one value or none.
//! - Ticks are inside the range and ascend; at most [`TICKS_MAX`] + 1 of them have a label.

use crate::chart::{Axis, Scale, Ticks};

/// The maximum number of labelled ticks of an axis.
const TICKS_MAX: usize = 12;

/// The approximate number of parts into which ticks divide a linear axis.
const PARTS: f64 = 6.0;

/// The range of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    scale: Scale,
    low: f64,
    high: f64,
}

/// A value with a line across the picture. A tick without a label is a finer line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: Option<String>,
}

/// Where a linear range begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeStart {
    /// At zero, as heights must.
    Zero,
    /// At the smallest value.
    Values,
}

impl Range {
    /// The range that encloses `values`, rounded outwards to possible ticks.
    pub(crate) fn around(scale: Scale, start: RangeStart, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        match scale {
            Scale::Linear | Scale::Automatic => Self::linear(low, high, start),
            Scale::Log2 => Self::logarithmic(scale, low.log2().floor(), high.log2().ceil(), 2.0),
            Scale::Log10 => {
                // Rounded to 1, 2 or 5 times a power of ten, so a range within one decade does not
                // extend to whole decades.
                let (first, last) = (round_down_1_2_5(low), round_up_1_2_5(high));
                if first < last {
                    Self { scale, low: first, high: last }
                } else {
                    Self { scale, low: first / 2.0, high: last * 2.0 }
                }
            }
        }
    }

    fn linear(low: f64, high: f64, start: RangeStart) -> Self {
        let (mut low, mut high) = match start {
            RangeStart::Zero => (low.min(0.0), high.max(0.0)),
            RangeStart::Values => (low, high),
        };
        if low == high {
            let room = if low == 0.0 { 1.0 } else { low.abs() / 2.0 };
            (low, high) =
                if start == RangeStart::Zero { (low, low + room) } else { (low - room, high + room) };
        }
        let step = round_step(high - low, PARTS);
        Self { scale: Scale::Linear, low: (low / step).floor() * step, high: (high / step).ceil() * step }
    }

    fn logarithmic(scale: Scale, low_exponent: f64, high_exponent: f64, base: f64) -> Self {
        let (low, high) = if low_exponent < high_exponent {
            (low_exponent, high_exponent)
        } else {
            (low_exponent - 1.0, high_exponent + 1.0)
        };
        Self { scale, low: base.powf(low), high: base.powf(high) }
    }

    /// The position of `value` between the ends of the range: 0 to 1.
    pub(crate) fn position(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear | Scale::Automatic => (value - self.low) / (self.high - self.low),
            Scale::Log2 | Scale::Log10 => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// The position at which bars begin: that of zero, or the lower end of a logarithmic axis.
    pub(crate) fn baseline(&self) -> f64 {
        if self.scale == Scale::Linear { self.position(0.0).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The ticks, with labels in the format of `axis`.
    pub(crate) fn ticks(&self, axis: &Axis) -> Vec<Tick> {
        let values = match self.scale {
            Scale::Linear | Scale::Automatic => self.linear_ticks(axis.ticks),
            Scale::Log2 => self.powers_of_two(),
            Scale::Log10 => self.decimal_ticks(),
        };
        let written = |(value, labelled): (f64, bool)| Tick {
            value,
            label: labelled.then(|| match axis.ticks {
                // A power of two has no short form with k: 1.024k.
                Ticks::Numbers if axis.scale == Scale::Log2 && (1e-3..1e6).contains(&value) => {
                    trim_zeros(value)
                }
                Ticks::Numbers => number(value),
                Ticks::Bytes => bytes(value),
            }),
        };
        values.into_iter().map(written).collect()
    }

    fn linear_ticks(&self, ticks: Ticks) -> Vec<(f64, bool)> {
        let span = self.high - self.low;
        let step = match ticks {
            Ticks::Numbers => round_step(span, PARTS),
            Ticks::Bytes => (span / PARTS).log2().ceil().exp2(),
        };
        let first = (self.low / step).ceil();
        let places = (0..TICKS_MAX).map(|at| (first + at as f64) * step);
        places.take_while(|value| *value <= self.high + step * 1e-9).map(|value| (value, true)).collect()
    }

    fn powers_of_two(&self) -> Vec<(f64, bool)> {
        let (first, last) = (self.low.log2().round(), self.high.log2().round());
        let every = ((last - first + 1.0) / TICKS_MAX as f64).ceil().max(1.0);
        let places = (0..TICKS_MAX).map(|at| first + at as f64 * every);
        places.take_while(|exponent| *exponent <= last).map(|exponent| (exponent.exp2(), true)).collect()
    }

    /// Ticks at decades, and at 2 and 5 where there are few decades; ticks at the other digits have
    /// no label.
    fn decimal_ticks(&self) -> Vec<(f64, bool)> {
        let (first, last) = (self.low.log10().floor(), self.high.log10().ceil());
        let decades = last - first;
        let every = (decades / TICKS_MAX as f64).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut exponent = first;
        while exponent <= last {
            for digit in [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0] {
                let value = digit * 10_f64.powf(exponent);
                let inside = value >= self.low * (1.0 - 1e-9) && value <= self.high * (1.0 + 1e-9);
                let labelled = digit == 1.0 || (decades <= 3.0 && (digit == 2.0 || digit == 5.0));
                if inside && (labelled || decades <= 6.0) {
                    ticks.push((value, labelled));
                }
            }
            exponent += every;
        }
        ticks
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `span` into about `parts`.
fn round_step(span: f64, parts: f64) -> f64 {
    round_up_1_2_5(span / parts)
}

fn round_up_1_2_5(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digits = value / decade;
    let rounded = [1.0, 2.0, 5.0].into_iter().find(|digit| digits <= digit * (1.0 + 1e-9));
    rounded.unwrap_or(10.0) * decade
}

fn round_down_1_2_5(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let digits = value / decade;
    let rounded = [5.0, 2.0].into_iter().find(|digit| digits >= digit * (1.0 - 1e-9));
    rounded.unwrap_or(1.0) * decade
}

/// 0.5, 20, 1.5k, 3M: at most three digits after the point.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-3..1e15).contains(&magnitude) {
        return format!("{value:e}");
    }
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, suffix) = units.into_iter().find(|(unit, _)| magnitude >= *unit).unwrap_or((1.0, ""));
    format!("{}{suffix}", trim_zeros(value / unit))
}

/// The name of a size: 512 B, 4 KiB, 1 MiB.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a name has at most three digits after the point")]
pub fn size_name(size_bytes: u64) -> String {
    bytes(size_bytes as f64)
}

/// 512 B, 4 KiB, 1 MiB.
fn bytes(value: f64) -> String {
    let kib = 1024.0_f64;
    let units = [(kib.powi(4), "TiB"), (kib.powi(3), "GiB"), (kib.powi(2), "MiB"), (kib, "KiB")];
    let (unit, suffix) = units.into_iter().find(|(unit, _)| value.abs() >= *unit).unwrap_or((1.0, "B"));
    format!("{} {suffix}", trim_zeros(value / unit))
}

fn trim_zeros(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(scale: Scale, ticks: Ticks, values: &[f64]) -> Vec<String> {
        let axis = Axis { label: String::new(), scale, ticks };
        let range = Range::around(scale, RangeStart::Zero, values.iter().copied());
        range.ticks(&axis).into_iter().filter_map(|tick| tick.label).collect()
    }

    #[test]
    fn a_linear_axis_starts_at_zero_and_goes_in_steps_of_1_2_or_5() {
        assert_eq!(labels(Scale::Linear, Ticks::Numbers, &[3.0, 97.0]), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(
            labels(Scale::Linear, Ticks::Numbers, &[2.4e6]),
            ["0", "500k", "1M", "1.5M", "2M", "2.5M"]
        );
    }

    #[test]
    fn powers_of_two_are_written_out() {
        let labels = labels(Scale::Log2, Ticks::Numbers, &[512.0, 2048.0]);
        assert_eq!(labels, ["512", "1024", "2048"]);
    }

    #[test]
    fn an_axis_of_sizes_writes_binary_units() {
        let sizes = [512.0, 4096.0, 131_072.0, 1_048_576.0];
        assert_eq!(
            labels(Scale::Log2, Ticks::Bytes, &sizes),
            [
                "512 B", "1 KiB", "2 KiB", "4 KiB", "8 KiB", "16 KiB", "32 KiB", "64 KiB", "128 KiB",
                "256 KiB", "512 KiB", "1 MiB"
            ]
        );
    }

    #[test]
    fn a_decimal_axis_labels_decades_and_in_few_decades_two_and_five_too() {
        assert_eq!(labels(Scale::Log10, Ticks::Numbers, &[3.0, 40.0]), ["2", "5", "10", "20", "50"]);
        assert_eq!(
            labels(Scale::Log10, Ticks::Numbers, &[1.0, 1e5]),
            ["1", "10", "100", "1k", "10k", "100k"]
        );
    }

    proptest! {
        #[test]
        fn every_value_stands_inside_its_range_and_ticks_are_few_and_ascend(
            values in prop::collection::vec(1e-6_f64..1e12, 0..20),
            scale in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
            start in prop::sample::select(vec![RangeStart::Zero, RangeStart::Values]),
        ) {
            let range = Range::around(scale, start, values.iter().copied());
            for value in &values {
                let place = range.position(*value);
                prop_assert!((-1e-9..=1.0 + 1e-9).contains(&place), "{value} at {place} of {range:?}");
            }
            let ticks = range.ticks(&Axis::new("", scale));
            prop_assert!(ticks.windows(2).all(|pair| pair[0].value < pair[1].value));
            prop_assert!(ticks.iter().all(|tick| (-1e-6..=1.0 + 1e-6).contains(&range.position(tick.value))));
            let labelled = ticks.iter().filter(|tick| tick.label.is_some()).count();
            prop_assert!((1..=TICKS_MAX + 1).contains(&labelled), "{labelled} labels on {range:?}");
        }
    }
}
