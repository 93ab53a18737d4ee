//! Protects the segments that a load has written, before the load is published.
//!
//! Invariants
//! - Every segment of the table is in exactly one stripe set. A set of the previous table version
//!   is used further as long as the table contains a segment of it.
//! - The map describes what nodes have stored: the client requests directories and withheld rows
//!   from them after the last segment was stored.
//! - The map is durable at every node before any node is asked to prepare.

use std::{collections::BTreeSet, sync::Arc};

use az::SaturatingAs;
use futures::future::try_join_all;
use rackscan_format::{
    codec::{self, Envelope},
    ids::{NodeId, SegmentId, TableId},
    limits::MAP_PIECE_BYTES_MAX,
    message::{Answer, KeepMap, LoadHeld, NodeSegment, RefusalCode, Request},
    schema::Protection,
    segment::SegmentDirectory,
    stripe_set::{NodeStream, StreamSegment, StripeSet, TableMap, TablePart},
};

use super::{known_maps::KnownMap, load_stripes::LoadStripes, parity};
use crate::{
    ClientError, Cluster, LoadSession,
    limits::{CATALOG_TARGET_BYTES, LOAD_HELD_BYTES_MAX},
    message_names::unexpected_answer,
};

impl LoadSession {
    /// Computes and stores the parity of the segments appended so far, if the table is to be
    /// protected. [`LoadSession::publish`] does that for the remaining segments, so calls of this
    /// make publishing faster. May be called any number of times.
    ///
    /// # Errors
    /// A lost or refusing node. The load cannot be published then.
    pub async fn protect(&self) -> Result<(), ClientError> {
        let Some(protection) = self.definition().protection else { return Ok(()) };
        let mut sets = self.sets.lock().await;
        let protected = self.protect_rest(protection, &mut sets).await;
        if let Err(error) = &protected {
            self.fail(error);
        }
        protected.map(drop)
    }

    /// Protects what has no parity yet, and makes the map durable at every node.
    pub(crate) async fn keep_map(&self) -> Result<(), ClientError> {
        let Some(protection) = self.definition().protection else { return Ok(()) };
        let mut sets = self.sets.lock().await;
        let mut parts = self.protect_rest(protection, &mut sets).await?;
        let is_used = |set: &&StripeSet| {
            parts.iter().any(|part| part.segments.iter().any(|s| lies_in(set, &s.directory)))
        };
        let used: Vec<StripeSet> = sets.all().filter(is_used).cloned().collect();
        self.add_beside(&mut parts, &used).await?;
        let sets = used;
        let map = TableMap { definition: self.definition().clone(), parts, sets };
        let wrong = |problem: String| self.unprotectable(problem);
        map.verify().map_err(|error| wrong(error.to_string()))?;
        let bytes = map.encode_envelope().map_err(|error| wrong(error.to_string()))?;
        drop(map);
        let (id, nodes) = (self.definition().id, &self.definition().nodes);
        try_join_all(nodes.iter().map(|node| self.cluster.send_map(*node, id, &bytes))).await.map(drop)
    }

    /// Adds the directories of segments that stripe sets still contain and the new table version
    /// does not have any more.
    async fn add_beside(&self, parts: &mut [TablePart], sets: &[StripeSet]) -> Result<(), ClientError> {
        let Some(before) = self.map_before().await? else { return Ok(()) };
        for part in parts {
            let name = |directory: &SegmentDirectory| (directory.table, directory.segment);
            let streams = sets.iter().flat_map(|set| &set.streams).filter(|stream| stream.node == part.node);
            let segments = streams.flat_map(|stream| &stream.segments);
            let mut wanted: BTreeSet<_> = segments.map(|segment| (segment.table, segment.segment)).collect();
            for kept in &part.segments {
                wanted.remove(&name(&kept.directory));
            }
            let Some(old) = before.parts.iter().find(|old| old.node == part.node) else { continue };
            let had = old.segments.iter().map(|segment| &segment.directory).chain(&old.beside);
            part.beside = had.filter(|directory| wanted.contains(&name(directory))).cloned().collect();
        }
        Ok(())
    }

    /// The map of the version that is succeeded, if there is one.
    async fn map_before(&self) -> Result<Option<Arc<KnownMap>>, ClientError> {
        let Some(before) = self.definition().succeeds else { return Ok(None) };
        Ok(self.cluster.table_map(before).await?.filter(|map| map.definition.id == before))
    }

    fn unprotectable(&self, problem: String) -> ClientError {
        ClientError::Unprotectable { set: self.definition().id.to_string(), problem }
    }

