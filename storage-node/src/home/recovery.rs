//! How does a node come to its home whose log is not there?
//!
//! ```text
//! ask the nodes that keep its log -> all have said what they have -> one has a copy: fetch it, check it, put it in place -> recover as from any log
//!   ^ again while one is away                                     -> none has:       this is a new node, with an empty home
//! ```
//!
//! Invariants
//! - An empty home is begun only when every node that may keep a copy has said that it has none: what was acknowledged may be with any of them.
//! - What is fetched is checked, record by record, before it is put in place; an older copy is not taken while a longer one was promised.
//! - The node serves everything else meanwhile, and answers the same question of others.

use std::{
    fs::File,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_client::{LineEvent, Lines, LinesOptions};
use rackscan_device::Wait;
use rackscan_fabric::ClusterKey;
use rackscan_format::{
    ids::NodeId,
    limits::KEPT_BYTES_MAX,
    message::{Answer, CopyHeld, CopyOfLog, Refusal, RefusalCode, Request, Target},
};
use rackscan_ramp::{
    limits::LOG_HEADER_BYTES,
    log::{Follower, Tail},
    message::HomeId,
};

use super::{
    access::FirstHome,
    arrival::Arrival,
    files::{Found, HomeFileError, Opened, Setting, os, start_log},
    log_file::LogFile,
    service::HomeService,
    shared::HomeShared,
};
use crate::{
    config::Config,
    copies::{keepers, tail},
    error::StartError,
    lifecycle::Lifecycle,
    limits::SEEK_PERIOD,
    mailbox::Mailbox,
    peers::{PeerWay, lines_options, others},
};

/// What a home needs beside its log.
struct Making {
    config: Config,
    setting: Setting,
    shared: Arc<HomeShared>,
    lifecycle: Arc<Lifecycle>,
    first: Arc<Mailbox>,
    peers: Option<PeerWay>,
}

impl Opened {
    /// Starts what the home needs: the thread of its log, or one that looks for the log first. The home reports to the first reactor.
    pub(crate) fn start(
        self,
        config: &Config,
        key: &ClusterKey,
        first: Arc<Mailbox>,
        lifecycle: &Arc<Lifecycle>,
        peers: Option<PeerWay>,
    ) -> Result<(FirstHome, JoinHandle<()>), StartError> {
        let Self { shared, setting, found, .. } = self;
        let (config, lifecycle) = (config.clone(), Arc::clone(lifecycle));
        let making = Making { config, setting, shared, lifecycle, first, peers };
        let Some(found) = found else { return making.seek(key) };
        let (shared, number) = (Arc::clone(&making.shared), found.number);
        let (mut home, thread) = making.make(found)?;
        home.log_replaced(number);
        shared.came();
        Ok((FirstHome::Here(Box::new(home)), thread))
    }
}

impl Making {
    /// The home, and the thread of its log.
    fn make(self, found: Found) -> Result<(HomeService, JoinHandle<()>), StartError> {
        let Self { config, setting, shared, lifecycle, first, peers } = self;
        shared.gauges.log_cut_bytes.store(found.cut_bytes, Relaxed);
        let (log, thread) = start_log(&setting, &found, &config, first, &lifecycle)?;
        let most_bytes = config.transactions_log.map_or(u64::MAX, |bytes| bytes.0);
        let who = (HomeId(config.node.0), peers);
        Ok((HomeService::new(found.home, shared, lifecycle, log, most_bytes, who), thread))
    }

    /// Looks for the log on a thread of its own, which then waits for that of the log.
    fn seek(self, key: &ClusterKey) -> Result<(FirstHome, JoinHandle<()>), StartError> {
        let arrival = Arrival::new();
        let left = Arc::clone(&arrival);
        let nodes = others(&self.config);
        let keepers = keepers(self.config.node, nodes.iter().map(|node| node.id));
        let nodes = nodes.into_iter().filter(|node| keepers.contains(&node.id)).collect();
        let options = lines_options(nodes, key);
        self.shared.is_awaited(format!("waits for {} to say whether they keep its log", named(&keepers)));
        let name = format!("n{}-recover", self.config.node);
        let run = move || {
            let lifecycle = Arc::clone(&self.lifecycle);
            let _guard = lifecycle.guard("the thread that looks for the log of transactions");
            let first = Arc::clone(&self.first);
            let found = Seeking { making: &self, options }.run();
            let made = match found {
                Ok(Some(found)) => {
                    let number = found.number;
                    let made = self.make(found).map_err(|error| error.to_string());
                    made.map(|(home, thread)| (home, number, thread))
                }
                Ok(None) => return,
                Err(error) => Err(error.to_string()),
            };
            match made {
                Ok((home, number, thread)) => {
                    left.leave(home, number, &first);
                    // It panics on its own account, and has stopped the node then.
                    let _ = thread.join();
                }
                Err(why) => lifecycle.fail(&format!("transactions: {why}")),
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread
            .map_err(|source| StartError::Os { action: "start the thread that looks for the log", source })?;
        Ok((FirstHome::Awaited(arrival), thread))
    }
}

fn named(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| format!("node {node}")).collect::<Vec<_>>().join(" and ")
}

/// What a node that may keep a copy has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Asked,
    Has(Option<CopyHeld>),
}

struct Seeking<'m> {
    making: &'m Making,
    options: LinesOptions,
}

