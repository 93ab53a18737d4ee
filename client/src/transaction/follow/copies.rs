//! Follows unavailable participants by reading replicas of their logs.
//!
//! ```text
//! at first      all nodes report their replicas of the log -> one that contains every acknowledged record is read from its
//!               beginning -> its records are passed on, except keys outside of the prefix
//! each round    check that this replica is still complete, and read the records that were added to it: a participant
//!               that cannot be reached from here may continue to write
//! in doubt      for transactions that the participant has prepared and not ended: its other participants tell their votes
//! ```
//!
//! A participant acknowledges a vote or a commit only when it is in the replicas of the log's
//! current generation ([`rackscan_format::message::LogGeneration`]), so these contain everything
//! that was acknowledged.
//!
//! Invariants
//! - At most as many participants are treated as unavailable as the cluster may go without, and
//!   only those of which a replica is proved to contain every acknowledged record
//!   ([`newest_replicas`]): a stale replica is never read.
//! - A record is passed on only if its checksum, which continues that of the record before, is
//!   right: replicas are verified like feeds.
//! - A transaction that an unavailable participant has prepared counts as committed when one of its
//!   participants has committed it, or all have prepared it. The participant would decide in the
//!   same way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use az::SaturatingAs;
use futures::{executor::block_on, future::join_all};
use rackscan_format::{
    ids::NodeId,
    limits::KEPT_BYTES_MAX,
    message::{Answer, CopyHeld, CopyOfLog, LogGeneration, Request},
};
use rackscan_ramp::{
    feed::Follow,
    limits::RECORD_BYTES_MAX,
    log::Record,
    message::{ParticipantId, Reply, Request as Question, Vote},
    timestamp::Timestamp,
};

use super::{
    CaughtUp, Follower,
    outcome::{AttemptError, StopReason},
    unavailable_participant::UnavailableParticipant,
};
use crate::{
    ClientError, Cluster, TransactionError,
    message_names::unexpected_answer,
    replicas::{ReplicaDoubt, ReplicaReport, newest_replicas},
    transaction::participant::Purpose,
};

impl Follower {
    /// Whether a participant that counts as unavailable can be reached again.
    pub(super) fn is_back(&mut self) -> bool {
        if self.unavailable.is_empty() {
            return false;
        }
        self.session.take_events(rackscan_device::Wait::Now);
        self.unavailable.iter().any(|unavailable| self.session.lines.unavailable(unavailable.at).is_none())
    }

    /// Treats a lost participant as unavailable, if the cluster may go without it and a replica of
    /// its log has every acknowledged record.
    pub(super) fn treat_as_unavailable(
        &mut self,
        error: TransactionError,
    ) -> Result<ParticipantId, StopReason> {
        let TransactionError::NodeDown { participant, ref reason } = error else { return Err(error.into()) };
        let Some((cluster, at)) = self.copies.as_ref().zip(self.session.position(participant)) else {
            return Err(error.into());
        };
        if self.unavailable.len() >= cluster.unavailable_max() {
            return Err(error.into());
        }
        let found = block_on(cluster.newest_copies(NodeId(participant.0)));
        let (replica_node, held) = match found.map(|found| found.first().copied()) {
            Ok(Some(newest)) => newest,
            Ok(None) => {
                tracing::warn!(%participant, "no node has a copy of the log of an unavailable participant");
                return Err(error.into());
            }
            Err(doubt) => {
                let reason = format!("{reason}; {doubt}");
                return Err(TransactionError::NodeDown { participant, reason }.into());
            }
        };
        let (log, tail, rest, doubtful) = (held.log, None, Vec::new(), BTreeMap::new());
        tracing::debug!(%participant, %replica_node, "a copy of the log of an unavailable participant is read");
        self.unavailable.push(UnavailableParticipant {
            participant,
            at,
            replica_node,
            log,
            tail,
            rest,
            doubtful,
        });
        Ok(participant)
    }

    /// Tells the new records in the logs of unavailable participants, and the ends of transactions
    /// in doubt there.
    pub(super) fn read_copies<F: Follow>(
        &mut self,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), AttemptError<F::Fault>> {
        let Some(cluster) = self.copies.clone().filter(|_| !self.unavailable.is_empty()) else {
            return Ok(());
        };
        for number in 0..self.unavailable.len() {
            self.read_copy(number, &cluster, follow, deadline, caught)?;
        }
        let doubtful = self.unavailable.iter().flat_map(|unavailable| unavailable.doubtful.iter());
        let doubtful: BTreeMap<Timestamp, Vec<ParticipantId>> =
            doubtful.map(|(timestamp, participants)| (*timestamp, participants.clone())).collect();
        for (timestamp, participants) in doubtful {
            if self.is_committed(timestamp, &participants, deadline)? {
                let participant = self.unavailable[0].participant;
                self.unavailable
                    .iter_mut()
                    .for_each(|unavailable| drop(unavailable.doubtful.remove(&timestamp)));
                follow.record(participant, Record::Commit(timestamp)).map_err(AttemptError::Fault)?;
                caught.records += 1;
            }
        }
        Ok(())
    }

