//! Reads pages from the devices of nodes that run on this host, without a request to the node.
//!
//! ```text
//!   LocalDevices::read -- batch of extents --> reader thread (io_uring, O_DIRECT)  -- pages --> caller
//! ```
//!
//! Invariants
//! - A device is attached only if its node runs on this host (same boot id) and the label in its
//!   first sector is the one that its node reports. A page is never read from a device that merely
//!   has the right path.
//! - Devices are opened read-only; pages are immutable once published, so no lock is needed.

mod attach;
mod error;
mod reader;

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use rackscan_device::DeviceIndex;
use rackscan_format::{ids::NodeId, message::NodeStatus, segment::Extent};
use tokio::sync::{mpsc as requests, oneshot};

use crate::{PageBuffer, doorbell::Doorbell, limits::LOCAL_BATCHES_MAX};
use attach::Attachment;
pub use error::LocalError;
use error::bad_extent;
use reader::{Batch, ExtentRead, Reader};

/// The devices of the cluster that this process can read itself. Clones share the devices and the
/// reader thread.
#[derive(Debug, Clone)]
pub struct LocalDevices {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    nodes: BTreeMap<NodeId, Attachment>,
    batches: Option<requests::Sender<Batch>>,
    bell: Option<Arc<Doorbell>>,
    thread: Option<JoinHandle<()>>,
}

impl LocalDevices {
    /// Opens the devices that are attached to this host, and records for each other node why it is
    /// not attached. Blocks for as long as a few small reads take.
    #[must_use]
    pub fn attach(statuses: &[NodeStatus]) -> Self {
        let unattached = |reason: &str| {
            let nodes = statuses.iter().map(|status| (status.node, Err(reason.to_owned()))).collect();
            Self { shared: Arc::new(Shared { nodes, batches: None, bell: None, thread: None }) }
        };
        let bell = match Doorbell::new() {
            Ok(bell) => Arc::new(bell),
            Err(error) => return unattached(&error.to_string()),
        };
        let (batches, received) = requests::channel(LOCAL_BATCHES_MAX);
        let (ready, attached) = mpsc::sync_channel(1);
        let (statuses_there, bell_there) = (statuses.to_vec(), Arc::clone(&bell));
        // A ring belongs to the thread that creates it, so that thread opens the devices.
        let reading = move || {
            let (nodes, ring) = attach::attach(&statuses_there);
            let reader = ring.and_then(|ring| Reader::new(ring, received, bell_there));
            let report = match &reader {
                Ok(_) => Ok(nodes),
                Err(reason) => Err(reason.clone()),
            };
            let is_wanted = ready.send(report).is_ok();
            if let Ok(mut reader) = reader
                && is_wanted
            {
                reader.run();
            }
        };
        let thread = match std::thread::Builder::new().name("rackscan-local".to_owned()).spawn(reading) {
            Ok(thread) => thread,
            Err(error) => return unattached(&format!("could not start a thread: {error}")),
        };
        match attached.recv() {
            Ok(Ok(nodes)) => {
                let (batches, bell, thread) = (Some(batches), Some(bell), Some(thread));
                Self { shared: Arc::new(Shared { nodes, batches, bell, thread }) }
            }
            Ok(Err(reason)) => unattached(&reason),
            Err(_) => unattached("the thread that reads local devices has ended; see the log"),
        }
    }

    /// Checks that `node`'s devices can be read here.
    ///
    /// # Errors
    /// [`LocalError::NotAttached`] with the reason.
    pub fn attached(&self, node: NodeId) -> Result<(), LocalError> {
        self.devices_of(node).map(drop)
    }

    /// Reads extents of `node`'s devices, in the order asked for. The bytes are not verified here
    /// (`scan` opens pages).
    ///
    /// # Errors
    /// A node that is not attached, an extent outside of its devices, or a device that fails.
    pub async fn read(&self, node: NodeId, extents: &[Extent]) -> Result<Vec<PageBuffer>, LocalError> {
        let devices = self.devices_of(node)?;
        let wanted = extents.iter().map(|extent| {
            let device = devices.get(usize::from(extent.device.0)).copied();
            let reason = || format!("the node has {} devices", devices.len());
            let device = device.ok_or_else(|| bad_extent(node, extent, reason()))?;
            Ok(ExtentRead { device, extent: *extent })
        });
        let wanted = wanted.collect::<Result<Vec<_>, LocalError>>()?;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        let (Some(batches), Some(bell)) = (&self.shared.batches, &self.shared.bell) else {
            return Err(LocalError::Closed);
        };
        batches.send(Batch::new(node, wanted, answer)).await.map_err(|_| LocalError::Closed)?;
        bell.ring();
        answered.await.map_err(|_| LocalError::Closed)?
    }

    fn devices_of(&self, node: NodeId) -> Result<&[DeviceIndex], LocalError> {
        let attachment = self.shared.nodes.get(&node);
        let unknown =
            || LocalError::NotAttached { node, reason: "it is not one of the cluster's nodes".to_owned() };
        let attachment = attachment.ok_or_else(unknown)?;
        attachment.as_deref().map_err(|reason| LocalError::NotAttached { node, reason: reason.clone() })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The reader ends when the sender of its queue is dropped.
        self.batches = None;
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported on standard error by then.
            let _ = thread.join();
        }
    }
}
