//! Tests that the log's thread reports only what is in the log, and that nothing it reported is
//! lost, whatever the disk does. Method: the parts of the thread, called in order over a simulated
//! disk.

use std::{cell::RefCell, rc::Rc, sync::atomic::Ordering::SeqCst};

use rackscan_ramp::{
    item::{Key, Metadata, Value},
    log::{LogWriter, Record, read, recover},
    message::{Guard, Part, ParticipantId, Vote},
    slot::SlotVector,
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};

use super::*;
use crate::participant::memory_disk::{MemoryFile, MemoryFolder};

/// A participant's store and log over a disk in memory.
struct Bench {
    generations: tempfile::TempDir,
    folder: MemoryFolder,
    disk: MemoryFile,
    writing: LogThreadState<MemoryFolder, Box<dyn Fn(Report)>>,
    reports: Rc<RefCell<Vec<Report>>>,
    log: LogWriter,
    store: Store<SlotVector>,
}

const OPTIONS: StoreOptions = StoreOptions { budget_bytes: 64 << 20, life: 1 };

fn store() -> Store<SlotVector> {
    Store::new(OPTIONS, SlotVector::zeroed(4096))
}

fn at(time: u64) -> Timestamp {
    Timestamp { time, client: ClientId(1) }
}

fn part(time: u64, bytes: usize) -> Part {
    let key = Key::new(format!("key{}", time % 50).as_bytes()).unwrap();
    let items = vec![(key, Value::new(&vec![7; bytes]).unwrap())];
    // Another participant has a vote, too: it is committed by a record of its own.
    let participants = vec![ParticipantId(0), ParticipantId(1)];
    Part { timestamp: at(time), participants, guard: Guard::Open, metadata: Metadata::Timestamp, items }
}

impl Bench {
    fn new() -> Self {
        let (header, start) = Tail::header(0, 9);
        let disk = MemoryFile::of(&header);
        let folder = MemoryFolder::with(&disk);
        let reports = Rc::new(RefCell::new(Vec::new()));
        let told = Rc::clone(&reports);
        let report: Box<dyn Fn(Report)> = Box::new(move |report| told.borrow_mut().push(report));
        let generations = tempfile::tempdir().unwrap();
        let generation = GenerationFile::open(generations.path().join("generation")).unwrap();
        let writing =
            LogThreadState::new((folder.clone(), generation), disk.clone(), start.offset_bytes, report);
        Self { generations, folder, disk, writing, reports, log: LogWriter::after(start), store: store() }
    }

    fn prepare(&mut self, time: u64, bytes: usize) {
        let part = part(time, bytes);
        self.store.prepare(&part).unwrap();
        self.log.append(&Record::Prepare(part));
    }

    fn commit(&mut self, time: u64) {
        self.store.commit(at(time));
        self.log.append(&Record::Commit(at(time)));
    }

    fn write(&mut self) -> Result<(), Fatal> {
        let batch = self.log.take_batch().unwrap();
        self.writing.serve(Command::Write(Arc::new(batch)))
    }

    /// What the participant was told since this was last called.
    fn told(&self) -> Vec<String> {
        let name = |report: Report| match report {
            Report::Logged(sequence) => format!("logged {sequence}"),
            Report::Full(_) => "full".to_owned(),
            Report::Ahead(_) => "room".to_owned(),
            Report::Shortened(..) => "shortened".to_owned(),
            Report::NotShortened => "not shortened".to_owned(),
            Report::Switched(log, _) => format!("switched {}", log.sequence()),
            Report::Generation(generation) => format!("generation {}", generation.number),
        };
        self.reports.borrow_mut().drain(..).map(name).collect()
    }

    /// The store that a crash at this moment would leave.
    fn recovered(&self) -> Store<SlotVector> {
        let log = self.folder.log();
        let start = Tail::from_header(&log).unwrap();
        let (records, _, cut) = read(start, &log[24..]);
        assert_eq!(cut, None, "no half of a batch stays in the log");
        recover(OPTIONS, SlotVector::zeroed(4096), records).unwrap()
    }

