//! Opens the files of a participant at the start of a node, and recovers the participant from them.
//!
//! | file in the node's data folder | content |
//! |---|---|
//! | `transactions.log` | the log, `rackscan_ramp::log`; zeroes follow where disk space was reserved in advance |
//! | `transactions.log.new` | a shorter log while it is being written; never read |
//! | `transactions.log.fetched` | a replica while it is being fetched from another node, `recovery`; not read before it is complete |
//! | `transactions.log.cut` | bytes that were cut off the log because they are not whole records, `cut_file` |
//! | `transactions.generation` | which replicas of the log count, `copies/generation` |
//! | `transactions.life` | the encoded number of the participant's life: the time from one start of its node to the next |
//!
//! Invariants
//! - An invalid file stops the start; it is never overwritten or treated as empty.
//! - The number of a life is durable before the life begins, and is never reused: each life
//!   increments it. If the file is lost, counting starts at a random number.
//! - The damaged end of the log is cut off only after it is durable in the cut file and the nodes
//!   that may have the missing records were asked.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use az::SaturatingAs;
use rackscan_fabric::{Region, RegionError};
use rackscan_format::{
    codec::{self, CodecError, Envelope},
    message::LogGeneration,
};
use rackscan_ramp::{
    feed::Feed,
    item::SYSTEM_PREFIX,
    limits::LOG_HEADER_BYTES,
    log::{Cut, LogWriter, Tail, recover},
    participant::Participant,
    store::{Store, StoreOptions},
};

use super::{
    cut_file::{self, LOG_CUT},
    error::{ParticipantFileError, os},
    log_file::{Folder, LogFile},
    lost_end::DamagedLog,
    reader::LogReader,
    shared::ParticipantShared,
    slots::RegionSlots,
    writer::{LogThread, number_of, random, salt},
};
use crate::{
    config::Config, copies::GenerationFile, durable_file, error::StartError, lifecycle::Lifecycle,
    limits::LOG_CUT_BYTES, memory_plan::ParticipantPlan, message_queue::MessageQueue, metrics::Metrics,
};

const LOG: &str = "transactions.log";
const LOG_NEW: &str = "transactions.log.new";
const LOG_FETCHED: &str = "transactions.log.fetched";
const GENERATION: &str = "transactions.generation";
const LIFE: &str = "transactions.life";
const LIFE_NEW: &str = "transactions.life.new";

/// The folder and memory that a participant is made with.
#[derive(Debug)]
pub(super) struct ParticipantSetup {
    pub(super) folder: PathBuf,
    options: StoreOptions,
    slots: Region,
    feed: Region,
}

/// A participant that was recovered from its files.
#[derive(Debug)]
pub(super) struct RecoveredParticipant {
    pub(super) participant: Participant<RegionSlots>,
    pub(super) file: File,
    /// The end of its log.
    pub(super) end: Tail,
    /// The log's number.
    pub(super) number: u32,
    /// Bytes that were cut off its end.
    pub(super) cut_bytes: u64,
}

/// The state of a log at start.
#[derive(Debug)]
pub(super) enum LogState {
    /// It was read completely.
    Whole(Box<RecoveredParticipant>),
    /// It does not exist, and other nodes may have a replica.
    Lost,
    /// Its end is damaged, and other nodes may have a replica of it. Nothing was cut off yet, so
    /// that the next start finds the same damage.
    Damaged(DamagedLog),
}

/// What is ready before any thread starts: the participant, or everything but the participant where
/// its log is lost or damaged and other nodes may have a replica.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) shared: Arc<ParticipantShared>,
    pub(super) setting: ParticipantSetup,
    pub(super) begun: LogState,
    pub(super) copies_bytes: u64,
}

/// The paths of a node's log and of its new version.
pub(crate) fn log_files(config: &Config) -> [PathBuf; 2] {
    [LOG, LOG_NEW].map(|file| config.data_dir.join(file))
}

