//! Which descriptors does a process begin with that it did not open?
//!
//! Invariants
//! - Only descriptors that were open before the process did anything are closed, and none of the
//!   three standard ones.

#![expect(unsafe_code, reason = "a descriptor that nobody in this process owns is closed by its number")]

use std::os::fd::RawFd;

/// Closes every descriptor but standard input, output and error. To be called first in `main`,
/// before anything is opened and before any other thread is started: whoever started this process
/// may have left descriptors of files, pipes and listening sockets open, which would stay so as
/// long as it runs.
pub fn close_inherited_descriptors() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<RawFd> =
        entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The list itself had a descriptor, which is closed already.
        if std::fs::symlink_metadata(format!("/proc/self/fd/{descriptor}")).is_err() {
            continue;
        }
        // SAFETY: the descriptor is open, and nothing was opened in this process yet that still is,
        // so no value owns it.
        unsafe { rustix::io::close(descriptor) };
    }
}
