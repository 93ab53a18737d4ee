//! What has a home written whose node is away?
//!
//! ```text
//! replicas of its log, asked for at all nodes -> one that has everything -> its records from the beginning on -> told, but for others' keys
//! each round:   does it still have everything? what has come behind them (whoever cannot be reached from here may go on writing)
//! in doubt:     prepared there, and no end: how do its other homes vote?
//! ```
//!
//! A vote and a commit are told of when they are in the replicas that count
//! ([`rackscan_format::message::LogGeneration`]), so those know of everything that was
//! acknowledged.
//!
//! Invariants
//! - At most as many homes are taken for away as the cluster may do without, and none of which no
//!   replica is proved to have every acknowledged record ([`newest_replicas`]): a stale one is
//!   never read.
//! - A record is told after its checksum, which continues that of the record before, was found
//!   right: copies are believed no more than feeds.
//! - What was prepared in a home that is away counts when one of its homes has committed it, or all
//!   have prepared it: as if the home asked itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use futures::{executor::block_on, future::join_all};
use rackscan_format::{
    ids::NodeId,
    limits::KEPT_BYTES_MAX,
    message::{Answer, CopyHeld, CopyOfLog, LogGeneration, Request},
};
use rackscan_ramp::{
    feed::Follow,
    item::Version,
    limits::{LOG_HEADER_BYTES, RECORD_BYTES_MAX},
    log::{Damage, Record, Tail, read},
    message::{Found, HomeId, Part, Reply, Request as Question, Vote},
    timestamp::Timestamp,
};

use super::{CaughtUp, Ended, Follower, Purpose, Stop, TransactionError};
use crate::{
    ClientError, Cluster,
    cluster::{taken, unexpected},
    replicas::{ReplicaDoubt, ReplicaReport, newest_replicas},
    status::target_in,
};

/// A home that is away, and the copy of its log that is read instead.
#[derive(Debug)]
pub(super) struct AwayHome {
    home: HomeId,
    /// Its place among all homes.
    at: usize,
    replica_node: NodeId,
    /// The number of the log.
    log: u32,
    /// Behind the last record that was told; `None` if none was.
    tail: Option<Tail>,
    /// Bytes behind it that are no whole record yet.
    rest: Vec<u8>,
    /// Transactions that are prepared there and of which the log tells no end, and their homes.
    doubtful: BTreeMap<Timestamp, Vec<HomeId>>,
}

impl AwayHome {
    pub(super) fn id(&self) -> HomeId {
        self.home
    }

    /// The records in bytes that follow what was read before; the rest waits for more.
    fn records(&mut self, bytes: &[u8]) -> Result<Vec<Record>, String> {
        self.rest.extend_from_slice(bytes);
        let (tail, skipped) = match self.tail {
            Some(tail) => (tail, 0),
            None if self.rest.len() < LOG_HEADER_BYTES => return Ok(Vec::new()),
            None => (Tail::from_header(&self.rest).map_err(|fault| fault.to_string())?, LOG_HEADER_BYTES),
        };
        let (records, end, cut) = read(tail, &self.rest[skipped..]);
        let is_cut_short = |damage: &Damage| matches!(damage, Damage::Short { .. });
        if let Some(cut) = cut.filter(|cut| !is_cut_short(&cut.damage)) {
            return Err(format!("record {}: {}", cut.sequence, cut.damage));
        }
        let told = usize::try_from(end.offset_bytes - tail.offset_bytes).unwrap_or(usize::MAX);
        self.rest.drain(..skipped + told);
        self.tail = Some(end);
        Ok(records)
    }

    /// The first byte that was not read.
    fn offset_bytes(&self) -> u64 {
        self.tail.map_or(0, |tail| tail.offset_bytes) + self.rest.len() as u64
    }

