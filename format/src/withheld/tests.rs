//! Tests that withheld rows are decoded as they were encoded, and that other bytes are refused.
//! Method: sets with every form of block, and encodings with each byte changed or cut off.

use super::*;

const ROWS: u32 = 5 * ROWS_PER_BLOCK + 300;

/// Rows in a block with few, a block with none, a full block, a block with many, and the last row
/// of the last block.
fn mixed() -> Vec<u32> {
    let mut rows = vec![0, 1, 63, 64, 1023];
    rows.extend(2048..3072);
    rows.extend((3072..4096).filter(|row| row % 3 > 0));
    rows.push(ROWS - 1);
    rows
}

/// Sets the right checksum in `bytes`.
fn checked(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes[CHECKSUM_BYTES..]);
    bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn rows_come_back_from_their_bytes_and_from_their_blocks() {
    for rows in [vec![], vec![7], vec![SEGMENT_ROWS_MAX - 1], mixed(), (0..SEGMENT_ROWS_MAX).collect()] {
        let withheld = WithheldRows::of(rows.iter().rev().chain(&rows).copied()).unwrap();
        assert_eq!(WithheldRows::from_bytes(withheld.as_bytes()), Ok(withheld.clone()));
        assert!(withheld.rows().eq(rows.iter().copied()));
        assert_eq!((withheld.count() as usize, withheld.is_empty()), (rows.len(), rows.is_empty()));
        let bits: u32 = (0..4096)
            .filter_map(|block| withheld.in_block(block))
            .map(|words| words.iter().map(|word| word.count_ones()).sum::<u32>())
            .sum();
        assert_eq!(bits, withheld.count());
    }
    let withheld = WithheldRows::of(mixed()).unwrap();
    assert_eq!((withheld.in_block(1), withheld.in_block(2)), (None, Some([u64::MAX; BLOCK_WORDS])));
    assert_eq!(withheld.in_block(0).map(|words| (words[0], words[1])), Some((1 << 63 | 3, 1)));
}

#[test]
fn all_rows_but_some_are_those_of_a_segment_without_them() {
    for segment_rows in [0, 1, 1023, 1024, 1025, ROWS] {
        for kept in
            [vec![], vec![0], mixed(), vec![segment_rows.saturating_sub(1), 3, 3, 1024], (0..ROWS).collect()]
        {
            let withheld = WithheldRows::all_but(kept.iter().rev().copied(), segment_rows).unwrap();
            let expected = (0..segment_rows).filter(|row| !kept.contains(row));
            assert_eq!(withheld, WithheldRows::of(expected).unwrap(), "{segment_rows}, {} kept", kept.len());
            assert!((0..segment_rows).all(|row| withheld.contains(row) != kept.contains(&row)));
        }
    }
    assert!(WithheldRows::all_but([1], SEGMENT_ROWS_MAX + 1).is_err());
}

#[test]
fn no_set_takes_more_bytes_than_is_said_and_most_take_few() {
    let length = |rows: &[u32]| WithheldRows::of(rows.iter().copied()).unwrap().as_bytes().len();
    assert_eq!((length(&[]), length(&[9]), length(&[9, 5000])), (0, 10, 16));
    assert_eq!(length(&(0..1024).collect::<Vec<_>>()), 8, "a whole block");
    let most: Vec<u32> = (0..ROWS).filter(|row| row % 1024 != 5).collect();
    assert_eq!(length(&most), WithheldRows::bytes_max(ROWS));
    assert!((1..1024).all(|rows| length(&(0..rows).collect::<Vec<_>>()) <= WithheldRows::bytes_max(1024)));
}

#[test]
fn a_segment_that_ends_before_a_row_is_another_one() {
    let withheld = WithheldRows::of(mixed()).unwrap();
    assert_eq!(withheld.verify(ROWS), Ok(()));
    let error = withheld.verify(ROWS - 1).unwrap_err().to_string();
    assert!(error.contains(&format!("found {}, expected below {}", ROWS - 1, ROWS - 1)), "{error}");
    assert_eq!(WithheldRows::default().verify(0), Ok(()));
    assert!(WithheldRows::of([3, SEGMENT_ROWS_MAX]).is_err());
}

