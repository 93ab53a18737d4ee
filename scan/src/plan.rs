//! Prepares a program for scanning segments, and decides by zone maps, before anything is read,
//! which blocks are scanned.
//!
//! Invariants
//! - If the zone maps prove that a conjunct (a condition that the filter connects by AND) is false
//!   for all rows of a block, no page is read for that block.
//! - If the zone maps prove that a conjunct is true for all rows of a block, it is not evaluated
//!   there and needs no page there.

use crate::{
    error::ScanError,
    evaluate::Expressions,
    pages::{InputPages, zone_of},
    predicate::{Filter, inputs_of},
    prune::{Bounds, Verdict, verdict},
};
use rackscan_format::{
    program::{Aggregate, Node, NodeIndex, Output, VerifiedProgram},
    segment::SegmentDirectory,
    zone::Zone,
};
use std::{ops::Range, sync::Arc};

/// A program prepared for scanning segments.
pub(crate) struct Plan {
    pub(crate) expressions: Expressions,
    pub(crate) filter: Filter,
    /// Inputs of each conjunct, ascending.
    pub(crate) conjunct_inputs: Vec<Vec<usize>>,
    /// Inputs of the output, ascending.
    pub(crate) payload_inputs: Vec<usize>,
    pub(crate) inputs: usize,
    /// Whether the program has [`Node::RowNumber`].
    pub(crate) has_row_numbers: bool,
}

impl Plan {
    pub(crate) fn new(program: Arc<VerifiedProgram>) -> Result<Self, arrow::error::ArrowError> {
        let filter = Filter::compile(&program);
        let conjunct_inputs = filter.conjuncts.iter().map(|conjunct| {
            let mut inputs = Vec::new();
            conjunct.for_each_input(&mut |input| inputs.push(input));
            inputs.sort_unstable();
            inputs.dedup();
            inputs
        });
        let conjunct_inputs = conjunct_inputs.collect();
        let payload_inputs = inputs_of(&program, &output_nodes(&program));
        let inputs = program.program().inputs.len();
        let has_row_numbers = program.program().nodes.contains(&Node::RowNumber);
        let expressions = Expressions::new(program)?;
        Ok(Self { expressions, filter, conjunct_inputs, payload_inputs, inputs, has_row_numbers })
    }

    pub(crate) fn program(&self) -> &VerifiedProgram {
        self.expressions.program()
    }
}

/// The nodes that are output, or that are grouped and aggregated.
pub(crate) fn output_nodes(program: &VerifiedProgram) -> Vec<NodeIndex> {
    match &program.program().output {
        Output::Rows(nodes) => nodes.clone(),
        Output::Groups { keys, aggregates } => {
            let arguments = aggregates.iter().filter_map(|Aggregate { argument, .. }| *argument);
            keys.iter().copied().chain(arguments).collect()
        }
    }
}

/// Checks that the program's columns are in the directory, and that their pages cover the segment.
/// The table that the program names does not matter: several tables with the same columns may share
/// a segment.
pub(crate) fn check(program: &VerifiedProgram, directory: &SegmentDirectory) -> Result<(), ScanError> {
    let SegmentDirectory { table, segment, rows, .. } = *directory;
    let mismatch = |what: &'static str, found: String, expected: String| {
        Err(ScanError::Mismatch { table, segment, what, found, expected })
    };
    for input in &program.program().inputs {
        let Some(chunk) = directory.chunk(input.column) else {
            let expected = format!("more than {}, the program's column", input.column);
            return mismatch("the number of columns", directory.chunks.len().to_string(), expected);
        };
        let mut next_row = 0_u32;
        for entry in &chunk.pages {
            let whole = entry.rows > 0
                && (entry.first_row as usize).is_multiple_of(rackscan_format::limits::BLOCK_ROWS);
            match next_row.checked_add(entry.rows) {
                Some(end) if whole && entry.first_row == next_row => next_row = end,
                _ => {
                    return mismatch("a page's first row", entry.first_row.to_string(), next_row.to_string());
                }
            }
        }
        if next_row != rows {
            return mismatch("the rows of a column's pages", next_row.to_string(), rows.to_string());
        }
    }
    Ok(())
}

/// The verdict of zone maps on each conjunct in each block of a range.
pub(crate) struct Verdicts {
    first_block: usize,
    conjuncts: usize,
    verdicts: Vec<Verdict>,
}

impl Verdicts {
    /// Whether the block may have a row that passes the filter.
    pub(crate) fn alive(&self, block: usize) -> bool {
        self.of(block).iter().all(|verdict| *verdict != Verdict::Never)
    }

    /// The verdicts on the conjuncts in a block.
    pub(crate) fn of(&self, block: usize) -> &[Verdict] {
        let start = (block - self.first_block) * self.conjuncts;
        &self.verdicts[start..start + self.conjuncts]
    }
}

/// Evaluates the conjuncts on the zone maps of the pages of `blocks`.
pub(crate) fn prune<P: AsRef<[u8]>>(
    plan: &Plan,
    directory: &SegmentDirectory,
    inputs: &[InputPages<P>],
    blocks: Range<usize>,
) -> Verdicts {
    let conjuncts = plan.filter.conjuncts.len();
    let mut verdicts = Vec::with_capacity(conjuncts * blocks.len());
    let nothing_known = Zone { min: None, max: None, nulls: 1 };
    for block in blocks.clone() {
        for (conjunct, needed) in plan.filter.conjuncts.iter().zip(&plan.conjunct_inputs) {
            // If no page changed since the block before, the verdict is the same.
            let same = |input: &usize| inputs[*input].page_of(block) == inputs[*input].page_of(block - 1);
            if block > blocks.start && needed.iter().all(same) {
                verdicts.push(verdicts[verdicts.len() - conjuncts]);
                continue;
            }
            let bounds = |input: usize| {
                let page = inputs[input].page_of(block);
                match zone_of(directory, inputs[input].column, page) {
                    Some((zone, rows)) => Bounds { zone, rows },
                    None => Bounds { zone: &nothing_known, rows: u32::MAX },
                }
            };
            verdicts.push(verdict(conjunct, &bounds));
        }
    }
    Verdicts { first_block: blocks.start, conjuncts, verdicts }
}
