//! Lists the segments of a table, with the bounds and counts of values that their directories
//! contain.
//!
//! Invariants
//! - A snapshot never changes: a query plans and runs on one, even if the table is loaded
//!   meanwhile.
//! - Bounds come from zone maps and may be wider than the values (cut texts), so they are estimates
//!   to DataFusion. The number of rows and of nulls is exact unless rows are withheld.
//! - No scan of a segment returns a withheld row, and every withheld row is a row of its segment. A
//!   segment whose rows are all withheld is not scanned.
//! - A run, which contains changed rows as pages in the engine's memory, is otherwise like a
//!   segment.

use crate::{pushdown::arrow_type, request::SegmentPlace};
use az::SaturatingAs;
use datafusion::{
    arrow::datatypes::{Field, Schema, SchemaRef},
    common::{ColumnStatistics, Statistics, stats::Precision},
    scalar::ScalarValue,
};
use rackscan_delta::{layer::LayerView, run::Run};
use rackscan_format::{
    ids::{ColumnId, NodeId, SegmentId},
    schema::{ColumnType, TableDefinition},
    segment::SegmentDirectory,
    withheld::{WithheldError, WithheldRows},
    zone::ZoneValue,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The node number of segments that are in the engine's memory; clusters have fewer nodes.
pub(crate) const HERE: NodeId = NodeId(u16::MAX);

/// One published table at one point in time.
#[derive(Clone, Debug)]
pub(crate) struct TableSnapshot {
    pub(crate) definition: Arc<TableDefinition>,
    pub(crate) schema: SchemaRef,
    pub(crate) segments: BTreeMap<SegmentId, (NodeId, Arc<SegmentDirectory>)>,
    /// The withheld rows of segments that have some: rows that were updated or deleted.
    pub(crate) withheld: BTreeMap<SegmentId, Arc<WithheldRows>>,
    /// Those of them that nodes store with the segments, as of the last flush.
    pub(crate) flushed: Arc<BTreeMap<SegmentId, Arc<WithheldRows>>>,
    /// The pages of segments that are in memory.
    pub(crate) runs: BTreeMap<SegmentId, Arc<Run>>,
    /// The bounds of each column, in order. They are computed once, because every plan asks for
    /// them.
    bounds: Vec<ColumnBounds>,
}

/// Bounds of a column over a whole table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ColumnBounds {
    pub(crate) min: Option<ZoneValue>,
    pub(crate) max: Option<ZoneValue>,
    pub(crate) nulls: u64,
    pub(crate) stored_bytes: u64,
    /// Whether there is a value that is not null.
    has_values: bool,
}

impl ColumnBounds {
    /// The bounds over all pages of a column.
    fn of<'d>(column: ColumnId, directories: impl Iterator<Item = &'d Arc<SegmentDirectory>>) -> Self {
        let mut bounds = Self::default();
        let (mut min_known, mut max_known) = (true, true);
        for page in directories.filter_map(|directory| directory.chunk(column)).flat_map(|chunk| &chunk.pages)
        {
            let zone = &page.zone;
            bounds.stored_bytes += u64::from(page.extent.length_bytes);
            bounds.nulls += u64::from(zone.nulls);
            if zone.nulls == page.rows {
                continue;
            }
            bounds.has_values = true;
            min_known &= zone.min.is_some();
            max_known &= zone.max.is_some();
            bounds.min = lesser(bounds.min.take(), zone.min.as_ref());
            bounds.max = greater(bounds.max.take(), zone.max.as_ref());
        }
        bounds.min = bounds.min.filter(|_| min_known);
        bounds.max = bounds.max.filter(|_| max_known);
        bounds
    }

    /// Extends the bounds by others.
    fn join(&mut self, other: Self) {
        self.nulls += other.nulls;
        self.stored_bytes += other.stored_bytes;
        if !other.has_values {
            return;
        }
        let is_known = |one: &Option<ZoneValue>, had: bool, other: &Option<ZoneValue>| {
            (one.is_some() || !had) && other.is_some()
        };
        let min_known = is_known(&self.min, self.has_values, &other.min);
        let max_known = is_known(&self.max, self.has_values, &other.max);
        self.min = lesser(self.min.take(), other.min.as_ref()).filter(|_| min_known);
        self.max = greater(self.max.take(), other.max.as_ref()).filter(|_| max_known);
        self.has_values = true;
    }
}

impl TableSnapshot {
    pub(crate) fn new(
        definition: Arc<TableDefinition>,
        segments: impl IntoIterator<Item = (NodeId, Arc<SegmentDirectory>)>,
    ) -> Self {
        let fields = definition
            .columns
            .iter()
            .map(|column| Field::new(&column.name, arrow_type(column.column_type.into()), column.nullable));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let segments = segments.into_iter().map(|(node, directory)| (directory.segment, (node, directory)));
        let (segments, withheld, runs) = (segments.collect(), BTreeMap::new(), BTreeMap::new());
        let (flushed, bounds) = (Arc::default(), Vec::new());
        let mut snapshot = Self { schema, segments, withheld, flushed, runs, definition, bounds };
        let columns = (0..snapshot.definition.columns.len()).filter_map(|index| u16::try_from(index).ok());
        let directories = || snapshot.segments.values().map(|(_, directory)| directory);
        snapshot.bounds = columns.map(|index| ColumnBounds::of(ColumnId(index), directories())).collect();
        snapshot
    }

