//! How do the cells of a node that has lost its part come back from relays?
//!
//! Every stripe of which something is corrupt there is relayed whole: survivors send each other
//! what they have, and the node writes its cells. A stripe counts if its cells have the checksums
//! that the set says; what does not come back like that is left to whoever repairs places
//! (`repair`).
//!
//! Invariants
//! - A place counts as brought back when all cells that it lies in are.

use std::{collections::BTreeSet, sync::Arc};

use rackscan_format::ids::TableId;
use rackscan_stripe::{Cell, Node};

use super::{
    layout::Held,
    pace::Pace,
    relays::{Purpose, Relayed, Relays, stored_bytes},
    stripes::Stripes,
};
use crate::limits::RELAYED_BYTES_MIN;

/// Who brings cells back, and of which table.
#[derive(Debug)]
pub(super) struct StripeRebuild {
    pub(super) table: TableId,
    pub(super) relays: Relays,
}

impl StripeRebuild {
    /// Has what can be brought back of these places of a node; returns those that are.
    pub(super) async fn back(
        &self,
        stripes: &Arc<Stripes>,
        place: usize,
        corrupt: &[u64],
        pace: &Pace<'_>,
    ) -> Vec<u64> {
        let numbers: BTreeSet<u64> =
            corrupt.iter().flat_map(|corrupt| of_place(stripes, place, *corrupt)).collect();
        let purpose = Purpose::Rebuild { table: self.table, set: stripes.set.id, place };
        let session = match self.relays.open(stripes, purpose).await {
            Ok(session) => session,
            Err(why) => {
                tracing::info!(set = %stripes.set.id, why, "nothing is relayed; places are repaired one by one");
                return Vec::new();
            }
        };
        let reads = reads(stripes, place);
        let bytes = |number: &u64| {
            let cells = reads.get(usize::try_from(number % reads.len().max(1) as u64).unwrap_or(0));
            cells.into_iter().flatten().map(|cell| stored_bytes(stripes, *number, *cell)).sum::<u64>()
        };
        let mut back = BTreeSet::new();
        let done = |relayed: Relayed| {
            pace.survivors(relayed.read_bytes);
            let of_stripe = |cell: &Cell| stored_bytes(stripes, relayed.stripe, *cell);
            pace.done(relayed.kept.iter().map(of_stripe).sum());
            if relayed.kept.iter().all(|cell| is_right(stripes, &relayed, *cell)) {
                back.insert(relayed.stripe);
            } else {
                tracing::warn!(set = %stripes.set.id, stripe = relayed.stripe, "a survivor has other bytes than it had");
            }
            Ok(())
        };
        let carried =
            session.carry(numbers.iter().map(|number| (*number, bytes(number))), Some(pace), done).await;
        if let Err(why) = carried {
            tracing::warn!(set = %stripes.set.id, why, "relays have ended early; what is left is repaired place by place");
        }
        let is_back =
            |corrupt: &&u64| of_place(stripes, place, **corrupt).all(|stripe| back.contains(&stripe));
        let stripe_rebuild: Vec<u64> = corrupt.iter().filter(is_back).copied().collect();
        let spots = stripe_rebuild.iter().filter_map(|corrupt| stripes.spot(place, *corrupt));
        pace.repaired(stripe_rebuild.len() as u64, spots.map(|spot| stripes.bytes_of(spot)).sum());
        stripe_rebuild
    }
}

/// Whether these places of a node are worth a session: to open one takes longer than to repair a
/// little.
pub(super) fn is_much(stripes: &Stripes, place: usize, corrupt: &[u64]) -> bool {
    let spots = corrupt.iter().filter_map(|corrupt| stripes.spot(place, *corrupt));
    spots.map(|spot| stripes.bytes_of(spot)).sum::<u64>() >= RELAYED_BYTES_MIN
}

/// The stripes in which a place of a node lies.
fn of_place(stripes: &Stripes, place: usize, corrupt: u64) -> impl Iterator<Item = u64> + use<> {
    let spot = stripes.spot(place, corrupt);
    let ranges = spot.and_then(|spot| stripes.ranges_of(place, spot)).unwrap_or_default();
    ranges.into_iter().map(|range| range.stripe)
}

/// The cells that survivors read for a stripe, in each rotation.
fn reads(stripes: &Stripes, place: usize) -> Vec<Vec<Cell>> {
    let geometry = stripes.layout.geometry();
    let lost = |stripe| geometry.lost_with(stripe, &[Node(u8::try_from(place).unwrap_or(u8::MAX))]);
    let of = |stripe| lost(stripe).map(|lost| geometry.rebuild(lost).reads).unwrap_or_default();
    (0..geometry.nodes() as u64).map(of).collect()
}

/// Whether a cell that came back is what it was.
fn is_right(stripes: &Stripes, relayed: &Relayed, cell: Cell) -> bool {
    let found = relayed.checksums.binary_search_by_key(&cell, |(cell, _)| *cell);
    let found = found.ok().and_then(|at| relayed.checksums.get(at)).map(|(_, checksum)| *checksum);
    let Some(Held { node, index, is_parity }) = stripes.layout.held(relayed.stripe, cell) else {
        return false;
    };
    let (Some(stream), Ok(index)) = (stripes.set.streams.get(node), usize::try_from(index)) else {
        return false;
    };
    let expected = match is_parity {
        true => stream.parity.get(index).map(|cell| cell.checksum),
        // Behind the end of its stream a cell is zeros, and written nowhere.
        false if index >= stream.cells.len() => return true,
        false => stream.cells.get(index).copied(),
    };
    found.is_some() && found == expected
}
