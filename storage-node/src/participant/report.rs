//! Defines the reports that the log's thread sends to the participant.

use rackscan_format::message::LogGeneration;
use rackscan_ramp::log::{LogWriter, Tail};

/// A report of the log's thread.
#[derive(Debug)]
pub(crate) enum Report {
    /// All records up to this one are on the disk.
    Logged(u64),
    /// The disk has no space for a batch, or for the space ahead; the thread tries again.
    Full(String),
    /// The disk has space for the log up to this position, whatever else fills it.
    Ahead(u64),
    /// The shorter log with this number is ready for the switch, and ends at this position.
    Shortened(u32, Tail),
    /// The shorter log was given up; the old one stays.
    NotShortened,
    /// The log was replaced by the shorter one with this number, which this writer continues.
    Switched(LogWriter, u32),
    /// The log's generation is on the disk.
    Generation(LogGeneration),
}
