//! Defines a violation: a broken rule, as it is reported to a person.

use std::fmt;

/// A broken rule: where, and what was found and expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path from the root of the tree, or a package's name.
    pub place: String,
    /// The line, counted from 1, if a single line breaks the rule.
    pub line: Option<usize>,
    /// What was found, what was expected, what to do.
    pub what: String,
}

impl Violation {
    /// A violation of a whole file or package.
    pub fn of(place: &str, what: impl Into<String>) -> Self {
        Self { place: place.to_owned(), line: None, what: what.into() }
    }

    /// A violation in one line, counted from 1.
    pub fn at(place: &str, line: usize, what: impl Into<String>) -> Self {
        Self { place: place.to_owned(), line: Some(line), what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}: {}", self.place, self.what),
            None => write!(out, "{}: {}", self.place, self.what),
        }
    }
}
