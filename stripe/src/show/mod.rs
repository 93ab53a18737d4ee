//! Shows a stripe to people: where each cell lies, which place sends what, and how much each place
//! sends and receives.
//!
//! [`Shown`] is plain data with names. Its `Display` is the text (`text`), [`Shown::svg`] is the
//! picture (`svg`, `drawing`), and its `Serialize` is for scripts. `rebuild` shows rebuilds.
//!
//! Invariants
//! - Nodes have the names that they have in this stripe, after its rotation.
//! - Data cells are letters in the order in which a client fills them, as in the paper: A to Z,
//!   then AA.

mod drawing;
mod rebuild;
mod svg;
mod text;

pub use rebuild::ShownRebuild;

use crate::cell::{Cell, Column, Node, Role};
use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::schedule::{Average, Bound, Load, Schedule};
use crate::step::{Kept, Sender, Step, Toward, Use, Way};
use serde::Serialize;

/// Sums of more cells are named by their row or diagonal, or by their first and last cell.
const NAMED_TERMS_MAX: usize = 5;

/// A stripe, and its transfers if it has a schedule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shown {
    parity: Parity,
    nodes: usize,
    stripe: u64,
    data_cells: usize,
    stored_per_data: f64,
    cells: Vec<ShownCell>,
    transfers: Option<Transfers>,
}

/// A cell of a stripe.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ShownCell {
    cell: Cell,
    node: Node,
    name: String,
    role: Role,
}

/// The transfers of a stripe.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Transfers {
    way: Way,
    hops: usize,
    steps: Vec<ShownStep>,
    loads: Vec<ShownLoad>,
    bound: Bound,
    average_of_nodes: Average,
}

/// A step of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ShownStep {
    from: Endpoint,
    to: Endpoint,
    sends: String,
    toward: Toward,
    inputs: Vec<u16>,
    keeps: Vec<String>,
    forwards: Vec<u16>,
    hop: u16,
}

/// A sender or receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Endpoint {
    Client,
    Node(Node),
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client => f.pad("client"),
            Self::Node(node) => f.pad(&format!("node {}", node.0)),
        }
    }
}

/// The load of one place, in cells and relative to what the client sends: the latter is the share
/// of its link that is used, if all links are equal and the client's is full.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct ShownLoad {
    place: Endpoint,
    #[serde(flatten)]
    load: Load,
    sent_of_link: f64,
    received_of_link: f64,
}

impl Shown {
    /// The layout of one stripe, and its transfers if there is a schedule of the same geometry.
    #[must_use]
    pub fn new(geometry: &Geometry, stripe: u64, schedule: Option<&Schedule>) -> Self {
        let names = Names { geometry, stripe };
        let cell = |cell: Cell| {
            let role = geometry.role(cell).ok()?;
            Some(ShownCell { cell, node: names.node(cell.column), name: names.of(cell), role })
        };
        Self {
            parity: geometry.parity(),
            nodes: geometry.nodes(),
            stripe,
            data_cells: geometry.data().len(),
            stored_per_data: geometry.stored_per_data(),
            cells: geometry.cells().filter_map(cell).collect(),
            transfers: schedule.map(|schedule| transfers(&names, schedule)),
        }
    }

    /// The number of cells of the longest column.
    fn slots(&self) -> usize {
        self.cells.iter().map(|cell| usize::from(cell.cell.slot) + 1).max().unwrap_or(0)
    }

    /// The cell of a node in a slot, if there is one.
    fn at(&self, node: usize, slot: usize) -> Option<&ShownCell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| usize::from(cell.node.0) == node && usize::from(cell.cell.slot) == slot)
    }

    /// A summary of the layout.
    fn summary(&self) -> String {
        let data = match self.data_cells {
            1 => "1 data cell".to_owned(),
            cells => format!("{cells} data cells"),
        };
        let is_horizontal = |cell: &&ShownCell| matches!(cell.role, Role::HorizontalParity { .. });
        let horizontal = self.cells.iter().filter(is_horizontal).count();
        let parities = match self.parity {
            Parity::Xor => " and one parity".to_owned(),
            Parity::TwoD => {
                let diagonal = self.cells.len() - self.data_cells - horizontal;
                format!(", {horizontal} horizontal and {diagonal} diagonal parities")
            }
        };
        format!(
            "stripe {} over {} nodes: {data}{parities}, {:.3} bytes stored per byte of data",
            self.stripe, self.nodes, self.stored_per_data,
        )
    }
}

impl Transfers {
    /// A summary of the transfers.
    fn summary(&self, data_cells: usize) -> String {
        let way = match self.way {
            Way::Bare => "none",
            Way::Naive => "naive",
            Way::Relay => "relay",
        };
        let relayed = self.steps.len() - self.bound.client;
        let hops = match self.hops {
            1 => "1 hop".to_owned(),
            hops => format!("{hops} hops one after the other"),
        };
        format!(
            "{way}: the client sends {:.3} bytes per byte of data ({} cells), nodes send {relayed} cells to each other, {hops}",
            self.bound.client as f64 / data_cells as f64,
            self.bound.client,
        )
    }

