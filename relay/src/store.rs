//! Defines the interface to the code that decides where a node's cells lie, and two simple
//! implementations.
//!
//! When a stripe begins, a [`Store`] answers where its held cells lie and where its kept cells are
//! to be written. Later it is told that all kept cells are on disk, with their checksums, or that
//! the stripe has failed. [`Nowhere`] writes no cells to a device, as in the paper's measurements.
//! [`Area`] writes them one after the other into a part of a device, and starts over at the end of
//! that part.
//!
//! Invariant: after each successful `begin`, either `stored` or `given_up` is called, exactly once.

use std::{any::Any, ops::Range, sync::Arc};

use rackscan_device::DeviceIndex;
use rackscan_stripe::Cell;

use crate::limits::SECTOR_BYTES;

/// Identifies a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripeName {
    /// The session: a random number.
    pub session: u64,
    /// Its number, which determines the rotation of its columns.
    pub stripe: u64,
}

/// A stripe that begins, as described to a node's store.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// The stripe.
    pub name: StripeName,
    /// The client's description for the store.
    pub what: &'a [u8],
    /// The cells that this node has and will read, in ascending order.
    pub held: &'a [Cell],
    /// The cells that this node will keep, in ascending order.
    pub kept: &'a [Cell],
    /// Bytes of each cell, a multiple of [`SECTOR_BYTES`].
    pub cell_bytes: u64,
}

/// An extent of a device that holds consecutive bytes of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The device.
    pub device: DeviceIndex,
    /// The offset, in bytes; a multiple of [`SECTOR_BYTES`].
    pub offset_bytes: u64,
    /// The length, in bytes; a multiple of [`SECTOR_BYTES`].
    pub length_bytes: u64,
}

/// Something that must not be dropped while a device may still be working for a stripe.
pub type Guard = Arc<dyn Any + Send + Sync>;

/// Where the cells of a stripe lie on a node's devices.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// For each held cell, the extents of its bytes, from its beginning. Zeros follow if they are
    /// shorter than a cell.
    pub held: Vec<Vec<Place>>,
    /// For each kept cell, the extents that its bytes are written to, from its beginning. The bytes
    /// beyond are not written: of a cell without extents, none are.
    pub kept: Vec<Vec<Place>>,
    /// Kept until the last device operation of the stripe has ended, even if the stripe is given
    /// up. So extents that are still being written are not given to others.
    pub guard: Option<Guard>,
}

impl Places {
    /// The places for kept cells that are not written.
    #[must_use]
    pub fn nowhere(kept: usize) -> Self {
        Self { kept: vec![Vec::new(); kept], ..Self::default() }
    }
}

/// A cell that was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCell {
    /// The cell.
    pub cell: Cell,
    /// The CRC-32C of the whole cell, computed over what was written.
    pub checksum: u32,
}

/// Why a store refuses a stripe, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// The owner of a node's cells.
pub trait Store {
    /// Begins a stripe, and returns where its cells lie, in the order of `beginning`.
    ///
    /// # Errors
    /// [`Refusal`] ends the session.
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal>;

    /// All kept cells are on disk (flushed), and their checksums are right. The client is told
    /// afterwards.
    ///
    /// # Errors
    /// [`Refusal`] ends the session.
    fn stored(&mut self, name: StripeName, cells: &[StoredCell]) -> Result<(), Refusal>;

    /// The stripe has failed here. Its places are free again as soon as the operations in progress
    /// have ended.
    fn given_up(&mut self, name: StripeName);
}

/// Refuses a stripe whose cells are to be read, because this store keeps no cells for later.
fn holds_nothing(beginning: &Beginning<'_>) -> Result<(), Refusal> {
    match beginning.held.len() {
        0 => Ok(()),
        held => Err(Refusal(format!(
            "the stripe requires reading {held} cells, but this store keeps no cells that can be read"
        ))),
    }
}

/// A store that keeps nothing.
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

/// A store for measurements, which writes cells one after the other into a part of a device, and
/// starts over at its end. It does not wait for writes that a given-up stripe may still have in
/// progress.
#[derive(Clone, Debug)]
pub struct Area {
    part: Place,
    used_bytes: u64,
    /// The ranges of stripes in progress, relative to the part: as many as sessions have lanes.
    underway: Vec<(StripeName, Range<u64>)>,
}

impl Area {
    /// An area in this part of a device.
    ///
    /// # Errors
    /// [`Refusal`] if it is not whole sectors.
    pub fn new(part: Place) -> Result<Self, Refusal> {
        let whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES as u64);
        if !whole(part.offset_bytes) || !whole(part.length_bytes) {
            return Err(Refusal(format!(
                "the area is {part:?}, expected whole sectors of {SECTOR_BYTES} bytes"
            )));
        }
        Ok(Self { part, used_bytes: 0, underway: Vec::new() })
    }

    fn ended(&mut self, name: StripeName) {
        self.underway.retain(|(of, _)| *of != name);
    }
}

impl Store for Area {
    /// Refuses a stripe that would overlap one in progress.
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal> {
        holds_nothing(beginning)?;
        let (length_bytes, room) = (beginning.cell_bytes, self.part.length_bytes);
        let needed = length_bytes.saturating_mul(beginning.kept.len() as u64);
        if needed > room {
            return Err(Refusal(format!(
                "the stripe needs {needed} bytes, but the area has only {room} bytes"
            )));
        }
        let start = if self.used_bytes + needed > room { 0 } else { self.used_bytes };
        let end = start + needed;
        if self.underway.iter().any(|(_, other)| other.start < end && start < other.end) {
            let count = self.underway.len();
            return Err(Refusal(format!(
                "the stripe needs {needed} bytes of an area of {room} bytes, but the next free bytes are taken by some of the \
                 {count} stripes under way: make the area larger, or use fewer lanes"
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
