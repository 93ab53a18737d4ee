//! How fast is each kernel of a scan, at each level of vectors, next to a plain copy of memory?
//!
//! ```text
//! cargo run --release -p rackscan-scan --example kernels -- --scale 1 --runs 7 [--level v3] [--only q1]
//! ```
//! One JSON line per kernel and level, of one thread and pages in memory, the best of the runs. `gb_per_s` counts encoded
//! bytes, `mrows_per_s` rows. Scans are timed without the opening of pages (CRC-32C, header), which `checksum_ms` tells.

use lineitem::{Segment, Writer, aggregate, argument, cents, column, definition, lineitem, q1, q6, ratio};
use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, Values},
    encoding::bitpack::{Scratch, packed_bytes},
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    limits::BLOCK_ROWS,
    page::{CheckedPage, PageIdentity},
    program::{Aggregate, AggregateFunction, Arithmetic, Comparison, Literal, Node, Output, VerifiedProgram},
    schema::{ColumnType, TableDefinition},
    simd::Level,
};
use rackscan_scan::{ScanLimits, SegmentScan, Step};
use std::{
    error::Error,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

mod lineitem;

const WIDTHS: [u8; 14] = [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64];
/// Unpacked per measurement: enough that looking at the clock does not count.
const BLOCKS: usize = 4096;

/// The best time of some runs.
fn best(runs: usize, mut run: impl FnMut()) -> Duration {
    let one = |_| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    (0..runs).map(one).min().unwrap_or_default()
}

/// A page of blocks whose numbers take `width` bits.
fn page_of(width: u8) -> Result<CheckedPage<Vec<u8>>, Box<dyn Error>> {
    let largest = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let mut state = 0x1234_5678_9abc_def1_u64;
    let values: Vec<i64> = (0..8 * BLOCK_ROWS)
        .map(|row| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let number =
                if row % BLOCK_ROWS < 2 { row as u64 % 2 * largest } else { state.rotate_left(29) & largest };
            number.cast_signed()
        })
        .collect();
    let (table, segment, column) = (TableId(1), SegmentId(0), ColumnId(0));
    let (column_type, page_bytes) = (ColumnType::Int64, 131_072);
    let values = Values::Integers(&values);
    let chunk = ChunkInput { table, segment, column, column_type, values, validity: None, page_bytes };
    let mut pages = Vec::new();
    ChunkWriter::new().encode(&chunk, &mut |page| pages.push(page.bytes))?;
    let identity = PageIdentity { table, segment, column, page: PageNumber(0) };
    Ok(CheckedPage::open(pages.swap_remove(0), &identity)?)
}

fn unpack(level: Level, runs: usize) -> Result<(), Box<dyn Error>> {
    for width in WIDTHS {
        let page = page_of(width)?;
        let integers = page.view().integers()?;
        let mut scratch = Scratch::at(level);
        let time = best(runs, || {
            for block in 0..BLOCKS {
                if let Ok(block) = integers.block(block % integers.blocks()) {
                    black_box(block.unpack(&mut scratch));
                }
            }
        });
        let bytes = (packed_bytes(width) * BLOCKS) as u64;
        println!(
            "{{\"bench\":\"kernel\",\"kernel\":\"unpack\",\"width\":{width},\"level\":\"{level}\",\
             \"ns_per_block\":{:.1},\"gb_per_s\":{:.2},\"mrows_per_s\":{:.0}}}",
            time.as_secs_f64() * 1e9 / 4096.0,
            ratio(bytes, time) / 1e9,
            ratio((BLOCKS * BLOCK_ROWS) as u64, time) / 1e6,
        );
    }
    Ok(())
}

/// A copy of more bytes than any cache holds, and of few that stay in the nearest.
fn copy(runs: usize) {
    for (name, bytes, times) in [("memory", 256 << 20, 1), ("cache", 16 << 10, 4096)] {
        let from = vec![1_u8; bytes];
        let mut to = vec![0_u8; bytes];
        let time = best(runs, || {
            for _ in 0..times {
                black_box(&mut to).copy_from_slice(black_box(&from));
            }
        });
        let rate = ratio((bytes * times) as u64, time) / 1e9;
        println!("{{\"bench\":\"kernel\",\"kernel\":\"copy\",\"of\":\"{name}\",\"gb_per_s\":{rate:.2}}}");
    }
}

