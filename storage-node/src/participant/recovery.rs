//! Recovers the log of transactions from its replicas, if the log is missing or its end is damaged.
//!
//! ```text
//! log missing: ask all other nodes
//!   a replica provably has every acknowledged record -> fetch it, check it, recover from it as from any log
//!   no node ever had a replica                       -> this is a new node: begin with an empty participant
//!   neither is proved                                -> refuse requests, report what may be missing, ask again,
//!                                                       until an operator accepts the loss: then use the best replica
//!
//! end damaged: ask the nodes with replicas, until all have answered or the wait was long enough
//!   a replica has more records  -> fetch it, check it; save the damaged end in the cut file
//!   no replica has more records -> cut the damaged end off, and recover from the intact part
//! ```
//!
//! [`rackscan_client::newest_replicas`] decides which replica of a lost log is accepted; `lost_end`
//! decides it for a log whose end is damaged.
//!
//! Invariants
//! - The node begins an empty log only if no other node knows a log of this node.
//! - The node uses no replica that may lack acknowledged records, unless an operator accepts that.
//! - The new generation is higher than every known one, and durable before the log is put in place.
//! - The node checks each record of a replica before it uses it, and uses the longest valid
//!   replica.
//! - The node cuts nothing off its own log before it has asked for the replicas.
//! - A node with a damaged log does not wait for silent nodes for ever, and reports which were
//!   silent.
//! - Meanwhile the node serves all requests that need no keys, and answers other nodes that
//!   recover.

mod answers;
mod fetch;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use az::SaturatingAs;
use rackscan_client::{LineEvent, Lines, LinesOptions, ReplicaDoubt, ReplicaReport, Retry, newest_replicas};
use rackscan_device::Wait;
use rackscan_fabric::ClusterKey;
use rackscan_format::{
    ids::NodeId,
    message::{CopyHeld, CopyOfLog, LogGeneration, Request, Target},
};
use rackscan_ramp::message::ParticipantId;

use self::answers::{Answers, NodeAnswer, answered};
use super::{
    access::FirstParticipant,
    arrival::Arrival,
    durability::Rule,
    error::ParticipantFileError,
    files::{LogState, Opened, ParticipantSetup, RecoveredParticipant, start_log},
    lost_end::{DamagedLog, Offer, Waiting},
    service::ParticipantService,
    shared::ParticipantShared,
};
use crate::{
    config::Config,
    copies::replica_nodes,
    error::StartError,
    lifecycle::Lifecycle,
    limits::{LOST_END_ATTEMPTS_MAX, SEEK_PERIOD},
    message_queue::MessageQueue,
    peers::{PeersHandle, lines_options, others},
};

/// What a participant needs besides its log.
struct ParticipantBuilder {
    config: Config,
    setting: ParticipantSetup,
    shared: Arc<ParticipantShared>,
    lifecycle: Arc<Lifecycle>,
    first: Arc<MessageQueue>,
    peers: Option<PeersHandle>,
}

impl Opened {
    /// Starts the thread of the participant's log, or one that looks for the log first. The
    /// participant reports to the first reactor.
    pub(crate) fn start(
        self,
        config: &Config,
        key: &ClusterKey,
        first: Arc<MessageQueue>,
        lifecycle: &Arc<Lifecycle>,
        peers: Option<PeersHandle>,
    ) -> Result<(FirstParticipant, JoinHandle<()>), StartError> {
        let Self { shared, setting, begun, .. } = self;
        let (config, lifecycle) = (config.clone(), Arc::clone(lifecycle));
        let making = ParticipantBuilder { config, setting, shared, lifecycle, first, peers };
        let found = match begun {
            LogState::Whole(found) => found,
            LogState::Lost => return making.seek(key, None),
            LogState::Damaged(damaged) => return making.seek(key, Some(damaged)),
        };
        let (shared, number) = (Arc::clone(&making.shared), found.number);
        let (mut participant, thread) = making.make(*found)?;
        participant.log_replaced(number);
        shared.set_present();
        Ok((FirstParticipant::Here(Box::new(participant)), thread))
    }
}

