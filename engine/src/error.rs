//! Defines the errors of statements, with the cause and what the user can do.

mod causes;
mod engine_error;
mod kinds;
mod near_names;
mod wording;

pub(crate) use causes::{inner_error, is_folder_full};
pub use engine_error::EngineError;
pub(crate) use near_names::near_names;
pub(crate) use wording::in_words_of_users;
