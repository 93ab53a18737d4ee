//! Lowers the scheduling priority of threads.
//!
//! Invariants
//! - A thread whose priority is already lower than requested keeps it.
//! - The priority of no other thread changes.

use std::io;

/// Lowers the priority of the calling thread, and of the threads that it starts afterwards, to
/// `niceness` (1 to 19, as for nice(1); higher numbers get the processors later). 0 changes
/// nothing.
///
/// # Errors
/// When the system refuses.
pub fn lower_priority(niceness: u8) -> io::Result<()> {
    if niceness == 0 {
        return Ok(());
    }
    // On Linux each thread has a priority of its own, which the threads that it starts inherit; the
    // call without a process id is about the calling thread.
    let own = rustix::process::getpriority_process(None)?;
    Ok(rustix::process::setpriority_process(None, own.max(niceness.into()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_of_a_thread_is_lowered_and_never_raised_and_that_of_others_stays() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let thread = std::thread::spawn(move || {
            lower_priority(19).unwrap();
            lower_priority(3).unwrap();
            niceness()
        });
        assert_eq!((thread.join().unwrap(), niceness()), (19, before));
    }
}
