//! Tests that every row of a source arrives at the node of its key exactly once, and that a load
//! that fails leaves nothing visible.
//!
//! All tests load into real storage nodes and read every row back through scans at the nodes.

mod cached;
mod cluster;
mod csv;
mod generated;
mod interrupted;
mod odd_parquet;
mod parquet;
mod rows;
mod sorted;
mod tpch;
