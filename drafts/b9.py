import os
os.chdir('.')
def sub(p,a,b,n=1):
    s=open(p).read()
    assert a in s,(p,a)
    s=s.replace(a,b,n); open(p,'w').write(s)
# 1. space of devices
p='storage-node/src/store/allocate.rs'
sub(p,'''//! - An extent that is given back is in no cache any more: nobody reads there what the next owner has replaced.
''','''//! - An extent that is given back is in no cache any more: nobody reads there what the next owner has replaced.
//! - The filesystem below a device file has the blocks of an extent back before the extent is free: a hole is never made in what the next owner has written.
''')
sub(p,'''    /// Pages in memory, which must not outlive their extents.
    cache: OnceLock<Arc<PageCache>>,
}
''','''    /// Pages in memory, which must not outlive their extents.
    cache: OnceLock<Arc<PageCache>>,
    /// The devices whose blocks go back to the filesystem.
    below: OnceLock<Below>,
}

/// What is below the extents.
#[derive(Debug)]
struct Below {
    devices: Arc<dyn Devices>,
    /// Of each device, whether it takes disk space only as it is written.
    is_sparse: Vec<bool>,
}
''')
sub(p,'''            metrics,
            cache: OnceLock::new(),
        }''','''            metrics,
            cache: OnceLock::new(),
            below: OnceLock::new(),
        }''')
sub(p,'''    /// The bytes of an extent are about to change''','''    /// From now on blocks of extents that are given back go back to the filesystem, where the device takes them as they are written.
    pub(super) fn release_to(&self, devices: Arc<dyn Devices>, is_sparse: Vec<bool>) {
        // A second call would be ignored; there is none.
        let _ = self.below.set(Below { devices, is_sparse });
    }

    /// Gives the filesystem the blocks of extents back that nobody reads or writes any more. Neighbours go together.
    fn release(&self, extents: impl Iterator<Item = Extent>) {
        let Some(Below { devices, is_sparse }) = self.below.get() else { return };
        let is_sparse = |extent: &Extent| is_sparse.get(usize::from(extent.device.0)) == Some(&true);
        let mut extents: Vec<Extent> = extents.filter(is_sparse).collect();
        extents.sort_unstable_by_key(|extent| (extent.device.0, extent.offset_bytes));
        let mut ranges: Vec<(usize, u64, u64)> = Vec::new();
        for Extent { device, offset_bytes, length_bytes } in extents {
            let (device, end) = (usize::from(device.0), offset_bytes + u64::from(length_bytes));
            match ranges.last_mut() {
                Some((before, _, end_before)) if *before == device && *end_before == offset_bytes => {
                    *end_before = end;
                }
                _ => ranges.push((device, offset_bytes, end)),
            }
        }
        for (device, begin, end) in ranges {
            if let Err(error) = devices.discard(device, begin, end - begin) {
                let path = self.rooms[device].path.display();
                tracing::warn!(device = %path, error, "unused blocks stay with the device file until the next start");
            }
        }
    }

    /// The bytes of an extent are about to change''')
sub(p,'''        pages.for_each(|page| self.space.withdraw(&page.extent));
        {''','''        pages.for_each(|page| self.space.withdraw(&page.extent));
        let pages = self.directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        self.space.release(pages.map(|page| page.extent));
        {''')
sub(p,'''use crate::metrics::Metrics;
''','''use super::devices::Devices;
use crate::metrics::Metrics;
''')
p='storage-node/src/store/mod.rs'
sub(p,'''        let scratch = Self::take_scratch(config, &*folder, &recovered)?;
''','''        let scratch = Self::take_scratch(config, &*folder, &recovered)?;
        let is_sparse = config.devices.iter().map(|device| !device.reserve).collect();
        recovered.space.release_to(Arc::clone(&recovered.devices), is_sparse);
''')
# 2. log room ahead
p='storage-node/src/limits.rs'
sub(p,'''/// Bytes of a log that are in memory while''','''/// Bytes of disk space that a log has ahead of its end, so that what was taken is never without room; half of it is the least. Nothing is taken that would not fit in it.
pub const LOG_AHEAD_BYTES: u64 = 12 << 20;
/// How many of these are for how transactions end that are prepared already.
pub const LOG_ENDS_BYTES: u64 = 1 << 20;
/// Bytes of a log that are in memory while''')
sub(p,'''// A record that begins in a window is''','''// The largest part of a transaction fits in the room ahead, beside ends.
const _: () = assert!(PART_BYTES_MAX as u64 + 2 * LOG_ENDS_BYTES <= LOG_AHEAD_BYTES / 2);
// A record that begins in a window is''')
p='storage-node/src/home/log_file.rs'
sub(p,'''    /// Makes durable what was written.
    fn sync''','''    /// Takes disk space up to `end_bytes` without making the file longer.
    fn reserve_ahead(&mut self, end_bytes: u64) -> io::Result<()>;
    /// Makes durable what was written.
    fn sync''')
