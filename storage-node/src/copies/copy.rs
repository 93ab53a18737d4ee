//! Stores one replica of another node's log, in a file to which records are appended.
//!
//! In this folder, a copy is a log replica, and its origin is the node that owns the log.
//!
//! Invariants
//! - The copy ends with its last record that continues the one before. Bytes after that on the disk
//!   do not count, and are overwritten.
//! - A full disk leaves the copy unchanged.
//! - Disk space is reserved beyond the copy's end, and its amount is reported to the origin.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use az::SaturatingAs;
use rustix::fs::{FallocateFlags, fallocate};

use rackscan_ramp::{
    limits::LOG_HEADER_BYTES,
    log::{Damage, Follower, Tail},
};

use crate::{
    limits::{LOG_AHEAD_BYTES, LOG_CUT_BYTES, LOG_STEP_BYTES},
    participant::{LogFile, is_full, keep_cut},
};

/// A file with a copy.
#[derive(Debug)]
pub(super) struct Copy {
    file: File,
    pub(super) number: u32,
    follower: Follower,
    /// The end of the disk space that holds only zeroes after what was written; `None` if other
    /// bytes may be there.
    reserved_bytes: Option<u64>,
    /// The end of the disk space that is reserved beyond the file's length.
    ahead_bytes: u64,
    is_dirty: bool,
}

/// Why bytes were not appended.
#[derive(Debug)]
pub(super) enum Fault {
    /// They do not continue the log.
    Foreign(Damage),
    /// There is no space; what was there before is intact.
    Full(io::Error),
    /// The disk failed.
    Broken(&'static str, io::Error),
}

/// What a file contains.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// Its beginning is not that of a log.
    Damaged,
    Copy(Box<Copy>),
}

