//! Runs one session in a leg, which is a part of a run.
//!
//! Invariants
//! - A transaction that has begun is completed: bounds and stop requests are checked between
//!   transactions.
//! - Records are ordered by the shared counter, which is read before the store is called and after
//!   it has answered.
//! - A failed write is recorded with what is known of its outcome. Only a write that never began is
//!   not recorded.
//! - A session that has ended is opened again, unless that fails for longer than the run's
//!   patience.

use super::counters::Counters;
use super::options::RunOptions;
use super::recorder::{Order, Recorder};
use super::store::{Failure, OpenSession, ReadDone, TransactionStore, WriteEnd};
use super::token::{self, Token};
use super::workload::{Drawer, Inserts, Kind, Names, SCAN_KEYS, Workload};
use crate::drive::Bounds;
use crate::limits::FAILURE_PAUSE;
use az::SaturatingAs;
use rackscan_ramp::{
    history::End,
    item::{Key, Value},
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// What the sessions of a run share.
pub(super) struct Shared<'r, 'a> {
    pub(super) run: &'r RunOptions<'r>,
    pub(super) open: &'r OpenSession<'a>,
    pub(super) order: &'r Order,
    pub(super) inserts: Inserts,
    /// A number that differs between the runs of a process.
    pub(super) epoch: u32,
    /// Set to end the leg: a recorder is full, or a session cannot continue.
    pub(super) over: AtomicBool,
    /// Numbers of the loaded keys ordered by name, if the workload scans.
    pub(super) in_order: Vec<u32>,
    /// The position of each loaded key in that order.
    pub(super) place_of: Vec<u32>,
}

/// A part of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leg {
    pub(super) bounds: Bounds,
    /// Whether it is the first leg of its phase.
    pub(super) first: bool,
    /// Reads and writes that a session may record; `None` to record nothing.
    pub(super) room: Option<usize>,
}

/// Result of a leg.
pub(super) struct Went {
    pub(super) counters: Counters,
    pub(super) recorder: Option<Recorder>,
    /// Whether the session has reached a bound of the phase.
    pub(super) finished: bool,
    pub(super) broken: Option<Failure>,
}

pub(super) struct Session<'r, 'a> {
    shared: &'r Shared<'r, 'a>,
    thread: u32,
    store: Option<Box<dyn TransactionStore + 'a>>,
    drawer: Drawer,
    names: Names,
    numbers: Vec<u32>,
    keys: Vec<Key>,
    buffer: Vec<u8>,
    /// The value to write if nothing is checked.
    plain: Option<Value>,
    recorder: Option<Recorder>,
    written: u32,
    /// Transactions of the phase so far.
    counted: u64,
}

