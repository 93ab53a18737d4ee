//! Maps the group keys of a row to a slot (an index) of a small table. This is possible if each key
//! has few possible values, its *domain*, in the blocks that are scanned together.
//!
//! Invariant: a key adds `code * stride` to the number of a slot. The code is below the size of the
//! key's domain for every row of the block; NULL has the last code.

use super::{integers::integers_to, masked::Slots};
use crate::{
    error::Fault,
    limits::DIRECT_SLOTS_MAX,
    narrow::{self, Buffers},
    pages::{InputView, PageBlock},
    select::integers,
    text::{text_array, valid_rows},
};
use arrow::{array::ArrayRef, buffer::NullBuffer};
use rackscan_format::{
    encoding::{bitpack::Narrow, text::TextBuffer},
    limits::BLOCK_ROWS,
    program::ValueType,
    simd::Kernel,
};

/// How the codes of a key map to slots.
pub(super) struct KeyDomain {
    input: usize,
    value_type: ValueType,
    /// The value of code 0; 0 for dictionaries.
    base: i64,
    pub(super) size: usize,
    stride: usize,
    /// Whether the last code stands for NULL.
    nullable: bool,
}

/// The domains of the keys over these blocks, which lie in one page of each key. `None` if there
/// are more than `DIRECT_SLOTS_MAX` combinations, or a text key has no dictionary.
pub(super) fn domains(
    keys: &[(usize, ValueType)],
    views: &[InputView<'_>],
    blocks: &[usize],
) -> Result<Option<Vec<KeyDomain>>, Fault> {
    let mut domains = Vec::with_capacity(keys.len());
    let mut stride = 1_usize;
    for (input, value_type) in keys {
        let (mut low, mut high) = (i128::MAX, i128::MIN);
        let mut nullable = false;
        for block in blocks {
            let located = views[*input].locate(*block)?;
            nullable |= located.view.header().nulls > 0;
            if *value_type == ValueType::Text {
                if !located.has_dictionary() {
                    return Ok(None);
                }
                let entries = located.dictionary()?.entries();
                (low, high) = (0, entries as i128 - 1);
                break;
            }
            let block = integers(&located)?;
            low = low.min(block.reference().into());
            high = high.max(narrow::largest_value(&block));
        }
        let (Ok(base), Ok(size)) =
            (i64::try_from(low), usize::try_from(high - low + 1 + i128::from(nullable)))
        else {
            return Ok(None);
        };
        if size.saturating_mul(stride) > DIRECT_SLOTS_MAX {
            return Ok(None);
        }
        domains.push(KeyDomain { input: *input, value_type: *value_type, base, size, stride, nullable });
        stride *= size;
    }
    Ok(Some(domains))
}

impl KeyDomain {
    /// Adds `code * stride` of each row of a block to its slot. Only rows beyond the end of the
    /// block can wrap.
    pub(super) fn add_codes(
        &self,
        views: &[InputView<'_>],
        block: usize,
        (slots, codes): (&mut Slots, &mut Slots),
        buffers: &mut Buffers,
    ) -> Result<(), Fault> {
        let located = views[self.input].locate(block)?;
        let level = buffers.scratch.level();
        let valid = valid_rows(&located);
        match valid.filter(|_| self.nullable) {
            None => self.of_values(&located, slots, buffers)?,
            Some(valid) => {
                codes.fill(0);
                self.of_values(&located, codes, buffers)?;
                valid.replace_others(level, codes, cut(((self.size - 1) * self.stride) as u64));
                let (factor, first) = (1, 0);
                level.run(AddCodes { lanes: &*codes, factor, first, slots });
            }
        }
        Ok(())
    }

    fn of_values(
        &self,
        located: &PageBlock<'_, '_>,
        slots: &mut Slots,
        buffers: &mut Buffers,
    ) -> Result<(), Fault> {
        let level = buffers.scratch.level();
        let (first, factor, numbers) = if self.value_type == ValueType::Text {
            let page = located.dictionary()?;
            let block = page.block(located.block).map_err(located.fault())?;
            let numbers = page.unpack(&block, &mut buffers.scratch).map_err(located.fault())?;
            (block.reference(), 1, numbers)
        } else {
            let block = integers(located)?;
            (block.reference().wrapping_sub(self.base), block.divisor(), block.unpack(&mut buffers.scratch))
        };
        let stride = cut(self.stride as u64);
        let first = cut(first.cast_unsigned()).wrapping_mul(stride);
        let factor = cut(factor).wrapping_mul(stride);
        match numbers {
            Narrow::Constant => slots.iter_mut().for_each(|slot| *slot = slot.wrapping_add(first)),
            Narrow::U8(lanes) => level.run(AddCodes { lanes, factor, first, slots }),
            Narrow::U16(lanes) => level.run(AddCodes { lanes, factor, first, slots }),
            Narrow::U32(lanes) => level.run(AddCodes { lanes, factor, first, slots }),
            Narrow::U64(lanes) => level.run(AddCodes { lanes, factor, first, slots }),
        }
        Ok(())
    }

    /// The keys of these slots, in a run that contains `block`.
    pub(super) fn keys(
        &self,
        views: &[InputView<'_>],
        block: usize,
        slots: &[usize],
    ) -> Result<ArrayRef, Fault> {
        let codes = slots.iter().map(|slot| slot / self.stride % self.size);
        let null = if self.nullable { self.size - 1 } else { usize::MAX };
        let nulls = self.nullable.then(|| NullBuffer::from_iter(codes.clone().map(|code| code != null)));
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        if self.value_type != ValueType::Text {
            // Codes are below `DIRECT_SLOTS_MAX`.
            let values = codes.map(|code| self.base.wrapping_add(code as i64)).collect();
            return Ok(integers_to(self.value_type, values, nulls)?);
        }
        let located = views[self.input].locate(block)?;
        let page = located.dictionary()?;
        let mut texts = TextBuffer::default();
        for code in codes {
            let text = if code == null { &[] } else { page.entry(code) };
            texts.push(text).map_err(located.fault())?;
        }
        Ok(text_array(texts, nulls)?)
    }
}

/// The low 16 bits, which always fit. For rows of the block, every number cut here is below
/// `DIRECT_SLOTS_MAX`.
#[inline(always)]
fn cut(number: u64) -> u16 {
    u16::try_from(number & u64::from(u16::MAX)).expect("16 bits")
}

struct AddCodes<'a, L> {
    lanes: &'a [L; BLOCK_ROWS],
    factor: u16,
    first: u16,
    slots: &'a mut Slots,
}

impl<L: Copy + Into<u64>> Kernel for AddCodes<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { lanes, factor, first, slots } = self;
        for (slot, lane) in slots.iter_mut().zip(lanes) {
            let code = cut((*lane).into());
            *slot = slot.wrapping_add(first.wrapping_add(factor.wrapping_mul(code)));
        }
    }
}
