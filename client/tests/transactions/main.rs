//! Tests that transactions are atomic over every wire, with every algorithm, and when nodes fail.
//! Goal: the promises of sessions, over real connections. Method: participants in threads of the
//! test that can be silent, end and begin again; and the checker of histories.

mod clocks;
mod conditions;
mod follow;
mod killed;
mod lines;
mod node;
mod real;
mod scene;
mod sessions;
mod stress;
