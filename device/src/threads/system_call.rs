//! How does a waiting thread move the bytes of a transfer?
//!
//! By `pread` and `pwrite` on the transfer's own memory. Invariants
//! - The memory is the transfer's from before the call until after it, and the call is over when
//!   the function returns.
//! - No reference is made over the memory: a peer may be writing it.
#![expect(unsafe_code, reason = "gives addresses to the kernel for the length of a system call")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::device::Device;
use crate::error::IoFault;
use crate::fault::Operation;
use crate::settle::{Step, settle};
use crate::transfer::Transfer;

/// Moves everything, and says how it ended.
pub(super) fn perform(device: &Device, transfer: &mut Transfer) -> Result<(), Box<IoFault>> {
    let name = || device.path().display().to_string();
    loop {
        let result = once(device, transfer);
        match settle(transfer, result, device.alignment().offset_bytes, &name) {
            Step::Done => return Ok(()),
            Step::Fault(fault) => return Err(fault),
            Step::Again { done_bytes, retries } => {
                transfer.done_bytes = done_bytes;
                transfer.retries = retries;
            }
        }
    }
}

/// One system call for the rest of a transfer: bytes moved, or a negated errno, as a ring reports
/// them.
fn once(device: &Device, transfer: &Transfer) -> i32 {
    let Some(memory) = &transfer.memory else {
        // Data and the metadata needed to find it again; times are of no use to anyone.
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
    // A transfer is far shorter than 2 GiB.
    i32::try_from(moved).unwrap_or(i32::MAX)
}
