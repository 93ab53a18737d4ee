//! Measures how much memory this process may use.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, getrlimit};

use crate::cpu_share::{CgroupVersion, ControlGroup};

/// The minimum, in bytes, of: the host's memory, the limit of this process's control group, and the
/// limit of its address space (`ulimit -v`).
///
/// # Errors
/// Files of `/proc` that cannot be read; the error names the file.
pub fn available_memory() -> io::Result<u64> {
    let read = |path: &str| {
        fs::read_to_string(path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
    };
    let total = total_of(&read("/proc/meminfo")?);
    let host = total.ok_or_else(|| io::Error::other("/proc/meminfo: no MemTotal"))?;
    let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
    let group = ControlGroup::of_controller("memory", &mounts, &groups);
    let limits = [group.and_then(|group| limit_of(&group)), getrlimit(Resource::As).current];
    Ok(limits.into_iter().flatten().fold(host, u64::min))
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The minimum of the limits of a group and of those that it is in.
fn limit_of(group: &ControlGroup) -> Option<u64> {
    let file = match group.version {
        CgroupVersion::One => "memory.limit_in_bytes",
        CgroupVersion::Two => "memory.max",
    };
    let folders = group.folder.ancestors().take_while(|folder| folder.starts_with(&group.root));
    let limit = |folder: &Path| -> Option<u64> {
        let path: PathBuf = folder.join(file);
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    folders.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_the_groups_around_a_process_counts() {
        let folder = tempfile::tempdir().unwrap();
        let leaf = folder.path().join("team/job");
        fs::create_dir_all(&leaf).unwrap();
        let group = |version| ControlGroup { version, root: folder.path().to_owned(), folder: leaf.clone() };
        assert_eq!(limit_of(&group(CgroupVersion::Two)), None);
        fs::write(leaf.join("memory.max"), "max\n").unwrap();
        fs::write(folder.path().join("team/memory.max"), "1073741824\n").unwrap();
        assert_eq!(limit_of(&group(CgroupVersion::Two)), Some(1 << 30));
        fs::write(leaf.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        fs::write(folder.path().join("memory.limit_in_bytes"), "536870912\n").unwrap();
        assert_eq!(limit_of(&group(CgroupVersion::One)), Some(512 << 20));
    }

    #[test]
    fn the_memory_of_a_host_is_read_in_kibibytes() {
        assert_eq!(total_of("MemTotal:       24683520 kB\nMemFree: 1 kB\n"), Some(24_683_520 << 10));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
    }
}