    /// The same table, with these rows withheld by nodes as of the last flush.
    ///
    /// # Errors
    /// A row is in no segment of the table.
    pub(crate) fn flushed(
        &self,
        flushed: BTreeMap<SegmentId, Arc<WithheldRows>>,
    ) -> Result<Self, WithheldError> {
        let over = self.withholding(flushed)?;
        Ok(Self { flushed: Arc::new(over.withheld.clone()), ..over })
    }

    /// The same table with a layer over it, which withholds some rows and adds others.
    ///
    /// # Errors
    /// A row is in no segment of the table.
    pub(crate) fn under(&self, layer: &LayerView) -> Result<Self, WithheldError> {
        let mut over = self.clone();
        for run in &layer.runs {
            over.segments.insert(run.segment(), (HERE, Arc::clone(run.directory())));
            over.runs.insert(run.segment(), Arc::clone(run));
        }
        let directories = || layer.runs.iter().map(|run| run.directory());
        for (index, bounds) in (0..).zip(&mut over.bounds) {
            bounds.join(ColumnBounds::of(ColumnId(index), directories()));
        }
        over.withholding(layer.withheld.clone())
    }

    /// The same table with exactly these rows withheld.
    ///
    /// # Errors
    /// A row is in no segment of the table.
    pub(crate) fn withholding(
        &self,
        mut withheld: BTreeMap<SegmentId, Arc<WithheldRows>>,
    ) -> Result<Self, WithheldError> {
        for (segment, rows) in &withheld {
            let segment_rows = self.segments.get(segment).map_or(0, |(_, directory)| directory.rows);
            rows.verify(segment_rows)?;
        }
        withheld.retain(|_, rows| !rows.is_empty());
        Ok(Self { withheld, ..self.clone() })
    }

    /// The same table with these segments only.
    pub(crate) fn only(&self, segments: &BTreeSet<SegmentId>) -> Self {
        let mut part = self.clone();
        part.segments.retain(|segment, _| segments.contains(segment));
        part.withheld.retain(|segment, _| segments.contains(segment));
        part
    }

    /// The node of each segment that has rows. Segments without any are left out, as nodes may no
    /// longer have them.
    pub(crate) fn places(&self) -> Vec<SegmentPlace> {
        let left = self.segments.iter().filter(|(segment, _)| self.rows_left(**segment) > 0);
        let places = left.map(|(&segment, (node, directory))| SegmentPlace {
            node: *node,
            segment,
            rows: directory.rows,
        });
        places.collect()
    }

    /// Rows of a segment that are not withheld.
    pub(crate) fn rows_left(&self, segment: SegmentId) -> u32 {
        let rows = self.segments.get(&segment).map_or(0, |(_, directory)| directory.rows);
        rows.saturating_sub(self.withheld.get(&segment).map_or(0, |withheld| withheld.count()))
    }

    /// Rows of all segments that are not withheld.
    pub(crate) fn rows(&self) -> u64 {
        let rows: u64 = self.segments.values().map(|(_, directory)| u64::from(directory.rows)).sum();
        let withheld: u64 = self.withheld.values().map(|rows| u64::from(rows.count())).sum();
        rows.saturating_sub(withheld)
    }

