//! Tests that a reader that reads pages one-sidedly never accepts a page that is torn, or whose
//! content was outdated during the whole read.
//!
//! Method: the code of node and client runs on the simulated wire with many seeds, and on real
//! wires with threads. The content of a page shows its extent and how often it was written, so each
//! accepted page is compared with what was valid while it was read.

#[path = "pages/pages.rs"]
mod pages;
#[path = "pages/simulated.rs"]
mod simulated;
#[path = "pages/threads.rs"]
mod threads;
