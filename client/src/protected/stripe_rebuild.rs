//! Rebuilds the cells of a node that has lost its part of a table, stripe by stripe through relays.
//!
//! Every stripe in which the node has a corrupt place (a page or a parity cell) is relayed as a
//! whole: survivors send each other their cells, and the node writes its own. The stripe counts as
//! rebuilt if its cells have the checksums that the stripe set records. All other places are
//! repaired one by one (`repair`).
//!
//! Invariants
//! - A place counts as rebuilt when all cells that it overlaps are rebuilt.

use std::{collections::BTreeSet, sync::Arc};

use rackscan_format::ids::TableId;
use rackscan_stripe::{Cell, Node};

use super::{
    pace::Pace,
    relays::{Purpose, RelayedStripe, Relays, stored_bytes},
    streams::Held,
    stripes::Stripes,
};
use crate::limits::RELAYED_BYTES_MIN;

/// The relays for a rebuild, and the table.
#[derive(Debug)]
pub(super) struct StripeRebuild {
    pub(super) table: TableId,
    pub(super) relays: Relays,
}

impl StripeRebuild {
    /// Rebuilds these places of a node, as far as relays can. Returns the rebuilt ones.
    pub(super) async fn rebuild(
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
            let turn = usize::try_from(number % reads.len().max(1) as u64);
            let cells = reads.get(turn.expect("a stripe of a rotation: a remainder of a usize fits one"));
            cells.into_iter().flatten().map(|cell| stored_bytes(stripes, *number, *cell)).sum::<u64>()
        };
        let mut back = BTreeSet::new();
        let done = |relayed: RelayedStripe| {
            pace.survivors(relayed.read_bytes);
            let of_stripe = |cell: &Cell| stored_bytes(stripes, relayed.stripe, *cell);
            pace.done(relayed.kept.iter().map(of_stripe).sum());
            if relayed.kept.iter().all(|cell| is_right(stripes, &relayed, *cell)) {
                back.insert(relayed.stripe);
            } else {
                tracing::warn!(set = %stripes.set.id, stripe = relayed.stripe, "the bytes of a survivor have changed");
            }
            Ok(())
        };
        let carried =
            session.carry(numbers.iter().map(|number| (*number, bytes(number))), Some(pace), done).await;
        if let Err(why) = carried {
            tracing::warn!(set = %stripes.set.id, why, "relays have ended early; the remainder is repaired place by place");
        }
        let is_back =
            |corrupt: &&u64| of_place(stripes, place, **corrupt).all(|stripe| back.contains(&stripe));
        let stripe_rebuild: Vec<u64> = corrupt.iter().filter(is_back).copied().collect();
        let spots = stripe_rebuild.iter().filter_map(|corrupt| stripes.spot(place, *corrupt));
        pace.repaired(stripe_rebuild.len() as u64, spots.map(|spot| stripes.bytes_of(spot)).sum());
        stripe_rebuild
    }
}

/// Whether these places of a node are worth a relay session: opening one takes longer than
/// repairing a few places.
pub(super) fn is_worth_relaying(stripes: &Stripes, place: usize, corrupt: &[u64]) -> bool {
    let spots = corrupt.iter().filter_map(|corrupt| stripes.spot(place, *corrupt));
    spots.map(|spot| stripes.bytes_of(spot)).sum::<u64>() >= RELAYED_BYTES_MIN
}

/// The stripes in which a place of a node lies.
fn of_place(stripes: &Stripes, place: usize, corrupt: u64) -> impl Iterator<Item = u64> + use<> {
    let spot = stripes.spot(place, corrupt);
    let ranges = spot.and_then(|spot| stripes.ranges_of(place, spot)).unwrap_or_default();
    ranges.into_iter().map(|range| range.stripe)
}

/// The cells that survivors read for each stripe of a rotation.
fn reads(stripes: &Stripes, place: usize) -> Vec<Vec<Cell>> {
    let geometry = stripes.layout.geometry();
    let node = Node(u8::try_from(place).expect("the position of a node: a set has at most NODES_MAX"));
    let lost = |stripe| geometry.lost_with(stripe, &[node]);
    let of = |stripe| lost(stripe).map(|lost| geometry.rebuild(lost).reads).unwrap_or_default();
    (0..geometry.nodes() as u64).map(of).collect()
}

/// Whether a rebuilt cell has the checksum that the set records.
fn is_right(stripes: &Stripes, relayed: &RelayedStripe, cell: Cell) -> bool {
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
        // A cell behind the end of its stream is zeros, and is not stored.
        false if index >= stream.cells.len() => return true,
        false => stream.cells.get(index).copied(),
    };
    found.is_some() && found == expected
}
