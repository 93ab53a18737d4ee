//! Counts what the processor and the kernel do for a run: cycles, instructions, context switches
//! and system calls of the driver's threads, by `perf_event_open(2)`.
//!
//! Invariants
//! - Counters are opened before the threads start, and the threads inherit them.
//! - An event that this machine or this user cannot count is `None`, never 0.

use perf_event::{
    Builder, Counter,
    events::{Event, Hardware, Software, Tracepoint},
};
use serde::Serialize;
use std::fs;

/// Numbers of events in one run, or for each IO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Events<T> {
    /// Cycles of the processor; virtual machines often do not count them.
    pub cycles: Option<T>,
    /// Instructions of the processor.
    pub instructions: Option<T>,
    /// Context switches.
    pub context_switches: Option<T>,
    /// System calls; only root may count them.
    pub system_calls: Option<T>,
}

impl Events<u64> {
    /// Events of each of so many IOs.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "averages for people: 53 bits are plenty")]
    pub fn per_io(self, ios: u64) -> Events<f64> {
        let each = |all: Option<u64>| all.filter(|_| ios > 0).map(|all| all as f64 / ios as f64);
        Events {
            cycles: each(self.cycles),
            instructions: each(self.instructions),
            context_switches: each(self.context_switches),
            system_calls: each(self.system_calls),
        }
    }

    /// The sums of two runs; `None` if an event was not counted in one of them.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    /// What was counted since an earlier reading.
    fn since(self, earlier: Self) -> Self {
        self.with(earlier, |now, then| now.checked_sub(then).expect("counters do not go back"))
    }

    fn with(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(of(one?, other?));
        Self {
            cycles: both(self.cycles, other.cycles),
            instructions: both(self.instructions, other.instructions),
            context_switches: both(self.context_switches, other.context_switches),
            system_calls: both(self.system_calls, other.system_calls),
        }
    }
}

/// Open counters of the calling thread and of the threads that it starts later.
pub(crate) struct EventCounters {
    cycles: Option<Counter>,
    instructions: Option<Counter>,
    context_switches: Option<Counter>,
    system_calls: Option<Counter>,
    before: Events<u64>,
}

impl EventCounters {
    /// Opens what this machine can count.
    pub(crate) fn open() -> Self {
        let system_calls = tracepoint("raw_syscalls/sys_enter");
        Self {
            cycles: counter(Hardware::CPU_CYCLES),
            instructions: counter(Hardware::INSTRUCTIONS),
            context_switches: counter(Software::CONTEXT_SWITCHES),
            system_calls: system_calls.and_then(counter),
            before: Events::default(),
        }
    }

    /// Begins to count.
    pub(crate) fn begin(&mut self) {
        self.before = self.read();
    }

    /// What was counted since the last begin.
    pub(crate) fn counted(&mut self) -> Events<u64> {
        self.read().since(self.before)
    }

    fn read(&mut self) -> Events<u64> {
        let of = |counter: &mut Option<Counter>| counter.as_mut()?.read().ok();
        Events {
            cycles: of(&mut self.cycles),
            instructions: of(&mut self.instructions),
            context_switches: of(&mut self.context_switches),
            system_calls: of(&mut self.system_calls),
        }
    }
}

/// A tracepoint of the kernel, if this user may know it. The crate looks only below debugfs.
fn tracepoint(name: &str) -> Option<Tracepoint> {
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let id = roots.iter().find_map(|root| fs::read_to_string(format!("{root}/events/{name}/id")).ok())?;
    Some(Tracepoint::with_id(id.trim().parse().ok()?))
}

fn counter(event: impl Event) -> Option<Counter> {
    let mut builder = Builder::new(event);
    builder.inherit(true).include_kernel().include_hv();
    let mut counter = builder.build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_threads_that_start_later_are_counted() {
        let mut counters = EventCounters::open();
        counters.begin();
        let sleeps = || (0..20).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
        std::thread::spawn(sleeps).join().unwrap();
        let counted = counters.counted();
        if let Some(switches) = counted.context_switches {
            assert!(switches >= 20, "{counted:?}");
        }
        if let Some(calls) = counted.system_calls {
            assert!(calls >= 20, "{counted:?}");
        }
    }

    #[test]
    fn what_one_run_did_not_count_has_no_sum() {
        let some = Events { cycles: Some(10), system_calls: Some(2), ..Events::default() };
        let sum = some.plus(Events { cycles: Some(5), ..Events::default() });
        assert_eq!((sum.cycles, sum.system_calls), (Some(15), None));
        assert_eq!(sum.per_io(10).cycles, Some(1.5));
        assert_eq!(sum.per_io(0).cycles, None);
    }
}