    /// Tells a record of a log as one of a feed: a log begins with what was there when it was
    /// begun, and what is committed with its vote has no record of its own.
    fn tell<F: Follow>(
        &mut self,
        record: Record,
        prefix: &[u8],
        follow: &mut F,
        caught: &mut CaughtUp,
    ) -> Result<(), F::Fault> {
        let home = self.home;
        let mut part_told = |mut part: Part, is_committed: bool| {
            part.items.retain(|(key, _)| key.bytes().starts_with(prefix));
            if part.items.is_empty() {
                return Ok(());
            }
            caught.records += 1;
            if is_committed && part.homes.is_empty() {
                let Part { timestamp, metadata, items, .. } = part;
                let found = |value| Found {
                    version: Version { timestamp, value, metadata: metadata.clone() },
                    beside: Vec::new(),
                    place: None,
                };
                return follow
                    .scanned(home, items.into_iter().map(|(key, value)| (key, found(value))).collect());
            }
            let timestamp = part.timestamp;
            if !is_committed {
                self.doubtful.insert(timestamp, part.homes.clone());
            }
            follow.record(home, Record::Prepare(part))?;
            if is_committed { follow.record(home, Record::Commit(timestamp)) } else { Ok(()) }
        };
        match record {
            Record::Prepare(part) => {
                let is_whole = part.is_whole();
                part_told(part, is_whole)
            }
            Record::Put(part) => part_told(part, true),
            Record::Commit(timestamp) | Record::Refuse(timestamp)
                if self.doubtful.remove(&timestamp).is_some() =>
            {
                follow.record(home, record)
            }
            _ => Ok(()),
        }
    }
}

impl Follower {
    /// Whether a home that was taken for away can be reached again.
    pub(super) fn is_back(&mut self) -> bool {
        if self.away.is_empty() {
            return false;
        }
        self.session.take_events(rackscan_device::Wait::Now);
        self.away.iter().any(|away| self.session.lines.away(away.at).is_none())
    }

    /// Takes the home that is down for away, if that may be and somebody has a copy of its log.
    pub(super) fn take_for_away(&mut self, error: TransactionError) -> Result<HomeId, Stop> {
        let TransactionError::NodeDown { home, ref reason } = error else { return Err(error.into()) };
        let Some((cluster, at)) = self.copies.as_ref().zip(self.session.position(home)) else {
            return Err(error.into());
        };
        if self.away.len() >= cluster.away_max() {
            return Err(error.into());
        }
        let found = block_on(cluster.newest_copies(NodeId(home.0)));
        let (replica_node, held) = match found.map(|found| found.first().copied()) {
            Ok(Some(newest)) => newest,
            Ok(None) => {
                tracing::warn!(%home, "nobody has a copy of the log of a home that is away");
                return Err(error.into());
            }
            Err(doubt) => {
                let reason = format!("{reason}; {doubt}");
                return Err(TransactionError::NodeDown { home, reason }.into());
            }
        };
        let (log, tail, rest, doubtful) = (held.log, None, Vec::new(), BTreeMap::new());
        tracing::debug!(%home, %replica_node, "a copy of its log is read of a home that is away");
        self.away.push(AwayHome { home, at, replica_node, log, tail, rest, doubtful });
        Ok(home)
    }

    /// Tells what the logs of homes that are away have behind what was told, and the end of what
    /// they have in doubt.
    pub(super) fn read_copies<F: Follow>(
        &mut self,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), Ended<F::Fault>> {
        let Some(cluster) = self.copies.clone().filter(|_| !self.away.is_empty()) else { return Ok(()) };
        for number in 0..self.away.len() {
            self.read_copy(number, &cluster, follow, deadline, caught)?;
        }
        let doubtful = self.away.iter().flat_map(|away| away.doubtful.iter());
        let doubtful: BTreeMap<Timestamp, Vec<HomeId>> =
            doubtful.map(|(timestamp, homes)| (*timestamp, homes.clone())).collect();
        for (timestamp, homes) in doubtful {
            if self.is_committed(timestamp, &homes, deadline)? {
                let home = self.away[0].home;
                self.away.iter_mut().for_each(|away| drop(away.doubtful.remove(&timestamp)));
                follow.record(home, Record::Commit(timestamp)).map_err(Ended::Fault)?;
                caught.records += 1;
            }
        }
        Ok(())
    }

