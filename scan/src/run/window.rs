//! Chooses the blocks of a window (the blocks that a scan processes at a time) and the pages that
//! are read for them.
//!
//! Invariant: a page is requested at most once, and counted once, either as read or as skipped.

use super::SegmentScan;
use crate::{
    error::PagePosition,
    limits::LIMITED_WINDOW_BLOCKS,
    pages::{InputPages, Slot},
    plan::prune,
    predicate::Predicate,
    prune::Verdict,
    selection::Selection,
    step::PageWanted,
};
use rackscan_format::{ids::PageNumber, limits::BLOCK_ROWS};
use std::ops::Range;

impl<P: AsRef<[u8]>> SegmentScan<P> {
    /// The next blocks whose pages fit the memory bound; at least one.
    pub(super) fn next_window(&self) -> Option<Range<usize>> {
        let (start, blocks) = (self.window.end, self.directory.blocks());
        if start >= blocks || self.rows_left == 0 {
            return None;
        }
        let mut most = blocks;
        if self.plan.program().program().limit_rows.is_some() {
            // The program has a row limit: begin with a small window, then double it.
            most = blocks.min(start + LIMITED_WINDOW_BLOCKS.max(2 * self.window.len()));
        }
        let mut held_bytes = 0_usize;
        let mut end = start;
        while end < most {
            for input in &self.inputs {
                let page = input.page_of(end);
                if end == start || input.page_of(end - 1) != page {
                    let number = u16::try_from(page).expect("the number of a page: `page_of` reads 16 bits");
                    let number = PageNumber(number);
                    let entry = self.directory.page(input.column, number);
                    held_bytes += entry.map_or(0, |entry| entry.extent.length_bytes as usize);
                }
            }
            if held_bytes > self.limits.memory_bytes && end > start {
                break;
            }
            end += 1;
        }
        Some(start..end)
    }

    fn rows_of(&self, block: usize) -> usize {
        (self.directory.rows as usize - block * BLOCK_ROWS).min(BLOCK_ROWS)
    }

    /// The rows of a block that are not withheld, and their number. What zone maps prove of all
    /// rows holds of these, too.
    fn present(&self, block: usize) -> (Selection, usize) {
        let rows = self.rows_of(block);
        match self.withheld.as_ref().and_then(|withheld| withheld.in_block(block)) {
            None => (Selection::first(rows), rows),
            Some(withheld) => {
                let present = Selection::first(rows).without(&Selection::from_words(withheld));
                (present, present.count())
            }
        }
    }

    /// Prunes the window and requests the pages of undecided conjuncts.
    pub(super) fn request_filter_pages(&mut self) {
        let verdicts = prune(&self.plan, &self.directory, &self.inputs, self.window.clone());
        self.alive.clear();
        self.selections.clear();
        self.undecided.clear();
        for block in self.window.clone() {
            let (present, rows) =
                if verdicts.alive(block) { self.present(block) } else { (Selection::NONE, 0) };
            self.stats.blocks_pruned += u64::from(!verdicts.alive(block));
            self.stats.rows_scanned += rows as u64;
            self.alive.push(rows > 0);
            self.selections.push(present);
        }
        for (conjunct, predicate) in self.plan.filter.conjuncts.iter().enumerate() {
            let is_given_up = matches!(predicate, Predicate::Keys { position, .. } if self.buffers.key_filter_uses[*position].is_given_up());
            if is_given_up {
                self.undecided.push(vec![false; self.window.len()]);
                continue;
            }
            let blocks = self.window.clone().zip(&self.alive);
            let undecided =
                blocks.map(|(block, alive)| *alive && verdicts.of(block)[conjunct] == Verdict::Maybe);
            self.undecided.push(undecided.collect());
        }
        self.wanted.clear();
        for (undecided, inputs) in self.undecided.iter().zip(&self.plan.conjunct_inputs) {
            for &input in inputs {
                let blocks = self.window.clone().zip(undecided);
                let pages = blocks.filter(|(_, undecided)| **undecided).map(|(block, _)| block);
                request(&mut self.inputs, &mut self.wanted, input, pages);
            }
        }
    }

    /// Requests the pages of the output's inputs that have selected rows.
    pub(super) fn request_payload_pages(&mut self) {
        self.wanted.clear();
        for &input in &self.plan.payload_inputs {
            let blocks = self.window.clone().zip(&self.selections);
            let pages = blocks.filter(|(_, selection)| !selection.is_empty()).map(|(block, _)| block);
            request(&mut self.inputs, &mut self.wanted, input, pages);
        }
    }

    /// Pages that were requested and not yet supplied, in row order.
    pub(super) fn missing(&self) -> Option<Vec<PageWanted>> {
        let missing = self
            .wanted
            .iter()
            .filter(|place| matches!(self.inputs[place.input].slots().get(place.page), Some(Slot::Wanted)));
        let mut pages: Vec<(u32, PageWanted)> = missing
            .filter_map(|place| {
                let column = self.inputs[place.input].column;
                let page = PageNumber(u16::try_from(place.page).ok()?);
                let entry = self.directory.page(column, page)?;
                Some((entry.first_row, PageWanted { column, page, extent: entry.extent }))
            })
            .collect();
        pages.sort_by_key(|(first_row, wanted)| (*first_row, wanted.column));
        (!pages.is_empty()).then(|| pages.into_iter().map(|(_, wanted)| wanted).collect())
    }

    /// Counts the pages that were not read, and drops the pages that are no longer needed.
    pub(super) fn leave_window(&mut self) {
        for (index, input) in self.inputs.iter_mut().enumerate() {
            let is_payload = self.plan.payload_inputs.contains(&index);
            for page in input.pages_of(self.window.clone()) {
                // A page that extends into the next window is counted there.
                let goes_on =
                    self.window.end < self.directory.blocks() && input.page_of(self.window.end) == page;
                if goes_on || !matches!(input.slots()[page], Slot::Unread) {
                    continue;
                }
                let mut blocks = self.window.clone().filter(|block| input.page_of(*block) == page);
                if is_payload && blocks.any(|block| self.alive[block - self.window.start]) {
                    self.stats.pages_skipped_by_selection += 1;
                } else {
                    self.stats.pages_skipped_by_zone += 1;
                }
            }
            input.consume_before(self.window.end);
        }
    }

    /// Stored bytes of the pages that are requested or held.
    pub(super) fn page_bytes(&self) -> usize {
        let of_input = |input: &InputPages<P>| -> usize {
            let chunk = self.directory.chunk(input.column);
            let pages = input.slots().iter().zip(chunk.map_or(&[][..], |chunk| &chunk.pages));
            let here = pages.filter(|(slot, _)| matches!(slot, Slot::Wanted | Slot::Held(_)));
            here.map(|(_, entry)| entry.extent.length_bytes as usize).sum()
        };
        self.inputs.iter().map(of_input).sum()
    }
}

/// Requests the unread pages of these blocks.
fn request<P: AsRef<[u8]>>(
    inputs: &mut [InputPages<P>],
    wanted: &mut Vec<PagePosition>,
    input: usize,
    blocks: impl Iterator<Item = usize>,
) {
    for block in blocks {
        let page = inputs[input].page_of(block);
        if let Some(slot @ Slot::Unread) = inputs[input].slot_mut(page) {
            *slot = Slot::Wanted;
            wanted.push(PagePosition { input, page });
        }
    }
}
