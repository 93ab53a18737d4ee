//! How are all feeds read to their ends?
//!
//! ```text
//! mapped:   header copied, pieces copied, header copied     .. at the end of the round, for all of them: do the nodes live?
//! else:     header read -> pieces read -> header read       all homes at the same time, into the memory of their connections
//! ```
//!
//! Invariants
//! - A round reads each feed to the end that its first look at the header found, at least.
//! - What is copied is judged in private memory: `rackscan_ramp::feed` says what it is worth.

use std::time::Instant;

use rackscan_fabric::{RawSlice, RemoteRegion};
use rackscan_ramp::{
    feed::{Behind, FeedHeader, FeedReader, Follow, Pieces},
    limits::FEED_HEADER_BYTES,
    message::HomeId,
};

use super::{CaughtUp, Ended, Follower, News, Stop};
use crate::OneRead;

/// What is being read of a feed that is not mapped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing more in this round.
    Done,
    /// The first look at the header.
    Header,
    /// So many bytes, in one piece or two.
    Pieces(usize),
    /// The header again; so many bytes were read before.
    After(usize),
}

/// A home's feed.
#[derive(Debug)]
pub(super) struct Followed {
    home: HomeId,
    memory: RemoteRegion,
    /// Where the wire maps it here.
    mapped: Option<RawSlice>,
    reader: FeedReader,
    stage: Stage,
    /// Reads that have not ended.
    reads: usize,
    /// The end that this round reads to.
    end: u64,
}

impl Followed {
    pub(super) fn new(
        home: HomeId,
        memory: RemoteRegion,
        mapped: Option<RawSlice>,
        reader: FeedReader,
    ) -> Self {
        Self { home, memory, mapped, reader, stage: Stage::Done, reads: 0, end: 0 }
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// The header of mapped memory.
    fn look(&self) -> Result<FeedHeader, Stop> {
        let mut header = [0; FEED_HEADER_BYTES];
        let copied = self.mapped.as_ref().map(|mapped| mapped.copy_out(0, &mut header));
        if matches!(copied, Some(Ok(()))) { Ok(FeedHeader::of(&header)) } else { Err(Stop::Lost(self.home)) }
    }

    /// What to copy next, if there is anything new.
    fn wanted(&self, header: FeedHeader) -> Result<Option<Pieces>, Stop> {
        self.reader.wanted(header).map_err(|why| Stop::Behind(self.home, why))
    }

    /// Tells the records in bytes that were copied as wanted.
    fn tell<F: Follow>(
        &mut self,
        bytes: &[u8],
        after: FeedHeader,
        follow: &mut F,
        caught: &mut CaughtUp,
    ) -> Result<(), Ended<F::Fault>> {
        let at = self.reader.offset_bytes();
        let behind = |why| Stop::Behind(self.home, why);
        let records = self.reader.take(bytes, after).map_err(behind)?;
        if records.is_empty() {
            return Err(behind(Behind::NoRecord { at, end: after.end }).into());
        }
        for record in records {
            follow.record(self.home, record).map_err(Ended::Fault)?;
            caught.records += 1;
        }
        Ok(())
    }

    fn is_read(&self) -> bool {
        self.reader.offset_bytes() >= self.end
    }

    /// Tells what is new in mapped memory. `bytes` is used again.
    fn read_mapped<F: Follow>(
        &mut self,
        bytes: &mut Vec<u8>,
        follow: &mut F,
        caught: &mut CaughtUp,
    ) -> Result<(), Ended<F::Fault>> {
        let mut header = self.look()?;
        self.end = header.end;
        while let Some(Pieces { first, second }) = self.wanted(header)? {
            let all = first.len() + second.len();
            if bytes.len() < all {
                bytes.resize(all, 0);
            }
            let (here, round) = bytes[..all].split_at_mut(first.len());
            let copy = |mapped: &RawSlice| {
                mapped.copy_out(first.start, here).and_then(|()| mapped.copy_out(second.start, round))
            };
            if !matches!(self.mapped.as_ref().map(copy), Some(Ok(()))) {
                return Err(Stop::Lost(self.home).into());
            }
            header = self.look()?;
            self.tell(&bytes[..all], header, follow, caught)?;
            if self.is_read() {
                break;
            }
        }
        Ok(())
    }
}

impl Follower {
    /// Reads all feeds to their ends.
    pub(super) fn round<F: Follow>(
        &mut self,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), Ended<F::Fault>> {
        let apart = self.feeds.iter().filter(|(_, feed)| !feed.is_mapped());
        let apart: Vec<usize> = apart.map(|(at, _)| *at).collect();
        for at in apart {
            self.read_header(at, Stage::Header)?;
        }
        // While the others travel.
        self.session.lines.release();
        for feed in self.feeds.values_mut().filter(|feed| feed.is_mapped()) {
            feed.read_mapped(&mut self.bytes, follow, caught)?;
        }
        self.take_reads(follow, deadline, caught)?;
        self.read_copies(follow, deadline, caught)?;
        Ok(self.check_alive()?)
    }

