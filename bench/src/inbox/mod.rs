//! Measures an inbox (receive memory that many senders share) next to a private ring for each
//! sender: the cost of receiving, and the memory that the inbox saves.
//!
//! The measurements repeat those of the paper's chapters 5.2 (latency and bandwidth of IPUSH next
//! to PUSH) and 3.2 (receive memory).
//!
//! Invariants
//! - Both ways of receiving are measured in alternating turns of one run. A line contains all
//!   turns; the best turn of each way counts, and ratios compare these.
//! - The figures of memory are what the measured inboxes report, not what a formula says.

mod patterns;
mod side_by_side;

pub use patterns::{PATTERNS, Pattern, PatternLine, patterns};
pub use side_by_side::{InboxLine, InboxOptions, SIZES, side_by_side};
