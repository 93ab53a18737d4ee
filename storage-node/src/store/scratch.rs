//! Manages the scratch area: a part of the first device that no table uses and where any client may
//! write.
//!
//! The laboratory and replays of traces write there. They also read there what was really written,
//! because a filesystem reads blocks that are only reserved without using the disk.
//!
//! ```text
//! start: read DATA/scratch -> it describes this area: use the area
//!                          -> else allocate free space, fill it, flush it, write DATA/scratch
//! ```
//!
//! Invariants
//! - The area is allocated before any load, and after the tables of the catalog, which have
//!   precedence.
//! - DATA/scratch records that an area is filled, and is written after that. If the file is lost or
//!   does not parse, the area is only filled again, so this is a warning.

use az::SaturatingAs;
use rackscan_device::{BufferPool, Completion, DeviceIndex, DeviceIo, Fsync, IoMemory, Token, Wait, Write};
use rackscan_format::{
    codec::{self, Envelope},
    limits::SECTOR_BYTES,
    message::ScratchArea,
};
use serde::{Deserialize, Serialize};

use super::{allocate::Space, devices::Devices, folder::Folder};
use crate::{
    config::Config,
    error::StartError,
    limits::{SCRATCH_DEPTH, SCRATCH_PIECE_BYTES},
};

const NAME: &str = "scratch";
const NAME_NEW: &str = "scratch.new";
/// The device that has the area.
pub(super) const DEVICE: usize = 0;
const DEVICE_INDEX: DeviceIndex = DeviceIndex(0);
const _: () = assert!(DEVICE_INDEX.0 as usize == DEVICE);
/// Progress lines in the log.
const PROGRESS_LINES: u64 = 10;

/// The content of DATA/scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The label of the device that was filled.
    device_label: u64,
    area: ScratchArea,
}

/// What is needed to keep or make an area.
#[derive(Debug)]
pub(super) struct Scratch<'n> {
    pub(super) config: &'n Config,
    pub(super) folder: &'n dyn Folder,
    pub(super) space: &'n Space,
    pub(super) devices: &'n dyn Devices,
    pub(super) device_label: u64,
}

impl Scratch<'_> {
    /// Claims the area of an earlier start, if it is as large as configured and free.
    pub(super) fn keep(&self) -> Option<ScratchArea> {
        let Record { device_label, area } = self.recorded()?;
        let wanted = self.wanted_bytes()?;
        let kept = device_label == self.device_label
            && area.length_bytes == wanted
            && area.offset_bytes.is_multiple_of(SECTOR_BYTES.into())
            && self.space.claim_range(DEVICE, area.offset_bytes, area.length_bytes);
        kept.then_some(area)
    }

    /// Allocates and fills an area, if one is configured.
    pub(super) fn make(&self) -> Result<Option<ScratchArea>, StartError> {
        let Some(length_bytes) = self.wanted_bytes() else {
            // An area that is no longer configured is free; the next start must not take it for
            // filled.
            let _absent = self.folder.remove(NAME);
            return Ok(None);
        };
        let path = || self.devices.facts()[DEVICE].path.clone();
        let no_room = |free_bytes| StartError::Scratch {
            path: path(),
            reason: format!(
                "{length_bytes} bytes in one piece are needed, {free_bytes} bytes are free; drop a table, \
                 make the device larger or scratch smaller"
            ),
        };
        let offset_bytes = self.space.reserve(DEVICE, length_bytes).map_err(no_room)?;
        let area = ScratchArea { offset_bytes, length_bytes };
        tracing::info!(device = %path().display(), length_bytes, offset_bytes, "filling the scratch area");
        fill(self.devices, area).map_err(|reason| StartError::Scratch {
            path: path(),
            reason: format!("filling it failed: {reason}"),
        })?;
        self.record(Record { device_label: self.device_label, area })?;
        Ok(Some(area))
    }

    /// The configured size in whole sectors.
    fn wanted_bytes(&self) -> Option<u64> {
        self.config.scratch.map(|size| size.0.next_multiple_of(SECTOR_BYTES.into()))
    }

    fn recorded(&self) -> Option<Record> {
        let bytes = self.folder.read(NAME).ok()?;
        match codec::decode_envelope(Envelope::Scratch, "the scratch record", &bytes) {
            Ok(record) => Some(record),
            Err(error) => {
                tracing::warn!(file = %self.folder.path(NAME).display(), %error, "the record of the scratch area is not valid: the area is filled again");
                None
            }
        }
    }

    fn record(&self, record: Record) -> Result<(), StartError> {
        let write = || {
            let bytes = codec::encode_envelope(Envelope::Scratch, &record).map_err(std::io::Error::other)?;
            let mut to = self.folder.create(NAME_NEW)?;
            to.write_all(&bytes)?;
            to.sync()?;
            self.folder.rename(NAME_NEW, NAME)
        };
        write().map_err(|source| StartError::Os { action: "write the record of the scratch area", source })
    }
}

