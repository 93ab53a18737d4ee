//! Draws and runs the clients' operations: each is a run of the real program, and its answer goes
//! into the history.
//!
//! Invariants
//! - Operations are not retried: an error is an answer.
//! - An error that does not contain the words "not known" means that nothing was written, and the
//!   check relies on that.

use super::{
    answers,
    history::{Cell, End, NOTHING, Number, Read, Write},
    kinds::{Fault, Operation, draw},
    process::{Exit, Ran, Reach, Skew},
    shell::Shell,
    world::{COUNTER, KEYS, ROWS_LOADED, Table, World, key, keys, row},
};
use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf, time::Duration};

/// Maximum lifetime in microseconds of a client that is killed.
const KILLED_AFTER_MAX_US: u64 = 250_000;
/// One in this many operations is killed, if clients are killed.
const KILLED_ONE_IN: u32 = 3;
/// Offsets of wrong clocks of clients and nodes, in seconds.
pub(crate) const SKEWS: &[&str] =
    &["-2", "+2", "-300", "+300", "-86400", "+86400", "-315360000", "+315360000"];

/// One client of a round.
pub(crate) struct Client<'w> {
    pub(crate) name: String,
    pub(crate) world: &'w World,
    pub(crate) reach: Reach,
    pub(crate) random: fastrand::Rng,
    pub(crate) faults: &'w [Fault],
    pub(crate) nodes: usize,
    /// Its shell, if it has one, which then runs the statements.
    pub(crate) shell: Option<Shell>,
    pub(crate) has_shell: bool,
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Index of the statement among the arguments for SQL.
const STATEMENT: usize = 3;

/// The arguments for SQL.
fn sql(statement: String) -> Vec<String> {
    vec!["sql".to_owned(), "--format".to_owned(), "ndjson".to_owned(), statement]
}

/// The end of a write according to its output.
fn end(ran: &Ran) -> End {
    match ran.exit {
        Exit::Code(0) => End::Acknowledged,
        Exit::Code(_) if !ran.err.contains("not known") => End::Refused,
        _ => End::InDoubt,
    }
}