    /// A log with one record, and a shorter one that is ready for the switch.
    fn make_shorter_log_ready(&mut self) {
        self.prepare(1, 1000);
        self.write().unwrap();
        self.shorten();
        while self.writing.compaction.as_ref().is_some_and(|compaction| !compaction.is_ready()) {
            self.writing.shorten();
        }
        self.told();
    }

    fn shorten(&mut self) {
        let (tail, snapshot) = (self.log.tail(), self.store.snapshot());
        self.writing.serve(Command::Shorten(Box::new(snapshot), tail)).unwrap();
    }
}

#[test]
fn a_batch_is_reported_when_it_was_flushed_once() {
    let mut bench = Bench::new();
    bench.prepare(1, 100);
    bench.prepare(2, 100);
    bench.write().unwrap();
    assert_eq!(
        (bench.told(), bench.disk.disk.syncs.load(SeqCst)),
        (vec!["logged 2".to_owned(), "room".to_owned()], 1)
    );
    assert_eq!(bench.recovered().snapshot(), bench.store.snapshot());
}

#[test]
fn a_full_disk_loses_nothing_and_goes_on_when_there_is_room() {
    for reserves in [true, false] {
        let mut bench = Bench::new();
        bench.disk.disk.reserves.store(reserves, SeqCst);
        bench.prepare(1, 1000);
        bench.write().unwrap();
        let before = bench.recovered().snapshot();
        bench.told();
        let room = bench.folder.log().len().min(1200) + 500;
        bench.disk.disk.room_bytes.store(room, SeqCst);
        bench.disk.cut(1100).unwrap();
        bench.writing.reserved_bytes = bench.writing.end_bytes;
        bench.prepare(2, 3000);
        bench.write().unwrap();
        bench.prepare(3, 10);
        bench.write().unwrap();
        assert_eq!(bench.told(), ["full"], "and nothing behind it is written before it");
        assert_eq!(bench.recovered().snapshot(), before, "what was written of it is gone");
        bench.writing.retry().unwrap();
        assert_eq!(bench.told(), ["full"]);
        bench.disk.disk.room_bytes.store(usize::MAX, SeqCst);
        bench.writing.retry().unwrap();
        assert_eq!(bench.told(), ["logged 2", "logged 3", "room"]);
        assert_eq!(bench.recovered().snapshot(), bench.store.snapshot());
    }
}

#[test]
fn a_flush_that_fails_ends_it_and_nothing_is_reported() {
    let mut bench = Bench::new();
    bench.disk.disk.broken.store(true, SeqCst);
    bench.prepare(1, 100);
    let fatal = bench.write().unwrap_err();
    assert!(fatal.0.contains("a log in memory") && fatal.0.contains("broken"), "{fatal:?}");
    assert!(bench.told().is_empty());
}

#[test]
fn a_shorter_log_has_what_was_written_while_it_was_made() {
    let mut bench = Bench::new();
    for time in 1..=300 {
        bench.prepare(time, 10_000);
        bench.commit(time);
        bench.store.settle(at(time));
        bench.log.append(&Record::Settle(at(time)));
    }
    bench.write().unwrap();
    let long = bench.folder.log().len();
    bench.shorten();
    bench.prepare(301, 500);
    bench.write().unwrap();
    bench.told();
    while bench.told().is_empty() {
        bench.writing.shorten();
    }
    bench.commit(301);
    bench.prepare(302, 500);
    bench.write().unwrap();
    bench.told();
    bench.writing.serve(Command::Switch).unwrap();
    let reports = std::mem::take(&mut *bench.reports.borrow_mut());
    let switched = reports.into_iter().find_map(|report| match report {
        Report::Switched(log, _) => Some(log),
        _ => None,
    });
    let log = switched.expect("it is switched");
    assert!(log.sequence() > bench.log.sequence(), "numbers only grow");
    assert_eq!(log.tail().offset_bytes, bench.folder.log().len() as u64);
    assert!(bench.folder.log().len() < long / 4);
    assert_eq!(bench.recovered().snapshot(), bench.store.snapshot());
    bench.log = log;
    bench.commit(302);
    bench.write().unwrap();
    let recovered = bench.recovered();
    assert_eq!(
        (recovered.vote(at(301)), recovered.vote(at(302))),
        (Some(Vote::Committed), Some(Vote::Committed))
    );
    assert_eq!(recovered.snapshot(), bench.store.snapshot());
}

