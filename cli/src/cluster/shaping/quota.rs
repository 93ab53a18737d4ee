//! How little processor time do nodes get? A control group for each of them, with a quota, of version 1 or 2.
//!
//! Invariants
//! - Only groups that this command made are written to. They are removed when their processes have ended, and groups that killed commands
//!   left are removed by the next one.

use rackscan_storage_node::{CgroupVersion, CpuGroup};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const NAME: &str = "rackscan-bench-";
/// A short period: a scan takes some milliseconds, and shall meet the quota and not the pause between two of them.
const PERIOD_US: u64 = 10_000;
/// The kernel gives no less.
const QUOTA_US_MIN: u64 = 1_000;
/// Processes leave their group a moment after they were waited for.
const REMOVAL_TIME_MAX: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Control groups, one for each node.
#[derive(Debug)]
pub(crate) struct Quota {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    folder: PathBuf,
    version: CgroupVersion,
}

/// Where groups can be made.
#[derive(Debug, PartialEq, Eq)]
struct Parent {
    folder: PathBuf,
    version: CgroupVersion,
}

impl Quota {
    /// Makes groups for so many nodes inside of this process's own.
    pub(crate) fn create(nodes: u16) -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let Parent { folder, version } = parent(&mounts, &groups).ok_or(
            "no control group of version 1 or 2 with the controller cpu is mounted where this process may make groups",
        )?;
        remove_left(&folder);
        let mut quota = Self { groups: Vec::new() };
        for node in 0..nodes {
            let folder = folder.join(format!("{NAME}{}-{node}", std::process::id()));
            fs::create_dir(&folder).map_err(|error| {
                format!("{}: {error} (making control groups needs root)", folder.display())
            })?;
            quota.groups.push(Group { folder, version });
        }
        quota.set(100)?;
        Ok(quota)
    }

    /// Takes processes in, each into a group of its own.
    pub(crate) fn hold(&self, pids: &[u32]) -> Result<(), String> {
        if pids.len() != self.groups.len() {
            return Err(format!("{} nodes were started, expected {}", pids.len(), self.groups.len()));
        }
        let mut each = self.groups.iter().zip(pids);
        each.try_for_each(|(group, pid)| group.write("cgroup.procs", &pid.to_string()))
    }

    /// Gives all of them together so much of all cores, each an equal part.
    pub(crate) fn set(&self, percent: u32) -> Result<(), String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let limit = limit(percent, cores, self.groups.len() as u64);
        self.groups.iter().try_for_each(|group| group.set(limit))
    }
}

impl Group {
    fn set(&self, limit: Option<(u64, u64)>) -> Result<(), String> {
        match (self.version, limit) {
            (CgroupVersion::One, None) => self.write("cpu.cfs_quota_us", "-1"),
            (CgroupVersion::One, Some((quota, period))) => {
                // Without a quota any period will do.
                self.write("cpu.cfs_quota_us", "-1")?;
                self.write("cpu.cfs_period_us", &period.to_string())?;
                self.write("cpu.cfs_quota_us", &quota.to_string())
            }
            (CgroupVersion::Two, None) => self.write("cpu.max", "max"),
            (CgroupVersion::Two, Some((quota, period))) => {
                self.write("cpu.max", &format!("{quota} {period}"))
            }
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: cannot write {text}: {error}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVAL_TIME_MAX;
        loop {
            match fs::remove_dir(&self.folder) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    std::thread::sleep(POLL_EVERY);
                }
                Err(error) => {
                    tracing::warn!("{}: cannot be removed: {error}", self.folder.display());
                    return;
                }
            }
        }
    }
}

/// Microseconds for each of `nodes` in a period of so many; `None` without a limit.
fn limit(percent: u32, cores: u64, nodes: u64) -> Option<(u64, u64)> {
    if percent >= 100 {
        return None;
    }
    let (share, whole) = (u64::from(percent.max(1)) * cores, 100 * nodes.max(1));
    let period = PERIOD_US.max((QUOTA_US_MIN * whole).div_ceil(share));
    Some((period * share / whole, period))
}

/// Removes the groups of commands that are gone. One that has processes cannot be removed, and is left alone.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let of = name.strip_prefix(NAME).and_then(|rest| rest.split('-').next());
        let pid = of.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            && let Err(error) = fs::remove_dir(entry.path())
        {
            tracing::warn!("{}: cannot be removed: {error}", entry.path().display());
        }
    }
}

/// The nearest group of this process in which others with a quota can be made.
fn parent(mounts: &str, groups: &str) -> Option<Parent> {
    let CpuGroup { version, root, folder } = CpuGroup::of(mounts, groups)?;
    if version == CgroupVersion::One {
        return Some(Parent { folder, version });
    }
    let hands_out = |folder: &&Path| {
        let handed = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
        folder.starts_with(&root) && handed.split_whitespace().any(|controller| controller == "cpu")
    };
    let folder = folder.ancestors().find(hands_out)?.to_owned();
    Some(Parent { folder, version })
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

    #[test]
    fn groups_of_version_1_are_made_in_the_controllers_own_tree() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("cpu/mine")).unwrap();
        let at = folder.path().display();
        let mounts = format!(
            "30 24 0:27 / {at}/memory rw,relatime - cgroup cgroup rw,memory\n\
             31 24 0:28 / {at}/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             32 24 0:29 / {at}/unified rw - cgroup2 cgroup2 rw\n"
        );
        let found = parent(&mounts, "4:memory:/other\n1:cpu,cpuacct:/mine\n0::/\n").unwrap();
        assert_eq!(found, Parent { folder: folder.path().join("cpu/mine"), version: CgroupVersion::One });
        let found = parent(&mounts, "1:cpu,cpuacct:/of/the/host\n").unwrap();
        assert_eq!(found.folder, folder.path().join("cpu"));
    }

    #[test]
    fn groups_of_version_2_are_made_where_the_controller_is_handed_out() {
        let folder = tempfile::tempdir().unwrap();
        let leaf = folder.path().join("user/session");
        fs::create_dir_all(&leaf).unwrap();
        let mounts = format!("32 24 0:29 / {} rw - cgroup2 cgroup2 rw\n", folder.path().display());
        assert_eq!(parent(&mounts, "0::/user/session\n"), None);
        fs::write(folder.path().join("cgroup.subtree_control"), "cpuset cpu io\n").unwrap();
        let found = parent(&mounts, "0::/user/session\n").unwrap();
        assert_eq!(found, Parent { folder: folder.path().to_owned(), version: CgroupVersion::Two });
    }
}
