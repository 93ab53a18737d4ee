//! Does the engine keep its promises on TPC-H? One file per promise, over clusters of in-process
//! nodes.

mod answers;
mod bounced;
mod changed;
mod clocks;
mod cluster;
mod conflicts;
mod deep;
mod derived;
mod every_query;
mod explained;
mod flushed;
mod indexed;
mod lost_node;
mod memory;
mod narrowed;
mod over_quota;
mod plans;
mod reduced;
mod refused;
mod replaced;
mod shared;
mod times;
mod traced;
mod wrong_pages;
