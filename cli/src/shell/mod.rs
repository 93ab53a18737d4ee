//! The shell's prompt and the parsing of its input.

mod prompt;
mod statement;

pub(crate) use prompt::Prompt;
pub(crate) use statement::{Typed, is_complete, parse};
