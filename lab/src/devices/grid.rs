//! Combines the values of axes into the cases of a measurement of devices.
//!
//! Invariants
//! - Values that change nothing make no cases of their own: a thread that waits for each IO has one
//!   in flight.

use std::fmt;

use rackscan_device::{HandOver, RingMode};
use serde::Serialize;

use crate::drive::{Distribution, IoMix};
use crate::experiment::{GridError, distinct};
use crate::limits;
use crate::target::{IoOperation, UringShape};

/// How a thread reads and writes devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IoEngine {
    /// io_uring; each IO is handed to the kernel at once.
    Uring,
    /// io_uring; IOs that become free together are handed over together.
    UringBatch,
    /// io_uring with a thread of the kernel that takes IOs (SQPOLL).
    UringSqpoll,
    /// io_uring without interrupts (IOPOLL), for devices with queues that can be polled.
    UringIopoll,
    /// The thread waits in `pread` and `pwrite`, one IO after the other.
    Pread,
    /// The program `fio` with io_uring, for comparison.
    Fio,
}

impl IoEngine {
    /// The shape of the ring, if there is one.
    #[must_use]
    pub fn ring(self) -> Option<UringShape> {
        let usual = UringShape::USUAL;
        match self {
            Self::Uring => Some(usual),
            Self::UringBatch => Some(UringShape { hand_over: HandOver::Together, ..usual }),
            Self::UringSqpoll => Some(UringShape { mode: RingMode::SubmissionThread, ..usual }),
            Self::UringIopoll => Some(UringShape { mode: RingMode::Polling, ..usual }),
            Self::Pread | Self::Fio => None,
        }
    }
}

impl fmt::Display for IoEngine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Uring => "uring",
            Self::UringBatch => "uring-batch",
            Self::UringSqpoll => "uring-sqpoll",
            Self::UringIopoll => "uring-iopoll",
            Self::Pread => "pread",
            Self::Fio => "fio",
        })
    }
}

/// One combination of the axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceCase {
    /// What the IOs do.
    pub mix: IoMix,
    /// Distribution of the offsets.
    pub distribution: Distribution,
    /// Bytes of each IO.
    pub size_bytes: u32,
    /// Number of threads.
    pub threads: u32,
    /// IOs in flight of each thread.
    pub depth: u32,
    /// How a thread does IO.
    pub engine: IoEngine,
}

impl fmt::Display for DeviceCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mix, distribution, size_bytes, threads, depth, engine } = self;
        write!(out, "{mix} {} {size_bytes} B, {threads} x {depth}, {engine}", pattern(*distribution))
    }
}

/// The name of a distribution: `random`, `sequential`, or `zipf:0.99`.
#[must_use]
pub fn pattern(distribution: Distribution) -> String {
    match distribution {
        Distribution::Uniform => "random".to_owned(),
        Distribution::Sequential => "sequential".to_owned(),
        Distribution::Zipfian { skew } => format!("zipf:{skew}"),
    }
}

/// The values to combine.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceAxes {
    /// What the IOs do.
    pub mixes: Vec<IoMix>,
    /// Distributions of the offsets.
    pub distributions: Vec<Distribution>,
    /// Bytes of each IO.
    pub sizes: Vec<u32>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// IOs in flight of each thread.
    pub depths: Vec<u32>,
    /// How threads do IO.
    pub engines: Vec<IoEngine>,
}

