//! Does a protected table survive the loss of as many of its nodes as its parity bears, and is
//! nothing invented beyond?

mod losses;
mod mending;
mod relayed;
mod steps;
mod successors;
mod support;
mod together;
mod unresponsive;
