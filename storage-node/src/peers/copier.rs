//! Sends the participant's log to the nodes that store its replicas, and the log's generation to
//! all other nodes. A generation is a numbered set of the replicas that count.
//!
//! ```text
//! connected: ask which part of this log the node has
//!              -> a beginning of it:          continue from there
//!              -> it continues differently:   cut the replica at the position where this process has begun
//!                                             to write the log, or begin a new replica
//! behind:    send the next piece: all records that gathered while the last piece was in flight
//!              -> the node has it:            report to the participant
//! a shorter log is ready: send its pieces, alternating with those above
//!              -> the node has all of it:     report to the participant, which switches logs
//! a new generation: send it to all other nodes, together with the next request
//!              -> it is durable at the node:  report to the participant
//! ```
//!
//! Invariants
//! - One request is in flight to each replica node, so the connection's memory belongs to that
//!   request.
//! - Only records in the replica that counts are reported to the participant.

use std::sync::Arc;

use rackscan_client::Lines;
use rackscan_format::{
    ids::NodeId,
    limits::{KEPT_BYTES_MAX, TRANSACT_BYTES_MAX},
    message::{
        Answer, KeepLog, LogGeneration, LogKept, LogPoint, Payload, Refusal, RefusalCode, Request, Start,
        Target,
    },
};
use rackscan_ramp::log::Follower;

use super::{
    copied::{Copied, ReplicaSpace},
    outlet::{LogNow, OpenLog, Outlet},
    replica_node::{PendingRequest, ReplicaNode, Standing, Witness},
};
use crate::{
    copies::{point, tail},
    limits::LOG_AHEAD_BYTES,
};

/// Sends the log to the replica nodes.
#[derive(Debug)]
pub(super) struct Copier {
    origin: NodeId,
    start: Start,
    outlet: Arc<Outlet>,
    replica_nodes: Vec<ReplicaNode>,
    witnesses: Vec<Witness>,
    file: OpenLog,
    new_version: OpenLog,
    bytes: Vec<u8>,
}

impl Copier {
    /// A copier of the log of this node, over this start of its folder. `replica_nodes` and
    /// `witnesses` are their numbers among the connections.
    pub(super) fn new(
        (origin, start): (NodeId, Start),
        outlet: Arc<Outlet>,
        (replica_nodes, witnesses): (&[usize], &[usize]),
    ) -> Self {
        let replica_node = |node: &usize| ReplicaNode {
            node: *node,
            standing: Standing::Unknown,
            asked: None,
            ahead: (0, 0),
            turn: false,
            is_tight: false,
            looks: false,
            refuses: false,
            knows: 0,
        };
        let replica_nodes = replica_nodes.iter().map(replica_node).collect();
        let witness = |node: &usize| Witness { node: *node, asked: None, knows: 0, rests: false };
        let witnesses = witnesses.iter().map(witness).collect();
        Self {
            origin,
            start,
            outlet,
            replica_nodes,
            witnesses,
            file: OpenLog::default(),
            new_version: OpenLog::default(),
            bytes: Vec::new(),
        }
    }

    /// Sends each replica node without a request in flight the next piece that it lacks.
    pub(super) fn pump(&mut self, lines: &mut Lines, tags: &mut u64) {
        let Some(now) = self.outlet.now() else { return };
        let generation = self.outlet.generation();
        let told = generation.as_ref().map_or(0, |generation| generation.number);
        self.tell_witnesses((now.number, generation.as_ref()), lines, tags);
        for copy in 0..self.replica_nodes.len() {
            let ReplicaNode { node, standing, asked: None, ahead, turn, looks, knows, .. } =
                self.replica_nodes[copy]
            else {
                continue;
            };
            if standing == Standing::Rests || lines.unavailable(node).is_some() {
                continue;
            }
            let follows =
                matches!(standing, Standing::Follows { log, is_whole: true, .. } if log == now.number);
            let first = if follows && turn { self.next_ahead(ahead, lines, node) } else { None };
            let next = first.or_else(|| self.next_request(standing, now, lines, node));
            let next = next.or_else(|| if follows { self.next_ahead(ahead, lines, node) } else { None });
            let next = next.or_else(|| (looks || knows < told).then(|| self.only_told(standing, now.number)));
            let Some((request, asked)) = next else { continue };
            (self.replica_nodes[copy].turn, self.replica_nodes[copy].looks) = (!asked.ahead, false);
            *tags += 1;
            let request = KeepLog { start: self.start, generation: generation.clone(), ..request };
            let sent = lines.send(node, *tags, Request::KeepLog(request));
            match sent {
                Ok(()) => self.replica_nodes[copy].asked = Some(PendingRequest { tag: *tags, told, ..asked }),
                Err(error) => {
                    tracing::debug!(%error, "a part of the log was not sent to a node with a replica of it");
                    self.replica_nodes[copy].standing = Standing::Rests;
                }
            }
        }
    }

