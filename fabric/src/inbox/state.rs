//! Defines the state of an inbox on the thread that owns it.
//!
//! [`Inbox`] is the receiving side. Its methods are in `receive` (the owner's calls), `arrive`
//! (entries of the status ring), `supplied` (packets of RDMA adapters), `leave` (senders that
//! leave) and `manage` (rings and statistics).

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::epoll;

use super::{
    config::{InboxConfig, InboxError},
    handle::InboxHandle,
    layout::{InboxMap, Layout, Shape},
    seats::{Shared, Slot, Table},
    space::SpaceReader,
    statistics::InboxCounters,
    status::StatusReader,
    supply::{Entrances, Supply},
};
use crate::{
    doorbell::Doorbell,
    guarded::Guarded,
    limits::{MESSAGE_BYTES_MAX, SEND_BYTES_MAX},
    region::Region,
};

/// Used space of a ring, or of the status ring, is given back when it comes to one part in so many,
/// or when nothing has arrived.
pub(super) const GIVE_BACK_DIVISOR: u64 = 8;

/// Receives from all connections that were accepted into it. An inbox may move to another thread,
/// but two threads cannot share it. They can share its handles:
///
/// ```
/// fn may_move<T: Send>() {}
/// fn may_be_shared<T: Sync>() {}
/// may_move::<rackscan_fabric::inbox::Inbox>();
/// may_be_shared::<rackscan_fabric::inbox::InboxHandle>();
/// ```
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<rackscan_fabric::inbox::Inbox>();
/// ```
pub struct Inbox {
    pub(super) shared: Arc<Shared>,
    pub(super) map: InboxMap,
    pub(super) status: StatusReader,
    pub(super) spaces: Vec<SpaceReader>,
    pub(super) dirty_rings: Vec<usize>,
    pub(super) senders: Vec<SenderState>,
    pub(super) leaving: Vec<LeavingSender>,
    /// A buffer for assembling the next cut message.
    pub(super) spare: Vec<u8>,
    pub(super) assembly_bytes: usize,
    pub(super) counters: InboxCounters,
    /// The memory is damaged: nothing in it is read until all senders have left.
    pub(super) damaged: bool,
    pub(super) idle_polls: u32,
    pub(super) armed: bool,
    /// Watches the bell, the sockets of senders that leave, and adapters.
    pub(super) watch: OwnedFd,
    /// The shared receive queues of adapters.
    pub(super) supplies: Vec<AdoptedSupply>,
    /// Whether adapters are polled before the rings next time.
    pub(super) supplies_turn: bool,
    _not_sync: PhantomData<Cell<()>>,
}

impl Inbox {
    /// Makes an inbox and allocates all of its memory now.
    ///
    /// # Errors
    /// When the sizes contradict each other or a limit, or the memory cannot be allocated.
    pub fn new(config: InboxConfig) -> Result<Self, InboxError> {
        let shape = Shape::of(&config);
        if let Some(problem) = shape.problem() {
            return Err(InboxError::Config { config, problem });
        }
        let os = |action| move |source| InboxError::Os { action, source };
        let layout = Layout::new(shape);
        let region = Region::allocate(layout.bytes)?;
        let map =
            InboxMap::create(region.shared_mapping(), layout).map_err(|e| InboxError::Memory(e.into()))?;
        let bell = Arc::new(Doorbell::new().map_err(os("make a doorbell"))?);
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| os("watch")(e.into()))?;
        epoll::add(&watch, &*bell, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(|e| os("watch")(e.into()))?;
        let table =
            Table { slots: (0..shape.senders).map(|_| Slot::default()).collect(), ..Table::default() };
        let shared = Arc::new(Shared {
            map: map.clone(),
            region,
            private_rings: usize::from(config.private_rings),
            message_bytes_max: config.message_bytes_max.clamp(SEND_BYTES_MAX, MESSAGE_BYTES_MAX),
            bell,
            table: Guarded::new(table),
            spares: Guarded::default(),
            has_news: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            entrances: Guarded::default(),
        });
        Ok(Self {
            shared,
            status: StatusReader::new(&map),
            spaces: (0..shape.rings).map(|ring| SpaceReader::new(&map, ring)).collect(),
            dirty_rings: Vec::with_capacity(shape.rings),
            senders: (0..shape.senders).map(|_| SenderState::default()).collect(),
            leaving: Vec::new(),
            spare: Vec::new(),
            assembly_bytes: 0,
            counters: InboxCounters::default(),
            damaged: false,
            idle_polls: 0,
            armed: false,
            watch,
            supplies: Vec::new(),
            supplies_turn: false,
            map,
            _not_sync: PhantomData,
        })
    }

    /// A handle, with which a listener accepts callers into this inbox.
    #[must_use]
    pub fn handle(&self) -> InboxHandle {
        InboxHandle { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        drop(std::mem::take::<Entrances>(&mut self.shared.entrances.lock()));
        let table = self.shared.table.lock();
        for seat in table.slots.iter().filter_map(|slot| slot.seat.as_ref()) {
            seat.report_violation("the inbox was dropped".to_owned());
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("layout", &self.map.layout)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A message of which not all packets have arrived.
#[derive(Debug)]
pub(super) struct Incomplete {
    pub(super) received: usize,
    pub(super) message_bytes: usize,
    pub(super) per_packet: bool,
    /// The bytes that have arrived; empty if they were handed out packet by packet.
    pub(super) assembly: Vec<u8>,
}

/// What the receiver knows about a sender.
#[derive(Debug, Default)]
pub(super) struct SenderState {
    pub(super) generation: u32,
    /// It has joined, and its departure was not reported yet.
    pub(super) present: bool,
    pub(super) incomplete: Option<Incomplete>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

/// A sender that sends nothing more.
#[derive(Debug)]
pub(super) struct LeavingSender {
    pub(super) index: u16,
    /// Everything that it published lies before this entry.
    pub(super) mark: u64,
    /// Its process may still write to the memory until this socket hangs up.
    pub(super) socket: Option<OwnedFd>,
    pub(super) reported: bool,
}

/// A shared receive queue that the inbox polls.
#[derive(Debug)]
pub(super) struct AdoptedSupply {
    pub(super) supply: Box<dyn Supply>,
    /// Whether its wake-ups reach the inbox.
    pub(super) watched: bool,
}
