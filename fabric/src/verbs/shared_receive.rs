//! How does one thread receive the packets of many senders in memory that does not grow with their number?
//!
//! The adapter takes the next free slot for whatever packet comes next, from whichever queue pair: a shared receive queue. One
//! completion queue reports them all, in the order of arrival. This is the ground that an inbox stands on over `verbs`.
//!
//! Invariants
//! - A slot is offered anew only after its packet was released; slots offered and packets not released come to all slots.
//! - Packets of one sender are handed out in the order of sending, each checked against those before it.
//! - A sender that breaks the rules loses its connection and nothing else: its packets are dropped, their slots offered anew.
//! - What is owed to a sender (credit) goes out with its connection's next poll, for which its owner is woken. It is owed when the
//!   slot is offered again, not before.
//! - A queue pair lives until everything that it had received was taken out of the completion queue, so a connection may go at
//!   any time.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use super::{
    device::Device,
    packet::{PacketHead, PacketKind, PacketSource, Sent},
    ring::announced,
    sys::{
        Completion, CompletionQueue, Local, MemoryRegion, QueuePair, Received, STATUS_FLUSHED,
        SharedReceiveQueue, Slot, status_text,
    },
};
use crate::{
    doorbell::Doorbell,
    error::{OutOfBounds, RegionError},
    guarded::Guarded,
    inbox::{self, Content, SenderId, Supplied, SuppliedPacket, Supply, SupplySize},
    limits::{REGION_ALIGNMENT_BYTES, VERBS_MEMBERS_MAX},
    region::Region,
};

/// What the receiving thread and a sender's connection tell each other.
#[derive(Debug)]
pub(super) struct Membership {
    sender: SenderId,
    /// Packets whose slots were offered again and that are not yet credited to the sender.
    released: AtomicU32,
    /// Units of the sender's own ring that it has given back.
    returned: AtomicU32,
    /// Packets that have arrived since the start.
    arrived: AtomicU64,
    /// How many the connection waits for: all that the sender had sent when it left.
    awaited: AtomicU64,
    /// The connection's owner sleeps, or is about to.
    sleeps: AtomicBool,
    /// Why the connection must end.
    fault: Guarded<Option<String>>,
    has_fault: AtomicBool,
    allotment: u32,
    bell: Arc<Doorbell>,
}

impl Membership {
    fn new(sender: SenderId, allotment: u32, bell: Arc<Doorbell>) -> Self {
        Self {
            sender,
            released: AtomicU32::new(0),
            returned: AtomicU32::new(0),
            arrived: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            sleeps: AtomicBool::new(false),
            fault: Guarded::default(),
            has_fault: AtomicBool::new(false),
            allotment,
            bell,
        }
    }

