//! Lists the formats of traces, with their names in options and in messages.

use std::fmt;

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our CSV.
    Csv,
    /// fio's iolog, version 2 or 3.
    Fio,
    /// The default output of blkparse.
    Blkparse,
    /// The binary files of blktrace, one per processor.
    Blktrace,
    /// The CSV of the block traces of Microsoft Research Cambridge.
    Msr,
    /// The CSV of the Storage Performance Council, in which the UMass traces are.
    Spc,
    /// Any CSV with named columns.
    Generic,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Csv, Self::Fio, Self::Blkparse, Self::Blktrace, Self::Msr, Self::Spc, Self::Generic];

    /// Their names, for messages.
    pub const NAMES: &'static str = "csv, fio, blkparse, blktrace, msr, spc, generic";

    /// Its name in options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Fio => "fio",
            Self::Blkparse => "blkparse",
            Self::Blktrace => "blktrace",
            Self::Msr => "msr",
            Self::Spc => "spc",
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
            Self::Spc => "an SPC (UMass) CSV",
            Self::Generic => "a CSV with named columns",
        })
    }
}

/// A format that can be written.
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
