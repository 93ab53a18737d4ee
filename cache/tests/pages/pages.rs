//! Generates the pages of these tests: extents of several lengths, and their content after each
//! write.

use rackscan_cache::{Fill, PageCache};
use rackscan_format::{ids::DeviceId, segment::Extent};

/// Extents of different lengths: of a few frames, of one, and of a part of one.
pub(crate) fn extents() -> Vec<Extent> {
    let lengths = [4096, 8192, 512, 12_288, 4096, 20_480, 4096, 8192, 512, 16_384, 4096, 8192];
    let mut offset_bytes = 1 << 20;
    let mut extents = Vec::new();
    for length_bytes in lengths {
        extents.push(Extent { device: DeviceId(1), offset_bytes, length_bytes });
        offset_bytes += u64::from(length_bytes).next_multiple_of(4096);
    }
    extents
}

/// The content of an extent after so many writings: every word differs between extents, writings
/// and places.
pub(crate) fn content(extent: &Extent, writing: u64) -> Vec<u8> {
    let word = |at: u64| {
        let mixed =
            (extent.offset_bytes ^ writing << 32).wrapping_add(at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).to_le_bytes()
    };
    (0..u64::from(extent.length_bytes) / 8).flat_map(word).collect()
}

/// Does what a device does: puts the bytes where the cache wants them, in two steps between which
/// others may look.
pub(crate) fn read_into(cache: &PageCache, fill: &Fill, bytes: &[u8], half: bool) {
    let (offset, length) = fill.place_bytes();
    assert_eq!(length, bytes.len());
    let middle = length / 2 / 8 * 8;
    let (offset, part) = if half { (offset, &bytes[..middle]) } else { (offset + middle, &bytes[middle..]) };
    cache.region().copy_in(offset, part).expect("a slot lies inside of its region");
}