    /// The bounds of a node's load, and its average.
    fn limits(&self) -> [String; 2] {
        let Bound { client, sent, received } = self.bound;
        let Average { sent: sends, received: receives, xors } = self.average_of_nodes;
        let link = |cells: f64| cells / client as f64;
        [
            format!(
                "bound of a node: sends {sent} cells ({:.3} of the client's link), receives {received} ({:.3})",
                link(sent as f64),
                link(received as f64),
            ),
            format!(
                "each node over the rotation: sends {sends:.2} cells ({:.3}), receives {receives:.2} ({:.3}), XORs {xors:.2}",
                link(sends),
                link(receives),
            ),
        ]
    }
}

/// The names of nodes and cells in a stripe.
struct Names<'a> {
    geometry: &'a Geometry,
    stripe: u64,
}

impl Names<'_> {
    fn node(&self, column: Column) -> Node {
        let node = self.geometry.node_of(self.stripe, column);
        node.expect("the column is one of this geometry")
    }

    fn place(&self, sender: Sender) -> Endpoint {
        match sender {
            Sender::Client => Endpoint::Client,
            Sender::Column(column) => Endpoint::Node(self.node(column)),
        }
    }

    fn of(&self, cell: Cell) -> String {
        if let Ok(Role::Data { ordinal }) = self.geometry.role(cell) {
            return letters(ordinal);
        }
        match self.geometry.equations().iter().find(|equation| equation.parity == cell) {
            Some(equation) if equation.data.len() <= NAMED_TERMS_MAX => self.sum(&equation.data),
            Some(equation) => match equation.direction {
                crate::geometry::Direction::Horizontal => format!("row {}", equation.number),
                crate::geometry::Direction::Diagonal => format!("diagonal {}", equation.number),
            },
            None => String::new(),
        }
    }

    /// Names the sum of these data cells, in the order of the data. Of many it names only the first
    /// and the last, and their number.
    fn sum(&self, cells: &[Cell]) -> String {
        let mut cells = cells.to_vec();
        cells.sort_by_key(|cell| (cell.slot, cell.column));
        match cells[..] {
            [first, .., last] if cells.len() > NAMED_TERMS_MAX => {
                format!("{}+..+{} ({})", self.of(first), self.of(last), cells.len())
            }
            _ => cells.iter().map(|cell| self.of(*cell)).collect::<Vec<_>>().join("+"),
        }
    }
}

/// 0 is A, 25 is Z, 26 is AA.
fn letters(ordinal: u16) -> String {
    let mut left = u32::from(ordinal) + 1;
    let mut reversed = Vec::new();
    while left > 0 {
        let digit = u8::try_from((left - 1) % 26).expect("below 26");
        reversed.push(char::from(b'A' + digit));
        left = (left - 1) / 26;
    }
    reversed.into_iter().rev().collect()
}

fn transfers(names: &Names, schedule: &Schedule) -> Transfers {
    let client = schedule.client();
    let load = |place: Endpoint, load: Load| ShownLoad {
        place,
        load,
        sent_of_link: load.sent as f64 / client.sent as f64,
        received_of_link: load.received as f64 / client.sent as f64,
    };
    let columns = names.geometry.columns().zip(schedule.loads());
    let mut loads: Vec<ShownLoad> =
        columns.map(|(column, of)| load(Endpoint::Node(names.node(column)), of)).collect();
    loads.push(load(Endpoint::Client, client));
    loads.sort_by_key(|load| load.place);
    Transfers {
        way: schedule.way(),
        hops: schedule.hops(),
        steps: schedule.steps().iter().map(|step| shown_step(names, schedule, step)).collect(),
        loads,
        bound: schedule.bound(),
        average_of_nodes: schedule.average(),
    }
}

fn shown_step(names: &Names, schedule: &Schedule, step: &Step) -> ShownStep {
    let keep = |used: &Use| match used {
        Use::Keep(cell) => Some(*cell),
        Use::Forward(_) => None,
    };
    let forward = |used: &Use| match used {
        Use::Keep(_) => None,
        Use::Forward(by) => Some(by.0),
    };
    let name = |cell: Cell| {
        let whole = |kept: &Kept| kept.cell == cell && kept.inputs.len() == 1;
        let into = if schedule.kept().iter().any(whole) { "" } else { "into " };
        format!("{into}{}", names.of(cell))
    };
    ShownStep {
        from: names.place(step.from),
        to: names.place(Sender::Column(step.to)),
        sends: names.sum(&step.carries),
        toward: step.toward,
        inputs: step.inputs.iter().map(|input| input.0).collect(),
        keeps: step.uses.iter().filter_map(keep).map(name).collect(),
        forwards: step.uses.iter().filter_map(forward).collect(),
        hop: step.depth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cells_are_letters_that_go_on_after_z() {
        assert_eq!(
            [0, 25, 26, 51, 52, 701, 702, 3905].map(letters),
            ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA", "ETF"]
        );
    }
}
