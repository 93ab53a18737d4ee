//! How fast is a scan of TPC-H `lineitem`, without disk and wire?
//!
//! ```text
//! cargo run --release -p rackscan-scan --example scanbench -- --scale 1 --runs 5
//! ```
//! One JSON line per program: milliseconds of one thread for all segments, the best of the runs; `checksum_ms` is
//! what of it went into opening pages (CRC-32C, header), `scan_ms` is the rest.

use lineitem::{COLUMNS, Segment, Writer, aggregate, argument, definition, lineitem, q1, q6, ratio};
use rackscan_format::{
    program::{AggregateFunction, Comparison, Node, Output, VerifiedProgram},
    schema::TableDefinition,
};
use rackscan_scan::{ScanLimits, SegmentScan, Step, wire};
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

mod lineitem;

type Programs = Vec<(&'static str, Arc<VerifiedProgram>)>;

fn programs(table: &TableDefinition) -> Result<Programs, Box<dyn Error>> {
    let q1 = q1(table)?;
    let q6_rows = q6(table, true)?;
    let q6 = q6(table, false)?;

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
    let output =
        Output::Groups { keys: vec![key], aggregates: vec![aggregate(AggregateFunction::Sum, quantity)] };
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
                Step::Read(pages) => pass.supply += segment.supply(&pages, &mut scan)?,
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

fn main() -> Result<(), Box<dyn Error>> {
    let scale: f64 = argument("--scale", 0.1);
    let runs: usize = argument("--runs", 5);
    let only: String = argument("--only", String::new());
    let segments = lineitem(scale, argument("--page-size", 131_072))?;
    let rows: u64 = segments.iter().map(|segment| u64::from(segment.directory.rows)).sum();
    let table = definition(rows)?;
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
