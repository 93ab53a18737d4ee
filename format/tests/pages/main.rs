//! Do pages give back what was put in, and nothing else? Goal: each promise of the page layer, seen
//! from outside. Method: encode through `ChunkWriter`, read through `PageView`, with a little
//! corruption in between.

mod faults;
mod golden;
mod round_trip;
mod sample;
