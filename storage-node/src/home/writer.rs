//! What does the thread of the log do?
//!
//! One batch at a time: written at the end of the log, made durable with one flush, reported. While
//! that goes on, the home gathers the next one. Between batches it works on a shorter log, if one
//! is wanted (`compaction`).
//!
//! Invariants
//! - A batch is reported when all of it and all before it is durable, and never before.
//! - There is disk space ahead of the log's end, of which the home is told: what it takes fits
//!   there, so a disk that becomes full leaves nothing in doubt.
//! - A full disk loses nothing: what was written of a batch is cut off, the batch is kept and tried
//!   again until it fits.
//! - What leaves the file's state unknown (a write or a flush that fails for another reason) ends
//!   the node; nobody is told of the batch.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_format::message::LogGeneration;
use rackscan_ramp::{
    limits::LOG_HEADER_BYTES,
    log::{Batch, LogWriter, Tail},
    store::Snapshot,
};

use super::{
    compaction::Compaction,
    log_file::{Folder, LogFile, LogFolder, is_full},
};
use crate::{
    copies::{GenerationFile, new_version},
    error::StartError,
    lifecycle::{self, Lifecycle},
    limits::{LOG_AHEAD_BYTES, LOG_QUEUE_MAX, LOG_RETRY, LOG_STEP_BYTES},
    message_queue::{Mail, MessageQueue},
};

/// What the home asks for.
#[derive(Debug)]
pub(super) enum Command {
    /// To make a batch durable.
    Write(Arc<Batch>),
    /// To write a shorter log that begins with this snapshot, of the moment when the log ended at
    /// this tail.
    Shorten(Box<Snapshot>, Tail),
    /// To go on with the shorter log: no batch comes before this is reported.
    Switch,
    /// To give the shorter log up, and why.
    GiveUp(String),
    /// To make the log's generation durable.
    Generation(LogGeneration),
    /// To say how much room there is ahead of the log's end.
    Look,
}

/// What the home is told.
#[derive(Debug)]
pub(crate) enum Report {
    /// All records up to this one are on the disk.
    Logged(u64),
    /// There is no room for a batch, or ahead of the log; it is tried again.
    Full(String),
    /// There is room for the log up to there, whatever becomes of the disk.
    Ahead(u64),
    /// The shorter log, which has this number and goes to there, is ready for the switch.
    Shortened(u32, Tail),
    /// There is no shorter log; the old one goes on.
    NotShortened,
    /// The log is the shorter one, which has this number and goes on here.
    Switched(LogWriter, u32),
    /// The log's generation is on the disk.
    Generation(LogGeneration),
}

/// The home's way to the thread.
#[derive(Debug)]
pub(super) struct LogThread {
    commands: SyncSender<Command>,
}

impl LogThread {
    /// Starts the thread, so nice, which reports to `message queue`. It ends with the way to it.
    pub(super) fn start(
        (name, nice): (&str, u8),
        (folder, generation): (Folder, GenerationFile),
        (file, end_bytes): (File, u64),
        message_queue: Arc<MessageQueue>,
        lifecycle: Arc<Lifecycle>,
    ) -> Result<(Self, JoinHandle<()>), StartError> {
        let (commands, orders) = sync_channel(LOG_QUEUE_MAX);
        let run = move || {
            let _guard = lifecycle.guard("the thread of the log of transactions");
            lifecycle::be_nice(nice);
            let report = |report| message_queue.send(Mail::Log(report));
            let mut writing = Writing::new((folder, generation), file, end_bytes, report);
            if let Err(fatal) = writing.run(&orders) {
                lifecycle.fail(&fatal.0);
            }
        };
        let thread = std::thread::Builder::new().name(format!("{name}-log")).spawn(run);
        let thread =
            thread.map_err(|source| StartError::Os { action: "start the thread of the log", source })?;
        Ok((Self { commands }, thread))
    }

    /// Asks for something. What cannot be asked for because the thread has ended comes to nothing,
    /// with the node.
    pub(super) fn ask(&self, command: Command) {
        match self.commands.try_send(command) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // The home counts what is under way, so this does not happen; if it did, waiting would
            // be right.
            Err(TrySendError::Full(command)) => drop(self.commands.send(command)),
        }
    }
}

/// The node cannot go on, and why.
#[derive(Debug)]
pub(super) struct Fatal(pub(super) String);

