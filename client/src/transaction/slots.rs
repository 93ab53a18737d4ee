//! Reads keys out of slots one-sidedly, without requests to their participants. A *slot* is memory
//! of a participant with the newest committed version of a key.
//!
//! ```text
//! slots mapped here (shm)   copy the slot, verify the copy, next key ... at the end one system call checks that all participants are alive
//! other wires               post all reads, verify the bytes             a read that succeeded shows that its node was alive
//! ```
//!
//! A key whose slot must not be used is requested from the participant. The coordinator gets the
//! same answer as if all keys had been requested.
//!
//! Invariants
//! - A slot is used only if a private copy of it has passed every check of
//!   `rackscan_ramp::slot::decode`.
//! - Over shared memory the memory of a dead node stays mapped, and its slots stay valid for ever.
//!   Only the kernel knows that the node has ended, so a copy is used only if the kernel reports
//!   *after* the copy that the node's connection is open.

use rackscan_ramp::{
    algorithm::Event as CoordinatorEvent,
    item::Key,
    limits::SLOT_ALIGNMENT_BYTES,
    message::{Found, Reply, Request},
    slot::{Place, decode},
};

use super::{
    Session,
    participant::{Purpose, SlotRead, SlotReads},
};
use crate::{OneRead, limits::LINES_READS_MAX};

impl Session {
    /// Begins to read keys out of slots, and requests those whose places are not known.
    pub(super) fn begin_slot_reads(&mut self, at: usize, number: u64, keys: Vec<Key>) {
        let participant = &self.participants[at];
        let Some(opened) = participant.opened.as_ref().filter(|_| participant.slot_reads.pending.is_empty())
        else {
            return self.ask_for(at, number, keys);
        };
        let (life, is_mapped) = (opened.life, opened.mapped.is_some());
        let mut slot_reads = SlotReads { run: number, ..SlotReads::default() };
        let mut end = self.parts.slots.start;
        for key in keys {
            let place = self.places.find(&key, life);
            let bounds = place.and_then(|place| self.participants[at].opened.as_ref()?.bounds(place));
            let (Some(place), Some((offset, length))) = (place, bounds) else {
                slot_reads.unknown.push(key);
                continue;
            };
            if is_mapped {
                slot_reads.pending.push(SlotRead { tag: 0, key, offset, length });
            } else if let Some(tag) = self.read_slot(at, slot_reads.pending.len(), place, end) {
                slot_reads.pending.push(SlotRead { tag, key, offset: end, length });
                end += length.next_multiple_of(SLOT_ALIGNMENT_BYTES);
            } else {
                slot_reads.unknown.push(key);
            }
        }
        // Requested now, so that the answer comes while slots are read.
        let unknown = std::mem::take(&mut slot_reads.unknown);
        self.participants[at].slot_reads = slot_reads;
        self.ask_for(at, number, unknown);
    }

    fn ask_for(&mut self, at: usize, number: u64, keys: Vec<Key>) {
        if !keys.is_empty() {
            let lease = self.participants[at].lease.unwrap_or_default();
            self.ask(at, Purpose::Run(number), Request::Get { lease, keys });
        }
    }

    /// Posts the read of a slot; `None` if there is no room for it.
    fn read_slot(&mut self, at: usize, posted: usize, place: Place, end: usize) -> Option<u64> {
        let length_bytes = usize::try_from(place.length_bytes).ok()?;
        if posted >= LINES_READS_MAX || end + length_bytes > self.parts.slots.end {
            return None;
        }
        self.tags += 1;
        let source = self.participants[at].opened.as_ref()?.slots?;
        let read = OneRead {
            source,
            source_offset_bytes: place.offset_bytes,
            target_offset_bytes: end,
            length_bytes,
        };
        self.lines.read(at, self.tags, &read).is_ok().then_some(self.tags)
    }

    /// Reads the slots of all participants whose memory is mapped here.
    pub(super) fn take_slots(&mut self, number: u64) {
        let mut copied = Vec::with_capacity(self.participants.len());
        for at in 0..self.participants.len() {
            let participant = &self.participants[at];
            let is_mapped = participant.opened.as_ref().is_some_and(|opened| opened.mapped.is_some());
            if is_mapped && participant.slot_reads.run == number && !participant.slot_reads.pending.is_empty()
            {
                self.copy_mapped(at);
                copied.push(at);
            }
        }
        if copied.is_empty() {
            return;
        }
        let all = self.lines.are_there(&copied);
        for at in copied {
            if all || self.lines.unavailable(at).is_none() {
                self.deliver(at);
            } else {
                // The next event reports that it is lost; bytes of its memory do not count.
                self.participants[at].slot_reads = SlotReads::default();
            }
        }
    }

    fn copy_mapped(&mut self, at: usize) {
        let pending = std::mem::take(&mut self.participants[at].slot_reads.pending);
        for SlotRead { key, offset, length, .. } in pending {
            let is_copied = self.slot_into(at, offset, length);
            self.judge(at, key, is_copied, length);
        }
    }

    /// Copies a slot that is mapped here into private memory.
    fn slot_into(&mut self, at: usize, offset: usize, length: usize) -> bool {
        if self.slot.len() < length {
            self.slot.resize(length, 0);
        }
        let mapped = self.participants[at].opened.as_ref().and_then(|opened| opened.mapped.as_ref());
        mapped.is_some_and(|mapped| mapped.copy_out(offset, &mut self.slot[..length]).is_ok())
    }

    /// Verifies the copy of a slot, and records the version or that the key must be requested.
    fn judge(&mut self, at: usize, key: Key, is_copied: bool, length: usize) {
        let Some(life) = self.participants[at].opened.as_ref().map(|opened| opened.life) else { return };
        let version = is_copied.then(|| decode(&self.slot[..length], &key, life));
        let slot_reads = &mut self.participants[at].slot_reads;
        match version {
            Some(Ok(version)) => slot_reads.found.push((key, Self::as_found(version))),
            // The slot may be valid again at once: the place is kept until the participant names
            // another one.
            _ => slot_reads.unknown.push(key),
        }
    }

    /// Passes the found versions to the transaction, and requests the other keys.
    fn deliver(&mut self, at: usize) {
        let participant = &mut self.participants[at];
        let SlotReads { run, found, unknown, .. } = std::mem::take(&mut participant.slot_reads);
        if !self.is_running(run) {
            return;
        }
        let (from, epoch) = (self.participants[at].id, self.participants[at].epoch);
        if !found.is_empty() {
            self.count_one_sided(found.len());
            found.iter().for_each(|(_, Found { version, .. })| self.hear(version.timestamp));
            self.notify(run, CoordinatorEvent::Reply { from, reply: Reply::Found { items: found, epoch } });
        }
        self.ask_for(at, run, unknown);
    }

    /// Handles the end of a one-sided read of a slot.
    pub(super) fn slot_read(&mut self, at: usize, tag: u64, is_done: bool) {
        let slot_reads = &mut self.participants[at].slot_reads;
        let Some(place) = slot_reads.pending.iter().position(|reading| reading.tag == tag) else { return };
        let SlotRead { key, offset, length, .. } = slot_reads.pending.swap_remove(place);
        let is_last = slot_reads.pending.is_empty();
        if self.slot.len() < length {
            self.slot.resize(length, 0);
        }
        let copy = &mut self.slot[..length];
        let is_copied =
            is_done && self.lines.memory(at).is_some_and(|(region, _)| region.copy_out(offset, copy).is_ok());
        self.judge(at, key, is_copied, length);
        if is_last {
            self.deliver(at);
        }
    }
}
