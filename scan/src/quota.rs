//! Stops a scan that uses more processor time or memory than its quota.
//!
//! A node gives each program a limited amount of processor time and memory. If a program needs
//! more, the scan stops at a block boundary, the node bounces the segment (it returns raw pages
//! instead), and the engine scans it.
//!
//! Invariants
//! - Time is checked between pages, so a program exceeds its quota at most by the work on the pages
//!   of one step.
//! - Only time spent in [`SegmentScan::step`](crate::SegmentScan::step) counts, measured by the
//!   clock that the caller provides. The caller's reads do not count; nor does the check of a
//!   supplied page, whose time depends only on the page's size.
//! - Batches yielded before the stop stay valid: another scan continues at [`Bounced::next_block`].

use std::{fmt, time::Duration};

use az::SaturatingAs;

/// What one scan of one segment may use. The default has no bounds beyond
/// [`ScanLimits`](crate::ScanLimits).
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// Processor time.
    pub cpu: Option<CpuQuota>,
    /// Bytes of stored pages requested or held, plus the table of groups.
    pub memory_bytes: Option<usize>,
}

/// A bound on processor time, and the clock that measures it.
#[derive(Clone, Copy, Debug)]
pub struct CpuQuota {
    /// The maximum.
    pub most: Duration,
    /// Returns the processor time of the calling thread, from any origin.
    pub clock: fn() -> Duration,
}

/// Which quota was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Processor time, in microseconds.
    Cpu,
    /// Memory, in bytes.
    Memory,
}

/// Reports a scan that was stopped because it exceeded its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounced {
    /// Which quota was exceeded.
    pub quota: QuotaKind,
    /// The use or need, in the quota's unit.
    pub used: u64,
    /// The quota.
    pub allowed: u64,
    /// The block after the last whose rows or groups were yielded: a scan that begins here yields
    /// exactly the remainder.
    pub next_block: u32,
}

impl fmt::Display for Bounced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, used, allowed, next_block } = self;
        let (name, unit) = match quota {
            QuotaKind::Cpu => ("CPU quota", "us of processor time"),
            QuotaKind::Memory => ("memory quota", "bytes"),
        };
        write!(
            f,
            "{name}: {used} {unit} used, {allowed} allowed; scan the blocks from {next_block} on elsewhere"
        )
    }
}

/// Measures what the scan has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    quota: Quota,
    spent: Duration,
    since: Option<Duration>,
}

impl Meter {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, ..Self::default() }
    }

    /// Whether time is measured at all.
    pub(crate) fn has_clock(&self) -> bool {
        self.quota.cpu.is_some()
    }

    /// Starts the clock: the scan begins to work.
    pub(crate) fn start(&mut self) {
        self.since = self.quota.cpu.map(|cpu| (cpu.clock)());
    }

    /// Stops the clock: the scan returns to its caller.
    pub(crate) fn stop(&mut self) {
        if let (Some(cpu), Some(since)) = (self.quota.cpu, self.since.take()) {
            self.spent += (cpu.clock)().saturating_sub(since);
        }
    }

    /// Used and allowed microseconds, if the time is exceeded.
    pub(crate) fn over_cpu(&mut self) -> Option<(u64, u64)> {
        let cpu = self.quota.cpu?;
        let now = (cpu.clock)();
        if let Some(since) = self.since.replace(now) {
            self.spent += now.saturating_sub(since);
        }
        // The caller chooses the clock, so a time beyond 64 bits of microseconds saturates.
        let micros = |time: Duration| time.as_micros().saturating_as::<u64>();
        (self.spent > cpu.most).then(|| (micros(self.spent), micros(cpu.most)))
    }

    /// Needed and allowed bytes, if `bytes` exceeds the quota.
    pub(crate) fn over_memory(&self, bytes: usize) -> Option<(u64, u64)> {
        let most = self.quota.memory_bytes?;
        (bytes > most).then_some((bytes as u64, most as u64))
    }
}