    /// Readable when the connection has something to do for the receiving thread.
    pub(super) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// The connection must look for credits that are due after it has said that it sleeps.
    pub(super) fn say_sleeping(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Whether so many packets have arrived; if not, the bell is rung when they have.
    pub(super) fn has_arrived(&self, packets: u64) -> bool {
        // Said first, looked after: `note_arrival` does it the other way round.
        self.awaited.store(packets, Ordering::SeqCst);
        self.arrived() >= packets
    }

    fn note_arrival(&self) {
        let arrived = self.arrived.fetch_add(1, Ordering::SeqCst) + 1;
        if arrived >= self.awaited.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// Units that the peer has given back of the ring that we write into.
    pub(super) fn take_returned(&self) -> u32 {
        // Most polls find nothing, and a load leaves the line where it is.
        if self.returned.load(Ordering::Relaxed) == 0 { 0 } else { self.returned.swap(0, Ordering::AcqRel) }
    }

    fn credits_worth_giving(&self) -> u32 {
        (self.allotment / 4).max(1)
    }

    /// Packets to credit to the peer now, if it is time.
    pub(super) fn credit_due(&self) -> Option<u32> {
        let released = self.released.load(Ordering::SeqCst);
        (released >= self.credits_worth_giving()).then_some(released)
    }

    /// They were credited.
    pub(super) fn credited(&self, packets: u32) {
        self.released.fetch_sub(packets, Ordering::SeqCst);
    }

    /// A slot with a packet of this sender was offered again.
    fn note_release(&self) {
        let released = self.released.fetch_add(1, Ordering::SeqCst) + 1;
        if released >= self.credits_worth_giving() && self.sleeps.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// What the peer did wrong, if anything.
    pub(super) fn take_fault(&self) -> Option<String> {
        if self.has_fault.load(Ordering::Acquire) { self.fault.lock().take() } else { None }
    }

    fn blame(&self, fault: impl ToString) {
        self.fault.lock().get_or_insert(fault.to_string());
        self.has_fault.store(true, Ordering::Release);
        self.bell.ring();
    }
}

/// A sender whose connection has ended: its queue pair, in its error state, and its place in the inbox.
type Departed = (Arc<QueuePair>, inbox::Membership);

/// What queue pairs are made with.
#[derive(Debug)]
pub(super) struct Seats {
    device: Arc<Device>,
    queue: Arc<SharedReceiveQueue>,
    completions: Arc<CompletionQueue>,
    size: SupplySize,
    members: Guarded<HashMap<u32, Arc<Membership>>>,
    departed: Guarded<Vec<Departed>>,
    has_departed: AtomicBool,
    /// The receiving side is gone.
    closed: AtomicBool,
}

impl Seats {
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn size(&self) -> SupplySize {
        self.size
    }

    /// The queues that a new queue pair receives through.
    pub(super) fn queues(&self) -> (Arc<CompletionQueue>, Option<Arc<SharedReceiveQueue>>) {
        (Arc::clone(&self.completions), Some(Arc::clone(&self.queue)))
    }

    /// Takes in the peer of a queue pair, before it can send.
    pub(super) fn join(
        &self,
        queue_pair: u32,
        sender: SenderId,
        bell: Arc<Doorbell>,
    ) -> io::Result<Arc<Membership>> {
        let mut members = self.members.lock();
        if members.len() >= VERBS_MEMBERS_MAX {
            return Err(io::Error::other(format!(
                "{VERBS_MEMBERS_MAX} senders share the receive queue already"
            )));
        }
        let membership = Arc::new(Membership::new(sender, self.size.allotment, bell));
        members.insert(queue_pair, Arc::clone(&membership));
        Ok(membership)
    }

    /// Says that a queue pair is in its error state: what it has received is all that it ever will.
    pub(super) fn leave(&self, pair: Arc<QueuePair>, member: inbox::Membership) {
        let mut departed = self.departed.lock();
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        let bell = member.shared_bell();
        departed.push((pair, member));
        drop(departed);
        self.has_departed.store(true, Ordering::SeqCst);
        bell.ring();
    }
}

/// Slots are offered anew so many at a time, or a quarter of all.
const REPOST_COUNT: usize = 16;

/// The receiving thread's side.
#[derive(Debug)]
pub(super) struct SharedReceive {
    seats: Arc<Seats>,
    memory: Arc<MemoryRegion>,
    /// What has arrived from each queue pair.
    sources: HashMap<u32, (PacketSource, Arc<Membership>)>,
    /// By the sender's index, for releases.
    senders: HashMap<SenderId, u32>,
    /// Slots to be offered again, and whose packets were in them.
    free: Vec<(u32, Option<Arc<Membership>>)>,
    found: Vec<Completion>,
    /// Taken out of the completion queue and not handed out yet.
    pending: VecDeque<Supplied>,
    in_use: usize,
    armed: bool,
    /// The adapter does not do what it must be able to.
    is_broken: bool,
}

impl SharedReceive {
    /// Takes the memory for all slots and offers them to the adapter.
    pub(super) fn new(device: Arc<Device>, size: SupplySize) -> Result<Self, RegionError> {
        let bytes = size.bytes().next_multiple_of(REGION_ALIGNMENT_BYTES);
        let os = |action| move |source| RegionError::Os { action, bytes, source };
        let region = Region::allocate(bytes)?;
        let memory = device.register(&region).map_err(os("register"))?;
        let domain = device.domain();
        let queue = SharedReceiveQueue::new(Arc::clone(domain), size.slots);
        let queue = queue.map_err(os("make a shared receive queue over"))?;
        let completions = CompletionQueue::new(Arc::clone(domain.context()), size.slots);
        let completions = Arc::new(completions.map_err(os("make a completion queue for"))?);
        let seats = Arc::new(Seats {
            device,
            queue: Arc::new(queue),
            completions,
            size,
            members: Guarded::default(),
            departed: Guarded::default(),
            has_departed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let mut receive = Self {
            seats,
            memory,
            sources: HashMap::new(),
            senders: HashMap::new(),
            free: (0..size.slots).map(|slot| (slot, None)).collect(),
            found: Vec::new(),
            pending: VecDeque::new(),
            in_use: 0,
            armed: false,
            is_broken: false,
        };
        receive.repost(true).map_err(os("post the slots of"))?;
        Ok(receive)
    }

    pub(super) fn seats(&self) -> &Arc<Seats> {
        &self.seats
    }

    fn offset(&self, slot: u32) -> usize {
        slot as usize * self.seats.size.packet_bytes as usize
    }

    fn repost(&mut self, all: bool) -> io::Result<()> {
        let many = REPOST_COUNT.min(self.seats.size.slots as usize / 4).max(1);
        if self.free.is_empty() || (!all && self.free.len() < many) {
            return Ok(());
        }
        let place = |slot: u32| match self.memory.local(self.offset(slot), self.seats.size.packet_bytes) {
            Local::Registered { address, length, key } => {
                Some(Slot { id: u64::from(slot), address, length, key })
            }
            Local::Nothing | Local::Inline(_) => None,
        };
        let slots: Vec<_> = self.free.iter().filter_map(|(slot, _)| place(*slot)).collect();
        self.seats.queue.post(&slots)?;
        for (_, membership) in self.free.drain(..) {
            if let Some(membership) = membership {
                membership.note_release();
            }
        }
        Ok(())
    }

    /// Nothing can be received any more, which ends all connections.
    fn fail(&mut self, what: &str, error: &io::Error) {
        if std::mem::replace(&mut self.is_broken, true) {
            return;
        }
        tracing::warn!(what, %error, "a shared receive queue is broken; all of its senders must leave");
        for membership in self.seats.members.lock().values() {
            membership.blame(format!("nothing of it can be received: could not {what}: {error}"));
        }
    }

    /// Takes what has arrived out of the completion queue.
    fn poll(&mut self) {
        if self.is_broken {
            self.retire();
            return;
        }
        self.collect();
        if self.seats.has_departed.load(Ordering::Relaxed) {
            self.retire();
        }
        if let Err(error) = self.repost(self.pending.is_empty()) {
            self.fail("post slots", &error);
        }
    }

    fn collect(&mut self) {
        loop {
            let mut found = std::mem::take(&mut self.found);
            let more = self.seats.completions.poll(&mut found);
            for completion in found.drain(..) {
                self.take(completion);
            }
            self.found = found;
            match more {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.fail("poll the adapter", &error),
            }
        }
    }

    /// Takes the last packets of those who have left, then reports that.
    fn retire(&mut self) {
        self.seats.has_departed.store(false, Ordering::SeqCst);
        let departed = std::mem::take(&mut *self.seats.departed.lock());
        if departed.is_empty() {
            return;
        }
        // They receive no more, so this is all.
        self.collect();
        for (pair, member) in departed {
            // Another queue pair can have the number only when this one is gone.
            self.seats.members.lock().remove(&pair.number());
            self.sources.remove(&pair.number());
            self.senders.remove(&member.id());
            self.pending.push_back(Supplied::Left(member));
        }
    }

    fn take(&mut self, completion: Completion) {
        let size = self.seats.size;
        let Some(slot) = u32::try_from(completion.id).ok().filter(|slot| *slot < size.slots) else { return };
        match self.accept(&completion, slot) {
            Some(packet) => {
                self.in_use += 1;
                self.pending.push_back(Supplied::Packet(packet));
            }
            None => self.free.push((slot, None)),
        }
    }

    /// What is known of the peer of a queue pair; `None` if it has left.
    fn source(&mut self, queue_pair: u32) -> Option<&mut (PacketSource, Arc<Membership>)> {
        if !self.sources.contains_key(&queue_pair) {
            let membership = Arc::clone(self.seats.members.lock().get(&queue_pair)?);
            self.senders.insert(membership.sender, queue_pair);
            self.sources.insert(queue_pair, (PacketSource::new(membership.allotment), membership));
        }
        self.sources.get_mut(&queue_pair)
    }

    /// The packet that arrived in a slot; `None` if it is none, or comes from nobody that we know.
    fn accept(&mut self, completion: &Completion, slot: u32) -> Option<SuppliedPacket> {
        let (source, membership) = self.source(completion.queue_pair)?;
        if membership.has_fault.load(Ordering::Acquire) || completion.status == STATUS_FLUSHED {
            return None;
        }
        if completion.status != 0 {
            let status = status_text(completion.status);
            membership.blame(format!("a packet of it could not be received ({status})"));
            return None;
        }
        if completion.received != Some(Received::Send) {
            membership.blame("it announced a write into a ring where there is none");
            return None;
        }
        let head = match Sent::from_immediate(completion.immediate) {
            Sent::Packet(head) => head,
            Sent::Credit(units) => {
                membership.returned.fetch_add(units, Ordering::AcqRel);
                membership.bell.ring();
                return None;
            }
        };
        let offset = match source.arrived(head, completion.bytes) {
            Ok(offset) => offset,
            Err(fault) => {
                membership.blame(fault);
                return None;
            }
        };
        membership.note_arrival();
        let (sender, bytes) = (membership.sender, completion.bytes);
        let content = self.content(head, offset, slot)?;
        let PacketHead { waited, refused, .. } = head;
        Some(SuppliedPacket { sender, content, bytes, slot, waited, refused })
    }

    fn content(&self, head: PacketHead, offset: u32, slot: u32) -> Option<Content> {
        match head.kind {
            PacketKind::Message(report) => {
                Some(Content::Message { report, offset, message_bytes: head.message_bytes })
            }
            PacketKind::Announcement => {
                let mut said = [0; 8];
                // An announcement is as long, which was checked, and lies in its slot.
                self.memory.region().copy_out(self.offset(slot), &mut said).ok()?;
                let (immediate, bytes) = announced(said);
                Some(Content::Immediate { immediate, bytes })
            }
        }
    }
}

impl Supply for SharedReceive {
    fn next(&mut self) -> Option<Supplied> {
        if self.pending.is_empty() {
            self.poll();
        }
        self.pending.pop_front()
    }

    fn append_to(&self, packet: &SuppliedPacket, bytes: &mut Vec<u8>) -> Result<(), OutOfBounds> {
        self.memory.region().mapping().append_to(self.offset(packet.slot), packet.bytes as usize, bytes)
    }

    fn release(&mut self, packet: SuppliedPacket) {
        self.in_use -= 1;
        let source = self.senders.get(&packet.sender).and_then(|number| self.sources.get_mut(number));
        let membership = source.map(|(source, membership)| {
            source.credited(1);
            Arc::clone(membership)
        });
        self.free.push((packet.slot, membership));
        if let Err(error) = self.repost(false) {
            self.fail("post slots", &error);
        }
    }

    fn arm(&mut self) -> bool {
        if let Err(error) = self.seats.completions.notify() {
            self.fail("ask the adapter for a wake-up", &error);
        }
        self.armed = true;
        // Asked first, looked after: what was added in between woke nobody.
        self.poll();
        self.pending.is_empty()
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.seats.completions.drain_wake_ups();
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.seats.completions.descriptor()
    }

    fn slots_in_use(&self) -> usize {
        self.in_use
    }

    fn size(&self) -> SupplySize {
        self.seats.size
    }
}

impl Drop for SharedReceive {
    fn drop(&mut self) {
        let mut waiting = self.seats.departed.lock();
        self.seats.closed.store(true, Ordering::SeqCst);
        let departed = std::mem::take(&mut *waiting);
        // Queue pairs take a while to go, and others may be leaving.
        drop(waiting);
        drop(departed);
    }
}
