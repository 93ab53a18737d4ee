//! Simulates crashes at every step of publishing protected tables, and checks that no stripe is
//! wrong afterwards.
//!
//! ```text
//! power    counts steps, and takes power away before one of them
//! folder   files that lose what was not synced      devices   simulated devices that lose what was not flushed
//! node     the store's own functions over both      cluster   the client's view, and completion of changes
//! load     a client's steps, in its order           library   the bytes of segments
//! check    the checks                               stripes   the expected cells, computed plainly
//! run      a scenario with a crash                  scenarios   the actions of each
//! crashes, defects   the tests
//! ```
//!
//! Everything happens in one thread, and follows from a seed.

mod check;
mod cluster;
mod crashes;
mod defects;
mod devices;
mod folder;
mod library;
mod load;
mod node;
mod power;
mod run;
mod scenarios;
mod stripes;
