//! Fills written memory with bytes that depend on their place, and compares what is read with them.
//!
//! Invariants
//! - No two words of eight bytes of one run are equal by intent: a word depends on its device, its
//!   offset and the seed of the run. So a write that was lost, or went elsewhere, is noticed.

/// Fills the memory of a write.
pub(super) fn fill(bytes: &mut [u8], device: u16, offset_bytes: u64, seed: u64) {
    for (word, at) in bytes.chunks_exact_mut(8).zip((offset_bytes..).step_by(8)) {
        word.copy_from_slice(&word_at(device, at, seed).to_le_bytes());
    }
}

/// The offset of the first word that differs from what [`fill`] writes.
pub(super) fn first_difference(bytes: &[u8], device: u16, offset_bytes: u64, seed: u64) -> Option<u64> {
    let mut words = bytes.chunks_exact(8).zip((offset_bytes..).step_by(8));
    words.find(|(word, at)| **word != word_at(device, *at, seed).to_le_bytes()).map(|(_, at)| at)
}

/// The finalizer of SplitMix64 over place and seed.
fn word_at(device: u16, offset_bytes: u64, seed: u64) -> u64 {
    let mixed =
        (offset_bytes ^ (u64::from(device) << 48)).wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_place_device_or_run_are_told_apart() {
        let mut bytes = [0; 1024];
        fill(&mut bytes, 1, 8192, 7);
        assert_eq!(first_difference(&bytes, 1, 8192, 7), None);
        for (device, offset_bytes, seed) in [(0, 8192, 7), (1, 9216, 7), (1, 8192, 8)] {
            assert_eq!(first_difference(&bytes, device, offset_bytes, seed), Some(offset_bytes));
        }
        bytes[513] ^= 1;
        assert_eq!(first_difference(&bytes, 1, 8192, 7), Some(8192 + 512));
    }
}
