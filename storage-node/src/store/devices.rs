//! Opens a node's devices, and checks that their labels are the expected ones.
//!
//! [`Devices`] is the interface between the store and its devices: those of the host, or simulated
//! ones (`simulated`).
//!
//! Invariants
//! - A device with the label of another cluster, node or device number, or with any other content,
//!   is refused and never written.
//! - A blank device is accepted only if no page is missing: if the catalog lists pages on it, the
//!   device counts as lost.
//! - The catalog lists a label before the label is written to the device, so the next start
//!   completes what a crash in between has interrupted.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use az::SaturatingAs;
use rackscan_device::{
    Access, Alignment, Buffer, BufferPool, Completion, Device, DeviceIndex, DeviceIo, Fsync, IoMemory, Read,
    Ring, RingConfig, RingError, Token, Wait, Write,
};
use rackscan_format::{
    label::{DATA_OFFSET_BYTES, DeviceLabel, LABEL_COPIES, LabelError},
    limits::SECTOR_BYTES,
};

use super::{error::LabelFault, folder::make_durably};
use crate::{
    config::{Config, DeviceConfig},
    error::StartError,
    limits::DEVICE_BYTES_MIN,
};

/// How much of a device must be zeroes before it counts as blank. Covers the first superblock of
/// every common filesystem.
const BLANK_BYTES: usize = 1 << 20;
const _: () = assert!(BLANK_BYTES as u64 > DATA_OFFSET_BYTES && BLANK_BYTES as u64 <= DEVICE_BYTES_MIN);
/// The bytes that labels take.
const LABELS_BYTES: usize = LABEL_COPIES * SECTOR_BYTES as usize;
const _: () = assert!(LABELS_BYTES <= BLANK_BYTES);

/// The properties of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceFacts {
    /// Its path, for messages.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) alignment: Alignment,
}

/// The devices of a node, in the order of their ids.
pub(crate) trait Devices: fmt::Debug + Send + Sync {
    /// The properties of each device.
    fn facts(&self) -> &[DeviceFacts];
    /// The devices of the host, for callers that make rings of their own.
    fn opened(&self) -> &[Arc<Device>];
    /// Makes a queue to read, write and flush them, with this many requests in flight.
    fn io(&self, depth: u32) -> Result<Box<dyn DeviceIo>, RingError>;
    /// Tells the filesystem or device that a range holds nothing. One without support keeps the
    /// blocks.
    fn discard(&self, device: usize, offset_bytes: u64, length_bytes: u64) -> Result<(), String>;
    /// Draws a unique number for a new device.
    fn new_label(&self) -> Result<u64, StartError>;
}

/// Devices of the host.
#[derive(Debug)]
pub(super) struct HostDevices {
    facts: Vec<DeviceFacts>,
    devices: Vec<Arc<Device>>,
}

impl HostDevices {
    /// Opens the devices of a configuration, or makes their files at the first start.
    pub(super) fn open(config: &Config) -> Result<Self, StartError> {
        let devices = config.devices.iter().map(open_or_create).collect::<Result<Vec<_>, _>>()?;
        let facts = devices.iter().map(|device| DeviceFacts {
            path: device.path().to_owned(),
            bytes: device.bytes(),
            alignment: device.alignment(),
        });
        let facts: Vec<DeviceFacts> = facts.collect();
        if let Some(small) = facts.iter().find(|device| device.bytes < DEVICE_BYTES_MIN) {
            let (path, found_bytes) = (small.path.clone(), small.bytes);
            return Err(LabelFault::Small { path, found_bytes }.into());
        }
        Ok(Self { facts, devices })
    }
}

impl Devices for HostDevices {
    fn facts(&self) -> &[DeviceFacts] {
        &self.facts
    }

    fn opened(&self) -> &[Arc<Device>] {
        &self.devices
    }

    fn io(&self, depth: u32) -> Result<Box<dyn DeviceIo>, RingError> {
        let config = RingConfig { depth, devices: self.devices.clone(), ..RingConfig::default() };
        Ok(Box::new(Ring::new(config)?))
    }

    fn discard(&self, device: usize, offset_bytes: u64, length_bytes: u64) -> Result<(), String> {
        self.devices[device].discard(offset_bytes, length_bytes).map_err(|error| error.to_string())
    }

    fn new_label(&self) -> Result<u64, StartError> {
        random_u64()
    }
}

/// Opens a device, or makes its file at the first start.
fn open_or_create(config: &DeviceConfig) -> Result<Arc<Device>, StartError> {
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
        make_durably(folder).map_err(os("make the folder of a device file"))?;
    }
    tracing::info!(device = %path.display(), %size, "making a device file");
    let bytes = size.0.next_multiple_of(SECTOR_BYTES.into());
    let device =
        if config.reserve { Device::create(path, bytes) } else { Device::create_sparse(path, bytes) };
    Ok(Arc::new(device?))
}

