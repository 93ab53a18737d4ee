//! Which rows does a table have beside its segments?
//!
//! Segments never change. What is inserted, updated or deleted lies beside them, as items of
//! read-atomic transactions, each under a key that says which row it is about. Whoever scans a
//! table follows what all homes write, and knows at each moment a set of rows that belongs
//! together:
//!
//! ```text
//! statement -> rows with their identities -> items of one transaction -> homes            [identity], [row]
//! homes -> their feeds -> [replica]: committed anywhere counts everywhere -> rows of a table beside its segments
//! those rows -> [layer]: what segments do not have any more, and [run]s: segments in memory -> scans
//! those rows -> [sealed]: segments of a new version of the table, and what is withheld from those it keeps
//! changed rows -> entries of indexes, foreign keys and sums, in the same transaction -> seen with them or not at all     [derived]
//! ```
//!
//! Pure: neither wires nor disks nor clocks, and it does not know how rows are scanned.

#![forbid(unsafe_code)]

pub mod derived;
pub mod identity;
pub mod layer;
pub mod limits;
pub mod replica;
pub mod row;
pub mod run;
pub mod sealed;
