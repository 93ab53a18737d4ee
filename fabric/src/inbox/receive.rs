//! What does the thread that owns an inbox do?
//!
//! Invariants
//! - Arrivals are handed out in the order of the status ring, so those of one sender in its order.
//! - `next` never waits, allocates only to put a cut message together, and does bounded work per
//!   call.
//! - No wake-up is lost: who goes to sleep says so, then looks once more; a fence stands between
//!   the two steps on either side.

use std::{
    cell::Cell,
    fmt,
    marker::PhantomData,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
    time::Instant,
};

use rustix::event::epoll;

use super::{
    Arrival, InboxConfig, InboxCounters, InboxError, InboxHandle,
    arrive::SenderState,
    layout::{Header, InboxMap, Layout, Shape},
    leave::Leaving,
    seats::{Shared, Slot, Table},
    space::SpaceReader,
    status::{Found, StatusReader},
    supply::{Adopted, Entrances},
};
use crate::{
    connection::sleep_on,
    doorbell::Doorbell,
    guarded::Guarded,
    limits::{
        INBOX_IDLE_POLLS_PER_LOOK, INBOX_LOOKS_PER_CALL_MAX, INBOX_SPIN_US, MESSAGE_BYTES_MAX, SEND_BYTES_MAX,
    },
    region::Region,
    spin::spin_time_us,
};

/// A part of the rings or of the status ring is given back when so much of it can be, or when
/// nothing has arrived.
pub(super) const GIVE_BACK_DIVISOR: u64 = 8;

/// Receives from all connections that were accepted into it. It may move to another thread; two
/// threads cannot share it, but its handles they can:
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
    pub(super) leaving: Vec<Leaving>,
    /// A buffer for the next message that was cut.
    pub(super) spare: Vec<u8>,
    pub(super) assembly_bytes: usize,
    pub(super) counters: InboxCounters,
    /// The memory is damaged: nothing in it is looked at until all senders have left.
    pub(super) damaged: bool,
    idle_polls: u32,
    armed: bool,
    /// Watches the bell and the sockets of those who leave.
    pub(super) watch: OwnedFd,
    /// The adapters that bring packets too.
    pub(super) supplies: Vec<Adopted>,
    /// They are asked before the rings.
    pub(super) supplies_turn: bool,
    _not_sync: PhantomData<Cell<()>>,
}

impl Inbox {
    /// Makes an inbox and takes all of its memory now.
    ///
    /// # Errors
    /// When the sizes do not go together or the memory cannot be had.
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
            news: AtomicBool::new(false),
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

    /// What a listener needs to accept callers into this inbox.
    #[must_use]
    pub fn handle(&self) -> InboxHandle {
        InboxHandle { shared: Arc::clone(&self.shared) }
    }

    /// The next arrival, if any. Never waits. The content of `bytes` is replaced by the payload of
    /// a message or packet; nothing is allocated when its capacity suffices.
    pub fn next(&mut self, bytes: &mut Vec<u8>) -> Option<Arrival> {
        if self.armed {
            self.wake_up();
        }
        for _ in 0..INBOX_LOOKS_PER_CALL_MAX {
            if self.shared.news.load(Ordering::Relaxed) {
                self.take_departures();
                self.adopt_supplies();
            }
            if !self.leaving.is_empty()
                && let Some(left) = self.depart(false)
            {
                return Some(left);
            }
            if self.supplies_turn
                && let Some(arrival) = self.next_supplied(bytes)
            {
                return Some(arrival);
            }
            let next = if self.damaged { None } else { self.status.next(&self.map) };
            let Some(found) = next.or_else(|| self.look_further()) else {
                return self.rest(bytes);
            };
            if let Some(arrival) = self.arrive(found, bytes) {
                self.idle_polls = 0;
                self.supplies_turn = !self.supplies.is_empty();
                return Some(arrival);
            }
        }
        None
    }

    fn has_entries(&self) -> bool {
        !self.damaged && self.status.has_entries(&self.map)
    }