sub(p,'''    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()''','''    fn reserve_ahead(&mut self, end_bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&*self, FallocateFlags::KEEP_SIZE, 0, end_bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()''')
p='storage-node/src/home/memory_disk.rs'
sub(p,'''    fn sync(&mut self) -> io::Result<()> {''','''    fn reserve_ahead(&mut self, end_bytes: u64) -> io::Result<()> {
        let is_there = !self.disk.reserves.load(SeqCst) || at(end_bytes) <= self.disk.room_bytes.load(SeqCst);
        if is_there { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn sync(&mut self) -> io::Result<()> {''')
p='storage-node/src/home/writer.rs'
sub(p,'''    /// There is no room for a batch; it is tried again.
    Full(String),''','''    /// There is no room for a batch, or ahead of the log; it is tried again.
    Full(String),
    /// There is room for the log up to there, whatever becomes of the disk.
    Ahead(u64),''')
sub(p,'''    generation: GenerationFile,
    /// A generation''','''    /// Up to where there is disk space that no file's length shows.
    ahead_bytes: u64,
    /// Whether there was too little of it last.
    is_tight: bool,
    generation: GenerationFile,
    /// A generation''')
sub(p,'''        Self { folder, file, end_bytes, reserved_bytes, waiting, compaction, generation, untold, report }
''','''        let (ahead_bytes, is_tight) = (0, false);
        Self {
            folder,
            file,
            end_bytes,
            reserved_bytes,
            waiting,
            compaction,
            ahead_bytes,
            is_tight,
            generation,
            untold,
            report,
        }
''')
sub(p,'''            Command::Generation(generation) => self.know(generation),
''','''            Command::Generation(generation) => self.know(generation),
            Command::Look => {
                (self.ahead_bytes, self.is_tight) = (0, false);
                self.look_ahead();
                Ok(())
            }
''')
sub(p,'''    /// To make the log's generation durable.
    Generation(LogGeneration),
}''','''    /// To make the log's generation durable.
    Generation(LogGeneration),
    /// To say how much room there is ahead of the log's end.
    Look,
}''')
sub(p,'''match (works, self.waiting.is_empty() && self.untold.is_none()) {''','''match (works, self.waiting.is_empty() && self.untold.is_none() && !self.is_tight) {''')
sub(p,'''        if self.waiting.is_empty() { Ok(()) } else { self.write() }''','''        if self.waiting.is_empty() {
            self.look_ahead();
            return Ok(());
        }
        self.write()''')
sub(p,'''                    (self.report)(Report::Full(format!("{}: {error}", self.folder.name())));
                    return Ok(());
                }
                Err(Fault::Unknown''','''                    self.is_tight = true;
                    (self.report)(Report::Full(format!("{}: {error}", self.folder.name())));
                    return Ok(());
                }
                Err(Fault::Unknown''')
