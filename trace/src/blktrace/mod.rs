//! What do the events of Linux's block layer mean, as blktrace stores and as blkparse prints them?
//!
//! One IO is many events: it is queued (Q), issued to the driver (D), completed (C), and more. A
//! record is made of one of them: of Q, which is when a program asked, where the trace's beginning
//! has any; else of D.

mod binary;
mod event;
mod files;
mod merge;
mod text;

pub(crate) use binary::is_blktrace;
pub(crate) use files::files_of;
pub(crate) use merge::BlktraceSource;
pub(crate) use text::{BlkparseParser, is_blkparse};
