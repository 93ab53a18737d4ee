//! What do the rows of CSV files mean: ours, those of Microsoft Research Cambridge, anybody's?
//!
//! One parser reads all three; they differ in where the columns are ([`columns`]), in what their
//! numbers count ([`guess`]) and in when time begins.

mod columns;
mod guess;
mod read;
mod split;
mod who;
mod write;

pub use columns::ColumnNames;

pub(crate) use columns::{is_generic, is_msr, is_ours};
pub(crate) use read::{generic, msr, ours};
pub(crate) use write::{HEADER, append};
