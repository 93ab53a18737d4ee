//! Where do the cells that a node keeps lie on its devices, and who remembers it?
//!
//! A [`Store`] is what a node's owner brings: it says where cells lie and where they go when a
//! stripe begins, and learns when they are all on disk, with their checksums. [`Nowhere`] keeps
//! cells in memory until they are checked, and then forgets them, as the paper measures; [`Area`]
//! writes them one behind the other into a part of a device, and begins anew at its end.
//!
//! Invariants
//! - `begin` is followed by `stored` or by `given_up`, once, unless it refused.

use std::{any::Any, ops::Range, sync::Arc};

use rackscan_device::DeviceIndex;
use rackscan_stripe::Cell;

use crate::limits::SECTOR_BYTES;

/// Which stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripeName {
    /// Of which session: a random number.
    pub session: u64,
    /// Its number, which says how its columns lie.
    pub stripe: u64,
}

/// A stripe that begins, as a node's store is told.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// Which.
    pub name: StripeName,
    /// What the client says of it.
    pub what: &'a [u8],
    /// The cells that this node has and is to read, in ascending order.
    pub held: &'a [Cell],
    /// The cells that this node will keep, in ascending order.
    pub kept: &'a [Cell],
    /// Bytes of each cell, a multiple of [`SECTOR_BYTES`].
    pub cell_bytes: u64,
}

/// A part of a device that bytes of a cell fill, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which device.
    pub device: DeviceIndex,
    /// Where, in bytes; a multiple of [`SECTOR_BYTES`].
    pub offset_bytes: u64,
    /// How much; a multiple of [`SECTOR_BYTES`].
    pub length_bytes: u64,
}

/// What must not go while a device may still be doing something for a stripe.
pub type Guard = Arc<dyn Any + Send + Sync>;

/// Where the cells of a stripe lie at a node.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Of each held cell, what its bytes are, from its beginning. Zeros follow where they are
    /// shorter than a cell.
    pub held: Vec<Vec<Place>>,
    /// Of each kept cell, where its bytes go, from its beginning. What lies behind is written
    /// nowhere: of a cell without places nothing is.
    pub kept: Vec<Vec<Place>>,
    /// Kept until the last operation of the stripe at a device has ended, whatever becomes of the
    /// stripe: so nobody else is given room that is still being written to.
    pub guard: Option<Guard>,
}

impl Places {
    /// Kept cells that are written nowhere.
    #[must_use]
    pub fn nowhere(kept: usize) -> Self {
        Self { kept: vec![Vec::new(); kept], ..Self::default() }
    }
}

/// A cell that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCell {
    /// Which.
    pub cell: Cell,
    /// The CRC-32C of all of it, computed over what was written.
    pub checksum: u32,
}

/// Why a store does not take a stripe: for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// What a node's owner does with cells.
pub trait Store {
    /// Where the cells lie, in the order of the beginning.
    ///
    /// # Errors
    /// [`Refusal`] ends the session.
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal>;

    /// All kept cells are on disk (flushed) and are what was sent. The client is told so
    /// afterwards.
    ///
    /// # Errors
    /// [`Refusal`] ends the session.
    fn stored(&mut self, name: StripeName, cells: &[StoredCell]) -> Result<(), Refusal>;

    /// The stripe has come to nothing here: the places are free again as soon as the devices have
    /// done what was begun.
    fn given_up(&mut self, name: StripeName);
}

/// Refuses a stripe of which cells are to be read: whoever keeps none has none.
fn holds_nothing(beginning: &Beginning<'_>) -> Result<(), Refusal> {
    match beginning.held.len() {
        0 => Ok(()),
        held => Err(Refusal(format!("{held} cells of a stripe are to be read where none were kept"))),
    }
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Store for Nowhere {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal> {
        holds_nothing(beginning)?;
        Ok(Places::nowhere(beginning.kept.len()))
    }

    fn stored(&mut self, _name: StripeName, _cells: &[StoredCell]) -> Result<(), Refusal> {
        Ok(())
    }

    fn given_up(&mut self, _name: StripeName) {}
}

/// Keeps cells one behind the other in a part of a device, and begins anew at its end: for
/// measurements. What a stripe may still write that was given up is not waited for.
#[derive(Clone, Debug)]
pub struct Area {
    part: Place,
    used_bytes: u64,
    /// Where stripes under way lie, counted from the start: as many as sessions have lanes.
    underway: Vec<(StripeName, Range<u64>)>,
}

impl Area {
    /// Over this part of a device.
    ///
    /// # Errors
    /// [`Refusal`] if it is not whole sectors.
    pub fn new(part: Place) -> Result<Self, Refusal> {
        let whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES as u64);
        if !whole(part.offset_bytes) || !whole(part.length_bytes) {
            return Err(Refusal(format!("an area must be whole sectors of {SECTOR_BYTES} bytes: {part:?}")));
        }
        Ok(Self { part, used_bytes: 0, underway: Vec::new() })
    }

    fn ended(&mut self, name: StripeName) {
        self.underway.retain(|(of, _)| *of != name);
    }
}

