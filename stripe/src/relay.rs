//! How do both parities grow on the way, while the client sends each data cell once?
//!
//! Each equation is a chain of nodes: each XORs its data cell to what arrives and sends that on,
//! the last one to the parity's node. A node that sends a cell into both of its chains sends twice.
//! But a cell that stands at the beginning of both can be sent once, as it is, to a node that is
//! further on in both chains (or keeps the row's parity): it *joins* there. So each data cell
//! leaves its node once or twice, and the more cells join, the less is sent. A cell that others
//! join must go on itself, twice.
//!
//! Which cells join where is chosen greedily, in some orders and by some preferences; the best of
//! these plans is taken: the least that the busiest node receives, then the least that is sent at
//! all. All of it is the same on every machine.
//!
//! With a single parity there is one chain, which passes the columns in order: the paper's
//! figure 5. Nobody receives more than its cell and what passes.
//!
//! Invariants of two parities
//! - A cell that joins has nothing joined to it; what it joins is chained in the same row (or is
//!   the row's parity) and in the same diagonal.
//! - Each diagonal has a chained cell.
//! - No other cell could join anywhere in a plan: none sends the same bytes twice to one node.

use crate::cell::{Cell, Column, Role};
use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::schedule::{Kept, Schedule, Sender, Step, StepId, Toward, Way, data_kept, data_steps};

/// Cells are asked to join in the orders of `(row * a + column * b) mod p`, for all a and b below
/// this.
const SLOPES: usize = 6;

/// The same for more than [`FEW_NODES`], where plans differ less from each other and take longer.
const SLOPES_OF_MANY: usize = 3;

/// How many nodes are few.
const FEW_NODES: usize = 24;

/// How much worse it is to join a cell that nobody joins yet, and which thereby has to go on twice,
/// than a node that one more has joined.
const WEIGHTS: [usize; 3] = [1 << 16, 8, 2];

/// The schedule by which nodes compute the parities.
pub(crate) fn relay(geometry: &Geometry) -> Schedule {
    match geometry.parity() {
        Parity::Xor => chain(geometry),
        Parity::TwoD => joined_chains(geometry),
    }
}

/// Each node XORs its cell to what arrives from the one before, and sends it to the next.
fn chain(geometry: &Geometry) -> Schedule {
    let mut steps = data_steps(geometry);
    let mut kept = data_kept(geometry);
    for equation in geometry.equations() {
        let mut passing: Option<StepId> = None;
        for (place, cell) in equation.data.iter().enumerate() {
            let to = equation.data.get(place + 1).map_or(equation.parity.column, |next| next.column);
            let inputs = [id(place)].into_iter().chain(passing).collect();
            passing = Some(send(&mut steps, (cell.column, to), Toward::parity_of(equation), inputs));
        }
        kept.push(Kept { cell: equation.parity, inputs: passing.into_iter().collect() });
    }
    Schedule::of(Way::Relay, geometry, steps, kept)
}

fn joined_chains(geometry: &Geometry) -> Schedule {
    let mates = Mates::of(geometry);
    let below = if geometry.nodes() > FEW_NODES { SLOPES_OF_MANY } else { SLOPES };
    let slopes = (0..below).flat_map(|row| (0..below).map(move |column| (row, column)));
    let tries = slopes.flat_map(|slope| WEIGHTS.map(|weight| (slope, weight)));
    let plans = tries.map(|(slope, weight)| Plan::of(&mates, parts(&mates, slope, weight)));
    match plans.min_by_key(|plan| (plan.busiest, plan.chained)) {
        Some(plan) => schedule(geometry, &mates, &plan),
        // There are always plans; without any, what the client sends by itself is right too.
        None => Schedule::new(geometry, Way::Naive),
    }
}

/// Which cells meet which: by index among the data cells.
struct Mates {
    data: Vec<Cell>,
    /// Of each data cell, the indices of its row and its diagonal among the equations.
    equations: Vec<[usize; 2]>,
    /// Of each equation and column, the data cell.
    at: Vec<Vec<Option<usize>>>,
    /// The column of each equation's parity.
    parity: Vec<Column>,
    columns: usize,
    prime: usize,
}

impl Mates {
    fn of(geometry: &Geometry) -> Self {
        let data = geometry.data().to_vec();
        let mut equations = vec![[0; 2]; data.len()];
        let mut at = vec![vec![None; geometry.nodes()]; geometry.equations().len()];
        for (number, equation) in geometry.equations().iter().enumerate() {
            for cell in &equation.data {
                let Ok(Role::Data { ordinal }) = geometry.role(*cell) else { continue };
                let index = usize::from(ordinal);
                equations[index][usize::from(number >= geometry.rows())] = number;
                at[number][usize::from(cell.column.0)] = Some(index);
            }
        }
        let parity = geometry.equations().iter().map(|equation| equation.parity.column).collect();
        Self { data, equations, at, parity, columns: geometry.rows(), prime: geometry.diagonals() + 1 }
    }
}

/// What becomes of a data cell on its node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is XORed into both chains.
    Chained,
    /// It is sent to this column, and is XORed there.
    Joins(usize),
}

