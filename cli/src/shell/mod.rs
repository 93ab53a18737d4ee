//! Contains the shell's prompt, and the parser of its input: SQL, and backslash commands as typed.
//! What these commands do is in `command/shell.rs`.

mod prompt;
mod statement;

pub(crate) use prompt::Prompt;
pub(crate) use statement::{Typed, is_complete, parse};