    /// What was copied out of mapped memory counts if the nodes live: one system call for all of
    /// them.
    fn check_alive(&mut self) -> Result<(), Stop> {
        if self.mapped.is_empty() || self.session.lines.are_there(&self.mapped) {
            return Ok(());
        }
        let away = self.mapped.iter().find(|at| self.session.lines.away(**at).is_some());
        let at = away.or(self.mapped.first()).copied().unwrap_or(0);
        Err(Stop::Lost(self.session.homes[at].id))
    }

    /// Takes what was read of feeds that are not mapped, until all of them were read to their ends.
    fn take_reads<F: Follow>(
        &mut self,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), Ended<F::Fault>> {
        while self.feeds.values().any(|feed| feed.stage != Stage::Done) {
            self.wait(deadline)?;
            while let Some(news) = self.news().pop_front() {
                if let News::Read { at, is_done } = news {
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
    ) -> Result<(), Ended<F::Fault>> {
        let Some(feed) = self.feeds.get_mut(&at) else { return Ok(()) };
        feed.reads = feed.reads.saturating_sub(1);
        if !is_done {
            let home = feed.home;
            self.session.lines.hang_up(at, "its feed could not be read");
            return Err(Stop::Lost(home).into());
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

    fn feed(&mut self, at: usize) -> Result<&mut Followed, Stop> {
        self.feeds.get_mut(&at).ok_or(Stop::Lost(self.session.homes[at].id))
    }

    /// Reads what is new, if there is anything.
    fn go_on(&mut self, at: usize, header: FeedHeader) -> Result<(), Stop> {
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

    fn read_header(&mut self, at: usize, stage: Stage) -> Result<(), Stop> {
        self.feed(at)?.stage = stage;
        self.read(at, 0, 0, FEED_HEADER_BYTES)
    }

    /// Begins to read a part of a feed to a place in the connection's memory for reads.
    fn read(&mut self, at: usize, from: usize, to: usize, length_bytes: usize) -> Result<(), Stop> {
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
                let home = self.session.homes[at].id;
                tracing::debug!(%home, %error, "a feed was not read");
                self.session.lines.hang_up(at, "its feed could not be read");
                Err(Stop::Lost(home))
            }
        }
    }

    /// The header that was read.
    fn header(&mut self, at: usize) -> Result<FeedHeader, Stop> {
        self.copy(at, 0, FEED_HEADER_BYTES)?;
        let header = self.bytes.first_chunk();
        header.map(FeedHeader::of).ok_or(Stop::Lost(self.session.homes[at].id))
    }

    /// Copies what was read to where it is judged.
    fn copy(&mut self, at: usize, from: usize, length: usize) -> Result<(), Stop> {
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        let from = self.session.parts.slots.start + from;
        let memory = self.session.lines.memory(at);
        let copied = memory.map(|(region, _)| region.copy_out(from, &mut self.bytes[..length]));
        if matches!(copied, Some(Ok(()))) { Ok(()) } else { Err(Stop::Lost(self.session.homes[at].id)) }
    }

    /// Waits for reads that have not ended, so that their memory is free; connections that do not
    /// end them are given up.
    pub(super) fn wait_for_reads(&mut self, deadline: Instant) {
        loop {
            while let Some(news) = self.news().pop_front() {
                if let News::Read { at, .. } = news
                    && let Some(feed) = self.feeds.get_mut(&at)
                {
                    feed.reads = feed.reads.saturating_sub(1);
                }
            }
            let session = &self.session;
            let is_lost = |at: usize| session.homes[at].opened.is_none() || session.lines.away(at).is_some();
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
