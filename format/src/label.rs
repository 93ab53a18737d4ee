//! Defines the label in the first sectors of a device, which records the node that owns the device.
//!
//! ```text
//! sector 0            the label: magic, version, node, device, cluster, random label, capacity, CRC-32C; then zeros
//! sector 1            a copy of the label, so that one torn or damaged sector does not lose the device
//! until the offset    unused
//! DATA_OFFSET_BYTES   pages
//! ```
//!
//! A node writes the label when it uses a device for the first time, and refuses to open a device
//! with another label. An engine on the same host reads the label to make sure that it has opened
//! the device that the node has reported.
//!
//! Invariants
//! - The layout is fixed and little-endian; its size is asserted below.
//! - A sector of zeros means that no node has used the device yet ([`LabelError::Blank`]).

use crate::{
    ids::{DeviceId, NodeId},
    limits::SECTOR_BYTES,
};
use bytemuck::{Pod, Zeroable};

/// The offset from which on a device may hold pages: after the labels, and aligned for devices with
/// large blocks.
pub const DATA_OFFSET_BYTES: u64 = 64 * 1024;
/// Copies of the label: one per sector, from the device's beginning.
pub const LABEL_COPIES: usize = 2;
/// Version of the layout.
pub const LABEL_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"RKSDEV\r\n";

/// The owner of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLabel {
    /// The cluster.
    pub cluster: u64,
    /// The node.
    pub node: NodeId,
    /// The device's position in the node's configuration.
    pub device: DeviceId,
    /// Drawn at random when the device was taken, so that no device is mistaken for another one.
    pub label: u64,
    /// Bytes of the device when it was taken.
    pub capacity_bytes: u64,
}

/// Why a sector does not hold a valid label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// All zeroes: no node has taken the device.
    #[error("the device label is blank: its sector contains only zeros")]
    Blank,
    /// Something else is stored there.
    #[error(
        "the label sector begins with {found:02x?}, expected a device label, which begins with {MAGIC:02x?}"
    )]
    Foreign {
        /// The first bytes.
        found: [u8; 8],
    },
    /// A label of another release.
    #[error(
        "the device label has version {found}, expected {LABEL_VERSION}: use the release of rackscan that wrote it"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// The bytes changed since they were written.
    #[error(
        "the device label has checksum {found:08x}, expected {expected:08x}: it has changed since it was written"
    )]
    Checksum {
        /// Computed over the bytes found.
        found: u32,
        /// Stored beside it.
        expected: u32,
    },
    /// Bytes that this release leaves zero are not.
    #[error(
        "the device label has {found:02x?} in its reserved bytes, expected zeros: use the release of rackscan that wrote it"
    )]
    Reserved {
        /// The reserved bytes.
        found: [u8; 5],
    },
    /// Fewer bytes than a label has.
    #[error("the device label has {found} bytes, expected at least {}", size_of::<Layout>())]
    Short {
        /// Bytes there.
        found: usize,
    },
}

/// The label's bytes. All integers are little-endian.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: [u8; 4],
    node: [u8; 2],
    device: u8,
    reserved: u8,
    cluster: [u8; 8],
    label: [u8; 8],
    capacity_bytes: [u8; 8],
    reserved_tail: [u8; 4],
    /// CRC-32C of everything before it.
    checksum: [u8; 4],
}

const LAYOUT_BYTES: usize = size_of::<Layout>();
const _: () = assert!(LAYOUT_BYTES == 48);
const _: () = assert!(LABEL_COPIES as u64 * SECTOR_BYTES as u64 <= DATA_OFFSET_BYTES);
const _: () = assert!(DATA_OFFSET_BYTES.is_multiple_of(SECTOR_BYTES as u64));

impl DeviceLabel {
    /// The sector to write, once per copy.
    #[must_use]
    pub fn to_sector(&self) -> Vec<u8> {
        let mut layout = Layout {
            magic: MAGIC,
            version: LABEL_VERSION.to_le_bytes(),
            node: self.node.0.to_le_bytes(),
            device: self.device.0,
            reserved: 0,
            cluster: self.cluster.to_le_bytes(),
            label: self.label.to_le_bytes(),
            capacity_bytes: self.capacity_bytes.to_le_bytes(),
            reserved_tail: [0; 4],
            checksum: [0; 4],
        };
        layout.checksum = checksum_of(&layout).to_le_bytes();
        let mut sector = bytemuck::bytes_of(&layout).to_vec();
        sector.resize(SECTOR_BYTES as usize, 0);
        sector
    }

