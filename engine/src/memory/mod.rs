//! Limits the memory of queries outside their scans, and spills to disk what does not fit.
//!
//! All queries of an engine share one pool of memory (decision 0056). Operators that can spill get
//! equal shares of the memory that the other operators leave. Operators that cannot spill fail when
//! the pool is full, with an error that names them.

mod large_limits;
mod long_rows;
mod nested_loops;
mod pool;
mod spill_folder;
mod window;
mod wrapper;

use std::{
    io::ErrorKind,
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use datafusion::{
    error::DataFusionError,
    execution::{
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        memory_pool::{MemoryPool, PeakRecordingPool, TrackConsumersPool, UnboundedMemoryPool},
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
    },
    physical_plan::ExecutionPlan,
};

pub(crate) use large_limits::LargeLimits;
pub(crate) use long_rows::{BatchRows, LongRows};
pub(crate) use nested_loops::{NESTED_LOOPS, NestedLoops, SpillingNestedLoops};
pub(crate) use window::MeteredWindows;

use crate::{
    error::{EngineError, is_folder_full},
    limits::GIVEN_BACK_WAIT,
};
use pool::SharedPool;
use serde::Serialize;
use spill_folder::SpillFolder;

/// How many operators an error names when memory is full.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).expect("three");

/// Where operators write what does not fit into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillOptions {
    /// The folder; it is made if it is missing. Each engine has a folder of its own in it, which is
    /// removed with the engine.
    pub folder: PathBuf,
    /// The maximum bytes in it at a time, of all queries.
    pub bytes_max: u64,
}

/// The memory of an engine's queries.
pub(crate) struct Memory {
    runtime: Arc<RuntimeEnv>,
    _folder: Option<SpillFolder>,
}

/// The memory of one query.
pub(crate) struct QueryMemory {
    pub(crate) runtime: Arc<RuntimeEnv>,
    peak: Arc<PeakRecordingPool>,
}

/// The memory of a query outside of its scans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryFigures {
    /// The maximum bytes that its operators and its answer held at a time.
    pub peak_bytes: u64,
    /// Bytes that they wrote to disk.
    pub spilled_bytes: u64,
    /// The number of files.
    pub spills: u64,
    /// How often the query was planned.
    pub plans: u32,
    /// Why it was planned again.
    #[serde(flatten)]
    pub replanned: Replanned,
}

/// Why a query was planned again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replanned {
    /// Hash joins did not fit into memory; both sides were sorted and merged instead.
    pub sorted_joins: bool,
    /// The maximum rows of a batch, if it was lowered because rows are long.
    pub batch_rows_max: Option<usize>,
}

impl Memory {
    /// A pool of this many bytes; unlimited if `None`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn new(bytes: Option<usize>, spill: Option<&SpillOptions>) -> Result<Self, EngineError> {
        let pool: Arc<dyn MemoryPool> = match bytes {
            Some(bytes) => Arc::new(TrackConsumersPool::new(SharedPool::new(bytes), NAMED_CONSUMERS)),
            None => Arc::new(UnboundedMemoryPool::default()),
        };
        let mut builder = RuntimeEnvBuilder::new().with_memory_pool(pool);
        let mut folder = None;
        if let Some(SpillOptions { folder: path, bytes_max }) = spill {
            let mode = match SpillFolder::make(path) {
                Ok(made) => {
                    let mode = DiskManagerMode::Directories(vec![made.path().to_owned()]);
                    folder = Some(made);
                    mode
                }
                // Queries that fit into memory work all the same; others fail for lack of memory.
                Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                    tracing::info!("{}: {error}; queries cannot write to disk", path.display());
                    DiskManagerMode::Disabled
                }
                Err(error) => return Err(EngineError::SpillFolder(format!("{}: {error}", path.display()))),
            };
            let disk = DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(*bytes_max);
            builder = builder.with_disk_manager_builder(disk);
        }
        let runtime = builder.build_arc().map_err(EngineError::from_datafusion)?;
        Ok(Self { runtime, _folder: folder })
    }

    pub(crate) fn runtime(&self) -> Arc<RuntimeEnv> {
        Arc::clone(&self.runtime)
    }

    /// The memory of a query that begins now.
    pub(crate) fn of_query(&self) -> QueryMemory {
        let peak = Arc::new(PeakRecordingPool::new(Arc::clone(&self.runtime.memory_pool)));
        let memory_pool: Arc<dyn MemoryPool> = Arc::clone(&peak) as _;
        QueryMemory { runtime: Arc::new(RuntimeEnv { memory_pool, ..self.runtime.as_ref().clone() }), peak }
    }
}

impl QueryMemory {
    /// Waits for a short time until no memory is held: tasks of a query that was dropped end
    /// slightly later.
    pub(crate) async fn given_back(&self) {
        let until = Instant::now() + GIVEN_BACK_WAIT;
        while self.runtime.memory_pool.reserved() > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The memory figures so far. `plan` is the last of `plans` plans, the one that ran.
    pub(crate) fn figures(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        plans: u32,
        replanned: Replanned,
    ) -> MemoryFigures {
        let peak_bytes = self.peak.peak_reserved() as u64;
        let mut figures = MemoryFigures { peak_bytes, plans, replanned, ..MemoryFigures::default() };
        add_spills(plan, &mut figures);
        figures
    }
}

fn add_spills(plan: &Arc<dyn ExecutionPlan>, figures: &mut MemoryFigures) {
    if let Some(metrics) = plan.metrics() {
        figures.spilled_bytes += metrics.spilled_bytes().unwrap_or_default() as u64;
        figures.spills += metrics.spill_count().unwrap_or_default() as u64;
    }
    plan.children().into_iter().for_each(|child| add_spills(child, figures));
}

/// Whether a query failed because memory was full, rather than the folder.
pub(crate) fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(message) if !is_folder_full(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_folder_is_no_lack_of_memory() {
        let memory = DataFusionError::ResourcesExhausted("Failed to allocate additional 1 B".to_owned());
        assert!(is_out_of_memory(&memory.context("a join")));
        assert!(is_folder_full("Try increasing the config: `datafusion.runtime.max_temp_directory_size`."));
    }
}
