//! Which files does a home have, and what does a start make of them?
//!
//! | file, in the node's folder | |
//! |---|---|
//! | `transactions.log` | the log, `rackscan_ramp::log`; behind it zeroes where disk space was taken ahead |
//! | `transactions.log.new` | a new version being written; never read |
//! | `transactions.log.fetched` | a copy that is being fetched from another node, `recovery`; never read before it is whole |
//! | `transactions.log.cut` | bytes that were cut off the log because they are no whole records, `cut_file` |
//! | `transactions.generation` | which replicas of the log count, `copies/generation` |
//! | `transactions.life` | the number of the home's life, sealed |
//!
//! Invariants
//! - A file that is not what it should be stops the start; it is never overwritten or taken for an
//!   empty one.
//! - A life's number is durable before the life begins, and is never that of another one: the next
//!   one counts on, and where the file is lost the count begins at a random number.
//! - What is cut off the log is durable beside it before it is cut off, and not cut off before the
//!   nodes that may have the rest were asked.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use rackscan_fabric::{Region, RegionError};
use rackscan_format::{
    codec::{self, CodecError, Envelope},
    message::LogGeneration,
};
use rackscan_ramp::{
    feed::Feed,
    home::Home,
    item::SYSTEM_PREFIX,
    limits::LOG_HEADER_BYTES,
    log::{Cut, HeaderFault, LogWriter, RecoverError, Tail, recover},
    store::{Store, StoreOptions},
};

use super::{
    cut_file::{self, LOG_CUT},
    log_file::{Folder, LogFile},
    lost_end::Left,
    reader::LogReader,
    shared::HomeShared,
    slots::RegionSlots,
    writer::{LogThread, number_of, random, salt},
};
use crate::{
    config::Config, copies::GenerationFile, durable_file, error::StartError, lifecycle::Lifecycle,
    limits::LOG_CUT_BYTES, memory_plan::HomePlan, message_queue::MessageQueue, metrics::Metrics,
};

const LOG: &str = "transactions.log";
const LOG_NEW: &str = "transactions.log.new";
const LOG_FETCHED: &str = "transactions.log.fetched";
const GENERATION: &str = "transactions.generation";
const LIFE: &str = "transactions.life";
const LIFE_NEW: &str = "transactions.life.new";

/// Why a home's files are not used.
#[derive(Debug, thiserror::Error)]
pub enum HomeFileError {
    /// The system refused.
    #[error("{file}: {action} failed: {source}", file = file.display())]
    Os {
        /// The file or folder.
        file: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Not a log.
    #[error("{file}: {source}; restore it from a copy, or move it away to begin without what it holds", file = file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: HeaderFault,
    },
    /// A log that makes no store, or none that fits the memory.
    #[error(
        "{file}: {source}; it was written with a budget of more memory than {budget_bytes} bytes for versions (raise `transactions`), or by something else",
        file = file.display()
    )]
    Recover {
        /// The file.
        file: PathBuf,
        /// The first record at fault.
        source: RecoverError,
        /// What versions may take.
        budget_bytes: usize,
    },
    /// Other nodes keep copies, and none is what it should be.
    #[error(
        "{file}: the log is lost, and no copy in other nodes is what it should be: {reason}; put the best one in its place by hand",
        file = file.display()
    )]
    Copies {
        /// The log's file.
        file: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Keys were written, and the node is configured to keep none: whoever reads would not see
    /// them.
    #[error(
        "{file}: a file of {bytes} bytes with written keys and rows, and the configuration gives no memory for them: \
         set `transactions` above 0, or move the file away to begin without what it holds",
        file = file.display()
    )]
    NoMemory {
        /// The log's file.
        file: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// Not the number of a life.
    #[error("{file}: {source}; remove it: the count then begins at a random number", file = file.display())]
    Life {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: CodecError,
    },
}

pub(super) fn os(file: &Path, action: &'static str) -> impl Fn(io::Error) -> HomeFileError {
    move |source| HomeFileError::Os { file: file.to_owned(), action, source }
}

/// What a home is made with.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) folder: PathBuf,
    options: StoreOptions,
    slots: Region,
    feed: Region,
}

/// A home that was read from its files.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) home: Home<RegionSlots>,
    pub(super) file: File,
    /// Where its log ends.
    pub(super) end: Tail,
    /// The log's number.
    pub(super) number: u32,
    /// Bytes that were cut off its end.
    pub(super) cut_bytes: u64,
}

/// What there is of a log.
#[derive(Debug)]
pub(super) enum Begun {
    /// All that there was.
    Whole(Box<Found>),
    /// Nothing, and other nodes may have a copy.
    Lost,
    /// It has a damaged end, of which other nodes may have a copy. Nothing was cut off yet:
    /// whatever happens until then, the next start finds it damaged again.
    Damaged(Left),
}

