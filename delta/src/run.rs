//! Encodes changed rows as segments in memory, so that scans read them like stored segments.
//!
//! A *run* is a segment that no node stores: it has the same pages, directory and zone maps,
//! encoded by the same writer. So the code that scans segments scans runs, with the same results.
//!
//! Invariants
//! - A run never changes. If one of its rows is changed again, the row is withheld from the run, as
//!   from a segment ([`crate::layer`]).
//! - No stored segment has the segment number of a run.

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

/// The first segment number of a run. Loads count segments from 0 and never get that far.
pub const RUNS_FROM: SegmentId = SegmentId(1 << 31);

/// Rows that cannot be encoded as a run.
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
    #[error("column {column:?} of the changed rows of table {table:?} cannot be encoded: {source}")]
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
    /// The timestamps of their versions, if known.
    timestamps: Vec<Timestamp>,
}

impl Run {
    /// Encodes rows, in this order, as segment `segment` of the table `definition`. Each row has a
    /// value for every column. Use full effort for runs that will be stored, and less for runs that
    /// a query waits for.
    ///
    /// # Errors
    /// [`RunFault::Chunk`], for example for no rows, or too many.
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
                let length_bytes = u32::try_from(page.bytes.len()).expect("a page is shorter than 4 GiB");
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
            rows: u32::try_from(rows.len()).expect("the chunk writer refuses more rows"),
            chunks,
        };
        let rows = rows.iter().map(|(row, _)| *row).collect();
        Ok(Self { directory: Arc::new(directory), pages, rows, timestamps: Vec::new() })
    }

    /// The same run, with the timestamps of its rows' versions, in the same order.
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

    /// Its directory, as that of a stored segment; its extents are on no device.
    #[must_use]
    pub fn directory(&self) -> &Arc<SegmentDirectory> {
        &self.directory
    }

    /// Its segment number.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.directory.segment
    }

    /// A page; `None` if there is no such page.
    #[must_use]
    pub fn page(&self, column: ColumnId, page: PageNumber) -> Option<RunPage> {
        self.pages.get(column.index())?.get(usize::from(page.0)).cloned()
    }

    /// All pages, in the order of its directory.
    #[must_use]
    pub fn pages(&self) -> Vec<RunPage> {
        self.pages.iter().flatten().cloned().collect()
    }

    /// The identities of its rows, by row number.
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

    /// Adds a value. Returns whether it was one of the column's type; rows were checked against
    /// their table when they were decoded.
    fn push(&mut self, datum: Option<&Datum>) -> bool {
        match (&mut self.column, datum) {
            (Column::Integers(values), Some(Datum::Integer(value))) => values.push(*value),
            (Column::Floats(values), Some(Datum::Float(value))) => values.push(*value),
            (Column::Text { bytes, offsets }, Some(Datum::Text(text))) => {
                bytes.extend_from_slice(text.as_bytes());
                offsets.push(text_offset(bytes));
            }
            (column, _) => {
                match column {
                    Column::Integers(values) => values.push(0),
                    Column::Floats(values) => values.push(0.0),
                    Column::Text { bytes, offsets } => {
                        offsets.push(text_offset(bytes));
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

/// The offset behind the last text.
fn text_offset(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a run of changed rows holds less than 4 GiB of text")
}
