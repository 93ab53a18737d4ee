//! Tests that pages return exactly the values that were encoded. Goal: each promise of the page
//! layer, tested through the public interface. Method: encode with `ChunkWriter`, read with
//! `PageView`, with some corruption in between.

mod faults;
mod golden;
mod round_trip;
mod sample;
