//! How fast is a scan of TPC-H `lineitem`, without disk and wire?
//!
//! ```text
//! cargo run --release -p rackscan-scan --example scanbench -- --scale 1 --runs 5
//! ```
//! One JSON line per program: milliseconds of one thread for all segments, the best of the runs; `checksum_ms` is
//! what of it went into opening pages (CRC-32C, header), `scan_ms` is the rest.

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
use rackscan_scan::{ScanLimits, SegmentScan, Step, wire};
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};
use tpchgen::generators::{LineItem, LineItemGenerator};

const DECIMAL: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };
const SEGMENT_ROWS: usize = 131_072;
const TABLE: TableId = TableId(1);

/// The columns of the benchmark, in this order.
const COLUMNS: [(&str, ColumnType); 13] = [
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

fn column(name: &str) -> u16 {
    let found = COLUMNS.iter().position(|(column, _)| *column == name);
    u16::try_from(found.expect("a column of the benchmark")).expect("few columns")
}

/// One column's values on their way into a segment.
#[derive(Default)]
struct Staged {
    integers: Vec<i64>,
    bytes: Vec<u8>,
    offsets: Vec<u32>,
}

impl Staged {
    fn text(&mut self, text: &str) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.bytes.extend_from_slice(text.as_bytes());
        self.offsets.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }
}

struct Segment {
    directory: Arc<SegmentDirectory>,
    /// By column, by page.
    pages: Vec<Vec<Vec<u8>>>,
}