    /// The label in a sector.
    ///
    /// # Errors
    /// Why the sector does not hold a valid label.
    pub fn from_sector(sector: &[u8]) -> Result<Self, LabelError> {
        let bytes = sector.get(..LAYOUT_BYTES).ok_or(LabelError::Short { found: sector.len() })?;
        if sector.iter().all(|byte| *byte == 0) {
            return Err(LabelError::Blank);
        }
        let layout: Layout = bytemuck::pod_read_unaligned(bytes);
        if layout.magic != MAGIC {
            return Err(LabelError::Foreign { found: layout.magic });
        }
        let version = u32::from_le_bytes(layout.version);
        if version != LABEL_VERSION {
            return Err(LabelError::Version { found: version });
        }
        let (found, expected) = (checksum_of(&layout), u32::from_le_bytes(layout.checksum));
        if found != expected {
            return Err(LabelError::Checksum { found, expected });
        }
        let [a, b, c, d] = layout.reserved_tail;
        let found = [layout.reserved, a, b, c, d];
        if found != [0; 5] {
            return Err(LabelError::Reserved { found });
        }
        Ok(Self {
            cluster: u64::from_le_bytes(layout.cluster),
            node: NodeId(u16::from_le_bytes(layout.node)),
            device: DeviceId(layout.device),
            label: u64::from_le_bytes(layout.label),
            capacity_bytes: u64::from_le_bytes(layout.capacity_bytes),
        })
    }
}

fn checksum_of(layout: &Layout) -> u32 {
    crc32c::crc32c(&bytemuck::bytes_of(layout)[..LAYOUT_BYTES - 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: DeviceLabel = DeviceLabel {
        cluster: 0x0102_0304_0506_0708,
        node: NodeId(3),
        device: DeviceId(1),
        label: 0x1122_3344_5566_7788,
        capacity_bytes: 1 << 30,
    };

    #[test]
    fn a_label_survives_its_sector_and_has_the_bytes_of_version_one() {
        let sector = LABEL.to_sector();
        assert_eq!(sector.len(), SECTOR_BYTES as usize);
        assert_eq!(DeviceLabel::from_sector(&sector), Ok(LABEL));
        assert_eq!(sector[..16], *b"RKSDEV\r\n\x01\0\0\0\x03\0\x01\0");
        assert_eq!(sector[16..32], *b"\x08\x07\x06\x05\x04\x03\x02\x01\x88\x77\x66\x55\x44\x33\x22\x11");
    }

    #[test]
    fn every_flipped_byte_of_a_label_is_noticed() {
        for at in 0..LAYOUT_BYTES {
            let mut sector = LABEL.to_sector();
            sector[at] ^= 0x10;
            assert!(DeviceLabel::from_sector(&sector).is_err(), "byte {at}");
        }
    }

    #[test]
    fn reserved_bytes_of_a_label_are_zero() {
        let mut layout: Layout = bytemuck::pod_read_unaligned(&LABEL.to_sector()[..LAYOUT_BYTES]);
        layout.reserved_tail[3] = 7;
        layout.checksum = checksum_of(&layout).to_le_bytes();
        let refused = DeviceLabel::from_sector(bytemuck::bytes_of(&layout));
        assert_eq!(refused, Err(LabelError::Reserved { found: [0, 0, 0, 0, 7] }));
    }

    #[test]
    fn a_blank_device_and_a_foreign_one_are_told_apart() {
        assert_eq!(DeviceLabel::from_sector(&[0; 4096]), Err(LabelError::Blank));
        assert_eq!(DeviceLabel::from_sector(&[b'x'; 4096]), Err(LabelError::Foreign { found: [b'x'; 8] }));
        assert_eq!(DeviceLabel::from_sector(&[1; 10]), Err(LabelError::Short { found: 10 }));
    }
}
