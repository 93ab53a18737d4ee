//! Measures the cost of scanning on one core, in this process and in the nodes.

use super::CalibrateError;
use rackscan_client::{Cluster, ClusterTable, OfferedProgram, PlacedSegment, ProcessAnswer, SegmentPart};
use rackscan_format::{
    ids::ColumnId,
    page::PageView,
    program::{
        Aggregate, AggregateFunction, Comparison, Input, Literal, Node, Output, PROGRAM_VERSION, ScanProgram,
        ValueType, VerifiedProgram,
    },
    schema::ColumnType,
    segment::SegmentDirectory,
    zone::ZoneValue,
};
use rackscan_planner::{Calibration, Constant, CpuCosts};
use rackscan_scan::{PageWanted, ScanLimits, SegmentScan, Step};
use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

/// Runs of each measurement except echoes.
pub(super) const RUNS: u32 = 5;
/// Maximum number of segments scanned per run.
const SEGMENTS_MAX: usize = 8;
/// A smaller difference of two times is noise.
const FLOOR_NS: f64 = 0.001;

/// One column of one segment, in memory.
struct Sample {
    directory: Arc<SegmentDirectory>,
    pages: Vec<Vec<u8>>,
}

/// Measures `engine` and `node`.
pub(super) async fn measure(
    cluster: &Cluster,
    table: &ClusterTable,
    calibration: &mut Calibration,
) -> Result<(), CalibrateError> {
    let segments = &table.segments[..table.segments.len().min(SEGMENTS_MAX)];
    let column = sample_column(table)?;
    let counting = counting_program(table, column)?;
    let building = program(table, column, vec![Node::Column(0)], vec![], Output::Rows(vec![0]));
    let mut samples = Vec::with_capacity(segments.len());
    for segment in segments {
        samples.push(read_sample(cluster, segment, column).await?);
    }
    let (counting, building) = (verified(counting, table)?, verified(building, table)?);
    let (engine, counting_time, building_time) = engine_costs(&samples, column, &counting, &building)?;
    let node_counting = node_time(cluster, segments, &counting).await?;
    let node_building = node_time(cluster, segments, &building).await?;
    let slower = |node: Duration, engine: Duration| node.as_secs_f64() / engine.as_secs_f64().max(1e-9);
    let how = "the engine's, times the node's CPU time over the engine's for the same scan";
    let scaled = |constant: &Constant, factor: f64| Constant::measured(constant.value * factor, how);
    let (count_factor, build_factor) =
        (slower(node_counting, counting_time), slower(node_building, building_time));
    calibration.node = CpuCosts {
        value_ns: scaled(&engine.value_ns, count_factor),
        page_ns: scaled(&engine.page_ns, count_factor),
        stored_byte_ns: scaled(&engine.stored_byte_ns, count_factor),
        output_byte_ns: scaled(&engine.output_byte_ns, build_factor),
    };
    calibration.engine = engine;
    Ok(())
}

