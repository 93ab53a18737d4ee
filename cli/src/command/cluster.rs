//! `rackscan cluster start|stop|status`: starts and stops the storage nodes of this host, and shows
//! the status of all.

use crate::{
    args::{Cluster, Format, Global},
    cluster::{
        ClusterFile, ENDING_TIME_MAX, Member, STARTING_LOCK, STOP_TIME_MAX, Shape, check_members,
        embedding_command, find_or_create_shaped, is_running, lock, outdated, owner, start_to_stay,
        wait_until_gone,
    },
    failure::Failure,
    output::{Cell, TextTable, count_of, print_text},
    session::runtime,
};
use rackscan_client::{ClientError, ClusterOptions};
use rackscan_format::{ids::NodeId, message::NodeStatus};
use std::{
    fs::File,
    time::{Duration, Instant},
};

/// How long started nodes may take until they accept transactions.
const TRANSACTIONS_TIME_MAX: Duration = Duration::from_secs(10);
const TRANSACTIONS_POLL_EVERY: Duration = Duration::from_millis(50);

/// Runs the subcommand.
pub(crate) fn run(global: &Global, cluster: &Cluster) -> Result<(), Failure> {
    match cluster {
        Cluster::Start { nodes, devices, device_size } => {
            let shape = Shape { nodes: *nodes, devices: *devices, device_size: device_size.clone() };
            start(global, &shape)
        }
        Cluster::Stop { node } => stop(global, *node),
        Cluster::Status { format } => status(global, *format),
    }
}

pub(super) fn existing(global: &Global) -> Result<ClusterFile, Failure> {
    ClusterFile::find(global)?.ok_or_else(|| {
        let data = global.data.display();
        Failure::Runtime(format!(
            "there is no cluster in {data}: create one with `rackscan cluster start`, or name another folder with --data"
        ))
    })
}

fn start(global: &Global, shape: &Shape) -> Result<(), Failure> {
    let file = find_or_create_shaped(global, shape)?;
    // Only one command at a time starts nodes.
    let _starting = lock(&file.folder, STARTING_LOCK, File::lock)?;
    check_members(&file, None)?;
    if let Some((process, command)) = embedding_command(&file) {
        let folder = file.folder.display();
        return Err(Failure::Runtime(format!(
            "the nodes of {folder} were started by another command and end with it (process {process}: {command}): end it, then run `rackscan cluster start` again"
        )));
    }
    let (started, failed) = start_to_stay(&file);
    let running = file.members_here().count() - started.len() - failed.len();
    note!("started {}, {running} ran already ({})", count_of(started.len(), "node"), file.path.display());
    if failed.is_empty() {
        wait_for_transactions(global, &file)?;
        let outdated: Vec<String> = file.members_here().filter_map(outdated).collect();
        outdated.iter().for_each(|outdated| note!("{outdated}"));
        let (found, all) = (outdated.len(), file.members_here().count());
        let told = (found == 0).then_some(());
        return told.ok_or_else(|| {
            Failure::Runtime(format!("{found} of {} have ended; see above", count_of(all, "node")))
        });
    }
    failed.iter().for_each(|failure| note!("{failure}"));
    Err(Failure::Runtime(format!(
        "{} of {} did not start, see above: if the disk of a node is full, free some space; if its devices are lost, `rackscan rebuild NODE --onto FOLDER` creates new ones and rebuilds its tables",
        failed.len(),
        count_of(file.members_here().count(), "node")
    )))
}

/// Waits until the nodes accept transactions: after their start they agree which log replicas are
/// valid. Returns at once if a node does not answer, because nodes of other hosts may still be
/// unavailable.
fn wait_for_transactions(global: &Global, file: &ClusterFile) -> Result<(), Failure> {
    let runtime = runtime(global)?;
    let began = Instant::now();
    loop {
        let statuses = ask_all(file, &runtime, global)?;
        let refusing = statuses.iter().flatten().find(|status| status.participant_refuses.is_some());
        let Some(refusing) = refusing.filter(|_| statuses.iter().all(Result::is_ok)) else { return Ok(()) };
        if began.elapsed() > TRANSACTIONS_TIME_MAX {
            let refusal = refusing.participant_refuses.as_deref().unwrap_or_default();
            note!("node {}: transactions: {refusal}", refusing.node);
            return Ok(());
        }
        std::thread::sleep(TRANSACTIONS_POLL_EVERY);
    }
}