    /// Tells the new records of one replica, up to its present end.
    fn read_copy<F: Follow>(
        &mut self,
        number: usize,
        cluster: &Cluster,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), AttemptError<F::Fault>> {
        let mut end = None;
        let (participant, replica_node) =
            (self.unavailable[number].participant, self.unavailable[number].replica_node);
        // The participant may be alive where it cannot be reached from here, and go on without this
        // replica.
        match block_on(cluster.newest_copies(NodeId(participant.0))) {
            Ok(newest) if newest.iter().any(|(node, _)| *node == replica_node) => {}
            Ok(_) => return Err(StopReason::Lost(participant).into()),
            Err(doubt) => {
                let error = TransactionError::NodeDown { participant, reason: doubt.to_string() };
                return Err(StopReason::from(error).into());
            }
        }
        loop {
            self.check_time(deadline)?;
            let unavailable = &mut self.unavailable[number];
            let (participant, from) = (unavailable.participant, unavailable.offset_bytes());
            let copy = block_on(cluster.copy_of_log(unavailable.replica_node, NodeId(participant.0), from));
            let (held, bytes) = match copy {
                Ok((Some(held), bytes, _))
                    if held.log == unavailable.log && held.end.offset_bytes >= from =>
                {
                    (held, bytes)
                }
                // The log was written anew, or the replica node is unavailable now: everything
                // begins anew.
                Ok(_) => return Err(StopReason::Lost(participant).into()),
                Err(error) => {
                    tracing::debug!(%participant, %error, "a copy of the log of an unavailable participant was not read");
                    return Err(StopReason::Lost(participant).into());
                }
            };
            let end = *end.get_or_insert(held.end.offset_bytes);
            let is_stuck = bytes.is_empty() && from < end || unavailable.rest.len() > RECORD_BYTES_MAX;
            let records =
                if is_stuck { Err("it ends too early".to_owned()) } else { unavailable.records(&bytes) };
            let records = records.map_err(|why| {
                tracing::warn!(%participant, replica_node = %unavailable.replica_node, why, "a copy of the log of an unavailable participant is damaged");
                StopReason::Lost(participant)
            })?;
            for record in records {
                unavailable.tell(record, &self.prefix, follow, caught).map_err(AttemptError::Fault)?;
            }
            if unavailable.offset_bytes() >= end {
                return Ok(());
            }
        }
    }

    /// Whether a transaction is committed that an unavailable participant has prepared.
    fn is_committed(
        &mut self,
        timestamp: Timestamp,
        participants: &[ParticipantId],
        deadline: Instant,
    ) -> Result<bool, StopReason> {
        let prepared = |participant: &ParticipantId| {
            self.unavailable.iter().any(|unavailable| {
                unavailable.participant == *participant && unavailable.doubtful.contains_key(&timestamp)
            })
        };
        let asked: BTreeSet<usize> = participants
            .iter()
            .filter(|participant| {
                self.unavailable.iter().all(|unavailable| unavailable.participant != **participant)
            })
            .filter_map(|participant| self.session.position(*participant))
            .collect();
        let all_unavailable_have = participants.iter().filter(|participant| {
            self.unavailable.iter().any(|unavailable| unavailable.participant == **participant)
        });
        let mut all_have = all_unavailable_have.into_iter().all(prepared);
        for at in &asked {
            self.session.ask(*at, Purpose::Follow(self.attempt), Question::Inquire { timestamp });
        }
        let mut any_committed = false;
        for _ in &asked {
            match self.next_reply(deadline)? {
                (_, Reply::Voted { vote: Vote::Committed }) => any_committed = true,
                (_, Reply::Voted { vote: Vote::Prepared }) => {}
                // It is aborted, or ended long ago.
                (_, Reply::Voted { vote: Vote::Refused | Vote::Forgotten }) => all_have = false,
                (at, reply) => return Err(self.protocol_violation(at, &reply)),
            }
        }
        Ok(any_committed || all_have)
    }
}

impl Cluster {
    /// The replicas of an unavailable node's log that have every acknowledged record.
    async fn newest_copies(&self, origin: NodeId) -> Result<Vec<(NodeId, CopyHeld)>, Box<ReplicaDoubt>> {
        let others: Vec<NodeId> = self.nodes().filter(|node| *node != origin).collect();
        let asked = others.iter().map(|node| async move {
            let said = self.copy_of_log(*node, origin, u64::MAX).await;
            said.map(|(held, _, generation)| ReplicaReport { node: *node, held, generation })
        });
        let reports: Vec<ReplicaReport> = join_all(asked).await.into_iter().filter_map(Result::ok).collect();
        let is_silent = |node: &NodeId| reports.iter().all(|report| report.node != *node);
        let silent: Vec<NodeId> = others.iter().copied().filter(is_silent).collect();
        newest_replicas(origin, &others, &reports, &silent)
    }

    /// Reads a replica of a node's log: its extent, if there is one, its bytes from an offset on,
    /// and the newest generation that the replica node knows.
    async fn copy_of_log(
        &self,
        replica_node: NodeId,
        origin: NodeId,
        from_bytes: u64,
    ) -> Result<(Option<CopyHeld>, Vec<u8>, Option<LogGeneration>), ClientError> {
        let during = "copy of log";
        let span = self.shared.memory.take(KEPT_BYTES_MAX, "a copy of a log").await?;
        let request = CopyOfLog { origin, from_bytes, target: span.as_target() };
        let mut reply = self.ask(replica_node, Request::CopyOfLog(request), Some(span)).await?;
        let (held, written, generation) = match reply.take_answer(replica_node, during)? {
            Answer::CopyOfLog { held, written_bytes, generation } => (held, written_bytes, generation),
            other => return Err(unexpected_answer(replica_node, during, &other, "a copy of a log")),
        };
        let span = reply.span.ok_or(ClientError::Closed)?;
        // At most the target is read, whatever the node says: the records' checksums are verified.
        let length = written.saturating_as::<usize>().min(span.length_bytes());
        let mut bytes = vec![0; length];
        let bad = |error: rackscan_fabric::OutOfBounds| ClientError::BadAnswer {
            node: replica_node,
            during,
            found: error.to_string(),
            expected: "bytes that fit into the memory for them".to_owned(),
        };
        span.copy_out(0, &mut bytes).map_err(bad)?;
        Ok((held, bytes, generation))
    }
}
