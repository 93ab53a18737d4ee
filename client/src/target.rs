//! Allocates spans of target memory: registered memory into which nodes write their answers.
//!
//! One region is registered with every node and divided into slots of 64 KiB; a [`Span`] is a run
//! of consecutive slots. Memory is allocated in pieces when the first span is granted from them:
//! most commands use a small part of it.
//!
//! Invariants
//! - A slot is free, part of exactly one span, or forfeited. No caller waits for the slots of a
//!   span that an unresponsive node may still write.
//! - A span that was named in a request is not freed before the answer, or before the connection
//!   over which a peer could write it has ended. If the peer may still be alive then, the span is
//!   forfeited: never used again.
//! - Spans are granted in the order in which callers requested them, so that small ones do not
//!   starve a large one.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rackscan_fabric::{OutOfBounds, Region, RegionError};
use rackscan_format::message::Target;
use tokio::sync::oneshot;

use crate::{
    ClientError,
    limits::{KEPT_SHARE, POPULATE_BYTES, SLOT_BYTES},
};

/// All target memory of a cluster connection.
#[derive(Debug)]
pub(crate) struct TargetPool {
    region: Region,
    /// Which pieces of [`POPULATE_BYTES`] are allocated.
    populated: Vec<AtomicBool>,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    states: Vec<Slot>,
    waiting: VecDeque<Waiter>,
    /// Slots of spans that are kept longer than for one answer.
    kept: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Free,
    Taken,
    /// Taken by a request to a node that may never answer.
    Suspended,
    Forfeited,
}

#[derive(Debug)]
struct Waiter {
    count: usize,
    granted: oneshot::Sender<Span>,
}

/// A run of consecutive slots, allocated until this is dropped.
#[derive(Debug)]
pub(crate) struct Span {
    pool: Arc<TargetPool>,
    first: usize,
    count: usize,
    is_kept: bool,
}

