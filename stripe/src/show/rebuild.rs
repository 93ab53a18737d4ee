//! Shows a rebuild to people: its steps, and how much each node sends and receives.
//!
//! Invariants
//! - Nodes have the names that they have in this stripe; a replacement node has the name of the
//!   node that it replaces.
//! - Cells have the names of [`super::Shown`].

use super::text::{load_table, table};
use super::{Endpoint, Names, ShownLoad};
use crate::cell::Node;
use crate::geometry::Geometry;
use crate::rebuild_relay::{Rebuild, RebuildStep};
use crate::schedule::Load;
use crate::step::StepId;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};

/// The rebuild of a stripe. Its `Display` is the text, its `Serialize` is for scripts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownRebuild {
    nodes: usize,
    stripe: u64,
    lost: Vec<Node>,
    rebuilt_cells: usize,
    read_cells: usize,
    reads_per_cell: f64,
    hops: usize,
    /// The maximum number of cells that a node sends or receives.
    bound: usize,
    steps: Vec<ShownStep>,
    loads: Vec<ShownLoad>,
}

/// A step of a rebuild.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ShownStep {
    from: Endpoint,
    to: Endpoint,
    toward: String,
    reads: Vec<String>,
    inputs: Vec<u16>,
    rebuilds: bool,
    forwards: Vec<u16>,
    hop: u16,
}

impl ShownRebuild {
    /// The rebuild of this stripe, if it is one of the same geometry.
    #[must_use]
    pub fn new(geometry: &Geometry, stripe: u64, rebuild: &Rebuild) -> Self {
        let names = Names { geometry, stripe };
        let mut lost: Vec<Node> =
            rebuild.rebuilt().iter().map(|rebuilt| names.node(rebuilt.cell.column)).collect();
        lost.sort_unstable();
        lost.dedup();
        let link = rebuild.bound().max(1) as f64;
        let load = |place: Endpoint, load: Load| ShownLoad {
            place,
            load,
            sent_of_link: load.sent as f64 / link,
            received_of_link: load.received as f64 / link,
        };
        let columns = geometry.columns().zip(rebuild.loads());
        let mut loads: Vec<ShownLoad> =
            columns.map(|(column, of)| load(Endpoint::Node(names.node(column)), of)).collect();
        loads.sort_by_key(|load| load.place);
        let ids = (0..).map(StepId).zip(rebuild.steps());
        Self {
            nodes: geometry.nodes(),
            stripe,
            lost,
            rebuilt_cells: rebuild.rebuilt().len(),
            read_cells: rebuild.reads().len(),
            reads_per_cell: rebuild.reads_per_cell(),
            hops: rebuild.hops(),
            bound: rebuild.bound(),
            steps: ids.map(|(id, step)| shown_step(&names, rebuild, (id, step))).collect(),
            loads,
        }
    }

    fn step_table(&self) -> Vec<Vec<String>> {
        let head = ["step", "hop", "from", "to", "toward", "reads", "made of", "the receiver"];
        let list = |steps: &[u16]| steps.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let row = |(number, step): (usize, &ShownStep)| {
            let stores = step.rebuilds.then(|| format!("stores {}", step.toward));
            let forwards =
                (!step.forwards.is_empty()).then(|| format!("forwards by {}", list(&step.forwards)));
            let uses: Vec<String> = stores.into_iter().chain(forwards).collect();
            vec![
                number.to_string(),
                step.hop.to_string(),
                step.from.to_string(),
                step.to.to_string(),
                step.toward.clone(),
                step.reads.join(", "),
                list(&step.inputs),
                uses.join("; "),
            ]
        };
        [head.map(str::to_owned).to_vec()].into_iter().chain(self.steps.iter().enumerate().map(row)).collect()
    }
}

fn shown_step(names: &Names, rebuild: &Rebuild, (id, step): (StepId, &RebuildStep)) -> ShownStep {
    let later = (0..).zip(rebuild.steps()).skip(usize::from(id.0) + 1);
    ShownStep {
        from: Endpoint::Node(names.node(step.from)),
        to: Endpoint::Node(names.node(step.to)),
        toward: names.of(step.toward),
        reads: step.reads.iter().map(|cell| names.of(*cell)).collect(),
        inputs: step.inputs.iter().map(|input| input.0).collect(),
        rebuilds: rebuild.rebuilt().iter().any(|rebuilt| rebuilt.by == id),
        forwards: later.filter(|(_, other)| other.inputs.contains(&id)).map(|(number, _)| number).collect(),
        hop: step.depth,
    }
}

impl Display for ShownRebuild {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lost = self.lost.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(" and ");
        let (nodes, stripe) = (self.nodes, self.stripe);
        if self.lost.is_empty() {
            return writeln!(f, "stripe {stripe} over {nodes} nodes is whole: nothing is rebuilt");
        }
        writeln!(
            f,
            "stripe {stripe} over {nodes} nodes without {lost}: {} cells are rebuilt, {} read ({:.3} for each), nodes send {} cells, {} hops one after the other\n",
            self.rebuilt_cells,
            self.read_cells,
            self.reads_per_cell,
            self.steps.len(),
            self.hops,
        )?;
        f.write_str(&table(&self.step_table()))?;
        writeln!(f)?;
        f.write_str(&load_table(&self.loads))?;
        writeln!(f, "\nbound of a node: sends and receives {} cells, as many as are rebuilt", self.bound)
    }
}