/// Reads or makes a participant, if the node is to keep keys.
pub(crate) fn open(
    config: &Config,
    plan: Option<ParticipantPlan>,
    lifecycle: &Arc<Lifecycle>,
    metrics: &Metrics,
) -> Result<Option<Opened>, StartError> {
    let folder = &config.data_dir;
    let path = folder.join(LOG);
    let Some(plan) = plan else {
        return match path.metadata() {
            Ok(found) if found.len() > LOG_HEADER_BYTES as u64 => {
                Err(ParticipantFileError::NoMemory { file: path, bytes: found.len() }.into())
            }
            _ => Ok(None),
        };
    };
    metrics.memory_taken(plan.bytes());
    let allocate = |bytes| Region::allocate(bytes).map_err(|error: RegionError| StartError::Region(error));
    let (slots, feed) = (allocate(plan.slots_bytes)?, allocate(plan.feed_bytes)?);
    let life = next_life(folder)?;
    let regions = (slots.clone(), feed.clone());
    let shared = Arc::new(ParticipantShared::new(regions, life, plan.transit_bytes, Arc::clone(lifecycle)));
    shared.gauges.budget_bytes.store(plan.versions_bytes as u64, std::sync::atomic::Ordering::Relaxed);
    let options = StoreOptions { budget_bytes: plan.versions_bytes, life };
    let setting = ParticipantSetup { folder: folder.clone(), options, slots, feed };
    // Other nodes know whether this is a new node or one that has lost its log.
    let has_replica_nodes = config.peers.iter().any(|peer| peer.node != config.node);
    let is_there = path.try_exists().map_err(os(&path, "looking for it"))?;
    let begun = match (has_replica_nodes, is_there) {
        (false, _) => LogState::Whole(Box::new(setting.recover()?)),
        (true, false) => LogState::Lost,
        (true, true) => setting.begin()?,
    };
    Ok(Some(Opened { shared, setting, begun, copies_bytes: plan.copies_bytes }))
}

impl ParticipantSetup {
    fn file(&self) -> Result<File, ParticipantFileError> {
        let path = self.log();
        let opening = OpenOptions::new().read(true).write(true).open(&path);
        opening.map_err(os(&path, "opening it"))
    }

    /// Recovers the participant from the log, if all of the log can be read.
    fn begin(&self) -> Result<LogState, ParticipantFileError> {
        let (path, file) = (self.log(), self.file()?);
        let (store, tail, cut) = read(&path, &file, self.options, RegionSlots(self.slots.clone()))?;
        let Some(cut) = cut else { return Ok(LogState::Whole(Box::new(self.found(file, store, tail, 0)?))) };
        drop(store);
        clear(&self.slots).map_err(os(&path, "forgetting what it holds"))?;
        let number = number_of(&file).map_err(os(&path, "reading it"))?;
        tracing::warn!(
            file = %path.display(), offset = cut.offset_bytes, bytes = cut.bytes, damage = %cut.damage,
            "the end of the log of transactions is damaged: the nodes with replicas are asked for it"
        );
        Ok(LogState::Damaged(DamagedLog { number, tail, cut_bytes: cut.bytes }))
    }

    /// Recovers the participant from the log; without a log, makes an empty one. Cuts off a damaged
    /// end.
    pub(super) fn recover(&self) -> Result<RecoveredParticipant, ParticipantFileError> {
        let Self { folder, options, slots, .. } = self;
        let path = folder.join(LOG);
        make(folder, &path)?;
        let mut file = self.file()?;
        let (store, end, cut) = read(&path, &file, *options, RegionSlots(slots.clone()))?;
        let cut_bytes = cut.as_ref().map_or(0, |cut| cut.bytes);
        if let Some(cut) = cut {
            cut_file::keep(folder, &file, cut.offset_bytes, cut.bytes, LOG_CUT_BYTES)?;
            file.cut(cut.offset_bytes).and_then(|()| file.sync_all()).map_err(os(&path, "cutting it"))?;
            tracing::warn!(
                file = %path.display(), offset = cut.offset_bytes, bytes = cut.bytes, damage = %cut.damage, kept = LOG_CUT,
                "the end of the log of transactions was cut off: it holds no whole record"
            );
        }
        self.found(file, store, end, cut_bytes)
    }

