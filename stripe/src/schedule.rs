//! By which transfers does a stripe get from a client to its nodes, and what does each link carry?
//!
//! A schedule is plain data: steps, each of which sends the XOR of what other steps brought to its
//! sender. A step's payload is as long as a cell, and is sent in slices: a slice can go as soon as
//! the same slice of all inputs is there, so that all steps run at once. Two ways are there:
//! [`Way::Naive`] and [`Way::Relay`] ([`crate::relay`]); and [`Way::Bare`], which protects nothing.
//!
//! Invariants
//! - Steps stand behind their inputs, and their inputs end where they begin.
//! - Every cell of the stripe is kept on its node, as the XOR of what steps brought there; of
//!   [`Way::Bare`] every data cell.
//! - No load is above [`Schedule::bound`] (`tests/loads.rs`, for every number of nodes).

use crate::cell::{Cell, Column};
use crate::geometry::{Direction, Equation, Geometry};
use crate::parity::Parity;
use serde::{Deserialize, Serialize};

/// How a stripe is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The client sends its data cells, and nothing is protected: what the others are compared
    /// with. People call it `none`.
    #[serde(rename = "none")]
    Bare,
    /// The client computes both parities and sends all cells.
    Naive,
    /// The client sends each data cell once; nodes XOR what passes with what they hold, and forward
    /// it.
    Relay,
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// Whoever writes the stripe.
    Client,
    /// The node that has this column.
    Column(Column),
}

/// What a step is for.
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
    /// Who sends.
    pub from: Sender,
    /// Which column's node receives.
    pub to: Column,
    /// What it is for.
    pub toward: Toward,
    /// The data cells whose XOR is sent.
    pub carries: Vec<Cell>,
    /// The steps to the sender whose payloads' XOR is sent; none where the client sends, which has
    /// all data.
    pub inputs: Vec<StepId>,
    /// What the receiver does with it.
    pub uses: Vec<Use>,
    /// How many steps must have brought a slice before this one can send it, one after the other: 0
    /// for the client's.
    pub depth: u16,
}

/// What a receiver does with what arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// It is this cell, or XORed into it: it is stored.
    Keep(Cell),
    /// It is sent on by this step, alone or XORed with other inputs.
    Forward(StepId),
}

/// How a cell comes to be on its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The cell.
    pub cell: Cell,
    /// The steps to its node whose payloads' XOR it is.
    pub inputs: Vec<StepId>,
}

/// What one place does for a stripe, in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Load {
    /// Cells sent.
    pub sent: usize,
    /// Cells received.
    pub received: usize,
    /// XORs of a cell into another.
    pub xors: usize,
}

/// What no place exceeds for a stripe, in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// What the client sends, exactly.
    pub client: usize,
    /// The most that a node sends.
    pub sent: usize,
    /// The most that a node receives.
    pub received: usize,
}

/// A node's load per stripe, averaged over as many stripes as there are nodes: it is the same for
/// all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Average {
    /// Cells sent.
    pub sent: f64,
    /// Cells received.
    pub received: f64,
    /// XORs of a cell into another.
    pub xors: f64,
}

/// The transfers of a stripe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Schedule {
    way: Way,
    nodes: usize,
    steps: Vec<Step>,
    kept: Vec<Kept>,
    bound: Bound,
}

impl Schedule {
    /// The schedule for stripes of this geometry.
    #[must_use]
    pub fn new(geometry: &Geometry, way: Way) -> Self {
        match way {
            Way::Bare => Self::of(way, geometry, data_steps(geometry), data_kept(geometry)),
            Way::Naive => naive(geometry),
            Way::Relay => crate::relay::relay(geometry),
        }
    }

    /// A schedule of these steps, which are not told yet what becomes of them.
    pub(crate) fn of(way: Way, geometry: &Geometry, steps: Vec<Step>, kept: Vec<Kept>) -> Self {
        let mut schedule = Self { way, nodes: geometry.nodes(), steps, kept, bound: bound(way, geometry) };
        for kept in &schedule.kept {
            for input in &kept.inputs {
                schedule.steps[usize::from(input.0)].uses.push(Use::Keep(kept.cell));
            }
        }
        for id in step_ids(schedule.steps.len()) {
            let inputs = std::mem::take(&mut schedule.steps[usize::from(id.0)].inputs);
            for input in &inputs {
                schedule.steps[usize::from(input.0)].uses.push(Use::Forward(id));
            }
            schedule.steps[usize::from(id.0)].inputs = inputs;
        }
        schedule
    }

