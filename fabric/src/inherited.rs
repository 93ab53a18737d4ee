//! Closes the file descriptors that this process inherited.
//!
//! Invariants
//! - Only descriptors that were open before the process did anything are closed, and none of the
//!   three standard ones.

#![expect(unsafe_code, reason = "a descriptor that nobody in this process owns is closed by its number")]

use std::os::fd::RawFd;

/// Closes every descriptor except standard input, output and error. Call it first in `main`, before
/// anything is opened and before any other thread is started. The process that started this one may
/// have left descriptors of files, pipes and listening sockets open, which would otherwise stay
/// open as long as this process runs.
pub fn close_inherited_descriptors() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<RawFd> =
        entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The list itself had a descriptor, which is closed already.
        if std::fs::symlink_metadata(format!("/proc/self/fd/{descriptor}")).is_err() {
            continue;
        }
        // SAFETY: the descriptor is open, and this process has not opened anything yet that is
        // still open, so no value owns it.
        unsafe { rustix::io::close(descriptor) };
    }
}