    fn found(
        &self,
        file: File,
        store: Store<RegionSlots>,
        end: Tail,
        cut_bytes: u64,
    ) -> Result<RecoveredParticipant, ParticipantFileError> {
        let Self { options, feed, .. } = self;
        // A fetched file that did not become the log is useless now.
        let _ = fs::remove_file(self.fetched());
        let number = number_of(&file).map_err(os(&self.log(), "reading it"))?;
        let participant = feeding(Participant::new(store, LogWriter::after(end)), feed, options.life);
        let status = participant.store().status();
        tracing::info!(
            life = options.life,
            keys = status.keys,
            in_doubt = status.in_doubt,
            log_bytes = end.offset_bytes,
            "the participant of transactions is ready"
        );
        Ok(RecoveredParticipant { participant, file, end, number, cut_bytes })
    }

    /// The generation of the log that this node knows.
    pub(super) fn generation(&self) -> Result<GenerationFile, ParticipantFileError> {
        let path = self.folder.join(GENERATION);
        GenerationFile::open(path.clone()).map_err(os(&path, "reading it"))
    }

    /// Makes a generation of the log durable.
    pub(super) fn begin_generation(&self, generation: &LogGeneration) -> Result<(), ParticipantFileError> {
        let written = self.generation()?.write(generation);
        written.map_err(os(&self.folder.join(GENERATION), "writing it"))
    }

    /// The path of the log.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    /// The path of the file that a log is fetched into.
    pub(super) fn fetched(&self) -> PathBuf {
        self.folder.join(LOG_FETCHED)
    }

    /// Makes the fetched file, which is durable, the log. Keeps the damaged end of the previous log
    /// in the cut file.
    pub(super) fn adopt(&self, damaged: Option<&DamagedLog>) -> Result<(), ParticipantFileError> {
        let path = self.folder.join(LOG);
        if let Some(DamagedLog { tail, cut_bytes, .. }) = damaged {
            cut_file::keep(&self.folder, &self.file()?, tail.offset_bytes, *cut_bytes, LOG_CUT_BYTES)?;
        }
        let adopted = fs::rename(self.fetched(), &path).and_then(|()| File::open(&self.folder)?.sync_all());
        adopted.map_err(os(&path, "putting it in place"))
    }
}

/// Clears the slots, because a store begins in zeroes. No peer has read them yet.
fn clear(slots: &Region) -> io::Result<()> {
    let zeroes = vec![0; 1 << 16];
    let mut at = 0;
    while at < slots.bytes() {
        let length = zeroes.len().min(slots.bytes() - at);
        slots.copy_in(at, &zeroes[..length]).map_err(|error| io::Error::other(error.to_string()))?;
        at += length;
    }
    Ok(())
}

/// Gives the participant an empty feed. A follower of an earlier life is told so, and scans the
/// present keys.
fn feeding(participant: Participant<RegionSlots>, feed: &Region, life: u64) -> Participant<RegionSlots> {
    match Feed::new(RegionSlots(feed.clone()), life) {
        Some(feed) => participant.feeding(feed, SYSTEM_PREFIX),
        // No participant has so little memory.
        None => participant,
    }
}

impl Opened {
    /// The state of the participant that all reactors see.
    pub(crate) fn shared(&self) -> Arc<ParticipantShared> {
        Arc::clone(&self.shared)
    }

    /// Bytes of memory for pieces of logs: of other logs on their way to replicas kept here, and of
    /// the own log on its way to others.
    pub(crate) fn copies_bytes(&self) -> u64 {
        self.copies_bytes
    }
}