    /// Computes the parity of all segments that lie in no stripe set. Returns each node's part of
    /// the load.
    async fn protect_rest(
        &self,
        protection: Protection,
        sets: &mut LoadStripes,
    ) -> Result<Vec<TablePart>, ClientError> {
        if sets.before.is_none() {
            sets.before = Some(self.sets_before(protection).await?);
        }
        let (id, nodes) = (self.definition().id, &self.definition().nodes);
        let parts = try_join_all(nodes.iter().map(|node| self.held(*node))).await?;
        let names = sets.names();
        let is_new = |directory: &&SegmentDirectory| !names.contains(&(directory.table, directory.segment));
        let stream = |part: &TablePart| {
            let directories = part.segments.iter().map(|segment| &segment.directory);
            let segments = directories.filter(is_new).map(StreamSegment::of).collect();
            NodeStream { node: part.node, segments, parity: Vec::new(), cells: Vec::new() }
        };
        let streams: Vec<NodeStream> = parts.iter().map(stream).collect();
        if streams.iter().any(|stream| !stream.segments.is_empty()) {
            let set = parity::store(&self.cluster, (id, &mut sets.next), protection, streams).await?;
            sets.own.push(set);
        }
        Ok(parts)
    }

    /// The stripe sets of the version that is succeeded, as far as they have the protection of this
    /// load.
    async fn sets_before(&self, protection: Protection) -> Result<Vec<StripeSet>, ClientError> {
        let map = self.map_before().await?;
        let sets = map.iter().flat_map(|map| &map.sets).map(|stripes| &stripes.set);
        Ok(sets.filter(|set| set.protection == protection).cloned().collect())
    }

    /// A node's part of the load, as the node says.
    async fn held(&self, node: NodeId) -> Result<TablePart, ClientError> {
        let (load, mut segments, mut after) = (self.definition().id, Vec::new(), None);
        loop {
            let (told, next) = self.held_behind(node, load, after).await?;
            // Each list must begin behind the one before, so the loop ends.
            let last = told.last().map(|told| told.directory.segment);
            if next.is_some() && (next != last || next <= after) {
                let (found, expected) = (format!("a list that ends with {last:?}"), format!("{next:?}"));
                return Err(ClientError::BadAnswer { node, during: "load held", found, expected });
            }
            segments.extend(told);
            after = next;
            if next.is_none() {
                return Ok(TablePart { node, segments, beside: Vec::new() });
            }
        }
    }

    async fn held_behind(
        &self,
        node: NodeId,
        load: TableId,
        after: Option<SegmentId>,
    ) -> Result<(Vec<NodeSegment>, Option<SegmentId>), ClientError> {
        let during = "load held";
        let mut wanted_bytes = CATALOG_TARGET_BYTES;
        loop {
            let span = self.cluster.shared.memory.take(wanted_bytes, "what a load holds").await?;
            let request = Request::LoadHeld(LoadHeld { load, after, target: span.as_target() });
            let mut reply = self.cluster.ask(node, request, Some(span)).await?;
            let (written, next) = match reply.take_answer(node, during) {
                Ok(Answer::LoadHeld { written_bytes, next }) => (written_bytes, next),
                Ok(other) => return Err(unexpected_answer(node, during, &other, "what it holds of a load")),
                Err(ClientError::Refused { refusal, .. })
                    if refusal.code == RefusalCode::TargetTooSmall && wanted_bytes < LOAD_HELD_BYTES_MAX =>
                {
                    wanted_bytes = LOAD_HELD_BYTES_MAX;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let span = reply.span.ok_or(ClientError::Closed)?;
            // At most the target is read, whatever the node says: decoding checks the bytes.
            let length = written.saturating_as::<usize>().min(span.length_bytes());
            let mut bytes = vec![0; length];
            span.copy_out(0, &mut bytes).map_err(|error| self.unprotectable(error.to_string()))?;
            let told = codec::decode_envelope(Envelope::LoadHeld, "what a load holds", &bytes);
            return Ok((told.map_err(|source| ClientError::Codec { node, during, source })?, next));
        }
    }
}

fn lies_in(set: &StripeSet, directory: &SegmentDirectory) -> bool {
    set.has(directory.table, directory.segment)
}

impl Cluster {
    /// Sends a map to a node, for a load or a table of this id.
    pub(super) async fn send_map(
        &self,
        node: NodeId,
        load: TableId,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let total_bytes = bytes.len() as u64;
        let piece_bytes = usize::try_from(MAP_PIECE_BYTES_MAX);
        let piece_bytes = piece_bytes.expect("MAP_PIECE_BYTES_MAX: it is less than MEMORY_BYTES_MIN");
        let mut from_bytes = 0;
        for piece in bytes.chunks(piece_bytes) {
            let span = self.shared.memory.take(piece.len(), "a map").await?;
            span.copy_in(0, piece).map_err(|error| ClientError::Unprotectable {
                set: load.to_string(),
                problem: error.to_string(),
            })?;
            let mut source = span.as_target();
            source.length_bytes = piece.len() as u64;
            let request = Request::KeepMap(KeepMap { load, from_bytes, total_bytes, source });
            let mut reply = self.ask(node, request, Some(span)).await?;
            match reply.take_answer(node, "keep map")? {
                Answer::Done => from_bytes += piece.len() as u64,
                other => return Err(unexpected_answer(node, "keep map", &other, "done")),
            }
        }
        Ok(())
    }

    /// Number of nodes that must have committed a table of this protection before its publication
    /// is acknowledged: one of them remains, whichever nodes are lost.
    pub(crate) fn commits_needed(protection: Option<Protection>) -> usize {
        protection.map_or(1, |protection| protection.lost_max() + 1)
    }
}
