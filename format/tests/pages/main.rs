//! Tests that pages return exactly the values that were encoded, and that each promise of the page
//! layer holds through the public interface. Method: pages are encoded with `ChunkWriter` and read
//! with `PageView`, in some tests after their bytes were changed.

mod faults;
mod golden;
mod round_trip;
mod sample;
