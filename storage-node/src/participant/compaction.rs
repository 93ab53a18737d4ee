//! Replaces the log by a shorter one that recovers to the same state, while the participant
//! continues to serve.
//!
//! ```text
//! 1. copy the state of the store to a new file beside the log, in pieces between batches of the log
//! 2. append to the new file the records that the log has gained meanwhile
//! 3. stop adding to the log, and wait until all of it is durable
//! 4. append the last records to the new file, sync it, and rename it to the log
//! ```
//!
//! Invariants
//! - The log does not change until the new file is durable and was renamed. If a step fails before
//!   that, the old log stays as it is.
//! - Recovery from the new file yields the same store as recovery from the old log.

use std::io;

use rackscan_ramp::{
    limits::LOG_HEADER_BYTES,
    log::{LogWriter, Record, Tail, snapshot_records},
    store::Snapshot,
};

use super::{
    log_file::{LogFile, LogFolder},
    reader::LogReader,
};
use crate::limits::LOG_STEP_BYTES;

/// A new log that is being written.
pub(super) struct Compaction<F> {
    file: F,
    number: u32,
    log: LogWriter,
    records: std::vec::IntoIter<Record>,
    /// The position up to which the old log is in the new one.
    followed: Tail,
    ready: bool,
}

impl<F: LogFile> Compaction<F> {
    /// Begins a new log with a snapshot of the store at the old log's position `tail`. `salt` is
    /// the new log's number.
    pub(super) fn begin(
        folder: &impl LogFolder<File = F>,
        snapshot: Snapshot,
        tail: Tail,
        salt: u32,
    ) -> io::Result<Self> {
        let mut file = folder.create()?;
        let (header, start): ([u8; LOG_HEADER_BYTES], Tail) = Tail::header(tail.sequence, salt);
        file.write_at(&header, 0)?;
        let records = snapshot_records(snapshot).into_iter();
        Ok(Self { file, number: salt, log: LogWriter::after(start), records, followed: tail, ready: false })
    }

    /// The new log's number.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The end of what is written.
    pub(super) fn tail(&self) -> Tail {
        self.log.tail()
    }

    /// Whether it has all that the old log had at the last step.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Writes the next piece. `end_bytes` is the end of the old log.
    pub(super) fn step(&mut self, old: &F, end_bytes: u64) -> io::Result<()> {
        while self.log.waiting_bytes() < LOG_STEP_BYTES {
            let Some(record) = self.records.next() else {
                self.follow(old, end_bytes)?;
                self.file.sync()?;
                self.ready = true;
                return Ok(());
            };
            self.log.append(&record);
        }
        self.flush()
    }

    /// Appends the remainder of the old log, to which nothing is added any more, and makes the new
    /// log durable.
    pub(super) fn complete(mut self, old: &F, end_bytes: u64) -> io::Result<(F, LogWriter)> {
        self.follow(old, end_bytes)?;
        self.file.sync()?;
        Ok((self.file, self.log))
    }

    fn follow(&mut self, old: &F, end_bytes: u64) -> io::Result<()> {
        let mut reader = LogReader::new(old, self.followed, end_bytes);
        for record in reader.by_ref() {
            self.log.append(&record);
            if self.log.waiting_bytes() >= LOG_STEP_BYTES
                && let Some(batch) = self.log.take_batch()
            {
                self.file.write_at(&batch.bytes, batch.offset_bytes)?;
            }
        }
        let (tail, cut) = reader.finish()?;
        if let Some(cut) = cut {
            return Err(io::Error::new(io::ErrorKind::InvalidData, cut));
        }
        self.followed = tail;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.log.take_batch().map_or(Ok(()), |batch| self.file.write_at(&batch.bytes, batch.offset_bytes))
    }
}
