//! How do changed rows lie in memory, so that scans find them as they find stored ones?
//!
//! A run is a segment that no node has: the same pages, the same directory, the same zone maps,
//! encoded by the same writer. So whatever scans segments scans runs, and gives the same answers.
//!
//! Invariants
//! - A run never changes. A row of it that is changed again is withheld from it, as from a segment
//!   ([`crate::layer`]).
//! - Its number as a segment is one that no stored segment has.

use crate::{
    identity::RowIdentity,
    row::{Datum, RowFault},
};
use rackscan_format::{
    chunk::{ChunkError, ChunkInput, ChunkWriter, Effort, EncodedPage, Values},
    encoding::text::TextValues,
    ids::{ColumnId, DeviceId, PageNumber, SegmentId},
    schema::{ColumnType, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
};
use rackscan_ramp::timestamp::Timestamp;
use std::sync::Arc;

/// The first number of a run. Loads count segments from 0 and come nowhere near.
pub const RUNS_FROM: SegmentId = SegmentId(1 << 31);

/// Rows that cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunFault {
    /// A row that does not fit its table.
    #[error("{row}: {source}")]
    Row {
        /// Which.
        row: RowIdentity,
        /// Why.
        source: RowFault,
    },
    /// A column that cannot be encoded.
    #[error("column {column:?} of the changed rows of table {table:?}: {source}")]
    Chunk {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Why.
        source: ChunkError,
    },
}

/// The stored bytes of a page of a run.
#[derive(Clone, Debug)]
pub struct RunPage(Arc<Vec<u8>>);

impl AsRef<[u8]> for RunPage {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Rows of a table, as a segment in memory.
#[derive(Debug)]
pub struct Run {
    directory: Arc<SegmentDirectory>,
    /// By column, then by page.
    pages: Vec<Vec<RunPage>>,
    rows: Vec<RowIdentity>,
    /// Which transactions wrote them, if that is known.
    timestamps: Vec<Timestamp>,
}

impl Run {
    /// Lays out rows, in this order; each has a value for every column. Its pages and directory
    /// name `definition` and `segment`. What is to be stored is worth full effort; what a query
    /// waits for is not.
    ///
    /// # Errors
    /// [`RunFault::Chunk`], for no rows or too many, among others.
    pub fn encode(
        definition: &TableDefinition,
        segment: SegmentId,
        rows: &[(RowIdentity, Vec<Datum>)],
        effort: Effort,
    ) -> Result<Self, RunFault> {
        let (mut writer, mut offset_bytes) = (ChunkWriter::with(effort), 0);
        let (mut pages, mut chunks) = (Vec::new(), Vec::new());
        for ((index, number), column) in (0..).zip(0..).zip(&definition.columns) {
            let cells = Cells::of(column.column_type, rows.iter().map(|(_, row)| row.get::<usize>(index)));
            let input = ChunkInput {
                table: definition.id,
                segment,
                column: ColumnId(number),
                column_type: column.column_type,
                values: cells.values(),
                validity: cells.validity(),
                page_bytes: definition.page_size,
            };
            let (mut entries, mut of_column) = (Vec::new(), Vec::new());
            let mut keep = |page: EncodedPage| {
                let length_bytes = u32::try_from(page.bytes.len()).unwrap_or(u32::MAX);
                let extent = Extent { device: DeviceId(0), offset_bytes, length_bytes };
                offset_bytes += u64::from(length_bytes);
                let EncodedPage { first_row, rows, zone, bytes } = page;
                entries.push(PageEntry { extent, first_row, rows, zone });
                of_column.push(RunPage(Arc::new(bytes)));
            };
            writer.encode(&input, &mut keep).map_err(|source| RunFault::Chunk {
                table: definition.name.clone(),
                column: column.name.clone(),
                source,
            })?;
            chunks.push(ChunkDirectory { pages: entries });
            pages.push(of_column);
        }
        let directory = SegmentDirectory {
            table: definition.id,
            segment,
            rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            chunks,
        };
        let rows = rows.iter().map(|(row, _)| *row).collect();
        Ok(Self { directory: Arc::new(directory), pages, rows, timestamps: Vec::new() })
    }

