//! Has a program used more than it may?
//!
//! A node gives every program so much processor time and memory. One that needs more is not wrong,
//! it is only at the wrong place: the scan stops cleanly, the node bounces the segment, and the
//! engine scans it.
//!
//! Invariants
//! - Time is looked at between pages, so a program overruns by what it does with the pages of one
//!   step at most.
//! - Only time spent in steps counts, on whatever clock the caller gives: the caller's reads are
//!   not the scan's own, and what checking a page takes depends on its size alone.
//! - Batches that were put out before stay right: [`Bounced::next_block`] is where another scan
//!   goes on.

use std::{fmt, time::Duration};

/// What one scan of one segment may use; nothing is bounded by default, but see
/// [`ScanLimits`](crate::ScanLimits).
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// Processor time.
    pub cpu: Option<CpuQuota>,
    /// Bytes of stored pages asked for or held, and of the table of groups.
    pub memory_bytes: Option<usize>,
}

/// Processor time by a clock.
#[derive(Clone, Copy, Debug)]
pub struct CpuQuota {
    /// So much at most.
    pub most: Duration,
    /// Processor time of the calling thread, from any beginning.
    pub clock: fn() -> Duration,
}

/// What there was too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Processor time, in microseconds.
    Cpu,
    /// Memory, in bytes.
    Memory,
}

/// A scan that was stopped because it used more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounced {
    /// What there was too little of.
    pub quota: QuotaKind,
    /// What it used or needed, in the quota's unit.
    pub used: u64,
    /// What it may use.
    pub allowed: u64,
    /// The block behind the last whose rows or groups are out: a scan that begins here yields
    /// exactly what is missing.
    pub next_block: u32,
}

impl fmt::Display for Bounced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, used, allowed, next_block } = self;
        let (name, unit) = match quota {
            QuotaKind::Cpu => ("cpu quota", "us of processor time"),
            QuotaKind::Memory => ("memory quota", "bytes"),
        };
        write!(
            f,
            "bounced: {name}: {used} {unit} used, {allowed} allowed; scan the blocks from {next_block} on elsewhere"
        )
    }
}

/// What has been used so far.
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

    /// The scan begins to work.
    pub(crate) fn start(&mut self) {
        self.since = self.quota.cpu.map(|cpu| (cpu.clock)());
    }

    /// The scan goes back to its caller.
    pub(crate) fn stop(&mut self) {
        if let (Some(cpu), Some(since)) = (self.quota.cpu, self.since.take()) {
            self.spent += (cpu.clock)().saturating_sub(since);
        }
    }

    /// Whether the time is over: used and allowed microseconds.
    pub(crate) fn over_cpu(&mut self) -> Option<(u64, u64)> {
        let cpu = self.quota.cpu?;
        let now = (cpu.clock)();
        if let Some(since) = self.since.replace(now) {
            self.spent += now.saturating_sub(since);
        }
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        (self.spent > cpu.most).then(|| (micros(self.spent), micros(cpu.most)))
    }

    /// Whether so many bytes are too many: needed and allowed.
    pub(crate) fn over_memory(&self, bytes: usize) -> Option<(u64, u64)> {
        let most = self.quota.memory_bytes?;
        (bytes > most).then_some((bytes as u64, most as u64))
    }
}
