//! Which format does a file begin like?
//!
//! In this order: the magic number of blktrace; fio's first line; our CSV's header; a line of
//! blkparse; a row of an MSR trace; a header whose columns can be told.

use std::path::Path;

use crate::{
    Format, TraceError,
    blktrace::{is_blkparse, is_blktrace},
    csv::{is_generic, is_msr, is_ours},
    error::shown,
    fio::is_fio,
    input::Input,
};

/// Lines at the beginning that may be something else before the first event of blkparse.
const BLKPARSE_LINES: usize = 20;

/// The format of a file.
pub(crate) fn detect(path: &Path, input: &Input) -> Result<Format, TraceError> {
    if is_blktrace(&input.head) {
        return Ok(Format::Blktrace);
    }
    let lines = input.head_lines(BLKPARSE_LINES);
    let first = lines.first().map_or("", String::as_str);
    let candidates = [
        (Format::Fio, is_fio(first)),
        (Format::Csv, is_ours(first)),
        (Format::Blkparse, lines.iter().any(|line| is_blkparse(line))),
        (Format::Msr, is_msr(first)),
        (Format::Generic, is_generic(first)),
    ];
    let found = candidates.into_iter().find(|(_, begins_so)| *begins_so);
    found.map(|(format, _)| format).ok_or_else(|| TraceError::UnknownFormat {
        path: path.to_owned(),
        found: beginning(&input.head, first),
    })
}

/// How a file is compressed, if it is.
pub(crate) fn compressed_with(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"PK\x03\x04", "zip"),
    ];
    MAGICS.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| name)
}

/// The beginning of a file as an error shows it.
fn beginning(head: &[u8], first_line: &str) -> String {
    let text = &head[..head.len().min(512)];
    if text.contains(&0) {
        let bytes: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        return format!("the bytes {}", bytes.join(" "));
    }
    shown(first_line)
}
