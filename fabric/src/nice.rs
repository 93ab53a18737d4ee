//! Which threads get the processors where there are too few?
//!
//! Invariant: a thread that is nicer than asked for stays so; no other thread's priority changes.

use std::io;

/// Makes the calling thread, and those that it starts from then on, so nice, unless it is nicer; 0
/// leaves it as it is.
///
/// # Errors
/// When the system refuses.
pub fn be_nice(nice: u8) -> io::Result<()> {
    if nice == 0 {
        return Ok(());
    }
    // Of the calling thread: on Linux, threads have priorities of their own, which new ones
    // inherit.
    let own = rustix::process::getpriority_process(None)?;
    Ok(rustix::process::setpriority_process(None, own.max(nice.into()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_becomes_nice_and_never_less_so_and_others_stay_as_they_are() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let thread = std::thread::spawn(move || {
            be_nice(19).unwrap();
            be_nice(3).unwrap();
            nice()
        });
        assert_eq!((thread.join().unwrap(), nice()), (19, before));
    }
}
