//! Defines the layout of a cache's memory and of slot headers, and verifies bytes that were read
//! from there.
//!
//! ```text
//! header of frame 0 | header of frame 1 | ... | padding to a frame | frame 0 | frame 1 | ...
//! ```
//!
//! A page takes whole, consecutive frames, its *slot*; the header of the first frame is the slot's
//! header. Headers are apart from the frames, so that pages have the alignment that devices need.
//!
//! | bytes of a header | |
//! |---|---|
//! | 0..8 | version: even while published, odd while written or withdrawn |
//! | 8..16 | epoch: identifies one start of the node |
//! | 16..24 | the extent's offset |
//! | 24..28 | the extent's length |
//! | 28..32 | the extent's device |
//! | 32..36 | CRC-32C of bytes 8..32 and of the page's bytes |
//! | 36..64 | zeros |
//!
//! Invariants
//! - The functions are pure, of offsets and bytes. All numbers are little-endian.
//! - Every frame that a peer names is checked against the number of frames before an offset is
//!   computed from it.

use rackscan_format::{ids::DeviceId, message::CachePlace, segment::Extent};

use crate::limits::{BOOKKEEPING_BYTES, CACHE_BYTES_MIN, FRAME_BYTES, HEADER_BYTES};

/// The division of a region, which follows from its number of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    frames: u32,
}

impl Geometry {
    /// The maximum number of frames that fit a budget together with their bookkeeping; `None` if
    /// the budget is too small.
    #[must_use]
    pub fn of_budget(budget_bytes: u64) -> Option<Self> {
        if budget_bytes < CACHE_BYTES_MIN {
            return None;
        }
        // Headers are rounded up to a whole frame.
        let each = (FRAME_BYTES + HEADER_BYTES + BOOKKEEPING_BYTES) as u64;
        let frames = (budget_bytes - FRAME_BYTES as u64) / each;
        u32::try_from(frames).ok().and_then(Self::of_frames)
    }

    /// A region of `frames` frames; `None` if that is 0 or more than any cache has.
    #[must_use]
    pub fn of_frames(frames: u32) -> Option<Self> {
        let possible = u64::from(frames) * FRAME_BYTES as u64 <= crate::limits::CACHE_BYTES_MAX;
        (frames > 0 && possible).then_some(Self { frames })
    }

    /// Number of frames.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Bytes of the region.
    #[must_use]
    pub fn region_bytes(&self) -> usize {
        self.payload_offset(self.frames)
    }

    /// Offset of a frame's header in the region.
    #[must_use]
    pub fn header_offset(&self, frame: u32) -> usize {
        frame as usize * HEADER_BYTES
    }

    /// Offset of a frame in the region.
    #[must_use]
    pub fn payload_offset(&self, frame: u32) -> usize {
        (self.frames as usize * HEADER_BYTES).next_multiple_of(FRAME_BYTES) + frame as usize * FRAME_BYTES
    }

    /// Whether a page of this length fits from this frame on.
    #[must_use]
    pub fn holds(&self, frame: u32, length_bytes: u32) -> bool {
        length_bytes > 0 && u64::from(frame) + frames_of(length_bytes) <= u64::from(self.frames)
    }
}

/// Frames that a page of this length takes.
pub(crate) fn frames_of(length_bytes: u32) -> u64 {
    u64::from(length_bytes).div_ceil(FRAME_BYTES as u64)
}

/// Why bytes that were read one-sidedly are not used. None of these is a failure: the reader
/// requests the page from the node instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The slot was withdrawn or has another page by now.
    #[error(
        "the slot of the node's cache has version {found}, expected {expected}: it contains another page or none"
    )]
    Version {
        /// In the header.
        found: u64,
        /// From the reply that named the place.
        expected: u64,
    },
    /// The node was restarted since the region was made known.
    #[error(
        "the slot of the node's cache has epoch {found:#x}, expected {expected:#x}: the node was restarted"
    )]
    Epoch {
        /// In the header.
        found: u64,
        /// When the region was made known.
        expected: u64,
    },
    /// The slot holds another extent.
    #[error("the slot of the node's cache contains the bytes of {found:?}, expected those of {expected:?}")]
    Key {
        /// In the header.
        found: Extent,
        /// Wanted.
        expected: Extent,
    },
    /// The bytes were read while they changed.
    #[error(
        "the bytes read from the node's cache have checksum {found:08x}, expected {expected:08x}: \
         they changed while they were read"
    )]
    Checksum {
        /// Over what was read.
        found: u32,
        /// In the header.
        expected: u32,
    },
}

