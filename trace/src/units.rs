//! Defines the units of times, offsets and lengths in traces.

use std::{fmt, str::FromStr};

use crate::{TraceError, decimal::Decimal};

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// A nanosecond.
    Nanoseconds,
    /// 100 nanoseconds, as Windows counts since 1601.
    Filetime,
    /// A microsecond.
    Microseconds,
    /// A millisecond.
    Milliseconds,
    /// A second.
    Seconds,
}

impl TimeUnit {
    /// All of them, the finest first.
    pub const ALL: [Self; 5] =
        [Self::Nanoseconds, Self::Filetime, Self::Microseconds, Self::Milliseconds, Self::Seconds];

    /// Nanoseconds in one.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Filetime => 100,
            Self::Microseconds => 1000,
            Self::Milliseconds => 1_000_000,
            Self::Seconds => 1_000_000_000,
        }
    }

    /// Its name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Filetime => "filetime",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    /// A time of this unit in whole nanoseconds, rounded down.
    pub(crate) fn to_nanoseconds(self, time: Decimal) -> u128 {
        time.scaled(self.nanoseconds())
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nanoseconds => "nanoseconds",
            Self::Filetime => "100 nanoseconds (FILETIME)",
            Self::Microseconds => "microseconds",
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
        })
    }
}

impl FromStr for TimeUnit {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|unit| unit.name() == name).ok_or_else(|| TraceError::Option {
            what: "the unit of times",
            found: name.to_owned(),
            expected: format!("one of {}", Self::ALL.map(Self::name).join(", ")),
        })
    }
}

/// The unit of an offset or a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OffsetUnit {
    /// A byte.
    Bytes,
    /// 512 bytes.
    Sectors,
}

impl OffsetUnit {
    /// Bytes in one.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bytes => 1,
            Self::Sectors => 512,
        }
    }

    /// Its name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Sectors => "sectors",
        }
    }
}

impl fmt::Display for OffsetUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Sectors => "sectors of 512 bytes",
        })
    }
}

impl FromStr for OffsetUnit {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Bytes, Self::Sectors].into_iter().find(|unit| unit.name() == name).ok_or_else(|| {
            TraceError::Option {
                what: "the unit of offsets",
                found: name.to_owned(),
                expected: "bytes or sectors".to_owned(),
            }
        })
    }
}

/// The units of a trace, and how they were determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedUnits {
    /// The unit of times.
    pub time: TimeUnit,
    /// How the unit of times was determined.
    pub time_why: String,
    /// The unit of offsets.
    pub offset: OffsetUnit,
    /// The unit of lengths.
    pub length: OffsetUnit,
    /// How the units of offsets and lengths were determined.
    pub offset_why: String,
    /// Further notes for the user: which events count as IOs, what is left out.
    pub notes: Vec<String>,
}

impl fmt::Display for DetectedUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, time_why, offset, length, offset_why, notes } = self;
        write!(f, "times in {time} ({time_why}); offsets in {offset}, lengths in {length} ({offset_why})")?;
        notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_their_names() {
        for unit in TimeUnit::ALL {
            assert_eq!(unit.name().parse::<TimeUnit>().unwrap(), unit);
        }
        for unit in [OffsetUnit::Bytes, OffsetUnit::Sectors] {
            assert_eq!(unit.name().parse::<OffsetUnit>().unwrap(), unit);
        }
        assert!("minutes".parse::<TimeUnit>().unwrap_err().to_string().contains("ns, filetime, us, ms, s"));
    }

    #[test]
    fn a_time_becomes_nanoseconds_without_floating_point() {
        let nanoseconds = |unit: TimeUnit, text: &str| unit.to_nanoseconds(Decimal::parse(text).unwrap());
        assert_eq!(nanoseconds(TimeUnit::Seconds, "1234567890.123456789"), 1_234_567_890_123_456_789);
        assert_eq!(nanoseconds(TimeUnit::Microseconds, "1.5"), 1500);
        assert_eq!(nanoseconds(TimeUnit::Filetime, "128166372003061629"), 12_816_637_200_306_162_900);
    }
}
