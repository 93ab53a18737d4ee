//! Defines what the stripes of a session are for (its *task*), and derives from it the transfers of
//! a stripe.
//!
//! ```text
//! write     the client has the data cells and sends them, as in a rackscan_stripe::Schedule
//! protect   the nodes have the data cells and compute the parities: the same schedule, but nodes read from disk what the client would send
//! rebuild   the nodes have all cells but the lost ones, and compute the lost ones, as in a rackscan_stripe::Rebuild
//! ```
//!
//! Invariants
//! - The functions are pure, and give the same result at every place of a session.
//! - Transfers are listed after their inputs.

use std::collections::BTreeSet;

use rackscan_stripe::{Cell, Column, Geometry, Node, Rebuild, Schedule, Sender, Way};
use serde::{Deserialize, Serialize};

use crate::shape_error::ShapeError;

/// What a session's stripes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// The client writes them, by the transfers of this schedule.
    Write(Way),
    /// Their data cells are at their nodes, which compute and keep the parities. No byte passes the
    /// client.
    Protect,
    /// All their cells are at their nodes, except those of these members, for which they are
    /// rebuilt.
    Rebuild(LostMembers),
}

impl From<Way> for Task {
    fn from(way: Way) -> Self {
        Self::Write(way)
    }
}

/// Members of a session whose cells are lost, as a set of member indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostMembers(u64);

impl LostMembers {
    /// The set of these members. Indices from 64 on, which no session has, are ignored.
    #[must_use]
    pub fn of(places: &[usize]) -> Self {
        let bits = places.iter().filter(|place| **place < u64::BITS as usize);
        Self(bits.fold(0, |bits, place| bits | 1 << place))
    }

    fn nodes(self) -> Vec<Node> {
        (0_u8..64).filter(|place| self.0 >> place & 1 == 1).map(Node).collect()
    }
}

/// One transfer of the length of a cell: the XOR of cells that its sender reads and of transfers to
/// its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) from: Sender,
    pub(crate) to: Column,
    /// Cells that the sender has.
    pub(crate) reads: Vec<Cell>,
    /// Transfers to the sender.
    pub(crate) inputs: Vec<usize>,
}

/// A cell that its node keeps: the XOR of cells that it reads and of transfers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptCell {
    pub(crate) cell: Cell,
    pub(crate) reads: Vec<Cell>,
    pub(crate) inputs: Vec<usize>,
    /// The cells that exist at the beginning and whose XOR it is.
    pub(crate) made_of: Vec<Cell>,
}

/// All transfers and kept cells of a stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Transfers {
    pub(crate) steps: Vec<Transfer>,
    pub(crate) kept: Vec<KeptCell>,
}

impl Transfers {
    /// The number of rotations of the columns over the members with different transfers.
    pub(crate) fn rotations(task: Task, nodes: usize) -> u64 {
        match task {
            Task::Write(_) | Task::Protect => 1,
            Task::Rebuild(_) => nodes as u64,
        }
    }

    /// The transfers of a stripe with this number, or of any other one in the same rotation.
    pub(crate) fn of(task: Task, geometry: &Geometry, stripe: u64) -> Result<Self, ShapeError> {
        match task {
            Task::Write(way) => Ok(written(geometry, way)),
            Task::Protect => protected(geometry),
            Task::Rebuild(lost) => {
                let lost = lost.nodes();
                if lost.is_empty() {
                    return Err(ShapeError::NothingLost);
                }
                let rebuild = Rebuild::new(geometry, geometry.lost_with(stripe, &lost)?)?;
                Ok(rebuilt(&rebuild))
            }
        }
    }

    /// The ring of a step among the rings of its sender at its receiver, in the order of steps.
    pub(crate) fn ring_of(&self, number: usize) -> usize {
        let (from, to) = (self.steps[number].from, self.steps[number].to);
        self.steps[..number].iter().filter(|step| step.from == from && step.to == to).count()
    }

    /// The number of rings that a sender needs at a receiver.
    pub(crate) fn rings(&self, from: Sender, to: Column) -> usize {
        self.steps.iter().filter(|step| step.from == from && step.to == to).count()
    }
}

/// The data cells whose XOR this cell is.
fn data_of(geometry: &Geometry, cell: Cell) -> Vec<Cell> {
    let parity = geometry.equations().iter().find(|equation| equation.parity == cell);
    parity.map_or_else(|| vec![cell], |equation| equation.data.clone())
}

fn written(geometry: &Geometry, way: Way) -> Transfers {
    let schedule = Schedule::new(geometry, way);
    let steps = schedule.steps().iter().map(|step| Transfer {
        from: step.from,
        to: step.to,
        reads: if step.from == Sender::Client { step.carries.clone() } else { Vec::new() },
        inputs: step.inputs.iter().map(|input| usize::from(input.0)).collect(),
    });
    let kept = schedule.kept().iter().map(|kept| KeptCell {
        cell: kept.cell,
        reads: Vec::new(),
        inputs: kept.inputs.iter().map(|input| usize::from(input.0)).collect(),
        made_of: data_of(geometry, kept.cell),
    });
    Transfers { steps: steps.collect(), kept: kept.collect() }
}