#[test]
fn a_set_travels_as_its_bytes_and_damaged_ones_do_not_arrive() {
    for rows in [vec![], vec![7], mixed()] {
        let withheld = WithheldRows::of(rows).unwrap();
        let bytes = crate::codec::encode(&(3_u8, &withheld, 5_u8)).unwrap();
        assert_eq!(crate::codec::decode("a test", &bytes), Ok((3_u8, withheld.clone(), 5_u8)));
        for at in 2..bytes.len() - 1 {
            let mut changed = bytes.clone();
            changed[at] ^= 0x21;
            assert!(crate::codec::decode::<(u8, WithheldRows, u8)>("a test", &changed).is_err(), "byte {at}");
        }
    }
}

#[test]
fn a_set_includes_those_whose_every_row_it_has() {
    let all = mixed();
    let (whole, none) = (WithheldRows::of(all.iter().copied()).unwrap(), WithheldRows::NONE);
    for without in 0..all.len() {
        let part =
            WithheldRows::of(all.iter().enumerate().filter(|(at, _)| *at != without).map(|(_, row)| *row));
        let part = part.unwrap();
        assert!(whole.includes(&part) && !part.includes(&whole), "without row {}", all[without]);
    }
    assert!(
        whole.includes(&whole) && whole.includes(&none) && none.includes(&none) && !none.includes(&whole)
    );
    assert!(
        whole.memory_bytes() > whole.as_bytes().len() && none.memory_bytes() == size_of::<WithheldRows>()
    );
}

#[test]
fn changed_and_cut_bytes_are_noticed() {
    let bytes = WithheldRows::of(mixed()).unwrap().as_bytes().to_vec();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x21;
        assert!(WithheldRows::from_bytes(&changed).is_err(), "byte {at}");
        assert!(at == 0 || WithheldRows::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn nothing_but_the_one_encoding_of_a_set_is_taken_whatever_its_checksum() {
    let block = |block: u16, count: u16, content: &[u8]| {
        [&block.to_le_bytes()[..], &count.to_le_bytes(), content].concat()
    };
    let all = |blocks: &[Vec<u8>]| checked([vec![0; CHECKSUM_BYTES], blocks.concat()].concat());
    let (mut bits, whole) = ([0; BITMAP_BYTES], [0xff; BITMAP_BYTES]);
    bits[..8].fill(0xff);
    let right = all(&[block(0, 1, &[5, 0]), block(3, 64, &bits), block(4, 1024, &[])]);
    assert_eq!(WithheldRows::from_bytes(&right).map(|rows| rows.count()), Ok(1 + 64 + 1024));
    for wrong in [
        vec![],
        vec![block(0, 0, &[])],
        vec![block(0, 1025, &[])],
        vec![block(0, u16::MAX, &whole)],
        vec![block(0, 1, &[5])],
        vec![block(0, 1, &[5, 0, 0])],
        vec![block(0, 1, &[0, 4])],
        vec![block(0, 2, &[5, 0, 5, 0])],
        vec![block(0, 2, &[5, 0, 4, 0])],
        vec![block(0, 65, &bits)],
        vec![block(0, 1023, &whole)],
        vec![block(0, 64, &bits[1..])],
        vec![block(3, 1, &[5, 0]), block(3, 1, &[6, 0])],
        vec![block(3, 1, &[5, 0]), block(2, 1, &[6, 0])],
        vec![block(4096, 1, &[5, 0])],
    ] {
        assert!(WithheldRows::from_bytes(&all(&wrong)).is_err(), "{wrong:?}");
    }
    let endless = checked(vec![0xff; WithheldRows::bytes_max(SEGMENT_ROWS_MAX) + 1]);
    assert!(WithheldRows::from_bytes(&endless).unwrap_err().to_string().contains("expected at most"));
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 0x5eed_u64;
    for length in 0..3000 {
        let mut bytes = vec![0; 4 + length % 700];
        for byte in &mut bytes[4..] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = state.to_le_bytes();
            *byte = if state >> 62 == 0 { random[5] } else { random[7] >> 4 & 1 };
        }
        if let Ok(rows) = WithheldRows::from_bytes(&checked(bytes)) {
            assert_eq!(WithheldRows::of(rows.rows()), Ok(rows));
        }
    }
}
