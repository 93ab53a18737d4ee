//! Starts a node to measure IO on, over a file that is created for it and removed afterwards.
//!
//! Invariants
//! - Only folders that this command created, or an earlier one with `--keep`, are written or
//!   removed.
//! - A node with another configuration starts only after the previous one has ended, because a
//!   device has one writer.
//! - The node writes the data before it listens, so the data exists whatever the node's
//!   configuration.

use super::{
    ClusterFile, Lifelines,
    embedded::{free_ports, socket_folder},
    own_folder, start_for_command,
};
use crate::{
    failure::{Failure, at_path},
    private,
};
use rackscan_fabric::ClusterKey;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::{NodeHost, NodeShape, RunningNode};
use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Disk space for labels and the filesystem, in addition to the data.
const MARGIN_BYTES: u64 = 64 << 20;
/// Memory for buffers, inboxes and connections of a node and of each of its serving threads.
const MEMORY_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_PER_SERVING: u64 = 128 << 20;
/// Maximum reads in flight of one serving thread, and of all together: with the bridge `dynamic`,
/// each read is a thread.
const DEPTH: u32 = 1024;
const DEPTH_OF_ALL: u32 = 8192;

/// Where the data goes, and its size.
pub(crate) struct ScratchOptions {
    /// Folder on the disk to measure; created if necessary.
    pub(crate) folder: PathBuf,
    /// Size of the data in bytes.
    pub(crate) file_bytes: u64,
    /// Keep the data for a later command, and reuse what an earlier one left.
    pub(crate) keep: bool,
    /// Page cache of the node in bytes.
    pub(crate) cache_bytes: u64,
    /// Where the node listens for RDMA, as `DEVICE@ADDRESS`.
    pub(crate) verbs: Option<String>,
}

/// A node of this command, restarted for each shape.
pub(crate) struct ScratchNodes {
    root: PathBuf,
    sockets: Option<PathBuf>,
    file_bytes: u64,
    keep: bool,
    cache_bytes: u64,
    verbs: Option<String>,
    key: ClusterKey,
    running: Option<(NodeShape, RunningNode, Lifelines)>,
}

impl ScratchNodes {
    /// Creates the folder and its key, if there is enough space for the data.
    pub(crate) fn create(options: &ScratchOptions) -> Result<Self, Failure> {
        let ScratchOptions { folder, file_bytes, keep, cache_bytes, verbs } = options;
        let folder = own_folder(folder)?;
        let name =
            if *keep { "rackscan-lab".to_owned() } else { format!("rackscan-lab-{}", std::process::id()) };
        let root = folder.join(name);
        let device = root.join("node0/device0");
        let held = fs::metadata(&device).map_or(0, |file| {
            use std::os::unix::fs::MetadataExt as _;
            file.blocks() * 512
        });
        let (needed, free) =
            (file_bytes + MARGIN_BYTES, rackscan_lab::free_bytes(&folder).map_err(at_path(&folder))? + held);
        if free < needed {
            return Err(Failure::Runtime(format!(
                "{}: {free} bytes are free, {needed} are needed (--file-size and a margin); give a smaller --file-size or \
                 another --folder",
                folder.display()
            )));
        }
        fs::create_dir_all(&root).map_err(at_path(&root))?;
        let sockets = socket_folder(&root, u64::from(std::process::id()))?;
        let key = key(&root.join("cluster.key"))?;
        let (file_bytes, keep, cache_bytes, verbs) = (*file_bytes, *keep, *cache_bytes, verbs.clone());
        Ok(Self { root, sockets, file_bytes, keep, cache_bytes, verbs, key, running: None })
    }

    /// The file that the node reads.
    pub(crate) fn device(&self) -> PathBuf {
        self.root.join("node0/device0")
    }

    /// The folder of this command's data.
    pub(crate) fn folder(&self) -> &Path {
        &self.root
    }

