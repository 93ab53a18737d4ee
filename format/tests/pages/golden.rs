//! Tests that old pages are still readable, and that the encoder writes the same bytes as before.
//! Goal: the format does not change by accident. Method: files in `tests/golden`, written once by
//!
//!     RACKSCAN_WRITE_GOLDEN=1 cargo test -p rackscan-format --test pages golden
//!
//! which never overwrites a file. A new encoding adds a number and a file. A change of an existing
//! layout raises `FORMAT_VERSION`; `PageView` must then read both versions, because stored pages
//! are never rewritten.

use crate::sample::{Column, decode, encode, identity, one_of_each};
use rackscan_format::page::PageView;
use std::{fs, path::PathBuf};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("page_v1_{name}.bin"))
}

/// The rows of the golden pages: every eleventh row is null, except where nulls would prevent
/// increments.
fn valid(name: &str, column: &Column) -> Vec<bool> {
    (0..column.rows()).map(|row| name == "increments" || row % 11 > 0).collect()
}

#[test]
fn golden_pages_are_read_as_the_values_they_were_made_of() {
    for (name, encoding, column) in one_of_each() {
        let bytes = fs::read(path(name)).unwrap_or_else(|error| panic!("{}: {error}", path(name).display()));
        let view = PageView::open(&bytes, &identity(0)).unwrap();
        assert_eq!(view.encoding(), encoding);
        let rows: Vec<u32> = (0..).take(view.rows()).collect();
        let valid = valid(name, &column);
        let present: Vec<u32> = rows.into_iter().filter(|row| valid[*row as usize]).collect();
        let all = decode(&view).unwrap();
        assert_eq!(crate::round_trip::only(&all, &present), column.rows_at(&present), "{name}");
    }
}

#[test]
fn golden_pages_are_written_again_byte_for_byte() {
    for (name, _, column) in one_of_each() {
        let pages = encode(&column, Some(&valid(name, &column)), 131_072).unwrap();
        assert_eq!(pages.len(), 1);
        let page = &pages[0].bytes;
        if std::env::var_os("RACKSCAN_WRITE_GOLDEN").is_some() && !path(name).exists() {
            fs::write(path(name), page).unwrap();
        }
        let golden = fs::read(path(name)).unwrap_or_else(|error| panic!("{}: {error}", path(name).display()));
        let differs = golden.iter().zip(page).position(|(golden, now)| golden != now);
        assert!(golden.len() == page.len() && differs.is_none(), "{name}: differs from byte {differs:?} on");
    }
}
