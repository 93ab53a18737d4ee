//! Estimates how many pages and bytes a scan of a segment would read, and how many rows it would
//! yield.
//!
//! The planner computes the cost of placements from these estimates, and EXPLAIN shows them. Pages
//! and bytes follow from the zone maps, as in the scan itself; the number of rows is a guess. All
//! functions are pure.

use crate::{
    pages::{InputPages, zone_of},
    plan::{Plan, check, output_nodes, prune},
    predicate::{Predicate, TextTest},
    prune::{Bounds, Verdict},
    types::arrow_type,
};
use az::SaturatingAs;
use rackscan_format::{
    limits::BLOCK_ROWS,
    program::{Comparison, VerifiedProgram},
    segment::SegmentDirectory,
};
use std::{ops::Range, sync::Arc};

/// What zone maps say about a scan before any page is read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScanEstimate {
    /// Pages of the program's columns, whether needed or not.
    pub pages_total: u64,
    /// Their stored bytes.
    pub bytes_total: u64,
    /// Pages that the filter must look into.
    pub pages_filter: u64,
    /// Their stored bytes.
    pub bytes_filter: u64,
    /// Further pages that the output needs if every one of them has a selected row.
    pub pages_payload: u64,
    /// Their stored bytes.
    pub bytes_payload: u64,
    /// Rows of the segment.
    pub rows_total: u64,
    /// Rows in blocks that zone maps cannot rule out: the maximum number of output rows.
    pub rows_max: u64,
    /// Rows that pass the filter, guessed from zone maps as if values were spread evenly between
    /// the bounds.
    pub rows_selected: f64,
    /// Bytes of one row of output, guessed from types and stored sizes.
    pub row_bytes: f64,
}

/// The assumed selectivities where zone maps say nothing: those of System R.
const EQUAL_SHARE: f64 = 0.1;
const OTHER_SHARE: f64 = 0.33;

/// A program, prepared for estimates of many segments.
pub struct Estimator {
    /// `None` if the program cannot run.
    plan: Option<Plan>,
}

impl std::fmt::Debug for Estimator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Estimator").finish_non_exhaustive()
    }
}

impl Estimator {
    /// Prepares a program.
    #[must_use]
    pub fn new(program: &Arc<VerifiedProgram>) -> Self {
        Self { plan: Plan::new(Arc::clone(program)).ok() }
    }

    /// Prunes by zone maps alone. If program and directory do not belong together, everything but
    /// `rows_total` is 0.
    #[must_use]
    pub fn estimate(&self, directory: &SegmentDirectory) -> ScanEstimate {
        let plan = self.plan.as_ref().filter(|plan| check(plan.program(), directory).is_ok());
        let nothing = ScanEstimate { rows_total: u64::from(directory.rows), ..ScanEstimate::default() };
        plan.map_or(nothing, |plan| estimate(plan, directory))
    }
}

fn estimate(plan: &Plan, directory: &SegmentDirectory) -> ScanEstimate {
    let (program, blocks) = (plan.program(), directory.blocks());
    let inputs: Vec<InputPages<Vec<u8>>> = program
        .program()
        .inputs
        .iter()
        .filter_map(|input| Some(InputPages::new(input, &directory.chunk(input.column)?.pages, blocks)))
        .collect();
    let verdicts = prune(plan, directory, &inputs, 0..blocks);
    let unused = || inputs.iter().map(|input| vec![false; input.slots().len()]).collect::<Vec<_>>();
    let (mut filter_pages, mut payload_pages) = (unused(), unused());
    let mut estimate = ScanEstimate { rows_total: u64::from(directory.rows), ..ScanEstimate::default() };
    for run in runs(&inputs, blocks) {
        let block = run.start;
        if !verdicts.alive(block) {
            continue;
        }
        let rows = (directory.rows as usize).min(run.end * BLOCK_ROWS) - block * BLOCK_ROWS;
        estimate.rows_max += rows as u64;
        let mut share = 1.0;
        for (index, conjunct) in plan.filter.conjuncts.iter().enumerate() {
            if verdicts.of(block)[index] == Verdict::Maybe {
                for &input in &plan.conjunct_inputs[index] {
                    filter_pages[input][inputs[input].page_of(block)] = true;
                }
                share *= share_of(conjunct, directory, &inputs, block);
            }
        }
        estimate.rows_selected += share * count(rows);
        for &input in &plan.payload_inputs {
            payload_pages[input][inputs[input].page_of(block)] = true;
        }
    }
    for (index, input) in inputs.iter().enumerate() {
        let entries = directory.chunk(input.column).map_or(&[][..], |chunk| &chunk.pages);
        for (page, entry) in entries.iter().enumerate() {
            let bytes = u64::from(entry.extent.length_bytes);
            estimate.pages_total += 1;
            estimate.bytes_total += bytes;
            if filter_pages[index][page] {
                estimate.pages_filter += 1;
                estimate.bytes_filter += bytes;
            } else if payload_pages[index][page] {
                estimate.pages_payload += 1;
                estimate.bytes_payload += bytes;
            }
        }
    }
    estimate.row_bytes = row_bytes(program, directory);
    if let Some(most) = program.program().limit_rows {
        estimate.rows_selected = estimate.rows_selected.min(f64::from(most));
    }
    estimate
}

