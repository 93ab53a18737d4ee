//! The content of a simulated device, now and after a crash.
//!
//! Invariants
//! - `now` is what reads return: it contains every completed write.
//! - `durable` is what flushes have made durable. Applying the writes in `unsynced`, in order, to
//!   `durable` yields `now`. It is stored separately only while there are unsynced writes.

use super::random::Random;

/// Sectors are the unit that a crash or a torn write leaves whole.
pub(super) const SECTOR_BYTES: usize = 512;

/// What a crash keeps of writes that no flush has made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashImage {
    /// Nothing: only flushed bytes survive.
    OnlySynced,
    /// Each sector of each unsynced write survives by chance, which gives torn and reordered
    /// writes.
    AnySectors,
}

/// A device in memory.
#[derive(Debug, Clone)]
pub struct SimDisk {
    now: Vec<u8>,
    durable: Option<Vec<u8>>,
    unsynced: Vec<Unsynced>,
    writes: u64,
}

#[derive(Debug, Clone)]
struct Unsynced {
    number: u64,
    offset: usize,
    bytes: Vec<u8>,
}

impl SimDisk {
    /// A device of `bytes` zero bytes.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        Self::of(vec![0; bytes])
    }

    /// A device whose durable content is `contents`, for example a crash image.
    #[must_use]
    pub fn of(contents: Vec<u8>) -> Self {
        Self { now: contents, durable: None, unsynced: Vec::new(), writes: 0 }
    }

    /// The content that reads see.
    #[must_use]
    pub fn contents(&self) -> &[u8] {
        &self.now
    }

    pub(super) fn len(&self) -> u64 {
        self.now.len() as u64
    }

    /// The number of applied writes; a flush submitted now covers these.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// Applies a write; the range was checked at submission.
    pub(super) fn write(&mut self, offset: usize, bytes: Vec<u8>) {
        self.writes += 1;
        self.durable.get_or_insert_with(|| self.now.clone());
        self.now[offset..offset + bytes.len()].copy_from_slice(&bytes);
        self.unsynced.push(Unsynced { number: self.writes, offset, bytes });
    }

    /// Makes the first `writes` writes durable.
    pub(super) fn sync(&mut self, writes: u64) {
        let covered = self.unsynced.partition_point(|write| write.number <= writes);
        let Some(durable) = &mut self.durable else { return };
        for write in self.unsynced.drain(..covered) {
            durable[write.offset..write.offset + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        if self.unsynced.is_empty() {
            self.durable = None;
        }
    }

    /// The device after losing power now.
    pub(super) fn crashed(&self, image: CrashImage, random: &mut Random) -> Self {
        let mut kept = self.durable.as_ref().unwrap_or(&self.now).clone();
        if image == CrashImage::AnySectors {
            for write in &self.unsynced {
                for (index, sector) in write.bytes.chunks(SECTOR_BYTES).enumerate() {
                    let start = write.offset + index * SECTOR_BYTES;
                    if random.happens(500_000) {
                        kept[start..start + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
        Self::of(kept)
    }
}