impl Copy {
    /// Creates an empty copy, replacing any file of that name. The log begins with `header`.
    pub(super) fn create(path: &Path, header: &[u8], number: u32, start: Tail) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        LogFile::write_at(&mut file, header, 0)?;
        Ok(Self {
            file,
            number,
            follower: Follower::after(start),
            reserved_bytes: Some(start.offset_bytes),
            ahead_bytes: 0,
            is_dirty: true,
        })
    }

    /// Opens the copy in a file, up to its last whole record.
    pub(super) fn open(path: &Path) -> io::Result<Found> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let file_bytes = file.metadata()?.len();
        let mut piece = vec![0; LOG_HEADER_BYTES];
        if file_bytes < LOG_HEADER_BYTES as u64 {
            return Ok(Found::Damaged);
        }
        file.read_at(&mut piece, 0)?;
        let (Ok(start), Some(number)) = (Tail::from_header(&piece), Tail::salt(&piece)) else {
            return Ok(Found::Damaged);
        };
        let follower = followed(&file, start, file_bytes)?;
        // Bytes of an incomplete record are written again.
        let follower = Follower::after(follower.tail());
        Ok(Found::Copy(Box::new(Self {
            file,
            number,
            follower,
            reserved_bytes: None,
            ahead_bytes: 0,
            is_dirty: false,
        })))
    }

    /// The end of the last whole record.
    pub(super) fn tail(&self) -> Tail {
        self.follower.tail()
    }

    /// The end of the last byte.
    pub(super) fn through_bytes(&self) -> u64 {
        self.follower.through_bytes()
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut follower = self.follower;
        follower.take(bytes).map_err(Fault::Foreign)?;
        let (from, end) = (self.through_bytes(), follower.through_bytes());
        let written = self.reserve(end).and_then(|()| LogFile::write_at(&mut self.file, bytes, from));
        match written {
            Ok(()) => {
                (self.follower, self.is_dirty) = (follower, true);
                Ok(())
            }
            Err(error) if is_full(&error) => {
                self.cut_file(from).map_err(|error| Fault::Broken("cutting it", error))?;
                Err(Fault::Full(error))
            }
            Err(error) => Err(Fault::Broken("a write", error)),
        }
    }

    fn reserve(&mut self, end_bytes: u64) -> io::Result<()> {
        self.clear_behind()?;
        if self.reserved_bytes.is_some_and(|reserved| end_bytes <= reserved) {
            return Ok(());
        }
        let step = end_bytes.next_multiple_of(LOG_STEP_BYTES as u64);
        let reserved = match self.file.reserve(step) {
            Err(error) if is_full(&error) => self.file.reserve(end_bytes).map(|()| end_bytes),
            outcome => outcome.map(|()| step),
        }?;
        self.reserved_bytes = Some(reserved);
        Ok(())
    }

    /// Makes sure that only zeroes follow the copy. Keeps the disk space that its origin counts on.
    fn clear_behind(&mut self) -> io::Result<()> {
        if self.reserved_bytes.is_some() {
            return Ok(());
        }
        let (end, file_bytes) = (self.through_bytes(), self.file.metadata()?.len());
        if file_bytes > end {
            let zeroes = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            if fallocate(&self.file, zeroes, end, file_bytes - end).is_err() {
                return self.cut_file(end);
            }
        }
        self.reserved_bytes = Some(file_bytes.max(end));
        Ok(())
    }

    fn cut_file(&mut self, end_bytes: u64) -> io::Result<()> {
        self.file.cut(end_bytes)?;
        (self.reserved_bytes, self.ahead_bytes) = (Some(end_bytes), 0);
        Ok(())
    }

    /// Reserves disk space ahead if less than half of it is left, and returns its end. What the
    /// origin accepts into its log fits there, so a disk that becomes full leaves nothing in doubt.
    pub(super) fn reserve_ahead(&mut self) -> io::Result<u64> {
        let through = self.through_bytes();
        let (half, all) = (through + LOG_AHEAD_BYTES / 2, through + LOG_AHEAD_BYTES);
        if half <= self.ahead_bytes {
            return Ok(self.ahead_bytes);
        }
        self.clear_behind()?;
        let taken = match self.file.reserve_ahead(all) {
            Err(error) if is_full(&error) => self.file.reserve_ahead(half).map(|()| half),
            outcome => outcome.map(|()| all),
        };
        match taken {
            Ok(taken) => self.ahead_bytes = taken,
            Err(error) if is_full(&error) => {}
            // A failure to reserve shows when the bytes are written.
            Err(_) => self.ahead_bytes = all,
        }
        Ok(self.ahead_bytes)
    }

    /// Forgets an incomplete record at the end: it will be sent again.
    pub(super) fn forget_part(&mut self) {
        self.follower = Follower::after(self.follower.tail());
        self.reserved_bytes = None;
    }

    /// Truncates the copy at a point of its log, and moves the bytes after it to another file,
    /// durably. Returns false if the log has no such point.
    pub(super) fn cut(&mut self, point: Tail, beside: &Path) -> io::Result<bool> {
        let mut header = [0; LOG_HEADER_BYTES];
        self.file.read_at(&mut header, 0)?;
        let Ok(start) = Tail::from_header(&header) else { return Ok(false) };
        if point.offset_bytes > self.tail().offset_bytes || point.offset_bytes < start.offset_bytes {
            return Ok(false);
        }
        if followed(&self.file, start, point.offset_bytes)?.tail() != point {
            return Ok(false);
        }
        let bytes = self.through_bytes().saturating_sub(point.offset_bytes);
        keep_cut(beside, &self.file, point.offset_bytes, bytes, LOG_CUT_BYTES)?;
        self.cut_file(point.offset_bytes)?;
        (self.follower, self.is_dirty) = (Follower::after(point), true);
        Ok(true)
    }

    /// Reads at most `most` bytes from `from` on, up to `end_bytes`.
    fn read(&self, from: u64, most: usize, end_bytes: u64) -> io::Result<Vec<u8>> {
        let length = end_bytes.saturating_sub(from).min(most as u64);
        let mut bytes = vec![0; length.saturating_as::<usize>()];
        self.file.read_at(&mut bytes, from)?;
        Ok(bytes)
    }

    /// Reads at most `most` bytes of whole records from `from` on; the header is included.
    pub(super) fn part(&self, from: u64, most: usize) -> io::Result<Vec<u8>> {
        self.read(from, most, self.tail().offset_bytes)
    }

    /// Flushes what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_dirty) { LogFile::sync(&mut self.file) } else { Ok(()) }
    }
}

/// How far the first `end_bytes` of a file consist of whole records.
fn followed(file: &File, start: Tail, end_bytes: u64) -> io::Result<Follower> {
    let mut follower = Follower::after(start);
    let mut piece = vec![0; LOG_STEP_BYTES];
    let mut at = start.offset_bytes;
    while at < end_bytes {
        let length = (end_bytes - at).saturating_as::<usize>().min(piece.len());
        file.read_at(&mut piece[..length], at)?;
        if follower.whole(&piece[..length]).is_some() {
            break;
        }
        at += length as u64;
    }
    Ok(follower)
}
