//! Goal: whoever takes pages one-sidedly never accepts one that is torn or was not true at any
//! moment while it was read. Method: the code of node and client, on the simulated wire with many
//! seeds and on real wires with threads; every page tells which extent it is of and which writing
//! of it, so an accepted page is judged by what was true meanwhile.

#[path = "pages/pages.rs"]
mod pages;
#[path = "pages/simulated.rs"]
mod simulated;
#[path = "pages/threads.rs"]
mod threads;