type Programs = Vec<(&'static str, Arc<VerifiedProgram>)>;

fn programs(table: &TableDefinition) -> Result<Programs, Box<dyn Error>> {
    let count = || Output::Groups {
        keys: vec![],
        aggregates: vec![Aggregate { function: AggregateFunction::CountRows, argument: None }],
    };
    let mut compare = Writer::default();
    let filter = vec![compare.compare("l_shipdate", Comparison::Less, Literal::Date32(9_131))];
    let compare = compare.verify(table, filter, count())?;

    let mut columns = Writer::default();
    let (left, right) = (columns.column("l_commitdate"), columns.column("l_receiptdate"));
    let filter = vec![columns.push(Node::Compare { op: Comparison::Less, left, right })];
    let columns = columns.verify(table, filter, count())?;

    let mut like = Writer::default();
    let item = like.column("l_shipmode");
    let pattern = "%AI%".into();
    let filter = vec![like.push(Node::Like { item, pattern, negated: false, case_insensitive: false })];
    let like = like.verify(table, filter, count())?;

    let mut product = Writer::default();
    let price = product.column("l_extendedprice");
    let rest = product.one_and(Arithmetic::Subtract, "l_discount");
    let discounted = product.product(price, rest);
    let nodes = product.nodes.clone();
    let aggregates = vec![aggregate(AggregateFunction::Sum, discounted)];
    let arithmetic = product.verify(table, vec![], Output::Groups { keys: vec![], aggregates })?;

    let mut expression = Writer { nodes };
    let right = expression.push(Node::Literal(Literal::Decimal {
        unscaled: 300_000_000,
        precision: table_digits(table)?,
        scale: 4,
    }));
    let filter = vec![expression.push(Node::Compare { op: Comparison::Less, left: discounted, right })];
    let expression = expression.verify(table, filter, count())?;

    let mut grouped = Writer::default();
    let (key, quantity) = (grouped.column("l_shipmode"), grouped.column("l_quantity"));
    let aggregates = vec![aggregate(AggregateFunction::Sum, quantity)];
    let grouped = grouped.verify(table, vec![], Output::Groups { keys: vec![key], aggregates })?;

    let mut hashed = Writer::default();
    let (key, quantity) = (hashed.column("l_orderkey"), hashed.column("l_quantity"));
    let aggregates = vec![aggregate(AggregateFunction::Sum, quantity)];
    let hashed = hashed.verify(table, vec![], Output::Groups { keys: vec![key], aggregates })?;

    let mut exact = Writer::default();
    let filter = vec![exact.compare("l_discount", Comparison::Equal, cents(5))];
    let exact = exact.verify(table, filter, count())?;
    Ok(vec![
        ("compare", compare),
        ("equal", exact),
        ("compare_columns", columns),
        ("like_dictionary", like),
        ("filter_expression", expression),
        ("sum_expression", arithmetic),
        ("group_by_dictionary", grouped),
        ("group_by_hash", hashed),
        ("q1", q1(table)?),
        ("q6", q6(table, false)?),
    ])
}

/// Digits of `l_extendedprice * (1 - l_discount)`: arrow's type of the product.
fn table_digits(table: &TableDefinition) -> Result<u8, Box<dyn Error>> {
    match table.columns[usize::from(column("l_extendedprice"))].column_type {
        ColumnType::Decimal { .. } => Ok(38),
        other => Err(format!("l_extendedprice is {other}").into()),
    }
}

/// What a scan of all segments took and read.
#[derive(Clone, Copy, Default)]
struct Pass {
    scan: Duration,
    checksum: Duration,
    bytes: u64,
    blocks_unpacked: u64,
}

fn pass(segments: &[Segment], program: &Arc<VerifiedProgram>, level: Level) -> Result<Pass, Box<dyn Error>> {
    let mut pass = Pass::default();
    let start = Instant::now();
    for segment in segments {
        let (program, directory) = (Arc::clone(program), Arc::clone(&segment.directory));
        let mut scan = SegmentScan::new(program, directory, 0, ScanLimits::default())?.at_level(level);
        loop {
            match scan.step()? {
                Step::Read(pages) => pass.checksum += segment.supply(&pages, &mut scan)?,
                Step::Batch(batch) => {
                    black_box(batch);
                }
                Step::Done => break,
            }
        }
        pass.bytes += scan.stats().bytes_read;
        pass.blocks_unpacked += scan.stats().blocks_unpacked;
    }
    pass.scan = start.elapsed().saturating_sub(pass.checksum);
    Ok(pass)
}

fn main() -> Result<(), Box<dyn Error>> {
    let scale: f64 = argument("--scale", 0.1);
    let runs: usize = argument("--runs", 7);
    let only: String = argument("--only", String::new());
    let level: String = argument("--level", String::new());
    let levels: Vec<Level> =
        Level::available().into_iter().filter(|one| level.is_empty() || one.to_string() == level).collect();
    let wanted = |name: &str| only.is_empty() || only == name;
    if wanted("copy") {
        copy(runs);
    }
    for level in levels.iter().filter(|_| wanted("unpack")) {
        unpack(*level, runs)?;
    }
    let segments = lineitem(scale, argument("--page-size", 131_072))?;
    let rows: u64 = segments.iter().map(|segment| u64::from(segment.directory.rows)).sum();
    let table = definition(rows)?;
    for (name, program) in programs(&table)?.into_iter().filter(|(name, _)| wanted(name)) {
        for level in &levels {
            let mut least = pass(&segments, &program, *level)?;
            for _ in 1..runs {
                let next = pass(&segments, &program, *level)?;
                least = if next.scan < least.scan { next } else { least };
            }
            println!(
                "{{\"bench\":\"kernel\",\"kernel\":\"{name}\",\"level\":\"{level}\",\"scale\":{scale},\"rows\":{rows},\
                 \"bytes\":{},\"blocks_unpacked\":{},\"scan_ms\":{:.2},\"checksum_ms\":{:.2},\"gb_per_s\":{:.2},\
                 \"mrows_per_s\":{:.0}}}",
                least.bytes,
                least.blocks_unpacked,
                least.scan.as_secs_f64() * 1e3,
                least.checksum.as_secs_f64() * 1e3,
                ratio(least.bytes, least.scan) / 1e9,
                ratio(rows, least.scan) / 1e6,
            );
        }
    }
    Ok(())
}