/// Measures the engine's constants, and its times for the two scans.
#[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
fn engine_costs(
    samples: &[Sample],
    column: ColumnId,
    counting: &Arc<VerifiedProgram>,
    building: &Arc<VerifiedProgram>,
) -> Result<(CpuCosts, Duration, Duration), CalibrateError> {
    let pages = samples.iter().map(|sample| sample.pages.len()).sum::<usize>() as f64;
    let bytes = samples.iter().flat_map(|sample| &sample.pages).map(Vec::len).sum::<usize>() as f64;
    let values = samples.iter().map(|sample| u64::from(sample.directory.rows)).sum::<u64>() as f64;
    let checking = best_of(|| {
        samples.iter().flat_map(|sample| &sample.pages).for_each(|page| {
            black_box(crc32c::crc32c(page));
        });
        Ok(())
    })?;
    let opening = best_of(|| {
        for sample in samples {
            for (number, page) in (0_u16..).zip(&sample.pages) {
                let identity = sample.directory.identity(column, rackscan_format::ids::PageNumber(number));
                black_box(PageView::open(page, &identity).is_ok());
            }
        }
        Ok(())
    })?;
    let mut built_bytes = 0;
    let counting_time = best_of(|| scan_all(samples, column, counting).map(|_| ()))?;
    let building_time = best_of(|| {
        built_bytes = scan_all(samples, column, building)?;
        Ok(())
    })?;
    let ns = |time: Duration| time.as_secs_f64() * 1e9;
    let best = |what: &str| format!("best of {RUNS} runs over {} segments: {what}", samples.len());
    let counted = (ns(counting_time) - ns(opening)).max(0.0);
    let costs = CpuCosts {
        stored_byte_ns: Constant::measured(
            (ns(checking) / bytes).max(FLOOR_NS),
            best("CRC-32C of pages in memory"),
        ),
        page_ns: Constant::measured(
            ((ns(opening) - ns(checking)) / pages).max(FLOOR_NS),
            best("opening pages, less their checksums"),
        ),
        value_ns: Constant::measured(
            (counted / values).max(FLOOR_NS),
            best("counting what is above the middle"),
        ),
        output_byte_ns: Constant::measured(
            ((ns(building_time) - ns(opening)) / built_bytes.max(1) as f64).max(FLOOR_NS),
            best("building batches of one column"),
        ),
    };
    Ok((costs, counting_time, building_time))
}

fn best_of(mut run: impl FnMut() -> Result<(), CalibrateError>) -> Result<Duration, CalibrateError> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Scans all samples. Returns the bytes of the batches.
fn scan_all(
    samples: &[Sample],
    column: ColumnId,
    program: &Arc<VerifiedProgram>,
) -> Result<usize, CalibrateError> {
    let mut bytes = 0;
    for sample in samples {
        let directory = Arc::clone(&sample.directory);
        let mut scan: SegmentScan<&[u8]> =
            SegmentScan::new(Arc::clone(program), directory, 0, ScanLimits::default())?;
        loop {
            match scan.step()? {
                Step::Read(wanted) => {
                    for page in wanted {
                        let stored =
                            sample.pages.get(usize::from(page.page.0)).map_or(&[][..], Vec::as_slice);
                        scan.supply(column, page.page, stored)?;
                    }
                }
                Step::Batch(batch) => bytes += black_box(batch.batch).get_array_memory_size(),
                Step::Done => break,
            }
        }
    }
    Ok(bytes)
}

/// CPU time of the nodes for the scan of all segments; the best of several runs.
async fn node_time(
    cluster: &Cluster,
    segments: &[PlacedSegment],
    program: &Arc<VerifiedProgram>,
) -> Result<Duration, CalibrateError> {
    let mut best = Duration::MAX;
    let program = OfferedProgram::plain(Arc::clone(program));
    for _ in 0..RUNS {
        let mut cpu = Duration::ZERO;
        for segment in segments {
            let mut first_block = Some(0);
            while let Some(block) = first_block {
                let part = SegmentPart::from_block(&segment.directory, block);
                let answer = cluster.process(segment.node, &program, &part).await?;
                first_block = match answer {
                    ProcessAnswer::Processed(processed) => {
                        cpu += Duration::from_micros(processed.cost.cpu_us);
                        processed.next_block
                    }
                    // A busy node gave the pages back, so its time would be wrong: try the segment
                    // again.
                    ProcessAnswer::Bounced { .. } => Some(block),
                };
            }
        }
        best = best.min(cpu);
    }
    Ok(best.max(Duration::from_micros(1)))
}

