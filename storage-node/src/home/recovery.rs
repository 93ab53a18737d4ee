//! How does a node recover a transaction log that is missing, or whose end is damaged?
//!
//! ```text
//! ask all other nodes -> a replica is proved to have every acknowledged record: fetch it, check it, put it in place -> recover as from any log
//!   ^ again while      -> none ever was:     this is a new node, with an empty home
//!   \-- none is proved: refuse, and say what may be missing -> a person accepts the loss -> the best replica there is, likewise
//!
//! the end is damaged: ask likewise -> all have, or were waited for long enough -> one has more: likewise; the damaged end is kept beside
//!                                                                              -> none has:     cut the end off, recover from what is left
//! ```
//!
//! Invariants
//! - The node begins an empty log only if no other node knows a log of it.
//! - The node takes no replica that may lack acknowledged records, unless a person decides so.
//! - The new generation is above every known one, and durable before the log is in place.
//! - The node checks each record of a replica before it uses it, and takes the longest one offered.
//! - The node cuts nothing off its own log before it has asked for the replicas.
//! - A node with a damaged log does not wait for silent nodes for ever, and says who was silent.
//! - Meanwhile the node serves everything else, and answers others that recover.

mod fetch;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_client::{LineEvent, Lines, LinesOptions, ReplicaDoubt, ReplicaReport, newest_replicas};
use rackscan_device::Wait;
use rackscan_fabric::ClusterKey;
use rackscan_format::{
    ids::NodeId,
    message::{Answer, CopyHeld, CopyOfLog, LogGeneration, Refusal, RefusalCode, Request, Target},
};
use rackscan_ramp::message::HomeId;

use super::{
    access::FirstHome,
    arrival::Arrival,
    durability::Rule,
    files::{Begun, Found, HomeFileError, Opened, Setting, start_log},
    lost_end::{Left, Offer, Waiting},
    service::HomeService,
    shared::HomeShared,
};
use crate::{
    config::Config,
    copies::replica_nodes,
    error::StartError,
    lifecycle::Lifecycle,
    limits::{LOST_END_TRIES_MAX, SEEK_PERIOD},
    message_queue::MessageQueue,
    peers::{PeerWay, lines_options, others},
};

/// What a home needs beside its log.
struct Making {
    config: Config,
    setting: Setting,
    shared: Arc<HomeShared>,
    lifecycle: Arc<Lifecycle>,
    first: Arc<MessageQueue>,
    peers: Option<PeerWay>,
}

impl Opened {
    /// Starts what the home needs: the thread of its log, or one that looks for the log first. The
    /// home reports to the first reactor.
    pub(crate) fn start(
        self,
        config: &Config,
        key: &ClusterKey,
        first: Arc<MessageQueue>,
        lifecycle: &Arc<Lifecycle>,
        peers: Option<PeerWay>,
    ) -> Result<(FirstHome, JoinHandle<()>), StartError> {
        let Self { shared, setting, begun, .. } = self;
        let (config, lifecycle) = (config.clone(), Arc::clone(lifecycle));
        let making = Making { config, setting, shared, lifecycle, first, peers };
        let found = match begun {
            Begun::Whole(found) => found,
            Begun::Lost => return making.seek(key, None),
            Begun::Damaged(left) => return making.seek(key, Some(left)),
        };
        let (shared, number) = (Arc::clone(&making.shared), found.number);
        let (mut home, thread) = making.make(*found)?;
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
        let bounds = (most_bytes, config.log_replicas_min());
        let who = (HomeId(config.node.0), peers);
        let generation = setting.generation()?;
        let known = generation.newest();
        if let (Some(peers), Some(known)) = (&who.1, known) {
            peers.tell_generation(known.clone());
        }
        let service = HomeService::new(found.home, shared, lifecycle, log, bounds, who, known);
        Ok((service.with_clock(config.wall), thread))
    }

