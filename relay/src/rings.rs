//! Manages the registered memory of a link's rings: the receiver's slots and journal, and the
//! sender's credits.
//!
//! Invariants
//! - A sender writes only into slots that its credit allows. A receiver checks every name, number
//!   and position that it finds in memory that a peer may write.
//! - Memory that a peer may write is never borrowed as a Rust slice. It is summed, checksummed and
//!   stored where it lies.

use std::sync::Arc;

use rackscan_device::ExternalMemory;
use rackscan_fabric::{
    Access, Region, RegionError, RegisterError, RemoteRegion, limits::REGION_ALIGNMENT_BYTES,
};

use crate::{
    link::{Bytes, Link, Target},
    message::Rings,
    ring::{Credit, Inlet, Outlet, RingFault, SliceName},
    shape::Layout,
};

/// Registered memory of slots for slices.
#[derive(Debug)]
pub(crate) struct Slots {
    region: Region,
    /// The same for devices.
    memory: ExternalMemory,
}

impl Slots {
    pub(crate) fn new(bytes: usize) -> Result<Self, RegionError> {
        let region = Region::allocate(whole_pages(bytes))?;
        let shared = region.as_raw_slice(0, region.bytes())?.into_shared_bytes();
        // Memory of our own is writable, so it always gives shared bytes.
        let shared = shared.ok_or(RegionError::Length {
            bytes,
            multiple: REGION_ALIGNMENT_BYTES,
            bytes_max: region.bytes(),
        })?;
        Ok(Self { region, memory: ExternalMemory::of_bytes(Arc::new(shared)) })
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn memory(&self) -> &ExternalMemory {
        &self.memory
    }
}

/// Whole pages, and at least one.
pub(crate) fn whole_pages(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(REGION_ALIGNMENT_BYTES)
}

/// Why a peer's use of its rings ends the session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingsFault {
    #[error(transparent)]
    Ring(#[from] RingFault),
    #[error("the sender named ring {found} for a slice, expected a number below {rings}")]
    NoSuchRing { found: usize, rings: usize },
    #[error("the peer registered {found} bytes of memory for rings or credits, expected at least {expected}")]
    TooShort { found: u64, expected: u64 },
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// A receiver's end of a link.
#[derive(Debug)]
pub(crate) struct Incoming {
    slots: Slots,
    journal: Region,
    inlets: Vec<Inlet>,
    /// Rings of a lane, and slots of a ring.
    rings: usize,
    slots_of_ring: usize,
    slice_bytes: usize,
    /// The number of immediates that have arrived.
    read: u64,
    /// The sender's memory of credits.
    credits: RemoteRegion,
}

impl Incoming {
    /// For a sender with `rings` rings per lane, and credits at this memory.
    pub(crate) fn new(layout: &Layout, rings: usize, credits: RemoteRegion) -> Result<Self, RingsFault> {
        let all = layout.shape.lanes * rings;
        let expected = (all * Credit::BYTES) as u64;
        if credits.length < expected {
            return Err(RingsFault::TooShort { found: credits.length, expected });
        }
        let count = layout.slots_of_link(rings);
        Ok(Self {
            slots: Slots::new(count * layout.shape.slice_bytes)?,
            journal: Region::allocate(whole_pages(count * SliceName::BYTES))?,
            inlets: vec![Inlet::new(layout.slots()); all],
            rings,
            slots_of_ring: layout.shape.slots,
            slice_bytes: layout.shape.slice_bytes,
            read: 0,
            credits,
        })
    }

    /// Registers the rings, so that the sender may write there.
    pub(crate) fn register(&self, link: &mut Link) -> Result<Rings, RegisterError> {
        let slots = link.connection().register(self.slots.region(), Access::Write)?.into();
        let journal = link.connection().register(&self.journal, Access::Write)?.into();
        Ok(Rings { slots, journal })
    }

    /// Takes in a slice that has arrived. Its name is the next one in the journal.
    pub(crate) fn arrived(&mut self, checksum: u32) -> Result<(), RingsFault> {
        let names = (self.inlets.len() * self.slots_of_ring).max(1) as u64;
        let at = usize::try_from(self.read % names).expect("below the number of names") * SliceName::BYTES;
        let name = SliceName::from_word(self.journal.load_u64(at)?);
        self.read += 1;
        let (found, rings) = (usize::from(name.ring), self.inlets.len());
        let inlet = self.inlets.get_mut(found).ok_or(RingsFault::NoSuchRing { found, rings })?;
        Ok(inlet.arrive(name, checksum)?)
    }

    pub(crate) fn inlet(&mut self, lane: usize, ring: usize) -> &mut Inlet {
        &mut self.inlets[lane * self.rings + ring]
    }

    /// The offset of a slice of the lane's present stripe.
    pub(crate) fn offset(&self, lane: usize, ring: usize, slice: u32) -> usize {
        let ring = lane * self.rings + ring;
        (ring * self.slots_of_ring + self.inlets[ring].slot(slice)) * self.slice_bytes
    }

    /// The number of slices, beginning with this one, that are contiguous in memory.
    pub(crate) fn contiguous(&self, lane: usize, ring: usize, slice: u32) -> u32 {
        self.inlets[lane * self.rings + ring].contiguous(slice)
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Grants the sender credit for the first `tail` slices of the lane's present stripe, if enough
    /// has become free. Returns whether it did.
    pub(crate) fn give_credit(&mut self, link: &mut Link, lane: usize, ring: usize, tail: u32) -> bool {
        if !link.has_room_for_credit() {
            return false;
        }
        let ring = lane * self.rings + ring;
        let Some(position) = self.inlets[ring].publish(u64::from(tail)) else { return false };
        link.credit(self.credits, (ring * Credit::BYTES) as u64, Credit(position));
        true
    }
}

/// A sender's end of a link.
#[derive(Debug)]
pub(crate) struct Outgoing {
    credits: Region,
    /// The slots and the journal at the receiver; `None` before it has sent them.
    remote: Option<(RemoteRegion, RemoteRegion)>,
    outlets: Vec<Outlet>,
    rings: usize,
    slots_of_ring: usize,
    slice_bytes: usize,
    /// The number of slices sent.
    sent: u64,
}

impl Outgoing {
    /// For a receiver with `rings` rings per lane.
    pub(crate) fn new(layout: &Layout, rings: usize) -> Result<Self, RegionError> {
        let all = layout.shape.lanes * rings;
        Ok(Self {
            credits: Region::allocate(whole_pages(all * Credit::BYTES))?,
            remote: None,
            outlets: vec![Outlet::new(layout.slots()); all],
            rings,
            slots_of_ring: layout.shape.slots,
            slice_bytes: layout.shape.slice_bytes,
            sent: 0,
        })
    }

    /// Registers the memory of credits, so that the receiver may write there.
    pub(crate) fn register(&self, link: &mut Link) -> Result<RemoteRegion, RegisterError> {
        link.connection().register_to_wake(&self.credits)
    }

    /// Takes the receiver's rings.
    pub(crate) fn found(&mut self, rings: &Rings) -> Result<(), RingsFault> {
        let count = (self.outlets.len() * self.slots_of_ring) as u64;
        let (slots, journal) = (RemoteRegion::from(rings.slots), RemoteRegion::from(rings.journal));
        for (found, each) in [(slots.length, self.slice_bytes), (journal.length, SliceName::BYTES)] {
            let expected = count * each as u64;
            if found < expected {
                return Err(RingsFault::TooShort { found, expected });
            }
        }
        self.remote = Some((slots, journal));
        Ok(())
    }

    pub(crate) fn is_found(&self) -> bool {
        self.remote.is_some()
    }

    /// Whether a slice may be sent into a ring. The memory of credits is read only if the known
    /// credit is used up.
    pub(crate) fn has_room(&mut self, lane: usize, ring: usize) -> Result<bool, RingsFault> {
        let ring = lane * self.rings + ring;
        let outlet = &mut self.outlets[ring];
        if !outlet.has_room() {
            read_credit(outlet, &self.credits, ring)?;
        }
        Ok(outlet.has_room())
    }

    /// Reads the credits of rings without room, whether a slice waits for one or not. Returns
    /// whether any was new. To be called between arming and sleeping.
    pub(crate) fn read_credits(&mut self) -> Result<bool, RingsFault> {
        let mut any = false;
        for (ring, outlet) in self.outlets.iter_mut().enumerate() {
            if !outlet.has_room() {
                any |= read_credit(outlet, &self.credits, ring)?;
            }
        }
        Ok(any)
    }

    /// Sends a slice of a lane's stripe.
    pub(crate) fn send(&mut self, link: &mut Link, (lane, send): (usize, usize), slice: Outbound) {
        let Some((slots, journal)) = self.remote else { return };
        let ring = lane * self.rings + slice.ring;
        let names = (self.outlets.len() * self.slots_of_ring).max(1) as u64;
        let position = self.outlets[ring].sent();
        let slot = (ring * self.slots_of_ring) as u64 + position % self.slots_of_ring as u64;
        let target = Target {
            slots,
            slot_offset: slot * self.slice_bytes as u64,
            journal,
            journal_offset: self.sent % names * SliceName::BYTES as u64,
        };
        let ring_name = u16::try_from(ring).expect("a link has at most RINGS_MAX rings");
        let stripe = u16::try_from(slice.stripe & 0xFFFF).expect("16 bits");
        let name = SliceName { ring: ring_name, slice: slice.slice, stripe };
        link.send((lane, send), target, name.to_word(), slice.bytes, slice.checksum);
        self.outlets[ring].send();
        self.sent += 1;
    }
}

/// A slice to send.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// The ring in the lane.
    pub(crate) ring: usize,
    pub(crate) stripe: u64,
    pub(crate) slice: u32,
    pub(crate) bytes: Bytes,
    pub(crate) checksum: u32,
}

/// Reads the credit of a ring. Returns whether it was new.
fn read_credit(outlet: &mut Outlet, credits: &Region, ring: usize) -> Result<bool, RingsFault> {
    let at = ring * Credit::BYTES;
    let credit = Credit::from_words(credits.load_u64(at)?, credits.load_u64(at + 8)?);
    Ok(credit.map(|credit| outlet.take_credit(credit)).transpose()?.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use rackscan_stripe::{Parity, Way};

    use super::*;
    use crate::Shape;

    #[test]
    fn credit_is_news_once_also_if_no_slice_waits_for_it() {
        let layout = Layout::new(Shape::new(Parity::TwoD, Way::Relay, 1 << 20), 4).unwrap();
        let mut outgoing = Outgoing::new(&layout, 2).unwrap();
        assert!(!outgoing.read_credits().unwrap());
        (0..layout.slots()).for_each(|_| outgoing.outlets[1].send());
        assert!(!outgoing.read_credits().unwrap());
        let write =
            |outgoing: &Outgoing, bytes: &[u8]| outgoing.credits.copy_in(Credit::BYTES, bytes).unwrap();
        write(&outgoing, &Credit(2).to_bytes()[..8]);
        assert!(!outgoing.read_credits().unwrap(), "a credit that is being written is no news yet");
        write(&outgoing, &Credit(2).to_bytes());
        assert!(outgoing.read_credits().unwrap());
        assert!(!outgoing.read_credits().unwrap(), "whoever is told twice never sleeps");
        (0..2).for_each(|_| outgoing.outlets[1].send());
        write(&outgoing, &Credit(u64::MAX).to_bytes());
        assert!(outgoing.read_credits().is_err());
    }
}
