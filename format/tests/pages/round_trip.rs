//! Tests that values survive encoding: for every encoding, with nulls and extreme values, across
//! page boundaries, read whole and row by row.

use crate::sample::{Column, Decoded, bitmap, decode, encode, encode_with, gather, identity, one_of_each};
use proptest::{collection::vec, prelude::*};
use rackscan_format::{
    chunk::{ChunkError, Effort, EncodedPage},
    encoding::Encoding,
    limits::{BLOCK_ROWS, PAGE_BYTES_MAX},
    page::PageView,
    zone::ZoneValue,
};

/// Encodes a chunk and checks every promise about its pages.
fn assert_comes_back(column: &Column, valid: Option<&[bool]>, page_bytes: u32) {
    let pages = encode(column, valid, page_bytes).expect("a sound chunk");
    assert_pages(column, valid, page_bytes, &pages);
    let quick = encode_with(Effort::Quick, column, valid, page_bytes).expect("a sound chunk");
    assert_pages(column, valid, page_bytes, &quick);
    let encoding = |page: &EncodedPage| PageView::open(&page.bytes, &identity(0)).map(|view| view.encoding());
    assert_ne!(encoding(&quick[0]).ok(), Some(Encoding::Fsst), "that would take effort");
}

fn assert_pages(column: &Column, valid: Option<&[bool]>, page_bytes: u32, pages: &[EncodedPage]) {
    let mut next_row = 0;
    for (number, page) in pages.iter().enumerate() {
        assert_eq!(page.first_row, next_row);
        next_row += page.rows;
        assert!(page.rows.is_multiple_of(1024) || next_row as usize == column.rows());
        assert!(page.bytes.len() <= page_bytes as usize || page.rows as usize <= BLOCK_ROWS);
        assert_page(column, valid, number, page);
    }
    assert_eq!(next_row as usize, column.rows());
}

fn assert_page(column: &Column, valid: Option<&[bool]>, number: usize, page: &EncodedPage) {
    let view = PageView::open(&page.bytes, &identity(number)).expect("the page just written");
    view.expect_rows(page.first_row, page.rows).expect("the rows of its entry");
    let all: Vec<u32> = (0..page.rows).collect();
    let has_value = |row: &u32| valid.is_none_or(|valid| valid[(page.first_row + row) as usize]);
    let present: Vec<u32> = all.iter().copied().filter(has_value).collect();
    assert_eq!(page.zone.nulls as usize, all.len() - present.len());

    let validity = view.validity();
    let expected: Vec<bool> = all.iter().map(has_value).collect();
    match validity {
        Some(validity) => assert_eq!(validity.bytes(), bitmap(&expected)),
        None => assert!(expected.iter().all(|has_value| *has_value)),
    }

    let in_chunk = |rows: &[u32]| rows.iter().map(|row| row + page.first_row).collect::<Vec<u32>>();
    let wanted = column.rows_at(&in_chunk(&present));
    assert_eq!(only(&decode(&view).expect("a sound page"), &present), wanted);
    assert_eq!(gather(&view, &present).expect("a sound page"), wanted);
    let some: Vec<u32> = present.iter().copied().filter(|row| row % 5 == 0 || row % 131 == 7).collect();
    assert_eq!(gather(&view, &some).expect("a sound page"), column.rows_at(&in_chunk(&some)));
    assert!(gather(&view, &[page.rows]).is_err());
    assert_zone(page, &wanted);
}

pub(crate) fn only(all: &Decoded, rows: &[u32]) -> Decoded {
    let rows = rows.iter().map(|row| *row as usize);
    match all {
        Decoded::Integers(values) => Decoded::Integers(rows.map(|row| values[row]).collect()),
        Decoded::Floats(values) => Decoded::Floats(rows.map(|row| values[row]).collect()),
        Decoded::Texts(values) => Decoded::Texts(rows.map(|row| values[row].clone()).collect()),
    }
}

