//! Checks that a device may be overwritten, before anything is written to it.
//!
//! Invariants
//! - A device that is mounted or in use, or that holds a filesystem, a partition table, a member of
//!   an array, anything else that `blkid` knows, or a label of Rackscan, is never written: who
//!   wants that must erase it first. Nobody can know other data, so the user says `--overwrite`,
//!   too.
//! - A file is written only if it begins with zeroes: text and images have no signature.
//! - If `blkid` cannot look, the device is not written.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rackscan_device::{Access, Device, OpenError};
use rackscan_format::label::{DeviceLabel, LABEL_COPIES, LabelError};
use rackscan_format::limits::SECTOR_BYTES;

/// Why a device is not overwritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotWritable {
    /// It is mounted or in use, or no device.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// It holds something.
    #[error(
        "{path}: it holds {found}, which the measurement would overwrite; choose another device, or erase this one with `wipefs --all`",
        path = path.display()
    )]
    Holds {
        /// The device.
        path: PathBuf,
        /// What it holds.
        found: String,
    },
    /// It is a file with data.
    #[error(
        "{path}: this file does not begin with zeroes, so it may hold data that the measurement would overwrite; make an empty one with `truncate --size 1G FILE`, or remove this one first",
        path = path.display()
    )]
    File {
        /// The file.
        path: PathBuf,
    },
    /// `blkid` failed.
    #[error(
        "{path}: cannot find out what it holds, so it is not overwritten: blkid (package util-linux) {reason}",
        path = path.display()
    )]
    Unknown {
        /// The device.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
}

/// Checks one device.
///
/// # Errors
/// [`NotWritable`] if it holds something known, or `blkid` cannot look.
pub fn check_writable(path: &Path) -> Result<(), NotWritable> {
    // Opening it exclusively fails if it is mounted, part of an array, or in use.
    drop(Device::open(path, Access::ReadWrite)?);
    let unknown = |reason: String| NotWritable::Unknown { path: path.to_owned(), reason };
    if has_label(path).map_err(|error| unknown(format!("was not asked: {error}")))? {
        let found = "a storage node's data (a label of Rackscan)".to_owned();
        return Err(NotWritable::Holds { path: path.to_owned(), found });
    }
    if holds_bytes(path).map_err(|error| unknown(format!("was not asked: {error}")))? {
        return Err(NotWritable::File { path: path.to_owned() });
    }
    let mut blkid = Command::new("blkid");
    blkid.args(["--probe", "--output", "export"]).arg(path).stdin(Stdio::null());
    let output = blkid.output().map_err(|error| unknown(format!("cannot be started: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_silent = output.stdout.is_empty() && output.stderr.is_empty();
    match output.status.code() {
        // Nothing was found; with words, it could not look.
        Some(2) if is_silent => Ok(()),
        // It is a partition, which holds nothing.
        Some(0)
            if text.lines().all(|line| line.starts_with("DEVNAME=") || line.starts_with("PART_ENTRY_")) =>
        {
            Ok(())
        }
        Some(0) => Err(NotWritable::Holds { path: path.to_owned(), found: found(&text) }),
        Some(8) => {
            let found = "signatures of several kinds".to_owned();
            Err(NotWritable::Holds { path: path.to_owned(), found })
        }
        _ => Err(unknown(format!("ended with {}", output.status))),
    }
}

/// Whether it is a file whose first MiB is not all zeroes.
fn holds_bytes(path: &Path) -> std::io::Result<bool> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    file.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(bytes.iter().any(|byte| *byte != 0))
}

/// Whether one of the copies of a label is there.
fn has_label(path: &Path) -> std::io::Result<bool> {
    let mut sectors = Vec::new();
    let copies_bytes = u64::from(SECTOR_BYTES) * LABEL_COPIES as u64;
    File::open(path)?.take(copies_bytes).read_to_end(&mut sectors)?;
    let is_label = |sector: &[u8]| {
        let label = DeviceLabel::from_sector(sector);
        !matches!(label, Err(LabelError::Blank | LabelError::Foreign { .. } | LabelError::Short { .. }))
    };
    Ok(sectors.chunks(SECTOR_BYTES as usize).any(is_label))
}

/// What blkid found, in words: `a filesystem (ext4)`, `a partition table (gpt)`.
fn found(export: &str) -> String {
    let value = |key: &str| {
        export.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    match (value("PTTYPE"), value("TYPE"), value("USAGE")) {
        (Some(table), ..) => format!("a partition table ({table})"),
        (_, Some(kind), Some(usage)) if usage != "filesystem" => format!("{kind} ({usage})"),
        (_, Some(kind), _) => format!("a filesystem ({kind})"),
        _ => "a signature that blkid knows".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_holds_is_told_in_words() {
        assert_eq!(found("DEVNAME=/dev/x\nPTTYPE=gpt\n"), "a partition table (gpt)");
        assert_eq!(found("DEVNAME=/dev/x\nTYPE=ext4\nUSAGE=filesystem\n"), "a filesystem (ext4)");
        assert_eq!(found("TYPE=linux_raid_member\nUSAGE=raid\n"), "linux_raid_member (raid)");
    }
}
