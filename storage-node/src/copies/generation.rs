//! Stores the newest generation of a log that this node knows, so that it survives any crash. A
//! generation is a numbered set of the log replicas that count.
//!
//! The file has two slots. A write overwrites the slot that is not the newest, so a torn write
//! leaves the newest intact. The file never grows, so once it exists, a full disk does not prevent
//! a write.
//!
//! | file | log |
//! |---|---|
//! | `transactions.generation` | the node's own log |
//! | `copies/<origin>.generation` | the log of the node with the id `<origin>` |
//!
//! Invariants
//! - The number of the stored generation only grows.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use az::SaturatingAs;
use rackscan_format::{
    codec::{self, Envelope},
    message::LogGeneration,
};

/// Bytes of each slot: each is in a sector of its own.
const SLOT_BYTES: usize = 512;
const SLOTS: usize = 2;
/// Bytes of a slot's length.
const LENGTH_BYTES: usize = 2;

/// The file, and the newest generation in it.
#[derive(Debug)]
pub(crate) struct GenerationFile {
    path: PathBuf,
    newest: Option<LogGeneration>,
    /// The slot of the newest generation.
    slot: usize,
}

impl GenerationFile {
    /// Opens the file. A file without a valid slot holds no generation, which is logged as a
    /// warning.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, newest: None, slot: 0 });
            }
            Err(error) => return Err(error),
        };
        let slots = bytes.chunks(SLOT_BYTES).take(SLOTS).enumerate();
        let whole = slots.filter_map(|(slot, bytes)| Some((slot, generation(bytes)?)));
        let (slot, newest) = whole.max_by_key(|(_, of)| of.number).unzip();
        if newest.is_none() {
            tracing::warn!(file = %path.display(), "the generation of a log of transactions is damaged: this node does not know it any more");
        }
        Ok(Self { path, newest, slot: slot.unwrap_or(0) })
    }

    /// The newest known generation.
    pub(crate) fn newest(&self) -> Option<&LogGeneration> {
        self.newest.as_ref()
    }

    /// The number of the newest generation; 0 for none.
    pub(crate) fn number(&self) -> u64 {
        self.newest.as_ref().map_or(0, |newest| newest.number)
    }

    /// Makes a generation durable, unless a newer one is known.
    pub(crate) fn write(&mut self, generation: &LogGeneration) -> io::Result<()> {
        if generation.number <= self.number() {
            return Ok(());
        }
        let bytes = slot(generation)?;
        let place = if self.newest.is_some() { (self.slot + 1) % SLOTS } else { self.slot };
        match OpenOptions::new().write(true).open(&self.path) {
            Ok(file) => {
                file.write_all_at(&bytes, (place * SLOT_BYTES) as u64)?;
                file.sync_data()?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(&bytes, place)?,
            Err(error) => return Err(error),
        }
        (self.newest, self.slot) = (Some(generation.clone()), place);
        Ok(())
    }

    /// Creates the file, which gets its name only when it is complete.
    fn create(&self, bytes: &[u8], place: usize) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let new = self.path.with_extension("generation.new");
        let file = File::create(&new)?;
        file.write_all_at(&[0; SLOTS * SLOT_BYTES], 0)?;
        file.write_all_at(bytes, (place * SLOT_BYTES) as u64)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        File::open(folder)?.sync_all()
    }
}

fn slot(generation: &LogGeneration) -> io::Result<[u8; SLOT_BYTES]> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
    let encoded = codec::encode_envelope(Envelope::LogGeneration, generation)
        .map_err(|error| invalid(error.to_string()))?;
    let mut slot = [0; SLOT_BYTES];
    let length = encoded.len().saturating_as::<u16>();
    let place = slot.get_mut(LENGTH_BYTES..LENGTH_BYTES + encoded.len());
    let place = place.ok_or_else(|| {
        invalid(format!("the encoded generation has {} bytes, which is too long", encoded.len()))
    })?;
    place.copy_from_slice(&encoded);
    slot[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(slot)
}

fn generation(slot: &[u8]) -> Option<LogGeneration> {
    let (length, rest) = slot.split_first_chunk::<LENGTH_BYTES>()?;
    let encoded = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
    codec::decode_envelope(Envelope::LogGeneration, "the generation of a log", encoded).ok()
}

#[cfg(test)]
mod tests {
    use rackscan_format::ids::NodeId;

    use super::*;

    fn of(number: u64) -> LogGeneration {
        LogGeneration { number, members: vec![NodeId(2), NodeId(3)], quorum: 2, began_after: 7 }
    }

    #[test]
    fn the_newest_generation_survives_a_torn_write_of_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copies/7.generation");
        let mut file = GenerationFile::open(path.clone()).unwrap();
        assert_eq!(file.number(), 0);
        for number in [1, 2, 3, 5, 7, 1 << 32, (1 << 32) + 1] {
            file.write(&of(number)).unwrap();
            assert_eq!(GenerationFile::open(path.clone()).unwrap().newest(), Some(&of(number)));
            let before = std::fs::read(&path).unwrap();
            let mut next = GenerationFile::open(path.clone()).unwrap();
            next.write(&of(number + 1)).unwrap();
            let after = std::fs::read(&path).unwrap();
            assert_eq!(after.len(), before.len(), "it does not grow");
            // As many of the bytes that differ as a torn write leaves, from one on.
            let differing: Vec<usize> = (0..after.len()).filter(|at| after[*at] != before[*at]).collect();
            for written in 1..differing.len() {
                let mut torn = before.clone();
                differing[..written].iter().for_each(|at| torn[*at] = after[*at]);
                std::fs::write(&path, &torn).unwrap();
                let found = GenerationFile::open(path.clone()).unwrap();
                assert!(found.number() == number || torn == after, "{number}: {written} bytes");
            }
            std::fs::write(&path, &before).unwrap();
        }
        file.write(&of(2)).unwrap();
        assert_eq!(GenerationFile::open(path.clone()).unwrap().number(), (1 << 32) + 1, "it only grows");
        std::fs::write(&path, [7; 1024]).unwrap();
        assert_eq!(GenerationFile::open(path).unwrap().newest(), None);
    }
}
