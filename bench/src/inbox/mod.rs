//! Measures an inbox next to a private ring for each sender: the cost of receiving, and the memory
//! that it saves.
//!
//! The questions are those of the paper's chapters 5.2 (latency and bandwidth of IPUSH next to
//! PUSH) and 3.2 (receive memory).
//!
//! Invariants
//! - Both ways of receiving are measured in alternating turns of one run; all runs are kept, the
//!   best counts, ratios are of the best.
//! - Memory is what the inboxes that carried the messages report, not what a formula says.

mod patterns;
mod side_by_side;

pub use patterns::{PATTERNS, Pattern, PatternLine, patterns};
pub use side_by_side::{InboxLine, InboxOptions, SIZES, side_by_side};
