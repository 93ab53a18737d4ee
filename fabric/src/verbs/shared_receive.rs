//! Implements a shared receive queue: one thread receives the packets of many senders, in memory
//! that does not grow with their number.
//!
//! The adapter puts each packet into the next free slot (a buffer for one packet), from whichever
//! queue pair it comes. One completion queue reports all packets in the order of arrival. Over
//! `verbs` an inbox consists of such queues.
//!
//! Invariants
//! - A slot is offered to the adapter again only after its packet was released. Every slot is
//!   either offered or contains a packet that is not released.
//! - Packets of one sender are handed out in the order of sending, each checked against those
//!   before it.
//! - A sender that breaks the rules loses its connection and nothing else: its packets are dropped,
//!   and their slots are offered again.
//! - Credit (the right to send further packets) becomes due when a slot is offered again, not
//!   before. The sender gets it with the next poll of its connection, for which the connection's
//!   owner is woken.
//! - A queue pair lives until everything that it had received was taken out of the completion
//!   queue, so a connection may be dropped at any time.

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
    account::{SenderAccount, worth_offering},
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
    inbox::{self, Content, SenderId, SuppliedPacket, Supply, SupplyEvent, SupplySize},
    limits::{REGION_ALIGNMENT_BYTES, VERBS_MEMBERS_MAX},
    region::Region,
};

/// The state of a sender's packets.
#[derive(Debug)]
struct Source {
    packets: PacketSource,
    account: Arc<SenderAccount>,
}

/// A sender whose connection has ended: its queue pair in the error state, and its membership of
/// the inbox.
type Departed = (Arc<QueuePair>, inbox::Membership);

/// What the next call of [`Supply::next`] hands out.
#[derive(Debug)]
enum Pending {
    Packet(SuppliedPacket),
    /// A sender has left: giving up its place in the inbox reports that.
    Left(inbox::Membership),
}

/// The side of the callers: the queues that their queue pairs are made with, and the members.
#[derive(Debug)]
pub(super) struct Seats {
    device: Arc<Device>,
    queue: Arc<SharedReceiveQueue>,
    completions: Arc<CompletionQueue>,
    size: SupplySize,
    members: Guarded<HashMap<u32, Arc<SenderAccount>>>,
    departed: Guarded<Vec<Departed>>,
    has_departed: AtomicBool,
    /// Whether the receiving side was dropped.
    closed: AtomicBool,
}

impl Seats {
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn size(&self) -> SupplySize {
        self.size
    }

    /// The queues through which a new queue pair receives.
    pub(super) fn queues(&self) -> (Arc<CompletionQueue>, Option<Arc<SharedReceiveQueue>>) {
        (Arc::clone(&self.completions), Some(Arc::clone(&self.queue)))
    }

    /// Adds the peer of a queue pair, before it can send.
    pub(super) fn join(
        &self,
        queue_pair: u32,
        sender: SenderId,
        bell: Arc<Doorbell>,
    ) -> io::Result<Arc<SenderAccount>> {
        let mut members = self.members.lock();
        if members.len() >= VERBS_MEMBERS_MAX {
            return Err(io::Error::other(format!(
                "{VERBS_MEMBERS_MAX} senders share the receive queue already"
            )));
        }
        let account = Arc::new(SenderAccount::new(sender, self.size.allotment, bell));
        members.insert(queue_pair, Arc::clone(&account));
        Ok(account)
    }

    /// Reports that a queue pair is in its error state, so it receives nothing more.
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

/// Slots are offered again so many at a time, or a quarter of all, or as many as leave no sender
/// waiting.
const REPOST_COUNT: u32 = 16;

/// The receiving thread's side.
#[derive(Debug)]
pub(super) struct SharedReceive {
    seats: Arc<Seats>,
    memory: Arc<MemoryRegion>,
    /// The state of each sender's packets, by its index.
    sources: Vec<Option<Source>>,
    /// The sender behind each queue pair.
    senders: HashMap<u32, SenderId>,
    /// The sender of the last packet, from which the next packet often comes.
    last: Option<(u32, SenderId)>,
    /// Slots to be offered again, with the senders of their packets.
    free: Vec<(u32, Option<Arc<SenderAccount>>)>,
    found: Vec<Completion>,
    /// Packets and departures that were taken out of the completion queue and not handed out yet.
    pending: VecDeque<Pending>,
    in_use: usize,
    armed: bool,
    /// Whether a call failed that an adapter must be able to do.
    is_broken: bool,
}

impl SharedReceive {
    /// Allocates the memory for all slots and offers them to the adapter.
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
        for (_, account) in self.free.drain(..) {
            if let Some(account) = account {
                account.note_release();
            }
        }
        Ok(())
    }

