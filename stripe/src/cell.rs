//! Defines the names of cells, columns and nodes of a stripe, and sets of them.
//!
//! A stripe is a table of cells: each column lies on one node, and a cell is the unit over which
//! parity is computed.
//!
//! Invariants
//! - A [`Column`] is a position in a stripe, a [`Node`] is a machine. The node of a column changes
//!   from stripe to stripe ([`crate::Geometry::node_of`]).
//! - Cells are ordered by column, then by slot (the position in the column). A node stores them in
//!   this order.

use serde::Serialize;

/// A column of a stripe: the cells that one node stores of it. The last column holds parities only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Column(pub u8);

/// A node, as the index into the cluster's nodes in ascending order of their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Node(pub u8);

/// A cell: the unit that is stored on one node, lost with it, and XORed with others. All cells of a
/// stripe have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cell {
    /// The column that it belongs to.
    pub column: Column,
    /// Its index in the column: the row, or, in the last column of a stripe with two parities, the
    /// number of the diagonal.
    pub slot: u8,
}

/// What a cell holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The client's bytes.
    Data {
        /// The index among the stripe's data cells: row by row, as they are written.
        ordinal: u16,
    },
    /// The XOR of the row's data cells.
    HorizontalParity {
        /// Which row.
        row: u8,
    },
    /// The XOR of the diagonal's data cells.
    DiagonalParity {
        /// Which diagonal.
        diagonal: u8,
    },
}

/// A set of columns: those of lost nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost(pub(crate) u64);

impl Lost {
    /// Nothing is lost.
    pub const NONE: Self = Self(0);

    /// Whether this column is among them.
    #[must_use]
    pub fn has(self, column: Column) -> bool {
        self.0.checked_shr(u32::from(column.0)).is_some_and(|mask| mask & 1 == 1)
    }

    /// How many columns are lost.
    #[must_use]
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The lost columns, in ascending order.
    pub fn columns(self) -> impl Iterator<Item = Column> {
        (0_u8..64).map(Column).filter(move |column| self.has(*column))
    }
}

/// A set of cells, by their index in the stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CellSet {
    words: Vec<u64>,
}

impl CellSet {
    /// The empty set, for a stripe with `cells` cells.
    pub(crate) fn empty(cells: usize) -> Self {
        Self { words: vec![0; cells.div_ceil(64)] }
    }

    /// Inserts a cell, or removes it if it is in the set, as XOR does.
    pub(crate) fn toggle(&mut self, index: usize) {
        self.words[index / 64] ^= 1 << (index % 64);
    }

    /// Makes it the symmetric difference: the cells that remain when two sums of cells are XORed.
    pub(crate) fn toggle_all(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word ^= other;
        }
    }

    /// Inserts all cells of the other set.
    pub(crate) fn insert_all(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The indices, ascending.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(at, word)| ones(at, *word))
    }

    /// The cells that are in both sets.
    pub(crate) fn both<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let words = self.words.iter().zip(&other.words).enumerate();
        words.flat_map(|(at, (word, other))| ones(at, word & other))
    }

    /// How many cells are in both sets.
    pub(crate) fn common(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }
}

/// The indices of the ones in the word at index `at`.
fn ones(at: usize, word: u64) -> impl Iterator<Item = usize> {
    let without_lowest = |word: &u64| Some(word & (word - 1)).filter(|left| *left != 0);
    let words = std::iter::successors(Some(word).filter(|word| *word != 0), without_lowest);
    words.map(move |word| at * 64 + word.trailing_zeros() as usize)
}