impl TargetPool {
    /// Reserves `bytes` of memory, a multiple of the slot.
    pub(crate) fn new(bytes: usize) -> Result<Arc<Self>, ClientError> {
        let region = Region::reserve(bytes).map_err(no_memory(bytes))?;
        let populated = (0..bytes.div_ceil(POPULATE_BYTES)).map(|_| AtomicBool::new(false)).collect();
        let slots = Slots { states: vec![Slot::Free; bytes / SLOT_BYTES], waiting: VecDeque::new(), kept: 0 };
        Ok(Arc::new(Self { region, populated, slots: Mutex::new(slots) }))
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Allocates at least `bytes` in one piece, as soon as they are free.
    pub(crate) async fn take(
        self: &Arc<Self>,
        bytes: usize,
        what: &'static str,
    ) -> Result<Span, ClientError> {
        let count = bytes.div_ceil(SLOT_BYTES).max(1);
        let turn = {
            let mut slots = self.lock();
            let available = slots.longest_possible();
            if count > available {
                let advice = "give the client more memory, or choose smaller segments or pages";
                let available_bytes = available * SLOT_BYTES;
                return Err(ClientError::MemoryTooSmall {
                    what,
                    wanted_bytes: bytes,
                    available_bytes,
                    advice,
                });
            }
            if slots.waiting.is_empty()
                && let Some(first) = slots.take(count)
            {
                drop(slots);
                let span = Span { pool: Arc::clone(self), first, count, is_kept: false };
                span.populate().map_err(no_memory(bytes))?;
                return Ok(span);
            }
            let (granted, turn) = oneshot::channel();
            slots.waiting.push_back(Waiter { count, granted });
            turn
        };
        // The sender is dropped only when so many slots were forfeited that the rest never
        // suffices.
        let span = turn.await.map_err(|_| ClientError::MemoryTooSmall {
            what,
            wanted_bytes: bytes,
            available_bytes: self.lock().longest_possible() * SLOT_BYTES,
            advice: "the rest is reserved for answers of nodes that stopped answering; connect to the cluster again",
        })?;
        span.populate().map_err(no_memory(bytes))?;
        Ok(span)
    }

    /// Allocates at least `bytes` in one piece, to keep as long as a query takes. `None` if they
    /// are not free, the system has no memory for them, or too much is kept already: a caller that
    /// keeps memory and waits for more must not wait for ever.
    pub(crate) fn take_to_keep(self: &Arc<Self>, bytes: usize) -> Option<Span> {
        let count = bytes.div_ceil(SLOT_BYTES).max(1);
        let mut slots = self.lock();
        if !slots.waiting.is_empty() || slots.kept + count > slots.states.len() / KEPT_SHARE {
            return None;
        }
        let first = slots.take(count)?;
        slots.kept += count;
        drop(slots);
        let span = Span { pool: Arc::clone(self), first, count, is_kept: true };
        span.populate().ok()?;
        Some(span)
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Slots are changed in single assignments; a panic in between leaves them consistent.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the state of slots and grants spans to waiting callers.
    fn settle(self: &Arc<Self>, first: usize, count: usize, state: Slot) {
        let mut unwanted = Vec::new();
        {
            let mut slots = self.lock();
            slots.states[first..first + count].fill(state);
            if matches!(state, Slot::Suspended | Slot::Forfeited) {
                let longest = slots.longest_possible();
                slots.waiting.retain(|waiter| waiter.count <= longest);
            }
            while let Some(waiter) = slots.waiting.front() {
                let count = waiter.count;
                if waiter.granted.is_closed() {
                    slots.waiting.pop_front();
                    continue;
                }
                let Some(first) = slots.take(count) else { break };
                let span = Span { pool: Arc::clone(self), first, count, is_kept: false };
                let waiter = slots.waiting.pop_front();
                unwanted.extend(waiter.and_then(|waiter| waiter.granted.send(span).err()));
            }
        }
        // Spans granted to callers that have gone are freed here, now that the lock is released.
        drop(unwanted);
    }
}

impl Slots {
    /// Takes the first run of `count` free slots.
    fn take(&mut self, count: usize) -> Option<usize> {
        let mut run = 0;
        for at in 0..self.states.len() {
            run = if self.states[at] == Slot::Free { run + 1 } else { 0 };
            if run == count {
                let first = at + 1 - count;
                self.states[first..=at].fill(Slot::Taken);
                return Some(first);
            }
        }
        None
    }

    /// The longest run that can be granted even if unresponsive nodes never answer.
    fn longest_possible(&self) -> usize {
        let runs = self.states.split(|slot| matches!(slot, Slot::Suspended | Slot::Forfeited));
        runs.map(<[Slot]>::len).max().unwrap_or(0)
    }
}

impl Span {
    /// Offset of the span in the region.
    pub(crate) fn offset_bytes(&self) -> usize {
        self.first * SLOT_BYTES
    }

    /// The span as requests name it; the driver fills in the key.
    pub(crate) fn as_target(&self) -> Target {
        Target { key: 0, offset_bytes: self.offset_bytes() as u64, length_bytes: self.length_bytes() as u64 }
    }

    /// The region that the span is a part of.
    pub(crate) fn region(&self) -> &Region {
        &self.pool.region
    }

    /// Length of the span.
    pub(crate) fn length_bytes(&self) -> usize {
        self.count * SLOT_BYTES
    }

    /// Allocates the memory of the pieces that the span lies in, if no span has been there before.
    fn populate(&self) -> Result<(), RegionError> {
        let TargetPool { region, populated, .. } = &*self.pool;
        let end = self.offset_bytes() + self.length_bytes();
        let pieces = self.offset_bytes() / POPULATE_BYTES..end.div_ceil(POPULATE_BYTES);
        for (piece, is_populated) in pieces.clone().zip(&populated[pieces]) {
            // Two spans may both find a piece missing: to populate it again changes nothing.
            if !is_populated.load(Ordering::Acquire) {
                let offset = piece * POPULATE_BYTES;
                region.populate(offset, POPULATE_BYTES.min(region.bytes() - offset))?;
                is_populated.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Copies bytes out, `offset_bytes` from the span's beginning.
    pub(crate) fn copy_out(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.check(offset_bytes, bytes.len())?;
        self.pool.region.copy_out(self.offset_bytes() + offset_bytes, bytes)
    }

    /// Copies bytes in, `offset_bytes` from the span's beginning.
    pub(crate) fn copy_in(&self, offset_bytes: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.check(offset_bytes, bytes.len())?;
        self.pool.region.copy_in(self.offset_bytes() + offset_bytes, bytes)
    }

    /// Zeroes bytes, `offset_bytes` from the span's beginning.
    pub(crate) fn zero(&self, offset_bytes: usize, length_bytes: usize) -> Result<(), OutOfBounds> {
        self.check(offset_bytes, length_bytes)?;
        self.pool.region.zero(self.offset_bytes() + offset_bytes, length_bytes)
    }

    /// Splits the first `bytes` off, rounded up to whole slots, at most the whole span.
    pub(crate) fn split_off(&mut self, bytes: usize) -> Self {
        let count = bytes.div_ceil(SLOT_BYTES).min(self.count);
        let first = self.first;
        self.first += count;
        self.count -= count;
        Self { pool: Arc::clone(&self.pool), first, count, is_kept: self.is_kept }
    }

    /// Marks the memory as held by an unresponsive node, which may still write here. No caller
    /// waits for it; it is free again when this is dropped.
    pub(crate) fn suspend(&self) {
        self.pool.settle(self.first, self.count, Slot::Suspended);
    }

    /// Gives the memory up for good, because the peer may write here at any time in the future.
    pub(crate) fn forfeit(mut self) {
        let (first, count) = (self.first, std::mem::take(&mut self.count));
        self.pool.settle(first, count, Slot::Forfeited);
    }

    fn check(&self, offset_bytes: usize, length_bytes: usize) -> Result<(), OutOfBounds> {
        match offset_bytes.checked_add(length_bytes) {
            Some(end) if end <= self.length_bytes() => Ok(()),
            _ => Err(OutOfBounds {
                offset: offset_bytes as u64,
                length: length_bytes as u64,
                region_bytes: self.length_bytes() as u64,
            }),
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.is_kept {
            self.pool.lock().kept -= self.count;
        }
        if self.count > 0 {
            self.pool.settle(self.first, self.count, Slot::Free);
        }
    }
}

/// The error of memory that could not be allocated for `bytes`.
fn no_memory(bytes: usize) -> impl Fn(RegionError) -> ClientError {
    move |source| ClientError::Memory { bytes, source: Arc::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn pool(slots: usize) -> Arc<TargetPool> {
        TargetPool::new(slots * SLOT_BYTES).unwrap()
    }

    fn take(pool: &Arc<TargetPool>, slots: usize) -> Option<Span> {
        ready(pool.take(slots * SLOT_BYTES, "a test")).map(Result::unwrap)
    }

    #[test]
    fn memory_is_allocated_where_spans_lie() {
        let pieces = |pool: &TargetPool| -> Vec<bool> {
            pool.populated.iter().map(|piece| piece.load(Ordering::Acquire)).collect()
        };
        let slots_of_piece = POPULATE_BYTES / SLOT_BYTES;
        let pool = pool(3 * slots_of_piece + 1);
        assert_eq!(pieces(&pool), [false; 4]);
        let first = take(&pool, 1).unwrap();
        assert_eq!(pieces(&pool), [true, false, false, false]);
        let across = take(&pool, slots_of_piece).unwrap();
        assert_eq!(pieces(&pool), [true, true, false, false]);
        drop((first, across));
        let all = take(&pool, 3 * slots_of_piece + 1).unwrap();
        assert_eq!(pieces(&pool), [true; 4]);
        drop(all);
    }

    #[test]
    fn memory_is_kept_up_to_a_quarter_and_never_waited_for() {
        let pool = TargetPool::new(16 * SLOT_BYTES).unwrap();
        let kept = pool.take_to_keep(3 * SLOT_BYTES).unwrap();
        assert!(pool.take_to_keep(2 * SLOT_BYTES).is_none(), "five of sixteen are more than a quarter");
        let small = pool.take_to_keep(1).unwrap();
        drop((kept, small));
        assert!(pool.take_to_keep(4 * SLOT_BYTES).is_some());
        let rest = ready(pool.take(16 * SLOT_BYTES, "a test")).unwrap().unwrap();
        assert!(pool.take_to_keep(1).is_none(), "none is free");
        drop(rest);
    }

    #[test]
    fn spans_never_overlap_and_come_back() {
        let pool = pool(8);
        let spans: Vec<_> = [1, 3, 4].iter().map(|count| take(&pool, *count).unwrap()).collect();
        let mut ends: Vec<_> = spans.iter().map(|span| (span.first, span.first + span.count)).collect();
        ends.sort_unstable();
        assert_eq!(ends, [(0, 1), (1, 4), (4, 8)]);
        assert!(take(&pool, 1).is_none());
        drop(spans);
        assert!(take(&pool, 8).is_some());
    }

    #[test]
    fn a_span_in_parts_comes_back_part_by_part() {
        let pool = pool(8);
        let mut rest = take(&pool, 8).unwrap();
        let parts = [rest.split_off(SLOT_BYTES + 1), rest.split_off(1), rest.split_off(100 * SLOT_BYTES)];
        let ends: Vec<_> = parts.iter().map(|part| (part.first, part.count)).collect();
        assert_eq!((ends, rest.length_bytes()), (vec![(0, 2), (2, 1), (3, 5)], 0));
        drop(rest);
        let [two, one, five] = parts;
        assert!(one.copy_in(SLOT_BYTES - 1, &[1, 2]).is_err());
        drop(five);
        assert!(take(&pool, 6).is_none());
        drop((two, one));
        assert!(take(&pool, 8).is_some());
    }

    #[test]
    fn who_asks_first_is_served_first_even_for_more() {
        let pool = pool(4);
        let held: Vec<_> = (0..4).map(|_| take(&pool, 1).unwrap()).collect();
        let mut large = pin!(pool.take(3 * SLOT_BYTES, "a test"));
        let mut small = pin!(pool.take(SLOT_BYTES, "a test"));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(large.as_mut().poll(context).is_pending() && small.as_mut().poll(context).is_pending());
        let mut held = held.into_iter();
        drop(held.next());
        assert!(small.as_mut().poll(context).is_pending(), "one slot is free, but the larger one came first");
        drop(held);
        assert!(large.as_mut().poll(context).is_ready() && small.as_mut().poll(context).is_ready());
    }

    #[test]
    fn a_caller_who_leaves_does_not_keep_what_it_was_granted() {
        let pool = pool(2);
        let held = take(&pool, 2).unwrap();
        {
            let mut leaving = Box::pin(pool.take(SLOT_BYTES, "a test"));
            assert!(leaving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(held);
        }
        assert!(take(&pool, 2).is_some());
    }

    #[test]
    fn forfeited_memory_is_never_granted_again_and_nobody_waits_for_it() {
        let pool = pool(4);
        let (lost, kept) = (take(&pool, 2).unwrap(), take(&pool, 2).unwrap());
        let mut waiting = pin!(pool.take(3 * SLOT_BYTES, "a test"));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(context).is_pending());
        lost.forfeit();
        assert!(matches!(
            waiting.as_mut().poll(context),
            Poll::Ready(Err(ClientError::MemoryTooSmall { .. }))
        ));
        drop(kept);
        assert_eq!(take(&pool, 2).unwrap().first, 2);
        assert!(ready(pool.take(3 * SLOT_BYTES, "a test")).unwrap().is_err());
    }

    #[test]
    fn nobody_waits_for_suspended_memory_and_it_is_granted_again_when_its_node_has_answered() {
        let pool = pool(4);
        let (silent, kept) = (take(&pool, 2).unwrap(), take(&pool, 2).unwrap());
        let mut waiting = pin!(pool.take(3 * SLOT_BYTES, "a test"));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(context).is_pending());
        silent.suspend();
        let waited = waiting.as_mut().poll(context);
        assert!(matches!(waited, Poll::Ready(Err(ClientError::MemoryTooSmall { .. }))));
        drop(kept);
        assert_eq!(take(&pool, 2).unwrap().first, 2, "what a silent node may write belongs to its request");
        drop(silent);
        assert_eq!(take(&pool, 4).unwrap().first, 0);
    }

    #[test]
    fn a_span_does_not_reach_its_neighbour() {
        let pool = pool(2);
        let (left, right) = (take(&pool, 1).unwrap(), take(&pool, 1).unwrap());
        right.copy_in(0, b"right").unwrap();
        assert!(left.copy_in(SLOT_BYTES - 2, b"left").is_err());
        assert!(left.copy_out(SLOT_BYTES, &mut [0]).is_err() && left.zero(usize::MAX, 2).is_err());
        let mut bytes = [0; 5];
        right.copy_out(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"right");
    }
}
