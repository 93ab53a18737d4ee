//! Reads the processor time that a process has used.
//!
//! Invariants
//! - A difference of two samples is the time of all threads of the process, those included that
//!   began and ended between the samples: it is of the process's CPU clock
//!   (`clock_getcpuclockid(3)`), which counts nanoseconds.
//! - The kernel tells user and system mode apart in units of 10 ms. A share of them is given only
//!   where there are enough units.

use std::fs;
use std::time::Duration;

use nix::{time::clock_getcpuclockid, unistd::Pid};

/// Minimum ticks of which a share is told: one tick is then 2 %.
const SHARED_TICKS_MIN: u64 = 50;

/// The processor time of one process at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSample {
    /// Time of all threads since the process began.
    all: Duration,
    ticks: Ticks,
}

/// Processor time in ticks of `USER_HZ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticks {
    user: u64,
    system: u64,
}

impl CpuSample {
    /// Samples the process `pid`; `None` if it does not exist.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
        let all = clock.now().ok()?.into();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { all, ticks: Ticks::parse(&stat)? })
    }

    /// Samples this process.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// Time used since an earlier sample of the same process.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        self.all.saturating_sub(earlier.all)
    }

    /// Ticks since an earlier sample of the same process.
    #[must_use]
    pub fn ticks_since(&self, earlier: &Self) -> Ticks {
        Ticks {
            user: self.ticks.user.saturating_sub(earlier.ticks.user),
            system: self.ticks.system.saturating_sub(earlier.ticks.system),
        }
    }
}

impl Ticks {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }

    /// The share of user mode, 0 to 1; `None` if there are too few ticks to tell.
    #[must_use]
    pub fn user_share(self) -> Option<f64> {
        let all = self.user + self.system;
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        (all >= SHARED_TICKS_MIN).then(|| self.user as f64 / all as f64)
    }

    /// Parses utime and stime from /proc/PID/stat. The name in it is in parentheses and may contain
    /// anything.
    fn parse(stat: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut words = after_name.split_whitespace().skip(11);
        Some(Self { user: words.next()?.parse().ok()?, system: words.next()?.parse().ok()? })
    }

    #[cfg(test)]
    pub(crate) fn of(user: u64, system: u64) -> Self {
        Self { user, system }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::{
        resource::UsageWho,
        time::{TimeVal, TimeValLike},
    };
    use std::time::Instant;

    /// Uses the processor for a time, by the thread's own clock.
    fn burn(time: Duration) {
        let now = || nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap();
        let begun = now();
        while now() - begun < time {
            std::hint::spin_loop();
        }
    }

    /// What `getrusage` says of this process, in another unit and by another path of the kernel.
    fn rusage() -> Duration {
        let usage = nix::sys::resource::getrusage(UsageWho::RUSAGE_SELF).unwrap();
        let of = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap());
        of(usage.user_time()) + of(usage.system_time())
    }

    #[test]
    fn a_name_with_parentheses_does_not_move_the_fields() {
        let stat = "12 (a) b (c)) S 1 1 1 0 -1 4194560 100 0 0 0 70 30 0 0 20 0 1 0 5 6 7";
        assert_eq!(Ticks::parse(stat), Some(Ticks::of(70, 30)));
        assert_eq!(Ticks::parse("12 (a"), None);
        assert_eq!(Ticks::parse("12 (a) S 1 1"), None);
    }

    #[test]
    fn threads_that_begin_and_end_between_two_samples_are_counted() {
        // Other tests of this process run meanwhile, so each sample is taken between two readings
        // of the other measure.
        let sample = || (rusage(), CpuSample::of_this_process().unwrap(), rusage());
        let (earliest, before, begun) = sample();
        // Two hundred threads that no sample sees, as a bridge that makes a thread for each read.
        for _ in 0..200 {
            std::thread::spawn(|| burn(Duration::from_millis(1))).join().unwrap();
        }
        let (ended, after, latest) = sample();
        let (found, least, most) = (after.since(&before), ended - begun, latest - earliest);
        assert!(found >= Duration::from_millis(200), "200 threads used 1 ms each, found {found:?}");
        let inexact = Duration::from_millis(2);
        assert!(
            least <= found + inexact && found <= most + inexact,
            "{found:?}, getrusage says {least:?} to {most:?}"
        );
    }

    #[test]
    fn a_share_is_told_only_of_enough_ticks() {
        assert_eq!(Ticks::of(3, 1).user_share(), None);
        assert_eq!(Ticks::of(30, 10).plus(Ticks::of(45, 15)).user_share(), Some(0.75));
    }

    #[test]
    fn work_of_this_process_shows_in_nanoseconds() {
        let before = CpuSample::of_this_process().unwrap();
        let begun = Instant::now();
        burn(Duration::from_micros(300));
        let used = CpuSample::of_this_process().unwrap().since(&before);
        assert!(used >= Duration::from_micros(300), "{used:?} in {:?}", begun.elapsed());
    }

    #[test]
    fn a_process_that_does_not_exist_has_no_sample() {
        assert_eq!(CpuSample::of(u32::MAX), None);
        assert_eq!(CpuSample::of(i32::MAX as u32), None);
    }
}
