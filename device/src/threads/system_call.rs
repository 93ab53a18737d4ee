//! Moves the bytes of a transfer in a worker thread.
//!
//! It calls `pread` and `pwrite` on the transfer's own memory.
//!
//! Invariants
//! - The transfer owns the memory during the whole system call, which has ended when the function
//!   returns.
//! - No reference to the memory is made: a peer may be writing it.
#![expect(unsafe_code, reason = "gives addresses to the kernel for the length of a system call")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::device::Device;
use crate::fault::{IoFault, Operation};
use crate::settle::{NextAction, settle};
use crate::transfer::Transfer;

/// Performs the whole transfer and returns its outcome.
pub(super) fn perform(device: &Device, transfer: &mut Transfer) -> Result<(), Box<IoFault>> {
    let name = || device.path().display().to_string();
    loop {
        let result = once(device, transfer);
        match settle(transfer, result, device.alignment().offset_bytes, &name) {
            NextAction::Done => return Ok(()),
            NextAction::Fault(fault) => return Err(fault),
            NextAction::Again { done_bytes, retries } => {
                transfer.done_bytes = done_bytes;
                transfer.retries = retries;
            }
        }
    }
}

/// Makes one system call for the rest of a transfer. Returns the bytes moved or a negated errno, as
/// a ring reports them.
fn once(device: &Device, transfer: &Transfer) -> i32 {
    let Some(memory) = &transfer.memory else {
        // Flushes data and the metadata that reading it needs, but no timestamps.
        return rustix::fs::fdatasync(device).map_or_else(|errno| -errno.raw_os_error(), |()| 0);
    };
    let (fd, done) = (device.as_fd().as_raw_fd(), transfer.done_bytes as usize);
    let length = (transfer.length_bytes as usize).saturating_sub(done);
    let address = memory.address().wrapping_add(done);
    let Ok(offset) = libc::off_t::try_from(transfer.offset_bytes + done as u64) else {
        return -Errno::INVAL.raw_os_error();
    };
    let moved = if transfer.operation == Operation::Read {
        // SAFETY: the checks at submission found `done + length` bytes in `memory`, which the
        // transfer keeps mapped and ours alone (but for peers, which no reference hides) until this
        // call has returned.
        unsafe { libc::pread(fd, address.cast(), length, offset) }
    } else {
        // SAFETY: as above; the kernel only reads the bytes.
        unsafe { libc::pwrite(fd, address.cast_const().cast(), length, offset) }
    };
    if moved < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return -errno.unwrap_or(libc::EIO);
    }
    i32::try_from(moved).expect("bytes moved: a transfer has at most IO_BYTES_MAX")
}