/// Reads and writes labels.
pub(super) struct Labels<'d> {
    io: Box<dyn DeviceIo>,
    devices: &'d dyn Devices,
}

impl<'d> Labels<'d> {
    pub(super) fn of(devices: &'d dyn Devices) -> Result<Self, StartError> {
        Ok(Self { io: devices.io(4)?, devices })
    }

    /// Reads a device's label; `None` if the device is blank. A good copy stands in for a damaged
    /// one.
    pub(super) fn read(&mut self, device: usize) -> Result<Option<DeviceLabel>, LabelFault> {
        let DeviceFacts { path, bytes, .. } = self.devices.facts()[device].clone();
        let copies = self.copies(device)?;
        let Some(label) = copies.iter().find_map(|copy| copy.as_ref().ok()).copied() else {
            let head_bytes = bytes.saturating_as::<usize>().min(BLANK_BYTES);
            if self.read_head(device, head_bytes)?.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let reason = copies.into_iter().find_map(Result::err).map_or_else(String::new, |e| e.to_string());
            return Err(LabelFault::NotOurs { path, reason });
        };
        if bytes < label.capacity_bytes {
            let (found_bytes, label_bytes) = (bytes, label.capacity_bytes);
            return Err(LabelFault::Shrunk { path, found_bytes, label_bytes });
        }
        Ok(Some(label))
    }

    /// Whether both copies are whole.
    pub(super) fn is_whole(&mut self, device: usize) -> Result<bool, LabelFault> {
        Ok(self.copies(device)?.iter().all(Result::is_ok))
    }

    fn copies(&mut self, device: usize) -> Result<Vec<Result<DeviceLabel, LabelError>>, LabelFault> {
        let head = self.read_head(device, LABELS_BYTES)?;
        Ok(head.chunks(SECTOR_BYTES as usize).map(DeviceLabel::from_sector).collect())
    }

    fn read_head(&mut self, device: usize, length: usize) -> Result<Vec<u8>, LabelFault> {
        let index = DeviceIndex(u16::try_from(device).expect("at most NODE_DEVICES_MAX devices"));
        let into = IoMemory::Buffer(self.buffer(device, length)?);
        let length_bytes = u32::try_from(length).expect("labels have fewer than 2^32 bytes");
        let read = Read { device: index, offset_bytes: 0, length_bytes, into, token: Token(0) };
        self.io.submit_read(read).map_err(|refused| self.fault(device, &refused.reason))?;
        let memory = self.finish(device)?;
        let buffer = memory.and_then(|memory| memory.into_buffer().ok());
        Ok(buffer.map(|buffer| buffer[..length].to_vec()).unwrap_or_default())
    }

    fn buffer(&self, device: usize, length: usize) -> Result<Buffer, LabelFault> {
        let most = length.next_power_of_two();
        let pool = BufferPool::new(most, most).map_err(|error| self.fault(device, &error))?;
        pool.take(length).map_err(|error| self.fault(device, &error))
    }

    /// Writes both copies, one durable before the next is begun.
    pub(super) fn write(&mut self, device: usize, label: &DeviceLabel) -> Result<(), LabelFault> {
        let index = DeviceIndex(u16::try_from(device).expect("at most NODE_DEVICES_MAX devices"));
        for copy in 0..LABEL_COPIES as u64 {
            let mut from = self.buffer(device, SECTOR_BYTES as usize)?;
            from.copy_from_slice(&label.to_sector());
            let (offset_bytes, from) = (copy * u64::from(SECTOR_BYTES), IoMemory::Buffer(from));
            let write =
                Write { device: index, offset_bytes, length_bytes: SECTOR_BYTES, from, token: Token(0) };
            self.io.submit_write(write).map_err(|refused| self.fault(device, &refused.reason))?;
            self.finish(device)?;
            let fsync = Fsync { device: index, token: Token(0) };
            self.io.submit_fsync(fsync).map_err(|refused| self.fault(device, &refused.reason))?;
            self.finish(device)?;
        }
        Ok(())
    }

    /// Waits for the one request in flight.
    fn finish(&mut self, device: usize) -> Result<Option<IoMemory>, LabelFault> {
        let mut ended = None;
        let reaped = self.io.reap(Wait::ForOne, &mut |completion| ended = Some(completion));
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
        LabelFault::Io { path: self.devices.facts()[device].path.clone(), reason: reason.to_string() }
    }
}

/// Checks that a label is the one of the node's configuration and catalog.
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

/// Draws an unpredictable number.
pub(super) fn random_u64() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::Os {
        action: "draw a random number",
        source: std::io::Error::other(error.to_string()),
    })
}