/// What is ready before any thread is: the home, or, where its log is lost or damaged and other
/// nodes may have a copy, all but that.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) shared: Arc<HomeShared>,
    pub(super) setting: Setting,
    pub(super) begun: Begun,
    pub(super) copies_bytes: u64,
}

/// Where the log of a configuration's node is, and its new version.
pub(crate) fn log_files(config: &Config) -> [PathBuf; 2] {
    [LOG, LOG_NEW].map(|file| config.data_dir.join(file))
}

/// Reads or makes a home, if the node is to keep keys.
pub(crate) fn open(
    config: &Config,
    plan: Option<HomePlan>,
    lifecycle: &Arc<Lifecycle>,
    metrics: &Metrics,
) -> Result<Option<Opened>, StartError> {
    let folder = &config.data_dir;
    let path = folder.join(LOG);
    let Some(plan) = plan else {
        return match path.metadata() {
            Ok(found) if found.len() > LOG_HEADER_BYTES as u64 => {
                Err(HomeFileError::NoMemory { file: path, bytes: found.len() }.into())
            }
            _ => Ok(None),
        };
    };
    metrics.memory_taken(plan.bytes());
    let allocate = |bytes| Region::allocate(bytes).map_err(|error: RegionError| StartError::Region(error));
    let (slots, feed) = (allocate(plan.slots_bytes)?, allocate(plan.feed_bytes)?);
    let life = next_life(folder)?;
    let regions = (slots.clone(), feed.clone());
    let shared = Arc::new(HomeShared::new(regions, life, plan.transit_bytes, Arc::clone(lifecycle)));
    shared.gauges.budget_bytes.store(plan.versions_bytes as u64, std::sync::atomic::Ordering::Relaxed);
    let options = StoreOptions { budget_bytes: plan.versions_bytes, life };
    let setting = Setting { folder: folder.clone(), options, slots, feed };
    // Whether it is a new node or one that has lost its log, others know.
    let has_replica_nodes = config.peers.iter().any(|peer| peer.node != config.node);
    let is_there = path.try_exists().map_err(os(&path, "looking for it"))?;
    let begun = match (has_replica_nodes, is_there) {
        (false, _) => Begun::Whole(Box::new(setting.recover()?)),
        (true, false) => Begun::Lost,
        (true, true) => setting.begin()?,
    };
    Ok(Some(Opened { shared, setting, begun, copies_bytes: plan.copies_bytes }))
}

impl Setting {
    fn file(&self) -> Result<File, HomeFileError> {
        let path = self.log();
        let opening = OpenOptions::new().read(true).write(true).open(&path);
        opening.map_err(os(&path, "opening it"))
    }

    /// The home that the log makes, if all of it can be read.
    fn begin(&self) -> Result<Begun, HomeFileError> {
        let (path, file) = (self.log(), self.file()?);
        let (store, tail, cut) = read(&path, &file, self.options, RegionSlots(self.slots.clone()))?;
        let Some(cut) = cut else { return Ok(Begun::Whole(Box::new(self.found(file, store, tail, 0)?))) };
        drop(store);
        clear(&self.slots).map_err(os(&path, "forgetting what it holds"))?;
        let number = number_of(&file).map_err(os(&path, "reading it"))?;
        tracing::warn!(
            file = %path.display(), offset = cut.offset_bytes, bytes = cut.bytes, damage = %cut.damage,
            "the end of the log of transactions is damaged: the nodes that keep copies are asked for it"
        );
        Ok(Begun::Damaged(Left { number, tail, cut_bytes: cut.bytes }))
    }

    /// The home that the log makes, which is an empty one if there is none. A damaged end is cut
    /// off.
    pub(super) fn recover(&self) -> Result<Found, HomeFileError> {
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
    ) -> Result<Found, HomeFileError> {
        let Self { options, feed, .. } = self;
        // What was fetched and is not the log now is of no use any more.
        let _ = fs::remove_file(self.fetched());
        let number = number_of(&file).map_err(os(&self.log(), "reading it"))?;
        let home = feeding(Home::new(store, LogWriter::after(end)), feed, options.life);
        let status = home.store().status();
        tracing::info!(
            life = options.life,
            keys = status.keys,
            in_doubt = status.in_doubt,
            log_bytes = end.offset_bytes,
            "the home of transactions is ready"
        );
        Ok(Found { home, file, end, number, cut_bytes })
    }

    /// The generation of the log that this node knows.
    pub(super) fn generation(&self) -> Result<GenerationFile, HomeFileError> {
        let path = self.folder.join(GENERATION);
        GenerationFile::open(path.clone()).map_err(os(&path, "reading it"))
    }

    /// Makes a generation of the log durable.
    pub(super) fn begin_generation(&self, generation: &LogGeneration) -> Result<(), HomeFileError> {
        let written = self.generation()?.write(generation);
        written.map_err(os(&self.folder.join(GENERATION), "writing it"))
    }

