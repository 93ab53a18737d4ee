//! Defines where each cell of a stripe lies, and the equations of the parities: which cells XOR to
//! zero.
//!
//! With two parities over n nodes: let p be the smallest prime that is not below n, and v = p - n.
//! Take a grid of p-1 rows and p-1 columns, in which row r has its horizontal parity in column
//! p-2-r, and a data cell (r, c) belongs to the diagonal (r + c) mod p. The parities occupy the
//! diagonal p-2. The last v columns and the first v rows are left out (they would contain zeros),
//! which leaves n-1 columns of n-1 rows. One more column contains the XOR of each diagonal. For n =
//! 5 this is figure 3 of the paper on redundant writes.
//!
//! With a single parity ([`Parity::Xor`]) a stripe is one row: n-1 columns of one data cell, and
//! their XOR in the last column. For n = 3 this is the paper's figure 5.
//!
//! Invariants with two parities
//! - Each of the first n-1 columns has n-2 data cells and one horizontal parity; each row has its
//!   parity in another column.
//! - A row and a diagonal have at most one cell in common; a diagonal has at most one cell in a
//!   column.
//! - If any one or two columns are lost, the equations have exactly one solution
//!   (`tests/two_lost_nodes.rs`).
//!
//! Invariants with either parity
//! - If any one column is lost, the equations have exactly one solution.
//! - Over n stripes, each node has each column once.

use crate::cell::{Cell, CellSet, Column, Lost, Node, Role};
use crate::error::StripeError;
use crate::limits::NODES_MAX;
use crate::parity::Parity;
use serde::Serialize;

/// The direction of an equation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Along a row.
    Horizontal,
    /// Along a diagonal.
    Diagonal,
}

/// Cells whose XOR is zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Equation {
    /// Along a row or a diagonal.
    pub direction: Direction,
    /// Which row or diagonal.
    pub number: u8,
    /// The data cells, in the order of their columns.
    pub data: Vec<Cell>,
    /// The XOR of the data cells.
    pub parity: Cell,
}

impl Equation {
    /// All cells of the equation, the parity last.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        self.data.iter().copied().chain([self.parity])
    }
}

/// The layout of all stripes over some number of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    parity: Parity,
    nodes: u8,
    /// By index of the cell.
    roles: Vec<Role>,
    /// In order of their ordinals.
    data: Vec<Cell>,
    /// The rows, then the diagonals.
    equations: Vec<Equation>,
    /// The cells of each equation.
    sums: Vec<CellSet>,
}

impl Geometry {
    /// The layout of stripes with two parities over `nodes` nodes.
    ///
    /// # Errors
    /// [`StripeError::Nodes`] outside of [`crate::limits::NODES_MIN`] to [`NODES_MAX`].
    pub fn new(nodes: usize) -> Result<Self, StripeError> {
        Self::with_parity(nodes, Parity::TwoD)
    }

    /// The layout of stripes with this parity over `nodes` nodes.
    ///
    /// # Errors
    /// [`StripeError::Nodes`] outside of [`Parity::nodes_min`] to [`NODES_MAX`].
    pub fn with_parity(nodes: usize, parity: Parity) -> Result<Self, StripeError> {
        if !(parity.nodes_min()..=NODES_MAX).contains(&nodes) {
            return Err(StripeError::Nodes { parity, found: nodes });
        }
        let equations = match parity {
            Parity::Xor => vec![single_row(nodes)],
            Parity::TwoD => {
                let grid = Grid::over(nodes);
                grid.horizontal().chain(grid.diagonal()).collect()
            }
        };
        let (roles, data, sums) = (Vec::new(), Vec::new(), Vec::new());
        let mut geometry = Self { parity, nodes: byte(nodes), roles, data, equations, sums };
        let rows = geometry.rows();
        geometry.data = geometry.equations[..rows].iter().flat_map(|row| row.data.clone()).collect();
        let before_last = (nodes - 1) * rows;
        geometry.roles = (0..before_last + geometry.slots(geometry.last_column()))
            .map(|place| Role::DiagonalParity { diagonal: byte(place.saturating_sub(before_last)) })
            .collect();
        for row in 0..rows {
            let parity = geometry.place(geometry.equations[row].parity);
            geometry.roles[parity] = Role::HorizontalParity { row: byte(row) };
        }
        for (ordinal, cell) in (0..).zip(geometry.data.clone()) {
            let place = geometry.place(cell);
            geometry.roles[place] = Role::Data { ordinal };
        }
        geometry.sums = geometry.equations.iter().map(|equation| geometry.set(equation.cells())).collect();
        Ok(geometry)
    }