    /// Tells what one copy has, up to an end that is looked at now.
    fn read_copy<F: Follow>(
        &mut self,
        number: usize,
        cluster: &Cluster,
        follow: &mut F,
        deadline: Instant,
        caught: &mut CaughtUp,
    ) -> Result<(), Ended<F::Fault>> {
        let mut end = None;
        let (home, replica_node) = (self.away[number].home, self.away[number].replica_node);
        // The home may live where it cannot be seen from here, and go on without this replica.
        match block_on(cluster.newest_copies(NodeId(home.0))) {
            Ok(newest) if newest.iter().any(|(node, _)| *node == replica_node) => {}
            Ok(_) => return Err(Stop::Lost(home).into()),
            Err(doubt) => {
                let error = TransactionError::NodeDown { home, reason: doubt.to_string() };
                return Err(Stop::from(error).into());
            }
        }
        loop {
            self.check_time(deadline)?;
            let away = &mut self.away[number];
            let (home, from) = (away.home, away.offset_bytes());
            let copy = block_on(cluster.copy_of_log(away.replica_node, NodeId(home.0), from));
            let (held, bytes) = match copy {
                Ok((Some(held), bytes, _)) if held.log == away.log && held.end.offset_bytes >= from => {
                    (held, bytes)
                }
                // It was written anew, or its replica node is away now: all begins anew.
                Ok(_) => return Err(Stop::Lost(home).into()),
                Err(error) => {
                    tracing::debug!(%home, %error, "a copy of the log of a home that is away was not read");
                    return Err(Stop::Lost(home).into());
                }
            };
            let end = *end.get_or_insert(held.end.offset_bytes);
            let is_stuck = bytes.is_empty() && from < end || away.rest.len() > RECORD_BYTES_MAX;
            let records = if is_stuck { Err("it does not go on".to_owned()) } else { away.records(&bytes) };
            let records = records.map_err(|why| {
                tracing::warn!(%home, replica_node = %away.replica_node, why, "a copy of the log of a home that is away is no log");
                Stop::Lost(home)
            })?;
            for record in records {
                away.tell(record, &self.prefix, follow, caught).map_err(Ended::Fault)?;
            }
            if away.offset_bytes() >= end {
                return Ok(());
            }
        }
    }

    /// Whether a transaction is committed that a home which is away has prepared.
    fn is_committed(
        &mut self,
        timestamp: Timestamp,
        homes: &[HomeId],
        deadline: Instant,
    ) -> Result<bool, Stop> {
        let prepared = |home: &HomeId| {
            self.away.iter().any(|away| away.home == *home && away.doubtful.contains_key(&timestamp))
        };
        let asked: BTreeSet<usize> = homes
            .iter()
            .filter(|home| self.away.iter().all(|away| away.home != **home))
            .filter_map(|home| self.session.position(*home))
            .collect();
        let all_away_have = homes.iter().filter(|home| self.away.iter().any(|away| away.home == **home));
        let mut all_have = all_away_have.into_iter().all(prepared);
        for at in &asked {
            self.session.ask(*at, Purpose::Follow(self.attempt), Question::Inquire { timestamp });
        }
        let mut any_committed = false;
        for _ in &asked {
            match self.next_reply(deadline)? {
                (_, Reply::Voted { vote: Vote::Committed }) => any_committed = true,
                (_, Reply::Voted { vote: Vote::Prepared }) => {}
                // It is aborted, or over and done with.
                (_, Reply::Voted { vote: Vote::Refused | Vote::Forgotten }) => all_have = false,
                (at, reply) => return Err(self.nonsense(at, &reply)),
            }
        }
        Ok(any_committed || all_have)
    }
}

impl Cluster {
    /// The replicas of the log of a node that is away that have every acknowledged record.
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

    /// What a node has of the copy of a node's log: how much, if there is any, and bytes from a
    /// place on.
    async fn copy_of_log(
        &self,
        replica_node: NodeId,
        origin: NodeId,
        from_bytes: u64,
    ) -> Result<(Option<CopyHeld>, Vec<u8>, Option<LogGeneration>), ClientError> {
        let during = "copy of log";
        let span = self.shared.memory.take(KEPT_BYTES_MAX, "a copy of a log").await?;
        let request = CopyOfLog { origin, from_bytes, target: target_in(&span) };
        let mut reply = self.ask(replica_node, Request::CopyOfLog(request), Some(span)).await?;
        let (held, written, generation) = match taken(replica_node, during, &mut reply)? {
            Answer::CopyOfLog { held, written_bytes, generation } => (held, written_bytes, generation),
            other => return Err(unexpected(replica_node, during, &other, "a copy of a log")),
        };
        let span = reply.span.ok_or(ClientError::Closed)?;
        let length = usize::try_from(written).unwrap_or(usize::MAX).min(span.length_bytes());
        let mut bytes = vec![0; length];
        let bad = |error: rackscan_fabric::OutOfBounds| ClientError::BadAnswer {
            node: replica_node,
            during,
            found: error.to_string(),
            expected: "bytes within the target".to_owned(),
        };
        span.copy_out(0, &mut bytes).map_err(bad)?;
        Ok((held, bytes, generation))
    }
}