impl DeviceAxes {
    /// Returns every distinct combination. Engines of one load are adjacent.
    ///
    /// # Errors
    /// [`GridError`] for values that cannot be measured.
    pub fn cases(&self) -> Result<Vec<DeviceCase>, GridError> {
        self.check()?;
        if self.mixes.contains(&IoMix::Only(IoOperation::Trim)) {
            let alone = self.mixes.iter().all(|mix| *mix == IoMix::Only(IoOperation::Trim));
            if !alone || self.engines.contains(&IoEngine::Fio) {
                return Err(GridError::TrimBeside);
            }
        }
        let (sizes, threads, depths) =
            (distinct(&self.sizes), distinct(&self.threads), distinct(&self.depths));
        let (mixes, distributions) = (distinct(&self.mixes), distinct(&self.distributions));
        let mut cases = Vec::new();
        for &mix in &mixes {
            // Threads that wait have one IO in flight.
            let waits = |engine| engine == IoEngine::Pread || mix == IoMix::Only(IoOperation::Trim);
            let both = |engine| depths.iter().map(move |depth| if waits(engine) { 1 } else { *depth });
            let ways: Vec<(u32, IoEngine)> = self
                .engines
                .iter()
                .flat_map(|&engine| both(engine).map(move |depth| (depth, engine)))
                .collect();
            let mut ways = distinct(&ways);
            ways.sort_by_key(|(depth, _)| *depth);
            let axes = [distributions.len(), sizes.len(), threads.len(), ways.len()];
            let count = axes.into_iter().fold(1_usize, usize::saturating_mul).saturating_add(cases.len());
            if count > limits::CASES_MAX {
                return Err(GridError::TooMany { cases: count });
            }
            for &distribution in &distributions {
                for &size_bytes in &sizes {
                    for &threads in &threads {
                        cases.extend(ways.iter().map(|&(depth, engine)| DeviceCase {
                            mix,
                            distribution,
                            size_bytes,
                            threads,
                            depth,
                            engine,
                        }));
                    }
                }
            }
        }
        Ok(cases)
    }

    fn check(&self) -> Result<(), GridError> {
        let empty = [
            ("workloads", self.mixes.is_empty()),
            ("patterns", self.distributions.is_empty()),
            ("sizes", self.sizes.is_empty()),
            ("threads", self.threads.is_empty()),
            ("depths", self.depths.is_empty()),
            ("engines", self.engines.is_empty()),
        ];
        if let Some((axis, _)) = empty.into_iter().find(|(_, empty)| *empty) {
            return Err(GridError::Empty { axis });
        }
        for &size_bytes in &self.sizes {
            let fits = (limits::IO_BYTES_LEAST..=limits::IO_BYTES_LARGEST).contains(&size_bytes);
            if !fits || !size_bytes.is_multiple_of(limits::IO_BYTES_LEAST) {
                return Err(GridError::BadSize { size_bytes });
            }
        }
        let within =
            |axis, values: &[u32], most| match values.iter().find(|value| !(1..=most).contains(*value)) {
                None => Ok(()),
                Some(&value) => Err(GridError::BadNumber { axis, value, most }),
            };
        within("threads", &self.threads, limits::CONNECTIONS_MAX)?;
        within("IOs in flight", &self.depths, limits::DEPTH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_have_one_io_in_flight() {
        let axes = DeviceAxes {
            mixes: vec![IoMix::Only(IoOperation::Read)],
            distributions: vec![Distribution::Uniform],
            sizes: vec![4096],
            threads: vec![1, 2],
            depths: vec![1, 32],
            engines: vec![IoEngine::Uring, IoEngine::Pread],
        };
        let cases = axes.cases().unwrap();
        // A ring with two depths and a waiting thread, by threads.
        assert_eq!(cases.len(), (2 + 1) * 2);
        let mixes = vec![IoMix::Only(IoOperation::Trim)];
        assert_eq!(DeviceAxes { mixes, ..axes.clone() }.cases().unwrap().len(), 2 * 2);
        let mixes = vec![IoMix::Only(IoOperation::Trim), IoMix::Only(IoOperation::Read)];
        assert_eq!(DeviceAxes { mixes, ..axes.clone() }.cases(), Err(GridError::TrimBeside));
        let refused = DeviceAxes { depths: vec![0], ..axes }.cases().unwrap_err().to_string();
        assert!(refused.contains("IOs in flight"), "{refused}");
    }
}
