//! Lists the target devices of a replay, and the area of each that the trace's reads and writes may
//! use.
//!
//! Invariants
//! - An area begins and ends at a multiple of its device's alignment.
//! - The list has at least one device, and no two have the same node and device number.

use std::collections::BTreeSet;

use super::error::ReplayError;
use super::limits::DEVICES_MAX;

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
pub struct TargetDevice {
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

/// How the target device of a record is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The device with the record's node and device number.
    ByNumber,
    /// The first device, whatever the record says.
    AllToFirst,
}

/// The devices that a trace is replayed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMap {
    devices: Vec<TargetDevice>,
    routing: Routing,
}

impl DeviceMap {
    /// Creates a map of these devices. Areas shrink to their alignment.
    ///
    /// # Errors
    /// [`ReplayError::BadDevices`] if there is no device, too many, one twice, or an alignment that
    /// is not a power of two.
    pub fn new(devices: Vec<TargetDevice>, routing: Routing) -> Result<Self, ReplayError> {
        let bad = |reason: String| Err(ReplayError::BadDevices { reason });
        if devices.is_empty() || devices.len() > DEVICES_MAX {
            return bad(format!("{} devices, expected 1 to {DEVICES_MAX}", devices.len()));
        }
        let mut numbers = BTreeSet::new();
        for target in &devices {
            if !target.align_bytes.is_power_of_two() {
                return bad(format!("an alignment of {} bytes, expected a power of two", target.align_bytes));
            }
            if !numbers.insert((target.node, target.device)) {
                return bad(format!(
                    "device {} of node {} twice; expected each device once",
                    target.device, target.node
                ));
            }
        }
        let aligned = |target: TargetDevice| TargetDevice {
            reads: target.reads.aligned(target.align_bytes),
            writes: target.writes.map(|area| area.aligned(target.align_bytes)),
            ..target
        };
        Ok(Self { devices: devices.into_iter().map(aligned).collect(), routing })
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &[TargetDevice] {
        &self.devices
    }

    /// The index of the target device for a record's node and device.
    pub(super) fn find(&self, node: u16, device: u16) -> Option<u16> {
        let found = match self.routing {
            Routing::AllToFirst => Some(0),
            Routing::ByNumber => {
                self.devices.iter().position(|target| (target.node, target.device) == (node, device))
            }
        };
        found.and_then(|at| u16::try_from(at).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(node: u16, device: u16) -> TargetDevice {
        let reads = Area { offset_bytes: 100, length_bytes: 10_000 };
        TargetDevice { node, device, reads, writes: None, align_bytes: 512 }
    }

    #[test]
    fn areas_shrink_to_their_alignment() {
        let device_map = DeviceMap::new(vec![target(0, 0)], Routing::ByNumber).unwrap();
        assert_eq!(device_map.devices()[0].reads, Area { offset_bytes: 512, length_bytes: 9_216 });
        let tiny = TargetDevice { reads: Area { offset_bytes: 100, length_bytes: 50 }, ..target(0, 0) };
        let device_map = DeviceMap::new(vec![tiny], Routing::ByNumber).unwrap();
        assert_eq!(device_map.devices()[0].reads.length_bytes, 0);
    }

    #[test]
    fn numbers_find_their_place_or_all_find_the_first() {
        let devices = vec![target(1, 0), target(1, 1), target(3, 0)];
        let device_map = DeviceMap::new(devices.clone(), Routing::ByNumber).unwrap();
        assert_eq!(
            (device_map.find(3, 0), device_map.find(1, 1), device_map.find(0, 0)),
            (Some(2), Some(1), None)
        );
        let device_map = DeviceMap::new(devices, Routing::AllToFirst).unwrap();
        assert_eq!(device_map.find(77, 5), Some(0));
    }

    #[test]
    fn impossible_grounds_are_refused() {
        let device_map = |devices| DeviceMap::new(devices, Routing::ByNumber);
        assert!(device_map(vec![]).is_err());
        assert!(device_map(vec![target(0, 0), target(0, 0)]).is_err());
        assert!(device_map(vec![TargetDevice { align_bytes: 0, ..target(0, 0) }]).is_err());
    }
}
