//! Provides the part of the participant's log that may be sent to other nodes: recent batches from
//! memory, older ones from the log's file.
//!
//! Recent batches are shared with the log's thread, not copied.
//!
//! Invariants
//! - The shared bytes are bounded: beyond the bound, batches that are in the file are dropped from
//!   memory. A slower replica is served from the file.
//! - The file is read only up to the position that the log's thread has reported as durable.

use std::{
    collections::VecDeque,
    fs::File,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use az::SaturatingAs;
use rackscan_format::message::LogGeneration;
use rackscan_ramp::log::{Batch, Tail};

use crate::participant::LogFile;

/// The participant's log, for the copier.
#[derive(Debug)]
pub(crate) struct Outlet {
    file: PathBuf,
    /// The file of a shorter log before the switch.
    new_version: PathBuf,
    shared_bytes_max: u64,
    state: Mutex<Option<State>>,
    /// The generation that is durable here; other nodes are told.
    generation: Mutex<Option<LogGeneration>>,
}

/// The number and extent of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogNow {
    /// Its number.
    pub(super) number: u32,
    /// Its end when it was begun or recovered: a replica of this log has it at least up to there.
    pub(super) start: Tail,
    /// Its end.
    pub(super) end: Tail,
}

#[derive(Debug)]
struct State {
    log: LogNow,
    /// The position up to which the file has it.
    filed_bytes: u64,
    shared: VecDeque<Arc<Batch>>,
    shared_bytes: u64,
    /// Number and end of a shorter log that will replace this one, as far as it is in its file.
    new_version: Option<(u32, Tail)>,
}

/// The location of some bytes of a log.
enum BytesLocation {
    Shared(Vec<Arc<Batch>>),
    /// In the file, up to this position.
    Filed(u64),
    /// In the file of the new version, up to this position.
    NewVersion(u64),
}

