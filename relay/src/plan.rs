//! Derives what one place does for a stripe (its *plan*): the node of a column, or the client.
//!
//! A *source* is a sequence of slices that the place has: slices that arrive in a ring, a cell that
//! the node reads from its devices, a data cell of the client (these three are *origins*), or a sum
//! of several origins. A *reader* is something that needs the slices of a source: a sum, a step
//! that sends them, or a cell that the node keeps. Readers process a source slice by slice, in
//! order.
//!
//! Invariants
//! - The functions are pure.
//! - The readers of a source are all that need its slices. So a slot may be reused when the last of
//!   them is done with its slice.
//! - A sum has at least two inputs, none of which is a sum.
//! - Sender and receiver derive the same ring for a step.

use rackscan_stripe::{Cell, Column, Sender};

use crate::task::{Transfer, Transfers};

/// A source that is not a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It arrives from this sender, in this one of its rings.
    Arrives { from: Sender, ring: usize },
    /// It is a data cell of the client, by index.
    Data { cell: usize },
    /// It is a cell that the node reads from its devices, by index in [`Plan::held`].
    Held { cell: usize },
}

/// A step that the place sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    /// To the node of this column.
    pub(crate) to: Column,
    /// The ring there, among those of this sender.
    pub(crate) ring: usize,
    pub(crate) source: usize,
}

/// A cell that the place keeps. Plans list them by ascending cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keeping {
    pub(crate) cell: Cell,
    pub(crate) source: usize,
}

/// Something that needs a source's slices, by index in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Sum(usize),
    Send(usize),
    Keep(usize),
}

/// What a place does for a stripe.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub(crate) origins: Vec<Origin>,
    /// The cells that are read, ascending.
    pub(crate) held: Vec<Cell>,
    /// The origins that each sum adds. Sums are the sources after the origins.
    pub(crate) sums: Vec<Vec<usize>>,
    pub(crate) sends: Vec<Sending>,
    pub(crate) keeps: Vec<Keeping>,
    /// The readers of each source.
    pub(crate) readers: Vec<Vec<Reader>>,
}

impl Plan {
    /// The plan of the client.
    pub(crate) fn of_client(transfers: &Transfers, data: &[Cell]) -> Self {
        let mut plan = Self::default();
        let is_its = |step: &&Transfer| step.from == Sender::Client;
        if transfers.steps.iter().any(|step| is_its(&step)) {
            plan.origins = (0..data.len()).map(|cell| Origin::Data { cell }).collect();
        }
        for (number, step) in transfers.steps.iter().enumerate().filter(|(_, step)| is_its(step)) {
            let of = |cell: &Cell| data.iter().position(|data| data == cell);
            plan.send(transfers, number, step.reads.iter().filter_map(of).collect());
        }
        plan.with_readers()
    }

    /// The plan of the node of a column.
    pub(crate) fn of_column(transfers: &Transfers, column: Column) -> Self {
        let steps = &transfers.steps;
        let arriving: Vec<usize> = (0..steps.len()).filter(|at| steps[*at].to == column).collect();
        let sent = || steps.iter().enumerate().filter(|(_, step)| step.from == Sender::Column(column));
        let kept = || transfers.kept.iter().filter(|kept| kept.cell.column == column);
        let mut held: Vec<Cell> = sent()
            .flat_map(|(_, step)| &step.reads)
            .chain(kept().flat_map(|kept| &kept.reads))
            .copied()
            .collect();
        held.sort_unstable();
        held.dedup();
        let arrives = |at: &usize| Origin::Arrives { from: steps[*at].from, ring: transfers.ring_of(*at) };
        let origins = arriving.iter().map(arrives).chain((0..held.len()).map(|cell| Origin::Held { cell }));
        let mut plan = Self { origins: origins.collect(), held, ..Self::default() };
        let held = plan.held.clone();
        let sources = |inputs: &[usize], reads: &[Cell]| -> Vec<usize> {
            let came = inputs.iter().filter_map(|input| arriving.iter().position(|at| at == input));
            let read = reads.iter().filter_map(|cell| held.binary_search(cell).ok());
            came.chain(read.map(|cell| arriving.len() + cell)).collect()
        };
        for (number, step) in sent() {
            plan.send(transfers, number, sources(&step.inputs, &step.reads));
        }
        for kept in kept() {
            let source = plan.source_of(sources(&kept.inputs, &kept.reads));
            plan.keeps.push(Keeping { cell: kept.cell, source });
        }
        plan.keeps.sort_unstable_by_key(|keeping| keeping.cell);
        plan.with_readers()
    }

    fn send(&mut self, transfers: &Transfers, number: usize, inputs: Vec<usize>) {
        let source = self.source_of(inputs);
        let (to, ring) = (transfers.steps[number].to, transfers.ring_of(number));
        self.sends.push(Sending { to, ring, source });
    }

