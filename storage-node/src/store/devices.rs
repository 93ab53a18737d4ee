//! Are these devices ours, and whole?
//!
//! Invariants
//! - A device that carries a label of another cluster, node or place, or any other content, is refused and never written.
//! - A blank device is taken only where nothing is missing: if the catalog says that pages lie on it, it was lost.
//! - The catalog names a label before the device carries it, so a crash in between is completed by the next start.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rackscan_device::{
    Access, BufferPool, Completion, Device, DeviceIndex, DeviceIo, Fsync, IoMemory, Read, Ring, RingConfig,
    Token, Wait, Write,
};
use rackscan_format::{
    ids::{DeviceId, NodeId},
    label::{DATA_OFFSET_BYTES, DeviceLabel, LABEL_COPIES, LabelError},
    limits::SECTOR_BYTES,
};

use crate::{config::DeviceConfig, error::StartError, limits::DEVICE_BYTES_MIN};

/// How much of a device must be zeroes before it counts as blank. Covers the first superblock of every common filesystem.
const BLANK_BYTES: u32 = 1 << 20;
const _: () = assert!(BLANK_BYTES as u64 > DATA_OFFSET_BYTES && BLANK_BYTES as u64 <= DEVICE_BYTES_MIN);

/// Why a device is not used.
#[derive(Debug, thiserror::Error)]
pub enum LabelFault {
    /// It belongs to somebody else.
    #[error(
        "device {path}: its label says cluster {found_cluster}, node {found_node}, device {found_device}; \
         expected cluster {cluster}, node {node}, device {device}; it was not changed",
        path = path.display()
    )]
    Foreign {
        /// The device.
        path: PathBuf,
        /// From the label.
        found_cluster: u64,
        /// From the label.
        found_node: NodeId,
        /// From the label.
        found_device: DeviceId,
        /// From the configuration.
        cluster: u64,
        /// From the configuration.
        node: NodeId,
        /// From the configuration.
        device: DeviceId,
    },
    /// It is ours, but not the one that the catalog was written for.
    #[error(
        "device {path}: its label is {found:016x}, the catalog {catalog} expects {expected:016x}; \
         put the devices and the catalog that belong together back in place",
        path = path.display(), catalog = catalog.display()
    )]
    Swapped {
        /// The device.
        path: PathBuf,
        /// The catalog.
        catalog: PathBuf,
        /// On the device.
        found: u64,
        /// In the catalog.
        expected: u64,
    },
    /// It is blank and should not be.
    #[error(
        "device {path}: is blank, but tables have pages on it; put the device back in place, or remove the catalog \
         {catalog} and the other devices to begin anew",
        path = path.display(), catalog = catalog.display()
    )]
    Lost {
        /// The device.
        path: PathBuf,
        /// The catalog.
        catalog: PathBuf,
    },
    /// It is labelled, but there is no catalog.
    #[error(
        "device {path}: belongs to this node, but its catalog {catalog} is gone; put the catalog back in place, or remove \
         the devices to begin anew",
        path = path.display(), catalog = catalog.display()
    )]
    NoCatalog {
        /// The device.
        path: PathBuf,
        /// The catalog.
        catalog: PathBuf,
    },
    /// It holds something else.
    #[error(
        "device {path}: holds something that is not ours ({reason}); it was not changed; name a new file, or wipe it \
         yourself",
        path = path.display()
    )]
    NotOurs {
        /// The device.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// It is smaller than it was.
    #[error("device {path}: has {found_bytes} bytes, its label says {label_bytes}; it was cut off", path = path.display())]
    Shrunk {
        /// The device.
        path: PathBuf,
        /// Bytes now.
        found_bytes: u64,
        /// Bytes when it was taken.
        label_bytes: u64,
    },
    /// Too small to be of use.
    #[error("device {path}: has {found_bytes} bytes, expected at least {DEVICE_BYTES_MIN}", path = path.display())]
    Small {
        /// The device.
        path: PathBuf,
        /// Bytes.
        found_bytes: u64,
    },
    /// There are fewer devices than the catalog lists.
    #[error("the configuration names {found} devices, the catalog {catalog} lists {expected}; devices cannot leave a node", catalog = catalog.display())]
    Missing {
        /// The catalog.
        catalog: PathBuf,
        /// Devices configured.
        found: usize,
        /// Devices in the catalog.
        expected: usize,
    },
    /// It could not be read or written.
    #[error("device {path}: {reason}", path = path.display())]
    Io {
        /// The device.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
}

/// A device and what its label says.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) device: Arc<Device>,
    /// `None` if it is blank.
    pub(super) label: Option<DeviceLabel>,
}

/// Opens a device, or makes its file at the first start.
pub(super) fn open_or_create(config: &DeviceConfig) -> Result<Arc<Device>, StartError> {
    let path = &config.path;
    let is_empty_file = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0);
    if path.exists() && !is_empty_file {
        return Ok(Arc::new(Device::open(path, Access::ReadWrite)?));
    }
    let size = config.size.ok_or_else(|| StartError::NoSize { path: path.clone() })?;
    let os = |action| move |source| StartError::Os { action, source };
    if is_empty_file {
        fs::remove_file(path).map_err(os("replace an empty device file"))?;
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(os("make the folder of a device file"))?;
    }
    tracing::info!(device = %path.display(), %size, "making a device file");
    let bytes = size.0.next_multiple_of(SECTOR_BYTES.into());
    let device =
        if config.reserve { Device::create(path, bytes) } else { Device::create_sparse(path, bytes) };
    Ok(Arc::new(device?))
}

/// Reads and writes labels.
pub(super) struct Labels {
    ring: Ring,
    pool: BufferPool,
    devices: Vec<Arc<Device>>,
}

