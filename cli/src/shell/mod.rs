//! Contains the shell's prompt and the parser of its input.

mod prompt;
mod statement;

pub(crate) use prompt::Prompt;
pub(crate) use statement::{Typed, is_complete, parse};
