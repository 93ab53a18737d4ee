//! Defines the layout of a message in a box (memory for one message, which the peer writes), and
//! checks that a whole message is there.
//!
//! ```text
//! 0..4     length of the body in bytes, little-endian
//! 4..8     CRC-32C of the body, continued from a seed that is made of sequence number and length, little-endian
//! 8..16    first indicator: the sequence number
//! 16..     body, padded with zeroes to a multiple of 8
//! then     second indicator: the sequence number
//! ```
//!
//! This is the format of RAMP with RDMA (section 3.1) with one difference. There, the receiver
//! clears a box before it is used again. Here the indicators contain a sequence number, so no box
//! is cleared: remains of an earlier, longer message contain another number.
//!
//! Invariants
//! - Sequence numbers start at 1, so fresh memory contains no message; after the last number
//!   follows 1 again.
//! - A message is copied before it is checked, so the sender cannot change it afterwards.
//! - The checksum depends on the sequence number: new indicators around an old header and body are
//!   not a message.

use crate::{error::OutOfBounds, error::RegionError, region::Region};

/// The sequence number of the first message of every box.
pub(super) const FIRST_SEQUENCE: u64 = 1;

const HEADER_AT: usize = 0;
const FIRST_INDICATOR_AT: usize = 8;
const BODY_AT: usize = 16;

/// The number of the message after `sequence`.
pub(super) fn next(sequence: u64) -> u64 {
    sequence.checked_add(1).unwrap_or(FIRST_SEQUENCE)
}

fn second_indicator_at(length: usize) -> usize {
    BODY_AT + length.next_multiple_of(8)
}

/// Bytes from the header to the second indicator.
pub(super) fn image_bytes(length: usize) -> usize {
    second_indicator_at(length) + 8
}

fn header(sequence: u64, length: u32, body: &[u8]) -> u64 {
    let checksum = crc32c::crc32c_append(seed(sequence, length), body);
    u64::from(checksum) << 32 | u64::from(length)
}

