//! Decides where relayed stripes may write on this node, apart from the scratch area.
//!
//! ```text
//! Parity    parity cells that a load reserved                    -> their checksums become part of the load  (loads/parity)
//! Rebuild   places of a stripe set that this node has adopted    -> verified later, as corrupt or whole
//!           and that was not found whole since
//! ```
//!
//! A rebuild writes cells that were computed from the bytes of other nodes, without checking the
//! pages in them. This is allowed only in a set whose places all count as lost. A place of any
//! other set accepts only its own bytes ([`super::places`]), and a relay cannot check that.

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_format::{
    ids::TableId,
    message::{Refusal, RefusalCode, ReserveParity},
    segment::Extent,
    stripe_set::SetId,
};

use super::{
    ParityCells, ParityClaim, ParityPiece, PlacesClaim, Store, StoredSegment, parity_directory,
    parity_lengths,
};
use crate::ids::ConnectionId;

impl Store {
    /// Reserves space for parity cells of a load.
    pub(crate) fn reserve_parity(
        &self,
        request: &ReserveParity,
        from: ConnectionId,
    ) -> Result<Vec<Extent>, Refusal> {
        let ReserveParity { load, set, first_cell, cells, cell_bytes } = *request;
        let cells = cells.saturating_as::<usize>();
        self.begin_append(load, from)?;
        let stored = self.allocate(parity_directory(load, first_cell, &parity_lengths(cells, cell_bytes)));
        let stored: Arc<StoredSegment> = match stored {
            Ok(stored) => Arc::new(stored),
            Err(refusal) => {
                // The reason for the full device says more than that the load is gone, too.
                let _ = self.end_append(load, None);
                return Err(refusal);
            }
        };
        let piece = ParityPiece::reserved(stored, cells);
        let extents = piece.extents().collect();
        self.end_parity(load, set, first_cell, piece)?;
        Ok(extents)
    }

    /// Claims reserved parity cells for a stripe. Returns their extents.
    pub(crate) fn claim_parity(
        &self,
        wanted: &ParityCells,
        cell_bytes: u64,
    ) -> Result<(Vec<Extent>, Arc<ParityClaim>), Refusal> {
        self.loads().claim_parity(wanted, cell_bytes)
    }

    /// Records that a stripe has written them.
    pub(crate) fn parity_stored(
        &self,
        written: &ParityCells,
        claim: &Arc<ParityClaim>,
        checksums: &[u32],
    ) -> Result<(), Refusal> {
        self.loads().parity_stored(written, claim, checksums)
    }

    /// Claims places of a set that this node has lost, for a stripe that rebuilds them.
    pub(crate) fn claim_places(
        &self,
        (table, set): (TableId, SetId),
        kept: &[Vec<Extent>],
    ) -> Result<Arc<PlacesClaim>, Refusal> {
        let published = self.published();
        let sets = published.tables.get(&table).filter(|known| known.committed).map(|known| &known.sets);
        let held = sets.and_then(|sets| sets.iter().find(|held| held.id() == set));
        let held = held.ok_or_else(|| {
            let text = format!("no table {table} with stripe set {set} is published here");
            Refusal::new(RefusalCode::NotFound, text)
        })?;
        held.claim(kept, &self.space)
    }
}

#[cfg(test)]
pub(crate) mod tests;
