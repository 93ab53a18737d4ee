//! Starts a cluster of real node processes, and can kill, stop, cut off, wipe and repair its nodes.
//!
//! Invariants
//! - Nodes end with this process, however it ends: the standard input of each is a pipe from it.
//! - Clients cannot start nodes: the cluster's file says that all of them run on another host.
//! - At the end no process runs, nothing is mounted, and no network namespace is left.

use super::{
    disk::Disk,
    network::Network,
    planted::Defect,
    process::{Reach, Skew, end, give_clock, in_namespace},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fmt::Write as _,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

const START_TIME_MAX: Duration = Duration::from_secs(60);
const DISK_BYTES: u64 = 96 << 20;
/// Below the ephemeral ports of the kernel.
const PORT_FIRST: u16 = 7500;

/// Environments of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Over shared memory.
    Memory,
    /// Over tcp, with a network namespace for each node.
    Network,
    /// Over shared memory, with a filesystem for the folder of each node.
    Disks,
}

pub(crate) struct Node {
    child: Option<Child>,
    is_paused: bool,
    pub(crate) skew: Option<Skew>,
}

pub(crate) struct Cluster {
    folder: PathBuf,
    pub(crate) nodes: Vec<Node>,
    number: u64,
    network: Option<Network>,
    disks: Vec<Disk>,
    /// The order of the configuration's entries, and their values.
    order: Vec<usize>,
    cache_mib: u64,
    /// A defect of its clients, in tests of these tests.
    pub(crate) defect: Option<Arc<Defect>>,
}