    /// Looks for the log, or for the rest of it, on a thread of its own, which then waits for that
    /// of the log.
    fn seek(self, key: &ClusterKey, left: Option<Left>) -> Result<(FirstHome, JoinHandle<()>), StartError> {
        let arrival = Arrival::new();
        let place = Arc::clone(&arrival);
        let nodes = others(&self.config);
        let replica_nodes = replica_nodes(self.config.node, nodes.iter().map(|node| node.id));
        // A node that keeps no replica may know which ones count.
        let is_asked = |node: &NodeId| left.is_none() || replica_nodes.contains(node);
        let nodes = nodes.into_iter().filter(|node| is_asked(&node.id)).collect();
        let options = lines_options(nodes, key);
        self.shared.is_awaited(waits_for(&replica_nodes, left));
        let name = format!("n{}-recover", self.config.node);
        let run = move || {
            let lifecycle = Arc::clone(&self.lifecycle);
            let _guard = lifecycle.guard("the thread that looks for the log of transactions");
            let first = Arc::clone(&self.first);
            let found = Seeking { making: &self, options, left, replica_nodes: replica_nodes.clone() }.run();
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
                    place.leave(home, number, &first);
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

fn waits_for(nodes: &[NodeId], left: Option<Left>) -> String {
    let what = if left.is_some() { "the damaged end of its log" } else { "its log" };
    format!("waits for {} to say whether they keep {what}", named(nodes))
}

/// What a node that may keep a copy has said: what it has, and the newest generation that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Asked,
    Has(Option<CopyHeld>, Option<LogGeneration>),
}

struct Seeking<'m> {
    making: &'m Making,
    options: LinesOptions,
    /// What is left of the log, if it is not lost but damaged.
    left: Option<Left>,
    /// Those that have replicas.
    replica_nodes: Vec<NodeId>,
}

/// What was heard.
struct Heard {
    offers: Vec<Offer>,
    /// Who has said nothing. If the log is lost, nobody.
    silent: Vec<NodeId>,
    /// The next generation's number and quorum, if the log is lost and others know a generation.
    generation: Option<(u64, u16)>,
}

/// The generation after a decision of a person: above all earlier ones, known or not.
fn after_decision(highest: u64) -> u64 {
    ((highest >> u32::BITS) + 1) << u32::BITS
}

/// Why a copy was not fetched.
#[derive(Debug)]
enum Fault {
    /// All are asked again.
    Away,
    /// Its replica node has no room for the answer now.
    Busy,
    Stopping,
    /// It is not what its replica node said.
    Broken(String),
    Disk(HomeFileError),
}

/// Whether something was found, or the node is to stop.
type Sought = Result<Option<Found>, HomeFileError>;

impl Seeking<'_> {
    fn is_over(&self) -> bool {
        self.making.lifecycle.is_stopping()
    }

    fn waiting(&self) -> Waiting {
        Waiting::new(self.making.config.log_patience, Instant::now())
    }

