//! Creates control groups of the kernel for this command, one per node, in cgroup version 1 or 2.
//!
//! Invariants
//! - Only groups that this command created are written to. They are removed when their processes
//!   have ended or left. Groups of killed commands are removed by the next command.

use rackscan_storage_node::{CgroupVersion, ControlGroup};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Maximum time to remove a group: processes leave it shortly after they were waited for.
const REMOVAL_TIME_MAX: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// The controller of the resource to limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Controller {
    /// Its name in version 1 and in version 2.
    pub(super) names: (&'static str, &'static str),
    /// Prefix of the names of this command's groups.
    pub(super) prefix: &'static str,
}

/// One control group.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
    pub(super) version: CgroupVersion,
}

/// The group in which groups can be created.
#[derive(Debug, PartialEq, Eq)]
struct Parent {
    folder: PathBuf,
    version: CgroupVersion,
}

/// Creates `nodes` groups inside of this process's own group.
pub(super) fn create(controller: Controller, nodes: u16) -> Result<Vec<Group>, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
    let Parent { folder, version } = parent(controller, &mounts, &groups).ok_or_else(|| {
        let (old, new) = controller.names;
        format!(
            "found no mounted control groups in which this process may create groups, expected version 1 with the controller {old}, or version 2 with {new}"
        )
    })?;
    remove_left(controller, &folder);
    let one = |node: u16| {
        let folder = folder.join(format!("{}{}-{node}", controller.prefix, std::process::id()));
        fs::create_dir(&folder)
            .map_err(|error| format!("{}: {error} (creating control groups needs root)", folder.display()))?;
        Ok(Group { folder, version })
    };
    (0..nodes).map(one).collect()
}

/// Moves each process into a group of its own.
pub(super) fn hold(groups: &[Group], pids: &[u32]) -> Result<(), String> {
    if pids.len() != groups.len() {
        return Err(format!("{} nodes were started, expected {}", pids.len(), groups.len()));
    }
    groups.iter().zip(pids).try_for_each(|(group, pid)| group.write("cgroup.procs", &pid.to_string()))
}

impl Group {
    /// Writes to one of the group's files.
    pub(super) fn write(&self, file: &str, text: &str) -> Result<(), String> {
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

/// Removes groups of commands that have ended. A group that has processes cannot be removed, and is
/// left.
fn remove_left(controller: Controller, parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let of = name.strip_prefix(controller.prefix).and_then(|rest| rest.split('-').next());
        let pid = of.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
            && let Err(error) = fs::remove_dir(entry.path())
        {
            tracing::warn!("{}: cannot be removed: {error}", entry.path().display());
        }
    }
}

/// The nearest ancestor group of this process in which limited groups can be created.
fn parent(controller: Controller, mounts: &str, groups: &str) -> Option<Parent> {
    let (old, new) = controller.names;
    let ControlGroup { version, root, folder } = ControlGroup::of_controller(old, mounts, groups)?;
    if version == CgroupVersion::One {
        return Some(Parent { folder, version });
    }
    let hands_out = |folder: &&Path| {
        let handed = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
        folder.starts_with(&root) && handed.split_whitespace().any(|controller| controller == new)
    };
    let folder = folder.ancestors().find(hands_out)?.to_owned();
    Some(Parent { folder, version })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Controller = Controller { names: ("cpu", "cpu"), prefix: "test-" };
    const DISKS: Controller = Controller { names: ("blkio", "io"), prefix: "test-" };

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
        let found = parent(CPU, &mounts, "4:memory:/other\n1:cpu,cpuacct:/mine\n0::/\n").unwrap();
        assert_eq!(found, Parent { folder: folder.path().join("cpu/mine"), version: CgroupVersion::One });
        let found = parent(CPU, &mounts, "1:cpu,cpuacct:/of/the/host\n").unwrap();
        assert_eq!(found.folder, folder.path().join("cpu"));
    }

    #[test]
    fn groups_of_version_2_are_made_where_the_controller_is_handed_out() {
        let folder = tempfile::tempdir().unwrap();
        let leaf = folder.path().join("user/session");
        fs::create_dir_all(&leaf).unwrap();
        let mounts = format!("32 24 0:29 / {} rw - cgroup2 cgroup2 rw\n", folder.path().display());
        assert_eq!(parent(CPU, &mounts, "0::/user/session\n"), None);
        fs::write(folder.path().join("cgroup.subtree_control"), "cpuset cpu io\n").unwrap();
        let found = parent(CPU, &mounts, "0::/user/session\n").unwrap();
        assert_eq!(found, Parent { folder: folder.path().to_owned(), version: CgroupVersion::Two });
        assert_eq!(parent(DISKS, &mounts, "0::/user/session\n").unwrap(), found);
        fs::write(folder.path().join("cgroup.subtree_control"), "cpuset cpu\n").unwrap();
        assert_eq!(parent(DISKS, &mounts, "0::/user/session\n"), None);
    }
}
