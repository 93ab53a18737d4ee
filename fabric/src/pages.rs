//! Maps shared memory, on huge pages where possible.
//!
//! A device that reads into a huge page pins and addresses one page instead of many. The kernel's
//! setting for huge pages in shared memory is off on most systems, but the kernel collapses memory
//! into huge pages on request (`MADV_COLLAPSE`, Linux 6.1). Before the request, one small page is
//! allocated in the range of each huge page. So the kernel copies only this page, and zeroes the
//! rest of the huge page. This is an order of magnitude faster than allocating small pages.
//!
//! Invariants
//! - Memory that is at least as long as a huge page is mapped at a multiple of the huge page size,
//!   in every process. At any other address the process would see the same memory in small pages.
//! - Huge pages are optional: without them everything works on small pages.
//! - Mapping allocates nothing: the owner populates the parts that are about to be used, and a peer
//!   maps their pages when it first touches them.
//! - Only the populated part is allocated. Where it does not fill a whole huge page (at its ends,
//!   or if it is short), it lies on small pages.
#![expect(unsafe_code, reason = "maps shared memory")]

use std::{ffi::c_void, io, ops::Range, os::fd::AsFd, ptr::NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::limits::{HUGE_PAGE_BYTES, REGION_ALIGNMENT_BYTES};

/// The `madvise` advice that collapses small pages into huge ones (Linux 6.1). None of our
/// dependencies defines it.
const MADV_COLLAPSE: libc::c_int = 25;

/// A shared mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
    /// The reserved range that contains the mapping. It is inaccessible around the mapping.
    reserved: *mut c_void,
    reserved_bytes: usize,
}

