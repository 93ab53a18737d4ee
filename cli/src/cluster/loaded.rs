//! Starts a node for query simulations, and loads TPC-H's lineitem into it for each page size.
//!
//! Invariants
//! - All files are in one folder, which this command creates, and removes when it ends, unless it
//!   is killed.
//! - The node has no page cache: it reads every requested page from its device.
//! - The tables of two page sizes never exist at the same time.

use super::{
    ClusterFile, Lifelines,
    embedded::{free_ports, socket_folder},
    own_folder,
    scratch::key,
    start_for_command,
};
use crate::{
    failure::{Failure, at_path},
    private,
};
use rackscan_client::{Cluster, ClusterOptions, NodeEndpoint};
use rackscan_datasets::{LoadOptions, tpch};
use rackscan_fabric::ClusterKey;
use rackscan_lab::{
    RunningNode,
    query_simulation::{QueryHost, TABLE},
};
use rackscan_storage_node::limits::SCAN_QUEUE_MAX;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::runtime::Runtime;

/// Extra device space for labels, the catalog, and small pages that are padded to whole sectors.
const MARGIN_BYTES: u64 = 256 << 20;
/// Memory for the node's buffers, scans and connections.
const MEMORY_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_PER_CONNECTION: u64 = 4 << 20;
/// How often a load checks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What to load, and where.
pub(crate) struct LoadedOptions {
    /// Folder on the disk to measure; created if necessary.
    pub(crate) folder: PathBuf,
    /// The scale factor.
    pub(crate) scale: f64,
    /// Rows of a segment.
    pub(crate) segment_rows: u32,
    /// Maximum number of connections.
    pub(crate) connections: u32,
    /// Maximum number of threads per connection.
    pub(crate) threads: u32,
    /// Set when the user interrupts the command.
    pub(crate) stop: Arc<AtomicBool>,
}

/// The node and its folder.
pub(crate) struct LoadedNodes {
    options: LoadedOptions,
    root: PathBuf,
    sockets: Option<PathBuf>,
    key: ClusterKey,
    runtime: Runtime,
    running: Option<Lifelines>,
}

impl LoadedNodes {
    /// Creates the folder and its key, if there is enough space for the table.
    pub(crate) fn create(options: LoadedOptions) -> Result<Self, Failure> {
        let folder = &options.folder;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
        let runtime = runtime.map_err(|error| Failure::Runtime(format!("cannot start threads: {error}")))?;
        let folder = own_folder(folder)?;
        let needed = device_bytes(options.scale);
        let free = rackscan_lab::free_bytes(&folder).map_err(at_path(&folder))?;
        if free < needed {
            return Err(Failure::Runtime(format!(
                "{}: {free} bytes are free, {needed} are needed for lineitem at scale factor {}; give a smaller --scale or \
                 another --folder",
                folder.display(),
                options.scale
            )));
        }
        let root = folder.join(format!("rackscan-query-io-{}", std::process::id()));
        fs::create_dir(&root).map_err(at_path(&root))?;
        // From here on, dropping this value removes the folder.
        let mut nodes = Self {
            key: ClusterKey::from_bytes([0; 32]),
            options,
            root,
            sockets: None,
            runtime,
            running: None,
        };
        nodes.sockets = socket_folder(&nodes.root, u64::from(std::process::id()))?;
        nodes.key = key(&nodes.root.join("cluster.key"))?;
        Ok(nodes)
    }

