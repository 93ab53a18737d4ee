//! What does one place do for a stripe: a node that has some column of it, or the client?
//!
//! A plan is derived from the schedule: *sources* are what a place has slices of (what arrives, or the client's data cells; behind them sums of several
//! of these), and *readers* are what is done with them: they are summed, sent, or kept. Everything is a slice at a time, in order.
//!
//! Invariants
//! - Pure. A source's readers are all that needs its slices: a slot is used again when the last of them is done with it.
//! - Sums are of sources that are no sums, and of at least two.
//! - Which of a sender's rings at a receiver a step uses is the same to both.

use rackscan_stripe::{Cell, Column, Schedule, Sender, Step};

/// What a place has slices of, before it sums anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It arrives, from there, in that ring of theirs.
    Arrives { from: Sender, ring: usize },
    /// It is one of the client's data cells, by index.
    Data { cell: usize },
}

/// A step that the place sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    /// To the node of this column.
    pub(crate) to: Column,
    /// In which of our rings there.
    pub(crate) ring: usize,
    pub(crate) source: usize,
}

/// A cell that the place keeps; in a plan by ascending cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keeping {
    pub(crate) cell: Cell,
    pub(crate) source: usize,
}

/// What needs a source's slices: by index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Sum(usize),
    Send(usize),
    Keep(usize),
}

/// What a place does.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub(crate) origins: Vec<Origin>,
    /// Which origins each sum is of. Sums are the sources behind the origins.
    pub(crate) sums: Vec<Vec<usize>>,
    pub(crate) sends: Vec<Sending>,
    pub(crate) keeps: Vec<Keeping>,
    /// Of each source.
    pub(crate) readers: Vec<Vec<Reader>>,
}

impl Plan {
    /// What the client does.
    pub(crate) fn of_client(schedule: &Schedule, data: &[Cell]) -> Self {
        let mut plan =
            Self { origins: (0..data.len()).map(|cell| Origin::Data { cell }).collect(), ..Self::default() };
        for (number, step) in schedule.steps().iter().enumerate() {
            if step.from != Sender::Client {
                continue;
            }
            let of = |cell: &Cell| data.iter().position(|data| data == cell);
            let inputs = step.carries.iter().filter_map(of).collect();
            plan.send(schedule.steps(), number, inputs);
        }
        plan.with_readers()
    }

    /// What the node of a column does.
    pub(crate) fn of_column(schedule: &Schedule, column: Column) -> Self {
        let steps = schedule.steps();
        let arrives = |(_, step): &(usize, &Step)| step.to == column;
        let arriving: Vec<usize> = steps.iter().enumerate().filter(arrives).map(|(at, _)| at).collect();
        let origin = |at: &usize| Origin::Arrives { from: steps[*at].from, ring: ring_of(steps, *at) };
        let mut plan = Self { origins: arriving.iter().map(origin).collect(), ..Self::default() };
        let source = |input: u16| arriving.iter().position(|at| *at == usize::from(input));
        for (number, step) in steps.iter().enumerate() {
            if step.from == Sender::Column(column) {
                let inputs = step.inputs.iter().filter_map(|input| source(input.0)).collect();
                plan.send(steps, number, inputs);
            }
        }
        for kept in schedule.kept().iter().filter(|kept| kept.cell.column == column) {
            let source = plan.source_of(kept.inputs.iter().filter_map(|input| source(input.0)).collect());
            plan.keeps.push(Keeping { cell: kept.cell, source });
        }
        plan.keeps.sort_unstable_by_key(|keeping| keeping.cell);
        plan.with_readers()
    }

    fn send(&mut self, steps: &[Step], number: usize, inputs: Vec<usize>) {
        let source = self.source_of(inputs);
        self.sends.push(Sending { to: steps[number].to, ring: ring_of(steps, number), source });
    }

    /// The source that is the sum of these origins.
    fn source_of(&mut self, inputs: Vec<usize>) -> usize {
        if let [origin] = *inputs {
            return origin;
        }
        let there = self.sums.iter().position(|sum| *sum == inputs);
        let sum = there.unwrap_or_else(|| {
            self.sums.push(inputs);
            self.sums.len() - 1
        });
        self.origins.len() + sum
    }

    fn with_readers(mut self) -> Self {
        self.readers = vec![Vec::new(); self.sources()];
        for (sum, inputs) in self.sums.iter().enumerate() {
            inputs.iter().for_each(|input| self.readers[*input].push(Reader::Sum(sum)));
        }
        for (send, sending) in self.sends.iter().enumerate() {
            self.readers[sending.source].push(Reader::Send(send));
        }
        for (keep, keeping) in self.keeps.iter().enumerate() {
            self.readers[keeping.source].push(Reader::Keep(keep));
        }
        self
    }

