//! Simulates a disk in memory for tests of the log. A test can make it full, or make its flushes
//! fail.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use super::log_file::{LogFile, LogFolder};

/// The faults and limits of a disk.
#[derive(Debug)]
pub(super) struct Disk {
    /// The maximum length of a file.
    pub(super) room_bytes: AtomicUsize,
    /// Whether space can be reserved before it is written.
    pub(super) reserves: AtomicBool,
    /// Whether flushes fail.
    pub(super) broken: AtomicBool,
    /// Flushes so far.
    pub(super) syncs: AtomicUsize,
}

/// A file in memory.
#[derive(Clone, Debug)]
pub(super) struct MemoryFile {
    pub(super) disk: Arc<Disk>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl MemoryFile {
    /// A file with these bytes.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let disk = Disk {
            room_bytes: AtomicUsize::new(usize::MAX),
            reserves: AtomicBool::new(true),
            broken: AtomicBool::new(false),
            syncs: AtomicUsize::new(0),
        };
        Self { disk: Arc::new(disk), bytes: Arc::new(Mutex::new(bytes.to_vec())) }
    }

    /// What is in it.
    pub(super) fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap()
    }

    fn grow(&self, end: usize) -> io::Result<()> {
        if end > self.disk.room_bytes.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = self.bytes();
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        Ok(())
    }
}

fn at(offset_bytes: u64) -> usize {
    usize::try_from(offset_bytes).unwrap()
}

impl LogFile for MemoryFile {
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        let from = at(offset_bytes);
        bytes.copy_from_slice(&self.bytes()[from..from + bytes.len()]);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        let from = at(offset_bytes);
        let room = self.disk.room_bytes.load(SeqCst).saturating_sub(from).min(bytes.len());
        self.grow(from + room)?;
        self.bytes()[from..from + room].copy_from_slice(&bytes[..room]);
        if room < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn reserve(&mut self, end_bytes: u64) -> io::Result<()> {
        if self.disk.reserves.load(SeqCst) { self.grow(at(end_bytes)) } else { Ok(()) }
    }

    fn reserve_ahead(&mut self, end_bytes: u64) -> io::Result<()> {
        let is_there = !self.disk.reserves.load(SeqCst) || at(end_bytes) <= self.disk.room_bytes.load(SeqCst);
        if is_there { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.syncs.fetch_add(1, SeqCst);
        if self.disk.broken.load(SeqCst) { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }

    fn cut(&mut self, end_bytes: u64) -> io::Result<()> {
        self.bytes().truncate(at(end_bytes));
        Ok(())
    }
}

/// A folder in memory.
#[derive(Clone, Debug)]
pub(super) struct MemoryFolder {
    pub(super) log: Arc<Mutex<MemoryFile>>,
    pub(super) new_version: Arc<Mutex<Option<MemoryFile>>>,
}

impl MemoryFolder {
    pub(super) fn with(log: &MemoryFile) -> Self {
        Self { log: Arc::new(Mutex::new(log.clone())), new_version: Arc::default() }
    }

    /// The log that a crash would leave.
    pub(super) fn log(&self) -> Vec<u8> {
        self.log.lock().unwrap().bytes().clone()
    }

    /// Whether there is a new version.
    pub(super) fn has_new_version(&self) -> bool {
        self.new_version.lock().unwrap().is_some()
    }
}

impl LogFolder for MemoryFolder {
    type File = MemoryFile;

    fn create(&self) -> io::Result<MemoryFile> {
        let disk = Arc::clone(&self.log.lock().unwrap().disk);
        let file = MemoryFile { disk, bytes: Arc::default() };
        *self.new_version.lock().unwrap() = Some(file.clone());
        Ok(file)
    }

    fn put_in_place(&self) -> io::Result<()> {
        let file = self.new_version.lock().unwrap().take();
        *self.log.lock().unwrap() = file.ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn discard(&self) {
        self.new_version.lock().unwrap().take();
    }

    fn name(&self) -> String {
        "a log in memory".to_owned()
    }
}
