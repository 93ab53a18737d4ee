//! Which segments are made of changed rows, and what is withheld from those that stay?
//!
//! ```text
//! rows as of a moment  -> new segments of the new version, for each node those of its keys       [Sealing::take]
//! what changed since   -> more of them; what they replace is withheld, also from the new ones   [Sealing::take, again]
//! at the end           -> of every segment, kept or new, the rows that are not there            [Sealing::withheld]
//! ```
//!
//! A new version has an id of its own, so its rows have identities of their own: what was inserted
//! is a stored row there. Whoever has seen the predecessor cannot change rows of the new version by
//! mistake.
//!
//! Invariants
//! - Every row that is there, by what was taken, is in exactly one segment and not withheld from
//!   it.
//! - Nothing stored is written again: kept segments are the same pages.
//! - Rows lie at the node of their partition key, and in the order of the table within each new
//!   segment, as loads deal and sort them.

use crate::{
    identity::RowIdentity,
    layer::RUN_BYTES_MAX,
    replica::TableRows,
    row::{self, Datum},
    run::{Run, RunFault},
};
use rackscan_format::{
    chunk::Effort,
    home::KeyHash,
    ids::{NodeId, SegmentId},
    schema::TableDefinition,
    withheld::{WithheldError, WithheldRows},
};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// A new segment, and where it belongs.
#[derive(Debug)]
pub struct SealedSegment {
    /// The node.
    pub node: NodeId,
    /// The segment: its directory and pages name the new version.
    pub run: Run,
}

/// Changed rows on their way into segments.
#[derive(Debug)]
pub struct Sealing {
    new_version: Arc<TableDefinition>,
    next: SegmentId,
    /// Of segments of which some are, the rows that are not there.
    gone: BTreeMap<SegmentId, BTreeSet<u32>>,
    /// Of other segments of the predecessor.
    sealed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    /// Where in a new segment a row is.
    places: HashMap<RowIdentity, (SegmentId, u32)>,
}

type Row = (RowIdentity, Vec<Datum>);

impl Sealing {
    /// Into segments of `new version` from number `next` on, over a predecessor of whose segments
    /// `sealed` are not there already.
    #[must_use]
    pub fn new(
        new_version: Arc<TableDefinition>,
        next: SegmentId,
        sealed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    ) -> Self {
        Self { new_version, next, gone: BTreeMap::new(), sealed, places: HashMap::new() }
    }

    /// Takes what these rows of the predecessor have become; the new segments.
    ///
    /// # Errors
    /// A row that does not fit its table, or cannot be laid out.
    pub fn take(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<Vec<SealedSegment>, RunFault> {
        let mut distributed: Vec<Vec<Row>> = self.new_version.nodes.iter().map(|_| Vec::new()).collect();
        for row in changed {
            if let RowIdentity::Stored { segment, row } = row {
                self.gone_of(segment).insert(row);
            }
            if let Some((segment, place)) = self.places.remove(&row) {
                self.gone_of(segment).insert(place);
            }
            let Some(value) = rows.row(row).and_then(|version| version.value.bytes()) else { continue };
            let datums =
                row::decode(&self.new_version, value).map_err(|source| RunFault::Row { row, source })?;
            let key = key_hash(datums.get(self.new_version.partition_key.index()));
            if let Some(of_node) = distributed.get_mut(key.position(self.new_version.nodes.len())) {
                of_node.push((row, datums));
            }
        }
        let mut segments = Vec::new();
        let nodes = self.new_version.nodes.clone();
        for (node, mut rows) in nodes.into_iter().zip(distributed) {
            if let Some(column) = self.new_version.sorted_by {
                rows.sort_by(|one, other| in_order(one.1.get(column.index()), other.1.get(column.index())));
            }
            self.lay_out(node, rows, &mut segments)?;
        }
        Ok(segments)
    }

    fn lay_out(
        &mut self,
        node: NodeId,
        rows: Vec<Row>,
        segments: &mut Vec<SealedSegment>,
    ) -> Result<(), RunFault> {
        let rows_max = usize::try_from(self.new_version.segment_rows).unwrap_or(usize::MAX);
        let (mut part, mut bytes) = (Vec::new(), 0);
        for row in rows {
            let row_bytes = text_bytes(&row.1);
            if part.len() == rows_max || (bytes + row_bytes > RUN_BYTES_MAX && !part.is_empty()) {
                segments.push(self.segment(node, &std::mem::take(&mut part))?);
                bytes = 0;
            }
            bytes += row_bytes;
            part.push(row);
        }
        if !part.is_empty() {
            segments.push(self.segment(node, &part)?);
        }
        Ok(())
    }

    fn segment(&mut self, node: NodeId, rows: &[Row]) -> Result<SealedSegment, RunFault> {
        let segment = self.next;
        self.next = SegmentId(segment.0.saturating_add(1));
        let run = Run::encode(&self.new_version, segment, rows, Effort::Full)?;
        self.places.extend(rows.iter().zip(0..).map(|((row, _), place)| (*row, (segment, place))));
        Ok(SealedSegment { node, run })
    }

    fn gone_of(&mut self, segment: SegmentId) -> &mut BTreeSet<u32> {
        let sealed = &self.sealed;
        self.gone
            .entry(segment)
            .or_insert_with(|| sealed.get(&segment).map(|rows| rows.rows().collect()).unwrap_or_default())
    }

    /// The rows that are not there of a segment, kept or new.
    ///
    /// # Errors
    /// A row that no segment can have.
    pub fn withheld(&self, segment: SegmentId) -> Result<Arc<WithheldRows>, WithheldError> {
        match (self.gone.get(&segment), self.sealed.get(&segment)) {
            (Some(gone), _) => WithheldRows::of(gone.iter().copied()).map(Arc::new),
            (None, Some(sealed)) => Ok(Arc::clone(sealed)),
            (None, None) => Ok(Arc::default()),
        }
    }
}

/// As loads hash what they deal rows by.
fn key_hash(key: Option<&Datum>) -> KeyHash {
    match key {
        Some(Datum::Integer(value)) => KeyHash::of_integer(*value),
        Some(Datum::Float(value)) => KeyHash::of_float(*value),
        Some(Datum::Text(text)) => KeyHash::of_text(text.as_bytes()),
        Some(Datum::Null) | None => KeyHash::NULL,
    }
}

/// The order in which loads sort: missing values last.
fn in_order(one: Option<&Datum>, other: Option<&Datum>) -> Ordering {
    match (one, other) {
        (Some(Datum::Integer(one)), Some(Datum::Integer(other))) => one.cmp(other),
        (Some(Datum::Float(one)), Some(Datum::Float(other))) => one.total_cmp(other),
        (Some(Datum::Text(one)), Some(Datum::Text(other))) => one.cmp(other),
        (Some(Datum::Null) | None, Some(Datum::Null) | None) => Ordering::Equal,
        (Some(Datum::Null) | None, _) => Ordering::Greater,
        _ => Ordering::Less,
    }
}

fn text_bytes(row: &[Datum]) -> usize {
    row.iter().map(|datum| if let Datum::Text(text) = datum { text.len() } else { 8 }).sum()
}

#[cfg(test)]
mod tests;
