//! Guesses the units of a CSV file where neither format nor user states them.
//!
//! The unit of times is the first that one of these rules gives:
//! - the option;
//! - the column's name (`ts_us`, `time(ms)`, `seconds`);
//! - seconds, if times have digits behind a point;
//! - the unit in which all times are dates between 1990 and 2100;
//! - the unit in which IOs are about a millisecond apart.
//!
//! The unit of offsets follows from the option, then from the column's name, then from whether all
//! offsets are multiples of 512.

use super::columns::{Layout, Role};
use crate::{OffsetUnit, ReadOptions, TimeUnit, decimal::Decimal};

/// The numbers of a file's first rows.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) times: Vec<Decimal>,
    pub(super) offsets: Vec<u64>,
    pub(super) lengths: Vec<u64>,
}

/// Seconds from 1970 to 1990, and to 2100.
const DATES_S: std::ops::Range<u128> = 631_152_000..4_102_444_800;
/// Seconds from 1601 to 1970.
const FILETIME_EPOCH_S: u128 = 11_644_473_600;

/// The unit of times, and how it was determined.
pub(super) fn time_unit(sample: &Sample, layout: &Layout, options: &ReadOptions) -> (TimeUnit, String) {
    if let Some(unit) = options.time_unit {
        return (unit, "as requested".to_owned());
    }
    let name = layout.names.get(&Role::Time).map_or("", String::as_str);
    if let Some(unit) = unit_of_name(name) {
        return (unit, format!("the column is called {name:?}"));
    }
    if sample.times.iter().any(|time| time.has_fraction()) {
        return (TimeUnit::Seconds, "the times have digits behind a point".to_owned());
    }
    if let Some(unit) = unit_of_dates(&sample.times) {
        return (unit, "the times are dates between 1990 and 2100 in no other unit".to_owned());
    }
    unit_of_gaps(&sample.times)
}

fn unit_of_name(name: &str) -> Option<TimeUnit> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.rev().find_map(|word| {
        Some(match word {
            "ns" | "nsec" | "nanos" | "nanosec" | "nanoseconds" => TimeUnit::Nanoseconds,
            "us" | "usec" | "micros" | "microsec" | "microseconds" => TimeUnit::Microseconds,
            "ms" | "msec" | "millis" | "millisec" | "milliseconds" => TimeUnit::Milliseconds,
            "s" | "sec" | "secs" | "seconds" => TimeUnit::Seconds,
            "filetime" => TimeUnit::Filetime,
            _ => return None,
        })
    })
}

/// The unit in which all times are dates between 1990 and 2100, if there is one.
fn unit_of_dates(times: &[Decimal]) -> Option<TimeUnit> {
    let is_date = |time: &Decimal, unit: TimeUnit| {
        let seconds = unit.to_nanoseconds(*time) / 1_000_000_000;
        let epoch = if unit == TimeUnit::Filetime { FILETIME_EPOCH_S } else { 0 };
        seconds.checked_sub(epoch).is_some_and(|seconds| DATES_S.contains(&seconds))
    };
    let all_dates = |unit: &TimeUnit| !times.is_empty() && times.iter().all(|time| is_date(time, *unit));
    TimeUnit::ALL.into_iter().find(all_dates)
}

/// The unit in which the mean gap between IOs is closest to a millisecond, measured by ratio.
#[expect(clippy::cast_precision_loss, reason = "a guess: 53 bits are plenty")]
fn unit_of_gaps(times: &[Decimal]) -> (TimeUnit, String) {
    let steps = times.iter().map(|time| time.scaled(1));
    let span = steps.clone().max().zip(steps.min()).map_or(0, |(latest, first)| latest - first);
    if span == 0 {
        let why = "the first rows all have the same time: say the unit if that is wrong".to_owned();
        return (TimeUnit::Seconds, why);
    }
    let gap_steps = span as f64 / (times.len() - 1) as f64;
    let distance = |unit: &TimeUnit| (gap_steps * unit.nanoseconds() as f64 / 1e6).log10().abs();
    let units = [TimeUnit::Nanoseconds, TimeUnit::Microseconds, TimeUnit::Milliseconds, TimeUnit::Seconds]
        .into_iter();
    let unit = units.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(TimeUnit::Microseconds);
    let why = format!(
        "a guess: the first rows are {gap_steps:.1} apart, which is nearest to a millisecond in {unit}; say the unit if \
         that is wrong"
    );
    (unit, why)
}

