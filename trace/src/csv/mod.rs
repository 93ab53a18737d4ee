//! Reads and writes CSV: our own format, the MSR Cambridge traces, those of the Storage Performance
//! Council (UMass), and any CSV with named columns.
//!
//! One parser reads all of them. They differ in the positions of the columns ([`columns`]), in the
//! units of the numbers ([`guess`]), and in the time that counts as 0.

mod columns;
mod guess;
mod node_device;
mod read;
mod split;
mod write;

pub use columns::ColumnNames;

pub(crate) use columns::{is_generic, is_msr, is_ours, is_spc};
pub(crate) use read::{generic, msr, ours, spc};
pub(crate) use write::{HEADER, append};