sub(p,'''    fn append(&mut self, batch: &Batch) -> Result<(), Fault> {''','''    /// Takes disk space ahead of the log's end, if less than half of it is left, and says how much there is.
    fn look_ahead(&mut self) {
        let half = self.end_bytes + LOG_AHEAD_BYTES / 2;
        if !self.is_tight && half <= self.ahead_bytes {
            return;
        }
        let all = self.end_bytes + LOG_AHEAD_BYTES;
        let taken = match self.file.reserve_ahead(all) {
            Err(error) if is_full(&error) => self.file.reserve_ahead(half).map(|()| half),
            outcome => outcome.map(|()| all),
        };
        match taken {
            Err(error) if is_full(&error) => {
                if !std::mem::replace(&mut self.is_tight, true) {
                    (self.report)(Report::Full(format!("{}: {error}", self.folder.name())));
                }
            }
            // What cannot be reserved shows when it is written.
            outcome => {
                (self.ahead_bytes, self.is_tight) = (outcome.unwrap_or(all), false);
                (self.report)(Report::Ahead(self.ahead_bytes));
            }
        }
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Fault> {''')
sub(p,'''                self.reserved_bytes = batch.offset_bytes;
''','''                (self.reserved_bytes, self.ahead_bytes) = (batch.offset_bytes, batch.offset_bytes);
''')
s=open(p).read()
i=s.index('    /// Writes what waits, as far as there is room.'); j=s.index('    /// Takes disk space ahead of the log')
blk=s[i:j]
k=blk.rindex('        Ok(())\n    }\n')
blk=blk[:k]+'        self.look_ahead();\n'+blk[k:]
s=s[:i]+blk+s[j:]
s=s.replace('''        (self.report)(Report::Switched(log, number));
        Ok(())''','''        self.ahead_bytes = 0;
        (self.report)(Report::Switched(log, number));
        Ok(())''')
s=s.replace('limits::{LOG_QUEUE_MAX, LOG_RETRY, LOG_STEP_BYTES},','limits::{LOG_AHEAD_BYTES, LOG_QUEUE_MAX, LOG_RETRY, LOG_STEP_BYTES},')
s=s.replace('''//! - A full disk loses nothing: what was written''','''//! - There is disk space ahead of the log's end, of which the home is told: what it takes fits there, so a disk that becomes full leaves nothing in doubt.
//! - A full disk loses nothing: what was written''')
open(p,'w').write(s)
p='storage-node/src/home/service.rs'
s=open(p).read()
s=s.replace('''    disk_full: Option<String>,
''','''    disk_full: Option<String>,
    /// Up to where the disk has room for the log, whatever happens.
    ahead_bytes: u64,
''')
s=s.replace('''            disk_full: None,
''','''            disk_full: None,
            ahead_bytes: 0,
''')
s=s.replace('''        if self.is_still() && asked.messages.iter().any(may_record) {
            self.stalled.push_back(asked);''','''        let is_still = self.is_still() && asked.messages.iter().any(may_record);
        if is_still || !self.has_room(&asked.messages) {
            self.stalled.push_back(asked);''')
s=s.replace('''    /// Whether nothing may be added to the log.
''','''    /// Whether what is asked for would fit on the disk, or is refused because nothing does.
    fn has_room(&mut self, messages: &[Request]) -> bool {
        let recorded = messages.iter().filter(|message| {
            matches!(message, Request::Prepare { .. } | Request::Put { .. })
        });
        let bytes: usize = recorded.map(Request::memory_bytes).sum();
        let end = self.home.log_mut().tail().offset_bytes + bytes as u64 + LOG_ENDS_BYTES;
        bytes == 0 || self.disk_full.is_some() || end <= self.ahead_bytes
    }

    /// There is room, or there is none: what waited for that is done, or refused.
    fn look_at_stalled(&mut self) {
        if self.is_still() {
            return;
        }
        for asked in std::mem::take(&mut self.stalled) {
            if self.has_room(&asked.messages) { self.serve(asked) } else { self.stalled.push_back(asked) }
        }
    }

    /// Whether nothing may be added to the log.
''')
s=s.replace('''                if self.disk_full.take().is_some() {
                    tracing::info!("the log of transactions has room again");
                }
                self.filed(sequence);''','''                self.filed(sequence);''')
s=s.replace('''                self.disk_full = Some(reason);
            }''','''                self.disk_full = Some(reason);
                self.tell();
                self.look_at_stalled();
            }
            Report::Ahead(bytes) => {
                self.ahead_bytes = bytes;
                if self.disk_full.take().is_some() {
                    tracing::info!("the log of transactions has room again");
                    self.tell();
                }
                self.look_at_stalled();
            }''')
