//! Where do the cells that a node keeps lie on its devices, and who remembers it?
//!
//! A [`Store`] is what a node's owner brings: it says where cells go when a stripe begins, and learns when they are all on disk, with a checksum for each slice.
//! [`Nowhere`] keeps cells in memory until they are checked, and then forgets them, as the paper measures; [`Area`] writes them one behind the other into a part of a device, and begins anew at its end.
//!
//! Invariants
//! - `begin` is followed by `stored` or by `given_up`, once, unless it refused.

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

/// A cell that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCell {
    /// Which.
    pub cell: Cell,
    /// The CRC-32C of each of its slices, computed over what was written.
    pub checksums: Vec<u32>,
}

/// Why a store does not take a stripe: for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// What a node's owner does with cells.
pub trait Store {
    /// Where the bytes of each kept cell go, in order; a cell without places is not written anywhere.
    ///
    /// # Errors
    /// [`Refusal`] ends the session.
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Vec<Vec<Place>>, Refusal>;

    /// All cells are on disk (flushed) and are what the client sent. The client is told so afterwards.
    ///
    /// # Errors
    /// [`Refusal`] ends the session.
    fn stored(&mut self, name: StripeName, cells: &[StoredCell]) -> Result<(), Refusal>;

    /// The stripe has come to nothing here: the places are free again as soon as the devices have done what was begun.
    fn given_up(&mut self, name: StripeName);
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Store for Nowhere {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Vec<Vec<Place>>, Refusal> {
        Ok(vec![Vec::new(); beginning.kept.len()])
    }

    fn stored(&mut self, _name: StripeName, _cells: &[StoredCell]) -> Result<(), Refusal> {
        Ok(())
    }

    fn given_up(&mut self, _name: StripeName) {}
}

/// Keeps cells one behind the other in a part of a device, and begins anew at its end: for measurements.
#[derive(Clone, Debug)]
pub struct Area {
    part: Place,
    used_bytes: u64,
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
        Ok(Self { part, used_bytes: 0 })
    }
}

impl Store for Area {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Vec<Vec<Place>>, Refusal> {
        let (length_bytes, room) = (beginning.cell_bytes, self.part.length_bytes);
        let needed = length_bytes.saturating_mul(beginning.kept.len() as u64);
        if needed > room {
            return Err(Refusal(format!("a stripe needs {needed} bytes here, the area has {room}")));
        }
        if self.used_bytes + needed > room {
            self.used_bytes = 0;
        }
        let mut next = self.part.offset_bytes + self.used_bytes;
        self.used_bytes += needed;
        let places = beginning.kept.iter().map(|_| {
            let place = Place { device: self.part.device, offset_bytes: next, length_bytes };
            next += length_bytes;
            vec![place]
        });
        Ok(places.collect())
    }

    fn stored(&mut self, _name: StripeName, _cells: &[StoredCell]) -> Result<(), Refusal> {
        Ok(())
    }

    fn given_up(&mut self, _name: StripeName) {}
}

#[cfg(test)]
mod tests {
    use rackscan_stripe::Column;

    use super::*;

    fn begin(area: &mut Area, cells: u8) -> Result<Vec<u64>, Refusal> {
        let kept: Vec<Cell> = (0..cells).map(|slot| Cell { column: Column(0), slot }).collect();
        let name = StripeName { session: 1, stripe: 2 };
        let places = area.begin(&Beginning { name, what: &[], kept: &kept, cell_bytes: 8192 })?;
        Ok(places.iter().flatten().map(|place| place.offset_bytes).collect())
    }

    #[test]
    fn an_area_goes_round_and_refuses_what_never_fits() {
        let part = Place { device: DeviceIndex(0), offset_bytes: 4096, length_bytes: 5 * 8192 };
        let mut area = Area::new(part).unwrap();
        assert_eq!(begin(&mut area, 3).unwrap(), [4096, 12288, 20480]);
        assert_eq!(begin(&mut area, 2).unwrap(), [28672, 36864]);
        assert_eq!(begin(&mut area, 1).unwrap(), [4096]);
        assert!(begin(&mut area, 6).is_err());
        assert!(Area::new(Place { offset_bytes: 512, ..part }).is_err());
    }
}
