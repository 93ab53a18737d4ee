//! Simulates the devices of a node for the store.
//!
//! Invariants
//! - All users of the devices of a node share one simulation of them, one after the other.

use std::sync::{Arc, Mutex, MutexGuard};

use rackscan_device::{
    Alignment, Completion, Device, DeviceIndex, DeviceIo, Fsync, Read, ReapError, Refused, RingError,
    SubmitError, Token, Wait, Watch, WatchId, Write,
    sim::{CrashImage, SimConfig, SimDisk, SimIo},
};
use rackscan_format::{limits::SECTOR_BYTES, segment::Extent};
use rustix::io::Errno;

use super::{
    super::devices::{DeviceFacts, Devices},
    folder::{Image, StorageDefect},
    power::{Party, Power},
};
use crate::error::StartError;

/// The devices of a node.
#[derive(Debug)]
pub(super) struct SimDevices {
    node: Party,
    power: Arc<Power>,
    lies: StorageDefect,
    facts: Vec<DeviceFacts>,
    io: Arc<Mutex<SimIo>>,
    labels: Mutex<fastrand::Rng>,
}

impl SimDevices {
    /// Devices with the content of these disks.
    pub(super) fn over(
        node: Party,
        power: Arc<Power>,
        lies: StorageDefect,
        disks: Vec<SimDisk>,
        seed: u64,
    ) -> Self {
        let facts = disks.iter().enumerate().map(|(number, disk)| DeviceFacts {
            path: format!("device {number} of node {node}").into(),
            bytes: disk.contents().len() as u64,
            alignment: Alignment { memory_bytes: SECTOR_BYTES, offset_bytes: SECTOR_BYTES },
        });
        let facts = facts.collect();
        let io = Arc::new(Mutex::new(SimIo::new(SimConfig::seeded(seed), disks)));
        Self { node, power, lies, facts, io, labels: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }

    fn sim(&self) -> MutexGuard<'_, SimIo> {
        self.io.lock().unwrap()
    }

    /// What reads see.
    pub(super) fn bytes(&self, extent: &Extent) -> Vec<u8> {
        let from = usize::try_from(extent.offset_bytes).unwrap();
        let sim = self.sim();
        let device = sim.disks()[usize::from(extent.device.0)].contents();
        device[from..from + extent.length_bytes as usize].to_vec()
    }

    /// The content of the media after the node has lost power, or its process has ended.
    pub(super) fn crash(&self, image: Image) -> Vec<SimDisk> {
        let mut sim = self.sim();
        let image = match image {
            Image::OnlySynced => CrashImage::OnlySynced,
            Image::AnyPart => CrashImage::AnySectors,
            Image::Everything | Image::Killed => {
                while sim.in_flight() > 0 {
                    sim.reap(Wait::ForOne, &mut |_| {}).unwrap();
                }
                if image == Image::Killed {
                    return sim.disks().to_vec();
                }
                return sim.disks().iter().map(|disk| SimDisk::of(disk.contents().to_vec())).collect();
            }
        };
        std::mem::replace(&mut *sim, SimIo::new(SimConfig::seeded(0), Vec::new())).crash(image)
    }
}

impl Devices for SimDevices {
    fn facts(&self) -> &[DeviceFacts] {
        &self.facts
    }

    fn opened(&self) -> &[Arc<Device>] {
        &[]
    }

    fn io(&self, _depth: u32) -> Result<Box<dyn DeviceIo>, RingError> {
        let (io, power) = (Arc::clone(&self.io), Arc::clone(&self.power));
        Ok(Box::new(Powered { node: self.node, power, lies: self.lies, io, lied: Vec::new() }))
    }

    fn discard(&self, _device: usize, _offset_bytes: u64, _length_bytes: u64) -> Result<(), String> {
        // As block devices do.
        Ok(())
    }

    fn new_label(&self) -> Result<u64, StartError> {
        Ok(self.labels.lock().unwrap().u64(..))
    }
}

/// A device queue, with or without power.
struct Powered {
    node: Party,
    power: Arc<Power>,
    lies: StorageDefect,
    io: Arc<Mutex<SimIo>>,
    /// Flushes that are reported but do not happen.
    lied: Vec<Token>,
}

impl Powered {
    fn sim(&self) -> MutexGuard<'_, SimIo> {
        self.io.lock().unwrap()
    }
}

const NO_POWER: SubmitError = SubmitError::Enter { source: Errno::IO };

impl DeviceIo for Powered {
    fn submit_read(&mut self, read: Read) -> Result<(), Refused<Read>> {
        if self.power.is_on(self.node) {
            return self.sim().submit_read(read);
        }
        Err(Refused { request: read, reason: NO_POWER })
    }

    fn submit_write(&mut self, write: Write) -> Result<(), Refused<Write>> {
        if self.power.step(self.node) {
            return self.sim().submit_write(write);
        }
        Err(Refused { request: write, reason: NO_POWER })
    }

    fn submit_fsync(&mut self, fsync: Fsync) -> Result<(), Refused<Fsync>> {
        if !self.power.step(self.node) {
            return Err(Refused { request: fsync, reason: NO_POWER });
        }
        if self.lies.devices {
            self.lied.push(fsync.token);
            return Ok(());
        }
        self.sim().submit_fsync(fsync)
    }

    fn watch(&mut self, _watch: Watch<'_>) -> Result<WatchId, SubmitError> {
        Err(NO_POWER)
    }

    fn unwatch(&mut self, _watch: WatchId) -> Result<(), SubmitError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SubmitError> {
        Ok(())
    }

    fn reap(&mut self, wait: Wait, on_completion: &mut dyn FnMut(Completion)) -> Result<usize, ReapError> {
        if !self.power.step(self.node) {
            return Err(ReapError { source: Errno::IO });
        }
        if let Some(token) = self.lied.pop() {
            on_completion(Completion::Fsync { token, outcome: Ok(()) });
            return Ok(1);
        }
        self.sim().reap(wait, on_completion)
    }

    fn in_flight(&self) -> u32 {
        self.sim().in_flight() + u32::try_from(self.lied.len()).unwrap()
    }

    fn depth(&self) -> u32 {
        self.sim().depth()
    }

    fn watches(&self) -> u32 {
        0
    }

    fn device_bytes(&self, device: DeviceIndex) -> Option<u64> {
        self.sim().device_bytes(device)
    }
}