    /// Ends all connections, because nothing can be received any more.
    fn fail(&mut self, what: &str, error: &io::Error) {
        if std::mem::replace(&mut self.is_broken, true) {
            return;
        }
        tracing::warn!(what, %error, "a shared receive queue is broken; all of its senders must leave");
        for account in self.seats.members.lock().values() {
            account.report_violation(format!("nothing can be received from it: could not {what}: {error}"));
        }
    }

    /// Takes arrivals out of the completion queue.
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

    /// Takes the last packets of senders that have left, then reports their departures.
    fn retire(&mut self) {
        self.seats.has_departed.store(false, Ordering::SeqCst);
        let departed = std::mem::take(&mut *self.seats.departed.lock());
        if departed.is_empty() {
            return;
        }
        // Their queue pairs receive nothing more, so these are all of their packets.
        self.collect();
        for (pair, member) in departed {
            // Another queue pair can get the number only after this one was destroyed.
            self.seats.members.lock().remove(&pair.number());
            self.last = None;
            if let Some(sender) = self.senders.remove(&pair.number())
                && let Some(source) = self.sources.get_mut(usize::from(sender.index()))
            {
                source.take_if(|source| source.account.sender() == sender);
            }
            self.pending.push_back(Pending::Left(member));
        }
    }

    fn take(&mut self, completion: Completion) {
        let size = self.seats.size;
        let Some(slot) = u32::try_from(completion.id).ok().filter(|slot| *slot < size.slots) else { return };
        match self.accept(&completion, slot) {
            Some(packet) => {
                self.in_use += 1;
                self.pending.push_back(Pending::Packet(packet));
            }
            None => self.free.push((slot, None)),
        }
    }

    /// The state of the peer of a queue pair; `None` if it has left.
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
        let account = Arc::clone(self.seats.members.lock().get(&queue_pair)?);
        let (sender, packets) = (account.sender(), PacketSource::new(account.allotment()));
        let index = usize::from(sender.index());
        if self.sources.len() <= index {
            self.sources.resize_with(index + 1, || None);
        }
        self.sources[index] = Some(Source { packets, account });
        self.senders.insert(queue_pair, sender);
        Some(sender)
    }

    /// The packet that arrived in a slot; `None` if it is not a valid packet of a known sender.
    fn accept(&mut self, completion: &Completion, slot: u32) -> Option<SuppliedPacket> {
        let Source { packets, account } = self.source(completion.queue_pair)?;
        if account.has_violation() || completion.status == STATUS_FLUSHED {
            return None;
        }
        if completion.status != 0 {
            let status = status_text(completion.status);
            account.report_violation(format!("one of its packets could not be received ({status})"));
            return None;
        }
        if completion.received != Some(Received::Send) {
            account.report_violation("it announced a write into a ring where there is none");
            return None;
        }
        let head = match Sent::from_immediate(completion.immediate) {
            Sent::Packet(head) => head,
            Sent::Credit(units) => {
                account.note_returned(units);
                return None;
            }
        };
        let offset = match packets.arrived(head, completion.bytes) {
            Ok(offset) => offset,
            Err(fault) => {
                account.report_violation(fault);
                return None;
            }
        };
        account.note_arrival();
        let (sender, bytes) = (account.sender(), completion.bytes);
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
                // Its length was checked, and it lies in its slot.
                self.memory.region().copy_out(self.offset(slot), &mut said).ok()?;
                let (immediate, bytes) = announced(said);
                Some(Content::Immediate { immediate, bytes })
            }
        }
    }
}

impl Supply for SharedReceive {
    fn next(&mut self) -> Option<SupplyEvent> {
        if self.pending.is_empty() {
            self.poll();
        }
        match self.pending.pop_front()? {
            Pending::Packet(packet) => Some(SupplyEvent::Packet(packet)),
            Pending::Left(member) => {
                drop(member);
                Some(SupplyEvent::Left)
            }
        }
    }

    fn append_to(&self, packet: &SuppliedPacket, bytes: &mut Vec<u8>) -> Result<(), OutOfBounds> {
        self.memory.region().mapping().append_to(self.offset(packet.slot), packet.bytes as usize, bytes)
    }

    fn release(&mut self, packet: SuppliedPacket) {
        self.in_use -= 1;
        let source = self.sources.get_mut(usize::from(packet.sender.index())).and_then(Option::as_mut);
        let source = source.filter(|source| source.account.sender() == packet.sender);
        let account = source.map(|Source { packets, account }| {
            packets.credited(1);
            Arc::clone(account)
        });
        self.free.push((packet.slot, account));
        if let Err(error) = self.repost(false) {
            self.fail("post slots", &error);
        }
    }

    fn arm(&mut self) -> bool {
        if let Err(error) = self.seats.completions.notify() {
            self.fail("ask the adapter for a wake-up", &error);
        }
        self.armed = true;
        // Requested first, checked afterwards: an entry that was added in between caused no
        // wake-up.
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
        // Dropped without the lock: destroying queue pairs takes a while, and others may be
        // leaving.
        drop(waiting);
        drop(departed);
    }
}
