//! Computes XORs of buffers at the speed of memory.
//!
//! The kernels work on blocks of 64 bytes, a length known to the compiler, which turns them into
//! the widest vectors of the target. Several sources are summed in one pass: in each tile of 4 KiB,
//! the first four sources are summed in registers and written, and the others are added while the
//! tile is in the first-level cache. So every byte of a source is read from memory once, and every
//! byte of the result is written to memory once.
//!
//! Invariants
//! - Buffers may have any length and any alignment; nothing is allocated.
//! - If the lengths of the buffers differ, nothing is written.

/// Bytes that are XORed at once.
const BLOCK_BYTES: usize = 64;

/// The number of sources that are summed in registers. With the target, this leaves enough of
/// sixteen registers for pointers.
const SOURCES_PER_PASS: usize = 4;

/// Bytes of the target that are completed with all sources before the next ones. Together with
/// those of [`SOURCES_PER_PASS`] sources they fit into 32 KiB of cache.
const TILE_BYTES: usize = 4096;

// Only the last tile may have an incomplete block.
const _: () = assert!(TILE_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(TILE_BYTES * (SOURCES_PER_PASS + 1) < 32 << 10);

/// The lengths of the target and a source differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "source {source_index} of an XOR has {found} bytes, but the target has {expected}: all cells of a stripe have the same length, so pad shorter ones with zeros"
)]
pub struct LengthError {
    /// The index of the source.
    pub source_index: usize,
    /// Its length in bytes.
    pub found: usize,
    /// The target's length in bytes.
    pub expected: usize,
}

/// XORs the source into the target.
///
/// # Errors
/// [`LengthError`] if their lengths differ.
pub fn xor_into(target: &mut [u8], source: &[u8]) -> Result<(), LengthError> {
    same_lengths(target, &[source])?;
    sum(target, [source], true);
    Ok(())
}

/// Overwrites the target with the XOR of the sources: zeros if there are none.
///
/// # Errors
/// [`LengthError`] if a source is longer or shorter than the target.
pub fn xor_all(target: &mut [u8], sources: &[&[u8]]) -> Result<(), LengthError> {
    same_lengths(target, sources)?;
    match sources {
        [] => target.fill(0),
        [source] => target.copy_from_slice(source),
        _ => {
            for (number, tile) in target.chunks_mut(TILE_BYTES).enumerate() {
                sum_tile(tile, sources, number * TILE_BYTES);
            }
        }
    }
    Ok(())
}

fn same_lengths(target: &[u8], sources: &[&[u8]]) -> Result<(), LengthError> {
    let expected = target.len();
    let wrong = sources.iter().enumerate().find(|(_, source)| source.len() != expected);
    wrong.map_or(Ok(()), |(source_index, source)| {
        Err(LengthError { source_index, found: source.len(), expected })
    })
}

/// Overwrites a tile with the XOR of the same bytes of all sources, which begin at `start`.
fn sum_tile(tile: &mut [u8], sources: &[&[u8]], start: usize) {
    let end = start + tile.len();
    for (number, group) in sources.chunks(SOURCES_PER_PASS).enumerate() {
        let onto = number > 0;
        match *group {
            [a] => sum(tile, [&a[start..end]], onto),
            [a, b] => sum(tile, [&a[start..end], &b[start..end]], onto),
            [a, b, c] => sum(tile, [a, b, c].map(|source| &source[start..end]), onto),
            [a, b, c, d] => sum(tile, [a, b, c, d].map(|source| &source[start..end]), onto),
            _ => unreachable!("1 to SOURCES_PER_PASS sources"),
        }
    }
}

/// Overwrites the target with the XOR of sources of the same length, and of its old bytes if
/// `onto`.
fn sum<const SOURCES: usize>(target: &mut [u8], sources: [&[u8]; SOURCES], onto: bool) {
    let (blocks, rest) = target.as_chunks_mut::<BLOCK_BYTES>();
    let (whole, left) = (blocks.len(), rest.len());
    // Slice to the target's length where the compiler sees it, so that the loop has no bounds
    // checks.
    let cut = sources.map(|source| {
        let (blocks, rest) = source.as_chunks::<BLOCK_BYTES>();
        (&blocks[..whole], &rest[..left])
    });
    for (at, block) in blocks.iter_mut().enumerate() {
        let mut sum = if onto { *block } else { [0; BLOCK_BYTES] };
        for (blocks, _) in &cut {
            sum.iter_mut().zip(&blocks[at]).for_each(|(sum, byte)| *sum ^= byte);
        }
        *block = sum;
    }
    for (at, byte) in rest.iter_mut().enumerate() {
        let before = if onto { *byte } else { 0 };
        *byte = cut.iter().fold(before, |sum, (_, rest)| sum ^ rest[at]);
    }
}
