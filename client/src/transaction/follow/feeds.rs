//! Reads the feeds of all participants to their ends.
//!
//! ```text
//! feed that is mapped here    header copied, records copied, header copied   at the end, for all of them: check that their nodes are alive
//! any other feed              header read -> records read -> header read     all participants at the same time, one-sidedly, into the
//!                                                                            memory of their connections
//! ```
//!
//! Invariants
//! - A round reads each feed at least to the end that the first header of the round named.
//! - Bytes are verified in private memory, by `rackscan_ramp::feed`.

use std::time::Instant;

use rackscan_ramp::{
    feed::{FeedHeader, Follow, Pieces},
    limits::FEED_HEADER_BYTES,
};

use super::{
    CaughtUp, Follower,
    feed::{Feed, Stage},
    outcome::{AttemptError, StopReason},
};
use crate::{OneRead, transaction::follower_event::FollowerEvent};

impl Follower {
    /// Reads all feeds to their ends.
    pub(super) fn round<F: Follow>(
        &mut self,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), AttemptError<F::Fault>> {
        let apart = self.feeds.iter().filter(|(_, feed)| !feed.is_mapped());
        let apart: Vec<usize> = apart.map(|(at, _)| *at).collect();
        for at in apart {
            self.read_header(at, Stage::Header)?;
        }
        // So that the other reads proceed meanwhile.
        self.session.lines.release();
        for feed in self.feeds.values_mut().filter(|feed| feed.is_mapped()) {
            feed.read_mapped(&mut self.bytes, follow, caught)?;
        }
        self.take_reads(follow, deadline, caught)?;
        self.read_copies(follow, deadline, caught)?;
        Ok(self.check_alive()?)
    }

    /// Checks that all nodes with mapped memory are alive, so that the copies count: one system
    /// call for all of them.
    fn check_alive(&mut self) -> Result<(), StopReason> {
        let Some(first) = self.mapped.first() else { return Ok(()) };
        if self.session.lines.are_there(&self.mapped) {
            return Ok(());
        }
        let unavailable = self.mapped.iter().find(|at| self.session.lines.unavailable(**at).is_some());
        Err(StopReason::Lost(self.session.participants[*unavailable.unwrap_or(first)].id))
    }

    /// Handles ended reads of feeds that are not mapped, until all of these feeds are read to their
    /// ends.
    fn take_reads<F: Follow>(
        &mut self,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), AttemptError<F::Fault>> {
        while self.feeds.values().any(|feed| feed.stage != Stage::Done) {
            self.wait(deadline)?;
            while let Some(news) = self.follower_events().pop_front() {
                if let FollowerEvent::Read { at, is_done } = news {
                    self.read_ended(at, is_done, follow, caught)?;
                }
            }
        }
        Ok(())
    }

    fn read_ended<F: Follow>(
        &mut self,
        at: usize,
        is_done: bool,
        follow: &mut F,
        caught: &mut CaughtUp,
    ) -> Result<(), AttemptError<F::Fault>> {
        let Some(feed) = self.feeds.get_mut(&at) else { return Ok(()) };
        feed.reads = feed.reads.saturating_sub(1);
        if !is_done {
            let participant = feed.participant;
            self.session.lines.hang_up(at, "its feed could not be read");
            return Err(StopReason::Lost(participant).into());
        }
        if feed.reads > 0 {
            return Ok(());
        }
        match feed.stage {
            Stage::Done => Ok(()),
            Stage::Header => {
                let header = self.header(at)?;
                self.feed(at)?.end = header.end;
                Ok(self.go_on(at, header)?)
            }
            Stage::Pieces(length) => Ok(self.read_header(at, Stage::After(length))?),
            Stage::After(length) => {
                let header = self.header(at)?;
                self.copy(at, FEED_HEADER_BYTES, length)?;
                let Some(feed) = self.feeds.get_mut(&at) else { return Ok(()) };
                feed.tell(&self.bytes[..length], header, follow, caught)?;
                if feed.is_read() {
                    feed.stage = Stage::Done;
                    return Ok(());
                }
                Ok(self.go_on(at, header)?)
            }
        }
    }

