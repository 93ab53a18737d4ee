//! Provides tables in memory, their pages, and scans over them, for all tests of this crate.
//!
//! The code here uses no evaluation of the crate: values are plain Rust, programs are interpreted
//! row by row (`interpret`), and random ones are drawn from a seed (`draw`).

pub(crate) mod draw;
pub(crate) mod interpret;
pub(crate) mod merge;

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
    },
};
use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, EncodedPage, Values},
    encoding::text::TextValues,
    ids::{ColumnId, DeviceId, NodeId, PageNumber, SegmentId, TableId},
    key_filter::KeyFilter,
    program::{Input, Node, NodeIndex, Output, PROGRAM_VERSION, ScanProgram, VerifiedProgram},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
};
use rackscan_scan::{ScanBatch, ScanError, ScanLimits, ScanStats, SegmentScan, Step};
use std::{collections::HashMap, sync::Arc};

/// One value of a row, whatever its type; integers, dates and decimals by their stored number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Datum {
    Null,
    Boolean(bool),
    Number(i128),
    Float(f64),
    Text(String),
}

/// A column and its values.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) column_type: ColumnType,
    pub(crate) values: Vec<Datum>,
}

/// A table of one segment with its pages.
pub(crate) struct Table {
    pub(crate) definition: TableDefinition,
    pub(crate) directory: Arc<SegmentDirectory>,
    pub(crate) pages: HashMap<(ColumnId, PageNumber), Vec<u8>>,
    pub(crate) columns: Vec<Column>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>, page_size: u32) -> Self {
        let rows = columns[0].values.len();
        let (table, segment) = (TableId(7), SegmentId(3));
        let mut chunks = Vec::new();
        let mut pages = HashMap::new();
        let mut offset_bytes = 0;
        for (index, column) in columns.iter().enumerate() {
            let id = ColumnId(u16::try_from(index).expect("few columns"));
            let mut entries = Vec::new();
            // Nothing is written of no rows.
            let encode = |out: &mut dyn FnMut(EncodedPage)| {
                if rows > 0 {
                    encode(id, column, page_size, out);
                }
            };
            encode(&mut |page| {
                let length_bytes = u32::try_from(page.bytes.len()).expect("a page is small");
                let extent = Extent { device: DeviceId(0), offset_bytes, length_bytes };
                offset_bytes += u64::from(length_bytes);
                let number = PageNumber(u16::try_from(entries.len()).expect("few pages"));
                entries.push(PageEntry {
                    extent,
                    first_row: page.first_row,
                    rows: page.rows,
                    zone: page.zone,
                });
                pages.insert((id, number), page.bytes);
            });
            chunks.push(ChunkDirectory { pages: entries });
        }
        let rows = u32::try_from(rows).expect("few rows");
        let directory = SegmentDirectory { table, segment, rows, chunks };
        if rows > 0 {
            directory.verify(columns.len(), 1).expect("the writer's directory is sound");
        }
        let definitions = columns.iter().enumerate().map(|(index, column)| ColumnDefinition {
            name: format!("c{index}"),
            column_type: column.column_type,
            nullable: true,
        });
        let definition = TableDefinition {
            id: table,
            name: "t".into(),
            columns: definitions.collect(),
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size,
            segment_rows: 1 << 20,
            nodes: vec![NodeId(0)],
            rows: u64::from(rows),
            source: "test".into(),
            succeeds: None,
            derived: Vec::new(),
            protection: None,
        };
        Self { definition, directory: Arc::new(directory), pages, columns }
    }

    /// A segment with the rows alone that `is_kept`, in pages of this size.
    pub(crate) fn keeping(&self, is_kept: impl Fn(usize) -> bool, page_size: u32) -> Self {
        let columns = self.columns.iter().map(|column| {
            let values = column.values.iter().enumerate().filter(|(row, _)| is_kept(*row));
            Column { values: values.map(|(_, value)| value.clone()).collect(), ..column.clone() }
        });
        Self::new(columns.collect(), page_size)
    }

    pub(crate) fn rows(&self) -> usize {
        self.directory.rows as usize
    }

    /// A verified program that may read every column: input `i` is column `i`.
    pub(crate) fn program(
        &self,
        nodes: Vec<Node>,
        filter: Vec<NodeIndex>,
        output: Output,
    ) -> Arc<VerifiedProgram> {
        self.limited(nodes, filter, output, None)
    }

    /// The same with filters that it may search in.
    pub(crate) fn program_with_keys(
        &self,
        nodes: Vec<Node>,
        filter: Vec<NodeIndex>,
        output: Output,
        filters: &[Arc<KeyFilter>],
    ) -> Arc<VerifiedProgram> {
        let plain = self.program(Vec::new(), Vec::new(), Output::Rows(Vec::new()));
        let key_filters = filters.iter().map(|filter| filter.name()).collect();
        let program = ScanProgram { nodes, filter, output, key_filters, ..plain.program().clone() };
        let verified = program.verify(&self.definition).expect("the test's program is sound");
        Arc::new(verified.with_key_filters(filters.to_vec()).expect("they are the program's own"))
    }

    pub(crate) fn limited(
        &self,
        nodes: Vec<Node>,
        filter: Vec<NodeIndex>,
        output: Output,
        limit_rows: Option<u32>,
    ) -> Arc<VerifiedProgram> {
        let inputs = (0_u16..)
            .zip(&self.columns)
            .map(|(index, column)| Input { column: ColumnId(index), column_type: column.column_type });
        let inputs = inputs.collect();
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: TableId(7),
            inputs,
            nodes,
            filter,
            output,
            limit_rows,
            key_filters: Vec::new(),
        };
        Arc::new(program.verify(&self.definition).expect("the test's program is sound"))
    }

    /// Scans from `first_block` on, to the end or until `stop` says so.
    pub(crate) fn scan_until(
        &self,
        program: &Arc<VerifiedProgram>,
        limits: ScanLimits,
        first_block: u32,
        stop: impl FnMut(&ScanBatch) -> bool,
    ) -> Result<(Vec<ScanBatch>, ScanStats), ScanError> {
        let directory = Arc::clone(&self.directory);
        self.drive(SegmentScan::new(Arc::clone(program), directory, first_block, limits)?, stop)
    }

    /// Supplies whatever a scan wants, to the end or until `stop` says so.
    pub(crate) fn drive(
        &self,
        mut scan: SegmentScan<Vec<u8>>,
        mut stop: impl FnMut(&ScanBatch) -> bool,
    ) -> Result<(Vec<ScanBatch>, ScanStats), ScanError> {
        let mut batches = Vec::new();
        loop {
            match scan.step()? {
                Step::Read(pages) => {
                    assert!(!pages.is_empty(), "a read of nothing would never end");
                    // Any order will do; the last first is the least likely to work by luck.
                    for wanted in pages.iter().rev() {
                        let bytes = self.pages[&(wanted.column, wanted.page)].clone();
                        assert_eq!(bytes.len(), wanted.extent.length_bytes as usize);
                        scan.supply(wanted.column, wanted.page, bytes)?;
                    }
                }
                Step::Batch(batch) => {
                    let end = stop(&batch);
                    batches.push(batch);
                    if end {
                        return Ok((batches, scan.stats()));
                    }
                }
                Step::Done => return Ok((batches, scan.stats())),
            }
        }
    }

    pub(crate) fn scan(
        &self,
        program: &Arc<VerifiedProgram>,
        limits: ScanLimits,
    ) -> Result<(Vec<ScanBatch>, ScanStats), ScanError> {
        self.scan_until(program, limits, 0, |_| false)
    }
}