impl Client<'_> {
    /// Runs one operation.
    pub(crate) fn turn(&mut self) {
        let operation = draw(&mut self.random, self.faults);
        self.world.begins();
        match operation {
            Operation::Put => self.put(operation, 1),
            Operation::PutSeveral => self.put(operation, 3),
            Operation::Delete => self.delete(operation),
            Operation::Get => self.get(operation),
            Operation::GetSeveral => self.get_several(operation),
            Operation::Scan => self.scan(operation),
            Operation::Insert => self.insert(operation),
            Operation::Update => self.update(operation),
            Operation::DeleteRow => self.delete_row(operation),
            Operation::Transaction => self.transaction(operation),
            Operation::Select => self.select(operation),
            Operation::SelectRow => self.select_row(operation),
            Operation::Load => self.load_any(operation),
            Operation::Drop => self.drop_table(operation),
            Operation::Flush => self.look_after(operation, "flush"),
            Operation::Scrub => self.look_after(operation, "scrub"),
            Operation::Fsck => self.look_after(operation, "fsck"),
            Operation::Rebuild => {
                let node = self.random.usize(0..self.nodes);
                self.look_after(operation, &format!("rebuild {node}"));
            }
            Operation::Increment => self.increment(operation),
            Operation::Status => self.look_after(operation, "cluster status"),
        }
    }

    /// Runs the program; draws whether it is killed and has a wrong clock.
    fn run(&mut self, words: &[String]) -> (Ran, u64, u64) {
        let is_killed = self.faults.contains(&Fault::Clients) && self.random.u32(0..KILLED_ONE_IN) == 0;
        let killed_after = is_killed.then(|| Duration::from_micros(self.random.u64(0..KILLED_AFTER_MAX_US)));
        let is_wrong = self.faults.contains(&Fault::ClientClock) && self.random.bool();
        let skew: Option<Skew> = is_wrong.then(|| SKEWS[self.random.usize(0..SKEWS.len())].to_owned());
        let clock = skew.as_ref().map_or_else(String::new, |skew| format!("[clock {skew} s] "));
        let is_for_shell = self.has_shell && words.first().is_some_and(|word| word == "sql");
        if is_for_shell && self.shell.as_ref().is_none_or(Shell::is_over) {
            self.world.log(&self.name, &format!("{clock}opens a shell"));
            self.shell = Some(Shell::open(&self.reach, skew.as_ref()));
        }
        self.world.log(&self.name, &format!("{clock}begins {}", words.join(" ")));
        let from = self.world.now();
        let ran = match self.shell.as_mut().filter(|_| is_for_shell).zip(words.get(STATEMENT)) {
            Some((shell, statement)) => shell.ask(statement, killed_after),
            None => self.reach.run(words, killed_after, skew.as_ref()),
        };
        let to = self.world.now();
        let said = format!("{} {}", ran.out.trim_end().replace('\n', " "), ran.message());
        self.world.log(&self.name, &format!("{:?} of {}: {said:.600}", ran.exit, words.join(" ")));
        if let Some(outrage) = ran.outrage() {
            self.world.problem(format!("rackscan {}: {outrage}", words.join(" ")));
        }
        (ran, from, to)
    }

    /// Writes cells; `what` derives from the answer of an acknowledged write which cells have
    /// changed.
    fn write(
        &mut self,
        operation: Operation,
        number: Number,
        words: &[String],
        cells: BTreeMap<Cell, Number>,
    ) {
        let (ran, from, to) = self.run(words);
        self.world.wrote(operation, Write { number, cells, from, to, end: end(&ran) });
    }

    fn read(
        &mut self,
        operation: Operation,
        words: &[String],
        is_sql: bool,
        understand: impl FnOnce(&Ran) -> Result<Option<BTreeMap<Cell, Number>>, String>,
    ) {
        let (ran, from, to) = self.run(words);
        match understand(&ran) {
            Ok(Some(found)) => {
                self.world.read(operation, Read { found, from, to, is_sql, is_settled: false })
            }
            Ok(None) => self.world.did(operation, false),
            Err(problem) => self.world.problem(format!("rackscan {}: {problem}", words.join(" "))),
        }
    }

    fn some_keys(&mut self, most: usize) -> Vec<Cell> {
        let count = if most == 1 { 1 } else { self.random.usize(2..=most) };
        let keys = (0..KEYS).collect::<Vec<_>>();
        let mut keys = fastrand::Rng::choose_multiple(&mut self.random, keys, count);
        keys.sort_unstable();
        keys.into_iter().map(key).collect()
    }

    fn put(&mut self, operation: Operation, most: usize) {
        let (number, keys) = (self.world.number(), self.some_keys(most));
        let mut words = words("kv put --timeout 4");
        for key in &keys {
            words.extend([key.clone(), number.to_string()]);
        }
        self.write(operation, number, &words, keys.into_iter().map(|key| (key, number)).collect());
    }

    fn delete(&mut self, operation: Operation) {
        let (number, keys) = (self.world.number(), self.some_keys(1));
        let words = words(&format!("kv delete --timeout 4 {}", keys.join(" ")));
        self.write(operation, number, &words, keys.into_iter().map(|key| (key, NOTHING)).collect());
    }

    fn get(&mut self, operation: Operation) {
        let key = self.some_keys(1).remove(0);
        let words = words(&format!("kv get --timeout 4 {key}"));
        self.read(operation, &words, false, |ran| match ran.exit {
            Exit::Code(0) => Ok(Some([(key, answers::value(&ran.out)?)].into())),
            Exit::Code(_) if ran.err.contains("has no value") => Ok(Some([(key, NOTHING)].into())),
            _ => Ok(None),
        });
    }

    fn get_several(&mut self, operation: Operation) {
        let keys = self.some_keys(5);
        let words = words(&format!("kv multi-get --timeout 4 --format ndjson {}", keys.join(" ")));
        self.read(operation, &words, false, |ran| match ran.exit {
            Exit::Code(0) => answers::pairs(&ran.out, keys.into_iter()).map(Some),
            _ => Ok(None),
        });
    }

    fn scan(&mut self, operation: Operation) {
        self.read(operation, &words("kv scan --timeout 4 --format ndjson k"), false, |ran| match ran.exit {
            Exit::Code(0) => answers::pairs(&ran.out, keys()).map(Some),
            _ => Ok(None),
        });
    }

    fn written_table(&mut self) -> Option<Table> {
        self.world.table(&mut self.random, |table| table.is_written && table.is_there)
    }

    fn insert(&mut self, operation: Operation) {
        let Some(table) = self.written_table() else { return };
        let number = self.world.number();
        let mut key = 0;
        self.world.change_table(&table.name, |table| {
            key = table.next_row;
            table.next_row += 1;
        });
        let words = sql(format!("insert into {} values ({key}, {number})", table.name));
        self.write(operation, number, &words, [(table.row(key), number)].into());
    }

    /// Runs a statement about a row that may not exist: whether it did is an answer.
    fn change_row(
        &mut self,
        operation: Operation,
        table: &Table,
        key: u64,
        value: Number,
        statement: String,
    ) {
        let words = sql(statement);
        let (ran, from, to) = self.run(&words);
        let (cell, mut cells, end) = (table.row(key), BTreeMap::new(), end(&ran));
        cells.insert(cell.clone(), value);
        if end == End::Acknowledged {
            match answers::changed(&ran.out).as_deref() {
                Ok([1]) => {}
                Ok([0]) => {
                    let found = [(cell, NOTHING)].into();
                    return self
                        .world
                        .read(operation, Read { found, from, to, is_sql: true, is_settled: false });
                }
                other => {
                    self.world.problem(format!("rackscan {}: {other:?} rows were changed", words.join(" ")))
                }
            }
        }
        let number = if value == NOTHING { self.world.number() } else { value };
        self.world.wrote(operation, Write { number, cells, from, to, end });
    }

    fn update(&mut self, operation: Operation) {
        let Some(table) = self.written_table() else { return };
        let (number, key) = (self.world.number(), self.random.u64(0..table.next_row));
        let statement = format!("update {} set v = {number} where k = {key}", table.name);
        self.change_row(operation, &table, key, number, statement);
    }

    /// Increments a number that the same statement reads.
    fn increment(&mut self, operation: Operation) {
        let (ran, ..) = self.run(&sql(format!("update {COUNTER} set v = v + 1 where k = 0")));
        let end = end(&ran);
        let mut state = self.world.state();
        match end {
            End::Acknowledged => state.number.0 += 1,
            End::InDoubt => state.number.1 += 1,
            End::Refused => {}
        }
        drop(state);
        self.world.ended(operation, end);
    }

    /// Loads the table of that number.
    pub(crate) fn load_counter(&mut self) {
        let file = self.reach.data.join("counter.csv");
        std::fs::write(&file, "k,v\n0,0\n").expect("a file");
        let (ran, ..) =
            self.run(&words(&format!("load csv {} --table {COUNTER} --partition-by k", file.display())));
        if ran.exit != Exit::Code(0) {
            self.world.problem(format!("the table {COUNTER} cannot be loaded: {}", ran.err));
        }
    }

    fn delete_row(&mut self, operation: Operation) {
        let Some(table) = self.written_table().filter(|table| table.next_row > ROWS_LOADED) else { return };
        let key = self.random.u64(ROWS_LOADED..table.next_row);
        let statement = format!("delete from {} where k = {key}", table.name);
        self.change_row(operation, &table, key, NOTHING, statement);
    }

    /// Changes rows that are never deleted, of one table or two, in one transaction.
    fn transaction(&mut self, operation: Operation) {
        let (Some(one), Some(other)) = (self.written_table(), self.written_table()) else { return };
        let number = self.world.number();
        let (mut script, mut cells) = ("begin; ".to_owned(), BTreeMap::new());
        for table in [&one, &other, &one] {
            let key = self.random.u64(0..ROWS_LOADED);
            let _ = write!(script, "update {} set v = {number} where k = {key}; ", table.name);
            cells.insert(table.row(key), number);
        }
        let words = sql(script + "commit");
        let (ran, from, to) = self.run(&words);
        let end = end(&ran);
        if end == End::Acknowledged {
            let counts = answers::changed(&ran.out);
            if !counts.as_ref().is_ok_and(|counts| *counts == [1, 1, 1]) {
                self.world.problem(format!(
                    "rackscan {}: {counts:?} rows were changed, expected 1 each",
                    words.join(" ")
                ));
            }
        }
        self.world.wrote(operation, Write { number, cells, from, to, end });
    }

    fn rows_of(&mut self, operation: Operation, table: &Table, only: Option<u64>) {
        let placement = ["auto", "local", "remote-fetch", "remote-process"][self.random.usize(0..4)];
        let condition = only.map_or_else(String::new, |key| format!(" where k = {key}"));
        let mut words = sql(format!("select k, v from {}{condition}", table.name));
        words.extend(["--placement".to_owned(), placement.to_owned()]);
        self.read(operation, &words, true, |ran| match ran.exit {
            Exit::Code(0) => answers::rows(&ran.out, table, only).map(Some),
            Exit::Code(_) if ran.err.contains("there is no table") => {
                Ok(Some([(table.name.clone(), NOTHING)].into()))
            }
            _ => Ok(None),
        });
    }

    fn select(&mut self, operation: Operation) {
        let Some(table) = self.world.table(&mut self.random, |_| true) else { return };
        self.rows_of(operation, &table, None);
    }

    fn select_row(&mut self, operation: Operation) {
        let Some(table) = self.world.table(&mut self.random, |_| true) else { return };
        let key = self.random.u64(0..table.next_row);
        self.rows_of(operation, &table, Some(key));
    }

    /// Loads a new table, or replaces one.
    fn load_any(&mut self, operation: Operation) {
        let replaces = self.faults.contains(&Fault::Replace);
        let is_wanted = |table: &Table| table.is_written && (replaces || !table.is_there);
        if self.random.bool()
            && let Some(table) = self.world.table(&mut self.random, is_wanted)
        {
            return self.load(operation, &table.name, true);
        }
        let name = format!("l{}", self.world.number());
        self.load(operation, &name, false);
    }

    /// Loads a table of this name.
    pub(crate) fn load(&mut self, operation: Operation, name: &str, is_written: bool) {
        let number = self.world.number();
        let mut text = "k,v\n".to_owned();
        for key in 0..ROWS_LOADED {
            let _ = writeln!(text, "{key},{number}");
        }
        let file: PathBuf = self.reach.data.join(format!("{number}.csv"));
        std::fs::write(&file, text).expect("a file");
        if !self.world.state().tables.iter().any(|table| table.name == name) {
            let table = Table { name: name.to_owned(), next_row: ROWS_LOADED, is_there: false, is_written };
            self.world.state().tables.push(table);
        }
        let words = words(&format!("load csv {} --table {name} --partition-by k", file.display()));
        let (ran, from, to) = self.run(&words);
        let _ = std::fs::remove_file(&file);
        // Rows that were inserted during the load are in the table that it replaced.
        let end = if end(&ran) == End::Acknowledged { End::Acknowledged } else { End::InDoubt };
        let table = self.world.change_table(name, |table| table.is_there |= end == End::Acknowledged);
        let mut cells = table.emptiness();
        cells.extend((0..ROWS_LOADED).map(|key| (row(name, key), number)));
        cells.insert(name.to_owned(), number);
        self.world.wrote(operation, Write { number, cells, from, to, end });
    }

    fn drop_table(&mut self, operation: Operation) {
        let replaces = self.faults.contains(&Fault::Replace);
        let is_wanted = |table: &Table| table.is_there && (replaces || !table.is_written);
        let Some(table) = self.world.table(&mut self.random, is_wanted) else { return };
        self.world.change_table(&table.name, |table| table.is_there = false);
        let (ran, from, to) = self.run(&words(&format!("drop {}", table.name)));
        let end = if end(&ran) == End::Acknowledged { End::Acknowledged } else { End::InDoubt };
        // Rows that were inserted meanwhile are dropped with it.
        let mut cells = self.world.change_table(&table.name, |_| ()).emptiness();
        cells.insert(table.name, NOTHING);
        self.world.wrote(operation, Write { number: self.world.number(), cells, from, to, end });
    }

    /// Runs a command that changes no contents.
    fn look_after(&mut self, operation: Operation, line: &str) {
        let (ran, ..) = self.run(&words(line));
        self.world.did(operation, ran.exit == Exit::Code(0));
    }
}
