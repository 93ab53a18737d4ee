//! Verifies the bytes of a stripe set on this node, and reports the corrupt places (`store/places`:
//! pages and parity cells).
//!
//! The bytes are read from the devices even if the cache contains them. Adjacent places are read
//! together.
//!
//! Invariants
//! - A place that cannot be read counts as corrupt. If the device itself has failed, the node
//!   stops, as after any read of it.
//! - A request that waits holds no memory that others wait for.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use rackscan_device::{IoFault, IoMemory};
use rackscan_format::{
    limits::{VERIFY_BYTES_MAX, VERIFY_PLACES_MAX},
    message::{Answer, Refusal, RefusalCode, Verified, Verify as Wanted},
    segment::Extent,
};

use crate::{
    bridge::{Core, Submitted},
    limits::{COALESCED_BYTES_MAX, READS_PER_VERIFY_MAX},
    metrics::add,
    store::{HeldPlace, HeldSet},
    task::{Place, Progress, Work, bad_memory, malformed},
};

/// A place and its number in the set.
type Numbered = (u64, HeldPlace);

struct Verify {
    from: u64,
    /// Keeps the extents from being reused.
    set: Arc<HeldSet>,
    /// In device order.
    places: Vec<Numbered>,
    /// Runs of adjacent places that are still to be read, one read each.
    runs: VecDeque<Range<usize>>,
    /// The run of each read.
    reads: Vec<Range<usize>>,
    under_way: usize,
    found: Verified,
    failed: Option<Refusal>,
}

/// Begins to serve the request.
pub(crate) fn start(core: &Core, wanted: &Wanted) -> Result<Box<dyn Work>, Refusal> {
    let set = core.node.store.held_set(wanted.set)?;
    let count = set.places();
    if wanted.from > count {
        return Err(malformed(format!(
            "place {} of stripe set {} does not exist: the set has {count} places here",
            wanted.from, wanted.set
        )));
    }
    let (most, mut bytes) = (wanted.bytes_max.min(VERIFY_BYTES_MAX), 0);
    let mut places: Vec<Numbered> = Vec::new();
    for number in (wanted.from..count).take(VERIFY_PLACES_MAX) {
        let Some(place) = set.place(number) else { break };
        let length = u64::from(place.extent.length_bytes);
        if !places.is_empty() && bytes + length > most {
            break;
        }
        bytes += length;
        places.push((number, place));
    }
    let next = wanted.from + places.len() as u64;
    let next = (next < count && !places.is_empty()).then_some(next);
    let found = Verified { next, places: places.len() as u64, bytes, corrupt: Vec::new() };
    places.sort_unstable_by_key(|(_, place)| (place.extent.device, place.extent.offset_bytes));
    let runs = runs(&places);
    Ok(Box::new(Verify {
        from: wanted.from,
        set,
        places,
        runs,
        reads: Vec::new(),
        under_way: 0,
        found,
        failed: None,
    }))
}

/// Groups adjacent places, up to the maximum length of a read.
fn runs(places: &[Numbered]) -> VecDeque<Range<usize>> {
    let mut runs: VecDeque<Range<usize>> = VecDeque::new();
    for at in 0..places.len() {
        if let Some(run) = runs.back_mut() {
            let whole = extent(&places[run.clone()]);
            let next = places[at].1.extent;
            let length = u64::from(whole.length_bytes) + u64::from(next.length_bytes);
            if whole.device == next.device
                && whole.end_bytes() == Some(next.offset_bytes)
                && length <= COALESCED_BYTES_MAX.into()
            {
                run.end += 1;
                continue;
            }
        }
        runs.push_back(at..at + 1);
    }
    runs
}

/// The extent of a run of places.
fn extent(run: &[Numbered]) -> Extent {
    let (first, last) = (run[0].1.extent, run[run.len() - 1].1.extent);
    let before = u32::try_from(last.offset_bytes - first.offset_bytes);
    let before = before.expect("a run has at most COALESCED_BYTES_MAX");
    Extent { length_bytes: before + last.length_bytes, ..first }
}