    /// Tells the generation to each witness that does not know it.
    fn tell_witnesses(
        &mut self,
        (log, generation): (u32, Option<&LogGeneration>),
        lines: &mut Lines,
        tags: &mut u64,
    ) {
        let Some(generation) = generation else { return };
        for witness in self.witnesses.iter_mut() {
            let is_told = witness.asked.is_some() || witness.rests || witness.knows >= generation.number;
            if is_told || lines.unavailable(witness.node).is_some() {
                continue;
            }
            *tags += 1;
            let told = generation.number;
            let asked = PendingRequest {
                tag: *tags,
                log,
                through: None,
                cuts: false,
                ends: false,
                ahead: false,
                told,
            };
            let generation = Some(generation.clone());
            let request = KeepLog { start: self.start, generation, ..nothing(self.origin, log) };
            match lines.send(witness.node, *tags, Request::KeepLog(request)) {
                Ok(()) => witness.asked = Some(asked),
                Err(error) => {
                    tracing::debug!(%error, "a generation of the log was not told to a node");
                    witness.rests = true;
                }
            }
        }
    }

    /// A request that only carries the generation, for a replica node that has everything.
    fn only_told(&self, standing: Standing, log: u32) -> (KeepLog, PendingRequest) {
        let through = match standing {
            Standing::Follows { through, .. } => Some(through),
            _ => None,
        };
        let offset_bytes = through.unwrap_or(0);
        let asked = PendingRequest { tag: 0, log, through, cuts: false, ends: false, ahead: false, told: 0 };
        (KeepLog { offset_bytes, ..nothing(self.origin, log) }, asked)
    }

    /// The next request to a replica node, if there is one.
    fn next_request(
        &mut self,
        standing: Standing,
        now: LogNow,
        lines: &Lines,
        node: usize,
    ) -> Option<(KeepLog, PendingRequest)> {
        let number = now.number;
        let origin = self.origin;
        let request = |offset_bytes| KeepLog { offset_bytes, ..nothing(origin, number) };
        let asked = PendingRequest {
            tag: 0,
            log: number,
            through: None,
            cuts: false,
            ends: false,
            ahead: false,
            told: 0,
        };
        match standing {
            Standing::Follows { log, through, is_whole } if log == number => {
                if through == now.end.offset_bytes {
                    let last = KeepLog { is_whole: true, ..request(through) };
                    return (!is_whole)
                        .then_some((last, PendingRequest { through: Some(through), ends: true, ..asked }));
                }
                let read = self.outlet.read(number, through, KEPT_BYTES_MAX, &mut self.file, &mut self.bytes);
                if let Err(error) = read {
                    tracing::warn!(%error, "the log of transactions could not be read back for a replica");
                }
                let end = through + self.bytes.len() as u64;
                let bytes = if self.bytes.is_empty() { None } else { payload(&self.bytes, lines, node) };
                let is_whole = end == now.end.offset_bytes;
                bytes.map(|bytes| {
                    let part = KeepLog { is_whole, bytes, ..request(through) };
                    (part, PendingRequest { through: Some(end), ends: is_whole, ..asked })
                })
            }
            Standing::Differs { log, from } if log == number => {
                let cut = KeepLog { cut: Some(from), ..request(from.offset_bytes) };
                Some((cut, PendingRequest { cuts: true, ..asked }))
            }
            Standing::Rests => None,
            // It has another log, or nothing was heard: ask what it has of this one.
            _ => Some((request(0), asked)),
        }
    }

    /// The next piece of the log's new version, if there is one and the replica node lacks some of
    /// it.
    fn next_ahead(
        &mut self,
        (log, through): (u32, u64),
        lines: &Lines,
        node: usize,
    ) -> Option<(KeepLog, PendingRequest)> {
        let (number, end) = self.outlet.new_version()?;
        let offset_bytes = if log == number { through } else { 0 };
        if offset_bytes >= end.offset_bytes {
            return None;
        }
        let read =
            self.outlet.read(number, offset_bytes, KEPT_BYTES_MAX, &mut self.new_version, &mut self.bytes);
        if read.is_err() || self.bytes.is_empty() {
            // The new version was given up; the participant will hear of it.
            return None;
        }
        let (origin, through) = (self.origin, Some(offset_bytes + self.bytes.len() as u64));
        let bytes = payload(&self.bytes, lines, node)?;
        let part = KeepLog { offset_bytes, bytes, ..nothing(origin, number) };
        Some((
            part,
            PendingRequest { tag: 0, log: number, through, cuts: false, ends: false, ahead: true, told: 0 },
        ))
    }