/// The units of offsets and of lengths, and how they were determined.
pub(super) fn offset_units(
    sample: &Sample,
    layout: &Layout,
    options: &ReadOptions,
) -> (OffsetUnit, OffsetUnit, String) {
    use OffsetUnit::{Bytes, Sectors};
    if let Some(unit) = options.offset_unit {
        return (unit, unit, "as requested".to_owned());
    }
    let whole = |numbers: &[u64]| numbers.iter().all(|number| number % Sectors.bytes() == 0);
    let small = |numbers: &[u64]| numbers.iter().all(|number| *number <= SECTORS_USUAL_MAX);
    let name = |role| layout.names.get(&role).map_or("", String::as_str);
    let length = match unit_of_offset_name(name(Role::Length)) {
        Some(unit) => unit,
        None if whole(&sample.lengths) || !small(&sample.lengths) => Bytes,
        None => Sectors,
    };
    let named = unit_of_offset_name(name(Role::Offset));
    let (offset, why) = match named {
        Some(unit) => (unit, format!("the column is called {:?}", name(Role::Offset))),
        None if whole(&sample.offsets) => (Bytes, "all offsets are multiples of 512".to_owned()),
        None if whole(&sample.lengths) || length == Sectors => {
            (Sectors, "offsets are no multiples of 512, and lengths are those of sectors".to_owned())
        }
        None => (Bytes, "neither offsets nor lengths are multiples of 512".to_owned()),
    };
    // If offsets are bytes, short lengths are bytes as well: programs request such lengths.
    let length = if length == Sectors && offset == Bytes && named.is_none() { Bytes } else { length };
    (offset, length, why)
}

/// Lengths beyond this many sectors (1 MiB) are rare in traces.
const SECTORS_USUAL_MAX: u64 = 2048;

fn unit_of_offset_name(name: &str) -> Option<OffsetUnit> {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["byte"]) {
        Some(OffsetUnit::Bytes)
    } else if has(&["lba", "sector", "block", "blk"]) {
        Some(OffsetUnit::Sectors)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn layout(header: &str) -> Layout {
        Layout::generic(Path::new("t.csv"), header, None).unwrap()
    }

    fn times(texts: &[&str]) -> Sample {
        Sample {
            times: texts.iter().map(|text| Decimal::parse(text).unwrap()).collect(),
            ..Sample::default()
        }
    }

    #[test]
    fn units_of_times_are_told_by_name_then_by_value() {
        const HEADER: &str = "ts,offset,length,op";
        let cases: [(&str, &[&str], TimeUnit); 11] = [
            ("ts_ns,offset,length,op", &["0"], TimeUnit::Nanoseconds),
            ("time(ms),offset,length,op", &["0"], TimeUnit::Milliseconds),
            ("ts sec,offset,length,op", &["0"], TimeUnit::Seconds),
            (HEADER, &["0.000", "12.5"], TimeUnit::Seconds),
            (HEADER, &["1700000000", "1700000001"], TimeUnit::Seconds),
            (HEADER, &["1700000000000"], TimeUnit::Milliseconds),
            (HEADER, &["1700000000000000"], TimeUnit::Microseconds),
            (HEADER, &["1700000000000000000"], TimeUnit::Nanoseconds),
            (HEADER, &["128166372003061629"], TimeUnit::Filetime),
            (HEADER, &["0", "800", "2100"], TimeUnit::Microseconds),
            (HEADER, &["0", "800000", "2100000"], TimeUnit::Nanoseconds),
        ];
        for (header, values, unit) in cases {
            let (found, why) = time_unit(&times(values), &layout(header), &ReadOptions::default());
            assert_eq!(found, unit, "{header} {values:?}: {why}");
            let asked = ReadOptions { time_unit: Some(TimeUnit::Filetime), ..ReadOptions::default() };
            assert_eq!(time_unit(&times(values), &layout(header), &asked).0, TimeUnit::Filetime);
        }
    }

    #[test]
    fn units_of_offsets_are_told_by_name_then_by_value() {
        use OffsetUnit::{Bytes, Sectors};
        let cases: [(&str, &[u64], &[u64], _); 7] = [
            ("ts,offset,length,op", &[0, 4096], &[4096, 512], (Bytes, Bytes)),
            ("ts,offset,length,op", &[8, 17], &[8, 256], (Sectors, Sectors)),
            ("ts,offset,length,op", &[8, 17], &[4096, 8192], (Sectors, Bytes)),
            ("ts,offset,length,op", &[8, 17], &[100_000, 37], (Bytes, Bytes)),
            ("ts,lba,nsectors,op", &[512, 1024], &[512, 1024], (Sectors, Sectors)),
            ("ts,lba,bytes,op,len_bytes", &[512, 1024], &[512, 1024], (Sectors, Bytes)),
            ("ts,offset_bytes,length_bytes,op", &[1, 3], &[8, 8], (Bytes, Bytes)),
        ];
        for (header, offsets, lengths, expected) in cases {
            let sample = Sample { offsets: offsets.to_vec(), lengths: lengths.to_vec(), ..Sample::default() };
            let (offset, length, why) = offset_units(&sample, &layout(header), &ReadOptions::default());
            assert_eq!((offset, length), expected, "{header} {offsets:?} {lengths:?}: {why}");
        }
    }
}