    /// The parity of a stripe.
    #[must_use]
    pub fn parity(&self) -> Parity {
        self.parity
    }

    /// The number of nodes that share a stripe.
    #[must_use]
    pub fn nodes(&self) -> usize {
        usize::from(self.nodes)
    }

    /// The number of rows of a stripe: the cells of every column but the last.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self.parity {
            Parity::Xor => 1,
            Parity::TwoD => self.nodes() - 1,
        }
    }

    /// The number of diagonals of a stripe; 0 with a single parity.
    #[must_use]
    pub fn diagonals(&self) -> usize {
        self.equations.len() - self.rows()
    }

    /// The number of cells of this column, all of which its node stores.
    #[must_use]
    pub fn slots(&self, column: Column) -> usize {
        match usize::from(column.0) {
            last if last + 1 == self.nodes() && self.parity == Parity::TwoD => self.diagonals(),
            other if other < self.nodes() => self.rows(),
            _ => 0,
        }
    }

    /// The column that has parities only: those of the diagonals, or the single one.
    #[must_use]
    pub fn last_column(&self) -> Column {
        Column(self.nodes - 1)
    }

    /// All columns.
    pub fn columns(&self) -> impl Iterator<Item = Column> + use<> {
        (0..self.nodes).map(Column)
    }

    /// All cells: column by column, slot by slot.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        self.columns().flat_map(|column| self.cells_of(column))
    }

    /// The cells of a column, slot by slot.
    pub fn cells_of(&self, column: Column) -> impl Iterator<Item = Cell> + use<> {
        (0..byte(self.slots(column))).map(move |slot| Cell { column, slot })
    }

    /// The data cells, in the order in which a client's bytes fill them: row by row.
    #[must_use]
    pub fn data(&self) -> &[Cell] {
        &self.data
    }

    /// The equations: the rows, then the diagonals.
    #[must_use]
    pub fn equations(&self) -> &[Equation] {
        &self.equations
    }

    /// What this cell holds.
    ///
    /// # Errors
    /// [`StripeError::NoSuchCell`].
    pub fn role(&self, cell: Cell) -> Result<Role, StripeError> {
        if usize::from(cell.slot) < self.slots(cell.column) {
            return Ok(self.roles[self.place(cell)]);
        }
        Err(StripeError::NoSuchCell { cell, nodes: self.nodes(), slots: self.slots(cell.column) })
    }

    /// The number of bytes that are stored per byte of data.
    #[must_use]
    pub fn stored_per_data(&self) -> f64 {
        self.roles.len() as f64 / self.data.len() as f64
    }

    /// The node that has this column in this stripe. From stripe to stripe the columns rotate by
    /// one node, so that over n stripes every node has the same number of data cells and of
    /// parities of each kind.
    ///
    /// # Errors
    /// [`StripeError::NoSuchColumn`].
    pub fn node_of(&self, stripe: u64, column: Column) -> Result<Node, StripeError> {
        if column.0 >= self.nodes {
            return Err(StripeError::NoSuchColumn { column, nodes: self.nodes() });
        }
        Ok(Node(byte((usize::from(column.0) + self.rotation(stripe)) % self.nodes())))
    }

    /// The column that this node has in this stripe.
    ///
    /// # Errors
    /// [`StripeError::NoSuchNode`].
    pub fn column_of(&self, stripe: u64, node: Node) -> Result<Column, StripeError> {
        if node.0 >= self.nodes {
            return Err(StripeError::NoSuchNode { node, nodes: self.nodes() });
        }
        Ok(Column(byte((usize::from(node.0) + self.nodes() - self.rotation(stripe)) % self.nodes())))
    }

    /// The columns that a stripe loses with these nodes.
    ///
    /// # Errors
    /// [`StripeError::NoSuchNode`].
    pub fn lost_with(&self, stripe: u64, nodes: &[Node]) -> Result<Lost, StripeError> {
        nodes
            .iter()
            .try_fold(Lost::NONE, |lost, node| Ok(Lost(lost.0 | 1 << self.column_of(stripe, *node)?.0)))
    }

    /// A set of columns.
    ///
    /// # Errors
    /// [`StripeError::NoSuchColumn`].
    pub fn lost(&self, columns: &[Column]) -> Result<Lost, StripeError> {
        columns.iter().try_fold(Lost::NONE, |lost, column| match column.0 < self.nodes {
            true => Ok(Lost(lost.0 | 1 << column.0)),
            false => Err(StripeError::NoSuchColumn { column: *column, nodes: self.nodes() }),
        })
    }

    fn rotation(&self, stripe: u64) -> usize {
        usize::try_from(stripe % u64::from(self.nodes)).expect("below the number of nodes")
    }

    /// The index of a cell that exists.
    pub(crate) fn place(&self, cell: Cell) -> usize {
        usize::from(cell.column.0) * self.rows() + usize::from(cell.slot)
    }

    /// The cell with this index.
    pub(crate) fn cell(&self, place: usize) -> Cell {
        let column = (place / self.rows()).min(self.nodes() - 1);
        Cell { column: Column(byte(column)), slot: byte(place - column * self.rows()) }
    }

    pub(crate) fn set(&self, cells: impl IntoIterator<Item = Cell>) -> CellSet {
        let mut set = CellSet::empty(self.roles.len());
        for cell in cells {
            set.toggle(self.place(cell));
        }
        set
    }

    pub(crate) fn cells_in(&self, set: &CellSet) -> Vec<Cell> {
        set.indices().map(|place| self.cell(place)).collect()
    }

    /// The cells of each equation, as sets.
    pub(crate) fn sums(&self) -> &[CellSet] {
        &self.sums
    }

    pub(crate) fn cells_of_lost(&self, lost: Lost) -> CellSet {
        self.set(self.cells().filter(|cell| lost.has(cell.column)))
    }
}

