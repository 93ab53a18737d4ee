//! Defines the errors of calls that name a stripe, node or cell that cannot exist, or a rebuild
//! that is impossible.

use crate::cell::{Cell, Column, Node};
use crate::limits::NODES_MAX;
use crate::parity::Parity;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StripeError {
    /// There are no stripes over so many nodes.
    #[error(
        "a stripe with parity {parity} needs {} to {NODES_MAX} nodes, found {found}: if there are too few, \
         choose a parity that needs fewer nodes, or no parity",
        parity.nodes_min()
    )]
    Nodes {
        /// The parity.
        parity: Parity,
        /// How many were asked for.
        found: usize,
    },
    /// A column that the stripe does not have.
    #[error("a stripe over {nodes} nodes has the columns 0 to {}, but column {} was asked for", nodes - 1, column.0)]
    NoSuchColumn {
        /// What was asked for.
        column: Column,
        /// How many nodes share the stripe.
        nodes: usize,
    },
    /// A node that has no part of the stripe.
    #[error("a stripe over {nodes} nodes has the nodes 0 to {}, but node {} was asked for", nodes - 1, node.0)]
    NoSuchNode {
        /// What was asked for.
        node: Node,
        /// How many nodes share the stripe.
        nodes: usize,
    },
    /// A cell that the stripe does not have.
    #[error(
        "a stripe over {nodes} nodes has no cell {} in column {}: the columns are 0 to {}, and this one has {slots} cells",
        cell.slot, cell.column.0, nodes - 1
    )]
    NoSuchCell {
        /// What was asked for.
        cell: Cell,
        /// How many nodes share the stripe.
        nodes: usize,
        /// How many cells that column has: 0 if there is no such column.
        slots: usize,
    },
    /// More nodes are lost than the parity can recover.
    #[error(
        "{found} nodes of a stripe over {nodes} are lost, and parity {parity} makes up for {}: the stripe cannot be rebuilt as a whole, \
         but some of its cells may be recoverable",
        parity.lost_max()
    )]
    TooManyLost {
        /// How many are lost.
        found: usize,
        /// The parity of the stripe.
        parity: Parity,
        /// How many nodes share the stripe.
        nodes: usize,
    },
}