    /// Handles the answer to one of this copier's requests. Returns the reports for the
    /// participant.
    pub(super) fn on_answer(
        &mut self,
        node: usize,
        tag: u64,
        outcome: &Result<Answer, Box<Refusal>>,
    ) -> Result<Vec<Copied>, NotAsked> {
        let is_tag = |asked: &Option<PendingRequest>| asked.is_some_and(|asked| asked.tag == tag);
        let of_tag = |replica_node: &ReplicaNode| replica_node.node == node && is_tag(&replica_node.asked);
        let Some(copy) = self.replica_nodes.iter().position(of_tag) else {
            return self.on_witness_answer(node, tag, outcome);
        };
        let Some(asked) = self.replica_nodes[copy].asked.take() else { return Err(NotAsked) };
        let Some(kept) = kept(node, outcome) else {
            let replica_node = &mut self.replica_nodes[copy];
            replica_node.standing = Standing::Rests;
            if let Err(refusal) = outcome
                && !std::mem::replace(&mut replica_node.refuses, true)
            {
                tracing::warn!(
                    copy,
                    reason = refusal.text,
                    "a node refuses to store a replica of the log of transactions now"
                );
            }
            let full = outcome.as_ref().err().filter(|refusal| refusal.code == RefusalCode::Full);
            let Some(refusal) = full else { return Ok(Vec::new()) };
            if asked.ahead {
                return Ok(vec![Copied::NoRoomAhead { copy, log: asked.log }]);
            }
            // The participant forgets what it knows of this node, too, and is told again.
            replica_node.knows = 0;
            return Ok(vec![Copied::Full { other: copy, reason: refusal.text.clone() }]);
        };
        self.replica_nodes[copy].refuses = false;
        let generation = kept.generation;
        if asked.told > 0 && generation > asked.told {
            self.replica_nodes[copy].standing = Standing::Rests;
            return Ok(vec![Copied::Newer { other: copy, generation }]);
        }
        let mut told = Vec::new();
        if generation == asked.told && self.replica_nodes[copy].knows < generation {
            self.replica_nodes[copy].knows = generation;
            told.push(Copied::Knows { other: copy, generation });
        }
        if asked.ahead {
            told.extend(self.on_new_version_answer(copy, asked, kept));
            return Ok(told);
        }
        let Some(now) = self.outlet.now() else { return Ok(told) };
        let standing = self.standing(asked, kept, now);
        self.replica_nodes[copy].standing = standing;
        if matches!(standing, Standing::Follows { is_whole: true, .. }) {
            let (log, end_bytes) = (now.number, kept.room_bytes);
            let is_tight = end_bytes < kept.through_bytes + LOG_AHEAD_BYTES / 2;
            self.replica_nodes[copy].is_tight = is_tight;
            let room = ReplicaSpace { log, end_bytes, is_tight };
            told.push(Copied::Through { copy, sequence: kept.end.sequence, room });
        }
        Ok(told)
    }

    /// The same for a witness.
    fn on_witness_answer(
        &mut self,
        node: usize,
        tag: u64,
        outcome: &Result<Answer, Box<Refusal>>,
    ) -> Result<Vec<Copied>, NotAsked> {
        let of_tag = |of: &Witness| of.node == node && of.asked.is_some_and(|asked| asked.tag == tag);
        let number = self.witnesses.iter().position(of_tag).ok_or(NotAsked)?;
        let (other, witness) = (self.replica_nodes.len() + number, &mut self.witnesses[number]);
        let told = witness.asked.take().map_or(0, |asked| asked.told);
        let Some(LogKept { generation, .. }) = kept(node, outcome) else {
            witness.rests = true;
            return Ok(Vec::new());
        };
        if generation > told {
            witness.rests = true;
            return Ok(vec![Copied::Newer { other, generation }]);
        }
        (witness.knows, witness.rests) = (generation, generation < told);
        Ok(vec![Copied::Knows { other, generation }])
    }

    /// Handles an answer about the log's new version.
    fn on_new_version_answer(&mut self, copy: usize, asked: PendingRequest, kept: LogKept) -> Option<Copied> {
        let log = asked.log;
        let follows = asked.through == Some(kept.through_bytes);
        self.replica_nodes[copy].ahead = (log, if follows { kept.through_bytes } else { 0 });
        let (number, end) = self.outlet.new_version()?;
        (follows && log == number && kept.through_bytes == end.offset_bytes)
            .then_some(Copied::Ahead { copy, log })
    }

