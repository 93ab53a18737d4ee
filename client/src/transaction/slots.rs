//! How are keys read without asking their homes?
//!
//! ```text
//! mapped here (shm)   copy the slot, check the copy, next key ... and at last, for all homes together: do they live?    (one system call)
//! elsewhere           post all reads, check what they brought                             a read that ended says that its node lived
//! ```
//!
//! What may not be used is asked for, and the coordinator is answered as if all had been.
//!
//! Invariants
//! - A slot counts when a private copy of it has passed every check of
//!   `rackscan_ramp::slot::decode`.
//! - Over shared memory the memory of a dead node stays mapped, and its slots stay valid for ever.
//!   Its node's end is known to the kernel, and to nobody else: what was copied counts if the
//!   kernel says *after* the copy that the node's connection is open.

use rackscan_ramp::{
    algorithm::Event as Happening,
    item::Key,
    limits::SLOT_ALIGNMENT_BYTES,
    message::{Found, Reply, Request},
    slot::{Place, decode},
};

use super::{
    Session,
    home::{Purpose, Reading, Readings},
};
use crate::{OneRead, limits::LINES_READS_MAX};

impl Session {
    /// Begins to look for keys; those of which no place is known are asked for.
    pub(super) fn look(&mut self, at: usize, number: u64, keys: Vec<Key>) {
        let home = &self.homes[at];
        let Some(opened) = home.opened.as_ref().filter(|_| home.readings.left.is_empty()) else {
            return self.ask_for(at, number, keys);
        };
        let (life, is_mapped) = (opened.life, opened.mapped.is_some());
        let mut readings = Readings { run: number, ..Readings::default() };
        let mut end = self.parts.slots.start;
        for key in keys {
            let place = self.places.find(&key, life);
            let bounds = place.and_then(|place| self.homes[at].opened.as_ref()?.bounds(place));
            let (Some(place), Some((offset, length))) = (place, bounds) else {
                readings.unknown.push(key);
                continue;
            };
            if is_mapped {
                readings.left.push(Reading { tag: 0, key, offset, length });
            } else if let Some(tag) = self.read_slot(at, readings.left.len(), place, end) {
                readings.left.push(Reading { tag, key, offset: end, length });
                end += length.next_multiple_of(SLOT_ALIGNMENT_BYTES);
            } else {
                readings.unknown.push(key);
            }
        }
        // Asked for now, so that the answer comes while others are read.
        let unknown = std::mem::take(&mut readings.unknown);
        self.homes[at].readings = readings;
        self.ask_for(at, number, unknown);
    }

    fn ask_for(&mut self, at: usize, number: u64, keys: Vec<Key>) {
        if !keys.is_empty() {
            let lease = self.homes[at].lease.unwrap_or_default();
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
        let source = self.homes[at].opened.as_ref()?.slots?;
        let read = OneRead {
            source,
            source_offset_bytes: place.offset_bytes,
            target_offset_bytes: end,
            length_bytes,
        };
        self.lines.read(at, self.tags, &read).is_ok().then_some(self.tags)
    }

    /// Takes what is mapped here, of all homes.
    pub(super) fn take_slots(&mut self, number: u64) {
        let mut looked = Vec::with_capacity(self.homes.len());
        for at in 0..self.homes.len() {
            let home = &self.homes[at];
            let is_mapped = home.opened.as_ref().is_some_and(|opened| opened.mapped.is_some());
            if is_mapped && home.readings.run == number && !home.readings.left.is_empty() {
                self.copy_mapped(at);
                looked.push(at);
            }
        }
        if looked.is_empty() {
            return;
        }
        let all = self.lines.are_there(&looked);
        for at in looked {
            if all || self.lines.away(at).is_none() {
                self.deliver(at);
            } else {
                // That it is lost is heard with the next event; nothing of its memory counts.
                self.homes[at].readings = Readings::default();
            }
        }
    }

    fn copy_mapped(&mut self, at: usize) {
        let left = std::mem::take(&mut self.homes[at].readings.left);
        for Reading { key, offset, length, .. } in left {
            let is_copied = self.slot_into(at, offset, length);
            self.judge(at, key, is_copied, length);
        }
    }

    /// Copies a slot that is mapped here to where it is judged.
    fn slot_into(&mut self, at: usize, offset: usize, length: usize) -> bool {
        if self.slot.len() < length {
            self.slot.resize(length, 0);
        }
        let mapped = self.homes[at].opened.as_ref().and_then(|opened| opened.mapped.as_ref());
        mapped.is_some_and(|mapped| mapped.copy_out(offset, &mut self.slot[..length]).is_ok())
    }

    /// Is what was copied what is wanted?
    fn judge(&mut self, at: usize, key: Key, is_copied: bool, length: usize) {
        let Some(life) = self.homes[at].opened.as_ref().map(|opened| opened.life) else { return };
        let version = is_copied.then(|| decode(&self.slot[..length], &key, life));
        let readings = &mut self.homes[at].readings;
        match version {
            Some(Ok(version)) => readings.found.push((key, Self::as_found(version))),
            // It may be valid again at once: the place is forgotten only when somebody else is
            // there.
            _ => readings.unknown.push(key),
        }
    }

    /// Tells the transaction what was found, and asks for the rest.
    fn deliver(&mut self, at: usize) {
        let home = &mut self.homes[at];
        let Readings { run, found, unknown, .. } = std::mem::take(&mut home.readings);
        if !self.is_running(run) {
            return;
        }
        let (from, epoch) = (self.homes[at].id, self.homes[at].told);
        if !found.is_empty() {
            self.count_one_sided(found.len());
            found.iter().for_each(|(_, Found { version, .. })| self.hear(version.timestamp));
            self.happen(run, Happening::Reply { from, reply: Reply::Found { items: found, epoch } });
        }
        self.ask_for(at, run, unknown);
    }

    /// A slot that is not mapped here was read.
    pub(super) fn slot_read(&mut self, at: usize, tag: u64, is_done: bool) {
        let readings = &mut self.homes[at].readings;
        let Some(place) = readings.left.iter().position(|reading| reading.tag == tag) else { return };
        let Reading { key, offset, length, .. } = readings.left.swap_remove(place);
        let is_last = readings.left.is_empty();
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
