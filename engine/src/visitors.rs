//! Visits parsed statements, plans and expressions through `dyn` callbacks.
//!
//! The methods of sqlparser and DataFusion are generic over the visitor, so the walk over every
//! kind of node is compiled again for each visitor: 24 visitors and 70 closures were three quarters
//! of this crate's code. Here each walk is compiled once for each kind of tree. `clippy.toml`
//! forbids the generic methods elsewhere in this crate.

#![expect(clippy::disallowed_methods, reason = "calls the generic methods, once for each kind of tree")]

mod plans;
mod statements;

pub(crate) use plans::{PlanTree, Tree};
pub(crate) use statements::{visit, visit_mut, visit_relations};