impl Outlet {
    /// An outlet for the log in this file, once there is one.
    pub(super) fn new(file: PathBuf, new_version: PathBuf, shared_bytes_max: u64) -> Self {
        Self { file, new_version, shared_bytes_max, state: Mutex::default(), generation: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the log; all of it is in its file.
    pub(super) fn begin(&self, number: u32, end: Tail) {
        let log = LogNow { number, start: end, end };
        let (shared, filed_bytes) = (VecDeque::new(), end.offset_bytes);
        *self.lock() = Some(State { log, filed_bytes, shared, shared_bytes: 0, new_version: None });
    }

    /// Sets the log's generation, which is durable here.
    pub(super) fn set_generation(&self, generation: LogGeneration) {
        *self.generation.lock().unwrap_or_else(PoisonError::into_inner) = Some(generation);
    }

    /// The log's generation, if there is one.
    pub(super) fn generation(&self) -> Option<LogGeneration> {
        self.generation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the shorter log that will replace the present one, as far as it is in its file; `None`
    /// if it was given up.
    pub(super) fn succeed(&self, new_version: Option<(u32, Tail)>) {
        if let Some(state) = &mut *self.lock() {
            state.new_version = new_version;
        }
    }

    /// Number and end of the log that will replace the present one, if there is one.
    pub(super) fn new_version(&self) -> Option<(u32, Tail)> {
        self.lock().as_ref().and_then(|state| state.new_version)
    }

    /// Adds a batch that was handed to the log's thread; the log ends at `end` now.
    pub(super) fn add(&self, batch: &Arc<Batch>, end: Tail) {
        if let Some(state) = &mut *self.lock() {
            state.log.end = end;
            state.shared_bytes += batch.bytes.len() as u64;
            state.shared.push_back(Arc::clone(batch));
            state.let_go(self.shared_bytes_max);
        }
    }

    /// Records that all records up to this one are in the file.
    pub(super) fn filed(&self, sequence: u64) {
        if let Some(state) = &mut *self.lock() {
            let filed = state.shared.iter().rfind(|batch| batch.sequence <= sequence);
            if let Some(batch) = filed {
                state.filed_bytes = state.filed_bytes.max(end_of(batch));
            }
            state.let_go(self.shared_bytes_max);
        }
    }

    /// The log, if there is one.
    pub(super) fn now(&self) -> Option<LogNow> {
        self.lock().as_ref().map(|state| state.log)
    }

    fn place(&self, number: u32, from: u64) -> Option<BytesLocation> {
        let state = self.lock();
        let state = state.as_ref()?;
        if let Some((_, end)) = state.new_version.filter(|(new_version, _)| *new_version == number) {
            return Some(BytesLocation::NewVersion(end.offset_bytes));
        }
        if state.log.number != number {
            return None;
        }
        let first = state.shared.front().map_or(state.log.end.offset_bytes, |batch| batch.offset_bytes);
        if from < first {
            return Some(BytesLocation::Filed(first.min(state.filed_bytes)));
        }
        let behind = state.shared.iter().skip_while(|batch| end_of(batch) <= from);
        Some(BytesLocation::Shared(behind.map(Arc::clone).collect()))
    }

    /// Reads at most `most` bytes of the log with this number, from `from` on, into `bytes`. Reads
    /// none if the log was replaced, or ends there.
    pub(super) fn read(
        &self,
        number: u32,
        from: u64,
        most: usize,
        file: &mut OpenLog,
        bytes: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        bytes.clear();
        match self.place(number, from) {
            None => {}
            Some(BytesLocation::Shared(batches)) => {
                for batch in batches {
                    if bytes.len() == most {
                        break;
                    }
                    let next = from + bytes.len() as u64;
                    assert!(batch.offset_bytes <= next, "a batch of the log is missing at {next}");
                    let at = from.saturating_sub(batch.offset_bytes).saturating_as::<usize>();
                    let rest = batch.bytes.get(at..).unwrap_or_default();
                    bytes.extend_from_slice(&rest[..rest.len().min(most - bytes.len())]);
                }
            }
            Some(place @ (BytesLocation::Filed(end) | BytesLocation::NewVersion(end))) => {
                let path =
                    if matches!(place, BytesLocation::Filed(_)) { &self.file } else { &self.new_version };
                if let Some(file) = file.of(path, number)? {
                    let length = end.saturating_sub(from).min(most as u64);
                    bytes.resize(length.saturating_as::<usize>(), 0);
                    file.read_at(bytes, from)?;
                }
            }
        }
        Ok(())
    }
}

impl State {
    fn let_go(&mut self, most_bytes: u64) {
        while self.shared_bytes > most_bytes
            && let Some(batch) = self.shared.pop_front_if(|batch| end_of(batch) <= self.filed_bytes)
        {
            self.shared_bytes -= batch.bytes.len() as u64;
        }
    }
}

fn end_of(batch: &Batch) -> u64 {
    batch.offset_bytes + batch.bytes.len() as u64
}

/// The open file of a log, reopened when the log is replaced.
#[derive(Debug, Default)]
pub(super) struct OpenLog(Option<(u32, File)>);

impl OpenLog {
    fn of(&mut self, path: &std::path::Path, number: u32) -> std::io::Result<Option<&File>> {
        if self.0.as_ref().is_none_or(|(found, _)| *found != number) {
            let file = File::open(path)?;
            let mut header = [0; rackscan_ramp::limits::LOG_HEADER_BYTES];
            file.read_at(&mut header, 0)?;
            // The file is replaced before the participant knows, so its number is read from it.
            self.0 = Tail::salt(&header).map(|found| (found, file));
        }
        Ok(self.0.as_ref().filter(|(found, _)| *found == number).map(|(_, file)| file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u32 = 7;

    fn batch(offset_bytes: u64, byte: u8) -> Arc<Batch> {
        Arc::new(Batch { offset_bytes, bytes: vec![byte; 100], sequence: offset_bytes / 100 })
    }

    fn tail(offset_bytes: u64) -> Tail {
        Tail { offset_bytes, sequence: offset_bytes / 100, checksum: 0 }
    }

    #[test]
    fn what_is_shared_is_bounded_by_what_the_file_has_and_every_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (header, _) = Tail::header(0, NUMBER);
        let all: Vec<u8> = header.iter().copied().chain((1..=9).flat_map(|byte| [byte; 100])).collect();
        std::fs::write(&path, &all[..24 + 500]).unwrap();
        let outlet = Outlet::new(path, folder.path().join("new"), 250);
        outlet.begin(NUMBER, tail(24));
        for number in 0..9 {
            let batch = batch(24 + number * 100, u8::try_from(number + 1).unwrap());
            outlet.add(&batch, tail(24 + number * 100 + 100));
        }
        assert_eq!(outlet.lock().as_ref().unwrap().shared.len(), 9, "none is in the file");
        outlet.filed(4);
        assert_eq!(outlet.lock().as_ref().unwrap().shared.len(), 4, "the file has the others");
        let (mut file, mut bytes, mut found) = (OpenLog::default(), Vec::new(), Vec::new());
        while found.len() < all.len() {
            outlet.read(NUMBER, found.len() as u64, 70, &mut file, &mut bytes).unwrap();
            assert!((1..=70).contains(&bytes.len()), "{} of {}", bytes.len(), found.len());
            found.extend_from_slice(&bytes);
        }
        assert_eq!(found, all);
        outlet.read(NUMBER, 924, 70, &mut file, &mut bytes).unwrap();
        assert!(bytes.is_empty(), "that is its end");
        outlet.read(NUMBER + 1, 0, 70, &mut file, &mut bytes).unwrap();
        assert!(bytes.is_empty(), "no such log");
    }

    #[test]
    fn batches_that_follow_one_another_are_read_together() {
        let outlet = Outlet::new("none".into(), "new".into(), 1000);
        outlet.begin(NUMBER, tail(24));
        for number in 0..3 {
            outlet.add(&batch(24 + number * 100, 7), tail(124 + number * 100));
        }
        let (mut file, mut bytes) = (OpenLog::default(), Vec::new());
        for (from, most, found) in [(24, 300, 300), (30, 200, 200), (124, 70, 70), (250, 300, 74)] {
            outlet.read(NUMBER, from, most, &mut file, &mut bytes).unwrap();
            assert_eq!(bytes, vec![7; found], "{most} bytes from {from}");
        }
    }

    #[test]
    #[should_panic(expected = "a batch of the log is missing at 124")]
    fn bytes_behind_a_gap_are_never_read() {
        let outlet = Outlet::new("none".into(), "new".into(), 1000);
        outlet.begin(NUMBER, tail(24));
        outlet.add(&batch(24, 7), tail(124));
        outlet.add(&batch(224, 7), tail(324));
        outlet.read(NUMBER, 24, 300, &mut OpenLog::default(), &mut Vec::new()).unwrap();
    }
}
