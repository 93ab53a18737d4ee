//! Receives the slices of a stripe at a node: finds those that senders have written into the node's
//! rings, sums them where the plan says so, and grants the senders credit.
//!
//! Invariants
//! - A slice that arrives in a ring must be the next one of that ring's cell, and of the stripe in
//!   progress. Any other slice ends the session.
//! - A sender gets credit for a slot when all readers at this node are done with the slice in it:
//!   it has been summed, sent on and stored, as the plan requires.

use rackscan_fabric::Region;

use super::{ActiveStripe, Input};
use crate::{
    checksum,
    error::Failure,
    message::Cause,
    node::shared::{NodeShared, SessionShared},
    plan::Plan,
};

impl ActiveStripe {
    pub(super) fn take_arrivals(
        &mut self,
        lane: usize,
        shared: &mut SessionShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for (source, input) in self.inputs.iter().enumerate() {
            let Input::Ring { from, ring } = *input else { continue };
            let Some(arriving) = &mut shared.incoming[from] else { continue };
            let inlet = arriving.rings.inlet(lane, ring);
            while self.progress.there(source) < self.progress.slices() {
                let Some(arrived) = inlet.take() else { break };
                let expected = self.progress.there(source);
                let of_this = u64::from(arrived.name.stripe) == self.name.stripe & 0xFFFF;
                if arrived.name.slice != expected || !of_this {
                    let why = format!(
                        "received slice {} of a stripe whose number ends in {:#06x}, expected slice {expected} of stripe {}",
                        arrived.name.slice, arrived.name.stripe, self.name.stripe
                    );
                    return Err(Failure::new(arriving.member, Cause::Violation, why));
                }
                let slots = &mut self.checksums[source];
                let slot = expected as usize % slots.len();
                slots[slot] = arrived.checksum;
                self.progress.arrived(source);
                shared.counters.received_bytes +=
                    shared.layout.slice_length(self.cell_bytes, expected) as u64;
                moved = true;
            }
        }
        Ok(moved)
    }

    pub(super) fn sum(
        &mut self,
        lane: usize,
        plan: &Plan,
        shared: &mut SessionShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for (sum, inputs) in plan.sums.iter().enumerate() {
            while let Some(slice) = self.progress.next_sum(plan, sum) {
                let length = shared.layout.slice_length(self.cell_bytes, slice);
                let places: Option<Vec<(&Region, usize)>> =
                    inputs.iter().map(|input| self.region(lane, (plan, *input), slice, shared)).collect();
                let target = self.region(lane, (plan, plan.origins.len() + sum), slice, shared);
                let (Some(places), Some((region, offset))) = (places, target) else { break };
                region.xor_from(offset, &places, length).map_err(|error| shared.broken(&error))?;
                let slot = slice as usize % shared.layout.shape.slots;
                let of_inputs = inputs.iter().map(|input| self.checksums[*input][slot]);
                let checksum = checksum::of_sum(shared.zeros(length), of_inputs);
                let source = plan.origins.len() + sum;
                self.checksums[source][slot] = checksum;
                self.progress.arrived(source);
                shared.counters.xored_bytes += (length * inputs.len()) as u64;
                moved = true;
            }
        }
        Ok(moved)
    }

    pub(super) fn give_credits(
        &mut self,
        lane: usize,
        plan: &Plan,
        shared: &mut SessionShared<'_>,
        node: &mut NodeShared<'_>,
    ) -> bool {
        let mut moved = false;
        for (source, input) in self.inputs.iter().enumerate() {
            let Input::Ring { from, ring } = *input else { continue };
            let Some(arriving) = &mut shared.incoming[from] else { continue };
            let Some(link) = node.links.get_mut(arriving.link) else { continue };
            let tail = self.progress.tail(plan, source);
            moved |= arriving.rings.give_credit(link, lane, ring, tail);
        }
        moved
    }
}
