//! Parses the values of options: words, sizes, row counts, factors and single characters.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rackscan_fabric::Wire;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_planner::Policy;
use rackscan_stripe::{Parity, Way};

/// A word of the command line, the value that it stands for, and its help.
pub(super) type Named<T> = (&'static str, T, &'static str);

/// The wires of the fabric.
pub(super) const WIRES: [Named<Wire>; 3] = [
    ("shm", Wire::Shm, "Shared memory, on one machine"),
    ("tcp", Wire::Tcp, "TCP, between machines"),
    ("verbs", Wire::Verbs, "RDMA (InfiniBand, RoCE, iWARP); needs a build with --features verbs"),
];

/// Why addresses for the wire verbs are not needed.
pub(super) const WITHOUT_VERBS: &str = "--wires does not contain verbs";

/// Placements of scans.
pub(super) const PLACEMENTS: [Named<Policy>; 4] = [
    ("local", Policy::Local, "The engine reads devices attached to its own host"),
    ("remote-fetch", Policy::RemoteFetch, "Nodes send raw pages, and the engine scans them"),
    ("remote-process", Policy::RemoteProcess, "Nodes scan, and send only qualifying rows (or groups)"),
    ("auto", Policy::Auto, "The price model decides for each segment"),
];

/// Bridges of a node.
pub(super) const BRIDGES: [Named<BridgeKind>; 3] = [
    ("reactor", BridgeKind::Reactor, "A few threads, each with many connections and reads in flight"),
    ("static", BridgeKind::Static, "A poller per connection, and a fixed pool of reader threads"),
    ("dynamic", BridgeKind::Dynamic, "A poller per connection, and a thread per read"),
];

/// How a device is read.
pub(super) const IO_KINDS: [Named<IoKind>; 2] =
    [("uring", IoKind::Uring, "With `io_uring`"), ("pread", IoKind::Pread, "With blocking reads in threads")];

/// Who computes the cells of a stripe, in loads and rebuilds, too.
pub(crate) const SCHEDULES: [Named<Way>; 2] = [
    ("naive", Way::Naive, "The client, which sends all cells"),
    (
        "relay",
        Way::Relay,
        "The nodes, which relay cells to each other; the client sends each byte of data once",
    ),
];

/// Protections of a stripe.
pub(super) const PARITIES: [Named<Parity>; 2] = [
    ("2d-xor", Parity::TwoD, "Rows and diagonals, each with its XOR"),
    ("xor", Parity::Xor, "Rows with their XOR"),
];

/// Parses one of these words.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [Named<T>],
) -> impl TypedValueParser<Value = T> {
    let words = all.iter().map(|(word, _, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).map(move |word| {
        let found = all.iter().find(|(name, ..)| *name == word);
        found.expect("a possible value: the parser has checked it").1
    })
}

/// The word that stands for a value; empty if none does.
pub(crate) fn word_of<T: PartialEq>(all: &[Named<T>], value: &T) -> &'static str {
    all.iter().find_map(|(word, named, _)| (named == value).then_some(*word)).unwrap_or_default()
}

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

/// The name of a table to load or to drop.
pub(super) fn table_name(text: &str) -> Result<String, String> {
    if text.starts_with(RESERVED_PREFIX) {
        return Err(format!(
            "names that begin with {RESERVED_PREFIX:?} are reserved for tables of views and indexes; choose another one, or drop the view or index"
        ));
    }
    Ok(text.to_owned())
}
