//! How does one copy of a log grow?
//!
//! Invariants
//! - The copy goes as far as its records follow each other; what lies behind that on the disk
//!   counts for nothing, and is overwritten.
//! - A full disk leaves the copy as it was.
//! - There is disk space ahead of the copy's end, of which its origin is told.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use rustix::fs::{FallocateFlags, fallocate};

use rackscan_ramp::{
    limits::LOG_HEADER_BYTES,
    log::{Damage, Follower, Tail},
};

use crate::{
    home::{LogFile, is_full, keep_cut},
    limits::{LOG_AHEAD_BYTES, LOG_CUT_BYTES, LOG_STEP_BYTES},
};

/// A file with a copy.
#[derive(Debug)]
pub(super) struct Copy {
    file: File,
    pub(super) number: u32,
    follower: Follower,
    /// Up to where there is disk space, with zeroes behind what was written; `None` if something
    /// else may lie there.
    reserved_bytes: Option<u64>,
    /// Up to where there is disk space that the file's length does not show.
    ahead_bytes: u64,
    is_dirty: bool,
}

/// Why bytes were not kept.
#[derive(Debug)]
pub(super) enum Fault {
    /// They do not go on with the log.
    Foreign(Damage),
    /// There is no room; what there was is there.
    Full(io::Error),
    /// The disk failed.
    Broken(&'static str, io::Error),
}

/// What a file is.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// It begins as no log does.
    Damaged,
    Copy(Box<Copy>),
}

impl Copy {
    /// An empty one, over whatever has that name. `header` begins the log.
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

    /// The copy in a file, as far as it is whole.
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
        // What is not a whole record is written anew.
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

    /// Behind the last whole record.
    pub(super) fn tail(&self) -> Tail {
        self.follower.tail()
    }

    /// Behind the last byte.
    pub(super) fn through_bytes(&self) -> u64 {
        self.follower.through_bytes()
    }

    /// Puts bytes behind it.
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

    /// Makes sure that only zeroes lie behind the copy. Disk space that its origin counts on stays.
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

    /// Takes disk space ahead, if less than half of it is left: up to where there is some. What the
    /// log's origin accepts fits there, so a disk that becomes full leaves nothing in doubt.
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
            // What cannot be reserved shows when it is written.
            Err(_) => self.ahead_bytes = all,
        }
        Ok(self.ahead_bytes)
    }

    /// The part of a record that is not whole is forgotten: it comes again.
    pub(super) fn forget_part(&mut self) {
        self.follower = Follower::after(self.follower.tail());
        self.reserved_bytes = None;
    }

    /// Ends the copy at a point, if there is one, and puts what lies behind it into another file,
    /// durably. False if there is no such point.
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

    /// At most so many bytes from here on, before `end_bytes`.
    fn read(&self, from: u64, most: usize, end_bytes: u64) -> io::Result<Vec<u8>> {
        let length = end_bytes.saturating_sub(from).min(most as u64);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.read_at(&mut bytes, from)?;
        Ok(bytes)
    }

    /// At most so many bytes of whole records from here on, header included.
    pub(super) fn part(&self, from: u64, most: usize) -> io::Result<Vec<u8>> {
        self.read(from, most, self.tail().offset_bytes)
    }

    /// Makes durable what was written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_dirty) { LogFile::sync(&mut self.file) } else { Ok(()) }
    }
}

/// How far the first `end_bytes` of a file are whole.
fn followed(file: &File, start: Tail, end_bytes: u64) -> io::Result<Follower> {
    let mut follower = Follower::after(start);
    let mut piece = vec![0; LOG_STEP_BYTES];
    let mut at = start.offset_bytes;
    while at < end_bytes {
        let length = usize::try_from(end_bytes - at).unwrap_or(usize::MAX).min(piece.len());
        file.read_at(&mut piece[..length], at)?;
        if follower.whole(&piece[..length]).is_some() {
            break;
        }
        at += length as u64;
    }
    Ok(follower)
}
