//! Tests that a protected table survives the loss of as many of its nodes as its parity allows, and
//! that no data is invented when more are lost.

mod losses;
mod new_versions;
mod relayed;
mod repairing;
mod steps;
mod support;
mod together;
mod unresponsive;