impl Store for Area {
    /// Refuses a stripe that would lie where one lies that is under way.
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal> {
        holds_nothing(beginning)?;
        let (length_bytes, room) = (beginning.cell_bytes, self.part.length_bytes);
        let needed = length_bytes.saturating_mul(beginning.kept.len() as u64);
        if needed > room {
            return Err(Refusal(format!("a stripe needs {needed} bytes here, the area has {room}")));
        }
        let start = if self.used_bytes + needed > room { 0 } else { self.used_bytes };
        let end = start + needed;
        if self.underway.iter().any(|(_, other)| other.start < end && start < other.end) {
            let count = self.underway.len();
            return Err(Refusal(format!(
                "a stripe needs {needed} bytes here, the area has {room}, and {count} stripes under way lie where the next one \
                 would: give a larger area, or fewer lanes"
            )));
        }
        self.used_bytes = end;
        if needed > 0 {
            self.underway.push((beginning.name, start..end));
        }
        let mut next = self.part.offset_bytes + start;
        let kept = beginning.kept.iter().map(|_| {
            let place = Place { device: self.part.device, offset_bytes: next, length_bytes };
            next += length_bytes;
            vec![place]
        });
        Ok(Places { kept: kept.collect(), ..Places::default() })
    }

    fn stored(&mut self, name: StripeName, _cells: &[StoredCell]) -> Result<(), Refusal> {
        self.ended(name);
        Ok(())
    }

    fn given_up(&mut self, name: StripeName) {
        self.ended(name);
    }
}

#[cfg(test)]
mod tests {
    use rackscan_stripe::Column;

    use super::*;

    fn begin(area: &mut Area, stripe: u64, cells: u8) -> Result<Vec<u64>, Refusal> {
        let kept: Vec<Cell> = (0..cells).map(|slot| Cell { column: Column(0), slot }).collect();
        let places = area.begin(&Beginning {
            name: name(stripe),
            what: &[],
            held: &[],
            kept: &kept,
            cell_bytes: 8192,
        })?;
        Ok(places.kept.iter().flatten().map(|place| place.offset_bytes).collect())
    }

    fn name(stripe: u64) -> StripeName {
        StripeName { session: 1, stripe }
    }

    const PART: Place = Place { device: DeviceIndex(0), offset_bytes: 4096, length_bytes: 5 * 8192 };

    #[test]
    fn an_area_goes_round_and_refuses_what_never_fits() {
        let mut area = Area::new(PART).unwrap();
        assert_eq!(begin(&mut area, 0, 3).unwrap(), [4096, 12288, 20480]);
        area.stored(name(0), &[]).unwrap();
        assert_eq!(begin(&mut area, 1, 2).unwrap(), [28672, 36864]);
        assert_eq!(begin(&mut area, 2, 1).unwrap(), [4096]);
        assert!(begin(&mut area, 3, 6).is_err());
        assert!(Area::new(Place { offset_bytes: 512, ..PART }).is_err());
    }

    #[test]
    fn an_area_gives_no_place_twice_while_a_stripe_is_under_way_there() {
        let mut area = Area::new(PART).unwrap();
        begin(&mut area, 0, 2).unwrap();
        begin(&mut area, 1, 2).unwrap();
        let refused = begin(&mut area, 2, 2).unwrap_err().to_string();
        assert!(refused.contains("2 stripes under way"), "{refused}");
        area.given_up(name(1));
        assert!(begin(&mut area, 2, 2).is_err(), "the first one is where it would begin");
        area.stored(name(0), &[]).unwrap();
        assert_eq!(begin(&mut area, 2, 2).unwrap(), [4096, 12288]);
        assert_eq!(begin(&mut area, 3, 0).unwrap(), [0; 0], "a node that keeps nothing needs no place");
    }
}
