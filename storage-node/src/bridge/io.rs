//! Executes the device operations of a reactor, or of a poller, which is a reactor that leaves the
//! waiting for devices to other threads.
//!
//! | bridge | io | threads that execute the operations |
//! |---|---|---|
//! | `reactor` | `uring` | the reactor itself, which has all its operations in flight in one io_uring |
//! | `reactor` | `pread` | a fixed number of threads that wait, for all connections of the reactor |
//! | `static` | | the same, for the connections of a poller |
//! | `dynamic` | | one thread for each operation |
//!
//! Invariants
//! - All other code is the same for each bridge, so a comparison of bridges measures only which
//!   thread waits for the device.

use rackscan_device::{
    BufferPool, BufferRegistration, Completion, DeviceIndex, DeviceIo, Fsync, HandOver, PreadPool, Read,
    ReapError, Refused, Ring, RingConfig, RingError, SubmitError, ThreadPerRequest, ThreadedConfig, Wait,
    Watch, WatchId, Write,
};
use rackscan_format::message::{BridgeKind, IoKind};

use super::node_parts::NodeParts;

/// The device operations of one thread. An enum rather than a trait object, so that calls to the
/// ring stay direct.
#[derive(Debug)]
pub(crate) enum BridgeIo {
    Ring(Box<Ring>),
    Pool(Box<PreadPool>),
    PerRequest(Box<ThreadPerRequest>),
}

impl BridgeIo {
    /// The variant that the configuration selects, for the poller with this number.
    pub(crate) fn new(node: &NodeParts, number: u16, buffers: BufferPool) -> Result<Self, RingError> {
        let config = &node.config;
        let (depth, devices) = (config.reactor_depth, node.store.devices().to_vec());
        let bridge = config.bridge_status();
        if bridge.io == IoKind::Uring {
            let (buffers, hand_over) = (Some(buffers), HandOver::EachAtOnce);
            let ring = Ring::new(RingConfig { depth, devices, buffers, hand_over, ..RingConfig::default() })?;
            return Ok(Self::Ring(Box::new(ring)));
        }
        let cores = config.cores_of_io(number);
        let threads = ThreadedConfig { depth, devices, cores, name: format!("n{}-io{number}", config.node) };
        if bridge.kind == BridgeKind::Dynamic {
            return Ok(Self::PerRequest(Box::new(ThreadPerRequest::new(threads)?)));
        }
        Ok(Self::Pool(Box::new(PreadPool::new(threads, bridge.io_threads.into())?)))
    }

    /// Whether the buffers are registered with the kernel.
    pub(crate) fn registration(&self) -> BufferRegistration {
        match self {
            Self::Ring(ring) => ring.report().buffers,
            Self::Pool(_) | Self::PerRequest(_) => BufferRegistration::NotAsked,
        }
    }
}

/// Calls the same method on whichever variant there is.
macro_rules! whichever {
    ($self:ident, $io:ident => $call:expr) => {
        match $self {
            BridgeIo::Ring($io) => $call,
            BridgeIo::Pool($io) => $call,
            BridgeIo::PerRequest($io) => $call,
        }
    };
}

impl DeviceIo for BridgeIo {
    fn submit_read(&mut self, read: Read) -> Result<(), Refused<Read>> {
        whichever!(self, io => io.submit_read(read))
    }

    fn submit_write(&mut self, write: Write) -> Result<(), Refused<Write>> {
        whichever!(self, io => io.submit_write(write))
    }

    fn submit_fsync(&mut self, fsync: Fsync) -> Result<(), Refused<Fsync>> {
        whichever!(self, io => io.submit_fsync(fsync))
    }

    fn watch(&mut self, watch: Watch<'_>) -> Result<WatchId, SubmitError> {
        whichever!(self, io => io.watch(watch))
    }

    fn unwatch(&mut self, watch: WatchId) -> Result<(), SubmitError> {
        whichever!(self, io => io.unwatch(watch))
    }

    fn flush(&mut self) -> Result<(), SubmitError> {
        whichever!(self, io => io.flush())
    }

    fn reap(&mut self, wait: Wait, on_completion: &mut dyn FnMut(Completion)) -> Result<usize, ReapError> {
        whichever!(self, io => io.reap(wait, on_completion))
    }

    fn in_flight(&self) -> u32 {
        whichever!(self, io => io.in_flight())
    }

    fn depth(&self) -> u32 {
        whichever!(self, io => io.depth())
    }

    fn watches(&self) -> u32 {
        whichever!(self, io => io.watches())
    }

    fn device_bytes(&self, device: DeviceIndex) -> Option<u64> {
        whichever!(self, io => io.device_bytes(device))
    }
}
