//! Which writes are visible together, and were they?
//!
//! Read atomic multi-partition transactions (RAMP; Bailis et al., and over RDMA Murata, Kawashima
//! and Tatebe 2017): what a transaction writes is seen by every other one wholly or not at all,
//! without locks. This crate knows neither wires nor disks nor threads.
//!
//! - [`timestamp`]: in which order transactions are, and why no two are in the same place.
//! - [`item`]: keys, values, and what a version says about what was written together with it.
//! - [`slot`]: where a version lies for readers who do not ask, and whether what they read is
//!   whole.
//! - [`message`]: what clients and homes say to each other. [`store`]: the versions of one home.
//! - [`log`]: what a home writes down before it answers, and what it makes of that after a crash.
//! - [`algorithm`]: in which order a transaction's messages go.
//! - [`home`]: what a home does about a request. [`locks`]: for those who do not trust in versions.
//!   [`termination`]: how a transaction ends whose coordinator says no more.
//! - [`closing`]: how what lies under a prefix moves away for good.
//! - [`feed`]: how readers follow what a home writes, without asking.
//! - [`history`]: what clients did and saw, and whether a store may have done that.

#![forbid(unsafe_code)]

pub mod algorithm;
pub mod bloom;
mod bytes;
pub mod closing;
pub mod feed;
pub mod history;
pub mod home;
pub mod item;
pub mod limits;
mod list;
pub mod locks;
pub mod log;
pub mod message;
pub mod slot;
pub mod store;
pub mod termination;
pub mod timestamp;
pub mod utc;