impl Verify {
    /// Begins to read the next run. Returns false if there is no queue slot or memory for it now.
    fn begin(&mut self, core: &mut Core, place: Place) -> bool {
        let Some(run) = self.runs.front().cloned() else { return false };
        if self.under_way >= READS_PER_VERIFY_MAX || !core.has_room() {
            return false;
        }
        let extent = extent(&self.places[run.clone()]);
        let Some(buffer) = core.take_buffer(extent.length_bytes as usize) else { return false };
        let taken = buffer.len() as u64;
        let part = u32::try_from(self.reads.len()).expect("no more reads than pages of the request");
        match core.read(place, part, extent, IoMemory::Buffer(buffer)) {
            Submitted::Underway => {
                self.runs.pop_front();
                self.reads.push(run);
                self.under_way += 1;
                return true;
            }
            Submitted::NoRoom => {}
            Submitted::Refused(refusal) => {
                self.failed.get_or_insert(refusal);
            }
        }
        // The buffer was dropped with the refused request, so its share is no longer in use.
        core.node.metrics.memory_returned(taken);
        false
    }

    /// Checks the places of a run. `bytes` begin with those of the run.
    fn look(&mut self, run: Range<usize>, bytes: &[u8]) {
        let mut offset = 0;
        for (number, place) in &self.places[run] {
            let length = place.extent.length_bytes as usize;
            if let Err(reason) = place.check(&bytes[offset..offset + length]) {
                tracing::warn!(set = %self.set.id(), place = number, reason, "bytes on a device are corrupt");
                self.found.corrupt.push(*number);
            }
            offset += length;
        }
    }

    fn unreadable(&mut self, core: &Core, run: Range<usize>, fault: &IoFault) {
        let refusal = core.storage_fault(&"a verification", fault);
        if fault.must_stop() || refusal.code != RefusalCode::Storage {
            self.failed.get_or_insert(refusal);
        } else if run.len() > 1 {
            // Reads them one by one: some may be readable.
            run.rev().for_each(|at| self.runs.push_front(at..at + 1));
        } else {
            tracing::warn!(reason = refusal.text, "bytes on a device cannot be read");
            self.found.corrupt.extend(self.places[run].iter().map(|(number, _)| *number));
        }
    }
}

impl Work for Verify {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if core.link(place).is_none() {
            self.failed.get_or_insert(bad_memory("the connection is gone"));
        }
        while self.failed.is_none() && self.begin(core, place) {}
        if self.under_way > 0 {
            return Progress::Working;
        }
        if let Some(refusal) = self.failed.take() {
            return Progress::Finished(Err(refusal));
        }
        if !self.runs.is_empty() {
            return Progress::Starved;
        }
        self.found.corrupt.sort_unstable();
        self.set.verified(self.from, &self.found);
        let corrupt = std::mem::take(&mut self.found.corrupt);
        Progress::Finished(Ok(Answer::Verified(Verified { corrupt, ..self.found.clone() })))
    }

    fn device_done(
        &mut self,
        core: &mut Core,
        _place: Place,
        part: u32,
        memory: IoMemory,
        outcome: Result<(), Box<IoFault>>,
    ) {
        self.under_way -= 1;
        let run = self.reads[part as usize].clone();
        let buffer = memory.into_buffer().expect("a verification reads into buffers");
        match outcome {
            Ok(()) => {
                let bytes = extent(&self.places[run.clone()]).length_bytes;
                add(&core.node.metrics.disk_read_bytes, bytes.into());
                add(&core.node.metrics.pages_read, run.len() as u64);
                self.look(run, &buffer);
            }
            Err(fault) => self.unreadable(core, run, &fault),
        }
        core.return_buffer(buffer);
    }
}