impl Cluster {
    /// Creates and starts a cluster, or says what this stage lacks.
    pub(crate) fn new(folder: &Path, nodes: usize, stage: Stage, number: u64) -> Result<Self, String> {
        let network = if stage == Stage::Network { Some(Network::new(nodes)?) } else { None };
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut cluster = Self {
            folder: folder.to_owned(),
            nodes: (0..nodes).map(|_| Node { child: None, is_paused: false, skew: None }).collect(),
            number,
            network,
            disks: Vec::new(),
            order: (0..nodes).collect(),
            cache_mib: 8,
            defect: None,
        };
        if stage == Stage::Disks {
            for node in 0..nodes {
                let (image, at) = (folder.join(format!("disk{node}.image")), cluster.folder_of(node));
                cluster.disks.push(Disk::new(image, at, DISK_BYTES)?);
            }
        }
        let key = format!("{:064x}", u128::from(number) << 32 | 0x5eed);
        fs::write(folder.join("cluster.key"), key).expect("a key");
        fs::set_permissions(folder.join("cluster.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("a private key");
        cluster.configure();
        (0..nodes).for_each(|node| cluster.start(node));
        (0..nodes).try_for_each(|node| cluster.wait_until_ready(node))?;
        Ok(cluster)
    }

    pub(crate) fn reach(&self) -> Reach {
        Reach {
            data: self.folder.clone(),
            namespace: self.network.as_ref().map(Network::clients),
            defect: self.defect.clone(),
        }
    }

    pub(crate) fn folder_of(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node{node}"))
    }

    fn log_of(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node{node}.log"))
    }

    pub(crate) fn device_of(&self, node: usize) -> PathBuf {
        self.folder_of(node).join("device0")
    }

    pub(crate) fn configuration(&self) -> PathBuf {
        self.folder.join("cluster.toml")
    }

    /// Writes the cluster's file.
    pub(crate) fn configure(&self) {
        fs::write(self.configuration(), self.text()).expect("a file");
    }

    fn text(&self) -> String {
        let mut text = format!("cluster = {}\nkey_file = \"cluster.key\"\n", self.number >> 8);
        for node in &self.order {
            let listen = match &self.network {
                None => format!("shm:node{node}.socket"),
                Some(_) => format!("tcp:{}:{PORT_FIRST}", Network::address(*node)),
            };
            let _ = write!(
                text,
                "\n[[node]]\nnode = {node}\nhost = \"not this one\"\ndata_dir = \"node{node}\"\nlisten = [\"{listen}\"]\n\
                 devices = [{{ path = \"node{node}/device0\", size = \"64MiB\" }}]\nmemory_budget = \"192MiB\"\n\
                 transactions = \"32MiB\"\ncache = \"{}MiB\"\n",
                self.cache_mib
            );
        }
        text
    }

    /// Edits the file without changing its meaning.
    pub(crate) fn edit_harmlessly(&mut self, random: &mut fastrand::Rng) {
        random.shuffle(&mut self.order);
        self.cache_mib = random.u64(4..16);
        self.configure();
    }

    /// Removes a node from the file that clients and newly started nodes read.
    pub(crate) fn edit_members(&mut self, node: usize) {
        self.order.retain(|other| *other != node);
        self.configure();
    }

    /// Puts all nodes into the file.
    pub(crate) fn restore_members(&mut self) {
        if self.order.len() < self.nodes.len() {
            self.order = (0..self.nodes.len()).collect();
            self.configure();
        }
    }

    /// Starts a node; [`Self::wait_until_ready`] says when it can be reached.
    pub(crate) fn start(&mut self, node: usize) {
        if self.nodes[node].child.is_some() {
            return;
        }
        // A node refuses to start with another list of nodes, which another test covers.
        self.restore_members();
        let log = File::options().create(true).append(true).open(self.log_of(node)).expect("a log");
        let _ = fs::remove_file(self.folder.join(format!("node{node}.socket")));
        let namespace = self.network.as_ref().map(|network| network.node(node));
        let mut command = in_namespace(namespace.as_deref());
        give_clock(&mut command, self.nodes[node].skew.as_ref());
        command.arg("node").arg("--config").arg(self.configuration()).args([
            "--id",
            &node.to_string(),
            "--lifeline",
        ]);
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).spawn().expect("a node starts");
        self.nodes[node].child = Some(child);
    }

    /// Waits until a node that was started says that it is ready.
    pub(crate) fn wait_until_ready(&mut self, node: usize) -> Result<(), String> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            let pid = self.nodes[node].child.as_ref().map_or(0, Child::id);
            if self.is_listening(node) {
                return Ok(());
            }
            self.check_runs(node)?;
            if Instant::now() > deadline {
                return Err(format!("node {node} (process {pid}) does not listen after {START_TIME_MAX:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// An error with a node's last message, if the node has ended.
    fn check_runs(&mut self, node: usize) -> Result<(), String> {
        if let Some(child) = &mut self.nodes[node].child
            && let Ok(Some(status)) = child.try_wait()
        {
            let log = fs::read_to_string(self.log_of(node)).unwrap_or_default();
            self.nodes[node].child = None;
            return Err(format!("node {node} ended ({status}): {}", log.lines().last().unwrap_or_default()));
        }
        Ok(())
    }

    /// Waits until a listening node has connected to the others: they keep replicas of its log, and
    /// it of theirs.
    pub(crate) fn wait_until_met(&mut self, node: usize) -> Result<(), String> {
        let deadline = Instant::now() + START_TIME_MAX;
        let words = ["cluster", "status", "--format", "ndjson"].map(str::to_owned);
        loop {
            self.check_runs(node)?;
            let out = self.reach().run(&words, None, None).out;
            let rows = out.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            let rows: Vec<serde_json::Value> = rows.collect();
            let has_met = |row: &serde_json::Value| row["state"] == "up" && row["log copies"] == 2;
            if rows.len() == self.nodes.len() && rows.iter().all(has_met) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("node {node} has not met the others after {START_TIME_MAX:?}: {out}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether a node accepts connections. In a network namespace this checks for a listening
    /// socket, otherwise it connects.
    fn is_listening(&self, node: usize) -> bool {
        let Some(pid) = self.nodes[node].child.as_ref().map(Child::id) else { return false };
        if self.network.is_none() {
            return std::os::unix::net::UnixStream::connect(self.folder.join(format!("node{node}.socket")))
                .is_ok();
        }
        // `ip` becomes the node; before that its network is this process's, where nobody listens on
        // the port in the state 0A.
        let sockets = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
        let port = format!(":{PORT_FIRST:04X} ");
        sockets.lines().any(|line| line.contains(&port) && line.contains(" 0A "))
    }

    fn signal(&self, node: usize, signal: Signal) {
        let pid =
            self.nodes[node].child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        if let Some(pid) = pid {
            kill_process(pid, signal).expect("a child can be signalled");
        }
    }

    /// Kills a node, like a power cut of its process.
    pub(crate) fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].child.take() {
            end(&mut child);
        }
        self.nodes[node].is_paused = false;
    }

    pub(crate) fn pause(&mut self, node: usize) {
        self.signal(node, Signal::STOP);
        self.nodes[node].is_paused = true;
    }

    pub(crate) fn resume(&mut self, node: usize) {
        if std::mem::take(&mut self.nodes[node].is_paused) {
            self.signal(node, Signal::CONT);
        }
    }

    /// Deletes all data of a node that does not run.
    pub(crate) fn wipe(&self, node: usize) {
        assert!(self.nodes[node].child.is_none(), "only the folder of a node that does not run is deleted");
        // The folder itself may be a mount point.
        for entry in fs::read_dir(self.folder_of(node)).into_iter().flatten().flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if path.file_name().is_some_and(|name| name != "lost+found") {
                removed.expect("what a node has can be deleted");
            }
        }
    }

    /// Copies all data of a node that does not run.
    pub(crate) fn save(&self, node: usize) {
        copy(&self.folder_of(node), &self.folder.join(format!("saved{node}")));
    }

    /// Replaces the node's data by that copy.
    pub(crate) fn restore(&self, node: usize) {
        self.wipe(node);
        copy(&self.folder.join(format!("saved{node}")), &self.folder_of(node));
    }

    pub(crate) fn network(&mut self) -> Option<&mut Network> {
        self.network.as_mut()
    }

    pub(crate) fn disk(&self, node: usize) -> Option<&Disk> {
        self.disks.get(node)
    }

    /// The last lines that nodes have logged.
    pub(crate) fn last_logged(&self, lines: usize) -> String {
        let mut text = String::new();
        for node in 0..self.nodes.len() {
            let log = fs::read_to_string(self.log_of(node)).unwrap_or_default();
            let all: Vec<&str> = log.lines().collect();
            let _ = writeln!(
                text,
                "-- node {node} logged last:\n{}",
                all[all.len().saturating_sub(lines)..].join("\n")
            );
        }
        text
    }
}

/// Copies a folder recursively, and keeps holes of files.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to.join("copies"));
    fs::create_dir_all(to).expect("a folder");
    let status =
        std::process::Command::new("cp").args(["-a", "--sparse=always"]).arg(from.join(".")).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "cp -a {} {}", from.display(), to.display());
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in 0..self.nodes.len() {
            self.kill(node);
        }
        self.disks.clear();
        self.network = None;
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{} stays: {error}", self.folder.display());
        }
    }
}