impl<'r, 'a> Session<'r, 'a> {
    pub(super) fn open(shared: &'r Shared<'r, 'a>, thread: u32) -> Result<Self, Failure> {
        let run = shared.run;
        let seed = run.seed.wrapping_add((u64::from(thread) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let drawer = Drawer::new(run.workload, seed);
        let (names, numbers, keys, buffer) =
            (Names::new(run.workload.keys), Vec::new(), Vec::new(), Vec::new());
        let (store, plain, recorder) = (None, None, None);
        let mut this = Self {
            shared,
            thread,
            store,
            drawer,
            names,
            numbers,
            keys,
            buffer,
            plain,
            recorder,
            written: 0,
            counted: 0,
        };
        this.connect()?;
        Ok(this)
    }

    /// Opens a session if there is none, retrying for as long as the run has patience.
    fn connect(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.store.is_none() {
            match (self.shared.open)(self.thread) {
                Ok(store) => self.store = Some(store),
                Err(failure) if begun.elapsed() >= self.shared.run.patience || self.is_over() => {
                    return Err(failure);
                }
                Err(_) => std::thread::sleep(FAILURE_PAUSE * 10),
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Relaxed) || self.shared.run.stop.load(Ordering::Relaxed)
    }

    pub(super) fn leg(&mut self, leg: Leg) -> Went {
        let mut counters = Counters::default();
        if leg.first {
            self.counted = 0;
        }
        self.recorder = leg.room.map(|room| Recorder::new(self.thread, room));
        let begun = Instant::now();
        let (mut finished, mut broken) = (false, None);
        loop {
            let counted = leg.bounds.count_max.is_some_and(|most| self.counted >= most);
            finished |= counted || begun.elapsed() >= leg.bounds.duration;
            if finished || self.is_over() {
                break;
            }
            // A leg ends for all sessions together, so that the checked history is complete.
            if self
                .recorder
                .as_ref()
                .is_some_and(|recorder| !recorder.has_room(most_keys(&self.shared.run.workload)))
            {
                self.shared.over.store(true, Ordering::Relaxed);
                break;
            }
            if let Err(failure) = self.connect() {
                if !self.is_over() {
                    counters.failed(&failure);
                    broken = Some(failure);
                    self.shared.over.store(true, Ordering::Relaxed);
                }
                break;
            }
            self.counted += 1;
            self.transaction(&mut counters, begun, leg.bounds.duration);
        }
        counters.elapsed = begun.elapsed();
        Went { counters, recorder: self.recorder.take(), finished, broken }
    }

    fn transaction(&mut self, counters: &mut Counters, begun: Instant, duration: Duration) {
        let kind = self.drawer.next(&self.shared.inserts, &mut self.numbers);
        let ended = match kind {
            Kind::Read => self.name().and_then(|()| self.read(counters)),
            Kind::Write => self.name().and_then(|()| self.write(counters)),
            Kind::Modify => self.name().and_then(|()| {
                let read = self.read(counters)?;
                Ok(read + self.write(counters)?)
            }),
            Kind::Insert => self.insert(counters),
            Kind::Scan => self.scan(counters),
        };
        match ended {
            Ok(latency) => {
                counters.latencies.record(latency);
                counters.transactions += 1;
                counters.in_time += u64::from(begun.elapsed() <= duration);
            }
            Err(failure) => {
                counters.failed(&failure);
                if failure.session_over {
                    self.store = None;
                    counters.reopened += 1;
                }
                std::thread::sleep(FAILURE_PAUSE);
            }
        }
    }

    /// Creates the keys of the drawn numbers.
    fn name(&mut self) -> Result<(), Failure> {
        self.keys.clear();
        for number in &self.numbers {
            let key = self.names.key(*number);
            self.keys.push(key.ok_or_else(|| {
                failure("no key", "the name of a key is longer than a key may be; please report this")
            })?);
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        if self.recorder.is_some() { self.shared.order.now() } else { 0 }
    }

    fn store(&mut self) -> Result<&mut (dyn TransactionStore + 'a), Failure> {
        self.store.as_deref_mut().ok_or_else(|| failure("no session", "the session has ended"))
    }

    fn read(&mut self, counters: &mut Counters) -> Result<Duration, Failure> {
        let (from, begun) = (self.now(), Instant::now());
        let keys = std::mem::take(&mut self.keys);
        let done = self.store().and_then(|store| store.read(&keys));
        let latency = begun.elapsed();
        self.keys = keys;
        self.found(&done?, from, latency, counters)
    }

    fn found(
        &mut self,
        done: &ReadDone,
        from: u64,
        latency: Duration,
        counters: &mut Counters,
    ) -> Result<Duration, Failure> {
        let to = self.now();
        let complete = match &mut self.recorder {
            Some(recorder) => recorder.read((&self.keys, &self.numbers), &done.items, (from, to)),
            None => done.items.len() == self.keys.len(),
        };
        if !complete {
            let (found, expected) = (done.items.len(), self.keys.len());
            let why = format!("a read of {expected} keys was answered with {found} keys, or with other keys");
            return Err(failure("incomplete", &why));
        }
        counters.read(done, latency);
        Ok(latency)
    }

    fn write(&mut self, counters: &mut Counters) -> Result<Duration, Failure> {
        self.written = self.written.wrapping_add(1);
        let token = Token::of(self.shared.epoch, self.thread, self.written);
        let items = self.items(token)?;
        let (from, begun) = (self.now(), Instant::now());
        let done = match self.store() {
            Ok(store) => store.write(items),
            Err(failure) => return Err(failure),
        };
        let latency = begun.elapsed();
        let during = (from, self.now());
        let mut record = |timestamp, end| {
            if let Some(recorder) = &mut self.recorder {
                recorder.write(&self.numbers, timestamp, token, during, end);
            }
        };
        match done {
            Ok(timestamp) => {
                record(timestamp, End::Committed);
                counters.written(self.numbers.len(), latency);
                Ok(latency)
            }
            Err(failed) => {
                match failed.end {
                    WriteEnd::NotBegun => {}
                    WriteEnd::Aborted(timestamp) => record(timestamp, End::Aborted),
                    WriteEnd::Unknown(timestamp) => record(timestamp, End::Unknown),
                }
                Err(failed.failure)
            }
        }
    }

    /// Values for the keys. If the history is checked, each identifies its writer.
    fn items(&mut self, token: Token) -> Result<Vec<(Key, Value)>, Failure> {
        let same_length =
            self.shared.run.workload.value_bytes.least == self.shared.run.workload.value_bytes.most;
        let plain = self.recorder.is_none() && same_length;
        let mut items = Vec::with_capacity(self.keys.len());
        for (key, number) in self.keys.iter().zip(&self.numbers) {
            let value = match &self.plain {
                Some(value) if plain => Some(value.clone()),
                _ => token::value(token, *number, self.drawer.value_bytes(), &mut self.buffer),
            };
            let value = value.ok_or_else(|| {
                failure("no value", "a value is longer than a value may be; please report this")
            })?;
            if plain && self.plain.is_none() {
                self.plain = Some(value.clone());
            }
            items.push((key.clone(), value));
        }
        Ok(items)
    }

    fn insert(&mut self, counters: &mut Counters) -> Result<Duration, Failure> {
        let count = self.numbers.len().saturating_as::<u32>();
        let first = self.shared.inserts.begin(self.thread, count);
        let first = first.ok_or_else(|| failure("no more keys", "no numbers are left for new keys"))?;
        self.numbers.clear();
        self.numbers.extend(first..first + count);
        let written = self.name().and_then(|()| self.write(counters));
        self.shared.inserts.end(self.thread);
        written
    }

    /// Scans by the store, or by reading the next loaded keys in the order of their names; only the
    /// order of loaded keys is known.
    fn scan(&mut self, counters: &mut Counters) -> Result<Duration, Failure> {
        let count = self.numbers.len();
        let start = self.numbers.first().copied().unwrap_or(0);
        counters.scans += 1;
        // A store does not say which keys a scan should have found, so scans of the store are not
        // recorded.
        if self.recorder.is_none() {
            self.name()?;
            let from = self.keys.first().cloned();
            let from = from.ok_or_else(|| failure("no key", "a scan without a first key"))?;
            let begun = Instant::now();
            if let Some(done) = self.store()?.scan(b"user", &from, count)? {
                let latency = begun.elapsed();
                counters.read(&done, latency);
                return Ok(latency);
            }
        }
        counters.scans_by_key += 1;
        let place = self.shared.place_of.get(index(start)).copied().unwrap_or(0);
        let next = self.shared.in_order.iter().skip(index(place)).take(count);
        self.numbers.clear();
        self.numbers.extend(next);
        self.name()?;
        self.read(counters)
    }
}

/// Maximum reads and writes that one transaction may record.
pub(super) fn most_keys(workload: &Workload) -> usize {
    let scanned = if workload.mix.scans() { *SCAN_KEYS.end() } else { 0 };
    (2 * workload.size.most).max(scanned).saturating_as::<usize>()
}

fn index(number: u32) -> usize {
    number.saturating_as::<usize>()
}

pub(super) fn failure(kind: &'static str, why: &str) -> Failure {
    Failure { kind, why: why.to_owned(), session_over: false }
}
