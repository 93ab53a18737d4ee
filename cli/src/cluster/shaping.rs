//! Limits the resources of nodes on this host, to simulate slower nodes: processor time, disks, the
//! wire, and the client's link.
//!
//! Invariants
//! - Only resources of this command are changed: networks and control groups are created for it,
//!   and end with it.
//! - If this host cannot enforce a limit, the reason is reported before anything is measured.

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

/// The limits that are possible.
pub(crate) struct ResourceLimits {
    /// Limit of the nodes' processor time.
    pub(crate) quota: Option<Quota>,
    /// Limit of the wire's bandwidth.
    pub(crate) wire: Option<NarrowWire>,
}

impl Shaping for ResourceLimits {
    fn shape(&mut self, conditions: Conditions) -> Result<(), String> {
        let Conditions { cpu_share_percent, wire_mb_per_s } = conditions;
        match &self.quota {
            Some(quota) => quota.set(cpu_share_percent)?,
            None if cpu_share_percent == 100 => (),
            None => return Err("the nodes' processor time cannot be limited, because they run in no control group of this command".to_owned()),
        }
        match (&self.wire, wire_mb_per_s) {
            (Some(wire), rate) => wire.set(rate),
            (None, None) => Ok(()),
            (None, Some(_)) => {
                Err("the bandwidth cannot be limited, because this command has no network of its own"
                    .to_owned())
            }
        }
    }
}
