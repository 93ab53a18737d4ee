//! Recognizes the format of a trace: by its name in an option, or by how a file begins.
//!
//! The checks of a file's beginning, in this order: the magic number of blktrace; fio's first line;
//! our CSV's header; a line of blkparse; a row of an MSR trace; a row of an SPC trace; a
//! header with columns of known names.

use std::{path::Path, str::FromStr};

use crate::{
    Format, TraceError,
    blktrace::{is_blkparse, is_blktrace},
    csv::{is_generic, is_msr, is_ours, is_spc},
    error::excerpt,
    fio::is_fio,
    input::Input,
};

/// The number of lines at the beginning that are searched for an event of blkparse; other lines may
/// come first.
const BLKPARSE_LINES: usize = 20;

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let format = Self::ALL.into_iter().find(|format| format.name() == name);
        format.ok_or_else(|| TraceError::Option {
            what: "the trace format",
            found: name.to_owned(),
            expected: format!("one of {}", Self::NAMES),
        })
    }
}

/// Recognizes the format of a file.
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
        (Format::Spc, is_spc(first)),
        (Format::Generic, is_generic(first)),
    ];
    let found = candidates.into_iter().find(|(_, begins_so)| *begins_so);
    found.map(|(format, _)| format).ok_or_else(|| TraceError::UnknownFormat {
        path: path.to_owned(),
        found: beginning(&input.head, first),
    })
}

/// The compression of a file, if it is compressed.
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

/// The beginning of a file, for an error message.
fn beginning(head: &[u8], first_line: &str) -> String {
    let text = &head[..head.len().min(512)];
    if text.contains(&0) {
        let bytes: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        return format!("the bytes {}", bytes.join(" "));
    }
    excerpt(first_line)
}