/// Starts the thread of a log.
pub(super) fn start_log(
    setting: &ParticipantSetup,
    found: &RecoveredParticipant,
    config: &Config,
    first: Arc<MessageQueue>,
    lifecycle: &Arc<Lifecycle>,
) -> Result<(LogThread, JoinHandle<()>), StartError> {
    let folder = Folder::new(&setting.folder, LOG, LOG_NEW);
    let name = format!("n{}", config.node);
    let file =
        found.file.try_clone().map_err(|source| StartError::Os { action: "share the log's file", source })?;
    let thread = (name.as_str(), config.transactions_nice);
    let place = (folder, setting.generation()?);
    LogThread::start(thread, place, (file, found.end.offset_bytes), first, Arc::clone(lifecycle))
}

/// Makes the number of the next life durable.
fn next_life(folder: &Path) -> Result<u64, ParticipantFileError> {
    let file = folder.join(LIFE);
    let life = match fs::read(&file) {
        Ok(bytes) => {
            let before: Result<u64, CodecError> =
                codec::decode_envelope(Envelope::ParticipantLife, "the number of a life", &bytes);
            before
                .map_err(|source| ParticipantFileError::Life { file: file.clone(), source })?
                .wrapping_add(1)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            first_life().map_err(os(&file, "drawing a number"))?
        }
        Err(error) => return Err(os(&file, "reading it")(error)),
    };
    // Readers take 0 to mean no life.
    let life = life.max(1);
    let encoded = codec::encode_envelope(Envelope::ParticipantLife, &life);
    let encoded = encoded.map_err(|source| ParticipantFileError::Life { file: file.clone(), source })?;
    durable_file::replace(folder, LIFE_NEW, LIFE, &encoded).map_err(os(&file, "writing it"))?;
    Ok(life)
}

/// A random number far from the maximum, so that incrementing it does not wrap around.
fn first_life() -> io::Result<u64> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes) >> 1)
}

/// Makes an empty log, if there is none. The file is complete as soon as it has its name.
fn make(folder: &Path, path: &Path) -> Result<(), ParticipantFileError> {
    if path.try_exists().map_err(os(path, "looking for it"))? {
        return Ok(());
    }
    let salt = salt().map_err(os(path, "drawing a number"))?;
    let (header, _) = Tail::header(0, salt);
    let made = File::create(folder.join(LOG_NEW)).and_then(|mut new| {
        new.write_all(&header)?;
        new.sync_all()?;
        fs::rename(folder.join(LOG_NEW), path)?;
        File::open(folder)?.sync_all()
    });
    made.map_err(os(path, "making it"))
}

type Read = (Store<RegionSlots>, Tail, Option<Cut>);

/// Recovers the store from a log. Returns the store, the end of the log, and the damaged end if
/// there is one.
fn read(
    path: &Path,
    file: &File,
    options: StoreOptions,
    slots: RegionSlots,
) -> Result<Read, ParticipantFileError> {
    let end_bytes = file.metadata().map_err(os(path, "looking at it"))?.len();
    let mut header = vec![0; LOG_HEADER_BYTES.min(end_bytes.saturating_as::<usize>())];
    file.read_exact_at(&mut header, 0).map_err(os(path, "reading it"))?;
    let start = Tail::from_header(&header)
        .map_err(|source| ParticipantFileError::Header { file: path.to_owned(), source })?;
    let mut reader = LogReader::new(file, start, end_bytes);
    let budget_bytes = options.budget_bytes;
    let store = recover(options, slots, reader.by_ref());
    let store = store.map_err(|source| ParticipantFileError::Recover {
        file: path.to_owned(),
        source,
        budget_bytes,
    })?;
    // Records also end where the file could not be read: an error counts only then.
    let (tail, cut) = reader.finish().map_err(os(path, "reading it"))?;
    Ok((store, tail, cut))
}

#[cfg(test)]
mod tests {
    use rackscan_ramp::{
        item::{Key, Metadata, Value},
        log::Record,
        message::{Guard, Part},
        timestamp::{ClientId, Timestamp},
    };