fn stop(global: &Global, only: Option<u16>) -> Result<(), Failure> {
    let file = existing(global)?;
    let asked: Vec<&Member> =
        file.members_here().filter(|member| only.is_none_or(|node| member.config.node.0 == node)).collect();
    if let Some(node) = only.filter(|_| asked.is_empty()) {
        let path = file.path.display();
        return Err(Failure::Usage(format!("{path} has no node {node} that this host runs")));
    }
    let runtime = runtime(global)?;
    let (mut stopped, mut failed) = (0, Vec::new());
    for member in asked.iter().filter(|member| is_running(&file, member)) {
        let process = owner(member).and_then(|owner| owner.process_id);
        let id = member.config.node;
        let told: Result<(), Failure> = runtime.block_on(async {
            connect_one(&file, member, global).await?.stop(id).await.map_err(Failure::from)
        });
        let end = process.map_or_else(String::new, |process| format!("; `kill {process}` ends its process"));
        match told {
            Ok(()) if wait_until_gone(&file, member, STOP_TIME_MAX) => stopped += 1,
            Ok(()) => {
                failed.push(format!("node {id} was asked to stop and still runs; see its node.log{end}"))
            }
            // The node was already ending, or was just killed.
            Err(_) if wait_until_gone(&file, member, ENDING_TIME_MAX) => stopped += 1,
            Err(failure) => failed.push(format!("node {id} was not stopped: {failure}{end}")),
        }
    }
    note!("stopped {stopped} of {}", count_of(asked.len(), "node"));
    if failed.is_empty() {
        return Ok(());
    }
    failed.iter().for_each(|failure| note!("{failure}"));
    Err(Failure::Runtime(format!(
        "{} of {} still run; see above",
        failed.len(),
        count_of(asked.len(), "node")
    )))
}

pub(super) async fn connect_one(
    file: &ClusterFile,
    member: &Member,
    global: &Global,
) -> Result<rackscan_client::Cluster, Failure> {
    Ok(rackscan_client::Cluster::connect(options_of_one(file, member, global)?).await?)
}

/// Options of a connection to one node.
fn options_of_one(file: &ClusterFile, member: &Member, global: &Global) -> Result<ClusterOptions, Failure> {
    let endpoint =
        file.endpoints().into_iter().filter(|endpoint| endpoint.id == member.config.node).collect();
    let mut options = ClusterOptions::new(endpoint, file.key()?);
    options.wire = global.wire;
    options.memory_bytes = rackscan_client::limits::MEMORY_BYTES_MIN;
    // This connection does not fetch pages.
    options.reads_caches = false;
    options.members = file.members.iter().map(|member| member.config.node).collect();
    Ok(options)
}

fn status(global: &Global, format: Format) -> Result<(), Failure> {
    let file = existing(global)?;
    // Without the key no node can be asked; that says nothing about the nodes.
    file.key()?;
    let runtime = runtime(global)?;
    let mut table = TextTable::new(&COLUMNS);
    let mut down = 0;
    for (member, asked) in file.members.iter().zip(ask_all(&file, &runtime, global)?) {
        let address = member.config.listen.first().map(ToString::to_string).unwrap_or_default();
        match asked {
            Ok(status) => {
                if let Some(refuses) = &status.participant_refuses {
                    note!("node {}: transactions: {refuses}", member.config.node);
                }
                table.push(row(&status, address));
            }
            Err(failure) => {
                down += 1;
                let mut cells =
                    vec![Cell::from(usize::from(member.config.node.0)), Cell::from("down"), address.into()];
                cells.resize_with(table.columns(), || Cell::from(""));
                table.push(cells);
                note!("node {}: {failure}", member.config.node);
            }
        }
    }
    print_text(&table.render(format))?;
    if down > 0 {
        let all = file.members.len();
        return Err(Failure::Runtime(format!(
            "{down} of {all} nodes cannot be reached; `rackscan cluster start`"
        )));
    }
    Ok(())
}