impl ParticipantBuilder {
    /// Makes the participant and starts the thread of its log.
    fn make(self, found: RecoveredParticipant) -> Result<(ParticipantService, JoinHandle<()>), StartError> {
        let Self { config, setting, shared, lifecycle, first, peers } = self;
        shared.gauges.log_cut_bytes.store(found.cut_bytes, Relaxed);
        let generation = setting.generation()?;
        // The last step that can fail, because the caller joins the thread.
        let (log, thread) = start_log(&setting, &found, &config, first, &lifecycle)?;
        let most_bytes = config.transactions_log.map_or(u64::MAX, |bytes| bytes.0);
        let bounds = (most_bytes, config.log_replicas_min());
        let who = (ParticipantId(config.node.0), peers);
        let known = generation.newest();
        if let (Some(peers), Some(known)) = (&who.1, known) {
            peers.tell_generation(known.clone());
        }
        let service = ParticipantService::new(found.participant, shared, lifecycle, log, bounds, who, known);
        Ok((service.with_clock(config.wall), thread))
    }

    /// Starts a thread that looks for the log, or for the remainder of it. When it has made the
    /// participant, it waits for the end of the log's thread.
    fn seek(
        self,
        key: &ClusterKey,
        damaged: Option<DamagedLog>,
    ) -> Result<(FirstParticipant, JoinHandle<()>), StartError> {
        let arrival = Arrival::new();
        let place = Arc::clone(&arrival);
        let nodes = others(&self.config);
        let replica_nodes = replica_nodes(self.config.node, nodes.iter().map(|node| node.id));
        // If the log is lost, all other nodes are asked: one without a replica may know which
        // replicas count.
        let is_asked = |node: &NodeId| damaged.is_none() || replica_nodes.contains(node);
        let nodes = nodes.into_iter().filter(|node| is_asked(&node.id)).collect();
        let options = lines_options(nodes, key);
        self.shared.set_awaited(waits_for(&replica_nodes, damaged));
        let name = format!("n{}-recover", self.config.node);
        let run = move || {
            let lifecycle = Arc::clone(&self.lifecycle);
            let _guard = lifecycle.guard("the thread that looks for the log of transactions");
            let first = Arc::clone(&self.first);
            let found =
                LogSearch { making: &self, options, damaged, replica_nodes: replica_nodes.clone() }.run();
            let made = match found {
                Ok(Some(found)) => {
                    let number = found.number;
                    let made = self.make(found).map_err(|error| error.to_string());
                    made.map(|(participant, thread)| (participant, number, thread))
                }
                Ok(None) => return,
                Err(error) => Err(error.to_string()),
            };
            match made {
                Ok((participant, number, thread)) => {
                    place.leave(participant, number, &first);
                    // If that thread panics, it has stopped the node itself.
                    let _ = thread.join();
                }
                Err(why) => lifecycle.fail(&format!("transactions: {why}")),
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread
            .map_err(|source| StartError::Os { action: "start the thread that looks for the log", source })?;
        Ok((FirstParticipant::Awaited(arrival), thread))
    }
}

fn named(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| format!("node {node}")).collect::<Vec<_>>().join(" and ")
}

fn waits_for(nodes: &[NodeId], damaged: Option<DamagedLog>) -> String {
    let what = if damaged.is_some() { "the damaged end of its log" } else { "its log" };
    format!("waits for {} to say whether they keep {what}", named(nodes))
}

struct LogSearch<'m> {
    making: &'m ParticipantBuilder,
    options: LinesOptions,
    /// The intact part of the log, if the log is not lost but damaged.
    damaged: Option<DamagedLog>,
    /// The nodes that have replicas of this node's log.
    replica_nodes: Vec<NodeId>,
}

/// The number of the generation that follows a person's decision: above all earlier ones, including
/// those that no reachable node knows.
fn after_decision(highest: u64) -> u64 {
    ((highest >> u32::BITS) + 1) << u32::BITS
}

/// Why a replica was not fetched.
#[derive(Debug)]
enum Fault {
    /// The node became unavailable, or its replica has changed: all nodes are asked again.
    Unavailable,
    /// The replica node has no memory for the answer now.
    Busy,
    Stopping,
    /// The replica is not what its node had announced.
    Broken(String),
    Disk(ParticipantFileError),
}

/// The recovered participant, or `None` if the node is to stop.
type SearchOutcome = Result<Option<RecoveredParticipant>, ParticipantFileError>;

