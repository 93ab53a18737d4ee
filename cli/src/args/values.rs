//! Parses the values of options: sizes, row counts, factors and single characters.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rackscan_fabric::Wire;

pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let size: rackscan_storage_node::ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    Ok(size.0)
}

pub(super) fn page_size(text: &str) -> Result<u32, String> {
    use rackscan_format::limits::{PAGE_SIZE_MAX, PAGE_SIZE_MIN, SECTOR_BYTES};
    let rackscan_storage_node::ByteSize(bytes) = text.parse().map_err(|error| format!("{error}"))?;
    match u32::try_from(bytes) {
        Ok(bytes)
            if (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&bytes) && bytes.is_multiple_of(SECTOR_BYTES) =>
        {
            Ok(bytes)
        }
        _ => Err(format!("{bytes} bytes; expected a multiple of 4KiB from 4KiB to 1MiB")),
    }
}

pub(super) fn segment_rows(text: &str) -> Result<u32, String> {
    use rackscan_format::limits::{BLOCK_ROWS, SEGMENT_ROWS_MAX};
    match text.parse::<u32>() {
        Ok(rows) if rows > 0 && rows <= SEGMENT_ROWS_MAX && (rows as usize).is_multiple_of(BLOCK_ROWS) => {
            Ok(rows)
        }
        _ => Err(format!("expected a multiple of {BLOCK_ROWS} up to {SEGMENT_ROWS_MAX}")),
    }
}

pub(super) fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 100_000.0 => Ok(scale),
        _ => Err("expected a number above 0, at most 100000".to_owned()),
    }
}

pub(super) fn effort(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(effort) if effort > 0.0 && effort <= 1000.0 => Ok(effort),
        _ => Err("expected a number above 0, at most 1000".to_owned()),
    }
}

pub(super) fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        br"\t" => Ok(b'\t'),
        _ if text.eq_ignore_ascii_case("tab") => Ok(b'\t'),
        _ => ascii_character(text).map_err(|expected| format!("{expected}, or tab")),
    }
}

pub(super) fn ascii_character(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err("expected one ASCII character".to_owned()),
    }
}

/// The beginning of the names of tables that views and indexes are kept in.
const RESERVED_PREFIX: &str = "rackscan ";

/// A wire of the fabric.
pub(super) fn wire() -> impl TypedValueParser<Value = Wire> {
    let wires = [
        PossibleValue::new("shm").help("Shared memory, on one machine"),
        PossibleValue::new("tcp").help("TCP, between machines"),
        PossibleValue::new("verbs")
            .help("RDMA (InfiniBand, RoCE, iWARP); needs a build with --features verbs"),
    ];
    PossibleValuesParser::new(wires).map(|name| match name.as_str() {
        "shm" => Wire::Shm,
        "tcp" => Wire::Tcp,
        "verbs" => Wire::Verbs,
        other => unreachable!("{other} is none of the possible values"),
    })
}

/// The name of a table to load or to drop.
pub(super) fn table_name(text: &str) -> Result<String, String> {
    if text.starts_with(RESERVED_PREFIX) {
        return Err(format!(
            "names that begin with {RESERVED_PREFIX:?} are reserved for tables of views and indexes; choose another one, or drop the view or index"
        ));
    }
    Ok(text.to_owned())
}
