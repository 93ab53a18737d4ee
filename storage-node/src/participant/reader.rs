//! Reads a log that is larger than memory, through a window that advances by whole records.
//!
//! Invariants
//! - The records and the end position are the same that `rackscan_ramp::log::read` returns for the
//!   whole file at once.

use std::io;

use az::SaturatingAs;
use rackscan_ramp::log::{Cut, Damage, Record, Tail, read};

use super::log_file::LogFile;
use crate::limits::LOG_WINDOW_BYTES;

/// Iterates over the records of a log. After the last one, [`LogReader::finish`] says why it ended.
#[derive(Debug)]
pub(super) struct LogReader<'f, F> {
    file: &'f F,
    /// The number of bytes to read of the file.
    end_bytes: u64,
    window_bytes: u64,
    tail: Tail,
    window: Vec<u8>,
    records: std::vec::IntoIter<Record>,
    outcome: Option<io::Result<Option<Cut>>>,
}

impl<'f, F: LogFile> LogReader<'f, F> {
    /// The records from `start` to the end of the first `end_bytes` bytes of a file.
    pub(super) fn new(file: &'f F, start: Tail, end_bytes: u64) -> Self {
        let (window, records) = (Vec::new(), Vec::new().into_iter());
        let window_bytes = LOG_WINDOW_BYTES;
        Self { file, end_bytes, window_bytes, tail: start, window, records, outcome: None }
    }

    /// The end of the log, and the damaged part behind it, if any.
    ///
    /// # Errors
    /// The file could not be read.
    pub(super) fn finish(mut self) -> io::Result<(Tail, Option<Cut>)> {
        while self.outcome.is_none() {
            self.move_on();
        }
        let cut = self.outcome.unwrap_or(Ok(None))?;
        Ok((self.tail, cut))
    }

    /// Reads the next window.
    fn move_on(&mut self) {
        let rest_bytes = self.end_bytes.saturating_sub(self.tail.offset_bytes);
        let length_bytes = rest_bytes.min(self.window_bytes);
        self.window.resize(length_bytes.saturating_as::<usize>(), 0);
        if let Err(error) = self.file.read_at(&mut self.window, self.tail.offset_bytes) {
            self.outcome = Some(Err(error));
            return;
        }
        let (records, tail, cut) = read(self.tail, &self.window);
        let (moved, is_last) = (tail.offset_bytes > self.tail.offset_bytes, length_bytes == rest_bytes);
        self.records = records.into_iter();
        self.tail = tail;
        self.outcome = match cut {
            // The next record, or the run of zeroes, continues behind the window.
            Some(Cut { damage: Damage::Short { .. }, .. }) | None if moved && !is_last => None,
            None if is_last => Some(Ok(None)),
            None => Some(self.behind(length_bytes)),
            Some(cut) if is_last => Some(Ok(Some(cut))),
            Some(cut) => Some(self.whole(cut)),
        };
    }

    /// Decides what a window of zeroes means: the end of the log, unless other bytes follow.
    fn behind(&self, zeroes_bytes: u64) -> io::Result<Option<Cut>> {
        let from = self.tail.offset_bytes + zeroes_bytes;
        if self.last_written(from)? == from {
            return Ok(None);
        }
        // Zeroes are no record. The record reader supplies the name of the damage.
        let no_record = [&[0; rackscan_ramp::limits::RECORD_HEADER_BYTES][..], &[1]].concat();
        read(self.tail, &no_record).2.map(|cut| self.whole(cut)).transpose().map(Option::flatten)
    }

    /// Extends a cut to the last byte of the file that is not zero.
    fn whole(&self, cut: Cut) -> io::Result<Option<Cut>> {
        let bytes = self.last_written(cut.offset_bytes)?.saturating_sub(cut.offset_bytes);
        Ok(Some(Cut { bytes, ..cut }))
    }

    /// The position behind the last byte from `from` on that is not zero; `from` if all are.
    fn last_written(&self, from: u64) -> io::Result<u64> {
        let (mut at, mut last) = (from, from);
        let mut piece = vec![0; 1 << 16];
        while at < self.end_bytes {
            let length = (self.end_bytes - at).min(piece.len() as u64);
            let piece = &mut piece[..length.saturating_as::<usize>()];
            self.file.read_at(piece, at)?;
            if let Some(found) = piece.iter().rposition(|byte| *byte != 0) {
                last = at + found as u64 + 1;
            }
            at += length;
        }
        Ok(last)
    }
}

impl<F: LogFile> Iterator for LogReader<'_, F> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(record);
            }
            if self.outcome.is_some() {
                return None;
            }
            self.move_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::participant::memory_disk::MemoryFile;
    use rackscan_ramp::{
        item::{Key, Metadata, Value},
        log::LogWriter,
        message::{Guard, Part},
        timestamp::{ClientId, Timestamp},
    };

    /// Records of many lengths, among them lengths whose first byte is zero, with zeroes in them.
    fn log() -> (Vec<u8>, usize) {
        let mut writer = LogWriter::after(Tail::START);
        for time in 1..200_u64 {
            let timestamp = Timestamp { time, client: ClientId(0) };
            let value = Value::new(&vec![0; usize::try_from(time * 7 % 400).unwrap()]).unwrap();
            let items = vec![(Key::new(b"key").unwrap(), value)];
            let (guard, metadata) = (Guard::Open, Metadata::Timestamp);
            writer.append(&Record::Put(Part { timestamp, participants: vec![], guard, metadata, items }));
            writer.append(&Record::Commit(timestamp));
        }
        (writer.take_batch().unwrap().bytes, 398)
    }

    fn read_by(bytes: &[u8], window_bytes: u64) -> (Vec<Record>, Tail, Option<Cut>) {
        let file = MemoryFile::of(bytes);
        let mut reader = LogReader::new(&file, Tail::START, bytes.len() as u64);
        reader.window_bytes = window_bytes;
        let records: Vec<Record> = reader.by_ref().collect();
        let (tail, cut) = reader.finish().unwrap();
        (records, tail, cut)
    }

    #[test]
    fn windows_of_any_size_read_what_one_look_reads() {
        let (whole, records) = log();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        let torn = &whole[..whole.len() - 5];
        let zeroes = [&whole[..], &[0; 5000]].concat();
        let late = [&whole[..], &[0; 5000], &[1, 2, 3], &[0; 100]].concat();
        assert_eq!(read(Tail::START, &whole).0.len(), records);
        for bytes in [&whole[..], &damaged, torn, &zeroes, &late, &[]] {
            for window_bytes in [600, 601, 1000, 4096, 1 << 20] {
                assert_eq!(read_by(bytes, window_bytes), read(Tail::START, bytes), "{window_bytes}");
            }
        }
    }
}
