//! Writes records as lines of an iolog of version 3.
//!
//! Invariants
//! - Every file has `add` and `open` lines before its first IO and a `close` line at the end.

use std::{collections::BTreeMap, io::Write, time::Duration};

use super::{VERSION_3, file_name};
use crate::{Operation, Record};

/// The writer of an iolog: the files so far, and the latest time.
#[derive(Debug, Default)]
pub(crate) struct Iolog {
    names: BTreeMap<(u16, u16), String>,
    latest: Duration,
}

impl Iolog {
    /// Appends the first line of an iolog.
    pub(crate) fn begin(lines: &mut Vec<u8>) {
        lines.extend_from_slice(VERSION_3.as_bytes());
        lines.push(b'\n');
    }

    /// Appends the record's lines.
    ///
    /// # Errors
    /// When the length is too large for fio.
    pub(crate) fn append(&mut self, record: &Record, lines: &mut Vec<u8>) -> Result<(), String> {
        let Record { at, node, device, offset_bytes, length_bytes, operation, .. } = record;
        if *length_bytes > u64::from(u32::MAX) {
            return Err(format!(
                "a {operation} of {length_bytes} bytes, expected at most {}, which is what fio reads: write our CSV instead",
                u32::MAX
            ));
        }
        self.latest = self.latest.max(*at);
        let time = at.as_micros();
        let name = self.names.entry((*node, *device)).or_insert_with(|| {
            let name = file_name(*node, *device);
            // Writing to memory cannot fail.
            let _ = write!(lines, "{time} {name} add\n{time} {name} open\n");
            name
        });
        let action = match operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "sync",
            Operation::Discard => "trim",
        };
        let _ = writeln!(lines, "{time} {name} {action} {offset_bytes} {length_bytes}");
        Ok(())
    }

    /// Appends the last lines of the iolog.
    pub(crate) fn end(&self, lines: &mut Vec<u8>) {
        for name in self.names.values() {
            let _ = writeln!(lines, "{} {name} close", self.latest.as_micros());
        }
    }
}