/// A number that [`crate::limits`] keeps within a byte.
pub(crate) fn byte(number: usize) -> u8 {
    u8::try_from(number).expect("a number that the limits keep within a byte")
}

/// The only row of a stripe with a single parity.
fn single_row(nodes: usize) -> Equation {
    let cell = |column: usize| Cell { column: Column(byte(column)), slot: 0 };
    let data = (0..nodes - 1).map(cell).collect();
    Equation { direction: Direction::Horizontal, number: 0, data, parity: cell(nodes - 1) }
}

/// The grid of the construction, of which some rows and columns are left out.
struct Grid {
    nodes: usize,
    prime: usize,
}

impl Grid {
    fn over(nodes: usize) -> Self {
        let is_prime = |number: &usize| (2..*number).all(|divisor| !number.is_multiple_of(divisor));
        Self { nodes, prime: (nodes..).find(is_prime).expect("there are infinitely many primes") }
    }

    /// The cell at a row of the whole grid and a column, neither of which is left out.
    fn cell(&self, row: usize, column: usize) -> Cell {
        Cell { column: Column(byte(column)), slot: byte(row - self.left_out()) }
    }

    fn left_out(&self) -> usize {
        self.prime - self.nodes
    }

    /// The rows that are not left out.
    fn rows(&self) -> std::ops::Range<usize> {
        self.left_out()..self.prime - 1
    }

    fn parity_column(&self, row: usize) -> usize {
        self.prime - 2 - row
    }

    fn horizontal(&self) -> impl Iterator<Item = Equation> {
        self.rows().map(|row| {
            let parity = self.parity_column(row);
            let columns = (0..self.nodes - 1).filter(|column| *column != parity);
            Equation {
                direction: Direction::Horizontal,
                number: byte(row - self.left_out()),
                data: columns.map(|column| self.cell(row, column)).collect(),
                parity: self.cell(row, parity),
            }
        })
    }

    /// The diagonals that have a cell, in the paper's order: the whole grid's row r shows diagonal
    /// r-1 in its last column.
    fn diagonal(&self) -> impl Iterator<Item = Equation> {
        let classes = (0..self.prime - 1).map(|row| (row + self.prime - 1) % self.prime);
        let cells = classes.map(|class| self.cells_of(class)).filter(|cells| !cells.is_empty());
        cells.enumerate().map(|(number, data)| Equation {
            direction: Direction::Diagonal,
            number: byte(number),
            data,
            parity: Cell { column: Column(byte(self.nodes - 1)), slot: byte(number) },
        })
    }

    fn cells_of(&self, class: usize) -> Vec<Cell> {
        let row_at = |column: usize| (class + self.prime - column) % self.prime;
        (0..self.nodes - 1)
            .filter(|column| self.rows().contains(&row_at(*column)))
            .map(|column| self.cell(row_at(column), column))
            .collect()
    }
}
