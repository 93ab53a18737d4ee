//! Limits the processor time of nodes: each node gets a control group with a quota.

use super::groups::{self, Controller, Group};
use rackscan_storage_node::CgroupVersion;

const CONTROLLER: Controller = Controller { names: ("cpu", "cpu"), prefix: "rackscan-bench-" };
/// A short period in microseconds: a scan takes some milliseconds, and should be limited by the
/// quota, not run between two pauses.
const PERIOD_US: u64 = 10_000;
/// The kernel's minimum, in microseconds.
const QUOTA_US_MIN: u64 = 1_000;

/// Control groups, one for each node.
#[derive(Debug)]
pub(crate) struct Quota {
    groups: Vec<Group>,
}

impl Quota {
    /// Creates `nodes` groups inside of this process's own group.
    pub(crate) fn create(nodes: u16) -> Result<Self, String> {
        let quota = Self { groups: groups::create(CONTROLLER, nodes)? };
        quota.set(100)?;
        Ok(quota)
    }

    /// Moves each process into a group of its own.
    pub(crate) fn hold(&self, pids: &[u32]) -> Result<(), String> {
        groups::hold(&self.groups, pids)
    }

    /// Gives all nodes together `percent` of all cores, in equal parts.
    pub(crate) fn set(&self, percent: u32) -> Result<(), String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let limit = limit(percent, cores, self.groups.len() as u64);
        self.groups.iter().try_for_each(|group| set(group, limit))
    }
}

fn set(group: &Group, limit: Option<(u64, u64)>) -> Result<(), String> {
    match (group.version, limit) {
        (CgroupVersion::One, None) => group.write("cpu.cfs_quota_us", "-1"),
        (CgroupVersion::One, Some((quota, period))) => {
            // Without a quota the period does not matter.
            group.write("cpu.cfs_quota_us", "-1")?;
            group.write("cpu.cfs_period_us", &period.to_string())?;
            group.write("cpu.cfs_quota_us", &quota.to_string())
        }
        (CgroupVersion::Two, None) => group.write("cpu.max", "max"),
        (CgroupVersion::Two, Some((quota, period))) => group.write("cpu.max", &format!("{quota} {period}")),
    }
}

/// The quota in microseconds of each of `nodes`, and its period; `None` without a limit.
fn limit(percent: u32, cores: u64, nodes: u64) -> Option<(u64, u64)> {
    if percent >= 100 {
        return None;
    }
    let (share, whole) = (u64::from(percent.max(1)) * cores, 100 * nodes.max(1));
    let period = PERIOD_US.max((QUOTA_US_MIN * whole).div_ceil(share));
    Some((period * share / whole, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_becomes_a_quota_that_the_kernel_takes() {
        assert_eq!(limit(100, 2, 2), None);
        assert_eq!(limit(10, 2, 2), Some((1_000, 10_000)));
        assert_eq!(limit(50, 8, 1), Some((40_000, 10_000)));
        assert_eq!(limit(1, 2, 4), Some((1_000, 200_000)));
    }
}
