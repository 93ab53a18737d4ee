//! Collects the defects (entries of a file that are not records) that are found while a trace is
//! read.

use std::fmt;

use crate::{Defect, limits::DEFECTS_KEPT_MAX};

/// The entries that were refused: all of them are counted, the first few are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defects {
    count: u64,
    first: Vec<Defect>,
}

impl Defects {
    /// The number of all defects.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first few defects, in the order of the file.
    #[must_use]
    pub fn first(&self) -> &[Defect] {
        &self.first
    }

    pub(crate) fn note(&mut self, defect: Defect) {
        self.count += 1;
        if self.first.len() < DEFECTS_KEPT_MAX {
            self.first.push(defect);
        }
    }
}

impl fmt::Display for Defects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for defect in &self.first {
            writeln!(f, "{defect}")?;
        }
        let more = self.count - self.first.len() as u64;
        match more {
            0 => write!(f, "{} refused", self.count),
            _ => write!(f, "{} refused, {more} of them not shown", self.count),
        }
    }
}
