//! Does every row of a source arrive at its participant exactly once, and nothing of a load that
//! fails?
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
