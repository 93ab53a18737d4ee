//! Reads the feed of one participant (the memory in which it publishes its records), and passes its
//! records to the program.

use rackscan_fabric::{RawSlice, RemoteRegion};
use rackscan_ramp::{
    feed::{Behind, FeedHeader, FeedReader, Follow, Pieces},
    limits::FEED_HEADER_BYTES,
    message::ParticipantId,
};

use super::{
    CaughtUp,
    outcome::{AttemptError, StopReason},
};

/// The stage of reading a feed that is not mapped here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// This round is done.
    Done,
    /// The header is read for the first time.
    Header,
    /// So many bytes are read, in one piece or two.
    Pieces(usize),
    /// The header is read again; so many bytes were read before.
    After(usize),
}

/// The feed of one participant.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) participant: ParticipantId,
    pub(super) memory: RemoteRegion,
    /// The feed, if the wire maps it into this process.
    pub(super) mapped: Option<RawSlice>,
    pub(super) reader: FeedReader,
    pub(super) stage: Stage,
    /// Number of reads that have not ended.
    pub(super) reads: usize,
    /// The end that this round reads to.
    pub(super) end: u64,
}

impl Feed {
    pub(super) fn new(
        participant: ParticipantId,
        memory: RemoteRegion,
        mapped: Option<RawSlice>,
        reader: FeedReader,
    ) -> Self {
        Self { participant, memory, mapped, reader, stage: Stage::Done, reads: 0, end: 0 }
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Copies the header out of mapped memory.
    fn look(&self) -> Result<FeedHeader, StopReason> {
        let mut header = [0; FEED_HEADER_BYTES];
        let copied = self.mapped.as_ref().map(|mapped| mapped.copy_out(0, &mut header));
        if matches!(copied, Some(Ok(()))) {
            Ok(FeedHeader::of(&header))
        } else {
            Err(StopReason::Lost(self.participant))
        }
    }

    /// The pieces to copy next, if there is anything new.
    pub(super) fn wanted(&self, header: FeedHeader) -> Result<Option<Pieces>, StopReason> {
        self.reader.wanted(header).map_err(|why| StopReason::Behind(self.participant, why))
    }

    /// Tells the records in the copied bytes.
    pub(super) fn tell<F: Follow>(
        &mut self,
        bytes: &[u8],
        after: FeedHeader,
        follow: &mut F,
        caught: &mut CaughtUp,
    ) -> Result<(), AttemptError<F::Fault>> {
        let at = self.reader.offset_bytes();
        let behind = |why| StopReason::Behind(self.participant, why);
        let records = self.reader.take(bytes, after).map_err(behind)?;
        if records.is_empty() {
            return Err(behind(Behind::NoRecord { at, end: after.end }).into());
        }
        for record in records {
            follow.record(self.participant, record).map_err(AttemptError::Fault)?;
            caught.records += 1;
        }
        Ok(())
    }

    pub(super) fn is_read(&self) -> bool {
        self.reader.offset_bytes() >= self.end
    }

    /// Tells the new records in mapped memory. `bytes` is reused.
    pub(super) fn read_mapped<F: Follow>(
        &mut self,
        bytes: &mut Vec<u8>,
        follow: &mut F,
        caught: &mut CaughtUp,
    ) -> Result<(), AttemptError<F::Fault>> {
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
                return Err(StopReason::Lost(self.participant).into());
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
