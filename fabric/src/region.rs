//! Defines memory that can be shared with peers, and names for parts of a peer's memory.
//!
//! Invariants
//! - A region is a sealed memfd, so that it can be shared by every wire and never changes its size.
//! - A peer may change a registered region at any time, so its bytes are copied in and out or read
//!   as atomics, never borrowed.
//! - A [`RemoteRegion`] is only a name and grants nothing: the peer checks key, bounds and access
//!   again.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::{
    error::{OutOfBounds, RegionError},
    limits::{REGION_ALIGNMENT_BYTES, REGION_BYTES_MAX},
    memory::{Mapping, Protection, RawSlice},
};

/// The seals of every memfd that processes share, so that nobody can shrink the memory under a
/// mapping.
pub(crate) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Bytes that are copied out at once for a checksum. They fit into the first-level cache.
const CHECKSUM_TILE_BYTES: usize = 4096;

/// Memory that peers can be given access to: zeroed at first, aligned to 4 KiB. Clones refer to the
/// same memory.
#[derive(Debug, Clone)]
pub struct Region {
    shared: Arc<SharedMemory>,
}

#[derive(Debug)]
struct SharedMemory {
    memory: OwnedFd,
    mapping: Arc<Mapping>,
}

impl Region {
    /// Allocates `bytes` (a positive multiple of 4 KiB) of zeroed memory, all of it now.
    ///
    /// # Errors
    /// [`RegionError::Length`] for a length that is not possible, [`RegionError::Os`] when there is
    /// not enough memory.
    pub fn allocate(bytes: usize) -> Result<Self, RegionError> {
        let region = Self::reserve(bytes)?;
        region.populate(0, bytes)?;
        Ok(region)
    }

    /// Reserves `bytes` (a positive multiple of 4 KiB) of zeroed memory and allocates none of it.
    /// The owner populates each part before it uses it or names it to a peer: a lack of memory is
    /// then an error, and the part lies on huge pages. A `verbs` connection populates all of a
    /// region that it registers.
    ///
    /// # Errors
    /// As [`Region::allocate`].
    pub fn reserve(bytes: usize) -> Result<Self, RegionError> {
        if bytes == 0 || !bytes.is_multiple_of(REGION_ALIGNMENT_BYTES) || bytes > REGION_BYTES_MAX {
            let (multiple, bytes_max) = (REGION_ALIGNMENT_BYTES, REGION_BYTES_MAX);
            return Err(RegionError::Length { bytes, multiple, bytes_max });
        }
        let os = |action| move |e: rustix::io::Errno| RegionError::Os { action, bytes, source: e.into() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("rackscan-region", flags).map_err(os("create"))?;
        rustix::fs::ftruncate(&memory, bytes as u64).map_err(os("size"))?;
        rustix::fs::fcntl_add_seals(&memory, SEALS).map_err(os("seal"))?;
        let mapping = Mapping::new(&memory, bytes, Protection::ReadWrite);
        let mapping = mapping.map_err(|source| RegionError::Os { action: "map", bytes, source })?;
        Ok(Self { shared: Arc::new(SharedMemory { memory, mapping: Arc::new(mapping) }) })
    }

    /// Allocates the memory of a part; what is allocated already keeps its contents. `offset` is a
    /// multiple of 4 KiB.
    ///
    /// # Errors
    /// When the part is not all inside, or there is not enough memory.
    pub fn populate(&self, offset: usize, length: usize) -> Result<(), RegionError> {
        self.slice(offset, length)?;
        let populated = self.mapping().populate(offset..offset + length);
        populated.map_err(|source| RegionError::Os { action: "allocate", bytes: length, source })
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping().bytes()
    }

    /// Number of handles and registrations of this memory, this one included.
    #[must_use]
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// Copies `bytes` in at `offset`.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.mapping().copy_in(offset, bytes)
    }