    /// Decides what is known of a replica node from its answer.
    fn standing(&mut self, asked: PendingRequest, kept: LogKept, now: LogNow) -> Standing {
        let log = asked.log;
        if log != now.number {
            return Standing::Unknown;
        }
        let LogKept { through_bytes, end, is_whole, .. } = kept;
        if asked.through == Some(through_bytes) {
            if asked.ends && !is_whole {
                // It has all of it and does not let the replica count.
                return Standing::Rests;
            }
            return Standing::Follows { log, through: through_bytes, is_whole };
        }
        if end.offset_bytes > 0 && self.is_beginning(end, now) {
            return Standing::Follows { log, through: end.offset_bytes, is_whole };
        }
        let start = point(now.start);
        if !asked.cuts && end.offset_bytes > start.offset_bytes {
            return Standing::Differs { log, from: start };
        }
        if end.offset_bytes > 0 {
            tracing::warn!(?end, ours = ?point(now.end), "a replica of the log continues differently: it is written again from the beginning");
        }
        Standing::Follows { log, through: 0, is_whole: false }
    }

    /// Whether the log continues, or ends, at this point of the replica.
    fn is_beginning(&mut self, end: LogPoint, now: LogNow) -> bool {
        let end = tail(end);
        if end.offset_bytes >= now.end.offset_bytes {
            return end == now.end;
        }
        // The next record's checksum continues that of the one before.
        let mut follower = Follower::after(end);
        loop {
            let from = follower.through_bytes();
            let read = self.outlet.read(now.number, from, KEPT_BYTES_MAX, &mut self.file, &mut self.bytes);
            if read.is_err() || self.bytes.is_empty() {
                return false;
            }
            let damage = follower.whole(&self.bytes);
            if follower.tail() != end {
                return true;
            }
            if damage.is_some() {
                return false;
            }
        }
    }

    /// Handles the loss of the connection to a node. Returns the report for the participant.
    pub(super) fn lost(&mut self, node: usize) -> Option<Copied> {
        for replica_node in self.replica_nodes.iter_mut().filter(|replica_node| replica_node.node == node) {
            (replica_node.standing, replica_node.asked, replica_node.ahead) =
                (Standing::Unknown, None, (0, 0));
            (replica_node.knows, replica_node.is_tight, replica_node.looks) = (0, false, false);
        }
        for witness in self.witnesses.iter_mut().filter(|witness| witness.node == node) {
            (witness.asked, witness.rests, witness.knows) = (None, false, 0);
        }
        let replica_nodes = self.replica_nodes.iter().map(|replica_node| replica_node.node);
        let mut others = replica_nodes.chain(self.witnesses.iter().map(|witness| witness.node));
        others.position(|other| other == node).map(|other| Copied::Lost { other })
    }

    /// Handles a tick: asks again those that refused.
    pub(super) fn tick(&mut self) {
        for replica_node in
            self.replica_nodes.iter_mut().filter(|replica_node| replica_node.standing == Standing::Rests)
        {
            replica_node.standing = Standing::Unknown;
        }
        self.replica_nodes.iter_mut().for_each(|replica_node| replica_node.looks = replica_node.is_tight);
        self.witnesses.iter_mut().for_each(|witness| witness.rests = false);
    }
}

/// A request that keeps nothing.
fn nothing(origin: NodeId, log: u32) -> KeepLog {
    let bytes = Payload::Here(Vec::new());
    let start = Start::default();
    KeepLog { origin, start, log, offset_bytes: 0, cut: None, is_whole: false, bytes, generation: None }
}

/// The state of a replica, if the answer is one.
fn kept(node: usize, outcome: &Result<Answer, Box<Refusal>>) -> Option<LogKept> {
    match outcome {
        Ok(Answer::LogKept(kept)) => Some(*kept),
        Ok(other) => {
            tracing::warn!(node, answer = ?other, "a part of the log was answered with something else");
            None
        }
        Err(_) => None,
    }
}

/// The reply is to a request that the copier did not send.
#[derive(Debug)]
pub(super) struct NotAsked;

/// The payload for these bytes: in the request, or in the connection's memory if they are long.
fn payload(bytes: &[u8], lines: &Lines, node: usize) -> Option<Payload> {
    if bytes.len() <= TRANSACT_BYTES_MAX {
        return Some(Payload::Here(bytes.to_vec()));
    }
    let (region, memory) = lines.memory(node)?;
    region.copy_in(0, bytes).ok()?;
    Some(Payload::Beside(Target { length_bytes: bytes.len() as u64, ..memory }))
}
