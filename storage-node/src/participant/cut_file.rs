//! Saves the bytes that are cut off the end of a log or a log replica, in a file beside it.
//!
//! Bytes are cut off a log from its first damaged record on; acknowledged records may follow there,
//! which an operator may need. Bytes are cut off a replica if the log that it copies continues
//! differently.
//!
//! Invariants
//! - The bytes are durable in the file, all of them, before they are cut off.
//! - The file is no longer than its bound, or than the newest cut if that is longer. To make room,
//!   earlier cuts are dropped with a warning.
//! - Earlier cuts are removed only when the file that replaces them is durable.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use az::SaturatingAs;

use super::error::{ParticipantFileError, os};

/// The file's name, in the folder of the log.
pub(super) const LOG_CUT: &str = "transactions.log.cut";

/// Copies `bytes` bytes of a log, from `offset_bytes` on, to its cut file: behind the earlier cuts
/// if both take at most `most_bytes`, else in their place.
pub(super) fn keep(
    folder: &Path,
    log: &File,
    offset_bytes: u64,
    bytes: u64,
    most_bytes: u64,
) -> Result<(), ParticipantFileError> {
    let path = folder.join(LOG_CUT);
    keep_in(&path, log, offset_bytes, bytes, most_bytes).map_err(os(&path, "keeping what is cut off the log"))
}

/// The same for any file.
pub(crate) fn keep_in(
    path: &Path,
    log: &File,
    offset_bytes: u64,
    bytes: u64,
    most_bytes: u64,
) -> io::Result<()> {
    let held_bytes = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let fits = held_bytes.checked_add(bytes).is_some_and(|all| all <= most_bytes);
    let kept = if fits {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|kept| copy(log, offset_bytes, bytes, kept))
    } else {
        let new = path.with_extension("cut.new");
        let written = File::create(&new).and_then(|kept| copy(log, offset_bytes, bytes, kept));
        written.and_then(|()| fs::rename(&new, path))
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    kept.and_then(|()| File::open(folder)?.sync_all())?;
    if !fits && held_bytes > 0 {
        tracing::warn!(
            file = %path.display(), left_out_bytes = held_bytes, kept_bytes = bytes, most_bytes,
            "bytes that were cut off a log of transactions earlier were dropped to save those that are cut off now"
        );
    }
    Ok(())
}

/// Appends bytes of a log to a file, durably.
fn copy(log: &File, from: u64, bytes: u64, mut into: File) -> io::Result<()> {
    let mut piece = vec![0; 1 << 16];
    let (mut at, end) = (from, from + bytes);
    while at < end {
        let length = (end - at).min(piece.len() as u64);
        let piece = &mut piece[..length.saturating_as::<usize>()];
        log.read_exact_at(piece, at)?;
        into.write_all(piece)?;
        at += length;
    }
    into.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_cuts_is_bounded_and_the_newest_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log: Vec<u8> = (0..200_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        fs::write(&path, &log).unwrap();
        let file = File::open(&path).unwrap();
        let kept = |from: usize, bytes: usize| {
            keep(folder.path(), &file, from as u64, bytes as u64, 100).unwrap();
            fs::read(folder.path().join(LOG_CUT)).unwrap()
        };
        assert_eq!(kept(5, 60), log[5..65]);
        assert_eq!(kept(70, 40), [&log[5..65], &log[70..110]].concat(), "as many as fit");
        assert_eq!(kept(7, 1), log[7..8], "earlier ones are left out");
        assert_eq!(kept(9, 150_000), log[9..150_009], "a long one is whole");
        assert_eq!(kept(3, 99), log[3..102]);
        assert_eq!(kept(0, 1), [&log[3..102], &log[..1]].concat());
        assert!(!folder.path().join("transactions.log.cut.new").exists());
    }
}