    /// The same run, of whose rows these are the timestamps of their versions, in the same order.
    #[must_use]
    pub fn with_timestamps(self, timestamps: Vec<Timestamp>) -> Self {
        Self { timestamps, ..self }
    }

    /// A row by its number, and the timestamp of its version.
    #[must_use]
    pub fn version(&self, row: u32) -> Option<(RowIdentity, Timestamp)> {
        let row = usize::try_from(row).ok()?;
        Some((*self.rows.get(row)?, *self.timestamps.get(row)?))
    }

    /// As of a stored segment; its extents are on no device.
    #[must_use]
    pub fn directory(&self) -> &Arc<SegmentDirectory> {
        &self.directory
    }

    /// The number by which it is a segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.directory.segment
    }

    /// A page; `None` of one that it does not have.
    #[must_use]
    pub fn page(&self, column: ColumnId, page: PageNumber) -> Option<RunPage> {
        self.pages.get(column.index())?.get(usize::from(page.0)).cloned()
    }

    /// All pages, in the order of its directory.
    #[must_use]
    pub fn pages(&self) -> Vec<RunPage> {
        self.pages.iter().flatten().cloned().collect()
    }

    /// Which rows they are, by their numbers.
    #[must_use]
    pub fn rows(&self) -> &[RowIdentity] {
        &self.rows
    }
}

/// The values of one column.
enum Column {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Text { bytes: Vec<u8>, offsets: Vec<u32> },
}

struct Cells {
    column: Column,
    /// A bit for each row, set where there is a value.
    validity: Vec<u8>,
    has_nulls: bool,
}

impl Cells {
    fn of<'d>(column_type: ColumnType, rows: impl ExactSizeIterator<Item = Option<&'d Datum>>) -> Self {
        let count = rows.len();
        let column = match column_type {
            ColumnType::Float64 => Column::Floats(Vec::with_capacity(count)),
            ColumnType::Text => Column::Text { bytes: Vec::new(), offsets: vec![0] },
            _ => Column::Integers(Vec::with_capacity(count)),
        };
        let mut cells = Self { column, validity: vec![0; count.div_ceil(8)], has_nulls: false };
        for (row, datum) in rows.enumerate() {
            let is_there = cells.push(datum);
            cells.has_nulls |= !is_there;
            if let Some(byte) = cells.validity.get_mut(row / 8) {
                *byte |= u8::from(is_there) << (row % 8);
            }
        }
        cells
    }

    /// Whether there was a value of the column's kind; rows were checked against their table when
    /// they were decoded.
    fn push(&mut self, datum: Option<&Datum>) -> bool {
        match (&mut self.column, datum) {
            (Column::Integers(values), Some(Datum::Integer(value))) => values.push(*value),
            (Column::Floats(values), Some(Datum::Float(value))) => values.push(*value),
            (Column::Text { bytes, offsets }, Some(Datum::Text(text))) => {
                bytes.extend_from_slice(text.as_bytes());
                offsets.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            }
            (column, _) => {
                match column {
                    Column::Integers(values) => values.push(0),
                    Column::Floats(values) => values.push(0.0),
                    Column::Text { bytes, offsets } => {
                        offsets.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    }
                }
                return false;
            }
        }
        true
    }

    fn values(&self) -> Values<'_> {
        match &self.column {
            Column::Integers(values) => Values::Integers(values),
            Column::Floats(values) => Values::Floats(values),
            Column::Text { bytes, offsets } => Values::Text(TextValues { bytes, offsets }),
        }
    }

    fn validity(&self) -> Option<&[u8]> {
        self.has_nulls.then_some(&self.validity)
    }
}
