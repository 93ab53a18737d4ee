//! Runs the thread of the log, which makes batches of records durable and writes a shorter log on
//! request.
//!
//! The thread writes one batch at a time to the end of the log, flushes once, and reports.
//! Meanwhile the participant gathers the next batch. Between batches the thread works on a shorter
//! log, if the participant has asked for one (`compaction`).
//!
//! Invariants
//! - A batch is reported only when it and all earlier batches are durable.
//! - Disk space is reserved beyond the log's end, and its amount is reported to the participant.
//!   The participant accepts only what fits there, so a full disk leaves nothing in doubt.
//! - A full disk loses nothing: a partly written batch is cut off the file, kept in memory, and
//!   written again when there is space.
//! - A fault that leaves the file's state unknown (a write or flush that fails for another reason)
//!   stops the node. The batch is not reported.

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
    log::{Batch, Tail},
    store::Snapshot,
};

use super::{
    compaction::Compaction,
    log_file::{Folder, LogFile, LogFolder, is_full},
    report::Report,
};
use crate::{
    copies::{GenerationFile, new_version},
    error::StartError,
    lifecycle::{self, Lifecycle},
    limits::{LOG_AHEAD_BYTES, LOG_QUEUE_MAX, LOG_RETRY, LOG_STEP_BYTES},
    message_queue::{Mail, MessageQueue},
};

/// A command of the participant.
#[derive(Debug)]
pub(super) enum Command {
    /// To make a batch durable.
    Write(Arc<Batch>),
    /// To write a shorter log that begins with this snapshot, which was taken when the log ended at
    /// this tail.
    Shorten(Box<Snapshot>, Tail),
    /// To switch to the shorter log. The participant sends no batch before this is reported.
    Switch,
    /// To give up the shorter log, for this reason.
    GiveUp(String),
    /// To make the log's generation durable.
    Generation(LogGeneration),
    /// To report how much space there is ahead of the log's end.
    Look,
}

/// The participant's handle on the log's thread.
#[derive(Debug)]
pub(super) struct LogThread {
    commands: SyncSender<Command>,
}

impl LogThread {
    /// Starts the thread with this nice value. It reports to `message_queue`, and ends when the
    /// handle is dropped.
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
            let mut writing = LogThreadState::new((folder, generation), file, end_bytes, report);
            if let Err(fatal) = writing.run(&orders) {
                lifecycle.fail(&fatal.0);
            }
        };
        let thread = std::thread::Builder::new().name(format!("{name}-log")).spawn(run);
        let thread =
            thread.map_err(|source| StartError::Os { action: "start the thread of the log", source })?;
        Ok((Self { commands }, thread))
    }

    /// Sends a command. If the thread has ended, so does the node, and the command is dropped.
    pub(super) fn ask(&self, command: Command) {
        match self.commands.try_send(command) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // The participant bounds its commands, so the queue is never full; if it were, waiting
            // would be right.
            Err(TrySendError::Full(command)) => drop(self.commands.send(command)),
        }
    }
}

/// A fault that stops the node, with the reason.
#[derive(Debug)]
pub(super) struct Fatal(pub(super) String);

enum Fault {
    Full(io::Error),
    Unknown(&'static str, io::Error),
}

/// The state of the thread.
pub(super) struct LogThreadState<F: LogFolder, R> {
    folder: F,
    file: F::File,
    /// The position behind the last durable batch.
    end_bytes: u64,
    /// The position up to which disk space is allocated.
    reserved_bytes: u64,
    /// Batches for which the disk has no space.
    waiting: VecDeque<Arc<Batch>>,
    compaction: Option<Compaction<F::File>>,
    /// The position up to which disk space is reserved beyond the file's length.
    ahead_bytes: u64,
    /// Whether the last reservation found too little space.
    is_tight: bool,
    generation: GenerationFile,
    /// A generation for which the disk has no space.
    untold: Option<LogGeneration>,
    report: R,
}

impl<F: LogFolder, R: Fn(Report)> LogThreadState<F, R> {
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
            Command::Generation(generation) => self.write_generation(generation),
            Command::Look => {
                (self.ahead_bytes, self.is_tight) = (0, false);
                self.look_ahead();
                Ok(())
            }
        }
    }

    /// Makes the log's generation durable, or keeps it for another try.
    fn write_generation(&mut self, generation: LogGeneration) -> Result<(), Fatal> {
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

    /// Tries again to write what the disk had no space for.
    pub(super) fn retry(&mut self) -> Result<(), Fatal> {
        if let Some(generation) = self.untold.take() {
            self.write_generation(generation)?;
        }
        if self.waiting.is_empty() {
            self.look_ahead();
            return Ok(());
        }
        self.write()
    }

    /// Writes the waiting batches as far as there is space.
    fn write(&mut self) -> Result<(), Fatal> {
        while let Some(batch) = self.waiting.pop_front() {
            match self.append(&batch) {
                Ok(()) => {
                    self.end_bytes = batch.offset_bytes + batch.bytes.len() as u64;
                    (self.report)(Report::Logged(batch.sequence));
                }
                Err(Fault::Full(error)) => {
                    self.waiting.push_front(batch);
                    // A shorter log takes space that the log itself needs.
                    self.give_up(&error);
                    self.is_tight = true;
                    (self.report)(Report::Full(format!("{}: {error}", self.folder.name())));
                    return Ok(());
                }
                Err(Fault::Unknown(action, error)) => {
                    return Err(Fatal(format!(
                        "log of transactions {}: {action} failed: {error}; only a restart of the node shows which records are on the disk",
                        self.folder.name()
                    )));
                }
            }
        }
        self.look_ahead();
        Ok(())
    }

    /// Reserves disk space ahead of the log's end if less than half of it remains, and reports how
    /// much there is.
    fn look_ahead(&mut self) {
        let half = self.end_bytes + LOG_AHEAD_BYTES / 2;
        // A generation that waits for space keeps writes out: no space is reported until it is
        // written.
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
            // A failed reservation shows again in the next write.
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
                // None of it was reported, and the next try begins at the same position.
                (self.reserved_bytes, self.ahead_bytes) = (batch.offset_bytes, batch.offset_bytes);
                let cut = self.file.cut(batch.offset_bytes);
                Err(cut.map_or_else(|error| Fault::Unknown("cutting it", error), |()| Fault::Full(error)))
            }
            Err(error) => Err(Fault::Unknown("a write", error)),
        }
    }

    /// Allocates disk space in steps, so that most flushes need not write a new file length, and a
    /// full disk shows before anything is written.
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

    /// Writes the next piece of the shorter log.
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

    /// Gives up the shorter log, if there is one. If it was ready, the participant is told when it
    /// asks for the switch.
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

/// The number of the log in a file.
pub(super) fn number_of(file: &impl LogFile) -> io::Result<u32> {
    let mut header = [0; LOG_HEADER_BYTES];
    file.read_at(&mut header, 0)?;
    Tail::salt(&header)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its header is not that of a log"))
}

fn receive(orders: &Receiver<Command>, time: Duration) -> Result<Command, TryRecvError> {
    orders.recv_timeout(time).map_err(|error| match error {
        RecvTimeoutError::Timeout => TryRecvError::Empty,
        RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
    })
}

/// Draws a random number for a new log.
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