/// Consecutive blocks that lie in one page of every input, so that zone maps say the same of all.
fn runs<P: AsRef<[u8]>>(inputs: &[InputPages<P>], blocks: usize) -> Vec<Range<usize>> {
    let mut ends: Vec<usize> = inputs.iter().flat_map(InputPages::first_blocks).collect();
    ends.push(0);
    ends.push(blocks);
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// The share of a block's rows that a predicate keeps, if values are spread evenly.
fn share_of<P: AsRef<[u8]>>(
    predicate: &Predicate,
    directory: &SegmentDirectory,
    inputs: &[InputPages<P>],
    block: usize,
) -> f64 {
    let bounds = |input: usize| {
        zone_of(directory, inputs[input].column, inputs[input].page_of(block))
            .map(|(zone, rows)| Bounds { zone, rows })
    };
    match predicate {
        Predicate::Constant(value) => f64::from(u8::from(*value)),
        Predicate::Interval { input, low, high } => match bounds(*input).and_then(|bounds| bounds.integers())
        {
            Some((min, max)) => width(min.max(*low), max.min(*high)) / width(min, max),
            None => OTHER_SHARE,
        },
        Predicate::Set { input, values, negated } => {
            let share = match bounds(*input).and_then(|bounds| bounds.integers()) {
                Some((min, max)) => {
                    let within = values.iter().filter(|value| (min..=max).contains(*value)).count();
                    (count(within) / width(min, max)).min(1.0)
                }
                None => EQUAL_SHARE,
            };
            if *negated { 1.0 - share } else { share }
        }
        // Assumes that every value between the keys' bounds is as frequent as the keys are.
        Predicate::Keys { filter, .. } => {
            let name = filter.name();
            (f64::from(name.keys) / width(name.low, name.high).max(1.0)).min(1.0)
        }
        Predicate::Columns { op: Comparison::Equal, .. } => EQUAL_SHARE,
        Predicate::Columns { .. } => OTHER_SHARE,
        Predicate::Null { input, is_null } => match bounds(*input) {
            Some(Bounds { zone, rows }) if rows > 0 => {
                let nulls = f64::from(zone.nulls) / f64::from(rows);
                if *is_null { nulls } else { 1.0 - nulls }
            }
            _ => EQUAL_SHARE,
        },
        Predicate::Text { test: TextTest::Set { values, negated }, .. } => {
            let share = (EQUAL_SHARE * count(values.len())).min(1.0);
            if *negated { 1.0 - share } else { share }
        }
        Predicate::Text { test: TextTest::Like { negated, .. }, .. } => {
            if *negated {
                1.0 - EQUAL_SHARE
            } else {
                EQUAL_SHARE
            }
        }
        Predicate::Expression { comparison, .. } if comparison.op == Comparison::Equal => EQUAL_SHARE,
        Predicate::Text { .. } | Predicate::Expression { .. } | Predicate::General { .. } => OTHER_SHARE,
        Predicate::All(items) => items.iter().map(|item| share_of(item, directory, inputs, block)).product(),
        Predicate::Any(items) => {
            let none: f64 = items.iter().map(|item| 1.0 - share_of(item, directory, inputs, block)).product();
            1.0 - none
        }
    }
}

/// How many integers there are from `low` to `high`.
fn width(low: i64, high: i64) -> f64 {
    if high < low {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "an estimate: 53 bits are plenty")]
    let width = high.abs_diff(low) as f64;
    width + 1.0
}

/// A count as a double. An estimate need not count beyond 2^32.
fn count(count: usize) -> f64 {
    f64::from(count.saturating_as::<u32>())
}

/// Bytes of an output row: the maximum width on the wire for fixed types, the stored size of the
/// inputs for texts.
fn row_bytes(program: &VerifiedProgram, directory: &SegmentDirectory) -> f64 {
    let fixed: usize = program
        .output_types()
        .iter()
        .map(|value_type| arrow_type(*value_type).primitive_width().map_or(1, |width| width.min(8)))
        .sum();
    let texts = crate::predicate::inputs_of(program, &output_nodes(program)).into_iter().map(|input| {
        let input = &program.program().inputs[input];
        let is_text = input.column_type == rackscan_format::schema::ColumnType::Text;
        let chunk = directory.chunk(input.column).filter(|_| is_text);
        let pages = chunk.into_iter().flat_map(|chunk| &chunk.pages);
        pages.map(|page| f64::from(page.extent.length_bytes)).sum::<f64>()
    });
    count(fixed) + texts.sum::<f64>() / f64::from(directory.rows.max(1))
}
