//! Runs the thread that talks to other nodes: sends messages and pieces of the log, and reports the
//! answers to the participant.
//!
//! Invariants
//! - Outstanding requests are bounded by the connections. The requests of a lost connection are
//!   forgotten here, and repeated by the participant.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        atomic::Ordering::SeqCst,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::Instant,
};

use rackscan_client::{LineError, LineEvent, Lines, LinesOptions, limits::LINES_MEMORY_BYTES_MIN};
use rackscan_device::Wait;
use rackscan_format::{
    codec,
    ids::NodeId,
    message::{Answer, Payload, Request as NodeRequest, Target},
};
use rackscan_ramp::{
    message::{ParticipantId, Reply},
    timestamp::Timestamp,
};

use super::{
    copier::Copier,
    handle::SharedBell,
    messages::{Errand, PeerReport},
    outlet::Outlet,
};
use crate::{
    identity::{FolderComparison, Identity},
    lifecycle::Lifecycle,
    limits::{PEERS_RETRY, PEERS_TICK},
    message_queue::{Mail, MessageQueue},
    participant::ParticipantShared,
};

/// The parameters of the thread.
pub(super) struct PeersThread {
    pub(super) node: NodeId,
    /// The other nodes; the first `replica_nodes` of them have replicas of the participant's log.
    pub(super) others: Vec<NodeId>,
    pub(super) replica_nodes: usize,
    pub(super) outlet: Arc<Outlet>,
    pub(super) options: LinesOptions,
    pub(super) cluster: u64,
    pub(super) errands: Receiver<Errand>,
    pub(super) bell: SharedBell,
    pub(super) participant: Arc<ParticipantShared>,
    pub(super) message_queue: Arc<MessageQueue>,
    pub(super) identity: Arc<Identity>,
    pub(super) lifecycle: Arc<Lifecycle>,
}

/// The participant has dropped its handle.
struct HandleDropped;