s=s.replace('''                self.durability.here(sequence);
                self.log_replaced(number);
                self.go_on();''','''                self.durability.here(sequence);
                self.log_replaced(number);
                // Of the new file, which is heard of next.
                self.ahead_bytes = 0;
                self.go_on();''')
s=s.replace('''        self.stage = LogStage::Grows;
        for asked in std::mem::take(&mut self.stalled) {
            self.serve(asked);
        }
''','''        self.stage = LogStage::Grows;
        self.look_at_stalled();
''')
s=s.replace('''            Some(why) => Some(Refusal::Unrecorded { why }),
            None => full.then_some(Refusal::LogFull),
        });''','''            Some(why) => Some(Refusal::Unrecorded { why }),
            None => match &self.disk_full {
                Some(reason) => Some(Refusal::Unrecorded { why: disk_is_full(self.id, reason) }),
                None => full.then_some(Refusal::LogFull),
            },
        });''')
s=s.replace('''        self.shared.refuses_writes(shortage.clone());''','''        let disk = self.disk_full.as_ref().map(|reason| disk_is_full(self.id, reason));
        self.shared.refuses_writes(shortage.clone().or(disk));''')
s=s.replace('''/// Whether a message may add a record to the log.
''','''/// What is said to who writes.
fn disk_is_full(id: HomeId, reason: &str) -> String {
    format!(
        "the disk of node {} is full: {reason}; expected {} bytes free there for the log: free some space, and writes go on by themselves",
        id.0,
        LOG_AHEAD_BYTES / 2
    )
}

/// Whether a message may add a record to the log.
''')
s=s.replace('limits::{COLLECTED_PER_TURN, LOG_COMPACT_BYTES, LOG_COMPACT_FACTOR, LOG_COMPACT_RETRY},','limits::{\n        COLLECTED_PER_TURN, LOG_AHEAD_BYTES, LOG_COMPACT_BYTES, LOG_COMPACT_FACTOR, LOG_COMPACT_RETRY,\n        LOG_ENDS_BYTES,\n    },')
open(p,'w').write(s)
# unit tests of the writer
p='storage-node/src/home/writer/tests.rs'
s=open(p).read()
s=s.replace('''            Report::Full(_) => "full".to_owned(),
''','''            Report::Full(_) => "full".to_owned(),
            Report::Ahead(_) => "room".to_owned(),
''')
s=s.replace('(vec!["logged 2".to_owned()], 1)','(vec!["logged 2".to_owned(), "room".to_owned()], 1)')
s=s.replace('assert_eq!(bench.told(), ["full"], "and nothing','assert_eq!(bench.told(), ["full"], "and nothing')
s=s.replace('assert_eq!(bench.told(), ["logged 2", "logged 3"]);','assert_eq!(bench.told(), ["logged 2", "logged 3", "room"]);')
s=s.replace('assert_eq!(bench.told(), ["logged 2", "not shortened"]);','assert_eq!(bench.told(), ["logged 2", "room", "not shortened"]);')
s=s.replace('''    let Some(Report::Switched(log, _)) = bench.reports.borrow_mut().pop() else { panic!("not switched") };
''','''    let reports = std::mem::take(&mut *bench.reports.borrow_mut());
    let switched = reports.into_iter().find_map(|report| match report {
        Report::Switched(log, _) => Some(log),
        _ => None,
    });
    let log = switched.expect("it is switched");
''')
s+='''
#[test]
fn room_is_taken_ahead_so_that_a_disk_that_becomes_full_leaves_nothing_in_doubt() {
    let mut bench = Bench::new();
    bench.prepare(1, 1000);
    bench.write().unwrap();
    assert_eq!(bench.told(), ["logged 1", "room"]);
    // Somebody else takes all the rest.
    bench.disk.disk.room_bytes.store(usize::try_from(bench.writing.ahead_bytes).unwrap(), SeqCst);
    let mut time = 1;
    while !bench.writing.is_tight {
        time += 1;
        bench.prepare(time, 500_000);
        bench.write().unwrap();
        assert!(time < 100, "it is never full");
    }
    let told = bench.told();
    assert!(told.last().is_some_and(|last| last == "full") && told.len() == usize::try_from(time).unwrap(), "{told:?}");
    // What is prepared ends all the same.
    for end in 1..=time {
        bench.commit(end);
    }
    bench.write().unwrap();
    assert_eq!(bench.told(), [format!("logged {}", 2 * time)]);
    assert_eq!(bench.recovered().snapshot(), bench.store.snapshot());
    bench.disk.disk.room_bytes.store(usize::MAX, SeqCst);
    bench.writing.retry().unwrap();
    assert_eq!(bench.told(), ["room"]);
}
'''
open(p,'w').write(s)
p='storage-node/src/peers/copier.rs'
s=open(p).read()
s=s.replace('''/// What the home is told of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]''','''/// What the home is told of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]''')
s=s.replace('''    /// It cannot be reached any more, and why.
    Lost { other: usize },
''','''    /// It cannot be reached any more.
    Lost { other: usize },
    /// Its disk is full, as it says.
    Full { other: usize, reason: String },
''')
s=s.replace('''                    "a node keeps no replica of the log of transactions now"
                );
            }
            return Ok(Vec::new());''','''                    "a node keeps no replica of the log of transactions now"
                );
            }
            let full = outcome.as_ref().err().filter(|refusal| refusal.code == RefusalCode::Full);
            let full = full.map(|refusal| Copied::Full { other: copy, reason: refusal.text.clone() });
            return Ok(full.into_iter().collect());''')
