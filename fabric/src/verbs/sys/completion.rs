//! Wraps completion queues: an adapter's reports, and its wake-ups.
//!
//! Invariants
//! - Events taken from a completion channel are acknowledged before their queue is destroyed,
//!   because destroying it waits for that.
#![expect(unsafe_code, reason = "calls libibverbs, which takes and returns raw pointers")]

use std::{
    ffi::c_int,
    io,
    mem::MaybeUninit,
    os::fd::BorrowedFd,
    ptr::{NonNull, null_mut},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use az::SaturatingAs;
use rdma_sys as ffi;

use super::{Context, check, made};

/// Maximum number of completions that one call takes.
const POLL_MAX: usize = 32;

/// The kind of an arrival in a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verbs) enum Received {
    /// A `Send` arrived in a slot.
    Send,
    /// A write into our memory arrived, with an immediate.
    Write,
}

/// One entry of a completion queue.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct Completion {
    /// The id of the work request.
    pub(in crate::verbs) id: u64,
    /// 0 is success.
    pub(in crate::verbs) status: u32,
    pub(in crate::verbs) vendor: u32,
    /// Bytes received.
    pub(in crate::verbs) bytes: u32,
    pub(in crate::verbs) immediate: u32,
    /// `None` for a request of ours; meaningless after a failure.
    pub(in crate::verbs) received: Option<Received>,
    /// The queue pair that it is about.
    pub(in crate::verbs) queue_pair: u32,
}

impl Completion {
    fn new(entry: &ffi::ibv_wc) -> Self {
        let received = match entry.opcode {
            ffi::ibv_wc_opcode::IBV_WC_RECV => Some(Received::Send),
            ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => Some(Received::Write),
            _ => None,
        };
        // SAFETY: both views of the union are the same plain 32-bit number.
        let immediate = unsafe { entry.imm_data_invalidated_rkey_union.imm_data };
        let has_immediate = entry.wc_flags & ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        Self {
            id: entry.wr_id,
            status: entry.status,
            vendor: entry.vendor_err,
            bytes: entry.byte_len,
            immediate: if has_immediate { u32::from_be(immediate) } else { 0 },
            received,
            queue_pair: entry.qp_num,
        }
    }
}

/// A completion queue with a channel, whose descriptor wakes a sleeping thread.
#[derive(Debug)]
pub(in crate::verbs) struct CompletionQueue {
    pub(super) raw: NonNull<ffi::ibv_cq>,
    channel: NonNull<ffi::ibv_comp_channel>,
    descriptor: c_int,
    unacknowledged: AtomicU32,
    _context: Arc<Context>,
}

// SAFETY: libibverbs may be called from any thread; the pointers stay valid until `drop`.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above; libibverbs locks what its calls share.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    pub(in crate::verbs) fn new(context: Arc<Context>, depth: u32) -> io::Result<Self> {
        // SAFETY: the context is open.
        let channel = made(unsafe { ffi::ibv_create_comp_channel(context.raw.as_ptr()) })?;
        // A depth that fits no c_int is beyond every adapter's limit, as the clamped one is.
        let depth = depth.saturating_as::<c_int>();
        // SAFETY: the context is open, the channel is of this context, and no user context is
        // passed.
        let raw = unsafe { ffi::ibv_create_cq(context.raw.as_ptr(), depth, null_mut(), channel.as_ptr(), 0) };
        let Ok(raw) = made(raw) else {
            let error = io::Error::last_os_error();
            // SAFETY: the channel was made above and nothing uses it.
            unsafe { ffi::ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(error);
        };
        // SAFETY: the channel was made above and is not freed.
        let descriptor = unsafe { channel.as_ref() }.fd;
        let queue = Self { raw, channel, descriptor, unacknowledged: AtomicU32::new(0), _context: context };
        let flags = rustix::fs::fcntl_getfl(queue.descriptor())?;
        rustix::fs::fcntl_setfl(queue.descriptor(), flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(queue)
    }

    /// Readable when something was added to the queue after `notify`.
    pub(in crate::verbs) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }

    /// Asks for a wake-up when the next entry is added. The caller must poll afterwards for entries
    /// that were added before.
    pub(in crate::verbs) fn notify(&self) -> io::Result<()> {
        // SAFETY: the queue is alive.
        check(unsafe { ffi::ibv_req_notify_cq(self.raw.as_ptr(), 0) })
    }

    /// Takes and acknowledges wake-ups, so that the descriptor is no longer readable.
    pub(in crate::verbs) fn drain_wake_ups(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel is alive and both places are valid; it does not block (set in `new`).
        while unsafe { ffi::ibv_get_cq_event(self.channel.as_ptr(), &raw mut queue, &raw mut context) } == 0 {
            self.unacknowledged.fetch_add(1, Ordering::Relaxed);
        }
        let taken = self.unacknowledged.swap(0, Ordering::Relaxed);
        if taken > 0 {
            // SAFETY: the queue is alive, and the channel has no other; as many events were taken.
            unsafe { ffi::ibv_ack_cq_events(self.raw.as_ptr(), taken) };
        }
    }

    /// Appends entries to `into`. Returns true if there may be more.
    pub(in crate::verbs) fn poll(&self, into: &mut Vec<Completion>) -> io::Result<bool> {
        let mut entries = [const { MaybeUninit::<ffi::ibv_wc>::zeroed() }; POLL_MAX];
        let room = c_int::try_from(POLL_MAX).expect("POLL_MAX fits a c_int");
        // SAFETY: there is room for as many entries as are asked for.
        let count = unsafe { ffi::ibv_poll_cq(self.raw.as_ptr(), room, entries.as_mut_ptr().cast()) };
        let count =
            usize::try_from(count).map_err(|_| io::Error::other("a completion queue has overflowed"))?;
        for entry in &entries[..count.min(POLL_MAX)] {
            // SAFETY: plain numbers, zeroed first and then filled in by the call.
            into.push(Completion::new(unsafe { entry.assume_init_ref() }));
        }
        Ok(count == POLL_MAX)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.drain_wake_ups();
        // SAFETY: it was made by `new`; queue pairs that use it held this wrapper.
        let freed = unsafe { ffi::ibv_destroy_cq(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "a completion queue is still in use");
        // SAFETY: it was made by `new`, and its only queue is gone.
        unsafe { ffi::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}
