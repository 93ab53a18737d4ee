//! TPC-H `lineitem` as encoded pages in memory, and programs over it: what the measurements of this folder stand on.

use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, Values},
    encoding::text::TextValues,
    ids::{ColumnId, DeviceId, NodeId, PageNumber, SegmentId, TableId},
    program::{
        Aggregate, AggregateFunction, Arithmetic, Comparison, Input, Literal, Node, NodeIndex, Output,
        PROGRAM_VERSION, ScanProgram, VerifiedProgram,
    },
    schema::{ColumnDefinition, ColumnType, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
};
use rackscan_scan::{PageWanted, SegmentScan};
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};
use tpchgen::generators::{LineItem, LineItemGenerator};

pub(crate) const DECIMAL: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };
pub(crate) const SEGMENT_ROWS: usize = 131_072;
pub(crate) const TABLE: TableId = TableId(1);

/// The columns of the benchmark, in this order.
pub(crate) const COLUMNS: [(&str, ColumnType); 13] = [
    ("l_orderkey", ColumnType::Int64),
    ("l_quantity", DECIMAL),
    ("l_extendedprice", DECIMAL),
    ("l_discount", DECIMAL),
    ("l_tax", DECIMAL),
    ("l_returnflag", ColumnType::Text),
    ("l_linestatus", ColumnType::Text),
    ("l_shipdate", ColumnType::Date32),
    ("l_commitdate", ColumnType::Date32),
    ("l_receiptdate", ColumnType::Date32),
    ("l_shipinstruct", ColumnType::Text),
    ("l_shipmode", ColumnType::Text),
    ("l_comment", ColumnType::Text),
];

pub(crate) fn column(name: &str) -> u16 {
    let found = COLUMNS.iter().position(|(column, _)| *column == name);
    u16::try_from(found.expect("a column of the benchmark")).expect("few columns")
}

/// One column's values on their way into a segment.
#[derive(Default)]
pub(crate) struct Staged {
    integers: Vec<i64>,
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl Staged {
    pub(crate) fn text(&mut self, text: &str) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.bytes.extend_from_slice(text.as_bytes());
        self.offsets.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }
}

pub(crate) struct Segment {
    pub(crate) directory: Arc<SegmentDirectory>,
    /// By column, by page.
    pub(crate) pages: Vec<Vec<Vec<u8>>>,
}

impl Segment {
    /// Gives a scan the pages it wants, and says how long that took: they are checked as they are handed over.
    pub(crate) fn supply<'s>(
        &'s self,
        wanted: &[PageWanted],
        scan: &mut SegmentScan<&'s [u8]>,
    ) -> Result<Duration, Box<dyn Error>> {
        let before = Instant::now();
        for wanted in wanted {
            let PageNumber(page) = wanted.page;
            let bytes = self.pages[wanted.column.index()][usize::from(page)].as_slice();
            scan.supply(wanted.column, wanted.page, bytes)?;
        }
        Ok(before.elapsed())
    }
}

pub(crate) fn stage(columns: &mut [Staged], item: &LineItem<'_>) {
    let integers = [
        item.l_orderkey,
        item.l_quantity * 100,
        item.l_extendedprice.0,
        item.l_discount.0,
        item.l_tax.0,
        0,
        0,
        item.l_shipdate.to_unix_epoch().into(),
        item.l_commitdate.to_unix_epoch().into(),
        item.l_receiptdate.to_unix_epoch().into(),
    ];
    for (column, value) in columns.iter_mut().zip(integers) {
        column.integers.push(value);
    }
    for (index, text) in [
        (5, item.l_returnflag),
        (6, item.l_linestatus),
        (10, item.l_shipinstruct),
        (11, item.l_shipmode),
        (12, item.l_comment),
    ] {
        columns[index].text(text);
    }
}

pub(crate) fn seal(number: usize, columns: &[Staged], page_bytes: u32) -> Result<Segment, Box<dyn Error>> {
    let segment = SegmentId(u32::try_from(number)?);
    let mut writer = ChunkWriter::new();
    let (mut chunks, mut pages) = (Vec::new(), Vec::new());
    let mut rows = 0;
    for (index, (staged, (_, column_type))) in columns.iter().zip(COLUMNS).enumerate() {
        let values = if column_type == ColumnType::Text {
            Values::Text(TextValues { bytes: &staged.bytes, offsets: &staged.offsets })
        } else {
            Values::Integers(&staged.integers)
        };
        let column = ColumnId(u16::try_from(index)?);
        let chunk =
            ChunkInput { table: TABLE, segment, column, column_type, values, validity: None, page_bytes };
        let (mut entries, mut stored) = (Vec::new(), Vec::new());
        writer.encode(&chunk, &mut |page| {
            let length_bytes = u32::try_from(page.bytes.len()).unwrap_or(u32::MAX);
            let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
            rows = page.first_row + page.rows;
            entries.push(PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone });
            stored.push(page.bytes);
        })?;
        chunks.push(ChunkDirectory { pages: entries });
        pages.push(stored);
    }
    let directory = SegmentDirectory { table: TABLE, segment, rows, chunks };
    Ok(Segment { directory: Arc::new(directory), pages })
}

pub(crate) fn lineitem(scale: f64, page_bytes: u32) -> Result<Vec<Segment>, Box<dyn Error>> {
    let fresh = || COLUMNS.iter().map(|_| Staged::default()).collect::<Vec<_>>();
    let (mut segments, mut columns, mut rows) = (Vec::new(), fresh(), 0);
    for item in LineItemGenerator::new(scale, 1, 1) {
        stage(&mut columns, &item);
        rows += 1;
        if rows == SEGMENT_ROWS {
            segments.push(seal(segments.len(), &columns, page_bytes)?);
            (columns, rows) = (fresh(), 0);
        }
    }
    if rows > 0 {
        segments.push(seal(segments.len(), &columns, page_bytes)?);
    }
    Ok(segments)
}