fn assert_zone(page: &EncodedPage, present: &Decoded) {
    let (min, max) = (&page.zone.min, &page.zone.max);
    match present {
        Decoded::Integers(values) => {
            assert_eq!(*min, values.iter().min().map(|value| ZoneValue::Integer(*value)));
            assert_eq!(*max, values.iter().max().map(|value| ZoneValue::Integer(*value)));
        }
        Decoded::Floats(values) => {
            let values: Vec<f64> = values.iter().map(|bits| f64::from_bits(*bits)).collect();
            assert_eq!(min.is_none(), values.is_empty() || values.iter().any(|value| value.is_nan()));
            assert_eq!(min.is_none(), max.is_none());
            if let (Some(ZoneValue::Float(min)), Some(ZoneValue::Float(max))) = (min, max) {
                assert!(
                    values.iter().all(|value| min.total_cmp(value).is_le() && max.total_cmp(value).is_ge())
                );
            }
        }
        Decoded::Texts(values) => {
            let smallest = values.iter().min().map(|text| ZoneValue::text_min(text));
            assert_eq!(*min, smallest);
            assert_eq!(*max, values.iter().max().and_then(|text| ZoneValue::text_max(text)));
        }
    }
}

fn integers() -> impl Strategy<Value = Vec<i64>> {
    let extremes = prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(-1), any::<i64>()];
    let small = (any::<i64>(), 1..1_000_i64, vec(0..50_i64, 1..4000))
        .prop_map(|(base, step, values)| values.iter().map(|v| base.wrapping_add(v * step)).collect());
    let sorted = vec(0..1_000_000_i64, 1..3000).prop_map(|mut values| {
        values.sort_unstable();
        values
    });
    let divided = vec(any::<i32>(), 1..3000)
        .prop_map(|values| values.iter().map(|value| i64::from(*value) * 0x1_0000_0001).collect());
    prop_oneof![
        vec(extremes, 1..2500),
        small,
        sorted,
        divided,
        (any::<i64>(), 1..5000_usize).prop_map(|(value, rows)| vec![value; rows]),
    ]
}

fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let pool = vec(vec(any::<u8>(), 0..20), 1..40);
    let few = (pool, vec(any::<prop::sample::Index>(), 1..3000))
        .prop_map(|(pool, rows)| rows.iter().map(|row| row.get(&pool).clone()).collect());
    // Zero bytes: symbols of FSST are padded with them.
    let zeros = vec(vec(prop_oneof![Just(0_u8), Just(255), Just(b'a')], 0..30), 1..2000);
    let phrase = vec(prop_oneof![Just("special "), Just("requests "), Just("gr\u{fc}n"), Just("a")], 0..8);
    let phrases = vec((phrase, any::<u32>()), 1..2000).prop_map(|rows| {
        rows.iter().map(|(words, number)| format!("{}{number}", words.concat()).into_bytes()).collect()
    });
    let long = vec(vec(any::<u8>(), 0..3000), 1..30);
    prop_oneof![few, zeros, phrases, long, (1..3000_usize).prop_map(|rows| vec![Vec::new(); rows])]
}

fn page_sizes() -> impl Strategy<Value = u32> {
    prop_oneof![Just(4096), Just(12288), Just(131_072)]
}