    fn feed(&mut self, at: usize) -> Result<&mut Feed, StopReason> {
        self.feeds.get_mut(&at).ok_or(StopReason::Lost(self.session.participants[at].id))
    }

    /// Reads the new bytes of a feed, if there are any.
    fn go_on(&mut self, at: usize, header: FeedHeader) -> Result<(), StopReason> {
        let feed = self.feed(at)?;
        let Some(pieces) = feed.wanted(header)? else {
            feed.stage = Stage::Done;
            return Ok(());
        };
        feed.stage = Stage::Pieces(pieces.bytes());
        let Pieces { first, second } = pieces;
        let behind = FEED_HEADER_BYTES + first.len();
        self.read(at, first.start, FEED_HEADER_BYTES, first.len())?;
        if second.is_empty() { Ok(()) } else { self.read(at, second.start, behind, second.len()) }
    }

    fn read_header(&mut self, at: usize, stage: Stage) -> Result<(), StopReason> {
        self.feed(at)?.stage = stage;
        self.read(at, 0, 0, FEED_HEADER_BYTES)
    }

    /// Begins to read a part of a feed to a place in the connection's memory for reads.
    fn read(&mut self, at: usize, from: usize, to: usize, length_bytes: usize) -> Result<(), StopReason> {
        let source = self.feed(at)?.memory;
        let read = OneRead {
            source,
            source_offset_bytes: from as u64,
            target_offset_bytes: self.session.parts.slots.start + to,
            length_bytes,
        };
        self.session.tags += 1;
        match self.session.lines.read(at, self.session.tags, &read) {
            Ok(()) => {
                self.feed(at)?.reads += 1;
                Ok(())
            }
            Err(error) => {
                let participant = self.session.participants[at].id;
                tracing::debug!(%participant, %error, "a feed was not read");
                self.session.lines.hang_up(at, "its feed could not be read");
                Err(StopReason::Lost(participant))
            }
        }
    }

    /// A private copy of the header that was read.
    fn header(&mut self, at: usize) -> Result<FeedHeader, StopReason> {
        self.copy(at, 0, FEED_HEADER_BYTES)?;
        let header = self.bytes.first_chunk();
        header.map(FeedHeader::of).ok_or(StopReason::Lost(self.session.participants[at].id))
    }

    /// Copies bytes that were read into private memory.
    fn copy(&mut self, at: usize, from: usize, length: usize) -> Result<(), StopReason> {
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        let from = self.session.parts.slots.start + from;
        let memory = self.session.lines.memory(at);
        let copied = memory.map(|(region, _)| region.copy_out(from, &mut self.bytes[..length]));
        if matches!(copied, Some(Ok(()))) {
            Ok(())
        } else {
            Err(StopReason::Lost(self.session.participants[at].id))
        }
    }

    /// Waits for reads that have not ended, so that their memory is free. Closes connections on
    /// which they do not end in time.
    pub(super) fn wait_for_reads(&mut self, deadline: Instant) {
        loop {
            while let Some(news) = self.follower_events().pop_front() {
                if let FollowerEvent::Read { at, .. } = news
                    && let Some(feed) = self.feeds.get_mut(&at)
                {
                    feed.reads = feed.reads.saturating_sub(1);
                }
            }
            let session = &self.session;
            let is_lost = |at: usize| {
                session.participants[at].opened.is_none() || session.lines.unavailable(at).is_some()
            };
            let waits = self.feeds.iter().filter(|(at, feed)| feed.reads > 0 && !is_lost(**at));
            let waits: Vec<usize> = waits.map(|(at, _)| *at).collect();
            if waits.is_empty() {
                return;
            }
            if Instant::now() >= deadline {
                for at in waits {
                    self.session.lines.hang_up(at, "it did not end a read of its feed in time");
                }
                return;
            }
            self.session.wait(deadline);
        }
    }
}
