//! Checks requests before they are submitted to the device.
//!
//! The checks are pure functions and the same for ring, threads and simulator. The kernel cannot
//! refuse a request that passes them because of its offset, length or alignment.

use std::sync::Arc;

use crate::device::{Access, Alignment, Device};
use crate::error::SubmitError;
use crate::fault::Operation;
use crate::limits::IO_BYTES_MAX;
use crate::request::{DeviceIndex, IoMemory};

/// The properties of a device that the checks need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    pub(crate) alignment: Alignment,
}

/// The range of a read or write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) device: DeviceIndex,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u32,
}

/// The geometry of the device with this index.
pub(crate) fn geometry(devices: &[Arc<Device>], device: DeviceIndex) -> Result<Geometry, SubmitError> {
    let unknown = SubmitError::UnknownDevice { device, devices: devices.len() };
    let device = devices.get(usize::from(device.0)).ok_or(unknown)?;
    Ok(Geometry { bytes: device.bytes(), access: device.access(), alignment: device.alignment() })
}

/// Checks a read or write of `extent` with `memory`.
pub(crate) fn transfer(
    geometry: Geometry,
    operation: Operation,
    extent: Extent,
    memory: &IoMemory,
) -> Result<(), SubmitError> {
    let Extent { device, offset_bytes, length_bytes } = extent;
    writable(geometry, operation, device)?;
    if length_bytes == 0 || length_bytes as usize > IO_BYTES_MAX {
        return Err(SubmitError::BadLength { length_bytes });
    }
    let align_bytes = geometry.alignment.offset_bytes;
    if !offset_bytes.is_multiple_of(u64::from(align_bytes)) || !length_bytes.is_multiple_of(align_bytes) {
        return Err(SubmitError::Misaligned { offset_bytes, length_bytes, align_bytes });
    }
    let end = offset_bytes.checked_add(u64::from(length_bytes));
    if end.is_none_or(|end| end > geometry.bytes) {
        return Err(SubmitError::OutOfRange { offset_bytes, length_bytes, device_bytes: geometry.bytes });
    }
    if memory.len() < length_bytes as usize {
        return Err(SubmitError::MemoryTooShort { length_bytes, memory_bytes: memory.len() });
    }
    let excess_bytes = memory.address().addr() % geometry.alignment.memory_bytes as usize;
    if excess_bytes != 0 {
        let align_bytes = geometry.alignment.memory_bytes;
        return Err(SubmitError::MisalignedMemory { excess_bytes, align_bytes });
    }
    Ok(())
}

/// Refuses writes and flushes of a device opened for reading.
pub(crate) fn writable(
    geometry: Geometry,
    operation: Operation,
    device: DeviceIndex,
) -> Result<(), SubmitError> {
    if operation != Operation::Read && geometry.access == Access::ReadOnly {
        return Err(SubmitError::ReadOnlyDevice { device });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::BufferPool;

    const GEOMETRY: Geometry = Geometry {
        bytes: 1 << 20,
        access: Access::ReadOnly,
        alignment: Alignment { memory_bytes: 512, offset_bytes: 512 },
    };

    fn check(offset_bytes: u64, length_bytes: u32) -> Result<(), SubmitError> {
        let memory = IoMemory::Buffer(BufferPool::new(8192, 8192).unwrap().take(8192).unwrap());
        let extent = Extent { device: DeviceIndex(0), offset_bytes, length_bytes };
        transfer(GEOMETRY, Operation::Read, extent, &memory)
    }

    #[test]
    fn requests_inside_the_device_at_its_alignment_pass() {
        assert_eq!(check(0, 8192), Ok(()));
        assert_eq!(check(512, 512), Ok(()));
        assert_eq!(check((1 << 20) - 512, 512), Ok(()));
    }

    #[test]
    fn each_bad_shape_is_its_own_error() {
        assert!(matches!(check(1, 512), Err(SubmitError::Misaligned { offset_bytes: 1, .. })));
        assert!(matches!(check(0, 100), Err(SubmitError::Misaligned { length_bytes: 100, .. })));
        assert!(matches!(check(0, 0), Err(SubmitError::BadLength { .. })));
        assert!(matches!(check(0, u32::MAX), Err(SubmitError::BadLength { .. })));
        assert!(matches!(check(1 << 20, 512), Err(SubmitError::OutOfRange { .. })));
        assert!(matches!(check(u64::MAX - 511, 512), Err(SubmitError::OutOfRange { .. })));
        assert!(matches!(check(0, 8704), Err(SubmitError::MemoryTooShort { memory_bytes: 8192, .. })));
    }

    #[test]
    fn a_read_only_device_refuses_writes_and_flushes() {
        let refused = Err(SubmitError::ReadOnlyDevice { device: DeviceIndex(3) });
        assert_eq!(writable(GEOMETRY, Operation::Write, DeviceIndex(3)), refused);
        assert_eq!(writable(GEOMETRY, Operation::Fsync, DeviceIndex(3)), refused);
        assert_eq!(writable(GEOMETRY, Operation::Read, DeviceIndex(3)), Ok(()));
    }
}