/// A program being written: nodes are appended, each call says where its node is.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) nodes: Vec<Node>,
}

impl Writer {
    pub(crate) fn push(&mut self, node: Node) -> NodeIndex {
        self.nodes.push(node);
        NodeIndex::try_from(self.nodes.len() - 1).expect("few nodes")
    }

    pub(crate) fn column(&mut self, name: &str) -> NodeIndex {
        self.push(Node::Column(column(name)))
    }

    pub(crate) fn compare(&mut self, name: &str, op: Comparison, literal: Literal) -> NodeIndex {
        let left = self.column(name);
        let right = self.push(Node::Literal(literal));
        self.push(Node::Compare { op, left, right })
    }

    pub(crate) fn one_and(&mut self, op: Arithmetic, name: &str) -> NodeIndex {
        let one = Literal::Decimal { unscaled: 1, precision: 20, scale: 0 };
        let left = self.push(Node::Literal(one));
        let right = self.column(name);
        self.push(Node::Arithmetic { op, left, right })
    }

    pub(crate) fn product(&mut self, left: NodeIndex, right: NodeIndex) -> NodeIndex {
        self.push(Node::Arithmetic { op: Arithmetic::Multiply, left, right })
    }

    pub(crate) fn verify(
        self,
        table: &TableDefinition,
        filter: Vec<NodeIndex>,
        output: Output,
    ) -> Result<Arc<VerifiedProgram>, Box<dyn Error>> {
        let inputs = (0_u16..).zip(COLUMNS);
        let inputs =
            inputs.map(|(index, (_, column_type))| Input { column: ColumnId(index), column_type }).collect();
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: TABLE,
            inputs,
            nodes: self.nodes,
            filter,
            output,
            limit_rows: None,
            key_filters: Vec::new(),
        };
        Ok(Arc::new(program.verify(table)?))
    }
}

pub(crate) const fn aggregate(function: AggregateFunction, argument: NodeIndex) -> Aggregate {
    Aggregate { function, argument: Some(argument) }
}

pub(crate) fn cents(unscaled: i128) -> Literal {
    Literal::Decimal { unscaled, precision: 15, scale: 2 }
}

/// Q1 without its order.
pub(crate) fn q1(table: &TableDefinition) -> Result<Arc<VerifiedProgram>, Box<dyn Error>> {
    use AggregateFunction::{Count, CountRows, Sum};
    let count_rows = Aggregate { function: CountRows, argument: None };
    let mut q1 = Writer::default();
    // 1998-09-02 in days since 1970-01-01.
    let shipped = q1.compare("l_shipdate", Comparison::LessOrEqual, Literal::Date32(10_471));
    let keys = vec![q1.column("l_returnflag"), q1.column("l_linestatus")];
    let (quantity, price, discount) =
        (q1.column("l_quantity"), q1.column("l_extendedprice"), q1.column("l_discount"));
    let rest = q1.one_and(Arithmetic::Subtract, "l_discount");
    let discounted = q1.product(price, rest);
    let taxed = q1.one_and(Arithmetic::Add, "l_tax");
    let charge = q1.product(discounted, taxed);
    let sums = [quantity, price, discounted, charge, discount].map(|argument| aggregate(Sum, argument));
    let counts = [quantity, price, discount].map(|argument| aggregate(Count, argument));
    let aggregates = sums.into_iter().chain(counts).chain([count_rows]).collect();
    q1.verify(table, vec![shipped], Output::Groups { keys, aggregates })
}

/// Q6, or the rows that it sums.
pub(crate) fn q6(table: &TableDefinition, as_rows: bool) -> Result<Arc<VerifiedProgram>, Box<dyn Error>> {
    let mut q6 = Writer::default();
    // 1994-01-01 and 1995-01-01.
    let filter = vec![
        q6.compare("l_shipdate", Comparison::GreaterOrEqual, Literal::Date32(8_766)),
        q6.compare("l_shipdate", Comparison::Less, Literal::Date32(9_131)),
        q6.compare("l_discount", Comparison::GreaterOrEqual, cents(5)),
        q6.compare("l_discount", Comparison::LessOrEqual, cents(7)),
        q6.compare("l_quantity", Comparison::Less, cents(2400)),
    ];
    let (price, discount) = (q6.column("l_extendedprice"), q6.column("l_discount"));
    if as_rows {
        return q6.verify(table, filter, Output::Rows(vec![price, discount]));
    }
    let revenue = q6.product(price, discount);
    let aggregates = vec![aggregate(AggregateFunction::Sum, revenue)];
    q6.verify(table, filter, Output::Groups { keys: vec![], aggregates })
}

/// The definition of a table of these columns.
pub(crate) fn definition(rows: u64) -> Result<TableDefinition, Box<dyn Error>> {
    let columns = COLUMNS.iter().map(|(name, column_type)| ColumnDefinition {
        name: (*name).into(),
        column_type: *column_type,
        nullable: false,
    });
    Ok(TableDefinition {
        id: TABLE,
        name: "lineitem".into(),
        columns: columns.collect(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 131_072,
        segment_rows: u32::try_from(SEGMENT_ROWS)?,
        nodes: vec![NodeId(0)],
        rows,
        source: "tpchgen".into(),
    })
}

pub(crate) fn argument<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// So many per second.
pub(crate) fn ratio(count: u64, duration: std::time::Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = count as f64;
    count / duration.as_secs_f64()
}
