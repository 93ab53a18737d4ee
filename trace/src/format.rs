//! Which formats are there?

use std::{fmt, str::FromStr};

use crate::TraceError;

/// A format that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our CSV.
    Csv,
    /// fio's iolog, version 2 or 3.
    Fio,
    /// What blkparse prints when nothing else is asked for.
    Blkparse,
    /// The files of blktrace, one per processor.
    Blktrace,
    /// The CSV of the block traces of Microsoft Research Cambridge.
    Msr,
    /// Any CSV with named columns.
    Generic,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Csv, Self::Fio, Self::Blkparse, Self::Blktrace, Self::Msr, Self::Generic];

    /// Their names, for messages.
    pub const NAMES: &'static str = "csv, fio, blkparse, blktrace, msr, generic";

    /// As options name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Fio => "fio",
            Self::Blkparse => "blkparse",
            Self::Blktrace => "blktrace",
            Self::Msr => "msr",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csv => "rackscan's CSV",
            Self::Fio => "an iolog of fio",
            Self::Blkparse => "blkparse's text",
            Self::Blktrace => "blktrace's binary",
            Self::Msr => "an MSR Cambridge CSV",
            Self::Generic => "a CSV with named columns",
        })
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let format = Self::ALL.into_iter().find(|format| format.name() == name);
        format.ok_or_else(|| TraceError::Option {
            what: "the trace format",
            found: name.to_owned(),
            expected: format!("one of {}", Self::NAMES),
        })
    }
}

/// A format that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WriteFormat {
    /// Our CSV, which loses nothing.
    #[default]
    Csv,
    /// fio's iolog, version 3: microseconds, neither tables nor columns.
    Fio,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in Format::ALL {
            assert_eq!(format.name().parse::<Format>().unwrap(), format);
        }
        assert_eq!(Format::ALL.map(Format::name).join(", "), Format::NAMES);
        assert!("tar".parse::<Format>().unwrap_err().to_string().contains("blktrace"));
    }
}
