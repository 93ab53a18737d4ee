//! Starts and ends storage nodes as processes of this host.
//!
//! Invariants
//! - A node is this program, run as `rackscan node`. Its output is appended to `node.log` in its
//!   folder.
//! - A node of this host runs if and only if its data folder is locked. Other processes that listen
//!   at its addresses do not count.
//! - A node that was started for a command ends when its standard input closes, so it cannot
//!   outlive the command.
//! - If a node ends while it starts, the error quotes the last line of its log.

use super::{ClusterFile, Member, members};
use crate::{
    failure::{Failure, at_path},
    private,
};
use rackscan_fabric::ConnectError;
use rackscan_format::ids::NodeId;
use rackscan_storage_node::{FolderOwner, IdentityFile, folder_owner};
use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Maximum time for a node to start, including the creation of its device files.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Creating a scratch area extends that time by one second for each of these bytes, enough for a
/// slow disk.
const SCRATCH_BYTES_PER_S: u64 = 64 << 20;
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the process of a killed node may take to disappear.
pub(crate) const ENDING_TIME_MAX: Duration = Duration::from_secs(1);
const POLL_EVERY: Duration = Duration::from_millis(5);
/// How long to wait for nodes of an ended command while some of the nodes still listen.
const SOME_LISTEN_TIME_MAX: Duration = Duration::from_millis(500);
/// Timeout of a connection attempt: a refusal arrives at once, so a node that takes longer is
/// listening.
const REFUSAL_TIME_MAX: Duration = Duration::from_millis(200);
const PROBE_TIME_MAX: Duration = Duration::from_secs(2);
/// Prefix of the log line that marks each start.
const LOG_START: &str = "-- ";

/// Node processes that end when this value is dropped.
pub(crate) struct Lifelines {
    children: Vec<(u16, Child)>,
}

impl Lifelines {
    /// The process ids of the nodes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.children.iter().map(|(_, child)| child.id())
    }

    /// Describes a node that has ended by itself; `None` while all run.
    pub(crate) fn ended(&mut self, file: &ClusterFile) -> Option<String> {
        let ended = |(id, child): &mut (u16, Child)| Some((*id, child.try_wait().ok().flatten()?));
        let (id, status) = self.children.iter_mut().find_map(ended)?;
        let member = file.members_here().find(|member| member.config.node.0 == id);
        let last = member.map_or_else(String::new, |member| format!(": {}", last_logged(member)));
        Some(format!("node {id} has ended ({status}){last}"))
    }

    /// Kills a node, as a crash would end it, and waits for its end.
    pub(crate) fn kill(&mut self, node: u16) -> Result<(), Failure> {
        let Some((_, child)) = self.children.iter_mut().find(|(id, _)| *id == node) else {
            return Err(Failure::Runtime(format!("node {node} was not started by this command")));
        };
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(drop).map_err(|error| Failure::Runtime(format!("cannot kill node {node}: {error}")))
    }

    /// Restarts a node that has ended; returns when it is reachable.
    pub(crate) fn start_again(&mut self, file: &ClusterFile, node: u16) -> Result<(), Failure> {
        let member = file.members_here().find(|member| member.config.node.0 == node);
        let place = self.children.iter_mut().find(|(id, _)| *id == node);
        let (Some(member), Some((_, child))) = (member, place) else {
            return Err(Failure::Runtime(format!("node {node} was not started by this command")));
        };
        *child = spawn(file, member, Lifetime::OfCommand)?;
        wait_until_ready(member, child)
    }

    /// Stops the nodes and waits for them.
    pub(crate) fn stop(mut self) {
        // Closes all pipes first, so that the nodes end in parallel.
        for (_, child) in &mut self.children {
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + STOP_TIME_MAX;
        for (id, child) in &mut self.children {
            loop {
                match child.try_wait() {
                    Ok(Some(_)) => break,
                    Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_EVERY),
                    _ => {
                        tracing::warn!("node {id} does not stop in time: killing its process {}", child.id());
                        if let Err(error) = child.kill().and_then(|()| child.wait().map(drop)) {
                            tracing::warn!("cannot kill node {id}: {error}");
                        }
                        break;
                    }
                }
            }
        }
    }
}