    /// How it transfers.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// How many nodes share a stripe.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The steps, each behind its inputs.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How every cell comes to be on its node.
    #[must_use]
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// What no place exceeds: for [`Way::Relay`] the client sends its data, a node sends at most
    /// 2(n-2) cells (each of its data cells leaves it at most twice) and receives at most 5(n-2)/2.
    #[must_use]
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// What the client does for a stripe.
    #[must_use]
    pub fn client(&self) -> Load {
        let mut load = Load::default();
        for step in self.steps.iter().filter(|step| step.from == Sender::Client) {
            load.sent += 1;
            load.xors += step.carries.len().saturating_sub(1);
        }
        load
    }

    /// What the node of each column does for a stripe.
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        let mut loads = vec![Load::default(); self.nodes];
        for step in &self.steps {
            loads[usize::from(step.to.0)].received += 1;
            if let Sender::Column(column) = step.from {
                let load = &mut loads[usize::from(column.0)];
                load.sent += 1;
                load.xors += step.inputs.len().saturating_sub(1);
            }
        }
        for kept in &self.kept {
            loads[usize::from(kept.cell.column.0)].xors += kept.inputs.len().saturating_sub(1);
        }
        loads
    }

    /// A node's load per stripe over the rotation.
    #[must_use]
    pub fn average(&self) -> Average {
        let loads = self.loads();
        let average = |of: fn(&Load) -> usize| loads.iter().map(of).sum::<usize>() as f64 / self.nodes as f64;
        Average {
            sent: average(|load| load.sent),
            received: average(|load| load.received),
            xors: average(|load| load.xors),
        }
    }

    /// How many steps a slice takes at most, one after the other.
    #[must_use]
    pub fn hops(&self) -> usize {
        self.steps.iter().map(|step| usize::from(step.depth) + 1).max().unwrap_or(0)
    }

    /// For how many slices of this step the receiver needs room, if all links are as fast as each
    /// other: a slice stays until the last step that forwards it has sent it.
    #[must_use]
    pub fn slices_held(&self, step: &Step) -> usize {
        let until = step.uses.iter().map(|used| match used {
            Use::Keep(_) => 1,
            Use::Forward(by) => {
                self.steps.get(usize::from(by.0)).map_or(0, |by| by.depth.saturating_sub(step.depth))
            }
        });
        usize::from(until.max().unwrap_or(0))
    }

    /// Which steps send which slice at this tick, where each step sends one slice per tick: the
    /// order in which a stripe of so many slices passes, whole after `slices + hops() - 1` ticks.
    pub fn at(&self, tick: usize, slices: usize) -> impl Iterator<Item = (StepId, usize)> {
        at_tick(self.steps.iter().map(|step| step.depth), tick, slices)
    }
}

/// Which steps of these depths send which slice at this tick.
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

/// The ids of so many steps.
pub(crate) fn step_ids(steps: usize) -> impl Iterator<Item = StepId> + use<> {
    (0..u16::try_from(steps).unwrap_or(u16::MAX)).map(StepId)
}

fn bound(way: Way, geometry: &Geometry) -> Bound {
    let (data, cells) = (geometry.data().len(), geometry.cells().count());
    match way {
        Way::Bare if geometry.parity() == Parity::Xor => Bound { client: data, sent: 0, received: 1 },
        Way::Bare => Bound { client: data, sent: 0, received: geometry.nodes() - 2 },
        Way::Naive => Bound { client: cells, sent: 0, received: geometry.diagonals().max(geometry.rows()) },
        Way::Relay if geometry.parity() == Parity::Xor => {
            Bound { client: data, sent: 1, received: data.min(2) }
        }
        Way::Relay => {
            let data_of_a_node = geometry.nodes() - 2;
            Bound { client: data, sent: 2 * data_of_a_node, received: 5 * data_of_a_node / 2 }
        }
    }
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

fn naive(geometry: &Geometry) -> Schedule {
    let mut steps = data_steps(geometry);
    let mut kept = data_kept(geometry);
    let parities = step_ids(geometry.cells().count()).skip(steps.len());
    for (equation, step) in geometry.equations().iter().zip(parities) {
        steps.push(from_client(equation.parity.column, equation.data.clone(), Toward::parity_of(equation)));
        kept.push(Kept { cell: equation.parity, inputs: vec![step] });
    }
    Schedule::of(Way::Naive, geometry, steps, kept)
}
