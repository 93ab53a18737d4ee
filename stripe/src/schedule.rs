//! Schedules the transfers that bring a stripe from a client to its nodes, and computes how many
//! cells each place (the client or a node) sends, receives and XORs.
//!
//! A schedule is a list of steps. Each step sends the XOR of what earlier steps brought to its
//! sender. A step transfers as many bytes as a cell has, in slices: a slice can be sent as soon as
//! the same slice of all inputs has arrived, so that all steps run at once. A schedule follows one
//! of three ways: [`Way::Naive`] (the client computes the parities), [`Way::Relay`] (nodes compute
//! them, `relay`) and [`Way::Bare`] (no parity).
//!
//! Invariants
//! - Steps are listed after their inputs, and their inputs end at their sender.
//! - Every cell of the stripe is stored on its node, as the XOR of what steps brought there. With
//!   [`Way::Bare`], this is so for every data cell.
//! - No place sends or receives more than [`Schedule::bound`] (`tests/loads.rs`, for every number
//!   of nodes).

use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::relay::relay;
use crate::step::{Kept, Sender, Step, StepId, Use, Way, at_tick, data_kept, data_steps, naive, step_ids};
use serde::Serialize;

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

/// Bounds of the loads of a stripe, in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// The cells that the client sends, exactly.
    pub client: usize,
    /// The maximum that a node sends.
    pub sent: usize,
    /// The maximum that a node receives.
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
        let (steps, kept) = match way {
            Way::Bare => (data_steps(geometry), data_kept(geometry)),
            Way::Naive => naive(geometry),
            Way::Relay => relay(geometry),
        };
        Self::of(way, geometry, steps, kept)
    }

    /// A schedule of these steps, whose `uses` are filled in here.
    fn of(way: Way, geometry: &Geometry, steps: Vec<Step>, kept: Vec<Kept>) -> Self {
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

    /// The number of nodes that share a stripe.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The steps, each after its inputs.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The kept cells, each with the steps that bring it.
    #[must_use]
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Bounds of the loads. With [`Way::Relay`] the client sends its data, and a node sends at most
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

    /// A node's average load per stripe.
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

    /// The maximum number of steps that a slice takes, one after the other.
    #[must_use]
    pub fn hops(&self) -> usize {
        self.steps.iter().map(|step| usize::from(step.depth) + 1).max().unwrap_or(0)
    }

    /// The number of slices of this step for which the receiver needs room, if all links are
    /// equally fast: a slice stays until the last step that forwards it has sent it.
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

    /// The steps that send at this tick, each with its slice, if each step sends one slice per
    /// tick. A stripe is complete after `slices + hops() - 1` ticks.
    pub fn at(&self, tick: usize, slices: usize) -> impl Iterator<Item = (StepId, usize)> {
        at_tick(self.steps.iter().map(|step| step.depth), tick, slices)
    }
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