/// The parts of all data cells, chosen in this order and with this preference.
fn parts(mates: &Mates, slope: (usize, usize), weight: usize) -> Vec<Part> {
    let mut parts = vec![Part::Chained; mates.data.len()];
    let mut joined = vec![false; mates.data.len()];
    let mut load = vec![0_usize; mates.columns];
    let mut order: Vec<usize> = (0..mates.data.len()).collect();
    order.sort_by_key(|index| {
        let cell = mates.data[*index];
        (usize::from(cell.slot) * slope.0 + usize::from(cell.column.0) * slope.1) % mates.prime
    });
    for index in order {
        if joined[index] {
            continue;
        }
        let own = usize::from(mates.data[index].column.0);
        let places = (0..mates.columns).filter(|column| *column != own).filter_map(|column| {
            let fresh = joins(mates, &parts, index, column)?.filter(|mate| !joined[*mate]).count();
            Some((weight * fresh + load[column], column))
        });
        let Some((_, column)) = places.min() else { continue };
        for mate in joins(mates, &parts, index, column).into_iter().flatten() {
            joined[mate] = true;
        }
        parts[index] = Part::Joins(column);
        load[column] += 1;
    }
    parts
}

/// The cells of a column that this one would join, if it can: both of them chained, or the one of
/// the diagonal, and the row's parity.
fn joins<'a>(
    mates: &'a Mates,
    parts: &'a [Part],
    index: usize,
    column: usize,
) -> Option<impl Iterator<Item = usize> + 'a> {
    let [row, diagonal] = mates.equations[index];
    let in_row = mates.at[row][column];
    let in_diagonal = mates.at[diagonal][column]?;
    let chained = |mate: usize| parts[mate] == Part::Chained;
    (in_row.is_none_or(chained) && chained(in_diagonal)).then(|| in_row.into_iter().chain([in_diagonal]))
}

/// What is sent where.
struct Plan {
    /// Of each data cell.
    parts: Vec<Part>,
    /// Of each equation the chained cells, in the order in which they pass.
    chains: Vec<Vec<usize>>,
    /// The most that the node of a column receives from other nodes, without the last one.
    busiest: usize,
    /// How many cells are sent twice.
    chained: usize,
}

impl Plan {
    /// Chains pass the columns in order, after the one that begins: that whose node receives most,
    /// because who begins receives nothing for it.
    fn of(mates: &Mates, parts: Vec<Part>) -> Self {
        let is_chained = |index: &usize| parts[*index] == Part::Chained;
        let members = |at: &Vec<Option<usize>>| at.iter().flatten().copied().filter(is_chained).collect();
        let mut chains: Vec<Vec<usize>> = mates.at.iter().map(members).collect();
        let chained = (0..parts.len()).filter(is_chained).count();
        let mut received = vec![0_usize; mates.columns + 1];
        for part in &parts {
            if let Part::Joins(column) = part {
                received[*column] += 1;
            }
        }
        let column = |index: &usize| usize::from(mates.data[*index].column.0);
        for (members, parity) in chains.iter().zip(&mates.parity) {
            members.iter().for_each(|index| received[column(index)] += 1);
            received[usize::from(parity.0)] += usize::from(!members.is_empty());
        }
        // Who has the least choice chooses first.
        let mut order: Vec<usize> = (0..chains.len()).collect();
        order.sort_by_key(|equation| chains[*equation].len());
        for equation in order {
            let members = &mut chains[equation];
            let most = (0..members.len()).max_by_key(|place| received[column(&members[*place])]);
            if let Some(place) = most {
                received[column(&members[place])] -= 1;
                members[..=place].rotate_right(1);
            }
        }
        let busiest = received[..mates.columns].iter().copied().max().unwrap_or(0);
        Self { parts, chains, busiest, chained }
    }
}

/// The steps of a plan.
fn schedule(geometry: &Geometry, mates: &Mates, plan: &Plan) -> Schedule {
    let mut steps = data_steps(geometry);
    let mut kept = data_kept(geometry);
    // Of each equation and column, what joins there.
    let mut joining = vec![vec![Vec::new(); mates.columns + 1]; mates.at.len()];
    for (index, part) in plan.parts.iter().enumerate() {
        let Part::Joins(column) = *part else { continue };
        let to = geometry.columns().nth(column).unwrap_or(geometry.last_column());
        let step = send(&mut steps, (mates.data[index].column, to), Toward::BothParities, vec![id(index)]);
        for equation in mates.equations[index] {
            joining[equation][column].push(step);
        }
    }
    for (number, members) in plan.chains.iter().enumerate() {
        let (parity, toward) = (mates.parity[number], Toward::parity_of(&geometry.equations()[number]));
        let mut passing: Option<StepId> = None;
        for (place, index) in members.iter().enumerate() {
            let from = mates.data[*index].column;
            let to = members.get(place + 1).map_or(parity, |next| mates.data[*next].column);
            let joined = &joining[number][usize::from(from.0)];
            let inputs = [id(*index)].into_iter().chain(joined.iter().copied()).chain(passing).collect();
            passing = Some(send(&mut steps, (from, to), toward, inputs));
        }
        let joined = joining[number][usize::from(parity.0)].iter().copied();
        let inputs = joined.chain(passing).collect();
        kept.push(Kept { cell: geometry.equations()[number].parity, inputs });
    }
    Schedule::of(Way::Relay, geometry, steps, kept)
}

fn id(index: usize) -> StepId {
    StepId(u16::try_from(index).unwrap_or(u16::MAX))
}

/// A node sends the XOR of these inputs.
fn send(steps: &mut Vec<Step>, (from, to): (Column, Column), toward: Toward, inputs: Vec<StepId>) -> StepId {
    let arrived = inputs.iter().filter_map(|input| steps.get(usize::from(input.0)));
    let depth = arrived.clone().map(|step| step.depth + 1).max().unwrap_or(0);
    let mut carries: Vec<Cell> = arrived.flat_map(|step| step.carries.iter().copied()).collect();
    carries.sort_unstable();
    steps.push(Step { from: Sender::Column(from), to, toward, carries, inputs, uses: Vec::new(), depth });
    id(steps.len() - 1)
}
