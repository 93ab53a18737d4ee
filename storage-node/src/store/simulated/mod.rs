//! Simulates crashes at every step of publishing protected tables, and checks that no stripe is
//! wrong afterwards.
//!
//! ```text
//! power      counts steps, and turns the power of a node or of the client off before chosen steps
//! folder     simulated files, which lose in a crash what was not synced
//! devices    simulated devices, which lose in a crash what was not flushed
//! node       a node: the store's own functions over such a folder and devices
//! cluster    all nodes, as a client uses them
//! load       the steps of a client that loads a table
//! library    the bytes of segments
//! stripes    the expected content of parity cells
//! check      the checks
//! scenarios  the scenarios: lists of loads and drops
//! run        runs a scenario with a crash
//! crashes, defects   the tests
//! ```
//!
//! Everything happens in one thread, and is determined by a seed.

mod check;
mod cluster;
mod crashes;
mod defects;
mod devices;
mod folder;
mod library;
mod load;
mod node;
mod power;
mod run;
mod scenarios;
mod stripes;