impl PeersThread {
    /// Runs until the participant drops its handle.
    pub(super) fn run(self) {
        loop {
            match Lines::begin(self.options.clone()) {
                Ok(lines) => {
                    *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = Some(lines.bell());
                    return ConnectedPeers::new(&self, lines).run();
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot connect to other nodes; transactions whose client is gone stay in doubt");
                    if self.wait().is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits before the next attempt; messages meanwhile are dropped, and repeated later.
    fn wait(&self) -> Result<(), HandleDropped> {
        let until = Instant::now() + PEERS_RETRY;
        let mut tick_at = Instant::now() + PEERS_TICK;
        while Instant::now() < until {
            match self.errands.recv_timeout(tick_at.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    tick_at += PEERS_TICK;
                    self.tick();
                }
                Err(RecvTimeoutError::Disconnected) => return Err(HandleDropped),
            }
        }
        Ok(())
    }

    /// Reports a tick, if the participant has asked for one.
    fn tick(&self) {
        if self.participant.awaits_tick.swap(false, SeqCst) {
            self.message_queue.send(Mail::Peers(PeerReport::Tick));
        }
    }
}

/// The thread while it has connections.
struct ConnectedPeers<'t> {
    with: &'t PeersThread,
    lines: Lines,
    participants: Vec<ParticipantId>,
    /// Requests without an answer: the node, and the transaction.
    asked: HashMap<u64, (usize, Timestamp)>,
    tags: u64,
    tick_at: Instant,
    copier: Copier,
    /// Whether a peer knows a newer state of this node, so that nothing may be sent any more.
    is_outdated: bool,
}

impl<'t> ConnectedPeers<'t> {
    fn new(with: &'t PeersThread, lines: Lines) -> Self {
        let nodes = &with.options.nodes;
        let participants = nodes.iter().map(|node| ParticipantId(node.id.0)).collect();
        let position = |replica_node: &NodeId| nodes.iter().position(|node| node.id == *replica_node);
        let others: Vec<usize> = with.others.iter().filter_map(position).collect();
        let start = with.identity.told().history.last().unwrap_or_default();
        let copier =
            Copier::new((with.node, start), Arc::clone(&with.outlet), others.split_at(with.replica_nodes));
        let tick_at = Instant::now() + PEERS_TICK;
        Self {
            with,
            lines,
            participants,
            asked: HashMap::new(),
            tags: 0,
            tick_at,
            copier,
            is_outdated: false,
        }
    }

    fn run(mut self) {
        let mut events = Vec::new();
        while self.send_errands().is_ok() {
            self.copier.pump(&mut self.lines, &mut self.tags);
            self.lines.poll(Wait::Until(self.tick_at), &mut events);
            events.drain(..).for_each(|event| self.on_event(event));
            if self.is_outdated {
                return;
            }
            let now = Instant::now();
            if now >= self.tick_at {
                self.tick_at = now + PEERS_TICK;
                self.copier.tick();
                self.with.tick();
            }
        }
    }

    fn report(&self, report: PeerReport) {
        self.with.message_queue.send(Mail::Peers(report));
    }

    /// Sends the waiting messages.
    fn send_errands(&mut self) -> Result<(), HandleDropped> {
        self.lines.hold();
        loop {
            match self.with.errands.try_recv() {
                Ok(errand) => self.send_errand(errand),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(HandleDropped),
            }
        }
        self.lines.release();
        Ok(())
    }

    fn send_errand(&mut self, Errand { about, to, request }: Errand) {
        let Some(node) = self.participants.iter().position(|participant| *participant == to) else {
            tracing::warn!(timestamp = ?about, participant = to.0, "a transaction has a participant that is not in the configuration of this node: add its node to `peers`");
            return;
        };
        let Some((_, memory)) = self.lines.memory(node) else { return };
        // The rest of the connection's memory is for pieces of the log.
        let length_bytes = memory.length_bytes.min(LINES_MEMORY_BYTES_MIN as u64);
        let offset_bytes = memory.offset_bytes + memory.length_bytes - length_bytes;
        let target = Target { offset_bytes, length_bytes, ..memory };
        let Ok(bytes) = codec::encode(&vec![request]) else { return };
        self.tags += 1;
        let request = NodeRequest::Transact { messages: Payload::Here(bytes), target };
        match self.lines.send(node, self.tags, request) {
            Ok(()) => drop(self.asked.insert(self.tags, (node, about))),
            // The participant repeats it when the node is back, or has room.
            Err(LineError::Unavailable { .. } | LineError::Full { .. }) => {}
            Err(error) => tracing::warn!(%error, "a message for another participant was not sent"),
        }
    }

    fn on_event(&mut self, event: LineEvent) {
        match event {
            LineEvent::Reply { node, tag, outcome } => {
                if let Ok(copied) = self.copier.on_answer(node, tag, &outcome) {
                    return copied.into_iter().for_each(|copied| self.report(PeerReport::Copied(copied)));
                }
                let Some((_, about)) = self.asked.remove(&tag) else { return };
                match outcome {
                    Ok(Answer::Transacted { messages: Payload::Here(bytes) }) => {
                        self.replied(node, about, &bytes);
                    }
                    Ok(other) => {
                        let reason = format!("it answered a message about a transaction with {other:?}");
                        self.lines.hang_up(node, &reason);
                    }
                    // The participant repeats the request later.
                    Err(refusal) => {
                        tracing::debug!(node, reason = refusal.text, "another participant did not answer");
                    }
                }
            }
            LineEvent::Read { .. } => {}
            LineEvent::Lost { node, .. } => {
                self.asked.retain(|_, (at, _)| *at != node);
                if let Some(lost) = self.copier.lost(node) {
                    self.report(PeerReport::Copied(lost));
                }
            }
            LineEvent::Back { node } => {
                self.check_cluster(node);
                self.compare_identity(node);
                if let Some(participant) =
                    self.participants.get(node).filter(|_| self.lines.unavailable(node).is_none())
                {
                    self.report(PeerReport::Back(*participant));
                }
            }
        }
    }

    fn replied(&mut self, node: usize, about: Timestamp, bytes: &[u8]) {
        let replies: Vec<Reply> = match codec::decode("answers", bytes) {
            Ok(replies) => replies,
            Err(error) => return self.lines.hang_up(node, &error.to_string()),
        };
        if let Some(from) = self.participants.get(node).filter(|_| !replies.is_empty()) {
            self.report(PeerReport::Heard { about, from: *from, replies });
        }
    }

    /// Compares what this node and a peer have recorded of each other, before anything is sent.
    fn compare_identity(&mut self, node: usize) {
        let Some(status) = self.lines.status(node) else { return };
        match self.with.identity.compare(status.node, &status.identity) {
            Ok(FolderComparison::Current) => {}
            Ok(FolderComparison::Outdated(reason)) => self.lines.hang_up(node, &reason),
            Ok(FolderComparison::OutdatedHere(reason)) => {
                self.is_outdated = true;
                self.with.lifecycle.fail(&reason);
            }
            // A start that was not recorded is seen again with the next connection.
            Err(error) => tracing::warn!(%error, "the start of a peer could not be recorded"),
        }
    }

    /// Disconnects a node of another cluster.
    fn check_cluster(&mut self, node: usize) {
        let expected = self.with.cluster;
        let found = self.lines.status(node).map(|status| status.cluster);
        if let Some(found) = found.filter(|found| *found != expected) {
            let reason = format!("it belongs to cluster {found:#018x}, expected {expected:#018x}");
            self.lines.hang_up(node, &reason);
        }
    }
}
