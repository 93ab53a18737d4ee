//! How do nodes on this host get as little as nodes elsewhere may have? A quota of processor time,
//! a slow disk, a narrow wire, and a narrow link of their client.
//!
//! Invariants
//! - Nothing is changed that is not this command's own: the network and the control group are made
//!   for it, and end with it.
//! - What cannot be had is said with its reason, before anything is measured.

mod client_link;
mod disks;
mod groups;
mod quota;
mod wire;

pub(crate) use client_link::ClientLink;
pub(crate) use disks::SlowDisks;
pub(crate) use quota::Quota;
pub(crate) use wire::NarrowWire;

use rackscan_bench::placement::{Conditions, Shaping};

/// What can be given less of.
pub(crate) struct Shaped {
    /// The nodes' processor time, if it can be.
    pub(crate) quota: Option<Quota>,
    /// The wire to them, if it can be.
    pub(crate) wire: Option<NarrowWire>,
}

impl Shaping for Shaped {
    fn shape(&mut self, conditions: Conditions) -> Result<(), String> {
        let Conditions { cpu_share_percent, wire_mb_per_s } = conditions;
        match &self.quota {
            Some(quota) => quota.set(cpu_share_percent)?,
            None if cpu_share_percent == 100 => (),
            None => return Err("there is no control group to limit the nodes' processor time".to_owned()),
        }
        match (&self.wire, wire_mb_per_s) {
            (Some(wire), rate) => wire.set(rate),
            (None, None) => Ok(()),
            (None, Some(_)) => Err("there is no network of this command's own to make narrow".to_owned()),
        }
    }
}