    /// Where the log is.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    /// The file that a log is fetched into.
    pub(super) fn fetched(&self) -> PathBuf {
        self.folder.join(LOG_FETCHED)
    }

    /// Makes what was fetched, and is durable, the log. The damaged end of the one that there was
    /// is kept beside.
    pub(super) fn adopt(&self, left: Option<&Left>) -> Result<(), HomeFileError> {
        let path = self.folder.join(LOG);
        if let Some(Left { tail, cut_bytes, .. }) = left {
            cut_file::keep(&self.folder, &self.file()?, tail.offset_bytes, *cut_bytes, LOG_CUT_BYTES)?;
        }
        let adopted = fs::rename(self.fetched(), &path).and_then(|()| File::open(&self.folder)?.sync_all());
        adopted.map_err(os(&path, "putting it in place"))
    }
}

/// A store begins in zeroes. Nobody has read these slots yet.
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

/// The home with an empty feed: who followed an earlier life is told so, and asks what there is.
fn feeding(home: Home<RegionSlots>, feed: &Region, life: u64) -> Home<RegionSlots> {
    match Feed::new(RegionSlots(feed.clone()), life) {
        Some(feed) => home.feeding(feed, SYSTEM_PREFIX),
        // There is no home with so little memory.
        None => home,
    }
}

impl Opened {
    /// What all reactors know of it.
    pub(crate) fn shared(&self) -> Arc<HomeShared> {
        Arc::clone(&self.shared)
    }

    /// Bytes of memory for pieces of logs: on their way to copies kept here, and of its own on
    /// their way to others.
    pub(crate) fn copies_bytes(&self) -> u64 {
        self.copies_bytes
    }
}

/// The thread of a log.
pub(super) fn start_log(
    setting: &Setting,
    found: &Found,
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

/// Counts on.
fn next_life(folder: &Path) -> Result<u64, HomeFileError> {
    let file = folder.join(LIFE);
    let life = match fs::read(&file) {
        Ok(bytes) => {
            let before: Result<u64, CodecError> =
                codec::unseal(Envelope::HomeLife, "the number of a life", &bytes);
            before.map_err(|source| HomeFileError::Life { file: file.clone(), source })?.wrapping_add(1)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            first_life().map_err(os(&file, "drawing a number"))?
        }
        Err(error) => return Err(os(&file, "reading it")(error)),
    };
    // Readers take 0 for no life.
    let life = life.max(1);
    let sealed = codec::seal(Envelope::HomeLife, &life);
    let sealed = sealed.map_err(|source| HomeFileError::Life { file: file.clone(), source })?;
    durable_file::replace(folder, LIFE_NEW, LIFE, &sealed).map_err(os(&file, "writing it"))?;
    Ok(life)
}

/// Far from the end, so that counting on does not come back.
fn first_life() -> io::Result<u64> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes) >> 1)
}

/// Makes an empty log, if there is none. It is whole as soon as it has its name.
fn make(folder: &Path, path: &Path) -> Result<(), HomeFileError> {
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

/// The store that a log makes, where the log goes on, and what of it does not count.
fn read(path: &Path, file: &File, options: StoreOptions, slots: RegionSlots) -> Result<Read, HomeFileError> {
    let end_bytes = file.metadata().map_err(os(path, "looking at it"))?.len();
    let mut header = vec![0; LOG_HEADER_BYTES.min(usize::try_from(end_bytes).unwrap_or(usize::MAX))];
    file.read_exact_at(&mut header, 0).map_err(os(path, "reading it"))?;
    let start = Tail::from_header(&header)
        .map_err(|source| HomeFileError::Header { file: path.to_owned(), source })?;
    let mut reader = LogReader::new(file, start, end_bytes);
    let budget_bytes = options.budget_bytes;
    let store = recover(options, slots, reader.by_ref());
    let store =
        store.map_err(|source| HomeFileError::Recover { file: path.to_owned(), source, budget_bytes })?;
    // Records end as well where the file could not be read: only then it counts.
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
            writer.append(&Record::Put(Part { timestamp, homes: vec![], guard, metadata, items }));
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
        let setting = Setting { folder: folder.path().to_owned(), options, slots: slots.clone(), feed };
        let zeroes = vec![0; slots.bytes()];
        let (mut bytes, tail) = log();
        let last = bytes.len() - 1;
        fs::write(setting.log(), &bytes).unwrap();
        assert!(matches!(setting.begin().unwrap(), Begun::Whole(found) if found.number == 7));
        assert!(slots.to_vec(0, slots.bytes()).unwrap() != zeroes, "it has a key");
        bytes[last] ^= 1;
        fs::write(setting.log(), &bytes).unwrap();
        let begun = setting.begin().unwrap();
        let cut_bytes = bytes.len() as u64 - tail.offset_bytes;
        assert!(
            matches!(begun, Begun::Damaged(left) if left == Left { number: 7, tail, cut_bytes }),
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
