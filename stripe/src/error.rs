//! Errors for questions about a stripe that have no answer.

use crate::cell::{Cell, Column, Node};
use crate::limits::NODES_MAX;
use crate::parity::Parity;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StripeError {
    /// There are no stripes over so many nodes.
    #[error(
        "a stripe with parity {parity} has {} to {NODES_MAX} nodes, not {found}: with fewer, take a parity that needs fewer, or none",
        parity.nodes_min()
    )]
    Nodes {
        /// The parity.
        parity: Parity,
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
        "a stripe over {nodes} nodes has no cell {} in column {}: that column has {slots} cells, of columns 0 to {}",
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
         but a recovery may give some of its cells",
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