/// The status of each node. All are asked in parallel, because a stopped node answers only after
/// the connection timeout.
///
/// # Errors
/// Nodes that record other members than the file lists.
fn ask_all(
    file: &ClusterFile,
    runtime: &tokio::runtime::Runtime,
    global: &Global,
) -> Result<Vec<Result<NodeStatus, ClientError>>, Failure> {
    let ask = |options: ClusterOptions, node: NodeId| {
        runtime.block_on(async { rackscan_client::Cluster::connect(options).await?.status(node).await })
    };
    let options: Vec<_> = file
        .members
        .iter()
        .map(|member| Ok((options_of_one(file, member, global)?, member.config.node)))
        .collect::<Result<_, Failure>>()?;
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            options.into_iter().map(|(options, node)| scope.spawn(move || ask(options, node))).collect();
        let answers = asked.into_iter().map(|thread| thread.join());
        answers.map(|answer| answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let is_other =
        |answer: &&Result<NodeStatus, ClientError>| matches!(answer, Err(ClientError::OtherMembers { .. }));
    match answers.iter().find(is_other) {
        Some(Err(error)) => Err(Failure::of(error)),
        _ => Ok(answers),
    }
}

/// The columns of the status table.
const COLUMNS: [&str; 37] = [
    "node",
    "state",
    "address",
    "pid",
    "uptime s",
    "bridge",
    "threads",
    "devices",
    "used",
    "capacity",
    "memory",
    "peak",
    "budget",
    "fetches",
    "scans",
    "bounced",
    "refused",
    "pages read",
    "from disk",
    "on wire",
    "cache",
    "cached",
    "hits",
    "one-sided",
    "misses",
    "evictions",
    "keys",
    "of keys",
    "for keys",
    "committed",
    "in doubt",
    "log",
    "log copies",
    "log replicas",
    "log cut",
    "connections",
    "registered",
];

fn row(status: &NodeStatus, address: String) -> Vec<Cell> {
    let counters = &status.counters;
    let registered = match &status.registered_buffers {
        Ok(()) => "yes".to_owned(),
        Err(reason) => format!("no: {reason}"),
    };
    vec![
        Cell::from(usize::from(status.node.0)),
        Cell::from("up"),
        Cell::from(address),
        Cell::Number(status.process_id.to_string()),
        Cell::from(status.uptime_s),
        Cell::from(status.bridge.to_string()),
        Cell::from(usize::from(status.reactors)),
        Cell::from(status.devices.len()),
        Cell::Bytes(status.devices.iter().map(|device| device.used_bytes).sum()),
        Cell::Bytes(status.devices.iter().map(|device| device.capacity_bytes).sum()),
        Cell::Bytes(counters.memory_used_bytes),
        Cell::Bytes(counters.memory_peak_bytes),
        Cell::Bytes(status.memory_budget_bytes),
        Cell::from(counters.fetch_requests),
        Cell::from(counters.process_requests),
        Cell::from(counters.bounced_requests),
        Cell::from(counters.refused_requests),
        Cell::from(counters.pages_read),
        Cell::Bytes(counters.disk_read_bytes),
        Cell::Bytes(counters.wire_written_bytes + counters.wire_read_bytes),
        Cell::Bytes(status.cache.budget_bytes),
        Cell::Bytes(status.cache.used_bytes),
        Cell::from(status.cache.hits),
        Cell::from(status.cache.one_sided_hits),
        Cell::from(status.cache.misses),
        Cell::from(status.cache.evictions),
        Cell::from(status.participant.keys),
        Cell::Bytes(status.participant.used_bytes),
        Cell::Bytes(status.participant.budget_bytes),
        Cell::from(status.participant.committed),
        Cell::from(status.participant.in_doubt),
        Cell::Bytes(status.participant.log_bytes),
        Cell::from(usize::from(status.participant.log_copies)),
        Cell::from(replicas(status)),
        Cell::Bytes(status.participant.log_cut_bytes),
        Cell::from(counters.connections_open),
        Cell::from(registered),
    ]
}

/// How many replicas the node's log has, and how many it needs.
fn replicas(status: &NodeStatus) -> String {
    let participant = &status.participant;
    if participant.budget_bytes == 0 || participant.log_replicas == 0 {
        return if status.participant_refuses.is_some() { "refuses" } else { "none" }.to_owned();
    }
    let (found, all, least) =
        (participant.log_copies, participant.log_replicas, participant.log_replicas_min);
    let state = match (&status.participant_refuses, least) {
        (Some(_), _) => "; refuses".to_owned(),
        (None, 0) => "; may continue alone".to_owned(),
        (None, _) if participant.log_generation_unaware > 0 => {
            let (number, unaware) = (participant.log_generation, participant.log_generation_unaware);
            format!("; generation {number}, not known to {unaware} nodes yet")
        }
        (None, _) => format!("; generation {}", participant.log_generation),
    };
    format!("{found} of {all}, min {least}{state}")
}