    /// The source that is the sum of these origins, which is added if it is new.
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

    /// The number of sources in slots of the place's own: cells that it reads, then sums.
    pub(crate) fn own(&self) -> usize {
        self.held.len() + self.sums.len()
    }

    /// The number of sources: origins, then sums.
    pub(crate) fn sources(&self) -> usize {
        self.origins.len() + self.sums.len()
    }
}

#[cfg(test)]
mod tests {
    use rackscan_stripe::{Geometry, Parity, Way};
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::task::{LostMembers, Task};

    const TASKS: [Task; 4] =
        [Task::Write(Way::Bare), Task::Write(Way::Naive), Task::Write(Way::Relay), Task::Protect];

    fn stripes() -> impl Iterator<Item = (Task, Geometry, Transfers)> {
        let of = |(parity, nodes)| Geometry::with_parity(nodes, parity).unwrap();
        let two = (3..=17).map(|nodes| (Parity::TwoD, nodes));
        let geometries = two.chain((2..=17).map(|nodes| (Parity::Xor, nodes))).map(of);
        geometries.flat_map(|geometry| {
            let mut tasks = TASKS.to_vec();
            for lost in 0..geometry.nodes() {
                tasks.push(Task::Rebuild(LostMembers::of(&[lost])));
                if geometry.parity() == Parity::TwoD && geometry.nodes() < 9 {
                    let two = (0..lost).map(|other| Task::Rebuild(LostMembers::of(&[lost, other])));
                    tasks.extend(two);
                }
            }
            let with = move |task: Task| {
                let transfers = Transfers::of(task, &geometry, 0).unwrap();
                (task, geometry.clone(), transfers)
            };
            tasks.into_iter().map(with)
        })
    }

    /// Carries all plans of a stripe out on one byte per cell; what each kept cell is then.
    fn carried(geometry: &Geometry, transfers: &Transfers, there: &BTreeMap<Cell, u8>) -> BTreeMap<Cell, u8> {
        let mut in_rings: BTreeMap<(Option<Column>, Column, usize), u8> = BTreeMap::new();
        let mut kept = BTreeMap::new();
        let client = Plan::of_client(transfers, geometry.data());
        let columns = geometry.columns().map(|column| (Some(column), Plan::of_column(transfers, column)));
        let plans: Vec<_> = [(None, client)].into_iter().chain(columns).collect();
        // Every pass brings each step one hop further, at least; the last one brings nothing.
        let mut before = None;
        while before != Some((in_rings.len(), kept.len())) {
            before = Some((in_rings.len(), kept.len()));
            for (place, plan) in &plans {
                let origin = |origin: &Origin| match *origin {
                    Origin::Data { cell } => Some(there[&geometry.data()[cell]]),
                    Origin::Held { cell } => Some(there[&plan.held[cell]]),
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
        for (task, geometry, transfers) in stripes() {
            let data: Vec<u8> = (1..=255).cycle().take(geometry.data().len()).collect();
            let mut all: BTreeMap<Cell, u8> = geometry.data().iter().copied().zip(data).collect();
            for equation in geometry.equations() {
                let sum = equation.data.iter().fold(0, |sum, cell| sum ^ all[cell]);
                all.insert(equation.parity, sum);
            }
            let kept: BTreeSet<Cell> = transfers.kept.iter().map(|kept| kept.cell).collect();
            let expected_cells: BTreeSet<Cell> = match task {
                Task::Write(Way::Bare) => geometry.data().iter().copied().collect(),
                Task::Write(_) => geometry.cells().collect(),
                Task::Protect => geometry.equations().iter().map(|equation| equation.parity).collect(),
                Task::Rebuild(_) => kept.clone(),
            };
            assert_eq!(kept, expected_cells);
            // Cells that are rebuilt do not exist before.
            let there =
                all.iter().filter(|(cell, _)| !matches!(task, Task::Rebuild(_)) || !kept.contains(cell));
            let there: BTreeMap<Cell, u8> = there.map(|(cell, byte)| (*cell, *byte)).collect();
            let found = carried(&geometry, &transfers, &there);
            let expected: BTreeMap<Cell, u8> = kept.iter().map(|cell| (*cell, all[cell])).collect();
            assert_eq!(found, expected, "{task:?} over {} nodes", geometry.nodes());
            for kept in &transfers.kept {
                assert_eq!(kept.made_of.iter().fold(0, |sum, cell| sum ^ there[cell]), all[&kept.cell]);
            }
        }
    }

    #[test]
    fn every_source_is_read_and_its_readers_are_all_that_need_it() {
        for (_, geometry, transfers) in stripes() {
            for column in geometry.columns() {
                let plan = Plan::of_column(&transfers, column);
                let arriving = transfers.steps.iter().filter(|step| step.to == column).count();
                assert_eq!(plan.origins.len(), arriving + plan.held.len());
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