/// The seed of a checksum. The number is mixed, because a CRC is linear: a first word that changes
/// in the same way as a plain number would cancel it out. One multiplication is cheaper than
/// checksumming twelve more bytes.
fn seed(sequence: u64, length: u32) -> u32 {
    let mixed = (sequence ^ u64::from(length) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    u32::try_from(mixed >> 32).expect("the high half of a u64 fits a u32")
}

/// Puts a message at `at` of `region` and returns the length of its image. The caller has checked
/// that it fits.
pub(super) fn put(region: &Region, at: usize, sequence: u64, body: &[u8]) -> Result<usize, RegionError> {
    let too_long = || OutOfBounds { offset: 0, length: body.len() as u64, region_bytes: u64::from(u32::MAX) };
    let length = u32::try_from(body.len()).map_err(|_| too_long())?;
    let second = at + second_indicator_at(body.len());
    region.store_u64(at + HEADER_AT, header(sequence, length, body))?;
    region.store_u64(at + FIRST_INDICATOR_AT, sequence)?;
    if !body.len().is_multiple_of(8) {
        // The padding of the last word must not keep bytes of an earlier message.
        region.store_u64(second - 8, 0)?;
    }
    region.copy_in(at + BODY_AT, body)?;
    region.store_u64(second, sequence)?;
    Ok(image_bytes(body.len()))
}

/// Copies the body of message `sequence` out of the box at `at` into `body`, which has the length
/// of the longest message. Returns the length of the body, or `None` while the message is not
/// complete.
pub(super) fn take(region: &Region, at: usize, sequence: u64, body: &mut [u8]) -> Option<usize> {
    if region.load_u64(at + FIRST_INDICATOR_AT).ok()? != sequence {
        return None;
    }
    let found = region.load_u64(at + HEADER_AT).ok()?;
    let length = u32::try_from(found & u64::from(u32::MAX)).ok()?;
    let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= body.len())?;
    if region.load_u64(at + second_indicator_at(bytes)).ok()? != sequence {
        return None;
    }
    let body = body.get_mut(..bytes)?;
    region.copy_out(at + BODY_AT, body).ok()?;
    (found == header(sequence, length, body)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BODY_MAX: usize = 200;
    /// A box that does not begin where its memory does.
    const AT: usize = 128;
    const WORDS: usize = BODY_MAX / 8 + 3;

    fn region() -> Region {
        Region::allocate(4096).unwrap()
    }

    fn taken(region: &Region, sequence: u64) -> Option<Vec<u8>> {
        let mut body = [0xEE; BODY_MAX];
        take(region, AT, sequence, &mut body).map(|length| body[..length].to_vec())
    }

    /// The words of an image.
    fn image(sequence: u64, body: &[u8]) -> Vec<u64> {
        let region = region();
        let bytes = put(&region, AT, sequence, body).unwrap();
        (0..bytes / 8).map(|word| region.load_u64(AT + 8 * word).unwrap()).collect()
    }

    fn store(region: &Region, word: usize, value: u64) {
        region.store_u64(AT + 8 * word, value).unwrap();
    }

    fn body() -> impl Strategy<Value = Vec<u8>> {
        // Few values, so that bodies and indicators often look alike.
        prop_oneof![
            prop::collection::vec(0..4_u8, 0..=BODY_MAX),
            prop::collection::vec(any::<u8>(), 0..=BODY_MAX),
            (0..=BODY_MAX / 8, 0..6_u64).prop_map(|(words, word)| word.to_le_bytes().repeat(words)),
        ]
    }

    fn sequence() -> impl Strategy<Value = u64> {
        prop_oneof![1..5_u64, Just(u64::MAX - 1), Just(u64::MAX), any::<u64>().prop_map(|any| any.max(1))]
    }

    #[test]
    fn an_image_is_laid_out_as_documented() {
        // By an independent implementation of CRC-32C, continued from 0xB5721D9F.
        let checksum = 0xEE9E_20E4_u32;
        let words = image(5, b"123456789");
        let header = u64::from(checksum) << 32 | 9;
        assert_eq!(words, [header, 5, u64::from_le_bytes(*b"12345678"), u64::from(b'9'), 5]);
        assert_eq!(image(5, b"").len(), 3);
    }

    #[test]
    fn fresh_memory_holds_no_message_whatever_its_number() {
        for sequence in [1, 2, u64::MAX] {
            assert_eq!(taken(&region(), sequence), None);
        }
        assert_eq!((next(1), next(u64::MAX)), (2, 1));
    }

    /// With the plain number as seed, this mix of two messages had the checksum of the first.
    #[test]
    fn a_first_word_that_changes_as_the_number_does_hides_no_old_header() {
        let region = region();
        put(&region, AT, 2, &[3_u64.to_le_bytes(), [0; 8]].concat()).unwrap();
        let new = image(3, &[2_u64.to_le_bytes(), [0; 8], 3_u64.to_le_bytes(), [0; 8]].concat());
        for (place, word) in new.iter().enumerate().skip(1) {
            store(&region, place, *word);
            assert_eq!(taken(&region, 3), None, "without the new header");
        }
        store(&region, 0, new[0]);
        assert_eq!(taken(&region, 3).map(|body| body.len()), Some(32));
    }

    #[test]
    fn a_length_beyond_the_box_is_no_message_and_reads_nothing_outside() {
        // The box ends where the memory does.
        let region = region();
        let at = 4096 - image_bytes(BODY_MAX);
        let mut body = [0; BODY_MAX];
        for length in [BODY_MAX + 1, BODY_MAX + 8, 4096, usize::MAX >> 33, 0xFFFF_FFF8, 0xFFFF_FFFF] {
            let length = u32::try_from(length).unwrap();
            region.store_u64(at, header(1, length, &[])).unwrap();
            region.store_u64(at + 8, 1).unwrap();
            assert_eq!(take(&region, at, 1, &mut body), None, "{length}");
        }
        put(&region, at, 1, &[7; BODY_MAX]).unwrap();
        assert_eq!(take(&region, at, 1, &mut body), Some(BODY_MAX));
    }

    proptest! {
        #[test]
        fn a_message_is_taken_once_all_of_it_is_there_and_under_its_number_only(
            sequence in sequence(), body in body(), other in sequence()
        ) {
            let region = region();
            put(&region, AT, sequence, &body).unwrap();
            prop_assert_eq!(taken(&region, sequence), Some(body));
            if other != sequence {
                prop_assert_eq!(taken(&region, other), None);
            }
        }

        /// Words of the new image arrive in any order, over remains of older ones; after each of
        /// them, what is taken is the new message or nothing.
        #[test]
        fn no_subset_of_the_words_of_a_message_is_taken_for_another(
            first in sequence(), bodies in prop::collection::vec(body(), 2..5), order in any::<[u32; WORDS]>()
        ) {
            let region = region();
            let mut sequence = first;
            for body in &bodies {
                let words = image(sequence, body);
                let mut places: Vec<usize> = (0..words.len()).collect();
                places.sort_by_key(|place| order[*place].wrapping_mul(u32::try_from(sequence & 7).unwrap() | 1));
                for place in places {
                    let before = taken(&region, sequence);
                    prop_assert!(before.is_none() || before.as_ref() == Some(body));
                    store(&region, place, words[place]);
                }
                prop_assert_eq!(taken(&region, sequence), Some(body.clone()));
                sequence = next(sequence);
            }
        }

        #[test]
        fn no_prefix_of_bytes_of_a_message_is_taken_for_another(old in body(), new in body(), cut in 0..=8 * WORDS) {
            let (region, source) = (region(), region());
            put(&region, AT, 1, &old).unwrap();
            let bytes = put(&source, AT, 2, &new).unwrap();
            let prefix = source.to_vec(AT, cut.min(bytes)).unwrap();
            region.copy_in(AT, &prefix).unwrap();
            let found = taken(&region, 2);
            prop_assert!(found.is_none() || found == Some(new));
        }

        #[test]
        fn garbage_is_no_message(garbage in prop::collection::vec(0..300_u64, WORDS), sequence in 1..4_u64) {
            let region = region();
            for (word, value) in garbage.iter().enumerate() {
                store(&region, word, *value);
            }
            store(&region, 1, sequence);
            let length = usize::try_from(garbage[0]).unwrap();
            if length <= BODY_MAX {
                store(&region, second_indicator_at(length) / 8, sequence);
            }
            prop_assert_eq!(taken(&region, sequence), None);
        }
    }
}