    /// The segments that nodes store.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &(NodeId, Arc<SegmentDirectory>)> {
        self.segments.values().filter(|(node, _)| *node != HERE)
    }

    /// Rows of stored segments that were withheld since they were stored or flushed.
    pub(crate) fn rows_withheld(&self) -> u64 {
        let flushed: u64 = self.flushed.values().map(|rows| u64::from(rows.count())).sum();
        self.rows_gone() - flushed
    }

    /// Changed rows that are in no stored segment.
    pub(crate) fn rows_beside(&self) -> u64 {
        self.rows() + self.rows_gone() - self.rows_stored()
    }

    /// Withheld rows of stored segments.
    fn rows_gone(&self) -> u64 {
        let stored = self.withheld.iter().filter(|(segment, _)| !self.runs.contains_key(segment));
        stored.map(|(_, rows)| u64::from(rows.count())).sum()
    }

    /// Rows of stored segments, withheld ones included.
    fn rows_stored(&self) -> u64 {
        self.stored().map(|(_, directory)| u64::from(directory.rows)).sum()
    }

    /// Stored bytes of all segments.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.segments.values().map(|(_, directory)| directory.stored_bytes()).sum()
    }

    /// What the zone maps say about a whole column; nothing for a column that the table does not
    /// have.
    pub(crate) fn bounds(&self, column: ColumnId) -> &ColumnBounds {
        static UNKNOWN: ColumnBounds =
            ColumnBounds { min: None, max: None, nulls: 0, stored_bytes: 0, has_values: false };
        self.bounds.get(column.index()).unwrap_or(&UNKNOWN)
    }

    /// The statistics of the whole table for DataFusion, column by column.
    pub(crate) fn statistics(&self) -> Statistics {
        let statistics = self.statistics_of_segments();
        if self.withheld.is_empty() {
            return statistics;
        }
        // Zone maps do not tell which values the withheld rows had, so nothing may be answered from
        // the counts.
        let columns = statistics.column_statistics.into_iter().map(ColumnStatistics::to_inexact);
        Statistics {
            num_rows: statistics.num_rows.to_inexact(),
            column_statistics: columns.collect(),
            ..statistics
        }
    }

    fn statistics_of_segments(&self) -> Statistics {
        let rows = self.rows().saturating_as::<usize>();
        let columns = self.definition.columns.iter().zip(&self.bounds);
        let columns = columns.map(|(column, bounds)| column_statistics(column.column_type, bounds, rows));
        Statistics {
            num_rows: Precision::Exact(rows),
            total_byte_size: Precision::Inexact(self.stored_bytes().saturating_as::<usize>()),
            column_statistics: columns.collect(),
        }
    }
}

fn column_statistics(column_type: ColumnType, bounds: &ColumnBounds, rows: usize) -> ColumnStatistics {
    let scalar =
        |bound: &Option<ZoneValue>| match bound.as_ref().and_then(|value| zone_scalar(column_type, value)) {
            Some(value) => Precision::Inexact(value),
            None => Precision::Absent,
        };
    let distinct = match (&bounds.min, &bounds.max) {
        (Some(ZoneValue::Integer(min)), Some(ZoneValue::Integer(max))) => {
            let range = max.abs_diff(*min).saturating_add(1);
            Precision::Inexact(range.saturating_as::<usize>().min(rows))
        }
        _ => Precision::Absent,
    };
    ColumnStatistics {
        null_count: Precision::Exact(bounds.nulls.saturating_as::<usize>()),
        min_value: scalar(&bounds.min),
        max_value: scalar(&bounds.max),
        sum_value: Precision::Absent,
        distinct_count: distinct,
        byte_size: Precision::Absent,
    }
}

/// A bound as a value of the column's type; `None` if it is not a valid value (a text that was cut
/// inside a character).
pub(crate) fn zone_scalar(column_type: ColumnType, value: &ZoneValue) -> Option<ScalarValue> {
    Some(match (column_type, value) {
        (ColumnType::Boolean, ZoneValue::Integer(value)) => ScalarValue::Boolean(Some(*value != 0)),
        (ColumnType::Int32, ZoneValue::Integer(value)) => {
            ScalarValue::Int32(Some(i32::try_from(*value).ok()?))
        }
        (ColumnType::Int64, ZoneValue::Integer(value)) => ScalarValue::Int64(Some(*value)),
        (ColumnType::Date32, ZoneValue::Integer(value)) => {
            ScalarValue::Date32(Some(i32::try_from(*value).ok()?))
        }
        (ColumnType::TimestampMicros, ZoneValue::Integer(value)) => {
            ScalarValue::TimestampMicrosecond(Some(*value), None)
        }
        (ColumnType::Decimal { precision, scale }, ZoneValue::Integer(value)) => {
            ScalarValue::Decimal128(Some(i128::from(*value)), precision, i8::try_from(scale).ok()?)
        }
        (ColumnType::Float64, ZoneValue::Float(value)) => ScalarValue::Float64(Some(*value)),
        (ColumnType::Text, ZoneValue::Text(bytes)) => {
            ScalarValue::Utf8View(Some(std::str::from_utf8(bytes).ok()?.to_owned()))
        }
        _ => return None,
    })
}

fn lesser(known: Option<ZoneValue>, found: Option<&ZoneValue>) -> Option<ZoneValue> {
    match (known, found) {
        (Some(known), Some(found)) if below(found, &known) => Some(found.clone()),
        (None, Some(found)) => Some(found.clone()),
        (known, _) => known,
    }
}

fn greater(known: Option<ZoneValue>, found: Option<&ZoneValue>) -> Option<ZoneValue> {
    match (known, found) {
        (Some(known), Some(found)) if below(&known, found) => Some(found.clone()),
        (None, Some(found)) => Some(found.clone()),
        (known, _) => known,
    }
}

fn below(left: &ZoneValue, right: &ZoneValue) -> bool {
    match (left, right) {
        (ZoneValue::Integer(left), ZoneValue::Integer(right)) => left < right,
        (ZoneValue::Float(left), ZoneValue::Float(right)) => left < right,
        (ZoneValue::Text(left), ZoneValue::Text(right)) => left < right,
        _ => false,
    }
}