async fn read_sample(
    cluster: &Cluster,
    segment: &PlacedSegment,
    column: ColumnId,
) -> Result<Sample, CalibrateError> {
    let directory = Arc::clone(&segment.directory);
    let entries = directory.chunk(column).map_or(&[][..], |chunk| chunk.pages.as_slice());
    let wanted: Vec<PageWanted> = (0_u16..)
        .zip(entries)
        .map(|(number, entry)| PageWanted {
            column,
            page: rackscan_format::ids::PageNumber(number),
            extent: entry.extent,
        })
        .collect();
    let fetched = cluster.fetch(segment.node, directory.table, directory.segment, &wanted).await?;
    let pages = fetched.pages.iter().map(|page| page.as_ref().to_vec()).collect();
    Ok(Sample { directory, pages })
}

/// The integer column with the most bytes: fixed costs are the smallest part of its scan.
fn sample_column(table: &ClusterTable) -> Result<ColumnId, CalibrateError> {
    let stored = |column: usize| -> u64 {
        let chunks = table.segments.iter().filter_map(|segment| segment.directory.chunks.get(column));
        chunks.flat_map(|chunk| &chunk.pages).map(|page| u64::from(page.extent.length_bytes)).sum()
    };
    let columns = table.definition.columns.iter().enumerate();
    let integers = columns.filter(|(_, column)| {
        matches!(column.column_type, ColumnType::Int64 | ColumnType::Decimal { .. }) && !column.nullable
    });
    let widest =
        integers.max_by_key(|(index, _)| stored(*index)).and_then(|(index, _)| u16::try_from(index).ok());
    widest.map(ColumnId).ok_or_else(|| CalibrateError::Sample {
        table: table.definition.name.clone(),
        found: "no such column".to_owned(),
        expected: "a bigint or decimal column without nulls",
    })
}

/// Counts the rows above the middle of the column's values, so that zone maps skip nothing.
fn counting_program(table: &ClusterTable, column: ColumnId) -> Result<ScanProgram, CalibrateError> {
    let zones = table.segments.iter().filter_map(|segment| segment.directory.chunk(column));
    let zones = zones.flat_map(|chunk| &chunk.pages).map(|page| &page.zone);
    let bounds = zones.filter_map(|zone| match (&zone.min, &zone.max) {
        (Some(ZoneValue::Integer(min)), Some(ZoneValue::Integer(max))) => Some((*min, *max)),
        _ => None,
    });
    let (min, max) = bounds.fold((i64::MAX, i64::MIN), |(min, max), (a, b)| (min.min(a), max.max(b)));
    if min >= max {
        return Err(CalibrateError::Sample {
            table: table.definition.name.clone(),
            found: "values that are all the same".to_owned(),
            expected: "values that differ",
        });
    }
    let middle = min + (max.abs_diff(min) / 2).cast_signed();
    let literal = match ValueType::from(table.definition.columns[column.index()].column_type) {
        ValueType::Decimal { precision, scale } => {
            Literal::Decimal { unscaled: middle.into(), precision, scale }
        }
        _ => Literal::Int64(middle),
    };
    let nodes = vec![
        Node::Column(0),
        Node::Literal(literal),
        Node::Compare { op: Comparison::Greater, left: 0, right: 1 },
    ];
    let count = Aggregate { function: AggregateFunction::CountRows, argument: None };
    Ok(program(table, column, nodes, vec![2], Output::Groups { keys: vec![], aggregates: vec![count] }))
}

fn program(
    table: &ClusterTable,
    column: ColumnId,
    nodes: Vec<Node>,
    filter: Vec<u16>,
    output: Output,
) -> ScanProgram {
    let column_type = table.definition.columns[column.index()].column_type;
    ScanProgram {
        version: PROGRAM_VERSION,
        table: table.definition.id,
        inputs: vec![Input { column, column_type }],
        nodes,
        filter,
        output,
        limit_rows: None,
        key_filters: Vec::new(),
    }
}

fn verified(program: ScanProgram, table: &ClusterTable) -> Result<Arc<VerifiedProgram>, CalibrateError> {
    program.verify(&table.definition).map(Arc::new).map_err(|error| CalibrateError::Sample {
        table: table.definition.name.clone(),
        found: error.to_string(),
        expected: "a table of this version",
    })
}