/// Why a copy was not fetched.
enum Fault {
    /// All are asked again.
    Away,
    Stopping,
    /// It is not what its keeper said.
    Broken(String),
    Disk(HomeFileError),
}

/// Whether something was found, or the node is to stop.
type Sought = Result<Option<Found>, HomeFileError>;

impl Seeking<'_> {
    fn is_over(&self) -> bool {
        self.making.lifecycle.is_stopping()
    }

    fn run(&self) -> Sought {
        while !self.is_over() {
            match Lines::begin(self.options.clone()) {
                Ok(mut lines) => return self.ask(&mut lines),
                Err(error) => {
                    tracing::warn!(%error, "the nodes that may keep a copy of the log of transactions cannot be asked");
                    self.rest();
                }
            }
        }
        Ok(None)
    }

    fn rest(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && !self.is_over() {
            std::thread::sleep(SEEK_PERIOD);
        }
    }

    fn ask(&self, lines: &mut Lines) -> Sought {
        while let Some(held) = self.answers(lines) {
            match self.choose(lines, held) {
                Ok(()) => return self.making.setting.recover().map(Some),
                Err(Fault::Stopping) => break,
                Err(Fault::Away) => {}
                Err(Fault::Broken(reason)) => {
                    let file = self.making.setting.log();
                    return Err(HomeFileError::Copies { file, reason });
                }
                Err(Fault::Disk(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// What each of them has, when all have said so; `None` if the node is to stop.
    fn answers(&self, lines: &mut Lines) -> Option<Vec<Option<CopyHeld>>> {
        let mut said = vec![Said::Nothing; lines.nodes()];
        let mut events = Vec::new();
        while !self.is_over() {
            for (node, said) in said.iter_mut().enumerate().filter(|(_, said)| **said == Said::Nothing) {
                if self.may_ask(lines, node) && lines.send(node, tag(node), self.question(0, None)).is_ok() {
                    *said = Said::Asked;
                }
            }
            let all: Option<Vec<_>> =
                said.iter().map(|said| if let Said::Has(held) = said { Some(*held) } else { None }).collect();
            if all.is_some() {
                return all;
            }
            self.tell(lines, &said);
            lines.poll(Wait::Until(Instant::now() + SEEK_PERIOD), &mut events);
            for event in events.drain(..) {
                match event {
                    LineEvent::Reply { node, outcome, .. } => said[node] = answered(lines, node, outcome),
                    LineEvent::Lost { node, .. } if said[node] == Said::Asked => said[node] = Said::Nothing,
                    _ => {}
                }
            }
        }
        None
    }

    /// Whether the node is there and belongs to this cluster.
    fn may_ask(&self, lines: &mut Lines, node: usize) -> bool {
        let Some(found) = lines.status(node).map(|status| status.cluster) else { return false };
        let expected = self.making.config.cluster.0;
        if found != expected {
            let reason = format!("it belongs to cluster {found:#018x}, expected {expected:#018x}");
            lines.hang_up(node, &reason);
        }
        found == expected
    }

    /// Says who is waited for.
    fn tell(&self, lines: &Lines, said: &[Said]) {
        let silent = said.iter().enumerate().filter(|(_, said)| !matches!(said, Said::Has(_)));
        let silent: Vec<NodeId> = silent.filter_map(|(node, _)| lines.id(node)).collect();
        let reason = format!("waits for {} to say whether they keep its log", named(&silent));
        self.making.shared.is_awaited(reason);
    }

    fn question(&self, from_bytes: u64, target: Option<Target>) -> Request {
        let target = target.unwrap_or(Target { key: 0, offset_bytes: 0, length_bytes: 0 });
        Request::CopyOfLog(CopyOfLog { origin: self.making.config.node, from_bytes, target })
    }

    /// Fetches the longest copy and puts it in place, if there is any.
    fn choose(&self, lines: &mut Lines, held: Vec<Option<CopyHeld>>) -> Result<(), Fault> {
        let copies = held.into_iter().enumerate().filter_map(|(node, held)| held.map(|held| (node, held)));
        let mut copies: Vec<(usize, CopyHeld)> = copies.collect();
        copies.sort_by_key(|(_, held)| std::cmp::Reverse(held.end.sequence));
        if copies.is_empty() {
            tracing::info!("no other node keeps a log of transactions of this one: it begins with no keys");
            return Ok(());
        }
        let mut reasons = Vec::new();
        let most = copies.first().map_or(0, |(_, held)| held.end.sequence);
        // One with fewer records may lack what was acknowledged.
        for (node, held) in copies.into_iter().filter(|(_, held)| held.end.sequence == most) {
            let keeper = lines.id(node).unwrap_or(NodeId(u16::MAX));
            tracing::warn!(keeper = %keeper, records = held.end.sequence, bytes = held.end.offset_bytes, "the log of transactions is fetched: it is lost here");
            match self.fetch(lines, node, held) {
                Err(Fault::Broken(reason)) => {
                    tracing::warn!(keeper = %keeper, reason, "a copy of the log of transactions is of no use");
                    reasons.push(format!("node {keeper}: {reason}"));
                }
                fetched => return fetched.and_then(|()| self.making.setting.adopt().map_err(Fault::Disk)),
            }
        }
        Err(Fault::Broken(reasons.join("; ")))
    }

    fn fetch(&self, lines: &mut Lines, node: usize, held: CopyHeld) -> Result<(), Fault> {
        let path = self.making.setting.fetched();
        let disk = |action| {
            let fault = os(&path, action);
            move |error| Fault::Disk(fault(error))
        };
        let mut file = File::create(&path).map_err(disk("making it"))?;
        let (mut at, mut follower) = (0, None::<Follower>);
        while at < held.end.offset_bytes {
            let bytes = self.piece(lines, node, at, held)?;
            let rest = match follower {
                Some(_) => &bytes[..],
                None => {
                    let start =
                        Tail::from_header(&bytes).map_err(|fault| Fault::Broken(fault.to_string()))?;
                    follower = Some(Follower::after(start));
                    &bytes[LOG_HEADER_BYTES..]
                }
            };
            if let Some(follower) = &mut follower {
                follower.take(rest).map_err(|damage| Fault::Broken(damage.to_string()))?;
            }
            file.write_at(&bytes, at).map_err(disk("writing it"))?;
            at += bytes.len() as u64;
        }
        let end = follower.map(|follower| follower.tail());
        if end != Some(tail(held.end)) {
            return Err(Fault::Broken(format!("it ends at {end:?}, expected {:?}", held.end)));
        }
        file.sync_all().map_err(disk("the flush"))
    }

    /// The next bytes of a copy: as many as there are, or as fit.
    fn piece(&self, lines: &mut Lines, node: usize, from: u64, held: CopyHeld) -> Result<Vec<u8>, Fault> {
        let Some((region, memory)) = lines.memory(node) else { return Err(Fault::Away) };
        let (region, wanted) = (region.clone(), (held.end.offset_bytes - from).min(KEPT_BYTES_MAX as u64));
        let target = Target { length_bytes: wanted, ..memory };
        lines.send(node, tag(node), self.question(from, Some(target))).map_err(|_| Fault::Away)?;
        let mut events = Vec::new();
        while !self.is_over() {
            lines.poll(Wait::Until(Instant::now() + SEEK_PERIOD), &mut events);
            for event in events.drain(..) {
                match event {
                    LineEvent::Reply { node: from, outcome, .. } if from == node => match outcome {
                        Ok(Answer::CopyOfLog { held: now, written_bytes })
                            if now == Some(held) && (1..=wanted).contains(&written_bytes) =>
                        {
                            let length = usize::try_from(written_bytes).unwrap_or(usize::MAX);
                            return region
                                .to_vec(0, length)
                                .map_err(|error| Fault::Broken(error.to_string()));
                        }
                        Ok(other) => {
                            return Err(Fault::Broken(format!(
                                "it answered {other:?}, expected {wanted} bytes"
                            )));
                        }
                        Err(refusal) => {
                            tracing::debug!(node, reason = refusal.text, "a piece of a copy was refused");
                            std::thread::sleep(SEEK_PERIOD);
                            return Err(Fault::Away);
                        }
                    },
                    LineEvent::Lost { node: lost, .. } if lost == node => return Err(Fault::Away),
                    _ => {}
                }
            }
        }
        Err(Fault::Stopping)
    }
}

/// The name of the only request to a node.
fn tag(node: usize) -> u64 {
    node as u64 + 1
}

fn answered(lines: &mut Lines, node: usize, outcome: Result<Answer, Box<Refusal>>) -> Said {
    match outcome {
        Ok(Answer::CopyOfLog { held, .. }) => Said::Has(held),
        Ok(other) => {
            lines.hang_up(node, &format!("it answered what it keeps of a log with {other:?}"));
            Said::Nothing
        }
        Err(refusal) if refusal.code == RefusalCode::NotFound => {
            tracing::warn!(node, reason = refusal.text, "a node keeps no copies");
            Said::Has(None)
        }
        Err(refusal) => {
            tracing::debug!(node, reason = refusal.text, "a node does not say yet what it keeps of a log");
            std::thread::sleep(SEEK_PERIOD);
            Said::Nothing
        }
    }
}