/// Starts this host's nodes for the time of a command, unless one of them runs already. Up to
/// `unavailable_max` nodes may fail to start; they are logged and count as unavailable.
pub(crate) fn start_for_command(
    file: &ClusterFile,
    unavailable_max: u8,
) -> Result<Option<Lifelines>, Failure> {
    let here: Vec<&Member> = file.members_here().collect();
    wait_for_ending(file, &here);
    if here.is_empty() || here.iter().any(|node| is_running(file, node)) {
        here.iter().filter_map(|node| outdated(node)).for_each(|outdated| note!("{outdated}"));
        return Ok(None);
    }
    let mut started = Lifelines { children: Vec::with_capacity(here.len()) };
    for node in &here {
        match spawn(file, node, Lifetime::OfCommand) {
            Ok(child) => started.children.push((node.config.node.0, child)),
            Err(failure) => {
                started.stop();
                return Err(failure);
            }
        }
    }
    let mut failed = Vec::new();
    for (node, (id, child)) in here.iter().zip(&mut started.children) {
        if let Err(failure) = wait_until_ready(node, child) {
            failed.push((*id, failure));
        }
    }
    if failed.len() > unavailable_max.into() {
        started.stop();
        let (_, first) = failed.swap_remove(0);
        failed.iter().for_each(|(_, other)| tracing::warn!("{other}"));
        return Err(first);
    }
    // A node that did not become ready in time must not join later, when the others have continued
    // without it.
    for (id, failure) in failed {
        tracing::warn!("{failure}");
        started.kill(id)?;
        started.children.retain(|(started, _)| *started != id);
    }
    Ok(Some(started))
}

/// Starts this host's nodes that do not run yet and leaves them running. Returns the ids of those
/// started, and the errors of the others: a failed start does not prevent the others.
pub(crate) fn start_to_stay(file: &ClusterFile) -> (Vec<u16>, Vec<Failure>) {
    let (mut started, mut failed) = (Vec::new(), Vec::new());
    for node in file.members_here().filter(|node| !is_running(file, node)) {
        let ready =
            spawn(file, node, Lifetime::Independent).and_then(|mut child| wait_until_ready(node, &mut child));
        match ready {
            Ok(()) => started.push(node.config.node.0),
            Err(failure) => failed.push(failure),
        }
    }
    (started, failed)
}

/// What to do about a node that does not run because its folder was found to be outdated.
pub(crate) fn outdated(node: &Member) -> Option<String> {
    let identity = IdentityFile::read(&node.config.data_dir).ok().flatten()?;
    let (reason, id) = (identity.outdated()?, node.config.node);
    let folder = node.config.data_dir.display();
    owner(node).is_none().then(|| {
        format!("node {id} does not run: {folder} is outdated ({reason}); run `rackscan rebuild {id}`")
    })
}

/// Starts one of this host's nodes and leaves it running, if others run and it does not.
pub(crate) fn start_one(file: &ClusterFile, node: NodeId) -> Result<(), Failure> {
    let (asked, others): (Vec<&Member>, Vec<&Member>) =
        file.members_here().partition(|member| member.config.node == node);
    for member in asked.into_iter().filter(|member| !is_running(file, member)) {
        if others.iter().any(|other| is_running(file, other)) {
            wait_until_ready(member, &mut spawn(file, member, Lifetime::Independent)?)?;
        }
    }
    Ok(())
}

/// The process that runs a node over its data folder on this host, if there is one.
pub(crate) fn owner(node: &Member) -> Option<FolderOwner> {
    folder_owner(&node.config.data_dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "whether the node runs is not known");
        None
    })
}

/// The command that started nodes of this host that end with it: its process id and arguments.
/// `None` if no node runs here, those that run were started to stay, or the command is gone.
pub(crate) fn embedding_command(file: &ClusterFile) -> Option<(u32, String)> {
    find_embedding_command(file)?;
    // The nodes of a command that was killed are about to end.
    wait_for_ending(file, &file.members_here().collect::<Vec<_>>());
    find_embedding_command(file)
}

