//! Finds the extents where the cells of relayed stripes are read and written, and checks that they
//! may be.
//!
//! Invariants
//! - Reads may address any bytes of the devices, as with
//!   [`ReadRaw`](rackscan_format::message::Request::ReadRaw), but nothing beyond them.
//! - Writes go only to the scratch area, to reserved parity cells, and to places (pages and parity
//!   cells) that were lost on this node. The node's store decides which of these may be written.
//! - The node's store is asked once when a stripe begins and once when it has ended, never for each
//!   piece of a cell.

use std::{collections::BTreeMap, sync::Arc};

use rackscan_device::DeviceIndex;
use rackscan_format::{
    ids::TableId,
    message::{RelayedTo, ScratchArea},
    segment::Extent,
    stripe_set::SetId,
};
use rackscan_relay::{Area, Beginning, Nowhere, Place, Places, Refusal, Store, StoredCell, StripeName};
use rackscan_stripe::Cell;

use crate::store::{self, ParityCells, ParityClaim, PlacesClaim};

/// The cells of a node.
#[derive(Debug)]
pub(super) struct CellStore {
    store: Arc<store::Store>,
    scratch: Result<Area, Refusal>,
    /// Stripes in progress that write parity cells or lost places, rather than memory or the
    /// scratch area.
    underway: BTreeMap<StripeName, Underway>,
}

/// A stripe in progress: the cells that it writes, and their purpose.
#[derive(Debug)]
struct Underway {
    kept: Vec<Cell>,
    goal: Goal,
}

/// What a stripe writes. The relay holds the claim as well: an abandoned stripe blocks others until
/// its last device operation has ended.
#[derive(Debug)]
enum Goal {
    Parity(ParityCells, Arc<ParityClaim>),
    Places(Arc<PlacesClaim>),
}

impl CellStore {
    /// A store with this scratch area, if there is one.
    pub(super) fn new(store: Arc<store::Store>, scratch: Option<ScratchArea>) -> Self {
        let none = || Refusal("the node has no scratch area: give it one (scratch = \"1GiB\")".to_owned());
        let area = |ScratchArea { offset_bytes, length_bytes }| {
            // The scratch area is on the first device.
            Area::new(Place { device: DeviceIndex(0), offset_bytes, length_bytes })
        };
        let scratch = scratch.ok_or_else(none).and_then(area);
        Self { store, scratch, underway: BTreeMap::new() }
    }

    fn parity(
        &mut self,
        beginning: &Beginning<'_>,
        (load, set, first_cell): (TableId, u32, u32),
        held: &[Vec<Extent>],
    ) -> Result<Places, Refusal> {
        let held = self.held(beginning, held)?;
        if beginning.kept.is_empty() {
            return Ok(Places { held, ..Places::default() });
        }
        let cells = ParityCells { load, set, first_cell, cells: beginning.kept.len() };
        let claimed = self.store.claim_parity(&cells, beginning.cell_bytes);
        let (extents, claim) = claimed.map_err(|refusal| Refusal(refusal.text))?;
        let kept = extents.iter().map(|extent| vec![place(extent)]).collect();
        self.begun(beginning, Goal::Parity(cells, Arc::clone(&claim)));
        Ok(Places { held, kept, guard: Some(claim) })
    }

    fn rebuild(
        &mut self,
        beginning: &Beginning<'_>,
        name: (TableId, SetId),
        (held, kept): (&[Vec<Extent>], &[Vec<Extent>]),
    ) -> Result<Places, Refusal> {
        let held = self.held(beginning, held)?;
        let places = self.places(("keeps", beginning.kept.len()), beginning.cell_bytes, kept)?;
        if beginning.kept.is_empty() {
            return Ok(Places { held, ..Places::default() });
        }
        let claim = self.store.claim_places(name, kept).map_err(|refusal| Refusal(refusal.text))?;
        self.begun(beginning, Goal::Places(Arc::clone(&claim)));
        Ok(Places { held, kept: places, guard: Some(claim) })
    }

    fn begun(&mut self, beginning: &Beginning<'_>, goal: Goal) {
        self.underway.insert(beginning.name, Underway { kept: beginning.kept.to_vec(), goal });
    }

