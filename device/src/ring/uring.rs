//! Calls io_uring, and keeps the memory of transfers valid while the kernel uses it.
//!
//! This is the only file of the ring with `unsafe`.
//!
//! Invariants
//! - Memory of a transfer is stored in the table `slots` before its entry is pushed to the
//!   submission queue, and leaves `slots` only after the kernel's completion of that entry was
//!   seen. So no memory is freed or reused while the kernel uses it.
//! - The `user_data` of a transfer is its index in `slots`; of a watch, its index with
//!   [`WATCH_BIT`]; of all other entries, [`IGNORED`].
//! - The registered pool lives as long as the ring, so registered addresses never refer to other
//!   memory.
#![expect(unsafe_code, reason = "gives addresses to the kernel and keeps them valid until it is done")]

use std::os::fd::{AsRawFd, RawFd};

use io_uring::squeue::Entry;
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

use crate::fault::Operation;
use crate::limits::{
    DEVICES_PER_RING_MAX, REGISTERED_PIECE_BYTES, REGISTERED_PIECES_MAX, SUBMISSION_THREAD_IDLE_MS,
};
use crate::memory::BufferPool;
use crate::request::{DeviceIndex, IoMemory};
use crate::transfer::Transfer;

const WATCH_BIT: u64 = 1 << 63;
const IGNORED: u64 = u64::MAX;

/// An event that the kernel reported.
#[derive(Debug)]
pub(super) enum Event {
    /// A transfer has ended; `result` is the number of bytes moved or a negated errno.
    Ended { transfer: Transfer, result: i32 },
    /// A watch has fired; without `more_to_come` the kernel has dropped the watch.
    Fired { watch: u32, result: i32, more_to_come: bool },
}

/// How the kernel takes requests and notices their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RingMode {
    /// System calls of this thread hand requests over; the device interrupts when one ends.
    #[default]
    Interrupts,
    /// A thread of the kernel takes requests, so that submitting needs no system call
    /// (IORING_SETUP_SQPOLL). It occupies a core while there is work.
    SubmissionThread,
    /// The waiting thread polls the device (IORING_SETUP_IOPOLL), which must have queues for this;
    /// descriptors cannot be watched.
    Polling,
}

/// How long [`Uring::enter`] may block.
#[derive(Debug, Clone, Copy)]
pub(super) enum Block {
    Never,
    UntilOne,
    AtMost(std::time::Duration),
}

/// An io_uring and everything in flight on it.
pub(super) struct Uring {
    inner: IoUring,
    slots: Vec<Option<Transfer>>,
    free_slots: Vec<u32>,
    registered_pool: Option<BufferPool>,
    files_registered: bool,
    mode: RingMode,
}

impl Uring {
    /// Creates a ring for `depth` transfers, which only this thread may use.
    pub(super) fn new(depth: u32, mode: RingMode) -> Result<Self, Errno> {
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            // A bad entry fails alone; the entries after it are submitted nevertheless.
            .setup_submit_all()
            .setup_cqsize(depth.saturating_mul(2).max(256));
        match mode {
            // Completions are processed when this thread asks for them; they do not interrupt it.
            RingMode::Interrupts => builder.setup_defer_taskrun().setup_taskrun_flag(),
            RingMode::SubmissionThread => builder.setup_sqpoll(SUBMISSION_THREAD_IDLE_MS),
            RingMode::Polling => builder.setup_iopoll(),
        };
        let inner = builder.build(depth).map_err(errno_of)?;
        let slots = (0..depth).map(|_| None).collect();
        let files_registered =
            inner.submitter().register_files_sparse(u32::from(DEVICES_PER_RING_MAX)).is_ok();
        Ok(Self {
            inner,
            slots,
            free_slots: (0..depth).rev().collect(),
            registered_pool: None,
            files_registered,
            mode,
        })
    }

    pub(super) fn files_registered(&self) -> bool {
        self.files_registered
    }

