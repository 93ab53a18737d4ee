//! Nodes, clients and tables, shared by the tests of all promises.

pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod keys;
pub(crate) mod node;
pub(crate) mod posts;
pub(crate) mod table;