s=s.replace('Parcel, Refusal, Request, Target},','Parcel, Refusal, RefusalCode, Request, Target},')
open(p,'w').write(s)
p='storage-node/src/home/copying.rs'
s=open(p).read()
s=s.replace('''                if self.durability.copied(copy, sequence) {
                    tracing''','''                self.replica_faults.remove(&copy);
                if self.durability.copied(copy, sequence) {
                    tracing''')
s=s.replace('''            Copied::Lost { other } => {''','''            Copied::Full { other, reason } => {
                self.durability.lost(other);
                self.replica_faults.insert(other, reason);
                self.acknowledge();
            }
            Copied::Lost { other } => {''')
s=s.replace('''            Shortage::Replicas { unavailable } => format!(
                "{} of {keepers} log replicas of node {id} are unavailable; expected at least {} available (log_replicas_min): start node {}",
                unavailable.len(),
                self.log_replicas_min,
                named(&unavailable)
            ),''','''            Shortage::Replicas { unavailable } => {
                let faults = unavailable.iter().filter_map(|other| {
                    Some(format!("; node {}: {}", self.other(*other), self.replica_faults.get(other)?))
                });
                format!(
                    "{} of {keepers} log replicas of node {id} are unavailable; expected at least {} available (log_replicas_min): start node {}{}",
                    unavailable.len(),
                    self.log_replicas_min,
                    named(&unavailable),
                    faults.collect::<String>()
                )
            }''')
open(p,'w').write(s)
p='storage-node/src/home/service.rs'
s=open(p).read()
s=s.replace('''    disk_full: Option<String>,
    /// Up to where''','''    disk_full: Option<String>,
    /// Why replicas take nothing, by their numbers: their disks are full.
    pub(super) replica_faults: BTreeMap<usize, String>,
    /// Up to where''')
s=s.replace('''            ahead_bytes: 0,
''','''            replica_faults: BTreeMap::new(),
            ahead_bytes: 0,
''',1)
s=s.replace('    collections::VecDeque,\n','    collections::{BTreeMap, VecDeque},\n')
open(p,'w').write(s)

p='storage-node/src/home/copying.rs'
sub(p,'''            peers.log_begins(number, end);
        }
        self.acknowledge();''','''            peers.log_begins(number, end);
        }
        self.log.ask(Command::Look);
        self.acknowledge();''')
sub('storage-node/src/limits.rs',"the snapshot, the switch, a generation.\npub const LOG_QUEUE_MAX: usize = 5;","the snapshot, the switch, a generation, a look at the room.\npub const LOG_QUEUE_MAX: usize = 6;")
