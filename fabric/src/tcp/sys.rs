//! Makes socket calls on registered memory, without a copy in between.
//!
//! Invariants
//! - Only the kernel accesses the memory behind a [`RawSlice`] here; no reference to it is made.
//! - Nothing waits: `EAGAIN` is returned to the caller. An interrupted call is repeated.
#![expect(unsafe_code, reason = "hands raw pointers of registered memory to sendmsg and recv")]

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::io::Errno;

use crate::memory::RawSlice;

/// Bytes to send: of a slice, from `offset` on.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    Private(&'a [u8]),
    Shared { slice: &'a RawSlice, offset: usize },
}

/// Maximum number of pieces that one call sends.
pub(super) const PIECES_MAX: usize = 32;

impl Piece<'_> {
    fn to_iovec(&self) -> libc::iovec {
        match self {
            Self::Private(bytes) => {
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            }
            Self::Shared { slice, offset } => {
                let offset = (*offset).min(slice.len());
                let start = slice.as_ptr().wrapping_add(offset);
                libc::iovec { iov_base: start.cast(), iov_len: slice.len() - offset }
            }
        }
    }
}

/// Sends as much of the pieces as the socket takes at once, at most `bytes_max` bytes. Returns the
/// number of bytes.
pub(super) fn send(socket: BorrowedFd<'_>, pieces: &[Piece<'_>], bytes_max: usize) -> Result<usize, Errno> {
    const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut iovecs = [NOTHING; PIECES_MAX];
    let (mut count, mut left) = (0, bytes_max);
    for (iovec, piece) in iovecs.iter_mut().zip(pieces) {
        *iovec = piece.to_iovec();
        iovec.iov_len = iovec.iov_len.min(left);
        left -= iovec.iov_len;
        count += 1;
        if left == 0 {
            break;
        }
    }
    // SAFETY: a msghdr is plain C data for which all zeroes mean "none".
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = iovecs.as_mut_ptr();
    message.msg_iovlen = count;
    loop {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: each iovec is readable memory: a borrowed slice, or a part of a mapping that its
        // RawSlice keeps alive for the borrow. The kernel only reads it, and reads what it finds if
        // a peer changes it.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => match last_error() {
                Errno::INTR => {}
                error => return Err(error),
            },
        }
    }
}

/// Receives into registered memory from `offset` of `target` on; 0 at the end of the stream.
pub(super) fn receive(socket: BorrowedFd<'_>, target: &RawSlice, offset: usize) -> Result<usize, Errno> {
    let offset = offset.min(target.len());
    if !target.is_writable() {
        return Err(Errno::ACCESS);
    }
    let (start, length) = (target.as_ptr().wrapping_add(offset), target.len() - offset);
    loop {
        // SAFETY: `start` and `length` lie in a writable mapping that `target` keeps alive; only
        // the kernel stores.
        let received = unsafe { libc::recv(socket.as_raw_fd(), start.cast(), length, libc::MSG_DONTWAIT) };
        match usize::try_from(received) {
            Ok(received) => return Ok(received),
            Err(_) => match last_error() {
                Errno::INTR => {}
                error => return Err(error),
            },
        }
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
