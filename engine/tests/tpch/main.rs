//! Tests the engine on TPC-H, over clusters of in-process nodes. Each file tests one guarantee of
//! the engine.

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