/// Which rows have a value: all, some, long stretches, none.
fn with_validity<T: std::fmt::Debug + Clone>(
    values: impl Strategy<Value = Vec<T>>,
) -> impl Strategy<Value = (Vec<T>, Option<Vec<bool>>)> {
    (values, any::<u64>(), 0..5).prop_map(|(values, seed, kind)| {
        let bits = crate::sample::noise(seed).take(values.len());
        let valid = match kind {
            0 => None,
            1 => Some(bits.map(|bit| bit % 3 > 0).collect()),
            2 => Some((0..values.len()).map(|row| row / 1024 % 2 == 1).collect()),
            3 => Some(vec![false; values.len()]),
            _ => Some(vec![true; values.len()]),
        };
        (values, valid)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers_come_back((values, valid) in with_validity(integers()), page_bytes in page_sizes()) {
        assert_comes_back(&Column::Integers(values), valid.as_deref(), page_bytes);
    }

    #[test]
    fn floats_come_back(
        (values, valid) in with_validity(vec(prop::num::f64::ANY, 1..3000)), page_bytes in page_sizes(),
    ) {
        assert_comes_back(&Column::Floats(values), valid.as_deref(), page_bytes);
    }

    #[test]
    fn texts_come_back((values, valid) in with_validity(texts()), page_bytes in page_sizes()) {
        assert_comes_back(&Column::Texts(values), valid.as_deref(), page_bytes);
    }
}

#[test]
fn each_encoding_is_chosen_for_the_values_it_is_for() {
    for (name, encoding, column) in one_of_each() {
        let pages = encode(&column, None, 131_072).unwrap();
        assert_eq!(PageView::open(&pages[0].bytes, &identity(0)).unwrap().encoding(), encoding, "{name}");
        for page_bytes in [4096, 8192] {
            assert_comes_back(&column, None, page_bytes);
        }
    }
}

#[test]
fn codes_of_a_dictionary_order_as_their_texts_do() {
    let (_, _, column) =
        one_of_each().into_iter().find(|(_, encoding, _)| *encoding == Encoding::Dictionary).unwrap();
    let pages = encode(&column, None, 131_072).unwrap();
    let page = PageView::open(&pages[0].bytes, &identity(0)).unwrap().dictionary().unwrap();
    for code in 1..page.entries() {
        assert!(page.entry(code - 1) < page.entry(code));
    }
    let middle = page.entry(page.entries() / 2).to_vec();
    let code = page.find(&middle).unwrap();
    assert_eq!((page.lower_bound(&middle), page.upper_bound(&middle)), (code, code + 1));
    let between = [middle.as_slice(), b"\0"].concat();
    assert_eq!((page.lower_bound(&between), page.upper_bound(&between)), (code + 1, code + 1));
    assert_eq!(page.find(&between), None);
    assert_eq!((page.lower_bound(b""), page.upper_bound(&[255])), (0, page.entries()));
}

#[test]
fn quantities_of_whole_units_take_six_bits() {
    let values = (0..1024).map(|row| (row % 50 + 1) * 100).collect();
    let pages = encode(&Column::Integers(values), None, 131_072).unwrap();
    let page = PageView::open(&pages[0].bytes, &identity(0)).unwrap().integers().unwrap();
    let block = page.block(0).unwrap();
    assert_eq!((block.divisor(), block.descriptor().width, block.bounds()), (100, 6, (100, 5000)));
    assert_eq!(block.largest_number(), 63);
}

#[test]
fn a_block_that_fits_no_page_is_refused_by_name() {
    let texts = crate::sample::noise(9)
        .take(600 * 1024)
        .map(u64::to_le_bytes)
        .collect::<Vec<_>>()
        .chunks(1024)
        .map(<[_]>::concat)
        .collect();
    match encode(&Column::Texts(texts), None, 131_072) {
        Err(ChunkError::BlockTooLarge { column, first_row: 0, bytes }) => {
            assert_eq!(column, identity(0).column);
            assert!(bytes > PAGE_BYTES_MAX.into());
        }
        other => panic!("expected a refusal, found {:?} pages", other.map(|pages| pages.len())),
    }
}

#[test]
fn pages_are_filled_to_within_a_block_of_their_size() {
    let values = crate::sample::noise(3).take(131_072).map(|number| (number >> 40).cast_signed()).collect();
    let pages = encode(&Column::Integers(values), None, 131_072).unwrap();
    let (_, all_but_last) = pages.split_last().unwrap();
    assert!(!all_but_last.is_empty());
    assert!(all_but_last.iter().all(|page| page.bytes.len() > 131_072 - 8192));
}

#[test]
fn a_null_integer_reads_as_the_reference_of_its_block() {
    let values: Vec<i64> = (0..1024).map(|row| if row == 5 { i64::MAX } else { 100 + row % 8 }).collect();
    let valid: Vec<bool> = (0..1024).map(|row| row != 5).collect();
    let pages = encode(&Column::Integers(values), Some(&valid), 131_072).unwrap();
    let view = PageView::open(&pages[0].bytes, &identity(0)).unwrap();
    let block = view.integers().unwrap().block(0).unwrap();
    assert_eq!((block.reference(), block.descriptor().width), (100, 3));
    assert_eq!(gather(&view, &[5]).unwrap(), Decoded::Integers(vec![100]));
}
