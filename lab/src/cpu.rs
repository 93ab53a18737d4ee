//! Reads the processor time that a process has used, in nanoseconds if the kernel provides them.
//!
//! Invariants
//! - A difference of two samples includes the time of threads that ended between them.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Clock ticks per second in /proc/PID/stat: USER_HZ, which is 100 on every architecture that Linux
/// runs on here.
const TICKS_PER_SECOND: u64 = 100;

/// The processor time of one process at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSample {
    /// Of the whole process including its ended threads, in ticks.
    ticks: u64,
    /// The part of it spent in user mode.
    user_ticks: u64,
    /// Of each living thread, in nanoseconds.
    threads_ns: BTreeMap<u32, u64>,
}

impl CpuSample {
    /// Samples the process `pid`; `None` if it does not exist.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (user_ticks, system_ticks) = ticks(&stat)?;
        let ticks = user_ticks.checked_add(system_ticks)?;
        let mut threads_ns = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let name = entry.file_name();
            let Some(thread) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let schedstat = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            let first = schedstat.split_whitespace().next().and_then(|word| word.parse().ok());
            if let Some(nanoseconds) = first {
                threads_ns.insert(thread, nanoseconds);
            }
        }
        Some(Self { ticks, user_ticks, threads_ns })
    }

    /// Samples this process.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Time used since an earlier sample: in nanoseconds if the threads are still the same;
    /// otherwise in ticks, and at least the time of those threads that still exist.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        let same = self.threads_ns.keys().eq(earlier.threads_ns.keys()) && !self.threads_ns.is_empty();
        if same {
            let total = |sample: &Self| sample.threads_ns.values().sum::<u64>();
            return Duration::from_nanos(total(self).saturating_sub(total(earlier)));
        }
        let of_thread = |(thread, now): (&u32, &u64)| {
            now.saturating_sub(earlier.threads_ns.get(thread).copied().unwrap_or(0))
        };
        let of_living = Duration::from_nanos(self.threads_ns.iter().map(of_thread).sum());
        of_ticks(self.ticks.saturating_sub(earlier.ticks)).max(of_living)
    }

    /// User-mode time since an earlier sample, in ticks.
    #[must_use]
    pub fn user_since(&self, earlier: &Self) -> Duration {
        of_ticks(self.user_ticks.saturating_sub(earlier.user_ticks))
    }
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / TICKS_PER_SECOND))
}

/// Parses utime and stime from /proc/PID/stat. The name in it is in parentheses and may contain
/// anything.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut words = after_name.split_whitespace().skip(11);
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn burn(time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let stat = "12 (a) b (c)) S 1 1 1 0 -1 4194560 100 0 0 0 70 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some((70, 30)));
        assert_eq!(ticks("12 (a"), None);
        assert_eq!(ticks("12 (a) S 1 1"), None);
    }

    #[test]
    fn time_of_a_thread_that_has_ended_is_counted_to_the_tick() {
        let sample = |ticks, threads: &[(u32, u64)]| CpuSample {
            ticks,
            user_ticks: ticks / 2,
            threads_ns: threads.iter().copied().collect(),
        };
        let before = sample(10, &[(1, 500), (2, 700)]);
        assert_eq!(sample(14, &[(1, 600)]).since(&before), Duration::from_millis(40));
        assert_eq!(sample(14, &[(1, 600)]).user_since(&before), Duration::from_millis(20));
        assert_eq!(sample(10, &[(1, 600), (2, 750)]).since(&before), Duration::from_nanos(150));
        // Within one tick, the time is that of the living threads, including all of a new thread's.
        assert_eq!(sample(10, &[(1, 600), (3, 40)]).since(&before), Duration::from_nanos(140));
        assert_eq!(before.since(&sample(14, &[(1, 600), (2, 750)])), Duration::ZERO);
    }

    #[test]
    fn work_of_this_process_shows() {
        let before = CpuSample::of_this_process().unwrap();
        burn(Duration::from_millis(60));
        let used = CpuSample::of_this_process().unwrap().since(&before);
        assert!(used >= Duration::from_millis(10), "{used:?}");
    }

    #[test]
    fn a_process_that_does_not_exist_has_no_sample() {
        assert_eq!(CpuSample::of(u32::MAX), None);
    }
}
