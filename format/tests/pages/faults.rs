//! Tests that every wrong page is detected, and that no page makes the process panic.

use crate::sample::{Column, decode, encode, gather, identity, noise, one_of_each};
use rackscan_format::{
    encoding::{Encoding, bitpack::Scratch, integer::BlockDescriptor},
    page::{HEADER_BYTES, PageFault, PageHeader, PageIdentity, PageView},
};

/// A small page of each kind, with some null rows.
fn pages() -> Vec<(&'static str, Vec<u8>)> {
    let page = |(name, _, column): (&'static str, Encoding, Column)| {
        let valid: Vec<bool> = (0..column.rows()).map(|row| name == "increments" || row % 11 > 0).collect();
        let pages = encode(&column, Some(&valid), 131_072).expect("a sound chunk");
        (name, pages[0].bytes.clone())
    };
    one_of_each().into_iter().map(page).collect()
}

/// Recomputes the checksum, as a malicious peer would.
fn with_checksum(page: &mut [u8]) {
    let checksum_at = HEADER_BYTES - 4;
    page[checksum_at..HEADER_BYTES].fill(0);
    let checksum = crc32c::crc32c(page);
    page[checksum_at..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Everything that a reader may do with a page.
fn read_all(bytes: &[u8]) -> Result<(), PageFault> {
    let view = PageView::open(bytes, &identity(0))?;
    let _ = view.validity().map(|bitmap| bitmap.count_valid());
    let rows: Vec<u32> = (0..view.header().rows).step_by(97).collect();
    if view.encoding() == Encoding::Integer {
        let page = view.integers()?;
        let mut scratch = Scratch::new();
        for block in 0..page.blocks() {
            let block = page.block(block)?;
            let _ = (block.bounds(), block.largest_number());
            let largest = block.unpack(&mut scratch).max(block.rows());
            assert!(largest <= block.largest_number());
        }
    }
    if view.encoding() == Encoding::Dictionary {
        let page = view.dictionary()?;
        let _ = page.find(b"final");
        assert!((0..page.entries()).map(|code| page.entry(code).len()).sum::<usize>() <= bytes.len());
    }
    decode(&view).and(gather(&view, &rows)).map(|_| ())
}

#[test]
fn every_flipped_byte_is_seen() {
    for (name, bytes) in pages() {
        read_all(&bytes).unwrap();
        let mut broken = bytes.clone();
        for at in 0..bytes.len() {
            broken[at] ^= 1 << (at % 8);
            assert!(PageView::open(&broken, &identity(0)).is_err(), "{name}, byte {at}");
            broken[at] = bytes[at];
        }
    }
}

#[test]
fn a_page_cut_or_padded_is_of_a_wrong_length() {
    for (_, mut bytes) in pages() {
        assert!(matches!(
            PageView::open(&bytes[..100], &identity(0)),
            Err(PageFault::Length { found: 100, .. })
        ));
        let length = bytes.len();
        assert!(matches!(PageView::open(&bytes[..length - 1], &identity(0)), Err(PageFault::Length { .. })));
        bytes.resize(length + 4096, 0);
        let fault = PageView::open(&bytes, &identity(0)).unwrap_err();
        assert_eq!(fault, PageFault::Length { wanted: length as u64, found: length as u64 + 4096 });
    }
}

#[test]
fn another_page_is_misdirected() {
    let (_, bytes) = pages().swap_remove(0);
    let wanted = PageIdentity { page: rackscan_format::ids::PageNumber(1), ..identity(0) };
    let fault = PageView::open(&bytes, &wanted).unwrap_err();
    assert_eq!(fault, PageFault::Misdirected { wanted, found: identity(0) });
    assert_eq!(
        fault.to_string(),
        "found page 0 of column 3, segment 7, table 168496141, expected page 1 of column 3, segment 7, table 168496141: \
         the read went to a wrong place"
    );
}

#[test]
fn other_rows_than_the_directory_promised_are_seen() {
    let (_, bytes) = pages().swap_remove(0);
    let view = PageView::open(&bytes, &identity(0)).unwrap();
    view.expect_rows(0, 1500).unwrap();
    assert!(matches!(
        view.expect_rows(1024, 1500),
        Err(PageFault::Rows { wanted_first: 1024, found_first: 0, .. })
    ));
}

#[test]
fn zeros_and_pages_of_another_version_say_so() {
    assert_eq!(PageView::open(&[0; 4096], &identity(0)).unwrap_err(), PageFault::Magic { found: [0; 8] });
    let (_, mut bytes) = pages().swap_remove(0);
    bytes[8] = 2;
    assert_eq!(PageView::open(&bytes, &identity(0)).unwrap_err(), PageFault::Version { found: 2 });
}

#[test]
fn the_wrong_accessor_names_both_encodings() {
    let (_, bytes) = pages().swap_remove(0);
    let fault = PageView::open(&bytes, &identity(0)).unwrap().plain().unwrap_err();
    assert_eq!(fault, PageFault::Encoding { wanted: "plain", found: 1 });
}

#[test]
fn forged_pages_with_a_right_checksum_never_panic() {
    let mut numbers = noise(2026);
    let mut number = move || numbers.next().unwrap_or(0);
    let below = |number: u64, end: usize| usize::try_from(number % end as u64).unwrap();
    let (mut refused, mut read) = (0, 0);
    for (_, bytes) in pages() {
        for round in 0..4000 {
            let mut forged = bytes.clone();
            for _ in 0..=round % 4 {
                // Changes headers and descriptors more often than values, because they hold the
                // offsets.
                let end = [HEADER_BYTES, 512, forged.len()][below(number(), 3)];
                let at = below(number(), end);
                let value = [0, 1, 0x7f, 0xff, number().to_le_bytes()[0]][below(number(), 5)];
                let length = [1, 1, 4, 8][below(number(), 4)].min(forged.len() - at);
                forged[at..at + length].fill(value);
            }
            with_checksum(&mut forged);
            match read_all(&forged) {
                Ok(()) => read += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "{refused} refused, {read} read: the forgery tests one side only");
}

#[test]
fn codes_beyond_the_dictionary_are_refused() {
    let (_, bytes) = pages().into_iter().find(|(name, _)| *name == "dictionary").unwrap();
    let mut forged = bytes;
    // One entry less than the codes need: header.sections[0] is the number of entries.
    let entries_at = std::mem::offset_of!(PageHeader, sections);
    assert!(u32::from_le_bytes(*forged[entries_at..].first_chunk().unwrap()) > 1);
    forged[entries_at] -= 1;
    with_checksum(&mut forged);
    assert!(matches!(read_all(&forged), Err(PageFault::Malformed { what: "a code", .. })));
}

/// A valid page of the named kind, to be forged.
fn forge(name: &str) -> Vec<u8> {
    let (_, bytes) = pages().into_iter().find(|(found, _)| *found == name).expect("one of each");
    bytes
}

/// One section of the header.
fn section(page: &[u8], section: usize) -> usize {
    let at = std::mem::offset_of!(PageHeader, sections) + 4 * section;
    let [a, b, c, d] = [page[at], page[at + 1], page[at + 2], page[at + 3]];
    usize::try_from(u32::from_le_bytes([a, b, c, d])).expect("a place in a page")
}

/// The error of reading a forged page.
fn fault_of(mut page: Vec<u8>) -> &'static str {
    with_checksum(&mut page);
    match read_all(&page) {
        Err(PageFault::Malformed { what, .. }) => what,
        other => panic!("expected a malformed page, found {other:?}"),
    }
}

#[test]
fn what_this_version_leaves_zero_is_refused_otherwise() {
    for (at, what) in [
        (std::mem::offset_of!(PageHeader, bounded), "whether there are bounds"),
        (std::mem::offset_of!(PageHeader, reserved) + 31, "the reserved bytes of the header"),
        (HEADER_BYTES + std::mem::offset_of!(BlockDescriptor, reserved), "the reserved bytes of a block"),
        (forge("packed").len() - 1, "the padding"),
    ] {
        let mut page = forge("packed");
        page[at] = 2;
        assert_eq!(fault_of(page), what);
    }
}

#[test]
fn a_span_that_its_width_cannot_hold_is_refused() {
    let mut page = forge("packed");
    let span_at = HEADER_BYTES + std::mem::offset_of!(BlockDescriptor, span);
    page[span_at + 1] = 1;
    assert_eq!(fault_of(page), "a block's span");
}

#[test]
fn codes_that_end_within_an_escape_are_refused() {
    let mut page = forge("fsst");
    let codes_end = section(&page, 3) + section(&page, 4);
    assert_ne!(page[codes_end - 2], 255);
    page[codes_end - 1] = 255;
    assert_eq!(fault_of(page), "the number of escapes at the end of codes");
}

#[test]
fn symbols_longer_than_a_word_are_refused() {
    let mut page = forge("fsst");
    let symbols_at = section(&page, 1);
    page[symbols_at] = 9;
    assert_eq!(fault_of(page), "the length of a symbol");
}

#[test]
fn overlapping_texts_are_refused_before_they_multiply() {
    for (name, ends_section, what) in [
        ("fsst", 0, "the end of a group's codes"),
        ("plain", 0, "the end of a block's texts"),
        ("dictionary", 1, "the end of a dictionary entry"),
    ] {
        let mut page = forge(name);
        let first_end = section(&page, ends_section);
        page[first_end..first_end + 4].copy_from_slice(&0x00ff_ffff_u32.to_le_bytes());
        assert_eq!(fault_of(page), what);
    }
}

#[test]
fn a_bitmap_that_disagrees_with_the_number_of_nulls_is_refused() {
    let mut page = forge("packed");
    page[std::mem::offset_of!(PageHeader, nulls)] ^= 1;
    assert_eq!(fault_of(page), "the number of nulls in the validity bitmap");
}
