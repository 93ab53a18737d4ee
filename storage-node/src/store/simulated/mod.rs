//! Does a crash at any step of publishing protected tables leave a stripe that lies?
//!
//! ```text
//! power    counts steps, and takes power away before one of them
//! folder   files that lose what was not synced      devices   simulated devices that lose what was not flushed
//! node     the store's own functions over both      cluster   what clients see and complete
//! load     a client's steps, in its order           library   which bytes segments have
//! check    the promise                              stripes   what should lie in cells, computed plainly
//! run      a scenario with a crash                  scenarios   what is done in them
//! crashes, defects   the tests
//! ```
//!
//! Everything happens in one thread and follows from a seed.

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
