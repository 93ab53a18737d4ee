//! Measures and writes blocks of integers, which [`super::integer`] reads.
//!
//! Invariants
//! - A plan measures a chunk once. The sizes of its blocks are exact, so pages are cut without
//!   encoding them first.
//! - Values of null rows affect neither bounds nor the divisor.

use super::{
    ChunkEncoder, Encoding, PageSummary,
    bitpack::{self, Words},
    delta,
    encoder::in_page,
    integer::{BlockDescriptor, DESCRIPTOR_BYTES, INCREMENTS, LANES_ALIGN, PACKED},
    validity::Bitmap,
};
use crate::{limits::BLOCK_ROWS, zone::ZoneValue};
use std::ops::Range;

/// What the integers mean, which determines how they may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Values of a column.
    Values,
    /// Codes of dictionaries and lengths of texts: stored without a divisor and without increments.
    Positions,
}

#[derive(Clone, Copy, Debug)]
struct BlockPlan {
    /// Smallest and largest value; `None` when all rows are null.
    bounds: Option<(i64, i64)>,
    /// The largest increment, if the block does not decrease and has no nulls.
    increment_max: Option<u64>,
}

/// The measurements of a chunk's integers.
#[derive(Clone, Debug)]
pub(crate) struct IntegerPlan {
    blocks: Vec<BlockPlan>,
    divisor: u64,
}

impl IntegerPlan {
    /// Measures integers; `validity` says which rows are null.
    pub(crate) fn measure(values: &[i64], validity: Option<Bitmap<'_>>, domain: Domain) -> Self {
        let mut plan = Self { blocks: Vec::with_capacity(values.len().div_ceil(BLOCK_ROWS)), divisor: 0 };
        let mut present = Vec::with_capacity(BLOCK_ROWS);
        for (index, block) in values.chunks(BLOCK_ROWS).enumerate() {
            let valid = validity.map(|bitmap| bitmap.slice(index * BLOCK_ROWS, block.len()));
            match valid.filter(|bitmap| bitmap.count_valid() < block.len()) {
                None => plan.add_block(block, domain, domain == Domain::Values),
                Some(bitmap) => {
                    present.clear();
                    present
                        .extend((0..block.len()).filter(|row| bitmap.is_valid(*row)).map(|row| block[row]));
                    plan.add_block(&present, domain, false);
                }
            }
        }
        if plan.divisor == 0 || domain == Domain::Positions {
            plan.divisor = 1;
        }
        plan
    }

    fn add_block(&mut self, values: &[i64], domain: Domain, may_sum: bool) {
        let bounds = bounds_of(values);
        if let (Domain::Values, Some((min, _))) = (domain, bounds) {
            self.divisor = common_divisor(self.divisor, values, min);
        }
        let increment_max = if may_sum { delta::largest_increment(values) } else { None };
        self.blocks.push(BlockPlan { bounds, increment_max });
    }

