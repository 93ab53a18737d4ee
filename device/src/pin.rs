//! Pins threads to cores.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::PinError;

/// Pins the calling thread to `core` (numbered as in /proc/cpuinfo), so that a reactor's caches and
/// its completions' interrupts stay in one place.
///
/// # Errors
/// [`PinError`] if the core does not exist or the process may not use it, with the cores it may
/// use.
pub fn pin_current_thread(core: usize) -> Result<(), PinError> {
    let refuse = |source| PinError { core, allowed: allowed_cores(), source };
    if core >= CpuSet::MAX_CPU {
        return Err(refuse(rustix::io::Errno::INVAL));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(refuse)
}

/// Cores the calling thread may run on, ascending.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_exactly_its_core() {
        let core = allowed_cores()[0];
        let after =
            std::thread::spawn(move || pin_current_thread(core).map(|()| allowed_cores())).join().unwrap();
        assert_eq!(after.unwrap(), vec![core]);
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused_with_those_that_do() {
        for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
            let refused = pin_current_thread(core).unwrap_err();
            assert!(
                !refused.allowed.is_empty() && refused.to_string().contains(&core.to_string()),
                "{refused}"
            );
        }
    }
}