    /// How many sources there are: origins, then sums.
    pub(crate) fn sources(&self) -> usize {
        self.origins.len() + self.sums.len()
    }
}

/// In which of its sender's rings at its receiver a step goes: they are counted in the order of steps.
fn ring_of(steps: &[Step], number: usize) -> usize {
    let (from, to) = (steps[number].from, steps[number].to);
    steps[..number].iter().filter(|step| step.from == from && step.to == to).count()
}

/// How many rings a sender needs at a receiver.
pub(crate) fn rings(schedule: &Schedule, from: Sender, to: Column) -> usize {
    schedule.steps().iter().filter(|step| step.from == from && step.to == to).count()
}

#[cfg(test)]
mod tests {
    use rackscan_stripe::{Geometry, Parity, Way};
    use std::collections::BTreeMap;

    use super::*;

    fn schedules() -> impl Iterator<Item = (Geometry, Schedule)> {
        let of = |(parity, nodes)| Geometry::with_parity(nodes, parity).unwrap();
        let two = (3..=17).map(|nodes| (Parity::TwoD, nodes));
        let geometries = two.chain((2..=17).map(|nodes| (Parity::Xor, nodes))).map(of);
        geometries.flat_map(|geometry| {
            [Way::Bare, Way::Naive, Way::Relay].map(|way| (geometry.clone(), Schedule::new(&geometry, way)))
        })
    }

    /// Carries all plans of a schedule out on one byte per cell; what each cell is then.
    fn carried(geometry: &Geometry, schedule: &Schedule) -> BTreeMap<Cell, u8> {
        let data: Vec<u8> = (1..=255).cycle().take(geometry.data().len()).collect();
        let mut in_rings: BTreeMap<(Option<Column>, Column, usize), u8> = BTreeMap::new();
        let mut kept = BTreeMap::new();
        let client = Plan::of_client(schedule, geometry.data());
        let columns = geometry.columns().map(|column| (Some(column), Plan::of_column(schedule, column)));
        let plans: Vec<_> = [(None, client)].into_iter().chain(columns).collect();
        // Every pass brings each step one hop further, at least.
        for _ in 0..=schedule.hops() {
            for (place, plan) in &plans {
                let origin = |origin: &Origin| match *origin {
                    Origin::Data { cell } => Some(data[cell]),
                    Origin::Arrives { from: Sender::Client, ring } => {
                        in_rings.get(&(None, place.unwrap(), ring)).copied()
                    }
                    Origin::Arrives { from: Sender::Column(from), ring } => {
                        in_rings.get(&(Some(from), place.unwrap(), ring)).copied()
                    }
                };
                let mut sources: Vec<Option<u8>> = plan.origins.iter().map(origin).collect();
                for sum in &plan.sums {
                    assert!(sum.len() > 1);
                    sources.push(sum.iter().try_fold(0, |all, input| Some(all ^ sources[*input]?)));
                }
                for send in &plan.sends {
                    sources[send.source].map(|byte| in_rings.insert((*place, send.to, send.ring), byte));
                }
                for keep in &plan.keeps {
                    sources[keep.source].map(|byte| kept.insert(keep.cell, byte));
                }
            }
        }
        kept
    }

    #[test]
    fn plans_carried_out_leave_every_cell_on_its_node() {
        for (geometry, schedule) in schedules() {
            let data: Vec<u8> = (1..=255).cycle().take(geometry.data().len()).collect();
            let mut expected: BTreeMap<Cell, u8> = geometry.data().iter().copied().zip(data).collect();
            if schedule.way() != Way::Bare {
                for equation in geometry.equations() {
                    let sum = equation.data.iter().fold(0, |sum, cell| sum ^ expected[cell]);
                    expected.insert(equation.parity, sum);
                }
            }
            let found = carried(&geometry, &schedule);
            assert_eq!(found, expected, "{:?} over {} nodes", schedule.way(), geometry.nodes());
        }
    }

    #[test]
    fn every_source_is_read_and_its_readers_are_all_that_need_it() {
        for (geometry, schedule) in schedules() {
            for column in geometry.columns() {
                let plan = Plan::of_column(&schedule, column);
                let arriving = schedule.steps().iter().filter(|step| step.to == column).count();
                assert_eq!(plan.origins.len(), arriving);
                for (source, readers) in plan.readers.iter().enumerate() {
                    let sums = plan.sums.iter().filter(|sum| sum.contains(&source)).count();
                    let sends = plan.sends.iter().filter(|send| send.source == source).count();
                    let keeps = plan.keeps.iter().filter(|keep| keep.source == source).count();
                    assert_eq!(readers.len(), sums + sends + keeps);
                    assert!(!readers.is_empty());
                }
            }
        }
    }
}