    /// The entry after the last is not published. From time to time, is another behind it?
    fn look_further(&mut self) -> Option<Found> {
        self.idle_polls += 1;
        if self.idle_polls < INBOX_IDLE_POLLS_PER_LOOK {
            return None;
        }
        self.idle_polls = 0;
        self.look_around();
        if self.damaged { None } else { self.look_beyond() }
    }

    fn look_beyond(&mut self) -> Option<Found> {
        match self.status.next_beyond(&self.map) {
            Ok(found) => found,
            Err(nonsense) => {
                self.all_must_leave(&format!("{nonsense:?} in the status ring"));
                None
            }
        }
    }

    /// Looks at what seldom changes.
    fn look_around(&mut self) {
        let damaged = self.map.header(Header::Damaged).is_ok_and(|word| word.load(Ordering::Acquire) != 0);
        if damaged {
            self.all_must_leave("a sender has found claims that cannot be");
        }
        self.look_for_hang_ups();
    }

    /// Nothing was found: what was taken is given back, and who has left is reported.
    fn rest(&mut self, bytes: &mut Vec<u8>) -> Option<Arrival> {
        self.give_all_back();
        if !self.supplies.is_empty()
            && let Some(arrival) = self.next_supplied(bytes)
        {
            return Some(arrival);
        }
        if self.leaving.is_empty() || self.has_entries() {
            return None;
        }
        self.depart(true)
    }

    fn give_all_back(&mut self) {
        let mut given = self.status.give_back(&self.map, 1);
        while let Some(ring) = self.dirty_rings.pop() {
            given |= self.spaces[ring].give_back(&self.map, 1);
        }
        if given {
            self.wake_stalled();
        }
    }

    /// Something was given back: wakes the senders that sleep until there is room.
    pub(super) fn wake_stalled(&self) {
        fence(Ordering::SeqCst);
        let Ok(stalled) = self.map.header(Header::Stalled) else { return };
        if stalled.load(Ordering::Relaxed) == 0 || stalled.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        let table = self.shared.table.lock();
        for (index, slot) in (0_u16..).zip(&table.slots) {
            if let Some(seat) = &slot.seat {
                self.shared.wake_if_stalled(index, seat);
            }
        }
    }

    /// As `next`, but waits until something has arrived or the deadline has passed: polls for a
    /// short time, then sleeps.
    pub fn wait(&mut self, bytes: &mut Vec<u8>, deadline: Instant) -> Option<Arrival> {
        let spin_until = Instant::now() + spin_time_us(INBOX_SPIN_US);
        loop {
            if let Some(arrival) = self.next(bytes) {
                return Some(arrival);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            if now < spin_until {
                std::thread::yield_now();
                continue;
            }
            if self.arm() {
                self.counters.sleeps += 1;
                sleep_on(self.wait_fd(), deadline - now);
            }
        }
    }

    /// A descriptor that a reactor can watch for reading together with others. It means something
    /// only while [`Inbox::arm`] has returned true and `next` was not called since.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Announces that the owner is about to sleep on [`Inbox::wait_fd`]. False means: do not sleep,
    /// call `next`.
    pub fn arm(&mut self) -> bool {
        self.give_all_back();
        if !self.armed {
            self.armed = true;
            self.say_sleeping(true);
        }
        // Said first, looked after: see the last invariant.
        let ready = |leaving: &Leaving| !leaving.reported || leaving.socket.is_none();
        let something =
            self.shared.news.load(Ordering::SeqCst) || self.leaving.iter().any(ready) || self.has_entries();
        let something = something || !self.arm_supplies();
        if something {
            self.wake_up();
        }
        !something
    }

    fn say_sleeping(&self, sleeping: bool) {
        if let Ok(word) = self.map.header(Header::Sleeping) {
            word.store(u64::from(sleeping), Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    fn wake_up(&mut self) {
        self.armed = false;
        self.say_sleeping(false);
        self.shared.bell.drain();
        self.disarm_supplies();
        self.idle_polls = INBOX_IDLE_POLLS_PER_LOOK;
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        drop(std::mem::take::<Entrances>(&mut self.shared.entrances.lock()));
        let table = self.shared.table.lock();
        for seat in table.slots.iter().filter_map(|slot| slot.seat.as_ref()) {
            seat.accuse("the inbox was dropped".to_owned());
        }
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait_fd()
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
