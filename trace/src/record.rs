//! Defines the record of a trace: one IO.
//!
//! Invariants
//! - A record that passed [`Record::verify`] ends within the largest possible device, and only a
//!   flush has a length of 0.

use std::{fmt, sync::Arc, time::Duration};

use crate::limits::{LENGTH_BYTES_MAX, OFFSET_BYTES_MAX, TRACE_SECONDS_MAX};

/// One IO as it was requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The time since the trace began.
    pub at: Duration,
    /// The storage node that has the device; 0 in traces of one machine.
    pub node: u16,
    /// The device: its position in the node's configuration, or in a foreign trace its position in
    /// the order in which devices appear.
    pub device: u16,
    /// The offset on the device.
    pub offset_bytes: u64,
    /// The length; 0 only for a flush.
    pub length_bytes: u64,
    /// The operation.
    pub operation: Operation,
    /// The table of the page, if known.
    pub table: Option<Arc<str>>,
    /// The column of the page, if known.
    pub column: Option<Arc<str>>,
    /// The thread or process that requested the IO, where the format states it.
    pub thread: Option<u32>,
}

/// The operation of an IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Earlier writes become durable.
    Flush,
    /// The device may forget the bytes.
    Discard,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// Its name in our CSV.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }

    /// Parses the name of an operation in any of the formats: `read`, `W`, `trim`, `datasync`,
    /// `RA`, `0` ...
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let is = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
        if is(&["read", "r", "rs", "ra", "ram", "rm", "rd", "0", "pread", "readv"]) {
            Some(Self::Read)
        } else if is(&["write", "w", "ws", "wm", "wfs", "wr", "1", "pwrite", "writev"]) {
            Some(Self::Write)
        } else if is(&["flush", "f", "ff", "sync", "fsync", "datasync", "fdatasync"]) {
            Some(Self::Flush)
        } else if is(&["discard", "d", "ds", "trim", "unmap"]) {
            Some(Self::Discard)
        } else {
            None
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Record {
    /// Checks whether this can be an IO of a device.
    ///
    /// # Errors
    /// The reason, when the length is 0 without the IO being a flush, or when length, end or time
    /// exceed their limits.
    pub fn verify(&self) -> Result<(), String> {
        let Self { at, offset_bytes, length_bytes, operation, .. } = self;
        if at.as_secs() > TRACE_SECONDS_MAX {
            let seconds = at.as_secs();
            return Err(format!(
                "a time of {seconds} s after the trace's beginning, expected at most {TRACE_SECONDS_MAX} s"
            ));
        }
        if *length_bytes == 0 && *operation != Operation::Flush {
            return Err(format!("a {operation} of 0 bytes, expected at least one byte"));
        }
        let transfers = matches!(operation, Operation::Read | Operation::Write);
        if transfers && *length_bytes > LENGTH_BYTES_MAX {
            return Err(format!(
                "a {operation} of {length_bytes} bytes, expected at most {LENGTH_BYTES_MAX}"
            ));
        }
        match offset_bytes.checked_add(*length_bytes) {
            Some(end) if end <= OFFSET_BYTES_MAX => Ok(()),
            _ => Err(format!(
                "a {operation} of {length_bytes} bytes at {offset_bytes}, expected an end of at most {OFFSET_BYTES_MAX}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(operation: Operation, offset_bytes: u64, length_bytes: u64) -> Record {
        Record {
            at: Duration::ZERO,
            node: 0,
            device: 0,
            offset_bytes,
            length_bytes,
            operation,
            table: None,
            column: None,
            thread: None,
        }
    }

    #[test]
    fn only_a_flush_may_be_empty() {
        assert!(record(Operation::Read, 0, 0).verify().unwrap_err().contains("read of 0 bytes"));
        assert!(record(Operation::Discard, 0, 0).verify().is_err());
        assert_eq!(record(Operation::Flush, 0, 0).verify(), Ok(()));
    }

    #[test]
    fn lengths_and_ends_have_limits() {
        assert_eq!(record(Operation::Write, 0, LENGTH_BYTES_MAX).verify(), Ok(()));
        assert!(record(Operation::Write, 0, LENGTH_BYTES_MAX + 1).verify().is_err());
        assert_eq!(record(Operation::Discard, 0, 1 << 40).verify(), Ok(()));
        assert_eq!(record(Operation::Read, OFFSET_BYTES_MAX - 512, 512).verify(), Ok(()));
        assert!(record(Operation::Read, OFFSET_BYTES_MAX - 511, 512).verify().is_err());
        assert!(record(Operation::Read, u64::MAX, 512).verify().is_err());
    }

    #[test]
    fn every_operation_is_read_as_it_is_written() {
        for operation in Operation::ALL {
            assert_eq!(Operation::parse(operation.name()), Some(operation));
        }
        assert_eq!(Operation::parse("WS"), Some(Operation::Write));
        assert_eq!(Operation::parse("N"), None);
    }
}
