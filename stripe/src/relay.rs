//! Schedules how nodes compute the parities while a stripe is written, so that the client sends
//! each data cell only once.
//!
//! Each equation (a row or a diagonal) becomes a chain of nodes: each node XORs its data cell to
//! what arrives and sends the result on, and the last one sends it to the node of the parity. A
//! node that adds a cell to both of its chains sends twice. But a cell that is the first of both
//! chains can be sent once, as it is, to a node that is further on in both chains (or that stores
//! the row's parity): the cell *joins* there. So each data cell leaves its node once or twice, and
//! the more cells join, the less is sent. A cell that other cells join must itself be sent twice.
//!
//! Which cells join where is chosen greedily, in several orders and with several preferences. The
//! best of these plans is used: the one in which the busiest node receives the least, and among
//! equal ones the one that sends the least. The result is the same on every machine.
//!
//! With a single parity there is one chain, which passes the columns in order: the paper's figure
//! 5. No node receives more than its own cell and the sum from the node before it.
//!
//! Invariants of two parities
//! - No cell joins a cell that itself joins another. Where a cell joins, there are cells of its row
//!   (or the row's parity) and of its diagonal that are sent along chains.
//! - Each diagonal has a cell that is sent along the chain.
//! - No further cell could join in a plan: no node sends the same bytes to another node twice.

use crate::cell::{Cell, Column, Role};
use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::step::{Kept, Sender, Step, StepId, Toward, data_kept, data_steps, naive};

/// Cells are tried in the orders of `(row * a + column * b) mod p`, for all a and b below this.
const SLOPES: usize = 6;

/// The same for more than [`FEW_NODES`], where plans differ less and take longer to compute.
const SLOPES_OF_MANY: usize = 3;

/// The number of nodes up to which [`SLOPES`] applies.
const FEW_NODES: usize = 24;

/// The cost of joining a cell that no other cell joins yet, which must then be sent twice, relative
/// to joining at a node at which one more cell has joined.
const WEIGHTS: [usize; 3] = [1 << 16, 8, 2];

/// The steps by which nodes compute the parities, and how each cell is kept.
pub(crate) fn relay(geometry: &Geometry) -> (Vec<Step>, Vec<Kept>) {
    match geometry.parity() {
        Parity::Xor => chain(geometry),
        Parity::TwoD => joined_chains(geometry),
    }
}

/// One chain: each node XORs its cell to what arrives from the previous one, and sends it to the
/// next.
fn chain(geometry: &Geometry) -> (Vec<Step>, Vec<Kept>) {
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
    (steps, kept)
}

fn joined_chains(geometry: &Geometry) -> (Vec<Step>, Vec<Kept>) {
    let table = EquationTable::of(geometry);
    let below = if geometry.nodes() > FEW_NODES { SLOPES_OF_MANY } else { SLOPES };
    let slopes = (0..below).flat_map(|row| (0..below).map(move |column| (row, column)));
    let tries = slopes.flat_map(|slope| WEIGHTS.map(|weight| (slope, weight)));
    let plans = tries.map(|(slope, weight)| Plan::of(&table, routes(&table, slope, weight)));
    match plans.min_by_key(|plan| (plan.busiest, plan.chained)) {
        Some(plan) => steps_of(geometry, &table, &plan),
        // There is always a plan. Without one, the client's own parities would be correct, too.
        None => naive(geometry),
    }
}

/// The equations of data cells, and the data cells of equations, by index among the data cells.
struct EquationTable {
    data: Vec<Cell>,
    /// For each data cell, the indices of its row and its diagonal among the equations.
    equations: Vec<[usize; 2]>,
    /// For each equation and column, the data cell.
    at: Vec<Vec<Option<usize>>>,
    /// The column of each equation's parity.
    parity: Vec<Column>,
    columns: usize,
    prime: usize,
}

impl EquationTable {
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

/// How the node of a data cell sends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellRoute {
    /// It is XORed into both chains.
    Chained,
    /// It is sent to this column, and XORed into both chains there.
    Joins(usize),
}

/// The routes of all data cells, chosen in this order and with this preference.
fn routes(table: &EquationTable, slope: (usize, usize), weight: usize) -> Vec<CellRoute> {
    let mut routes = vec![CellRoute::Chained; table.data.len()];
    let mut joined = vec![false; table.data.len()];
    let mut load = vec![0_usize; table.columns];
    let mut order: Vec<usize> = (0..table.data.len()).collect();
    order.sort_by_key(|index| {
        let cell = table.data[*index];
        (usize::from(cell.slot) * slope.0 + usize::from(cell.column.0) * slope.1) % table.prime
    });
    for index in order {
        if joined[index] {
            continue;
        }
        let own = usize::from(table.data[index].column.0);
        let places = (0..table.columns).filter(|column| *column != own).filter_map(|column| {
            let fresh = joins(table, &routes, index, column)?.filter(|mate| !joined[*mate]).count();
            Some((weight * fresh + load[column], column))
        });
        let Some((_, column)) = places.min() else { continue };
        for mate in joins(table, &routes, index, column).into_iter().flatten() {
            joined[mate] = true;
        }
        routes[index] = CellRoute::Joins(column);
        load[column] += 1;
    }
    routes
}