    /// Bounds of some blocks; `None` when all rows are null.
    fn bounds(&self, blocks: Range<usize>) -> Option<(i64, i64)> {
        let bounds = self.blocks[blocks].iter().filter_map(|block| block.bounds);
        bounds.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))
    }

    /// Bytes that one block adds to a page, including its descriptor.
    pub(crate) fn block_bytes(&self, block: usize) -> usize {
        DESCRIPTOR_BYTES + bitpack::packed_bytes(self.layout(block).width)
    }

    /// A block's descriptor, except `packed_at`.
    fn layout(&self, block: usize) -> BlockDescriptor {
        let BlockPlan { bounds, increment_max } = self.blocks[block];
        let (reference, largest) = bounds.unwrap_or((0, 0));
        let span = largest.wrapping_sub(reference).cast_unsigned() / self.divisor;
        let packed = BlockDescriptor {
            reference,
            span,
            packed_at: 0,
            width: bitpack::width_of(span),
            kind: PACKED,
            reserved: 0,
        };
        match increment_max.map(|increment| bitpack::width_of(increment / self.divisor)) {
            Some(width) if packed.width >= width + delta::SAVED_BITS_MIN => {
                BlockDescriptor { width, kind: INCREMENTS, ..packed }
            }
            _ => packed,
        }
    }

    /// Appends blocks to a page: their descriptors, then their lanes. `values` and `validity` must
    /// be those that were measured.
    pub(crate) fn write(
        &self,
        values: &[i64],
        validity: Option<Bitmap<'_>>,
        blocks: Range<usize>,
        page: &mut Vec<u8>,
    ) {
        let mut descriptors = page.len();
        page.resize((page.len() + blocks.len() * DESCRIPTOR_BYTES).next_multiple_of(LANES_ALIGN), 0);
        for block in blocks {
            let packed_at = in_page(page.len());
            let layout = BlockDescriptor { packed_at, ..self.layout(block) };
            page[descriptors..descriptors + DESCRIPTOR_BYTES].copy_from_slice(bytemuck::bytes_of(&layout));
            descriptors += DESCRIPTOR_BYTES;
            if layout.width == 0 {
                continue;
            }
            let first = block * BLOCK_ROWS;
            let rows = &values[first..values.len().min(first + BLOCK_ROWS)];
            let valid = validity.map(|bitmap| bitmap.slice(first, rows.len()));
            let mut numbers = numbers_of(rows, valid, layout.reference, self.divisor);
            if layout.kind == INCREMENTS {
                numbers[rows.len()..].fill(layout.span);
                delta::differences(&mut numbers);
            }
            bitpack::pack(&numbers, layout.width, page);
        }
    }
}

/// The encoder of a chunk of integers.
pub(crate) struct IntegerChunk<'v> {
    values: &'v [i64],
    validity: Option<Bitmap<'v>>,
    plan: IntegerPlan,
    page_bytes: usize,
}

impl<'v> IntegerChunk<'v> {
    pub(crate) fn new(values: &'v [i64], validity: Option<Bitmap<'v>>) -> Self {
        let plan = IntegerPlan::measure(values, validity, Domain::Values);
        Self { values, validity, plan, page_bytes: 0 }
    }
}

impl ChunkEncoder for IntegerChunk<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Integer
    }

    fn begin_page(&mut self) {
        self.page_bytes = 0;
    }

    fn grow(&mut self, block: usize) -> usize {
        self.page_bytes += self.plan.block_bytes(block);
        self.page_bytes
    }

    fn write(&mut self, blocks: Range<usize>, page: &mut Vec<u8>) -> PageSummary {
        self.plan.write(self.values, self.validity, blocks.clone(), page);
        let bounds = self.plan.bounds(blocks);
        let min = bounds.map(|(min, _)| ZoneValue::Integer(min));
        let max = bounds.map(|(_, max)| ZoneValue::Integer(max));
        PageSummary { sections: [0; 6], divisor: self.plan.divisor, min, max }
    }
}

fn bounds_of(values: &[i64]) -> Option<(i64, i64)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(min, max), value| (min.min(*value), max.max(*value))))
}

/// The greatest common divisor of `divisor` (0 if there is none yet) and every value's distance
/// from `reference`.
fn common_divisor(mut divisor: u64, values: &[i64], reference: i64) -> u64 {
    for value in values {
        if divisor == 1 {
            break;
        }
        let mut distance = value.wrapping_sub(reference).cast_unsigned();
        if divisor != 0 && distance.is_multiple_of(divisor) {
            continue;
        }
        // Euclid's algorithm.
        while distance != 0 {
            (divisor, distance) = (distance, divisor % distance);
        }
    }
    divisor
}

/// The numbers of a block: `(value - reference) / divisor`, and 0 for null rows.
fn numbers_of(rows: &[i64], validity: Option<Bitmap<'_>>, reference: i64, divisor: u64) -> Words {
    let mut numbers = [0; BLOCK_ROWS];
    for (number, value) in numbers.iter_mut().zip(rows) {
        *number = value.wrapping_sub(reference).cast_unsigned();
    }
    if let Some(bitmap) = validity {
        let nulls = (0..rows.len()).filter(|row| !bitmap.is_valid(*row));
        nulls.for_each(|row| numbers[row] = 0);
    }
    if divisor != 1 {
        numbers.iter_mut().for_each(|number| *number /= divisor);
    }
    numbers
}