    fn load_anew(&mut self, page_size_bytes: u32) -> Result<RunningNode, Failure> {
        self.stop();
        let data = self.root.join("node0");
        if data.exists() {
            fs::remove_dir_all(&data).map_err(at_path(&data))?;
        }
        let socket = self.sockets.as_ref().unwrap_or(&self.root).join("socket");
        let port = free_ports("127.0.0.1", 1)?.into_iter().next().unwrap_or_default();
        let path = self.root.join("cluster.toml");
        private::write(&path, &self.text(&socket, port)).map_err(at_path(&path))?;
        let file = ClusterFile::read(&path)?;
        let Some(lifelines) = start_for_command(&file, 0)? else {
            return Err(Failure::Runtime(format!("{}: another node listens there", socket.display())));
        };
        let member = &file.members[0].config;
        let addresses = member.listen.iter().map(|address| (address.wire(), address.clone()));
        let node = RunningNode {
            pid: lifelines.pids().next(),
            node: member.node,
            addresses: addresses.collect(),
            key: self.key.clone(),
            device: Some(data.join("device0")),
            written_bytes: None,
        };
        self.running = Some(lifelines);
        self.fill(&node, page_size_bytes)?;
        Ok(node)
    }

    /// Loads the table. Stops early, with an error that nobody reads, when the user interrupts it.
    fn fill(&self, node: &RunningNode, page_size_bytes: u32) -> Result<(), Failure> {
        let LoadedOptions { scale, segment_rows, stop, .. } = &self.options;
        let addresses = node.addresses.iter().map(|(_, address)| address.clone()).collect();
        let endpoint = NodeEndpoint { id: node.node, addresses };
        let load = LoadOptions {
            page_size: page_size_bytes,
            segment_rows: *segment_rows,
            spill_folder: self.root.clone(),
            ..LoadOptions::default()
        };
        self.runtime.block_on(async {
            let cluster = Cluster::connect(ClusterOptions::new(vec![endpoint], node.key.clone())).await?;
            let loading = tpch::load_some(&cluster, *scale, &[TABLE], &[], &load, &|_| ());
            tokio::select! {
                loaded = loading => loaded.map(drop).map_err(Failure::from),
                () = stopped(stop) => Err(Failure::Runtime("stopped while a table was loaded".to_owned())),
            }
        })
    }

    fn text(&self, socket: &Path, port: u16) -> String {
        let shm = toml::Value::String(format!("shm:{}", socket.display()));
        let LoadedOptions { connections, threads, .. } = &self.options;
        let memory = MEMORY_BYTES + MEMORY_BYTES_PER_CONNECTION * u64::from(*connections);
        // Every thread may have a scan waiting for a worker: a refused client would only retry.
        let waiting = (connections * threads).clamp(32, u32::from(SCAN_QUEUE_MAX));
        format!(
            "# A node of `rackscan lab query-io`.\n\
             cluster = \"rackscan-query-io\"\nkey_file = \"cluster.key\"\n\n[[node]]\nnode = 0\ndata_dir = \"node0\"\n\
             devices = [{{ path = \"node0/device0\", size = \"{size}B\" }}]\n\
             listen = [{shm}, \"tcp:127.0.0.1:{port}\"]\nmemory_budget = \"{memory}B\"\ncache = \"0\"\n\
             scan_queue = {waiting}\n",
            size = device_bytes(self.options.scale),
        )
    }

    fn stop(&mut self) {
        if let Some(lifelines) = self.running.take() {
            lifelines.stop();
        }
    }
}

/// Completes when the flag is set.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Device size for lineitem in pages of any size: encoded rows are smaller than their text, before
/// padding.
fn device_bytes(scale: f64) -> u64 {
    // Devices are whole mebibytes.
    (tpch::raw_bytes(scale) + MARGIN_BYTES).next_multiple_of(1 << 20)
}

impl QueryHost for LoadedNodes {
    fn load(&mut self, page_size_bytes: u32) -> Result<RunningNode, String> {
        self.load_anew(page_size_bytes).map_err(|failure| failure.to_string())
    }
}

impl Drop for LoadedNodes {
    fn drop(&mut self) {
        self.stop();
        for folder in self.sockets.iter().chain([&self.root]) {
            if let Err(error) = fs::remove_dir_all(folder) {
                tracing::warn!("{}: cannot be removed: {error}", folder.display());
            }
        }
    }
}