/// The cells of a column that this cell would join, if it can: the cells of its row and of its
/// diagonal, both chained; or the latter and the row's parity.
fn joins<'a>(
    table: &'a EquationTable,
    routes: &'a [CellRoute],
    index: usize,
    column: usize,
) -> Option<impl Iterator<Item = usize> + 'a> {
    let [row, diagonal] = table.equations[index];
    let in_row = table.at[row][column];
    let in_diagonal = table.at[diagonal][column]?;
    let chained = |mate: usize| routes[mate] == CellRoute::Chained;
    (in_row.is_none_or(chained) && chained(in_diagonal)).then(|| in_row.into_iter().chain([in_diagonal]))
}

/// Which cells are sent where.
struct Plan {
    /// The route of each data cell.
    routes: Vec<CellRoute>,
    /// For each equation the chained cells, in the order of the chain.
    chains: Vec<Vec<usize>>,
    /// The maximum number of cells that the node of a column, except the last one, receives from
    /// other nodes.
    busiest: usize,
    /// The number of cells that are sent twice.
    chained: usize,
}

impl Plan {
    /// Chains pass the columns in order, except that a chain begins with the node that receives
    /// most, because the first node receives nothing for it.
    fn of(table: &EquationTable, routes: Vec<CellRoute>) -> Self {
        let is_chained = |index: &usize| routes[*index] == CellRoute::Chained;
        let members = |at: &Vec<Option<usize>>| at.iter().flatten().copied().filter(is_chained).collect();
        let mut chains: Vec<Vec<usize>> = table.at.iter().map(members).collect();
        let chained = (0..routes.len()).filter(is_chained).count();
        let mut received = vec![0_usize; table.columns + 1];
        for route in &routes {
            if let CellRoute::Joins(column) = route {
                received[*column] += 1;
            }
        }
        let column = |index: &usize| usize::from(table.data[*index].column.0);
        for (members, parity) in chains.iter().zip(&table.parity) {
            members.iter().for_each(|index| received[column(index)] += 1);
            received[usize::from(parity.0)] += usize::from(!members.is_empty());
        }
        // Chains with the fewest nodes choose first.
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
        let busiest = received[..table.columns].iter().copied().max().unwrap_or(0);
        Self { routes, chains, busiest, chained }
    }
}

/// The steps of a plan.
fn steps_of(geometry: &Geometry, table: &EquationTable, plan: &Plan) -> (Vec<Step>, Vec<Kept>) {
    let mut steps = data_steps(geometry);
    let mut kept = data_kept(geometry);
    // For each equation and column, the steps that join there.
    let mut joining = vec![vec![Vec::new(); table.columns + 1]; table.at.len()];
    for (index, route) in plan.routes.iter().enumerate() {
        let CellRoute::Joins(column) = *route else { continue };
        let to = geometry.columns().nth(column).expect("a cell joins at a column of the geometry");
        let step = send(&mut steps, (table.data[index].column, to), Toward::BothParities, vec![id(index)]);
        for equation in table.equations[index] {
            joining[equation][column].push(step);
        }
    }
    for (number, members) in plan.chains.iter().enumerate() {
        let (parity, toward) = (table.parity[number], Toward::parity_of(&geometry.equations()[number]));
        let mut passing: Option<StepId> = None;
        for (place, index) in members.iter().enumerate() {
            let from = table.data[*index].column;
            let to = members.get(place + 1).map_or(parity, |next| table.data[*next].column);
            let joined = &joining[number][usize::from(from.0)];
            let inputs = [id(*index)].into_iter().chain(joined.iter().copied()).chain(passing).collect();
            passing = Some(send(&mut steps, (from, to), toward, inputs));
        }
        let joined = joining[number][usize::from(parity.0)].iter().copied();
        let inputs = joined.chain(passing).collect();
        kept.push(Kept { cell: geometry.equations()[number].parity, inputs });
    }
    (steps, kept)
}

fn id(index: usize) -> StepId {
    StepId(u16::try_from(index).expect("a schedule has fewer than 4 * CELLS_MAX steps"))
}

/// Adds a step in which a node sends the XOR of these inputs.
fn send(steps: &mut Vec<Step>, (from, to): (Column, Column), toward: Toward, inputs: Vec<StepId>) -> StepId {
    let arrived = inputs.iter().filter_map(|input| steps.get(usize::from(input.0)));
    let depth = arrived.clone().map(|step| step.depth + 1).max().unwrap_or(0);
    let mut carries: Vec<Cell> = arrived.flat_map(|step| step.carries.iter().copied()).collect();
    carries.sort_unstable();
    steps.push(Step { from: Sender::Column(from), to, toward, carries, inputs, uses: Vec::new(), depth });
    id(steps.len() - 1)
}