    pub(super) fn busy(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// Registers a device's descriptor under the index `device`, if files are registered at all.
    pub(super) fn register_file(&self, device: DeviceIndex, fd: RawFd) -> Result<(), Errno> {
        if !self.files_registered {
            return Ok(());
        }
        self.inner.submitter().register_files_update(u32::from(device.0), &[fd]).map(drop).map_err(errno_of)
    }

    /// Registers the pool's slab, so that its pages are pinned only once instead of for every
    /// transfer.
    pub(super) fn register_pool(&mut self, pool: &BufferPool) -> Result<(), Errno> {
        let total_bytes = pool.total_bytes();
        let pieces: Vec<libc::iovec> = (0..total_bytes)
            .step_by(REGISTERED_PIECE_BYTES)
            .take(REGISTERED_PIECES_MAX)
            .map(|offset_bytes| libc::iovec {
                iov_base: pool.slab().address(offset_bytes).cast(),
                iov_len: REGISTERED_PIECE_BYTES.min(total_bytes - offset_bytes),
            })
            .collect();
        // SAFETY: the pieces lie in the slab, which `registered_pool` keeps mapped until after the
        // ring is closed.
        unsafe { self.inner.submitter().register_buffers(&pieces) }.map_err(errno_of)?;
        self.registered_pool = Some(pool.clone());
        Ok(())
    }

    /// Starts (or resumes) a transfer to or from the open file `fd`. There must be a free slot.
    pub(super) fn begin(&mut self, transfer: Transfer, fd: RawFd) -> Result<(), (Transfer, Errno)> {
        if let Err(errno) = self.make_room() {
            return Err((transfer, errno));
        }
        let slot = self.free_slots.pop().expect("the caller keeps at most `depth` transfers in flight");
        let entry = self.entry(&transfer, fd).user_data(u64::from(slot));
        self.slots[slot as usize] = Some(transfer);
        // SAFETY: the memory named by the entry is owned by the transfer, which stays in `slots`
        // until the completion with this slot's number is seen in `drain`, or is leaked if that can
        // never be seen (see `drop`).
        let pushed = unsafe { self.inner.submission().push(&entry) };
        pushed.expect("make_room left a free entry and nobody else pushes");
        Ok(())
    }

    fn entry(&self, transfer: &Transfer, fd: RawFd) -> Entry {
        let offset = transfer.offset_bytes + u64::from(transfer.done_bytes);
        let length = transfer.length_bytes - transfer.done_bytes;
        let file = Fixed(u32::from(transfer.device.0));
        let Some(memory) = &transfer.memory else {
            // Flushes data and the metadata that reading it needs, but no timestamps.
            let flags = FsyncFlags::DATASYNC;
            return match self.files_registered {
                true => opcode::Fsync::new(file).flags(flags).build(),
                false => opcode::Fsync::new(Fd(fd)).flags(flags).build(),
            };
        };
        let address = memory.address().wrapping_add(transfer.done_bytes as usize);
        let piece = self.registered_piece(memory);
        let is_read = transfer.operation == Operation::Read;
        let source = address.cast_const();
        match (self.files_registered, piece, is_read) {
            (true, Some(piece), true) => {
                opcode::ReadFixed::new(file, address, length, piece).offset(offset).build()
            }
            (true, Some(piece), false) => {
                opcode::WriteFixed::new(file, source, length, piece).offset(offset).build()
            }
            (true, None, true) => opcode::Read::new(file, address, length).offset(offset).build(),
            (true, None, false) => opcode::Write::new(file, source, length).offset(offset).build(),
            (false, Some(piece), true) => {
                opcode::ReadFixed::new(Fd(fd), address, length, piece).offset(offset).build()
            }
            (false, Some(piece), false) => {
                opcode::WriteFixed::new(Fd(fd), source, length, piece).offset(offset).build()
            }
            (false, None, true) => opcode::Read::new(Fd(fd), address, length).offset(offset).build(),
            (false, None, false) => opcode::Write::new(Fd(fd), source, length).offset(offset).build(),
        }
    }

    fn registered_piece(&self, memory: &IoMemory) -> Option<u16> {
        let (Some(pool), IoMemory::Buffer(buffer)) = (&self.registered_pool, memory) else { return None };
        if !buffer.is_of(pool.slab()) {
            return None;
        }
        u16::try_from(buffer.offset_in_slab() / REGISTERED_PIECE_BYTES).ok()
    }

    /// Arms a watch for `events` of poll(2).
    pub(super) fn watch(&mut self, watch: u32, fd: RawFd, events: u32, repeats: bool) -> Result<(), Errno> {
        let entry = opcode::PollAdd::new(Fd(fd), events).multi(repeats).build();
        self.push_without_memory(&entry.user_data(WATCH_BIT | u64::from(watch)))
    }

    /// Asks the kernel to drop a watch; the kernel still reports the watch's last event.
    pub(super) fn unwatch(&mut self, watch: u32) -> Result<(), Errno> {
        let entry = opcode::PollRemove::new(WATCH_BIT | u64::from(watch)).build();
        self.push_without_memory(&entry.user_data(IGNORED))
    }

    fn push_without_memory(&mut self, entry: &Entry) -> Result<(), Errno> {
        self.make_room()?;
        // SAFETY: poll entries name a descriptor and no memory.
        let pushed = unsafe { self.inner.submission().push(entry) };
        pushed.expect("make_room left a free entry and nobody else pushes");
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), Errno> {
        if self.inner.submission().is_full() {
            self.enter(Block::Never)?;
        }
        if self.mode == RingMode::SubmissionThread && self.inner.submission().is_full() {
            // The kernel's thread frees entries after it has begun all of them, perhaps later than
            // the first of them end.
            self.inner.submitter().squeue_wait().map_err(errno_of)?;
        }
        // If the queue is still full, the kernel took nothing: it is short of memory or of space
        // for completions.
        if self.inner.submission().is_full() { Err(Errno::AGAIN) } else { Ok(()) }
    }

    /// Submits the pushed entries to the kernel and waits as `block` says. Returning early is not
    /// an error.
    pub(super) fn enter(&mut self, block: Block) -> Result<(), Errno> {
        if self.inner.submission().cq_overflow() && !matches!(block, Block::Never) {
            // The kernel holds completions back until there is space: fetch them without sleeping.
            return self.enter(Block::Never);
        }
        // Without interrupts, only a call of the kernel finds ended transfers.
        let polls = self.mode == RingMode::Polling && self.busy() > 0;
        let queue = self.inner.submission();
        let nothing_to_do = queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() && !polls;
        drop(queue);
        let submitter = self.inner.submitter();
        let entered = match block {
            Block::Never if nothing_to_do => return Ok(()),
            Block::Never => submitter.submit(),
            Block::UntilOne => submitter.submit_and_wait(1),
            Block::AtMost(duration) => {
                let timeout = Timespec::from(duration);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        match entered.map_err(errno_of) {
            // A timeout, a signal, or a kernel short of memory or of space for completions: the
            // caller checks for completions and calls again.
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Moves what the kernel has completed to `events`.
    pub(super) fn drain(&mut self, events: &mut Vec<Event>) {
        let Self { inner, slots, free_slots, .. } = self;
        for completion in inner.completion() {
            let (tag, result) = (completion.user_data(), completion.result());
            if tag == IGNORED {
                continue;
            }
            let index = tag & !WATCH_BIT;
            if tag & WATCH_BIT != 0 {
                let watch = u32::try_from(index).expect("we number watches by u32");
                let more_to_come = cqueue::more(completion.flags());
                events.push(Event::Fired { watch, result, more_to_come });
                continue;
            }
            let slot = u32::try_from(index).expect("we number slots by u32");
            let transfer = slots[slot as usize].take().expect("one completion for each entry");
            free_slots.push(slot);
            events.push(Event::Ended { transfer, result });
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut events = Vec::new();
        while self.busy() > 0 {
            if self.enter(Block::UntilOne).is_err() {
                // The kernel may continue these transfers, and nothing reports when they end: their
                // memory is leaked, so that it is never used again.
                Vec::leak(std::mem::take(&mut self.slots));
                return;
            }
            self.drain(&mut events);
            events.clear();
        }
        // Closing a ring takes it down in the background; this releases the devices now.
        let _released = self.inner.submitter().unregister_files();
    }
}

/// The errno in an error of the `io-uring` crate, which creates all of its errors from errnos.
fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fd = self.inner.as_raw_fd();
        out.debug_struct("Uring").field("fd", &fd).field("busy", &self.busy()).finish_non_exhaustive()
    }
}
