//! Measures how much of a file is in the kernel's page cache.
//!
//! The measurement checks two things: that a scan leaves no data in the page cache, and that a
//! filesystem honours O_DIRECT. It uses mincore(2), which reports for each page of a mapping
//! whether it is in memory; mapping a file does not load it.
#![expect(unsafe_code, reason = "maps a file to ask mincore(2) about it")]

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::ResidencyError;

/// Bytes measured at a time, which bounds the mapping and the answer (one byte per page).
const WINDOW_BYTES: u64 = 1 << 30;

/// Bytes of the file at `path` that are in the page cache, in whole memory pages (so it may exceed
/// the file's length by less than a page).
///
/// The kernel answers truthfully only to the file's owner, to those who may write it and to root;
/// to others every page counts as resident, so the answer can be too high, never too low.
///
/// # Errors
/// [`ResidencyError`] names the step that failed.
pub fn resident_bytes(path: impl AsRef<Path>) -> Result<u64, ResidencyError> {
    let path = path.as_ref();
    let failed = |action| move |source| ResidencyError { path: path.to_owned(), action, source };
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let file = File::open(path).map_err(errno).map_err(failed("opening it"))?;
    let file_bytes = file.metadata().map_err(errno).map_err(failed("reading its length"))?.len();
    let page_bytes = rustix::param::page_size();
    let mut resident_pages = 0;
    let mut offset_bytes = 0;
    while offset_bytes < file_bytes {
        let window_bytes = WINDOW_BYTES.min(file_bytes - offset_bytes);
        let window_bytes = usize::try_from(window_bytes).expect("a window: at most 1 GiB");
        let mapping = Mapping::of(&file, offset_bytes, window_bytes).map_err(failed("mapping it"))?;
        resident_pages += mapping.resident_pages(page_bytes).map_err(failed("mincore"))?;
        offset_bytes += window_bytes as u64;
    }
    Ok(resident_pages * page_bytes as u64)
}

/// Whether the first page of an open file is in the page cache.
pub(crate) fn first_page_is_resident(file: impl AsFd) -> Result<bool, Errno> {
    let page_bytes = rustix::param::page_size();
    let mapping = Mapping::of(file, 0, page_bytes)?;
    Ok(mapping.resident_pages(page_bytes)? > 0)
}

/// A read-only shared mapping of a part of a file; its bytes are never read.
struct Mapping {
    start: *mut c_void,
    len_bytes: usize,
}

impl Mapping {
    fn of(file: impl AsFd, offset_bytes: u64, len_bytes: usize) -> Result<Self, Errno> {
        // SAFETY: a null hint lets the kernel choose an unused range, so no existing mapping is
        // replaced; the bytes are never dereferenced, so truncation of the file cannot fault us.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len_bytes, ProtFlags::READ, MapFlags::SHARED, file, offset_bytes)?
        };
        Ok(Self { start, len_bytes })
    }

    fn resident_pages(&self, page_bytes: usize) -> Result<u64, Errno> {
        let mut pages = vec![0_u8; self.len_bytes.div_ceil(page_bytes)];
        // SAFETY: `start` and `len_bytes` are those of a live mapping, and `pages` has one byte for
        // each of its pages.
        let answer = unsafe { libc::mincore(self.start, self.len_bytes, pages.as_mut_ptr()) };
        if answer != 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        // Only the lowest bit is defined.
        Ok(pages.iter().map(|page| u64::from(page & 1)).sum())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping made in `of`; no reference into it was ever made.
        let unmapped = unsafe { munmap(self.start, self.len_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping failed: {unmapped:?}");
    }
}
