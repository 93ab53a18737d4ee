//! Tracks what is known of the cluster's contents: history, tables, event log and counters.

use super::{
    history::{Cell, End, History, NOTHING, Number, Read, Write},
    kinds::{Counts, Operation},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Maximum lines of the event log that are kept and printed.
const EVENTS_MAX: usize = 3000;

/// Number of keys that `kv` writes: few, so that writers conflict.
pub(crate) const KEYS: u64 = 12;
/// Rows that a table is loaded with. Inserted rows have higher keys, and only those are deleted.
pub(crate) const ROWS_LOADED: u64 = 12;

/// The table with the number that all clients increment.
pub(crate) const COUNTER: &str = "counter";

/// A table, as far as clients know.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// Keys below this one were loaded or given to inserts.
    pub(crate) next_row: u64,
    /// Whether its load was acknowledged, and no drop of it has begun.
    pub(crate) is_there: bool,
    /// Whether clients write to it; then it is dropped only if tables are replaced.
    pub(crate) is_written: bool,
}

impl Table {
    pub(crate) fn row(&self, key: u64) -> Cell {
        row(&self.name, key)
    }

    /// All of its cells, empty.
    pub(crate) fn emptiness(&self) -> BTreeMap<Cell, Number> {
        (0..self.next_row).map(|key| (self.row(key), NOTHING)).collect()
    }
}

/// The cell of a row.
pub(crate) fn row(table: &str, key: u64) -> Cell {
    format!("{table}/{key}")
}

/// The cell of a key of `kv`.
pub(crate) fn key(number: u64) -> Cell {
    format!("k{number}")
}

/// All keys of `kv`.
pub(crate) fn keys() -> impl Iterator<Item = Cell> {
    (0..KEYS).map(key)
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) history: History,
    pub(crate) tables: Vec<Table>,
    pub(crate) counts: Counts,
    /// Minimum of the number that all increment, and by how much it may be higher.
    pub(crate) number: (u64, u64),
    events: VecDeque<String>,
    /// Results that no fault excuses.
    pub(crate) problems: Vec<String>,
}

/// Shared by a cluster's clients and by the thread that causes faults.
pub(crate) struct World {
    begin: Instant,
    state: Mutex<State>,
    number: AtomicU64,
    begun: AtomicU64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            begin: Instant::now(),
            state: Mutex::default(),
            number: AtomicU64::new(NOTHING),
            begun: AtomicU64::new(0),
        }
    }

    /// Nanoseconds since the start, by a clock that no fault changes.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no write has had.
    pub(crate) fn number(&self) -> Number {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// Counts an operation that begins.
    pub(crate) fn begins(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    /// How many operations have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// Adds a line to the event log.
    pub(crate) fn log(&self, who: &str, what: &str) {
        let elapsed: Duration = self.begin.elapsed();
        let line = format!("{:>11.3} ms  {who:<9} {what}", elapsed.as_secs_f64() * 1000.0);
        let mut state = self.state();
        if state.events.len() == EVENTS_MAX {
            state.events.pop_front();
        }
        state.events.push_back(line);
    }

    /// The event log.
    pub(crate) fn events(&self) -> String {
        self.state().events.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// Records a result that no fault excuses.
    pub(crate) fn problem(&self, what: String) {
        self.log("PROBLEM", &what);
        self.state().problems.push(what);
    }

    pub(crate) fn wrote(&self, operation: Operation, write: Write) {
        self.ended(operation, write.end);
        if !write.cells.is_empty() {
            self.state().history.wrote(write);
        }
    }

    /// Counts how an operation ended.
    pub(crate) fn ended(&self, operation: Operation, end: End) {
        let mut state = self.state();
        let ends = state.counts.operations.entry(operation).or_default();
        match end {
            End::Acknowledged => ends.acknowledged += 1,
            End::Refused => ends.refused += 1,
            End::InDoubt => ends.in_doubt += 1,
        }
    }

    /// Records a read that was answered.
    pub(crate) fn read(&self, operation: Operation, read: Read) {
        self.ended(operation, End::Acknowledged);
        self.state().history.read(read);
    }

    /// Counts an operation without effect on contents, or a read that was not answered.
    pub(crate) fn did(&self, operation: Operation, is_acknowledged: bool) {
        self.ended(operation, if is_acknowledged { End::Acknowledged } else { End::Refused });
    }

    /// Draws a table among those that satisfy `wanted`.
    pub(crate) fn table(&self, random: &mut fastrand::Rng, wanted: impl Fn(&Table) -> bool) -> Option<Table> {
        let state = self.state();
        let tables: Vec<&Table> = state.tables.iter().filter(|table| wanted(table)).collect();
        (!tables.is_empty()).then(|| tables[random.usize(0..tables.len())].clone())
    }

    /// Changes what is known of a table. Returns the new state.
    pub(crate) fn change_table(&self, name: &str, change: impl FnOnce(&mut Table)) -> Table {
        let mut state = self.state();
        let table = state.tables.iter_mut().find(|table| table.name == name).expect("a table that is known");
        change(table);
        table.clone()
    }
}
