//! Tests that messages and stored structures have the same bytes as before, and that these bytes
//! are read as what they were made of. Goal: the formats do not change by accident, for example by
//! fields in another order. Method: golden files in `tests/golden`, a line `name hex` for each
//! sample, written once by
//!
//!     RACKSCAN_WRITE_GOLDEN=1 cargo test -p rackscan-format --test messages
//!
//! which adds lines of samples that have none, and never changes a line.
//!
//! | golden file | a change of what it holds |
//! |---|---|
//! | `requests_vN.txt`, `replies_vN.txt`, `programs_vN.txt` | raises `PROTOCOL_VERSION`, which is N, and gets new files. Peers of different versions refuse each other, so the files of the version before are removed. |
//! | `stored_v1.txt` | is not allowed: stored bytes outlive versions of the protocol. A new layout is a new kind of envelope and a new line; the line of the kind before moves to the test of the code that still reads it. |
//!
//! Invariants
//! - Each enum has a sample of each variant ([`one_of_each`]).
//! - The fields of a sample have different bytes, else a swap of two would not be noticed. Fields
//!   are listed one by one, so a new field needs a value here.

mod golden;
mod one_of_each;
mod programs;
mod replies;
mod requests;
mod stored;
mod tables;

pub(crate) use one_of_each::one_of_each;