// SAFETY: the mapping belongs to the process, and `Pages` has no thread-bound state.
unsafe impl Send for Pages {}
// SAFETY: `&Pages` gives out only an address and a length.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps the first `bytes` bytes of `memory`.
    pub(crate) fn map(memory: impl AsFd, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        let somewhere = std::ptr::null_mut();
        if bytes < HUGE_PAGE_BYTES {
            // SAFETY: a fresh shared mapping at an address of the kernel's choice touches no
            // existing memory.
            let start =
                unsafe { rustix::mm::mmap(somewhere, bytes, protection, MapFlags::SHARED, memory, 0) }?;
            return Self::at(start, bytes, start, bytes);
        }
        let reserved_bytes = bytes.checked_add(HUGE_PAGE_BYTES).ok_or(rustix::io::Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as above; nothing can be read or written there.
        let reserved =
            unsafe { rustix::mm::mmap_anonymous(somewhere, reserved_bytes, ProtFlags::empty(), flags) }?;
        let skipped = reserved.addr().next_multiple_of(HUGE_PAGE_BYTES) - reserved.addr();
        let aligned = reserved.wrapping_byte_add(skipped);
        // From here on dropping this value unmaps the reservation, whatever happens.
        let pages = Self::at(aligned, bytes, reserved, reserved_bytes)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range lies in the reservation, because less than a huge page was skipped, and
        // nobody knows of it yet.
        unsafe { rustix::mm::mmap(aligned, bytes, protection, flags, memory, 0) }?;
        Ok(pages)
    }

    fn at(
        start: *mut c_void,
        bytes: usize,
        reserved: *mut c_void,
        reserved_bytes: usize,
    ) -> io::Result<Self> {
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { start, bytes, reserved, reserved_bytes })
    }

    /// First byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Allocates and maps the pages of `part`, huge ones where the kernel provides them, so that a
    /// lack of memory is an error here and not a signal later. Pages that are allocated already
    /// keep their contents. Needs Linux 5.14.
    pub(crate) fn populate(&self, part: Range<usize>) -> io::Result<()> {
        assert!(part.start <= part.end && part.end <= self.bytes, "{part:?} of {} bytes", self.bytes);
        let on_huge_pages = self.back_with_huge_pages(&part);
        self.advise(&part, Advice::LinuxPopulateWrite)?;
        tracing::trace!(?part, on_huge_pages, "shared memory is allocated");
        Ok(())
    }

    /// Asks the kernel to back the whole huge pages of `part` with huge pages. Returns whether the
    /// kernel did so for all of them.
    fn back_with_huge_pages(&self, part: &Range<usize>) -> bool {
        let start = part.start.next_multiple_of(HUGE_PAGE_BYTES);
        let end = part.end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if start >= end {
            return false;
        }
        for offset in (start..end).step_by(HUGE_PAGE_BYTES) {
            let first_page = offset..offset + REGION_ALIGNMENT_BYTES;
            if self.advise(&first_page, Advice::LinuxPopulateWrite).is_err() {
                return false;
            }
        }
        let address = self.start.as_ptr().wrapping_add(start);
        // SAFETY: the range lies in the mapping, and gathering its pages changes no contents.
        unsafe { libc::madvise(address.cast(), end - start, MADV_COLLAPSE) == 0 }
    }

    fn advise(&self, part: &Range<usize>, advice: Advice) -> rustix::io::Result<()> {
        let start = self.start.as_ptr().wrapping_add(part.start);
        // SAFETY: the callers name parts of the mapping, and populating them changes no contents.
        unsafe { rustix::mm::madvise(start.cast(), part.len(), advice) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and whoever knows addresses in it keeps `self`
        // alive.
        let unmapped = unsafe { rustix::mm::munmap(self.reserved, self.reserved_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping failed: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::OwnedFd;

    const BYTES: usize = 2 * HUGE_PAGE_BYTES + REGION_ALIGNMENT_BYTES;

    fn memory() -> OwnedFd {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, BYTES as u64).unwrap();
        memory
    }

    fn map(memory: &OwnedFd) -> Pages {
        Pages::map(memory, BYTES, ProtFlags::READ | ProtFlags::WRITE).unwrap()
    }

    /// Bytes that the kernel has allocated for the memory.
    fn allocated(memory: &OwnedFd) -> usize {
        usize::try_from(rustix::fs::fstat(memory).unwrap().st_blocks).unwrap() * 512
    }

    /// What the kernel reports about the mapping, in KiB.
    fn kernel_says(pages: &Pages, what: &str) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{:x}-", pages.start().addr());
        let of_mapping = smaps.lines().skip_while(|line| !line.starts_with(&begin));
        let line = of_mapping.map(str::split_whitespace).find_map(|mut words| {
            (words.next() == Some(what)).then(|| words.next().and_then(|number| number.parse().ok()))
        });
        line.flatten().unwrap()
    }

    #[test]
    fn what_has_room_for_a_huge_page_begins_at_a_multiple_of_one_in_every_mapping() {
        let memory = memory();
        let all: Vec<Pages> = (0..8).map(|_| map(&memory)).collect();
        assert!(all.iter().all(|pages| pages.start().addr().get().is_multiple_of(HUGE_PAGE_BYTES)));
    }

    #[test]
    fn memory_that_is_taken_on_huge_pages_lies_on_them_in_other_mappings_too_and_is_no_longer_than_asked() {
        let memory = memory();
        let owner = map(&memory);
        let is_huge = owner.back_with_huge_pages(&(0..BYTES));
        let peer = map(&memory);
        for pages in [&owner, &peer] {
            pages.populate(0..BYTES).unwrap();
            assert_eq!(kernel_says(pages, "Rss:"), BYTES / 1024);
            let huge_kib = if is_huge { 2 * HUGE_PAGE_BYTES / 1024 } else { 0 };
            assert!(kernel_says(pages, "ShmemPmdMapped:") >= huge_kib);
        }
        assert_eq!(allocated(&memory), BYTES);
    }

    #[test]
    fn only_the_parts_that_are_populated_take_memory_and_they_keep_their_contents() {
        let memory = memory();
        let pages = map(&memory);
        assert_eq!(allocated(&memory), 0);
        let first = 0..REGION_ALIGNMENT_BYTES;
        pages.populate(first.clone()).unwrap();
        assert_eq!(allocated(&memory), first.len());
        rustix::io::pwrite(&memory, b"kept", 8).unwrap();
        pages.populate(0..HUGE_PAGE_BYTES).unwrap();
        assert_eq!(allocated(&memory), HUGE_PAGE_BYTES);
        let mut contents = [0; 4];
        rustix::io::pread(&memory, &mut contents, 8).unwrap();
        assert_eq!(&contents, b"kept");
    }
}
