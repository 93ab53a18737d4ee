//! Opens the session that most commands work with: a reachable cluster, and an engine over it.

use crate::{
    args::Global,
    cluster::{
        ClusterFile, SharedNodes, check_page_cache, find_or_create, folder_ids, page_cache,
        start_with_overrides,
    },
    failure::{Failure, at_path},
    memory::Budget,
    progress,
};
use az::SaturatingAs;
use rackscan_bench::refresh::be_nice;
use rackscan_client::{Cluster, ClusterOptions};
use rackscan_engine::{Engine, EngineOptions, THREAD_STACK_BYTES};
use rackscan_format::ids::NodeId;
use rackscan_planner::Calibration;
use std::{
    fs,
    future::Future,
    path::{Path, PathBuf},
};
use tokio::runtime::Runtime;

/// A command's cluster, engine and threads.
pub(crate) struct Session {
    // Fields are dropped in this order: the engine's connections before the nodes they lead to.
    engine: Engine,
    runtime: Runtime,
    nodes: SharedNodes,
    file: ClusterFile,
    data: PathBuf,
    load_bytes: usize,
}

impl Session {
    /// Connects to the cluster that the options name, and starts its nodes for the time of the
    /// command if none runs.
    pub(crate) fn open(global: &Global) -> Result<Self, Failure> {
        let file = find_or_create(global)?;
        let unavailable_max = global.tolerate_unavailable.unwrap_or(0);
        let nodes = SharedNodes::start(&file, unavailable_max)?;
        Self::over(global, file, nodes, unavailable_max)
    }

    /// Like [`Session::open`], with this niceness for all threads of this process. Nodes started
    /// for the command do not get it, because other commands may use them, too.
    pub(crate) fn open_nice(global: &Global, nice: u8) -> Result<Self, Failure> {
        let file = find_or_create(global)?;
        let unavailable_max = global.tolerate_unavailable.unwrap_or(0);
        let nodes = SharedNodes::start(&file, unavailable_max)?;
        // Threads inherit the niceness of the thread that starts them, and no other has been
        // started yet.
        be_nice(nice)?;
        Self::over(global, file, nodes, unavailable_max)
    }

    /// Like [`Session::open`], to read only: as many nodes may be unavailable as parity compensates
    /// for.
    pub(crate) fn open_to_read(global: &Global) -> Result<Self, Failure> {
        let file = find_or_create(global)?;
        let unavailable_max = global.tolerate_unavailable.unwrap_or(match file.endpoints().len() {
            0..=2 => 0,
            3 => 1,
            _ => 2,
        });
        let nodes = SharedNodes::start(&file, unavailable_max)?;
        Self::over(global, file, nodes, unavailable_max)
    }

    /// Like [`Session::open`], with nodes that have a page cache of this size; `None` for any.
    pub(crate) fn open_with_cache(global: &Global, cache_bytes: Option<u64>) -> Result<Self, Failure> {
        let Some(bytes) = cache_bytes else { return Self::open(global) };
        let file = find_or_create(global)?;
        let nodes = start_with_overrides(&file, &|member| page_cache(member, bytes))?;
        let session = Self::over(global, file, nodes, 0)?;
        session.cluster().statuses().iter().try_for_each(|status| check_page_cache(status, bytes))?;
        Ok(session)
    }

    fn over(
        global: &Global,
        file: ClusterFile,
        nodes: SharedNodes,
        unavailable_max: u8,
    ) -> Result<Self, Failure> {
        let runtime = runtime(global)?;
        let engine = runtime.block_on(engine(global, &file, unavailable_max))?;
        let load_bytes = Budget::of(global, &file, threads(global))?.for_loads();
        Ok(Self { engine, runtime, nodes, file, data: global.data.clone(), load_bytes })
    }

    /// Connects again, with a new engine that replaces the session's.
    pub(crate) fn reconnect(&mut self, global: &Global) -> Result<(), Failure> {
        let unavailable_max = self.cluster().unavailable_max().saturating_as::<u8>();
        self.engine = self.runtime.block_on(engine(global, &self.file, unavailable_max))?;
        Ok(())
    }

    /// The process ids of the nodes that were started for this command.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.nodes.pids()
    }

    /// Kills a node that was started for this command, and connects again. The new connection keeps
    /// nothing that was known of the node's devices.
    pub(crate) fn kill_node(&mut self, global: &Global, node: u16) -> Result<(), Failure> {
        self.nodes.started_mut().ok_or_else(not_ours)?.kill(node)?;
        self.reconnect(global)
    }

    /// Starts a node again that was killed, and connects again.
    pub(crate) fn start_node(&mut self, global: &Global, node: u16) -> Result<(), Failure> {
        self.nodes.started_mut().ok_or_else(not_ours)?.start_again(&self.file, node)?;
        self.reconnect(global)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        self.engine.cluster()
    }

    pub(crate) fn file(&self) -> &ClusterFile {
        &self.file
    }

    /// The data folder, which exists.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// Memory that a load may take, in bytes.
    pub(crate) fn load_bytes(&self) -> usize {
        self.load_bytes
    }

    /// The file with the measured constants of the price model.
    pub(crate) fn calibration_file(&self) -> PathBuf {
        calibration_file(&self.file)
    }

    /// For threads of this process that wait for the engine.
    pub(crate) fn handle(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// Waits for flushes in the background to finish, because nodes may end with this command.
    pub(crate) fn rest(&self) {
        if self.engine.is_flushing() {
            let steps = progress::steps();
            steps.set_message("flushing changed rows");
            self.runtime.block_on(self.engine.rest());
            steps.finish_and_clear();
        }
    }

    /// Lets nodes delete changed rows of dropped tables. What fails now is left to the next sweep.
    pub(crate) fn sweep(&self) {
        if let Err(error) = self.runtime.block_on(self.engine.sweep()) {
            tracing::warn!(%error, "nodes still keep changed rows of dropped tables; `rackscan flush` deletes them");
        }
    }

    pub(crate) fn block_on<T, E: Into<Failure>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        self.runtime.block_on(work).map_err(Into::into)
    }
}

