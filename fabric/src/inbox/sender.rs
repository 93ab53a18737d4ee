//! Writes messages into a peer's inbox.
//!
//! A short message is written into an entry of the status ring. A longer one is cut into packets.
//! For each packet the sender claims space in its ring, writes the payload there, then claims an
//! entry of the status ring and publishes in it where the payload lies (section 3.1 of the paper:
//! payload first, status afterwards). The sender looks up its ring in the table at the start of
//! each message.
//!
//! Invariants
//! - An entry is claimed only when everything that it reports is written, and its control word is
//!   stored last.
//! - A sender has at most one claimed entry that is not published, so its entries are in the order
//!   of its messages.
//! - All words of the memory are checked before they are used. An impossible one is an
//!   [`InboxFault`].

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

use super::{
    claim::{ClaimRing, Cursor, Damaged},
    config::WhenFull,
    layout::{Control, Header, INLINE_BYTES_MAX, InboxMap, Kind, Packet, SenderWord, granules_of, lap_of},
};
use crate::{
    doorbell::Doorbell,
    error::OutOfBounds,
    memory::{Mapping, RawSlice},
    operation::Report,
    region::Source,
};

/// A word in an inbox's memory that no honest process writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InboxFault {
    #[error("the receive queue is damaged: invalid write positions in its {ring}")]
    Claims { ring: &'static str },
    #[error("the receive queue is damaged: its table names ring {ring}, expected a number below {rings}")]
    Ring { ring: u64, rings: usize },
    #[error("the memory of the receive queue is too short: {0}")]
    Memory(#[from] OutOfBounds),
}

/// How far a message has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// There is no room for the remainder; [`Progress`] holds what was sent.
    Stalled,
    /// There is no room and the inbox refuses; nothing of the message was sent.
    Refused,
}

/// The progress of a message that waits for room.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    sent: usize,
    /// A packet of it was written.
    started: bool,
    /// It was counted as stalled.
    stalled: bool,
    /// The entry of a packet that is written but not reported, because the status ring is full.
    unreported: Option<Entry>,
    ring: usize,
}

/// An entry of the status ring that has no position yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    kind: Kind,
    per_packet: bool,
    words: [u64; 7],
    used: usize,
}

/// Claimed space for a packet.
#[derive(Debug)]
pub(crate) struct Space {
    ring: u16,
    position: u64,
    /// Byte offset in the inbox's memory.
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
    /// A sender in the peer's memory, with an index that the peer has chosen.
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

    pub(crate) fn line(&self, word: SenderWord) -> Result<&AtomicU64, OutOfBounds> {
        self.map.line(self.index, word)
    }

    pub(crate) fn refuses(&self) -> bool {
        self.map.layout.shape.when_full == WhenFull::Refuse
    }

    /// The longest message of which a ring holds several parts at once. A longer one would pass
    /// through a ring part by part, each waiting for the previous one.
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

    /// Reports to the receiver that the memory is damaged.
    fn fault(&self, ring: &'static str) -> InboxFault {
        if let Ok(word) = self.map.header(Header::Damaged) {
            word.store(1, Ordering::Release);
        }
        InboxFault::Claims { ring }
    }

    /// The ring that the table assigns to this sender now.
    pub(crate) fn current_ring(&self) -> Result<usize, InboxFault> {
        let ring = self.line(SenderWord::Ring)?.load(Ordering::Acquire);
        let rings = self.map.layout.shape.rings;
        usize::try_from(ring).ok().filter(|ring| *ring < rings).ok_or(InboxFault::Ring { ring, rings })
    }

    /// Claims space for a packet; `None` if the ring has none.
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
                let ring = u16::try_from(ring).expect("an inbox has at most INBOX_RINGS_MAX rings");
                Ok(Some(Space { ring, position, offset }))
            }
            Err(Damaged) => Err(self.fault("ring")),
        }
    }

    /// The memory of a claimed space, to be filled by the kernel.
    pub(crate) fn space_memory(&self, space: &Space, length: usize) -> Result<RawSlice, OutOfBounds> {
        self.map.mapping().raw_slice(space.offset, length)
    }

    /// Publishes an entry. Returns false if the status ring is full.
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

    /// Wakes the receiver if it sleeps. Call it after `publish`.
    pub(crate) fn wake_receiver(&self) {
        fence(Ordering::SeqCst);
        let sleeps =
            |word: &AtomicU64| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0;
        if self.map.header(Header::Sleeping).is_ok_and(sleeps) {
            self.receiver_bell.ring();
        }
    }

    /// Sends a message, continuing at `progress`. The caller wakes the receiver.
    pub(crate) fn send(
        &mut self,
        source: Source<'_>,
        report: Report,
        progress: &mut Progress,
    ) -> Result<Sent, InboxFault> {
        let message_bytes = source.len();
        if message_bytes <= INLINE_BYTES_MAX {
            let entry = inline_entry(source, report)?;
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
            let entry = packet_entry(&space, report, length, progress.sent, message_bytes);
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

    /// Decides what happens to a message that finds no room.
    fn no_room(&self, progress: &mut Progress) -> Result<Sent, InboxFault> {
        if !progress.started && self.refuses() {
            self.count(SenderWord::Refusals);
            return Ok(Sent::Refused);
        }
        if !std::mem::replace(&mut progress.stalled, true) {
            self.count(SenderWord::Stalls);
        }
        Ok(Sent::Stalled)
    }

    pub(crate) fn count(&self, word: SenderWord) {
        if let Ok(word) = self.line(word) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether an immediate has room now; if not, whether it waits or is refused.
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

    /// Whether a message that has stalled could continue now.
    pub(crate) fn can_continue(
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

    /// Announces that this sender is about to sleep until there is room. The caller must check once
    /// more afterwards.
    pub(crate) fn announce_stall(&self) -> Result<(), InboxFault> {
        self.line(SenderWord::Stalled)?.store(1, Ordering::SeqCst);
        self.map.header(Header::Stalled)?.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ok(())
    }
}

/// The entry of a message that fits into the entry itself.
pub(crate) fn inline_entry(source: Source<'_>, report: Report) -> Result<Entry, InboxFault> {
    let mut bytes = [0; INLINE_BYTES_MAX];
    let length = source.len().min(INLINE_BYTES_MAX);
    source.copy_out(&mut bytes[..length])?;
    let mut words = [0; 7];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    let kind = Kind::Inline { length: u8::try_from(length).expect("at most INLINE_BYTES_MAX") };
    Ok(Entry { kind, per_packet: report == Report::PerPacket, words, used: length.div_ceil(8) })
}

/// The entry of a packet that lies in `space`.
pub(crate) fn packet_entry(
    space: &Space,
    report: Report,
    length: usize,
    offset: usize,
    message_bytes: usize,
) -> Entry {
    let fits = |bytes: usize| u32::try_from(bytes).expect("messages have at most MESSAGE_BYTES_MAX bytes");
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

/// The entry that announces a write.
pub(crate) fn immediate_entry(immediate: u32, bytes: u64) -> Entry {
    let mut words = [0; 7];
    words[..2].copy_from_slice(&[u64::from(immediate), bytes]);
    Entry { kind: Kind::Immediate, per_packet: false, words, used: 2 }
}

/// The entry of a message that was handed over.
pub(crate) fn handover_entry() -> Entry {
    Entry { kind: Kind::Handed, per_packet: false, words: [0; 7], used: 0 }
}