    /// Starts the node in this shape, after stopping the previous one.
    pub(crate) fn started(&mut self, shape: &NodeShape) -> Result<RunningNode, Failure> {
        if let Some((running, node, _)) = &self.running
            && running == shape
        {
            return Ok(node.clone());
        }
        self.stop();
        let socket = self.sockets.as_ref().unwrap_or(&self.root).join("socket");
        let port = free_ports("127.0.0.1", 1)?.into_iter().next().unwrap_or_default();
        let path = self.root.join("cluster.toml");
        private::write(&path, &self.text(shape, &socket, port)).map_err(at_path(&path))?;
        let file = ClusterFile::read(&path)?;
        let Some(lifelines) = start_for_command(&file, 0)? else {
            let text = format!("{}: another node listens there", socket.display());
            return Err(Failure::Runtime(text));
        };
        let member = &file.members[0].config;
        let addresses = member.listen.iter().map(|address| (address.wire(), address.clone()));
        let node = RunningNode {
            pid: lifelines.pids().next(),
            node: member.node,
            addresses: addresses.collect(),
            key: self.key.clone(),
            device: Some(self.device()),
            written_bytes: None,
        };
        self.running = Some((*shape, node.clone(), lifelines));
        Ok(node)
    }

    fn text(&self, shape: &NodeShape, socket: &Path, port: u16) -> String {
        let NodeShape { bridge, io, io_threads, serving, pin } = shape;
        let quoted = |text: String| toml::Value::String(text);
        let shm = quoted(format!("shm:{}", socket.display()));
        let verbs = self.verbs.iter().map(|place| format!(", {}", quoted(format!("verbs:{place}:{port}"))));
        let verbs: String = verbs.collect();
        let cache = self.cache_bytes;
        let memory = cache + MEMORY_BYTES + MEMORY_BYTES_PER_SERVING * u64::from(*serving);
        let mut text = format!(
            "# A node of `rackscan lab io`; the file is written anew for each shape.\n\
             cluster = \"rackscan-lab\"\nkey_file = \"cluster.key\"\n\n[[node]]\nnode = 0\ndata_dir = \"node0\"\n\
             devices = [{{ path = \"node0/device0\", size = \"{size}B\" }}]\n\
             listen = [{shm}, \"tcp:127.0.0.1:{port}\"{verbs}]\ncache = \"{cache}B\"\nmemory_budget = \"{memory}B\"\nscratch = \"{scratch}B\"\n\
             scan_workers = 1\nreactor_depth = {depth}\nbridge = \"{bridge}\"\n",
            size = self.file_bytes + MARGIN_BYTES,
            scratch = self.file_bytes,
            depth = DEPTH.min(DEPTH_OF_ALL / u32::from(*serving).max(1)),
        );
        let serving = match bridge {
            BridgeKind::Reactor => format!("io = \"{io}\"\nreactors = {serving}\n"),
            BridgeKind::Static | BridgeKind::Dynamic => format!("pollers = {serving}\n"),
        };
        text.push_str(&serving);
        if *bridge == BridgeKind::Static || (*bridge == BridgeKind::Reactor && *io == IoKind::Pread) {
            text.push_str(&format!("io_threads = {io_threads}\n"));
        }
        if *pin {
            // Threads of this process use cores from the first on, the node's from the last on.
            let mut cores = rackscan_lab::allowed_cores();
            cores.reverse();
            text.push_str(&format!("pin_cores = {cores:?}\n"));
        }
        text
    }

    /// Stops the node, if one runs. Its data stays as long as this value.
    pub(crate) fn stop(&mut self) {
        if let Some((_, _, lifelines)) = self.running.take() {
            lifelines.stop();
        }
    }
}

impl NodeHost for ScratchNodes {
    fn start(&mut self, shape: &NodeShape) -> Result<RunningNode, String> {
        self.started(shape).map_err(|failure| failure.to_string())
    }
}

impl Drop for ScratchNodes {
    fn drop(&mut self) {
        self.stop();
        let mut folders: Vec<&Path> = self.sockets.iter().map(PathBuf::as_path).collect();
        if !self.keep {
            folders.push(&self.root);
        }
        for folder in folders {
            if let Err(error) = fs::remove_dir_all(folder) {
                tracing::warn!("{}: cannot be removed: {error}", folder.display());
            }
        }
    }
}

/// Reads the key of the folder, creating it if necessary.
pub(super) fn key(path: &Path) -> Result<ClusterKey, Failure> {
    if let Ok(text) = fs::read_to_string(path) {
        return text.parse().map_err(|error| Failure::Runtime(format!("{}: {error}", path.display())));
    }
    let key = ClusterKey::generate()
        .map_err(|error| Failure::Runtime(format!("cannot generate the cluster's key: {error}")))?;
    let mut file =
        File::options().create_new(true).write(true).mode(0o600).open(path).map_err(at_path(path))?;
    file.write_all(key.to_hex().as_bytes()).map_err(at_path(path))?;
    Ok(key)
}