    /// Copies the bytes at `offset` out. Concurrent writes of a peer may be seen in part.
    ///
    /// # Errors
    /// When the region is shorter than that.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.mapping().copy_out(offset, bytes)
    }

    /// Copies `length` bytes at `offset` out into a new vector.
    ///
    /// # Errors
    /// When the region is shorter than that.
    pub fn to_vec(&self, offset: usize, length: usize) -> Result<Vec<u8>, OutOfBounds> {
        self.slice(offset, length)?;
        let mut bytes = vec![0; length];
        self.copy_out(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Zeroes `length` bytes at `offset`.
    ///
    /// # Errors
    /// When they are not all inside.
    pub fn zero(&self, offset: usize, length: usize) -> Result<(), OutOfBounds> {
        self.mapping().zero(offset, length)
    }

    /// Sets `length` bytes at `offset` to the XOR of as many bytes at the given offset of each
    /// source, or to zeros if there is no source. A source may be the target itself. Concurrent
    /// writes of a peer may be summed in part.
    ///
    /// # Errors
    /// When some of them are outside of their region; then nothing is written.
    pub fn xor_from(
        &self,
        offset: usize,
        sources: &[(&Self, usize)],
        length: usize,
    ) -> Result<(), OutOfBounds> {
        let source = |index: usize| {
            let (region, at): (&Self, usize) = sources[index];
            (region.mapping(), at)
        };
        self.mapping().xor_from(offset, length, sources.len(), source)
    }

    /// Continues the CRC-32C `before` (0 to begin) with `length` bytes at `offset`. The bytes are
    /// copied out in tiles; concurrent writes of a peer may be seen in part.
    ///
    /// # Errors
    /// When the region is shorter than that.
    pub fn crc32c_append(&self, before: u32, offset: usize, length: usize) -> Result<u32, OutOfBounds> {
        self.slice(offset, length)?;
        let mut tile = [0; CHECKSUM_TILE_BYTES];
        let mut checksum = before;
        for start in (0..length).step_by(CHECKSUM_TILE_BYTES) {
            let bytes = &mut tile[..CHECKSUM_TILE_BYTES.min(length - start)];
            self.copy_out(offset + start, bytes)?;
            checksum = crc32c::crc32c_append(checksum, bytes);
        }
        Ok(checksum)
    }

    /// Loads the word at `offset` (a multiple of 8) with acquire ordering: bytes that the peer
    /// wrote before it stored this word are seen by reads that follow.
    ///
    /// # Errors
    /// When the offset is out of bounds or not a multiple of 8.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RegionError> {
        self.check_word(offset)?;
        Ok(self.mapping().load(offset)?)
    }

    /// Stores the word at `offset` (a multiple of 8) with release ordering.
    ///
    /// # Errors
    /// When the offset is out of bounds or not a multiple of 8.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RegionError> {
        self.check_word(offset)?;
        self.mapping().word_to_store(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    fn check_word(&self, offset: usize) -> Result<(), RegionError> {
        if offset.is_multiple_of(8) { Ok(()) } else { Err(RegionError::Misaligned { offset: offset as u64 }) }
    }

    /// The part of `length` bytes at `offset`.
    ///
    /// # Errors
    /// When it is not all inside.
    pub fn slice(&self, offset: usize, length: usize) -> Result<RegionSlice, OutOfBounds> {
        check_bounds(offset as u64, length as u64, self.bytes() as u64)?;
        Ok(RegionSlice { region: self.clone(), offset, length })
    }

    /// The whole region as a slice.
    #[must_use]
    pub fn whole(&self) -> RegionSlice {
        RegionSlice { region: self.clone(), offset: 0, length: self.bytes() }
    }

    /// A raw pointer and length for a device that reads into or writes from this memory; it keeps
    /// the memory alive.
    ///
    /// # Errors
    /// When the part is not all inside.
    pub fn as_raw_slice(&self, offset: usize, length: usize) -> Result<RawSlice, OutOfBounds> {
        self.shared.mapping.raw_slice(offset, length)
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.shared.mapping
    }

    pub(crate) fn shared_mapping(&self) -> Arc<Mapping> {
        Arc::clone(&self.shared.mapping)
    }

    pub(crate) fn memory(&self) -> BorrowedFd<'_> {
        self.shared.memory.as_fd()
    }
}

/// A part of a region, inside of it by construction.
#[derive(Debug, Clone)]
pub struct RegionSlice {
    region: Region,
    offset: usize,
    length: usize,
}

impl RegionSlice {
    /// The region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// First byte, from the region's start.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Bytes of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    Bytes(&'a [u8]),
    Region(&'a RegionSlice),
}

impl Source<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Region(slice) => slice.len(),
        }
    }

    /// Copies a part of it to `target_offset` of `target`.
    pub(crate) fn copy_to(
        &self,
        offset: usize,
        length: usize,
        target: &Mapping,
        target_offset: usize,
    ) -> Result<(), OutOfBounds> {
        match self {
            Self::Bytes(bytes) => target.copy_in(target_offset, &bytes[offset..offset + length]),
            Self::Region(slice) => {
                let from = slice.region().mapping();
                from.copy_to(slice.offset() + offset, target, target_offset, length)
            }
        }
    }

    /// Copies all of it into `bytes`, which must be as long.
    pub(crate) fn copy_out(&self, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        match self {
            Self::Bytes(source) => bytes.copy_from_slice(source),
            Self::Region(slice) => slice.region().copy_out(slice.offset(), bytes)?,
        }
        Ok(())
    }
}

/// The name of memory that a peer has registered on this connection: plain data, which the peer's
/// `register` returns and which its owner sends in messages of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// Random key of the registration.
    pub key: u64,
    /// First byte, as the peer's side counts: from the start of the registration on `shm` and
    /// `tcp`.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
}

impl RemoteRegion {
    /// Bytes of [`RemoteRegion::to_bytes`].
    pub const ENCODED_BYTES: usize = 24;

