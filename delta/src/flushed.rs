//! Flushes changed rows into segments of a new table version, and computes which rows the new
//! version withholds from its segments.
//!
//! ```text
//! first half    all changed rows as of a point in time -> new segments, each with rows of one node                              [Flushing::take]
//! second half   rows that have changed since then -> more segments; older copies are withheld, also from the new segments       [Flushing::take]
//! end           for every segment, taken over from the previous version or new -> the rows that are withheld                    [Flushing::withheld]
//! ```
//!
//! A new table version has its own table id, so its rows have their own identities: an inserted row
//! becomes a stored row. So a transaction that has read the previous version cannot change rows of
//! the new one by mistake.
//!
//! Invariants
//! - Every row that was passed to the flush and exists is visible in exactly one segment; all
//!   others that contain it withhold it.
//! - Pages of the previous version are not written again: segments that the new version takes over
//!   have the same pages.
//! - Each row is on the node of its partition key. Rows of a new segment are in the order of the
//!   table. Both are as after a load.

use crate::{
    identity::RowIdentity,
    layer::RUN_BYTES_MAX,
    replica::TableRows,
    row::{self, Datum},
    run::{Run, RunFault},
};
use rackscan_format::{
    chunk::Effort,
    ids::{NodeId, SegmentId},
    participant::KeyHash,
    schema::TableDefinition,
    withheld::{WithheldError, WithheldRows},
};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// A new segment, and its node.
#[derive(Debug)]
pub struct FlushedSegment {
    /// The node.
    pub node: NodeId,
    /// The segment: its directory and pages name the new version.
    pub run: Run,
}

/// A flush of changed rows into segments.
#[derive(Debug)]
pub struct Flushing {
    new_version: Arc<TableDefinition>,
    next: SegmentId,
    /// For segments from which this flush withholds rows: all withheld rows.
    withheld_rows: BTreeMap<SegmentId, BTreeSet<u32>>,
    /// For the other segments of the previous version: the rows that it withholds.
    flushed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    /// For each row in a new segment, the segment and the row number.
    places: HashMap<RowIdentity, (SegmentId, u32)>,
}

type Row = (RowIdentity, Vec<Datum>);

impl Flushing {
    /// A flush into segments of `new_version`, numbered from `next` on. `flushed` are the rows that
    /// the previous version withholds.
    #[must_use]
    pub fn new(
        new_version: Arc<TableDefinition>,
        next: SegmentId,
        flushed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    ) -> Self {
        Self { new_version, next, withheld_rows: BTreeMap::new(), flushed, places: HashMap::new() }
    }

    /// Takes the new versions of changed rows of the previous table version. Returns the new
    /// segments.
    ///
    /// # Errors
    /// A row that does not fit its table, or cannot be encoded.
    pub fn take(
        &mut self,
        rows: &TableRows,
        changed: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<Vec<FlushedSegment>, RunFault> {
        let mut distributed: Vec<Vec<Row>> = self.new_version.nodes.iter().map(|_| Vec::new()).collect();
        for row in changed {
            if let RowIdentity::Stored { segment, row } = row {
                self.withheld_of(segment).insert(row);
            }
            if let Some((segment, place)) = self.places.remove(&row) {
                self.withheld_of(segment).insert(place);
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
        segments: &mut Vec<FlushedSegment>,
    ) -> Result<(), RunFault> {
        let rows_max = usize::try_from(self.new_version.segment_rows).expect("usize has at least 32 bits");
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

    fn segment(&mut self, node: NodeId, rows: &[Row]) -> Result<FlushedSegment, RunFault> {
        let segment = self.next;
        self.next = SegmentId(segment.0.saturating_add(1));
        let run = Run::encode(&self.new_version, segment, rows, Effort::Full)?;
        self.places.extend(rows.iter().zip(0..).map(|((row, _), place)| (*row, (segment, place))));
        Ok(FlushedSegment { node, run })
    }

    fn withheld_of(&mut self, segment: SegmentId) -> &mut BTreeSet<u32> {
        let flushed = &self.flushed;
        self.withheld_rows
            .entry(segment)
            .or_insert_with(|| flushed.get(&segment).map(|rows| rows.rows().collect()).unwrap_or_default())
    }

    /// The rows that the new version withholds from a segment, kept or new.
    ///
    /// # Errors
    /// A row number that no segment can have.
    pub fn withheld(&self, segment: SegmentId) -> Result<Arc<WithheldRows>, WithheldError> {
        match (self.withheld_rows.get(&segment), self.flushed.get(&segment)) {
            (Some(withheld), _) => WithheldRows::of(withheld.iter().copied()).map(Arc::new),
            (None, Some(flushed)) => Ok(Arc::clone(flushed)),
            (None, None) => Ok(Arc::default()),
        }
    }
}

/// The hash by which loads distribute rows.
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
