//! Does a protected table survive the loss of as many of its nodes as its parity bears, and is
//! nothing invented beyond?

mod losses;
mod new_versions;
mod relayed;
mod repairing;
mod steps;
mod support;
mod together;
mod unresponsive;