    /// The part of `length` bytes at `offset`.
    ///
    /// # Errors
    /// When it is not all inside.
    pub fn slice(&self, offset: u64, length: u64) -> Result<Self, OutOfBounds> {
        check_bounds(offset, length, self.length)?;
        let address = self.address.checked_add(offset);
        let address = address.ok_or(OutOfBounds { offset, length, region_bytes: self.length })?;
        Ok(Self { key: self.key, address, length })
    }

    /// Little-endian key, address and length.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut bytes = [0; Self::ENCODED_BYTES];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// The inverse of [`RemoteRegion::to_bytes`]. Any bytes make a name; the peer decides whether
    /// it names anything.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::ENCODED_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Self { key: word(0), address: word(8), length: word(16) }
    }
}

/// Whether `length` bytes at `offset` lie in a region of `region_bytes`.
pub(crate) fn check_bounds(offset: u64, length: u64, region_bytes: u64) -> Result<(), OutOfBounds> {
    match offset.checked_add(length) {
        Some(end) if end <= region_bytes => Ok(()),
        _ => Err(OutOfBounds { offset, length, region_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_keeps_what_is_copied_into_it() {
        let region = Region::allocate(8192).unwrap();
        region.copy_in(4090, b"hello world").unwrap();
        assert_eq!(region.to_vec(4090, 11).unwrap(), b"hello world");
        region.zero(4092, 2).unwrap();
        assert_eq!(region.to_vec(4090, 6).unwrap(), b"he\0\0o ");
        region.store_u64(8, 0x0102_0304_0506_0708).unwrap();
        assert_eq!(region.to_vec(8, 8).unwrap(), 0x0102_0304_0506_0708_u64.to_le_bytes());
        assert_eq!(region.load_u64(8).unwrap(), 0x0102_0304_0506_0708);
    }

    #[test]
    fn an_access_outside_is_refused_with_numbers() {
        let region = Region::allocate(4096).unwrap();
        let error = OutOfBounds { offset: 4095, length: 2, region_bytes: 4096 };
        assert_eq!(region.copy_in(4095, b"ab").unwrap_err(), error);
        assert_eq!(region.copy_out(4095, &mut [0; 2]).unwrap_err(), error);
        assert_eq!(region.slice(4095, 2).unwrap_err(), error);
        assert_eq!(region.as_raw_slice(4095, 2).unwrap_err(), error);
        assert!(region.zero(usize::MAX, 2).is_err(), "an offset that overflows");
        assert!(matches!(region.load_u64(4), Err(RegionError::Misaligned { offset: 4 })));
        assert!(matches!(region.load_u64(4096), Err(RegionError::OutOfBounds(_))));
    }

    #[test]
    fn the_checksum_of_a_region_is_that_of_its_bytes() {
        let region = Region::allocate(16384).unwrap();
        let bytes: Vec<u8> = (0..16384_u32).map(|at| ((at * 31) >> 3).to_le_bytes()[0]).collect();
        region.copy_in(0, &bytes).unwrap();
        for (offset, length) in [(0, 0), (0, 1), (7, 4096), (100, 4095), (1, 12289), (0, 16384)] {
            let checksum = region.crc32c_append(0, offset, length).unwrap();
            assert_eq!(checksum, crc32c::crc32c(&bytes[offset..offset + length]), "{length} at {offset}");
        }
        let half = region.crc32c_append(0, 5, 5000).unwrap();
        assert_eq!(region.crc32c_append(half, 5005, 6000).unwrap(), crc32c::crc32c(&bytes[5..11005]));
        assert!(region.crc32c_append(0, 16383, 2).is_err());
    }

    #[test]
    fn a_length_that_is_not_whole_pages_is_refused() {
        for bytes in [0, 1, 4095, 4097, REGION_BYTES_MAX + 4096] {
            assert!(matches!(Region::allocate(bytes), Err(RegionError::Length { .. })), "{bytes}");
        }
    }

    #[test]
    fn the_size_of_a_region_cannot_be_changed() {
        let region = Region::allocate(8192).unwrap();
        assert!(rustix::fs::ftruncate(region.memory(), 4096).is_err());
        assert!(rustix::fs::ftruncate(region.memory(), 16384).is_err());
    }

    #[test]
    fn a_raw_slice_keeps_the_memory_mapped() {
        let region = Region::allocate(4096).unwrap();
        let raw = region.as_raw_slice(512, 1024).unwrap();
        assert_eq!((raw.as_ptr().addr() % 4096, raw.len(), raw.is_writable()), (512, 1024, true));
        assert_eq!(region.holders(), 1, "a raw slice holds the mapping, not the registration handle");
    }

    #[test]
    fn a_remote_region_survives_its_bytes_and_slices_inside_only() {
        let remote = RemoteRegion { key: 0x1122_3344_5566_7788, address: 4096, length: 100 };
        assert_eq!(RemoteRegion::from_bytes(&remote.to_bytes()), remote);
        assert_eq!(
            remote.slice(10, 90).unwrap(),
            RemoteRegion { key: remote.key, address: 4106, length: 90 }
        );
        assert!(remote.slice(10, 91).is_err());
        assert!(remote.slice(u64::MAX, 1).is_err());
    }
}
