//! Measures how much processor time this process may use.
//!
//! The result is the number of processors that the process may run on, reduced by the quotas of its
//! control group and of the enclosing groups. Clients compare it between nodes when they choose
//! where to run a scan; the number of processors alone does not show a container's quota.
//!
//! Invariants
//! - Quotas may change while the process runs. One thread reads them again, at most once in
//!   [`LOOK_EVERY_MS`].

use az::SaturatingAs;
use rackscan_fabric::allow_spinning;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

/// How old an answer may be, in milliseconds.
const LOOK_EVERY_MS: u64 = 500;

/// The version of control groups: it decides in which files a quota lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
    One,
    /// `cpu.max`.
    Two,
}

/// The control group that a controller counts a process to. The controller is that of processor
/// time, unless the function says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// The version of its files.
    pub version: CgroupVersion,
    /// Where the tree of groups is mounted.
    pub root: PathBuf,
    /// The group's own folder, in the tree.
    pub folder: PathBuf,
}

impl ControlGroup {
    /// This process's group; `None` where control groups are not mounted.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn own() -> io::Result<Option<Self>> {
        let (mounts, groups) =
            (fs::read_to_string("/proc/self/mountinfo")?, fs::read_to_string("/proc/self/cgroup")?);
        Ok(Self::of(&mounts, &groups))
    }

    /// The group of a process with this `mountinfo` and this `cgroup`.
    #[must_use]
    pub fn of(mounts: &str, groups: &str) -> Option<Self> {
        Self::of_controller("cpu", mounts, groups)
    }

    /// The same for the version 1 controller of this name (`cpu`, `blkio`); where that is not
    /// mounted by itself, the group of version 2.
    #[must_use]
    pub fn of_controller(controller: &str, mounts: &str, groups: &str) -> Option<Self> {
        let own = |wanted: &dyn Fn(&str) -> bool| {
            let group = groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                parts.next().filter(|controllers| wanted(controllers)).and(parts.next())
            });
            group.unwrap_or("/").trim_start_matches('/').to_owned()
        };
        let is_its = |list: &str| list.split(',').any(|word| word == controller);
        let mount = |kind: &str, wanted: &dyn Fn(&str) -> bool| {
            mounts.lines().find_map(|line| {
                let (place, source) = line.split_once(" - ")?;
                let mut source = source.split(' ');
                let is_meant = source.next() == Some(kind) && wanted(source.nth(1)?);
                is_meant.then_some(())?;
                place.split(' ').nth(4).map(PathBuf::from)
            })
        };
        let (version, root, group) = match mount("cgroup", &is_its) {
            Some(root) => (CgroupVersion::One, root, own(&is_its)),
            None => (CgroupVersion::Two, mount("cgroup2", &|_| true)?, own(&str::is_empty)),
        };
        let inner = root.join(group);
        // In a container the path may be that of the host.
        let folder = if inner.exists() { inner } else { root.clone() };
        Some(Self { version, root, folder })
    }

    /// Thousandths of a processor that its quota and those of the groups around it allow; `None` if
    /// there is no quota.
    #[must_use]
    pub fn quota_milli(&self) -> Option<u32> {
        let inside = self.folder.ancestors().take_while(|folder| folder.starts_with(&self.root));
        inside.filter_map(|folder| quota_of(self.version, folder)).min()
    }
}

fn quota_of(version: CgroupVersion, folder: &Path) -> Option<u32> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let (quota, period) = match version {
        CgroupVersion::One => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
        CgroupVersion::Two => {
            let both = read("cpu.max")?;
            let (quota, period) = both.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
    };
    // Without a quota there is `-1` or `max`.
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    u32::try_from(quota.saturating_mul(1000).checked_div(period)?).ok()
}

/// The share of this process, cached for [`LOOK_EVERY_MS`].
#[derive(Debug)]
pub(crate) struct CpuShare {
    started: Instant,
    /// Milliseconds since the start until which the cached share is valid.
    good_until: AtomicU64,
    milli: AtomicU32,
}

impl CpuShare {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), good_until: AtomicU64::new(0), milli: AtomicU32::new(look()) }
    }

    /// Thousandths of a processor.
    pub(crate) fn milli(&self) -> u32 {
        let now = self.started.elapsed().as_millis().saturating_as::<u64>();
        let good_until = self.good_until.load(Ordering::Relaxed);
        if now >= good_until {
            let next = now.saturating_add(LOOK_EVERY_MS);
            // The thread that sets the time reads the quotas; others take the old answer meanwhile.
            let is_ours =
                self.good_until.compare_exchange(good_until, next, Ordering::Relaxed, Ordering::Relaxed);
            if is_ours.is_ok() {
                self.milli.store(look(), Ordering::Relaxed);
            }
        }
        self.milli.load(Ordering::Relaxed)
    }
}

/// Reads the present share. With less than one processor, threads sleep instead of polling for
/// work.
fn look() -> u32 {
    let milli = milli_now();
    allow_spinning(milli >= 1000);
    milli
}

fn milli_now() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all = cores.saturating_as::<u32>().saturating_mul(1000);
    let quota = ControlGroup::own().ok().flatten().and_then(|group| group.quota_milli());
    quota.map_or(all, |quota| quota.min(all)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, file: &str, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    #[test]
    fn the_tightest_quota_around_a_group_counts() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("tree");
        let leaf = root.join("pod/container");
        write(&leaf, "cpu.max", "max 100000\n");
        let group = ControlGroup { version: CgroupVersion::Two, root: root.clone(), folder: leaf.clone() };
        assert_eq!(group.quota_milli(), None);
        write(&root.join("pod"), "cpu.max", "25000 100000\n");
        assert_eq!(group.quota_milli(), Some(250));
        write(&leaf, "cpu.max", "150000 100000\n");
        assert_eq!(group.quota_milli(), Some(250));
        // What lies around the tree is none of its groups.
        write(temp.path(), "cpu.max", "1000 100000\n");
        assert_eq!(group.quota_milli(), Some(250));
    }

    #[test]
    fn groups_of_version_1_say_it_in_two_files_and_nonsense_is_no_quota() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().to_owned();
        let group = ControlGroup { version: CgroupVersion::One, root: root.clone(), folder: root.clone() };
        write(&root, "cpu.cfs_period_us", "10000\n");
        for (quota, milli) in [("1000\n", Some(100)), ("-1\n", None), ("?\n", None), ("", None)] {
            write(&root, "cpu.cfs_quota_us", quota);
            assert_eq!(group.quota_milli(), milli, "{quota}");
        }
        write(&root, "cpu.cfs_quota_us", "1000\n");
        write(&root, "cpu.cfs_period_us", "0\n");
        assert_eq!(group.quota_milli(), None);
    }

    #[test]
    fn this_process_may_use_something() {
        assert!(CpuShare::new().milli() > 0);
    }
}
