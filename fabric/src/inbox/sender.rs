//! How does a message get into somebody else's inbox?
//!
//! Life of a message: short ones are written into an entry of the status ring. Others are cut into
//! packets; for each, space is claimed in the ring that the table names at that moment, the payload
//! is written there, and then an entry of the status ring is claimed and published that says where
//! it lies (section 3.1: payload first, status afterwards).
//!
//! Invariants
//! - An entry is claimed only when everything that it reports is written, and its control word is
//!   stored last.
//! - A sender has at most one claimed entry that is not published, so its entries are in the order
//!   of its messages.
//! - All words of the memory are checked before they are used; what cannot be is [`InboxFault`].

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

use super::{
    WhenFull,
    claim::{ClaimRing, Cursor, Damaged},
    layout::{Control, Header, INLINE_BYTES_MAX, InboxMap, Kind, Line, Packet, granules_of, lap_of},
};
use crate::{
    doorbell::Doorbell,
    error::OutOfBounds,
    memory::{Mapping, RawSlice},
    operation::Report,
    region::Source,
};

/// What is in an inbox's memory that no honest process puts there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InboxFault {
    #[error("the inbox's {ring} holds claims that cannot be")]
    Claims { ring: &'static str },
    #[error("the inbox's table names ring {ring} of {rings}")]
    Ring { ring: u64, rings: usize },
    #[error("inbox: {0}")]
    Memory(#[from] OutOfBounds),
}

/// How far a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// There is no room; what is sent already is in the [`Progress`].
    Stalled,
    /// There is no room and the inbox refuses; nothing of it is sent.
    Refused,
}

/// What was sent of a message that waits for room.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    sent: usize,
    /// A packet of it is written.
    started: bool,
    /// It was counted as stalled.
    stalled: bool,
    /// What is written and not reported yet, because the status ring is full.
    unreported: Option<Entry>,
    ring: usize,
}

/// An entry of the status ring before it has a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    kind: Kind,
    per_packet: bool,
    words: [u64; 7],
    used: usize,
}

/// Space for a packet.
#[derive(Debug)]
pub(crate) struct Space {
    ring: u16,
    position: u64,
    /// In the inbox's memory.
    offset: usize,
}