    fn held(&self, beginning: &Beginning<'_>, held: &[Vec<Extent>]) -> Result<Vec<Vec<Place>>, Refusal> {
        self.places(("holds", beginning.held.len()), beginning.cell_bytes, held)
    }

    /// The extents of cells. Fails unless their number is right and none exceeds a cell or its
    /// device.
    fn places(
        &self,
        (does, expected): (&str, usize),
        cell_bytes: u64,
        cells: &[Vec<Extent>],
    ) -> Result<Vec<Vec<Place>>, Refusal> {
        if cells.len() != expected {
            let found = cells.len();
            return Err(Refusal(format!(
                "the request names extents of {found} cells of a stripe of which this node {does} {expected}"
            )));
        }
        for extents in cells {
            let bytes: u64 = extents.iter().map(|extent| u64::from(extent.length_bytes)).sum();
            if bytes > cell_bytes {
                return Err(Refusal(format!(
                    "the request names extents of {bytes} bytes for a cell of {cell_bytes} bytes that this node {does}"
                )));
            }
            for extent in extents {
                let room = self.store.raw_room(extent.device).map(|room| room.capacity_bytes);
                if extent.end_bytes().is_none_or(|end| room.is_none_or(|room| end > room)) {
                    let Extent { device, offset_bytes, length_bytes } = extent;
                    return Err(Refusal(format!(
                        "the request names bytes {offset_bytes}..+{length_bytes} of device {device} for a cell that this node {does}; the device has {} bytes",
                        room.unwrap_or(0)
                    )));
                }
            }
        }
        Ok(cells.iter().map(|extents| extents.iter().map(place).collect()).collect())
    }
}

fn place(extent: &Extent) -> Place {
    Place {
        device: DeviceIndex(extent.device.0.into()),
        offset_bytes: extent.offset_bytes,
        length_bytes: extent.length_bytes.into(),
    }
}

/// The checksums of the written cells, in the order of the request.
fn checksums(kept: &[Cell], cells: &[StoredCell]) -> Result<Vec<u32>, Refusal> {
    let of = |cell: &Cell| cells.iter().find(|stored| stored.cell == *cell).map(|stored| stored.checksum);
    let found: Option<Vec<u32>> = kept.iter().map(of).collect();
    found.filter(|_| kept.len() == cells.len()).ok_or_else(|| {
        Refusal(format!("{} cells were stored, expected the {} that were to be", cells.len(), kept.len()))
    })
}

impl Store for CellStore {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal> {
        let to = RelayedTo::decode(beginning.what).map_err(|error| Refusal(error.to_string()))?;
        match (to, &mut self.scratch) {
            (RelayedTo::Memory | RelayedTo::Scratch, _) if !beginning.held.is_empty() => Err(Refusal(
                "the request does not name the extents of the cells that this node holds".to_owned(),
            )),
            (RelayedTo::Memory, _) => Nowhere.begin(beginning),
            (RelayedTo::Scratch, Ok(area)) => area.begin(beginning),
            (RelayedTo::Scratch, Err(refusal)) => Err(refusal.clone()),
            (RelayedTo::Parity { load, set, first_cell, held }, _) => {
                self.parity(beginning, (load, set, first_cell), &held)
            }
            (RelayedTo::Rebuild { table, set, held, kept }, _) => {
                self.rebuild(beginning, (table, set), (&held, &kept))
            }
        }
    }

    fn stored(&mut self, name: StripeName, cells: &[StoredCell]) -> Result<(), Refusal> {
        let Some(Underway { kept, goal }) = self.underway.remove(&name) else {
            // The scratch area knows which stripes it holds.
            return self.scratch.as_mut().map_or(Ok(()), |area| area.stored(name, cells));
        };
        let checksums = checksums(&kept, cells)?;
        let stored = match goal {
            Goal::Parity(cells, claim) => self.store.parity_stored(&cells, &claim, &checksums),
            Goal::Places(claim) => claim.check(&checksums),
        };
        stored.map_err(|refusal| Refusal(refusal.text))
    }

    fn given_up(&mut self, name: StripeName) {
        if self.underway.remove(&name).is_none()
            && let Ok(area) = &mut self.scratch
        {
            area.given_up(name);
        }
    }
}

#[cfg(test)]
mod tests;
