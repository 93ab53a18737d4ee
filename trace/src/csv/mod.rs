//! Reads and writes CSV: our own format, the MSR Cambridge traces, and any CSV with named columns.
//!
//! One parser reads all three. They differ in the positions of the columns ([`columns`]), in the
//! units of the numbers ([`guess`]), and in the time that counts as 0.

mod columns;
mod guess;
mod node_device;
mod read;
mod split;
mod write;

pub use columns::ColumnNames;

pub(crate) use columns::{is_generic, is_msr, is_ours};
pub(crate) use read::{generic, msr, ours};
pub(crate) use write::{HEADER, append};