#[test]
fn a_shorter_log_that_does_not_fit_leaves_the_log_as_it_is() {
    let mut bench = Bench::new();
    for time in 1..=50 {
        bench.prepare(time, 100_000);
    }
    bench.write().unwrap();
    let before = bench.folder.log();
    bench.shorten();
    bench.told();
    bench.disk.disk.room_bytes.store(2 << 20, SeqCst);
    while bench.told().is_empty() {
        bench.writing.shorten();
    }
    bench.writing.serve(Command::Switch).unwrap();
    assert_eq!(bench.told(), ["not shortened"], "for whoever asks to switch");
    assert!(!bench.folder.has_new_version());
    assert_eq!(bench.folder.log(), before);
    assert_eq!(bench.recovered().snapshot(), bench.store.snapshot());
}

#[test]
fn a_full_disk_gives_a_ready_shorter_log_up() {
    let mut bench = Bench::new();
    bench.prepare(1, 2000);
    bench.write().unwrap();
    bench.shorten();
    bench.told();
    bench.writing.shorten();
    assert_eq!(bench.told(), ["shortened"]);
    bench.disk.disk.room_bytes.store(3000, SeqCst);
    bench.disk.cut(2500).unwrap();
    bench.writing.reserved_bytes = bench.writing.end_bytes;
    bench.prepare(2, 5000);
    bench.write().unwrap();
    assert_eq!((bench.told(), bench.folder.has_new_version()), (vec!["full".to_owned()], false));
    bench.disk.disk.room_bytes.store(usize::MAX, SeqCst);
    bench.writing.retry().unwrap();
    bench.writing.serve(Command::Switch).unwrap();
    assert_eq!(bench.told(), ["logged 2", "room", "not shortened"]);
    assert_eq!(bench.recovered().snapshot(), bench.store.snapshot());
}

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
    assert!(
        told.last().is_some_and(|last| last == "full") && told.len() == usize::try_from(time).unwrap(),
        "{told:?}"
    );
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

fn generation(number: u64) -> Command {
    Command::Generation(LogGeneration { number, members: Vec::new(), quorum: 0, began_after: 0 })
}

#[test]
fn a_generation_that_finds_no_room_keeps_writes_out_until_it_is_written() {
    let mut bench = Bench::new();
    let file = bench.generations.path().join("generation");
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    bench.writing.serve(generation(1)).unwrap();
    assert_eq!(bench.told(), ["full"]);
    // What is prepared ends meanwhile, and that is no sign of room.
    bench.prepare(1, 1000);
    bench.write().unwrap();
    assert_eq!(bench.told(), ["logged 1"]);
    bench.writing.retry().unwrap();
    assert_eq!(bench.told(), ["full"]);
    std::fs::remove_file(&file).unwrap();
    bench.writing.retry().unwrap();
    assert_eq!(bench.told(), ["generation 1", "room"]);
}

#[test]
fn there_is_room_ahead_of_a_shorter_log_as_soon_as_it_counts() {
    let mut bench = Bench::new();
    bench.make_shorter_log_ready();
    bench.writing.serve(Command::Switch).unwrap();
    let told = bench.told();
    assert!(told[0].starts_with("switched") && told[1..] == ["room"], "{told:?}");
}

#[test]
fn a_shorter_log_that_a_replica_has_no_room_for_is_given_up_once() {
    let mut bench = Bench::new();
    bench.make_shorter_log_ready();
    for _ in 0..2 {
        bench.writing.serve(Command::GiveUp("a replica has no room".to_owned())).unwrap();
    }
    assert_eq!(bench.told(), ["not shortened"]);
    bench.prepare(2, 1000);
    bench.write().unwrap();
    assert_eq!(bench.recovered().snapshot(), bench.store.snapshot());
}