    fn run(&self) -> Sought {
        let mut waiting = self.waiting();
        while !self.is_over() {
            match Lines::begin(self.options.clone()) {
                Ok(mut lines) => return self.ask(&mut lines),
                Err(error) => {
                    tracing::warn!(%error, "the nodes that may keep a copy of the log of transactions cannot be asked");
                    if self.left.is_some() && waiting.is_over(false, Instant::now()) {
                        let all: Vec<NodeId> = self.options.nodes.iter().map(|node| node.id).collect();
                        return self.recovered(None, &all);
                    }
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
        let mut tries = 0;
        while let Some(Heard { offers, silent, generation }) = self.answers(lines) {
            let offering: Vec<NodeId> = offers.iter().filter_map(|(node, _)| lines.id(*node)).collect();
            match self.choose(lines, offers, generation) {
                Ok(held) => return self.recovered(held, &silent),
                Err(Fault::Stopping) => break,
                Err(Fault::Away | Fault::Busy) if self.left.is_none() => {}
                Err(Fault::Away | Fault::Busy) if tries < LOST_END_TRIES_MAX => {
                    tries += 1;
                    self.rest();
                }
                Err(Fault::Away | Fault::Busy) => return self.recovered(None, &[silent, offering].concat()),
                Err(Fault::Broken(_)) if self.left.is_some() => {
                    return self.recovered(None, &[silent, offering].concat());
                }
                Err(Fault::Broken(reason)) => {
                    let file = self.making.setting.log();
                    return Err(HomeFileError::Copies { file, reason });
                }
                Err(Fault::Disk(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The home from the log that there is now: this copy of it, if one was put in place. What
    /// these nodes may have more it goes without.
    fn recovered(&self, held: Option<CopyHeld>, without: &[NodeId]) -> Sought {
        let mut found = self.making.setting.recover()?;
        let Some(left) = self.left else { return Ok(Some(found)) };
        if let Some(held) = held {
            let missing_bytes = left.missing_bytes(&held);
            found.cut_bytes += missing_bytes;
            tracing::warn!(
                records = held.end.sequence - left.tail.sequence,
                missing_bytes,
                "the damaged end of the log of transactions has come back from a copy"
            );
        }
        if !without.is_empty() {
            tracing::warn!(
                nodes = named(without),
                last_record = found.end.sequence,
                "the home goes on without what these nodes may keep of the damaged end of its log: records may be missing which were acknowledged"
            );
        }
        Ok(Some(found))
    }

    /// What each of them has, when enough have said so or were waited for long enough; `None` if
    /// the node is to stop.
    fn answers(&self, lines: &mut Lines) -> Option<Heard> {
        let mut waiting = self.waiting();
        let mut said = vec![Said::Nothing; lines.nodes()];
        let mut events = Vec::new();
        while !self.is_over() {
            for (node, said) in said.iter_mut().enumerate().filter(|(_, said)| **said == Said::Nothing) {
                if self.may_ask(lines, node) && lines.send(node, tag(node), self.question(0, None)).is_ok() {
                    *said = Said::Asked;
                }
            }
            let silent = said.iter().enumerate().filter(|(_, said)| !matches!(said, Said::Has(..)));
            let silent: Vec<NodeId> = silent.filter_map(|(node, _)| lines.id(node)).collect();
            let has_heard = silent.len() < said.len();
            if self.left.is_none() {
                if let Some(heard) = self.proved(lines, &said, silent) {
                    return Some(heard);
                }
            } else if silent.is_empty() || waiting.is_over(has_heard, Instant::now()) {
                let offers = said.iter().enumerate().filter_map(|(node, said)| match said {
                    Said::Has(held, _) => held.map(|held| (node, held)),
                    Said::Nothing | Said::Asked => None,
                });
                return Some(Heard { offers: offers.collect(), silent, generation: None });
            } else {
                self.making.shared.is_awaited(waits_for(&silent, self.left));
            }
            lines.poll(Wait::Until(Instant::now() + SEEK_PERIOD), &mut events);
            for event in events.drain(..) {
                match event {
                    LineEvent::Reply { node, outcome, .. } => said[node] = answered(lines, node, outcome),
                    // It may come back with something else.
                    LineEvent::Lost { node, .. } => said[node] = Said::Nothing,
                    _ => {}
                }
            }
        }
        None
    }

    /// The replicas of the lost log that have all that was acknowledged, if that is proved or a
    /// person takes what there is.
    fn proved(&self, lines: &Lines, said: &[Said], silent: Vec<NodeId>) -> Option<Heard> {
        let report = |(node, said): (usize, &Said)| match said {
            Said::Has(held, generation) => {
                Some(ReplicaReport { node: lines.id(node)?, held: *held, generation: generation.clone() })
            }
            Said::Nothing | Said::Asked => None,
        };
        let own = self.making.setting.generation().ok().and_then(|file| file.newest().cloned());
        let origin = self.making.config.node;
        let own =
            own.map(|generation| ReplicaReport { node: origin, held: None, generation: Some(generation) });
        let others = said.iter().enumerate().filter_map(report);
        let reports: Vec<ReplicaReport> = own.into_iter().chain(others).collect();
        let known = reports.iter().filter_map(|report| report.generation.as_ref());
        let highest = known.max_by_key(|known| known.number).map(|known| (known.number, known.quorum));
        let place = |node: NodeId| (0..lines.nodes()).find(|place| lines.id(*place) == Some(node));
        let offers = |found: Vec<(NodeId, CopyHeld)>| -> Vec<Offer> {
            found.into_iter().filter_map(|(node, held)| Some((place(node)?, held))).collect()
        };
        let shared = &self.making.shared;
        let doubt = match newest_replicas(origin, &self.replica_nodes, &reports, &silent) {
            Ok(found) => {
                let generation = highest.map(|(number, quorum)| (number + 1, quorum));
                return Some(Heard { offers: offers(found), silent: Vec::new(), generation });
            }
            Err(doubt) => doubt,
        };
        let may_decide = doubt.best.is_some() || silent.is_empty();
        shared.awaits_decision(may_decide);
        if may_decide && shared.has_accepted_loss() {
            tracing::warn!(%doubt, "a person has decided: the log of transactions goes on with the best replica that was found");
            let best = doubt.best.map(|(node, held, _)| (node, held));
            let (number, quorum) = highest.unwrap_or((0, 0));
            let generation = Some((after_decision(number), quorum));
            return Some(Heard {
                offers: offers(best.into_iter().collect()),
                silent: Vec::new(),
                generation,
            });
        }
        self.say(&doubt, may_decide);
        None
    }

    /// Says for what it waits, and what a person can do.
    fn say(&self, doubt: &ReplicaDoubt, may_decide: bool) {
        let (shared, node) = (&self.making.shared, self.making.config.node);
        let way =
            format!("`rackscan recover --node {node} --accept-loss` goes on without what may be missing");
        match (doubt.silent.is_empty(), may_decide && doubt.highest.is_some()) {
            (false, false) => shared.is_awaited(waits_for(&doubt.silent, None)),
            (false, true) => {
                shared.is_awaited(format!("{}: {doubt}; {way}", waits_for(&doubt.silent, None)));
            }
            (true, _) => shared.is_refused(format!(
                "has lost its log, and {doubt}; start nodes with the folders that they had, or {way}"
            )),
        }
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

    fn question(&self, from_bytes: u64, target: Option<Target>) -> Request {
        let target = target.unwrap_or(Target { key: 0, offset_bytes: 0, length_bytes: 0 });
        Request::CopyOfLog(CopyOfLog { origin: self.making.config.node, from_bytes, target })
    }

    /// Which of the copies may take the log's place, the best one first.
    fn worth(&self, offers: Vec<Offer>) -> Vec<Offer> {
        if let Some(left) = self.left {
            return left.more(&offers);
        }
        if offers.is_empty() {
            tracing::info!("no other node keeps a log of transactions of this one: it begins with no keys");
        }
        offers
    }

    /// Fetches the best copy and puts it in place, if there is any.
    fn choose(
        &self,
        lines: &mut Lines,
        offers: Vec<Offer>,
        generation: Option<(u64, u16)>,
    ) -> Result<Option<CopyHeld>, Fault> {
        let mut reasons = Vec::new();
        for (node, held) in self.worth(offers) {
            let holder = lines.id(node).unwrap_or(NodeId(u16::MAX));
            tracing::warn!(node = %holder, records = held.end.sequence, bytes = held.end.offset_bytes, "the log of transactions is fetched: it is lost here, or its end damaged");
            self.making.shared.is_awaited(format!("waits for its log, which is fetched from node {holder}"));
            match self.fetch(lines, node, held) {
                Err(Fault::Broken(reason)) => {
                    tracing::warn!(node = %holder, reason, "a copy of the log of transactions is of no use");
                    reasons.push(format!("node {holder}: {reason}"));
                }
                fetched => {
                    fetched?;
                    self.begin_generation(generation, Some((holder, held)))?;
                    self.making.setting.adopt(self.left.as_ref()).map_err(Fault::Disk)?;
                    return Ok(Some(held));
                }
            }
        }
        if !reasons.is_empty() {
            return Err(Fault::Broken(reasons.join("; ")));
        }
        self.begin_generation(generation, None)?;
        Ok(None)
    }

    /// The log begins anew with this replica: only that one has all of it yet.
    fn begin_generation(
        &self,
        generation: Option<(u64, u16)>,
        of: Option<(NodeId, CopyHeld)>,
    ) -> Result<(), Fault> {
        let Some((number, earlier)) = generation else { return Ok(()) };
        let config = &self.making.config;
        let others = self.options.nodes.len();
        let quorum = Rule::new(config.log_replicas_min(), others).quorum;
        let members = of.into_iter().filter(|(holder, _)| self.replica_nodes.contains(holder));
        let generation = LogGeneration {
            number,
            members: members.map(|(holder, _)| holder).collect(),
            quorum: u16::try_from(quorum).unwrap_or(u16::MAX).max(earlier),
            began_after: of.map_or(0, |(_, held)| held.end.sequence),
        };
        self.making.setting.begin_generation(&generation).map_err(Fault::Disk)
    }
}

/// The name of the only request to a node.
fn tag(node: usize) -> u64 {
    node as u64 + 1
}

fn answered(lines: &mut Lines, node: usize, outcome: Result<Answer, Box<Refusal>>) -> Said {
    match outcome {
        Ok(Answer::CopyOfLog { held, generation, .. }) => Said::Has(held, generation),
        Ok(other) => {
            lines.hang_up(node, &format!("it answered what it keeps of a log with {other:?}"));
            Said::Nothing
        }
        Err(refusal) if refusal.code == RefusalCode::NotFound => {
            tracing::warn!(node, reason = refusal.text, "a node keeps no copies");
            Said::Has(None, None)
        }
        Err(refusal) => {
            tracing::debug!(node, reason = refusal.text, "a node does not say yet what it keeps of a log");
            std::thread::sleep(SEEK_PERIOD);
            Said::Nothing
        }
    }
}