impl Labels {
    pub(super) fn of(devices: Vec<Arc<Device>>) -> Result<Self, StartError> {
        let pool = BufferPool::new(BLANK_BYTES as usize, BLANK_BYTES as usize)?;
        let ring = Ring::new(RingConfig { depth: 4, devices: devices.clone(), ..RingConfig::default() })?;
        Ok(Self { ring, pool, devices })
    }

    /// What a device's label says; a good copy stands in for a damaged one, and repairs it.
    pub(super) fn read(&mut self, device: usize) -> Result<Opened, LabelFault> {
        let path = self.devices[device].path().to_owned();
        let found_bytes = self.devices[device].bytes();
        if found_bytes < DEVICE_BYTES_MIN {
            return Err(LabelFault::Small { path, found_bytes });
        }
        let head = self.read_head(device)?;
        let sector = SECTOR_BYTES as usize;
        let copies: Vec<Result<DeviceLabel, LabelError>> = (0..LABEL_COPIES)
            .map(|copy| DeviceLabel::from_sector(&head[copy * sector..][..sector]))
            .collect();
        let Some(label) = copies.iter().find_map(|copy| copy.as_ref().ok()).copied() else {
            if head.iter().all(|byte| *byte == 0) {
                return Ok(Opened { device: Arc::clone(&self.devices[device]), label: None });
            }
            let reason = copies.into_iter().find_map(Result::err).map_or_else(String::new, |e| e.to_string());
            return Err(LabelFault::NotOurs { path, reason });
        };
        if found_bytes < label.capacity_bytes {
            return Err(LabelFault::Shrunk { path, found_bytes, label_bytes: label.capacity_bytes });
        }
        Ok(Opened { device: Arc::clone(&self.devices[device]), label: Some(label) })
    }

    /// Whether both copies are whole.
    pub(super) fn is_whole(&mut self, device: usize) -> Result<bool, LabelFault> {
        let head = self.read_head(device)?;
        let sector = SECTOR_BYTES as usize;
        Ok((0..LABEL_COPIES).all(|copy| DeviceLabel::from_sector(&head[copy * sector..][..sector]).is_ok()))
    }

    fn read_head(&mut self, device: usize) -> Result<Vec<u8>, LabelFault> {
        let index = DeviceIndex(u16::try_from(device).unwrap_or(u16::MAX));
        let into = self.pool.take(BLANK_BYTES as usize).map_err(|error| self.fault(device, &error))?;
        let into = IoMemory::Buffer(into);
        let read = Read { device: index, offset_bytes: 0, length_bytes: BLANK_BYTES, into, token: Token(0) };
        self.ring.submit_read(read).map_err(|refused| self.fault(device, &refused.reason))?;
        let memory = self.finish(device)?;
        let buffer = memory.and_then(|memory| memory.into_buffer().ok());
        Ok(buffer.map(|buffer| buffer.to_vec()).unwrap_or_default())
    }

    /// Writes both copies, one durable before the next is begun.
    pub(super) fn write(&mut self, device: usize, label: &DeviceLabel) -> Result<(), LabelFault> {
        let index = DeviceIndex(u16::try_from(device).unwrap_or(u16::MAX));
        for copy in 0..LABEL_COPIES as u64 {
            let mut from =
                self.pool.take(SECTOR_BYTES as usize).map_err(|error| self.fault(device, &error))?;
            from.copy_from_slice(&label.to_sector());
            let (offset_bytes, from) = (copy * u64::from(SECTOR_BYTES), IoMemory::Buffer(from));
            let write =
                Write { device: index, offset_bytes, length_bytes: SECTOR_BYTES, from, token: Token(0) };
            self.ring.submit_write(write).map_err(|refused| self.fault(device, &refused.reason))?;
            self.finish(device)?;
            let fsync = Fsync { device: index, token: Token(0) };
            self.ring.submit_fsync(fsync).map_err(|refused| self.fault(device, &refused.reason))?;
            self.finish(device)?;
        }
        Ok(())
    }

    /// Waits for the one request in flight.
    fn finish(&mut self, device: usize) -> Result<Option<IoMemory>, LabelFault> {
        let mut ended = None;
        let reaped = self.ring.reap(Wait::ForOne, &mut |completion| ended = Some(completion));
        reaped.map_err(|error| self.fault(device, &error))?;
        let (memory, outcome) = match ended {
            Some(Completion::Read { memory, outcome, .. } | Completion::Write { memory, outcome, .. }) => {
                (Some(memory), outcome)
            }
            Some(Completion::Fsync { outcome, .. }) => (None, outcome),
            Some(Completion::Ready { .. }) | None => (None, Ok(())),
        };
        outcome.map_err(|fault| self.fault(device, &fault))?;
        Ok(memory)
    }

    fn fault(&self, device: usize, reason: &dyn std::fmt::Display) -> LabelFault {
        LabelFault::Io { path: self.devices[device].path().to_owned(), reason: reason.to_string() }
    }
}

/// Whether a label is what the node's configuration and catalog say.
pub(super) fn check(
    path: &Path,
    catalog: &Path,
    found: &DeviceLabel,
    wanted: &DeviceLabel,
) -> Result<(), LabelFault> {
    if (found.cluster, found.node, found.device) != (wanted.cluster, wanted.node, wanted.device) {
        return Err(LabelFault::Foreign {
            path: path.to_owned(),
            found_cluster: found.cluster,
            found_node: found.node,
            found_device: found.device,
            cluster: wanted.cluster,
            node: wanted.node,
            device: wanted.device,
        });
    }
    if found.label != wanted.label {
        let (path, catalog) = (path.to_owned(), catalog.to_owned());
        return Err(LabelFault::Swapped { path, catalog, found: found.label, expected: wanted.label });
    }
    Ok(())
}