impl Space {
    pub(crate) fn ring(&self) -> usize {
        usize::from(self.ring)
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct InboxSender {
    map: InboxMap,
    index: u16,
    status: Cursor,
    rings: Vec<Cursor>,
    receiver_bell: Arc<Doorbell>,
}

impl InboxSender {
    /// A sender in memory of the peer, at a line of the table that the peer has chosen.
    pub(crate) fn open(mapping: Arc<Mapping>, index: u16, bell: Arc<Doorbell>) -> Result<Self, String> {
        let map = InboxMap::open(mapping)?;
        if usize::from(index) >= map.layout.shape.senders {
            return Err(format!("sender {index} of {}", map.layout.shape.senders));
        }
        Ok(Self::new(map, index, bell))
    }

    pub(super) fn new(map: InboxMap, index: u16, receiver_bell: Arc<Doorbell>) -> Self {
        let rings = vec![Cursor::default(); map.layout.shape.rings];
        Self { map, index, status: Cursor::default(), rings, receiver_bell }
    }

    pub(crate) fn line(&self, word: Line) -> Result<&AtomicU64, OutOfBounds> {
        self.map.line(self.index, word)
    }

    pub(crate) fn refuses(&self) -> bool {
        self.map.layout.shape.when_full == WhenFull::Refuse
    }

    /// Longer messages would go through a ring piece by piece, each waiting for the one before.
    pub(crate) fn pipelined_bytes_max(&self) -> usize {
        self.map.layout.shape.ring_bytes / 2
    }

    pub(crate) fn packet_bytes(&self) -> usize {
        self.map.layout.shape.packet_bytes
    }

    fn status_ring(&self) -> Result<ClaimRing<'_>, OutOfBounds> {
        Ok(ClaimRing {
            claims: self.map.status_claims()?,
            head: self.map.header(Header::StatusHead)?,
            hint: self.map.header(Header::StatusHint)?,
        })
    }

    /// Tells everybody that the memory is damaged.
    fn fault(&self, ring: &'static str) -> InboxFault {
        if let Ok(word) = self.map.header(Header::Damaged) {
            word.store(1, Ordering::Release);
        }
        InboxFault::Claims { ring }
    }

    /// The ring that the table names now.
    pub(crate) fn current_ring(&self) -> Result<usize, InboxFault> {
        let ring = self.line(Line::Ring)?.load(Ordering::Acquire);
        let rings = self.map.layout.shape.rings;
        usize::try_from(ring).ok().filter(|ring| *ring < rings).ok_or(InboxFault::Ring { ring, rings })
    }

    /// Claims space for a packet; `None` when the ring has none.
    pub(crate) fn claim_space(&mut self, ring: usize, length: usize) -> Result<Option<Space>, InboxFault> {
        let claims = ClaimRing {
            claims: self.map.ring_claims(ring)?,
            head: self.map.ring_head(ring)?,
            hint: self.map.ring_hint(ring)?,
        };
        let Some(cursor) = self.rings.get_mut(ring) else { return Ok(None) };
        match claims.claim(cursor, granules_of(length), self.index) {
            Ok(None) => Ok(None),
            Ok(Some(position)) => {
                let offset = self.map.place(ring, position);
                // There are at most `INBOX_RINGS_MAX` rings.
                Ok(Some(Space { ring: u16::try_from(ring).unwrap_or(u16::MAX), position, offset }))
            }
            Err(Damaged) => Err(self.fault("ring")),
        }
    }

    /// The memory of a claimed space, to be filled by the kernel.
    pub(crate) fn space_memory(&self, space: &Space, length: usize) -> Result<RawSlice, OutOfBounds> {
        self.map.mapping().raw_slice(space.offset, length)
    }

    /// Publishes an entry; false when the status ring is full.
    pub(crate) fn publish(&mut self, entry: &Entry) -> Result<bool, InboxFault> {
        let Some(position) = self.claim_entry()? else { return Ok(false) };
        self.publish_at(position, entry)?;
        Ok(true)
    }

    /// Claims the next entry of the status ring; `None` when it is full.
    pub(super) fn claim_entry(&mut self) -> Result<Option<u64>, InboxFault> {
        let mut cursor = self.status;
        let claimed = self.status_ring()?.claim(&mut cursor, 1, self.index);
        self.status = cursor;
        claimed.map_err(|Damaged| self.fault("status ring"))
    }

    /// Publishes an entry at a position that we have claimed.
    pub(super) fn publish_at(&self, position: u64, entry: &Entry) -> Result<(), InboxFault> {
        let words = self.map.entry(position)?;
        for (word, value) in words[1..].iter().zip(&entry.words[..entry.used]) {
            word.store(*value, Ordering::Relaxed);
        }
        let lap = lap_of(position, self.map.layout.entries);
        let control = Control { lap, sender: self.index, per_packet: entry.per_packet, kind: entry.kind };
        words[0].store(control.encode(), Ordering::Release);
        Ok(())
    }

    /// Wakes the receiver if it sleeps. To be called after `publish`.
    pub(crate) fn wake_receiver(&self) {
        fence(Ordering::SeqCst);
        let sleeps =
            |word: &AtomicU64| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0;
        if self.map.header(Header::Sleeping).is_ok_and(sleeps) {
            self.receiver_bell.ring();
        }
    }

    /// Sends a message, from where `progress` says; the caller wakes the receiver.
    pub(crate) fn send(
        &mut self,
        source: Source<'_>,
        report: Report,
        progress: &mut Progress,
    ) -> Result<Sent, InboxFault> {
        let message_bytes = source.len();
        if message_bytes <= INLINE_BYTES_MAX {
            let entry = inline(source, report)?;
            return if self.publish(&entry)? { Ok(Sent::All) } else { self.no_room(progress) };
        }
        if let Some(entry) = progress.unreported.take()
            && !self.publish(&entry)?
        {
            progress.unreported = Some(entry);
            return Ok(Sent::Stalled);
        }
        if !progress.started {
            progress.ring = self.current_ring()?;
        }
        while progress.sent < message_bytes {
            let length = (message_bytes - progress.sent).min(self.packet_bytes());
            let Some(space) = self.claim_space(progress.ring, length)? else { return self.no_room(progress) };
            source.copy_to(progress.sent, length, self.map.mapping(), space.offset)?;
            let entry = packet(&space, report, length, progress.sent, message_bytes);
            progress.started = true;
            progress.sent += length;
            if !self.publish(&entry)? {
                progress.unreported = Some(entry);
                return self.no_room(progress);
            }
            if progress.sent < message_bytes {
                self.wake_receiver();
            }
        }
        Ok(Sent::All)
    }

    /// What a message does that finds no room.
    fn no_room(&self, progress: &mut Progress) -> Result<Sent, InboxFault> {
        if !progress.started && self.refuses() {
            self.count(Line::Refusals);
            return Ok(Sent::Refused);
        }
        if !std::mem::replace(&mut progress.stalled, true) {
            self.count(Line::Stalls);
        }
        Ok(Sent::Stalled)
    }

    pub(crate) fn count(&self, word: Line) {
        if let Ok(word) = self.line(word) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether an immediate has room now; if not, what becomes of it.
    pub(crate) fn room_for_immediate(&mut self, progress: &mut Progress) -> Result<Sent, InboxFault> {
        if self.has_status_room()? { Ok(Sent::All) } else { self.no_room(progress) }
    }

    /// Whether an entry could be published now.
    pub(crate) fn has_status_room(&mut self) -> Result<bool, InboxFault> {
        let mut cursor = self.status;
        let room = self.status_ring()?.has_room(&mut cursor, 1);
        self.status = cursor;
        room.map_err(|Damaged| self.fault("status ring"))
    }

    /// Whether a message that has stalled could go on now.
    pub(crate) fn can_go_on(
        &mut self,
        message_bytes: usize,
        progress: &Progress,
    ) -> Result<bool, InboxFault> {
        if !self.has_status_room()? {
            return Ok(false);
        }
        if message_bytes <= INLINE_BYTES_MAX || progress.unreported.is_some() {
            return Ok(true);
        }
        let ring = if progress.started { progress.ring } else { self.current_ring()? };
        let length = (message_bytes - progress.sent).min(self.packet_bytes());
        self.has_space(ring, length)
    }

    /// Whether space for a packet could be claimed now.
    pub(crate) fn has_space(&mut self, ring: usize, length: usize) -> Result<bool, InboxFault> {
        let claims = ClaimRing {
            claims: self.map.ring_claims(ring)?,
            head: self.map.ring_head(ring)?,
            hint: self.map.ring_hint(ring)?,
        };
        let Some(cursor) = self.rings.get_mut(ring) else { return Ok(false) };
        let room = claims.has_room(cursor, granules_of(length));
        room.map_err(|Damaged| self.fault("ring"))
    }

    /// Says that this sender is about to sleep until there is room; it must look once more
    /// afterwards.
    pub(crate) fn say_stalled(&self) -> Result<(), InboxFault> {
        self.line(Line::Stalled)?.store(1, Ordering::SeqCst);
        self.map.header(Header::Stalled)?.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ok(())
    }
}

/// The entry of a message that fits into it.
pub(crate) fn inline(source: Source<'_>, report: Report) -> Result<Entry, InboxFault> {
    let mut bytes = [0; INLINE_BYTES_MAX];
    let length = source.len().min(INLINE_BYTES_MAX);
    source.copy_out(&mut bytes[..length])?;
    let mut words = [0; 7];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    // At most 56, which fits.
    let kind = Kind::Inline { length: u8::try_from(length).unwrap_or(0) };
    Ok(Entry { kind, per_packet: report == Report::PerPacket, words, used: length.div_ceil(8) })
}

/// The entry of a packet that lies in `space`.
pub(crate) fn packet(
    space: &Space,
    report: Report,
    length: usize,
    offset: usize,
    message_bytes: usize,
) -> Entry {
    // Lengths of messages are at most `MESSAGE_BYTES_MAX`, which fits.
    let fits = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let packet = Packet {
        ring: space.ring,
        position: space.position,
        length: fits(length),
        offset: fits(offset),
        message_bytes: fits(message_bytes),
    };
    let mut words = [0; 7];
    words[..3].copy_from_slice(&packet.encode());
    Entry { kind: Kind::Packet, per_packet: report == Report::PerPacket, words, used: 3 }
}

/// The entry of a write that announces itself.
pub(crate) fn immediate(immediate: u32, bytes: u64) -> Entry {
    let mut words = [0; 7];
    words[..2].copy_from_slice(&[u64::from(immediate), bytes]);
    Entry { kind: Kind::Immediate, per_packet: false, words, used: 2 }
}

/// The entry of a message that was handed over.
pub(crate) fn handed() -> Entry {
    Entry { kind: Kind::Handed, per_packet: false, words: [0; 7], used: 0 }
}