/// A cluster without an engine, to check and repair what is stored: changed rows need not be
/// readable.
pub(crate) struct Reach {
    // Fields are dropped in this order: connections before the nodes they lead to.
    cluster: Cluster,
    runtime: Runtime,
    _nodes: SharedNodes,
}

impl Reach {
    /// Connects to a cluster, even if only one node is available, unless the options limit how many
    /// may be unavailable.
    pub(crate) fn open(global: &Global) -> Result<Self, Failure> {
        Self::open_to_rebuild(global, None)
    }

    /// Like [`Reach::open`], to rebuild a node that may have lost its folder.
    pub(crate) fn open_to_rebuild(global: &Global, rebuilt: Option<NodeId>) -> Result<Self, Failure> {
        let file = find_or_create(global)?;
        let others = file.endpoints().len().saturating_sub(1);
        let unavailable_max = global.tolerate_unavailable.unwrap_or(others.saturating_as::<u8>());
        let nodes = SharedNodes::start_to_rebuild(&file, unavailable_max, rebuilt)?;
        let runtime = runtime(global)?;
        let cluster = runtime.block_on(connect(&file, global.wire, 0, unavailable_max))?;
        Ok(Self { cluster, runtime, _nodes: nodes })
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn block_on<T, E: Into<Failure>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        self.runtime.block_on(work).map_err(Into::into)
    }
}

/// The failure of a command that would kill or start nodes that ran before it.
fn not_ours() -> Failure {
    let problem = "the nodes ran before this command, which starts and kills its own: end them with `rackscan cluster stop`";
    Failure::Runtime(problem.to_owned())
}

/// An engine over every node of the file.
async fn engine(global: &Global, file: &ClusterFile, unavailable_max: u8) -> Result<Engine, Failure> {
    let threads = threads(global);
    let budget = Budget::of(global, file, threads)?;
    let mut reached = cluster_options(file, global.wire, global.engine_cache, unavailable_max)?;
    reached.memory_bytes = budget.answers;
    let cluster = Cluster::connect(reached).await?;
    let options = EngineOptions { threads, calibration: calibration(file)?, ..budget.options(global, file)? };
    Ok(Engine::open(cluster, options).await?)
}

/// Connects to every node of the file, except up to `unavailable_max` unavailable ones, with an own
/// page cache of the given size.
pub(crate) async fn connect(
    file: &ClusterFile,
    wire: Option<rackscan_fabric::Wire>,
    page_cache_bytes: u64,
    unavailable_max: u8,
) -> Result<Cluster, Failure> {
    Ok(Cluster::connect(cluster_options(file, wire, page_cache_bytes, unavailable_max)?).await?)
}

fn cluster_options(
    file: &ClusterFile,
    wire: Option<rackscan_fabric::Wire>,
    page_cache_bytes: u64,
    unavailable_max: u8,
) -> Result<ClusterOptions, Failure> {
    let mut options = ClusterOptions::new(file.endpoints(), file.key()?);
    options.wire = wire;
    options.page_cache_bytes = page_cache_bytes;
    options.unavailable_max = unavailable_max.into();
    options.folders = folder_ids(file)?;
    Ok(options)
}

/// The runtime whose threads run queries.
pub(crate) fn runtime(global: &Global) -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads(global))
        .thread_stack_size(THREAD_STACK_BYTES)
        .thread_name("engine")
        .enable_all()
        .build()
        .map_err(|error| Failure::Runtime(format!("cannot start the engine's threads: {error}")))
}

/// `--threads`, or one per core.
pub(crate) fn threads(global: &Global) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    global.threads.map_or_else(cores, usize::from)
}

fn calibration_file(file: &ClusterFile) -> PathBuf {
    file.folder.join("calibration.toml")
}

fn calibration(file: &ClusterFile) -> Result<Calibration, Failure> {
    let path = calibration_file(file);
    if !path.exists() {
        return Ok(Calibration::default());
    }
    let text = fs::read_to_string(&path).map_err(at_path(&path))?;
    Calibration::from_toml(&text).map_err(|error| {
        Failure::Runtime(format!("{}: {error}; measure anew with `rackscan calibrate`", path.display()))
    })
}