    use super::*;

    /// A log, and where its last record begins.
    fn log() -> (Vec<u8>, Tail) {
        let (header, start) = Tail::header(0, 7);
        let mut writer = LogWriter::after(start);
        let mut before = start;
        for time in 1..=5 {
            let timestamp = Timestamp { time, client: ClientId(1) };
            let items = vec![(Key::new(b"key").unwrap(), Value::new(&[1; 100]).unwrap())];
            let (guard, metadata) = (Guard::Open, Metadata::Timestamp);
            writer.append(&Record::Put(Part { timestamp, participants: vec![], guard, metadata, items }));
            before = writer.tail();
            writer.append(&Record::Commit(timestamp));
        }
        ([&header[..], &writer.take_batch().unwrap().bytes].concat(), before)
    }

    #[test]
    fn a_damaged_end_is_left_where_it_is_and_what_was_read_before_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let allocate = || Region::allocate(1 << 20).unwrap();
        let (slots, feed) = (allocate(), allocate());
        let options = StoreOptions { budget_bytes: 1 << 20, life: 1 };
        let setting =
            ParticipantSetup { folder: folder.path().to_owned(), options, slots: slots.clone(), feed };
        let zeroes = vec![0; slots.bytes()];
        let (mut bytes, tail) = log();
        let last = bytes.len() - 1;
        fs::write(setting.log(), &bytes).unwrap();
        assert!(matches!(setting.begin().unwrap(), LogState::Whole(found) if found.number == 7));
        assert!(slots.to_vec(0, slots.bytes()).unwrap() != zeroes, "it has a key");
        bytes[last] ^= 1;
        fs::write(setting.log(), &bytes).unwrap();
        let begun = setting.begin().unwrap();
        let cut_bytes = bytes.len() as u64 - tail.offset_bytes;
        assert!(
            matches!(begun, LogState::Damaged(damaged) if damaged == DamagedLog { number: 7, tail, cut_bytes }),
            "{begun:?}"
        );
        assert!(slots.to_vec(0, slots.bytes()).unwrap() == zeroes, "a store begins in zeroes");
        assert!(fs::read(setting.log()).unwrap() == bytes && !folder.path().join(LOG_CUT).exists());
        // Asked in vain.
        fs::write(setting.fetched(), b"half a copy").unwrap();
        assert_eq!(setting.recover().unwrap().cut_bytes, cut_bytes);
        let from = usize::try_from(tail.offset_bytes).unwrap();
        assert_eq!(fs::read(folder.path().join(LOG_CUT)).unwrap(), bytes[from..]);
        assert!(!setting.fetched().exists(), "it is of no use any more");
    }

    #[test]
    fn a_life_is_never_lived_twice_and_a_damaged_number_is_not_guessed() {
        let folder = tempfile::tempdir().unwrap();
        let first = next_life(folder.path()).unwrap();
        assert_eq!(next_life(folder.path()).unwrap(), first + 1);
        fs::remove_file(folder.path().join(LIFE)).unwrap();
        let other = next_life(folder.path()).unwrap();
        assert!(other.abs_diff(first) > 2, "{other} after {first}");
        fs::write(folder.path().join(LIFE), b"nonsense that is no envelope").unwrap();
        let error = next_life(folder.path()).unwrap_err().to_string();
        assert!(error.contains(LIFE) && error.contains("remove it"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_log_stops_the_start_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOG);
        for bytes in [&b""[..], b"short", &[7; 4096]] {
            fs::write(&path, bytes).unwrap();
            make(folder.path(), &path).unwrap();
            let file = File::open(&path).unwrap();
            let slots = RegionSlots(Region::allocate(4096).unwrap());
            let options = StoreOptions { budget_bytes: 1 << 20, life: 1 };
            let error = read(&path, &file, options, slots).unwrap_err().to_string();
            assert!(error.contains(LOG) && error.contains("move it away"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
    }
}