fn find_embedding_command(file: &ClusterFile) -> Option<(u32, String)> {
    file.members_here().find_map(|node| {
        let pid = owner(node)?.process_id?;
        let arguments = arguments_of(pid)?;
        if !arguments.iter().any(|argument| argument == LIFELINE) {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
        // The parent of a node whose command was killed is another program.
        let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        (program(parent)? == program(pid)?).then_some(())?;
        Some((parent, arguments_of(parent)?.join(" ")))
    })
}

fn arguments_of(pid: u32) -> Option<Vec<String>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    Some(line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// Waits for nodes of a command that has just ended: they no longer listen, but still hold the
/// locks of their folders.
fn wait_for_ending(file: &ClusterFile, here: &[&Member]) {
    let began = Instant::now();
    loop {
        let owned: Vec<&&Member> = here.iter().filter(|node| owner(node).is_some()).collect();
        // Probes in parallel, because a probe of a node that hangs takes its whole timeout.
        let ending = std::thread::scope(|scope| {
            let probes: Vec<_> =
                owned.iter().map(|node| scope.spawn(|| listens_no_more(file, node))).collect();
            let ended = probes.into_iter().map(|probe| probe.join().expect("a probe does not panic"));
            ended.filter(|is_ending| *is_ending).count()
        });
        // If some still listen, they may run for long: wait only briefly.
        let patience = if ending < owned.len() { SOME_LISTEN_TIME_MAX } else { STOP_TIME_MAX };
        if ending == 0 || began.elapsed() > patience {
            return;
        }
        std::thread::sleep(POLL_EVERY);
    }
}

/// Whether nobody listens at any of the node's addresses. A node that hangs still listens.
fn listens_no_more(file: &ClusterFile, node: &Member) -> bool {
    let Ok(key) = file.key() else { return false };
    let key = key.of_node(node.config.node.0);
    node.config.listen.iter().all(|address| {
        let connected = rackscan_fabric::connect(address, &key, Instant::now() + REFUSAL_TIME_MAX);
        matches!(connected, Err(ConnectError::Refused { .. } | ConnectError::HungUp { .. }))
    })
}

/// Whether the node proves its identity at one of its addresses.
fn is_listening(file: &ClusterFile, node: &Member) -> bool {
    let Ok(key) = file.key() else { return false };
    let key = key.of_node(node.config.node.0);
    let until = Instant::now() + PROBE_TIME_MAX;
    node.config.listen.iter().any(|address| rackscan_fabric::connect(address, &key, until).is_ok())
}

/// Whether the node runs. If its folder on this host holds no data, the node may run on another
/// host: then it has to prove its identity at one of its addresses.
pub(crate) fn is_running(file: &ClusterFile, node: &Member) -> bool {
    if owner(node).is_some() {
        return true;
    }
    if members::has_data(node) {
        return false;
    }
    is_listening(file, node)
}

/// Waits until the node no longer runs. Returns whether it ended within `time_max`.
pub(crate) fn wait_until_gone(file: &ClusterFile, node: &Member, time_max: Duration) -> bool {
    let deadline = Instant::now() + time_max;
    while is_running(file, node) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL_EVERY);
    }
    true
}

/// The flag of a node that ends with the command that started it.
const LIFELINE: &str = "--lifeline";

/// How long a node's process runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// Until the command that started it ends.
    OfCommand,
    /// Until it is stopped.
    Independent,
}

fn log_path(node: &Member) -> PathBuf {
    node.config.data_dir.join("node.log")
}

fn spawn(file: &ClusterFile, node: &Member, lifetime: Lifetime) -> Result<Child, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Runtime(format!("cannot find the file of this program: {error}")))?;
    let log_path = log_path(node);
    let folder = node.config.data_dir.clone();
    private::make_folder(&folder).map_err(at_path(&folder))?;
    let mut log = private::options().append(true).open(&log_path).map_err(at_path(&log_path))?;
    let (version, us) = (env!("CARGO_PKG_VERSION"), std::process::id());
    // A log that cannot be written must not keep the node from starting.
    let _ = writeln!(log, "{LOG_START}rackscan {version}, started by process {us}");
    let mut command = Command::new(program);
    command.arg("node").arg("--config").arg(&file.path).args(["--id", &node.config.node.0.to_string()]);
    command.arg("--log-file").arg(&log_path);
    // A process group of its own: Ctrl-C reaches only the command, which then ends its nodes.
    command.process_group(0).stdout(Stdio::null()).stderr(log);
    match lifetime {
        Lifetime::OfCommand => command.arg(LIFELINE).stdin(Stdio::piped()),
        Lifetime::Independent => command.stdin(Stdio::null()),
    };
    command
        .spawn()
        .map_err(|error| Failure::Runtime(format!("cannot start node {}: {error}", node.config.node.0)))
}

/// The last line that a node logged.
fn last_logged(node: &Member) -> String {
    let text = fs::read_to_string(log_path(node)).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let last = last.filter(|line| !line.starts_with(LOG_START)).unwrap_or("it logged nothing");
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

fn wait_until_ready(node: &Member, child: &mut Child) -> Result<(), Failure> {
    let filling_s = node.config.scratch.map_or(0, |scratch| scratch.0 / SCRATCH_BYTES_PER_S);
    let start_time_max = START_TIME_MAX + Duration::from_secs(filling_s);
    let deadline = Instant::now() + start_time_max;
    loop {
        let process_id = Some(child.id());
        if owner(node).is_some_and(|owner| owner.is_ready && owner.process_id == process_id) {
            return Ok(());
        }
        let log = log_path(node);
        if let Ok(Some(status)) = child.try_wait() {
            let (id, last) = (node.config.node.0, last_logged(node));
            return Err(Failure::Runtime(format!("node {id} did not start ({status}): {last}")));
        }
        if Instant::now() > deadline {
            let seconds = start_time_max.as_secs();
            return Err(Failure::Runtime(format!(
                "node {} did not listen within {seconds} s; see {}",
                node.config.node.0,
                log.display()
            )));
        }
        std::thread::sleep(POLL_EVERY);
    }
}