fn encode(id: ColumnId, column: &Column, page_bytes: u32, out: &mut dyn FnMut(EncodedPage)) {
    let rows = column.values.len();
    let mut validity = vec![0_u8; rows.div_ceil(8)];
    for (row, value) in column.values.iter().enumerate() {
        if *value != Datum::Null {
            validity[row / 8] |= 1 << (row % 8);
        }
    }
    let (mut integers, mut floats, mut bytes, mut offsets) =
        (Vec::new(), Vec::new(), Vec::new(), vec![0_u32]);
    for value in &column.values {
        let number = match value {
            Datum::Number(number) => i64::try_from(*number).expect("a stored integer has 64 bits"),
            Datum::Boolean(value) => i64::from(*value),
            _ => 0,
        };
        integers.push(number);
        floats.push(if let Datum::Float(value) = value { *value } else { 0.0 });
        if let Datum::Text(text) = value {
            bytes.extend_from_slice(text.as_bytes());
        }
        offsets.push(u32::try_from(bytes.len()).expect("few bytes"));
    }
    let values = match column.column_type {
        ColumnType::Float64 => Values::Floats(&floats),
        ColumnType::Text => Values::Text(TextValues { bytes: &bytes, offsets: &offsets }),
        _ => Values::Integers(&integers),
    };
    let chunk = ChunkInput {
        table: TableId(7),
        segment: SegmentId(3),
        column: id,
        column_type: column.column_type,
        values,
        validity: Some(&validity),
        page_bytes,
    };
    ChunkWriter::new().encode(&chunk, out).expect("the test's chunk can be encoded");
}

/// The rows of batches, as values.
pub(crate) fn rows_of<'b>(batches: impl IntoIterator<Item = &'b RecordBatch>) -> Vec<Vec<Datum>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            rows.push(batch.columns().iter().map(|column| datum(column, row)).collect());
        }
    }
    rows
}

pub(crate) fn datum(array: &ArrayRef, row: usize) -> Datum {
    if array.is_null(row) {
        return Datum::Null;
    }
    match array.data_type() {
        DataType::Boolean => Datum::Boolean(array.as_boolean().value(row)),
        DataType::Int32 => Datum::Number(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Datum::Number(array.as_primitive::<Int64Type>().value(row).into()),
        DataType::Date32 => Datum::Number(array.as_primitive::<Date32Type>().value(row).into()),
        DataType::Timestamp(_, _) => {
            Datum::Number(array.as_primitive::<TimestampMicrosecondType>().value(row).into())
        }
        DataType::Decimal128(_, _) => Datum::Number(array.as_primitive::<Decimal128Type>().value(row)),
        DataType::Float64 => Datum::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8View => Datum::Text(array.as_string_view().value(row).to_owned()),
        other => panic!("{other} is no type of a scan"),
    }
}

/// Equality that also holds of NaN, and tells zeros apart.
pub(crate) fn same(left: &[Vec<Datum>], right: &[Vec<Datum>]) -> bool {
    let equal = |pair: (&Datum, &Datum)| match pair {
        (Datum::Float(left), Datum::Float(right)) => left.to_bits() == right.to_bits(),
        (left, right) => left == right,
    };
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| left.len() == right.len() && left.iter().zip(right).all(equal))
}
