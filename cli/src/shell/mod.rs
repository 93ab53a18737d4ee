//! What is typed at the prompt.

mod prompt;
mod statement;

pub(crate) use prompt::Prompt;
pub(crate) use statement::{Typed, is_complete, parse};