/// The bytes that the checksum covers before those of the page.
fn key_bytes(epoch: u64, extent: &Extent) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&epoch.to_le_bytes());
    bytes[8..16].copy_from_slice(&extent.offset_bytes.to_le_bytes());
    bytes[16..20].copy_from_slice(&extent.length_bytes.to_le_bytes());
    bytes[20..].copy_from_slice(&u32::from(extent.device.0).to_le_bytes());
    bytes
}

/// A checksum of an extent's key, to be continued with its bytes.
pub(crate) fn checksum_of_key(epoch: u64, extent: &Extent) -> u32 {
    crc32c::crc32c(&key_bytes(epoch, extent))
}

/// A header without its version, which is stored last and separately. These bytes go 8 bytes behind
/// the header's beginning.
pub(crate) fn header_behind_version(epoch: u64, extent: &Extent, checksum: u32) -> [u8; HEADER_BYTES - 8] {
    let mut bytes = [0; HEADER_BYTES - 8];
    bytes[..24].copy_from_slice(&key_bytes(epoch, extent));
    bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

struct Header {
    version: u64,
    epoch: u64,
    extent: Option<Extent>,
    checksum: u32,
}

fn parse(header: &[u8; HEADER_BYTES]) -> Header {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&header[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let half = |at: usize| {
        let mut half = [0; 4];
        half.copy_from_slice(&header[at..at + 4]);
        u32::from_le_bytes(half)
    };
    let device = u8::try_from(half(28)).ok().map(DeviceId);
    let extent = device.map(|device| Extent { device, offset_bytes: word(16), length_bytes: half(24) });
    Header { version: word(0), epoch: word(8), extent, checksum: half(32) }
}

/// The extent that a header of the owner's own memory names.
pub(crate) fn extent_in(header: &[u8; HEADER_BYTES]) -> Option<Extent> {
    parse(header).extent
}

/// Checks that `page` is the content of `extent`, read from the slot at `place` while that was
/// published. `page` and `header` are private copies, and the page was read before the header.
///
/// # Errors
/// Why the bytes must not be used.
pub(crate) fn verify(
    header: &[u8; HEADER_BYTES],
    page: &[u8],
    epoch: u64,
    place: CachePlace,
    extent: &Extent,
) -> Result<(), Unusable> {
    verify_header(header, epoch, place, extent)?;
    let (found, expected) =
        (crc32c::crc32c_append(checksum_of_key(epoch, extent), page), parse(header).checksum);
    if found != expected {
        return Err(Unusable::Checksum { found, expected });
    }
    Ok(())
}

/// Like [`verify`], of the header alone: the slot at `place` held `extent` while it was read, but
/// the bytes that were read before the header may have changed meanwhile.
///
/// # Errors
/// Why the bytes must not be used, whatever their checksum.
pub(crate) fn verify_header(
    header: &[u8; HEADER_BYTES],
    epoch: u64,
    place: CachePlace,
    extent: &Extent,
) -> Result<(), Unusable> {
    let found = parse(header);
    if found.version != place.version || !place.version.is_multiple_of(2) {
        return Err(Unusable::Version { found: found.version, expected: place.version });
    }
    if found.epoch != epoch {
        return Err(Unusable::Epoch { found: found.epoch, expected: epoch });
    }
    if found.extent != Some(*extent) {
        let none = Extent { device: DeviceId(u8::MAX), offset_bytes: u64::MAX, length_bytes: 0 };
        return Err(Unusable::Key { found: found.extent.unwrap_or(none), expected: *extent });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { device: DeviceId(3), offset_bytes: 1 << 40, length_bytes: 8192 };
    const PLACE: CachePlace = CachePlace { frame: 5, version: 42 };
    const EPOCH: u64 = 0x0123_4567_89ab_cdef;

    /// A whole header, as a reader finds it.
    fn header_bytes(version: u64, epoch: u64, extent: &Extent, checksum: u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&version.to_le_bytes());
        bytes[8..].copy_from_slice(&header_behind_version(epoch, extent, checksum));
        bytes
    }

    fn slot() -> ([u8; HEADER_BYTES], Vec<u8>) {
        let page: Vec<u8> = (0..8192_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let checksum = crc32c::crc32c_append(checksum_of_key(EPOCH, &EXTENT), &page);
        (header_bytes(42, EPOCH, &EXTENT, checksum), page)
    }

    #[test]
    fn a_page_at_rest_is_accepted() {
        let (header, page) = slot();
        assert_eq!(verify(&header, &page, EPOCH, PLACE, &EXTENT), Ok(()));
    }

    #[test]
    fn every_changed_byte_of_header_and_page_is_noticed() {
        let (header, page) = slot();
        // What is behind the checksum says nothing.
        for at in 0..36 {
            let mut header = header;
            header[at] ^= 0x10;
            assert!(verify(&header, &page, EPOCH, PLACE, &EXTENT).is_err(), "byte {at} of the header");
        }
        for at in (0..page.len()).step_by(97) {
            let mut page = page.clone();
            page[at] ^= 1;
            let found = verify(&header, &page, EPOCH, PLACE, &EXTENT);
            assert!(matches!(found, Err(Unusable::Checksum { .. })), "byte {at} of the page: {found:?}");
        }
        assert!(verify(&header, &page[1..], EPOCH, PLACE, &EXTENT).is_err());
    }

    #[test]
    fn another_version_epoch_or_extent_is_named() {
        let (header, page) = slot();
        let check = |place, epoch, extent: &Extent| verify(&header, &page, epoch, place, extent).unwrap_err();
        let older = CachePlace { version: 40, ..PLACE };
        assert_eq!(check(older, EPOCH, &EXTENT), Unusable::Version { found: 42, expected: 40 });
        assert_eq!(check(PLACE, 1, &EXTENT), Unusable::Epoch { found: EPOCH, expected: 1 });
        let other = Extent { offset_bytes: 0, ..EXTENT };
        assert_eq!(check(PLACE, EPOCH, &other), Unusable::Key { found: EXTENT, expected: other });
        let odd = header_bytes(43, EPOCH, &EXTENT, 0);
        let place = CachePlace { version: 43, ..PLACE };
        assert!(verify(&odd, &page, EPOCH, place, &EXTENT).is_err(), "an odd version is never right");
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let (header, _) = slot();
        // Made apart from this code, with a bitwise CRC-32C.
        let golden = "2a00000000000000efcdab89674523010000000000010000002000000300000059172460";
        let found: String = header[..36].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, golden);
        assert!(header[36..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn frames_headers_and_bookkeeping_stay_within_the_budget() {
        assert_eq!(Geometry::of_budget(CACHE_BYTES_MIN - 1), None);
        for budget in [CACHE_BYTES_MIN, 1 << 20, (64 << 20) + 17, 1 << 34] {
            let geometry = Geometry::of_budget(budget).unwrap();
            let bookkeeping = geometry.frames() as usize * BOOKKEEPING_BYTES;
            assert!((geometry.region_bytes() + bookkeeping) as u64 <= budget);
            assert!(geometry.region_bytes() as u64 > budget * 8 / 10);
            assert!(geometry.header_offset(geometry.frames()) <= geometry.payload_offset(0));
            let last = geometry.frames() - 1;
            assert!(geometry.holds(last, 1) && geometry.holds(last, 4096) && !geometry.holds(last, 4097));
            assert!(!geometry.holds(u32::MAX, u32::MAX) && !geometry.holds(0, 0));
        }
        assert!(Geometry::of_frames(0).is_none() && Geometry::of_frames(u32::MAX).is_none());
    }
}