/// Writes bytes that are neither zero nor equal in any two sectors, and makes them durable.
fn fill(devices: &dyn Devices, area: ScratchArea) -> Result<(), String> {
    let pool = BufferPool::new((SCRATCH_PIECE_BYTES * SCRATCH_DEPTH) as usize, SCRATCH_PIECE_BYTES as usize)
        .map_err(|e| e.to_string())?;
    let mut io = devices.io(SCRATCH_DEPTH).map_err(|error| error.to_string())?;
    let (mut begun, mut ended, mut told) = (0, 0, 0);
    while ended < area.length_bytes {
        while begun < area.length_bytes && io.in_flight() < SCRATCH_DEPTH {
            let length = (area.length_bytes - begun).min(SCRATCH_PIECE_BYTES.into());
            let mut buffer = pool.take(SCRATCH_PIECE_BYTES as usize).map_err(|error| error.to_string())?;
            mark(&mut buffer, area.offset_bytes + begun);
            let write = Write {
                device: DEVICE_INDEX,
                offset_bytes: area.offset_bytes + begun,
                length_bytes: length.saturating_as::<u32>(),
                from: IoMemory::Buffer(buffer),
                token: Token(length),
            };
            io.submit_write(write).map_err(|refused| refused.reason.to_string())?;
            begun += length;
        }
        ended += finish(&mut *io)?;
        if ended * PROGRESS_LINES / area.length_bytes > told {
            told = ended * PROGRESS_LINES / area.length_bytes;
            tracing::info!(percent = told * 100 / PROGRESS_LINES, "filling the scratch area");
        }
    }
    let fsync = Fsync { device: DEVICE_INDEX, token: Token(0) };
    io.submit_fsync(fsync).map_err(|refused| refused.reason.to_string())?;
    finish(&mut *io).map(drop)
}

/// Waits for at least one operation. Returns the bytes written by those that have ended.
fn finish(io: &mut dyn DeviceIo) -> Result<u64, String> {
    let mut outcome = Ok(0);
    let reaped = io.reap(Wait::ForOne, &mut |completion| match completion {
        Completion::Read { token, outcome: ended, .. }
        | Completion::Write { token, outcome: ended, .. }
        | Completion::Fsync { token, outcome: ended } => match (ended, &mut outcome) {
            (Ok(()), Ok(bytes)) => *bytes += token.0,
            (Err(fault), Ok(_)) => outcome = Err(fault.to_string()),
            (_, Err(_)) => {}
        },
        Completion::Ready { .. } => {}
    });
    reaped.map_err(|error| error.to_string())?;
    outcome
}

/// Fills with words without a pattern that a device could compress or a filesystem deduplicate,
/// different at every offset.
fn mark(bytes: &mut [u8], place: u64) {
    let mut state = place.wrapping_add(0x9e37_79b9_7f4a_7c15);
    for word in bytes.chunks_exact_mut(8) {
        // xorshift64*: never zero from a seed that is not.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        word.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sector_of_a_filled_area_is_zero_or_like_another() {
        let mut bytes = vec![0; 65_536];
        mark(&mut bytes[..32_768], 0);
        mark(&mut bytes[32_768..], 32_768);
        let sectors: std::collections::BTreeSet<&[u8]> = bytes.chunks(512).collect();
        assert_eq!(sectors.len(), 128);
        assert!(sectors.iter().all(|sector| sector.iter().any(|byte| *byte != 0)));
    }
}
