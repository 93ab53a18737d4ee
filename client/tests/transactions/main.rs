//! Are transactions whole, whatever the wire, the algorithm and the outcome of nodes? Goal: what
//! sessions promise, over real connections. Method: participants in threads of the test that can be
//! silent, end and begin again; and the checker of histories.

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