/// The steps of [`Way::Relay`], with nodes reading what the client would send them.
fn protected(geometry: &Geometry) -> Result<Transfers, ShapeError> {
    let relayed = written(geometry, Way::Relay);
    // What each relayed step becomes here: a cell that its receiver reads, or a step.
    let (mut places, mut steps) = (Vec::new(), Vec::new());
    for Transfer { from, to, reads, inputs } in relayed.steps {
        match (from, &reads[..]) {
            (Sender::Client, [cell]) if cell.column == to => places.push(Err(*cell)),
            (Sender::Client, _) => return Err(ShapeError::NoRelay { nodes: geometry.nodes() }),
            (Sender::Column(_), _) => {
                let (inputs, reads) = divided(&places, inputs);
                places.push(Ok(steps.len()));
                steps.push(Transfer { from, to, reads, inputs });
            }
        }
    }
    let is_parity = |kept: &KeptCell| !geometry.data().contains(&kept.cell);
    let kept = relayed.kept.into_iter().filter(is_parity).map(|kept| {
        let (inputs, reads) = divided(&places, kept.inputs);
        KeptCell { reads, inputs, ..kept }
    });
    Ok(Transfers { kept: kept.collect(), steps })
}

/// Splits inputs into steps and cells.
fn divided(places: &[Result<usize, Cell>], inputs: Vec<usize>) -> (Vec<usize>, Vec<Cell>) {
    let found = inputs.into_iter().filter_map(|input| places.get(input).copied());
    let (steps, cells): (Vec<_>, Vec<_>) = found.partition(Result::is_ok);
    (steps.into_iter().filter_map(Result::ok).collect(), cells.into_iter().filter_map(Result::err).collect())
}

fn rebuilt(rebuild: &Rebuild) -> Transfers {
    let steps = rebuild.steps().iter().map(|step| Transfer {
        from: Sender::Column(step.from),
        to: step.to,
        reads: step.reads.clone(),
        inputs: step.inputs.iter().map(|input| usize::from(input.0)).collect(),
    });
    let mut kept: Vec<KeptCell> = Vec::new();
    for rebuilt in rebuild.rebuilt() {
        let by = usize::from(rebuilt.by.0);
        let carries = rebuild.steps().get(by).map_or(&[][..], |step| &step.carries);
        let mut made_of = BTreeSet::new();
        for cell in carries {
            // A lost cell in this sum was rebuilt before: replace it by the cells that it was made
            // of.
            let back = kept.iter().find(|known| known.cell == *cell);
            for part in back.map_or(&[*cell][..], |back| &back.made_of) {
                if !made_of.remove(part) {
                    made_of.insert(*part);
                }
            }
        }
        let made_of = made_of.into_iter().collect();
        kept.push(KeptCell { cell: rebuilt.cell, reads: Vec::new(), inputs: vec![by], made_of });
    }
    Transfers { steps: steps.collect(), kept }
}

#[cfg(test)]
mod tests {
    use rackscan_stripe::Parity;

    use super::*;

    #[test]
    fn a_node_that_has_its_cells_sends_what_it_would_relay_and_the_client_nothing() {
        for nodes in 3..=17 {
            let geometry = Geometry::new(nodes).unwrap();
            let (relayed, here) =
                (written(&geometry, Way::Relay), Transfers::of(Task::Protect, &geometry, 0).unwrap());
            let between = relayed.steps.iter().filter(|step| step.from != Sender::Client).count();
            assert_eq!(here.steps.len(), between);
            assert!(here.steps.iter().all(|step| step.from != Sender::Client));
            let parities = geometry.equations().len();
            assert_eq!(here.kept.len(), parities);
        }
    }

    #[test]
    fn what_comes_back_is_made_of_what_is_left() {
        for (parity, nodes) in [(Parity::TwoD, 3), (Parity::TwoD, 5), (Parity::TwoD, 8), (Parity::Xor, 4)] {
            let geometry = Geometry::with_parity(nodes, parity).unwrap();
            let two: Vec<[usize; 2]> = (0..nodes).flat_map(|a| (0..a).map(move |b| [a, b])).collect();
            let one: Vec<[usize; 2]> = (0..nodes).map(|a| [a, a]).collect();
            let losses = if parity == Parity::TwoD { [one, two].concat() } else { one };
            for lost in losses {
                for stripe in 0..nodes as u64 {
                    let task = Task::Rebuild(LostMembers::of(&lost));
                    let transfers = Transfers::of(task, &geometry, stripe).unwrap();
                    let gone = |cell: &Cell| {
                        lost.contains(&usize::from(geometry.node_of(stripe, cell.column).unwrap().0))
                    };
                    assert_eq!(transfers.kept.len(), geometry.cells().filter(gone).count());
                    for kept in &transfers.kept {
                        assert!(gone(&kept.cell) && !kept.made_of.iter().any(gone), "{kept:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_rebuild_of_nothing_or_of_too_many_is_refused() {
        let geometry = Geometry::new(5).unwrap();
        let refused = |places: &[usize]| {
            Transfers::of(Task::Rebuild(LostMembers::of(places)), &geometry, 0).unwrap_err()
        };
        assert!(matches!(refused(&[]), ShapeError::NothingLost));
        assert!(matches!(refused(&[64]), ShapeError::NothingLost));
        assert!(matches!(refused(&[1, 2, 3]), ShapeError::Stripe(_)));
        assert!(matches!(refused(&[7]), ShapeError::Stripe(_)));
    }
}
