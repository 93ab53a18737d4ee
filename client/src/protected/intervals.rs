//! Merges the wanted ranges of cells into intervals, and finds which places overlap a range of a
//! cell. An *interval* is one range of several cells of a stripe; a *place* is a page or a parity
//! cell of a node.
//!
//! ```text
//! places -> wanted ranges of cells, by stripe -> intervals in which the same cells are wanted
//! places <- bytes of recovered cells  <---------------/
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use rackscan_stripe::Cell;

use super::stripes::{CellRange, Spot, Stripes};

/// The same range of some cells of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) stripe: u64,
    pub(super) cells: Vec<Cell>,
    pub(super) range: Range<u64>,
}

/// The wanted ranges of cells.
#[derive(Debug, Default)]
pub(super) struct WantedRanges {
    stripes: BTreeMap<u64, BTreeMap<Cell, Vec<Range<u64>>>>,
}

impl WantedRanges {
    /// Adds a range. Ranges of a cell should be added in order, so that neighbours are merged.
    pub(super) fn add(&mut self, CellRange { stripe, cell, from, length }: CellRange) {
        let runs = self.stripes.entry(stripe).or_default().entry(cell).or_default();
        join(runs, from..from + length);
    }

    /// The intervals in which the same cells are wanted, in the order of stripes.
    pub(super) fn intervals(&self) -> Vec<Interval> {
        let of = |(stripe, cells): (&u64, _)| {
            let found = intervals(cells).into_iter();
            let stripe = *stripe;
            found.map(move |(range, cells)| Interval { stripe, cells, range })
        };
        self.stripes.iter().flat_map(of).collect()
    }
}

/// Places of a node by their position in its stream or parity, each with its number in a list.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Number and length of each page, by its beginning in the stream.
    pages: BTreeMap<u64, (usize, u64)>,
    /// Number of each parity place, by number of the parity cell.
    parity: BTreeMap<u64, usize>,
}

/// A place that overlaps a range of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceOverlap {
    /// The number of the place in the list.
    pub(super) at: usize,
    /// Where the place begins, and where the range begins, with the same origin.
    pub(super) start: u64,
    pub(super) from: u64,
}

impl Places {
    pub(super) fn add(&mut self, spot: Spot, at: usize) {
        match spot {
            Spot::Page { start, length } => drop(self.pages.insert(start, (at, length))),
            Spot::Parity { index } => drop(self.parity.insert(index, at)),
        }
    }

    /// The places that overlap a range of a cell.
    pub(super) fn touched(
        &self,
        stripes: &Stripes,
        stripe: u64,
        cell: Cell,
        range: &Range<u64>,
    ) -> Vec<PlaceOverlap> {
        let Some(held) = stripes.layout.held(stripe, cell) else { return Vec::new() };
        if held.is_parity {
            let found = self.parity.get(&held.index);
            return found
                .map(|at| PlaceOverlap { at: *at, start: 0, from: range.start })
                .into_iter()
                .collect();
        }
        let from = held.index * stripes.cell_bytes() + range.start;
        let end = from + (range.end - range.start);
        let first = self.pages.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let pages = self.pages.range(first..end).filter(|(start, (_, length))| *start + length > from);
        pages.map(|(start, (at, _))| PlaceOverlap { at: *at, start: *start, from }).collect()
    }
}

/// Copies the common part of two ranges: `into` begins at `start`, `bytes` at `from`.
pub(super) fn copy(into: &mut [u8], start: u64, bytes: &[u8], from: u64) {
    let begin = start.max(from);
    let end = (start + into.len() as u64).min(from + bytes.len() as u64);
    if begin >= end {
        return;
    }
    let at = |position: u64, origin: u64| {
        usize::try_from(position - origin).expect("an offset in a slice: it fits a usize")
    };
    into[at(begin, start)..at(end, start)].copy_from_slice(&bytes[at(begin, from)..at(end, from)]);
}

/// Adds a range to ascending ones, and merges it with the last one if they touch.
fn join(runs: &mut Vec<Range<u64>>, range: Range<u64>) {
    match runs.last_mut() {
        Some(last) if last.end >= range.start && last.start <= range.start => {
            last.end = last.end.max(range.end)
        }
        _ => runs.push(range),
    }
}

/// The intervals in which the same cells are wanted.
fn intervals(cells: &BTreeMap<Cell, Vec<Range<u64>>>) -> Vec<(Range<u64>, Vec<Cell>)> {
    let cuts: BTreeSet<u64> = cells.values().flatten().flat_map(|range| [range.start, range.end]).collect();
    let cuts: Vec<u64> = cuts.into_iter().collect();
    let wants = |runs: &[Range<u64>], range: &Range<u64>| {
        runs.iter().any(|run| run.start <= range.start && range.end <= run.end)
    };
    let found = cuts.windows(2).map(|cut| {
        let range = cut[0]..cut[1];
        let wanted = cells.iter().filter(|(_, runs)| wants(runs, &range)).map(|(cell, _)| *cell).collect();
        (range, wanted)
    });
    found.filter(|(_, cells): &(_, Vec<Cell>)| !cells.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_stripe::Column;

    #[test]
    fn the_same_cells_are_wanted_within_an_interval_and_neighbours_are_one() {
        let cell = |slot| Cell { column: Column(0), slot };
        let mut first = Vec::new();
        for range in [0..10, 10..20, 30..40] {
            join(&mut first, range);
        }
        assert_eq!(first, [0..20, 30..40]);
        let found =
            intervals(&BTreeMap::from([(cell(0), first), (cell(1), std::iter::once(5..35).collect())]));
        let both = vec![cell(0), cell(1)];
        let expected = [
            (0..5, vec![cell(0)]),
            (5..20, both.clone()),
            (20..30, vec![cell(1)]),
            (30..35, both),
            (35..40, vec![cell(0)]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_two_ranges_have_in_common_is_copied_and_nothing_else() {
        for (start, from, expected) in
            [(10, 8, [3, 4, 5, 0]), (10, 12, [0, 0, 1, 2]), (10, 20, [0; 4]), (20, 10, [0; 4])]
        {
            let mut into = [0; 4];
            copy(&mut into, start, &[1, 2, 3, 4, 5], from);
            assert_eq!(into, expected);
        }
    }
}
