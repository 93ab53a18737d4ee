//! Defines the steps of a schedule: who sends what to whom, and what the receiver does with it.
//!
//! Invariant: steps are listed after their inputs, and their inputs end at their sender.

use crate::cell::{Cell, Column};
use crate::geometry::{Direction, Equation, Geometry};
use serde::{Deserialize, Serialize};

/// How a stripe is transferred and protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The client sends its data cells, and nothing is protected: the baseline of comparisons. It
    /// is called `none` on the command line.
    #[serde(rename = "none")]
    Bare,
    /// The client computes both parities and sends all cells.
    Naive,
    /// The client sends each data cell once. Nodes XOR what passes with what they hold, and forward
    /// it.
    Relay,
}

/// The sender of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// The client that writes the stripe.
    Client,
    /// The node that has this column.
    Column(Column),
}

/// The purpose of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Toward {
    /// It brings a data cell to its node.
    Data,
    /// It brings a node's data cell, as it is, into the row and the diagonal of another node.
    BothParities,
    /// It is part of a row's parity, or that parity.
    HorizontalParity {
        /// Which row.
        row: u8,
    },
    /// It is part of a diagonal's parity, or that parity.
    DiagonalParity {
        /// Which diagonal.
        diagonal: u8,
    },
}

impl Toward {
    /// The parity of an equation.
    pub(crate) fn parity_of(equation: &Equation) -> Self {
        match equation.direction {
            Direction::Horizontal => Self::HorizontalParity { row: equation.number },
            Direction::Diagonal => Self::DiagonalParity { diagonal: equation.number },
        }
    }
}

/// The index of a step in its schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct StepId(pub u16);

/// One transfer, as long as a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The sender of a step.
    pub from: Sender,
    /// Which column's node receives.
    pub to: Column,
    /// What it is for.
    pub toward: Toward,
    /// The data cells whose XOR is sent.
    pub carries: Vec<Cell>,
    /// The steps to the sender whose payloads' XOR is sent; empty for the client, which has all
    /// data.
    pub inputs: Vec<StepId>,
    /// What the receiver does with the payload.
    pub uses: Vec<Use>,
    /// The number of steps, one after the other, that must bring a slice before this one can send
    /// it: 0 for the client's.
    pub depth: u16,
}

/// What a receiver does with a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// It is this cell, or XORed into it: it is stored.
    Keep(Cell),
    /// It is sent on by this step, alone or XORed with other inputs.
    Forward(StepId),
}

/// A cell that its node keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The cell.
    pub cell: Cell,
    /// The steps to its node whose payloads' XOR it is.
    pub inputs: Vec<StepId>,
}

/// The steps of these depths that send at this tick, each with its slice.
pub(crate) fn at_tick(
    depths: impl Iterator<Item = u16>,
    tick: usize,
    slices: usize,
) -> impl Iterator<Item = (StepId, usize)> {
    let sent = move |(number, depth): (u16, u16)| {
        let slice = tick.checked_sub(usize::from(depth))?;
        (slice < slices).then_some((StepId(number), slice))
    };
    (0..).zip(depths).filter_map(sent)
}

/// The ids of the first `steps` steps.
pub(crate) fn step_ids(steps: usize) -> impl Iterator<Item = StepId> + use<> {
    (0..u16::try_from(steps).expect("a schedule has fewer than 4 * CELLS_MAX steps")).map(StepId)
}

/// What the client sends of its data: a step for each data cell, in order.
pub(crate) fn data_steps(geometry: &Geometry) -> Vec<Step> {
    geometry.data().iter().map(|cell| from_client(cell.column, vec![*cell], Toward::Data)).collect()
}

/// The data cells, each as the client's step brings it.
pub(crate) fn data_kept(geometry: &Geometry) -> Vec<Kept> {
    let cells = geometry.data().iter().zip(step_ids(geometry.data().len()));
    cells.map(|(cell, step)| Kept { cell: *cell, inputs: vec![step] }).collect()
}

fn from_client(to: Column, carries: Vec<Cell>, toward: Toward) -> Step {
    Step { from: Sender::Client, to, toward, carries, inputs: Vec::new(), uses: Vec::new(), depth: 0 }
}

/// What the client sends with [`Way::Naive`]: its data and both parities.
pub(crate) fn naive(geometry: &Geometry) -> (Vec<Step>, Vec<Kept>) {
    let mut steps = data_steps(geometry);
    let mut kept = data_kept(geometry);
    let parities = step_ids(geometry.cells().count()).skip(steps.len());
    for (equation, step) in geometry.equations().iter().zip(parities) {
        steps.push(from_client(equation.parity.column, equation.data.clone(), Toward::parity_of(equation)));
        kept.push(Kept { cell: equation.parity, inputs: vec![step] });
    }
    (steps, kept)
}