enum Fault {
    Full(io::Error),
    Unknown(&'static str, io::Error),
}

/// The thread's own.
pub(super) struct Writing<F: LogFolder, R> {
    folder: F,
    file: F::File,
    /// Behind the last batch that is durable.
    end_bytes: u64,
    /// Up to where there is disk space.
    reserved_bytes: u64,
    /// Batches that the disk has no room for.
    waiting: VecDeque<Arc<Batch>>,
    compaction: Option<Compaction<F::File>>,
    /// Up to where there is disk space that no file's length shows.
    ahead_bytes: u64,
    /// Whether there was too little of it last.
    is_tight: bool,
    generation: GenerationFile,
    /// A generation that the disk has no room for.
    untold: Option<LogGeneration>,
    report: R,
}

impl<F: LogFolder, R: Fn(Report)> Writing<F, R> {
    pub(super) fn new(
        (folder, generation): (F, GenerationFile),
        file: F::File,
        end_bytes: u64,
        report: R,
    ) -> Self {
        let (waiting, compaction, untold) = (VecDeque::new(), None, None);
        let reserved_bytes = end_bytes;
        let (ahead_bytes, is_tight) = (0, false);
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
    }

    fn run(&mut self, orders: &Receiver<Command>) -> Result<(), Fatal> {
        loop {
            let works = self.compaction.as_ref().is_some_and(|compaction| !compaction.is_ready());
            let command = match (works, self.waiting.is_empty() && self.untold.is_none() && !self.is_tight) {
                (true, _) => orders.try_recv(),
                (false, true) => orders.recv().map_err(|_| TryRecvError::Disconnected),
                (false, false) => receive(orders, LOG_RETRY),
            };
            match command {
                Ok(command) => self.serve(command)?,
                Err(TryRecvError::Empty) if works => self.shorten(),
                Err(TryRecvError::Empty) => self.retry()?,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    pub(super) fn serve(&mut self, command: Command) -> Result<(), Fatal> {
        match command {
            Command::Write(batch) => {
                self.waiting.push_back(batch);
                if self.waiting.len() == 1 { self.write() } else { Ok(()) }
            }
            Command::Shorten(snapshot, tail) => {
                self.begin(*snapshot, tail);
                Ok(())
            }
            Command::Switch => self.switch(),
            Command::GiveUp(why) => {
                if self.compaction.take().is_some() {
                    self.stays_long(&why);
                }
                Ok(())
            }
            Command::Generation(generation) => self.know(generation),
            Command::Look => {
                (self.ahead_bytes, self.is_tight) = (0, false);
                self.look_ahead();
                Ok(())
            }
        }
    }

    /// Makes the log's generation durable, or tries again.
    fn know(&mut self, generation: LogGeneration) -> Result<(), Fatal> {
        match self.generation.write(&generation) {
            Ok(()) => (self.report)(Report::Generation(generation)),
            Err(error) if is_full(&error) => {
                (self.untold, self.is_tight) = (Some(generation), true);
                (self.report)(Report::Full(format!("{}: {error}", self.folder.name())));
            }
            Err(error) => {
                return Err(Fatal(format!(
                    "log of transactions {}: writing its generation failed: {error}",
                    self.folder.name()
                )));
            }
        }
        Ok(())
    }

    /// Tries again what the disk had no room for.
    pub(super) fn retry(&mut self) -> Result<(), Fatal> {
        if let Some(generation) = self.untold.take() {
            self.know(generation)?;
        }
        if self.waiting.is_empty() {
            self.look_ahead();
            return Ok(());
        }
        self.write()
    }

    /// Writes what waits, as far as there is room.
    fn write(&mut self) -> Result<(), Fatal> {
        while let Some(batch) = self.waiting.pop_front() {
            match self.append(&batch) {
                Ok(()) => {
                    self.end_bytes = batch.offset_bytes + batch.bytes.len() as u64;
                    (self.report)(Report::Logged(batch.sequence));
                }
                Err(Fault::Full(error)) => {
                    self.waiting.push_front(batch);
                    // It takes space that the log itself needs.
                    self.give_up(&error);
                    self.is_tight = true;
                    (self.report)(Report::Full(format!("{}: {error}", self.folder.name())));
                    return Ok(());
                }
                Err(Fault::Unknown(action, error)) => {
                    return Err(Fatal(format!(
                        "log of transactions {}: {action} failed: {error}; what of it is on the disk will show after a restart",
                        self.folder.name()
                    )));
                }
            }
        }
        self.look_ahead();
        Ok(())
    }

    /// Takes disk space ahead of the log's end, if less than half of it is left, and says how much
    /// there is.
    fn look_ahead(&mut self) {
        let half = self.end_bytes + LOG_AHEAD_BYTES / 2;
        // A generation that waits for room keeps writes out: there is none until it is written.
        if self.untold.is_some() || !self.is_tight && half <= self.ahead_bytes {
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

    fn append(&mut self, batch: &Batch) -> Result<(), Fault> {
        let end_bytes = batch.offset_bytes + batch.bytes.len() as u64;
        let written =
            self.reserve(end_bytes).and_then(|()| self.file.write_at(&batch.bytes, batch.offset_bytes));
        match written {
            Ok(()) => self.file.sync().map_err(|error| Fault::Unknown("the flush", error)),
            Err(error) if is_full(&error) => {
                // Nobody was told of any of it, and the next try begins where this one did.
                (self.reserved_bytes, self.ahead_bytes) = (batch.offset_bytes, batch.offset_bytes);
                let cut = self.file.cut(batch.offset_bytes);
                Err(cut.map_or_else(|error| Fault::Unknown("cutting it", error), |()| Fault::Full(error)))
            }
            Err(error) => Err(Fault::Unknown("a write", error)),
        }
    }

    /// Takes disk space ahead, so that most flushes need not write where the file ends, and a full
    /// disk shows before anything is written.
    fn reserve(&mut self, end_bytes: u64) -> io::Result<()> {
        if end_bytes <= self.reserved_bytes {
            return Ok(());
        }
        let step = end_bytes.next_multiple_of(LOG_STEP_BYTES as u64);
        self.reserved_bytes = match self.file.reserve(step) {
            Err(error) if is_full(&error) => self.file.reserve(end_bytes).map(|()| end_bytes),
            outcome => outcome.map(|()| step),
        }?;
        Ok(())
    }

    fn begin(&mut self, snapshot: Snapshot, tail: Tail) {
        if !self.waiting.is_empty() {
            return self.stays_long(&"the disk is full");
        }
        let number = number_of(&self.file).and_then(|before| Ok(new_version(before, salt()?)));
        match number.and_then(|number| Compaction::begin(&self.folder, snapshot, tail, number)) {
            Ok(compaction) => self.compaction = Some(compaction),
            Err(error) => self.stays_long(&error),
        }
    }

    /// Goes on with the shorter log a little.
    pub(super) fn shorten(&mut self) {
        let Some(compaction) = &mut self.compaction else { return };
        match compaction.step(&self.file, self.end_bytes) {
            Ok(()) if compaction.is_ready() => {
                (self.report)(Report::Shortened(compaction.number(), compaction.tail()));
            }
            Ok(()) => {}
            Err(error) => self.give_up(&error),
        }
    }

    fn switch(&mut self) -> Result<(), Fatal> {
        let Some(compaction) = self.compaction.take() else {
            (self.report)(Report::NotShortened);
            return Ok(());
        };
        let (began, number) = (Instant::now(), compaction.number());
        let (file, log) = match compaction.complete(&self.file, self.end_bytes) {
            Ok(complete) => complete,
            Err(error) => {
                self.stays_long(&error);
                return Ok(());
            }
        };
        self.folder.put_in_place().map_err(|error| {
            Fatal(format!(
                "log of transactions {}: putting a shorter one in its place failed: {error}",
                self.folder.name()
            ))
        })?;
        let (before_bytes, bytes) = (self.end_bytes, log.tail().offset_bytes);
        self.file = file;
        (self.end_bytes, self.reserved_bytes) = (bytes, bytes);
        let us = began.elapsed().as_micros();
        tracing::info!(
            file = self.folder.name(),
            before_bytes,
            bytes,
            us,
            "the log of transactions is shorter"
        );
        self.ahead_bytes = 0;
        (self.report)(Report::Switched(log, number));
        self.look_ahead();
        Ok(())
    }

    /// The shorter log, if there is one, is given up. If it was ready, the home is told when it
    /// wants to switch.
    fn give_up(&mut self, why: &dyn std::fmt::Display) {
        let Some(compaction) = self.compaction.take() else { return };
        if compaction.is_ready() { self.folder.discard() } else { self.stays_long(why) }
    }

    fn stays_long(&self, why: &dyn std::fmt::Display) {
        self.folder.discard();
        tracing::warn!(file = self.folder.name(), reason = %why, "the log of transactions stays as long as it is");
        (self.report)(Report::NotShortened);
    }
}

/// What tells the log in a file from others.
pub(super) fn number_of(file: &impl LogFile) -> io::Result<u32> {
    let mut header = [0; LOG_HEADER_BYTES];
    file.read_at(&mut header, 0)?;
    Tail::salt(&header).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it begins as no log does"))
}

fn receive(orders: &Receiver<Command>, time: Duration) -> Result<Command, TryRecvError> {
    orders.recv_timeout(time).map_err(|error| match error {
        RecvTimeoutError::Timeout => TryRecvError::Empty,
        RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
    })
}

/// What tells a log from others.
pub(super) fn salt() -> io::Result<u32> {
    let mut bytes = [0; 4];
    random(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Fills with random bytes.
pub(super) fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests;