impl LogSearch<'_> {
    fn is_over(&self) -> bool {
        self.making.lifecycle.is_stopping()
    }

    fn waiting(&self) -> Waiting {
        Waiting::new(self.making.config.log_patience, Instant::now())
    }

    fn run(&self) -> SearchOutcome {
        let mut waiting = self.waiting();
        while !self.is_over() {
            match Lines::begin(self.options.clone()) {
                Ok(mut lines) => return self.ask(&mut lines),
                Err(error) => {
                    tracing::warn!(%error, "the nodes that may have a replica of the log of transactions cannot be asked");
                    if self.damaged.is_some() && waiting.is_over(false, Instant::now()) {
                        let all: Vec<NodeId> = self.options.nodes.iter().map(|node| node.id).collect();
                        return self.recovered(None, &all);
                    }
                    self.pause();
                }
            }
        }
        Ok(None)
    }

    fn pause(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && !self.is_over() {
            std::thread::sleep(SEEK_PERIOD);
        }
    }

    fn ask(&self, lines: &mut Lines) -> SearchOutcome {
        let mut retry = Retry::new(LOST_END_ATTEMPTS_MAX);
        while let Some(Answers { offers, silent, generation }) = self.answers(lines) {
            let offering: Vec<NodeId> = offers.iter().filter_map(|(node, _)| lines.id(*node)).collect();
            match self.fetch_best(lines, offers, generation) {
                Ok(held) => return self.recovered(held, &silent),
                Err(Fault::Stopping) => break,
                Err(Fault::Unavailable | Fault::Busy) if self.damaged.is_none() => {}
                Err(Fault::Unavailable | Fault::Busy) if retry.again() => self.pause(),
                Err(Fault::Unavailable | Fault::Busy) => {
                    return self.recovered(None, &[silent, offering].concat());
                }
                Err(Fault::Broken(_)) if self.damaged.is_some() => {
                    return self.recovered(None, &[silent, offering].concat());
                }
                Err(Fault::Broken(reason)) => {
                    let file = self.making.setting.log();
                    return Err(ParticipantFileError::Copies { file, reason });
                }
                Err(Fault::Disk(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Recovers the participant from the present log, into which the replica `held` was put, if
    /// any. `without`: nodes that may have more of the log, which the participant goes on without.
    fn recovered(&self, held: Option<CopyHeld>, without: &[NodeId]) -> SearchOutcome {
        let mut found = self.making.setting.recover()?;
        let Some(damaged) = self.damaged else { return Ok(Some(found)) };
        if let Some(held) = held {
            let missing_bytes = damaged.missing_bytes(&held);
            found.cut_bytes += missing_bytes;
            tracing::warn!(
                records = held.end.sequence - damaged.tail.sequence,
                missing_bytes,
                "the damaged end of the log of transactions was restored from a replica"
            );
        }
        if !without.is_empty() {
            tracing::warn!(
                nodes = named(without),
                last_record = found.end.sequence,
                "the participant continues without the replicas of these nodes, which may contain the damaged end of its log: acknowledged records may be missing"
            );
        }
        Ok(Some(found))
    }

    /// Collects the answers until they suffice, or the nodes were waited for long enough. `None` if
    /// the node is to stop.
    fn answers(&self, lines: &mut Lines) -> Option<Answers> {
        let mut waiting = self.waiting();
        let mut said = vec![NodeAnswer::Nothing; lines.nodes()];
        let mut events = Vec::new();
        while !self.is_over() {
            for (node, said) in said.iter_mut().enumerate().filter(|(_, said)| **said == NodeAnswer::Nothing)
            {
                if self.may_ask(lines, node) && lines.send(node, tag(node), self.question(0, None)).is_ok() {
                    *said = NodeAnswer::Asked;
                }
            }
            let silent = said.iter().enumerate().filter(|(_, said)| !matches!(said, NodeAnswer::Has(..)));
            let silent: Vec<NodeId> = silent.filter_map(|(node, _)| lines.id(node)).collect();
            let has_heard = silent.len() < said.len();
            if self.damaged.is_none() {
                if let Some(heard) = self.proved(lines, &said, silent) {
                    return Some(heard);
                }
            } else if silent.is_empty() || waiting.is_over(has_heard, Instant::now()) {
                let offers = said.iter().enumerate().filter_map(|(node, said)| match said {
                    NodeAnswer::Has(held, _) => held.map(|held| (node, held)),
                    NodeAnswer::Nothing | NodeAnswer::Asked => None,
                });
                return Some(Answers { offers: offers.collect(), silent, generation: None });
            } else {
                self.making.shared.set_awaited(waits_for(&silent, self.damaged));
            }
            lines.poll(Wait::Until(Instant::now() + SEEK_PERIOD), &mut events);
            for event in events.drain(..) {
                match event {
                    LineEvent::Reply { node, outcome, .. } => said[node] = answered(lines, node, outcome),
                    // It may come back with another replica.
                    LineEvent::Lost { node, .. } => said[node] = NodeAnswer::Nothing,
                    _ => {}
                }
            }
        }
        None
    }

    /// Returns the replicas of the lost log that provably have all acknowledged records, or the
    /// best replica if a person has accepted the loss.
    fn proved(&self, lines: &Lines, said: &[NodeAnswer], silent: Vec<NodeId>) -> Option<Answers> {
        let report = |(node, said): (usize, &NodeAnswer)| match said {
            NodeAnswer::Has(held, generation) => {
                Some(ReplicaReport { node: lines.id(node)?, held: *held, generation: generation.clone() })
            }
            NodeAnswer::Nothing | NodeAnswer::Asked => None,
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
                return Some(Answers { offers: offers(found), silent: Vec::new(), generation });
            }
            Err(doubt) => doubt,
        };
        let may_decide = doubt.best.is_some() || silent.is_empty();
        shared.set_awaits_decision(may_decide);
        if may_decide && shared.has_accepted_loss() {
            tracing::warn!(%doubt, "an operator has accepted the loss: the log of transactions continues with the best replica that was found");
            let best = doubt.best.map(|(node, held, _)| (node, held));
            let (number, quorum) = highest.unwrap_or((0, 0));
            let generation = Some((after_decision(number), quorum));
            return Some(Answers {
                offers: offers(best.into_iter().collect()),
                silent: Vec::new(),
                generation,
            });
        }
        self.publish_doubt(&doubt, may_decide);
        None
    }

    /// Publishes what the node waits for, and what a person can do.
    fn publish_doubt(&self, doubt: &ReplicaDoubt, may_decide: bool) {
        let (shared, node) = (&self.making.shared, self.making.config.node);
        let way =
            format!("`rackscan recover --node {node} --accept-loss` goes on without what may be missing");
        match (doubt.silent.is_empty(), may_decide && doubt.highest.is_some()) {
            (false, false) => shared.set_awaited(waits_for(&doubt.silent, None)),
            (false, true) => {
                shared.set_awaited(format!("{}: {doubt}; {way}", waits_for(&doubt.silent, None)));
            }
            (true, _) => shared.set_refused(format!(
                "has lost its log, and {doubt}; start nodes with the folders that they had, or {way}"
            )),
        }
    }

    /// Whether the node is connected and belongs to this cluster.
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

    /// The replicas that may replace the log, the best one first.
    fn candidates(&self, offers: Vec<Offer>) -> Vec<Offer> {
        if let Some(damaged) = self.damaged {
            return damaged.more(&offers);
        }
        if offers.is_empty() {
            tracing::info!(
                "no other node has a replica of the log of transactions of this node: it begins without keys"
            );
        }
        offers
    }

    /// Fetches the best replica, if there is any, and puts it in place.
    fn fetch_best(
        &self,
        lines: &mut Lines,
        offers: Vec<Offer>,
        generation: Option<(u64, u16)>,
    ) -> Result<Option<CopyHeld>, Fault> {
        let mut reasons = Vec::new();
        for (node, held) in self.candidates(offers) {
            let holder = lines.id(node).unwrap_or(NodeId(u16::MAX));
            tracing::warn!(node = %holder, records = held.end.sequence, bytes = held.end.offset_bytes, "the log of transactions is fetched: it is lost here, or its end damaged");
            self.making.shared.set_awaited(format!("waits for its log, which is fetched from node {holder}"));
            match self.fetch(lines, node, held) {
                Err(Fault::Broken(reason)) => {
                    tracing::warn!(node = %holder, reason, "a replica of the log of transactions cannot be used");
                    reasons.push(format!("node {holder}: {reason}"));
                }
                fetched => {
                    fetched?;
                    self.begin_generation(generation, Some((holder, held)))?;
                    self.making.setting.adopt(self.damaged.as_ref()).map_err(Fault::Disk)?;
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

    /// Begins a new generation whose only member is the node of this replica: no other node has all
    /// of the log yet.
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
            quorum: quorum.saturating_as::<u16>().max(earlier),
            began_after: of.map_or(0, |(_, held)| held.end.sequence),
        };
        self.making.setting.begin_generation(&generation).map_err(Fault::Disk)
    }
}

/// The tag of the only request to a node.
fn tag(node: usize) -> u64 {
    node as u64 + 1
}
