//! Describes options of a command that have no effect beside others.

use clap::{ArgMatches, parser::ValueSource};

/// The options that were given as words of the command line.
#[derive(Clone, Copy)]
pub(super) struct Given<'m>(&'m ArgMatches);

impl<'m> Given<'m> {
    /// Those of a command.
    pub(super) fn new(matches: &'m ArgMatches) -> Self {
        Self(matches)
    }

    /// Whether the option with this identifier (`io_threads`) was given.
    pub(super) fn is(self, option: &str) -> bool {
        self.0.value_source(option) == Some(ValueSource::CommandLine)
    }
}

/// An option that has no effect beside the others.
pub(super) struct Unused {
    /// Its identifier.
    pub(super) option: &'static str,
    /// Whether it has no effect.
    pub(super) is_unused: bool,
    /// Why.
    pub(super) why: &'static str,
}
