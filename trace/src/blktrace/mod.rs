//! Reads events of Linux's block layer, as blktrace stores them and as blkparse prints them.
//!
//! One IO has many events: it is queued (Q), issued to the driver (D), completed (C), and more.
//! Exactly one of them becomes a record: Q, the time at which a program requested the IO, if the
//! trace's beginning has any Q event; otherwise D.

mod binary;
mod event;
mod files;
mod merge;
mod text;

pub(crate) use binary::is_blktrace;
pub(crate) use files::files_of;
pub(crate) use merge::BlktraceSource;
pub(crate) use text::{BlkparseParser, is_blkparse};
