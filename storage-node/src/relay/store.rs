//! Where do the cells of a relayed stripe go?
//!
//! Invariants
//! - Nothing is written outside of the scratch area.

use rackscan_device::DeviceIndex;
use rackscan_format::message::{RelayedTo, ScratchArea};
use rackscan_relay::{Area, Beginning, Nowhere, Place, Places, Refusal, Store, StoredCell, StripeName};

/// A node's cells.
#[derive(Debug)]
pub(super) struct CellStore {
    scratch: Result<Area, Refusal>,
}

impl CellStore {
    /// With this scratch area, if there is one.
    pub(super) fn new(scratch: Option<ScratchArea>) -> Self {
        let none = || Refusal("the node has no scratch area: give it one (scratch = \"1GiB\")".to_owned());
        let area = |ScratchArea { offset_bytes, length_bytes }| {
            // The area lies on the first device.
            Area::new(Place { device: DeviceIndex(0), offset_bytes, length_bytes })
        };
        Self { scratch: scratch.ok_or_else(none).and_then(area) }
    }
}

impl Store for CellStore {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal> {
        let to = RelayedTo::decode(beginning.what).map_err(|error| Refusal(error.to_string()))?;
        match (to, &mut self.scratch) {
            (RelayedTo::Memory, _) => Nowhere.begin(beginning),
            (RelayedTo::Scratch, Ok(area)) => area.begin(beginning),
            (RelayedTo::Scratch, Err(refusal)) => Err(refusal.clone()),
        }
    }

    fn stored(&mut self, name: StripeName, cells: &[StoredCell]) -> Result<(), Refusal> {
        // The area knows which stripes lie in it.
        self.scratch.as_mut().map_or(Ok(()), |area| area.stored(name, cells))
    }

    fn given_up(&mut self, name: StripeName) {
        if let Ok(area) = &mut self.scratch {
            area.given_up(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use rackscan_stripe::{Cell, Column};

    use super::*;

    const NAME: StripeName = StripeName { session: 1, stripe: 0 };

    fn begin(store: &mut CellStore, what: &[u8]) -> Result<Places, Refusal> {
        let kept = [Cell { column: Column(0), slot: 0 }, Cell { column: Column(0), slot: 1 }];
        let name = NAME;
        store.begin(&Beginning { name, what, held: &[], kept: &kept, cell_bytes: 8192 })
    }

    #[test]
    fn cells_go_where_the_client_says_and_nowhere_else() {
        let (offset_bytes, length_bytes) = (1 << 20, 32768);
        let mut store = CellStore::new(Some(ScratchArea { offset_bytes, length_bytes }));
        assert_eq!(begin(&mut store, &RelayedTo::Memory.encode().unwrap()).unwrap().kept, [vec![], vec![]]);
        let places = begin(&mut store, &RelayedTo::Scratch.encode().unwrap()).unwrap();
        let ends = places.kept.iter().flatten().map(|place| (place.offset_bytes, place.length_bytes));
        assert_eq!(ends.collect::<Vec<_>>(), [(offset_bytes, 8192), (offset_bytes + 8192, 8192)]);
        assert!(begin(&mut store, b"").is_err() && begin(&mut store, &[77]).is_err());
        let refused = begin(&mut CellStore::new(None), &RelayedTo::Scratch.encode().unwrap());
        assert!(refused.unwrap_err().to_string().contains("scratch ="));
    }

    #[test]
    fn the_area_is_free_again_when_a_stripe_has_ended() {
        let area = ScratchArea { offset_bytes: 0, length_bytes: 16384 };
        let mut store = CellStore::new(Some(area));
        let scratch = RelayedTo::Scratch.encode().unwrap();
        for round in 0..4 {
            begin(&mut store, &scratch).unwrap();
            assert!(begin(&mut store, &scratch).is_err(), "the first stripe lies there");
            match round % 2 {
                0 => store.stored(NAME, &[]).unwrap(),
                _ => store.given_up(NAME),
            }
        }
    }
}
