//! How does one thread receive the packets of many senders in memory that does not grow with their
//! number?
//!
//! The adapter takes the next free slot for whatever packet comes next, from whichever queue pair:
//! a shared receive queue. One completion queue reports them all, in the order of arrival. This is
//! the ground that an inbox stands on over `verbs`.
//!
//! Invariants
//! - A slot is offered anew only after its packet was released; slots offered and packets not
//!   released come to all slots.
//! - Packets of one sender are handed out in the order of sending, each checked against those
//!   before it.
//! - A sender that breaks the rules loses its connection and nothing else: its packets are dropped,
//!   their slots offered anew.
//! - What is owed to a sender (credit) goes out with its connection's next poll, for which its
//!   owner is woken. It is owed when the slot is offered again, not before.
//! - A queue pair lives until everything that it had received was taken out of the completion
//!   queue, so a connection may go at any time.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    device::Device,
    membership::{Membership, worth_offering},
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

/// What has arrived from a sender.
#[derive(Debug)]
struct Source {
    packets: PacketSource,
    membership: Arc<Membership>,
}

/// A sender whose connection has ended: its queue pair, in its error state, and its place in the
/// inbox.
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

/// Slots are offered anew so many at a time, or a quarter of all, or as many as leave no sender
/// waiting.
const REPOST_COUNT: u32 = 16;

/// The receiving thread's side.
#[derive(Debug)]
pub(super) struct SharedReceive {
    seats: Arc<Seats>,
    memory: Arc<MemoryRegion>,
    /// What has arrived from each sender, by its index.
    sources: Vec<Option<Source>>,
    /// The sender behind each queue pair.
    senders: HashMap<u32, SenderId>,
    /// The one that was heard last, which the next packet is often from.
    last: Option<(u32, SenderId)>,
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
            sources: Vec::new(),
            senders: HashMap::new(),
            last: None,
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
        let size = self.seats.size;
        let many = worth_offering(size.allotment).min(size.slots / 4).clamp(1, REPOST_COUNT) as usize;
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
        if let Err(error) = self.repost(false) {
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
            self.last = None;
            if let Some(sender) = self.senders.remove(&pair.number())
                && let Some(source) = self.sources.get_mut(usize::from(sender.index()))
            {
                source.take_if(|source| source.membership.sender() == sender);
            }
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
    fn source(&mut self, queue_pair: u32) -> Option<&mut Source> {
        let sender = match self.last {
            Some((last, sender)) if last == queue_pair => sender,
            _ => self.sender(queue_pair)?,
        };
        self.last = Some((queue_pair, sender));
        self.sources.get_mut(usize::from(sender.index()))?.as_mut()
    }

    fn sender(&mut self, queue_pair: u32) -> Option<SenderId> {
        if let Some(sender) = self.senders.get(&queue_pair) {
            return Some(*sender);
        }
        let membership = Arc::clone(self.seats.members.lock().get(&queue_pair)?);
        let (sender, packets) = (membership.sender(), PacketSource::new(membership.allotment()));
        let index = usize::from(sender.index());
        if self.sources.len() <= index {
            self.sources.resize_with(index + 1, || None);
        }
        self.sources[index] = Some(Source { packets, membership });
        self.senders.insert(queue_pair, sender);
        Some(sender)
    }

    /// The packet that arrived in a slot; `None` if it is none, or comes from nobody that we know.
    fn accept(&mut self, completion: &Completion, slot: u32) -> Option<SuppliedPacket> {
        let Source { packets, membership } = self.source(completion.queue_pair)?;
        if membership.is_blamed() || completion.status == STATUS_FLUSHED {
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
                membership.note_returned(units);
                return None;
            }
        };
        let offset = match packets.arrived(head, completion.bytes) {
            Ok(offset) => offset,
            Err(fault) => {
                membership.blame(fault);
                return None;
            }
        };
        membership.note_arrival();
        let (sender, bytes) = (membership.sender(), completion.bytes);
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
        let source = self.sources.get_mut(usize::from(packet.sender.index())).and_then(Option::as_mut);
        let source = source.filter(|source| source.membership.sender() == packet.sender);
        let membership = source.map(|Source { packets, membership }| {
            packets.credited(1);
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