fn stage(columns: &mut [Staged], item: &LineItem<'_>) {
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

fn seal(number: usize, columns: &[Staged], page_bytes: u32) -> Result<Segment, Box<dyn Error>> {
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

fn lineitem(scale: f64, page_bytes: u32) -> Result<Vec<Segment>, Box<dyn Error>> {
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
struct Writer {
    nodes: Vec<Node>,
}

impl Writer {
    fn push(&mut self, node: Node) -> NodeIndex {
        self.nodes.push(node);
        NodeIndex::try_from(self.nodes.len() - 1).expect("few nodes")
    }

    fn column(&mut self, name: &str) -> NodeIndex {
        self.push(Node::Column(column(name)))
    }

    fn compare(&mut self, name: &str, op: Comparison, literal: Literal) -> NodeIndex {
        let left = self.column(name);
        let right = self.push(Node::Literal(literal));
        self.push(Node::Compare { op, left, right })
    }

    fn one_and(&mut self, op: Arithmetic, name: &str) -> NodeIndex {
        let one = Literal::Decimal { unscaled: 1, precision: 20, scale: 0 };
        let left = self.push(Node::Literal(one));
        let right = self.column(name);
        self.push(Node::Arithmetic { op, left, right })
    }

    fn product(&mut self, left: NodeIndex, right: NodeIndex) -> NodeIndex {
        self.push(Node::Arithmetic { op: Arithmetic::Multiply, left, right })
    }

    fn verify(
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
        };
        Ok(Arc::new(program.verify(table)?))
    }
}

const fn aggregate(function: AggregateFunction, argument: NodeIndex) -> Aggregate {
    Aggregate { function, argument: Some(argument) }
}

fn cents(unscaled: i128) -> Literal {
    Literal::Decimal { unscaled, precision: 15, scale: 2 }
}

type Programs = Vec<(&'static str, Arc<VerifiedProgram>)>;

fn programs(table: &TableDefinition) -> Result<Programs, Box<dyn Error>> {
    use AggregateFunction::{Count, CountRows, Sum};
    let count_rows = Aggregate { function: CountRows, argument: None };
    // 1998-09-02, 1994-01-01 and 1995-01-01 in days since 1970-01-01.
    let (september, from, to) = (10_471, 8_766, 9_131);

    let mut q1 = Writer::default();
    let shipped = q1.compare("l_shipdate", Comparison::LessOrEqual, Literal::Date32(september));
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
    let q1 = q1.verify(table, vec![shipped], Output::Groups { keys, aggregates })?;

    let mut q6 = Writer::default();
    let filter = vec![
        q6.compare("l_shipdate", Comparison::GreaterOrEqual, Literal::Date32(from)),
        q6.compare("l_shipdate", Comparison::Less, Literal::Date32(to)),
        q6.compare("l_discount", Comparison::GreaterOrEqual, cents(5)),
        q6.compare("l_discount", Comparison::LessOrEqual, cents(7)),
        q6.compare("l_quantity", Comparison::Less, cents(2400)),
    ];
    let (price, discount) = (q6.column("l_extendedprice"), q6.column("l_discount"));
    let revenue = q6.product(price, discount);
    let q6_rows = q6.nodes.clone();
    let aggregates = vec![aggregate(Sum, revenue)];
    let q6 = q6.verify(table, filter.clone(), Output::Groups { keys: vec![], aggregates })?;
    let q6_rows = Writer { nodes: q6_rows }.verify(table, filter, Output::Rows(vec![price, discount]))?;

    let mut late = Writer::default();
    let (commit, receipt) = (late.column("l_commitdate"), late.column("l_receiptdate"));
    let filter = vec![late.push(Node::Compare { op: Comparison::Less, left: commit, right: receipt })];
    let order = late.column("l_orderkey");
    let late = late.verify(table, filter, Output::Rows(vec![order]))?;

    let mut like = Writer::default();
    let (item, order) = (like.column("l_comment"), like.column("l_orderkey"));
    let pattern = "%special%requests%".into();
    let filter = vec![like.push(Node::Like { item, pattern, negated: false, case_insensitive: false })];
    let like = like.verify(table, filter, Output::Rows(vec![order]))?;

    let mut by_order = Writer::default();
    let (key, quantity) = (by_order.column("l_orderkey"), by_order.column("l_quantity"));
    let output = Output::Groups { keys: vec![key], aggregates: vec![aggregate(Sum, quantity)] };
    let by_order = by_order.verify(table, vec![], output)?;

    let mut all = Writer::default();
    let outputs = COLUMNS.iter().map(|(name, _)| all.column(name)).collect();
    let all = all.verify(table, vec![], Output::Rows(outputs))?;
    Ok(vec![
        ("q1", q1),
        ("q6", q6),
        ("q6_rows", q6_rows),
        ("late_orderkeys", late),
        ("like_comment", like),
        ("sum_by_orderkey", by_order),
        ("all_columns", all),
    ])
}

/// What one pass over all segments took and gave.
#[derive(Clone, Copy, Default)]
struct Pass {
    total: Duration,
    supply: Duration,
    encode: Duration,
    decode: Duration,
    bytes: u64,
    rows_out: u64,
    wire_bytes: u64,
}

fn pass(
    segments: &[Segment],
    program: &Arc<VerifiedProgram>,
    with_wire: bool,
) -> Result<Pass, Box<dyn Error>> {
    let mut pass = Pass::default();
    let mut encoded = Vec::new();
    let start = Instant::now();
    for segment in segments {
        let mut scan =
            SegmentScan::new(Arc::clone(program), Arc::clone(&segment.directory), 0, ScanLimits::default())?;
        loop {
            match scan.step()? {
                Step::Read(pages) => {
                    let before = Instant::now();
                    for wanted in pages {
                        let PageNumber(page) = wanted.page;
                        let bytes = segment.pages[wanted.column.index()][usize::from(page)].as_slice();
                        scan.supply(wanted.column, wanted.page, bytes)?;
                    }
                    pass.supply += before.elapsed();
                }
                Step::Batch(batch) => {
                    pass.rows_out += batch.batch.num_rows() as u64;
                    if with_wire {
                        let before = Instant::now();
                        encoded.clear();
                        wire::encode(&batch.batch, &mut encoded)?;
                        pass.wire_bytes += encoded.len() as u64;
                        pass.encode += before.elapsed();
                        let before = Instant::now();
                        wire::decode(&encoded, &batch.batch.schema())?;
                        pass.decode += before.elapsed();
                    }
                }
                Step::Done => break,
            }
        }
        pass.bytes += scan.stats().bytes_read;
    }
    pass.total = start.elapsed();
    Ok(pass)
}

fn argument<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn main() -> Result<(), Box<dyn Error>> {
    let scale: f64 = argument("--scale", 0.1);
    let runs: usize = argument("--runs", 5);
    let only: String = argument("--only", String::new());
    let segments = lineitem(scale, argument("--page-size", 131_072))?;
    let rows: u64 = segments.iter().map(|segment| u64::from(segment.directory.rows)).sum();
    let columns = COLUMNS.iter().map(|(name, column_type)| ColumnDefinition {
        name: (*name).into(),
        column_type: *column_type,
        nullable: false,
    });
    let table = TableDefinition {
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
    };
    for (name, program) in programs(&table)?.into_iter().filter(|(name, _)| only.is_empty() || *name == only)
    {
        let mut best = pass(&segments, &program, false)?;
        for _ in 1..runs {
            let next = pass(&segments, &program, false)?;
            if next.total < best.total {
                best = next;
            }
        }
        let mut wired = pass(&segments, &program, true)?;
        for _ in 1..runs {
            let next = pass(&segments, &program, true)?;
            wired.encode = wired.encode.min(next.encode);
            wired.decode = wired.decode.min(next.decode);
        }
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let scan = best.total.saturating_sub(best.supply);
        println!(
            "{{\"bench\":\"scan_{name}\",\"scale\":{scale},\"rows\":{rows},\"rows_out\":{},\"bytes\":{},\
             \"ms\":{:.2},\"checksum_ms\":{:.2},\"scan_ms\":{:.2},\"gb_per_s\":{:.2},\"mrows_per_s\":{:.0},\
             \"wire_bytes\":{},\"wire_encode_ms\":{:.2},\"wire_decode_ms\":{:.2}}}",
            best.rows_out,
            best.bytes,
            ms(best.total),
            ms(best.supply),
            ms(scan),
            ratio(best.bytes, best.total) / 1e9,
            ratio(rows, best.total) / 1e6,
            wired.wire_bytes,
            ms(wired.encode),
            ms(wired.decode),
        );
    }
    Ok(())
}

/// So many per second.
fn ratio(count: u64, duration: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let count = count as f64;
    count / duration.as_secs_f64()
}
