//! The places of a replay: the devices and areas that a trace's reads and writes may use.
//!
//! Invariants
//! - An area begins and ends at a multiple of its place's alignment.
//! - There is at least one place, and no two have the same node and device.

use std::collections::BTreeSet;

use super::error::ReplayError;
use super::limits::PLACES_MAX;

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Start in bytes.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

impl Area {
    /// The largest part that begins and ends at multiples of `align_bytes`.
    fn aligned(self, align_bytes: u32) -> Self {
        let align = u64::from(align_bytes);
        let end = self.offset_bytes.saturating_add(self.length_bytes) / align * align;
        let offset_bytes = self.offset_bytes.checked_next_multiple_of(align).unwrap_or(end).min(end);
        Self { offset_bytes, length_bytes: end - offset_bytes }
    }
}

/// A device that a trace is replayed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of its node.
    pub node: u16,
    /// Number of the device on its node.
    pub device: u16,
    /// Where reads may go.
    pub reads: Area,
    /// Where writes may go; `None` if nowhere.
    pub writes: Option<Area>,
    /// Offsets and lengths are multiples of this power of two.
    pub align_bytes: u32,
}

/// How the place of a record is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The place with the record's node and device.
    ByNumber,
    /// The first place, whatever the record says.
    AllToFirst,
}

/// The devices that a trace is replayed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    places: Vec<Place>,
    routing: Routing,
}

impl Ground {
    /// Creates a ground of these places. Areas shrink to their alignment.
    ///
    /// # Errors
    /// [`ReplayError::BadGround`] if there is no place, too many, one twice, or an alignment that
    /// is not a power of two.
    pub fn new(places: Vec<Place>, routing: Routing) -> Result<Self, ReplayError> {
        let bad = |reason: String| Err(ReplayError::BadGround { reason });
        if places.is_empty() || places.len() > PLACES_MAX {
            return bad(format!("{} devices, expected 1 to {PLACES_MAX}", places.len()));
        }
        let mut numbers = BTreeSet::new();
        for place in &places {
            if !place.align_bytes.is_power_of_two() {
                return bad(format!("an alignment of {} bytes, expected a power of two", place.align_bytes));
            }
            if !numbers.insert((place.node, place.device)) {
                return bad(format!("device {} of node {} twice", place.device, place.node));
            }
        }
        let aligned = |place: Place| Place {
            reads: place.reads.aligned(place.align_bytes),
            writes: place.writes.map(|area| area.aligned(place.align_bytes)),
            ..place
        };
        Ok(Self { places: places.into_iter().map(aligned).collect(), routing })
    }

    /// The devices.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The index of the place for a record's node and device.
    pub(super) fn find(&self, node: u16, device: u16) -> Option<u16> {
        let found = match self.routing {
            Routing::AllToFirst => Some(0),
            Routing::ByNumber => {
                self.places.iter().position(|place| (place.node, place.device) == (node, device))
            }
        };
        found.and_then(|at| u16::try_from(at).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(node: u16, device: u16) -> Place {
        let reads = Area { offset_bytes: 100, length_bytes: 10_000 };
        Place { node, device, reads, writes: None, align_bytes: 512 }
    }

    #[test]
    fn areas_shrink_to_their_alignment() {
        let ground = Ground::new(vec![place(0, 0)], Routing::ByNumber).unwrap();
        assert_eq!(ground.places()[0].reads, Area { offset_bytes: 512, length_bytes: 9_216 });
        let tiny = Place { reads: Area { offset_bytes: 100, length_bytes: 50 }, ..place(0, 0) };
        let ground = Ground::new(vec![tiny], Routing::ByNumber).unwrap();
        assert_eq!(ground.places()[0].reads.length_bytes, 0);
    }

    #[test]
    fn numbers_find_their_place_or_all_find_the_first() {
        let places = vec![place(1, 0), place(1, 1), place(3, 0)];
        let ground = Ground::new(places.clone(), Routing::ByNumber).unwrap();
        assert_eq!((ground.find(3, 0), ground.find(1, 1), ground.find(0, 0)), (Some(2), Some(1), None));
        let ground = Ground::new(places, Routing::AllToFirst).unwrap();
        assert_eq!(ground.find(77, 5), Some(0));
    }

    #[test]
    fn impossible_grounds_are_refused() {
        let ground = |places| Ground::new(places, Routing::ByNumber);
        assert!(ground(vec![]).is_err());
        assert!(ground(vec![place(0, 0), place(0, 0)]).is_err());
        assert!(ground(vec![Place { align_bytes: 0, ..place(0, 0) }]).is_err());
    }
}
