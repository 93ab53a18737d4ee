//! What can be wrong with a question about a stripe?

use crate::cell::{Cell, Column, Node};
use crate::limits::{NODES_MAX, NODES_MIN};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StripeError {
    /// So many nodes cannot share a stripe.
    #[error(
        "a stripe has {NODES_MIN} to {NODES_MAX} nodes, not {found}: with fewer, keep copies or no parity"
    )]
    Nodes {
        /// How many were asked for.
        found: usize,
    },
    /// A column that the stripe does not have.
    #[error("a stripe over {nodes} nodes has the columns 0 to {}, not {}", nodes - 1, column.0)]
    NoSuchColumn {
        /// What was asked for.
        column: Column,
        /// How many nodes share the stripe.
        nodes: usize,
    },
    /// A node that has no part of the stripe.
    #[error("a stripe over {nodes} nodes lies on the nodes 0 to {}, not {}", nodes - 1, node.0)]
    NoSuchNode {
        /// What was asked for.
        node: Node,
        /// How many nodes share the stripe.
        nodes: usize,
    },
    /// A cell that the stripe does not have.
    #[error(
        "a stripe over {nodes} nodes has no cell {} in column {}: columns 0 to {} have {} cells, the last one has {diagonals}",
        cell.slot, cell.column.0, nodes - 2, nodes - 1
    )]
    NoSuchCell {
        /// What was asked for.
        cell: Cell,
        /// How many nodes share the stripe.
        nodes: usize,
        /// How many diagonals the stripe has.
        diagonals: usize,
    },
}
