//! Limits the disk of each node: a control group per node caps the bytes per second read from and
//! written to the block device.
//!
//! All nodes of this host share one disk, and the processors they share are slower than it. Giving
//! each node a disk of a known rate makes the disk the limit that measurements can be compared
//! with.

use super::groups::{self, Controller, Group};
use rackscan_storage_node::CgroupVersion;
use std::{fs, os::unix::fs::MetadataExt, path::Path};

const CONTROLLER: Controller = Controller { names: ("blkio", "io"), prefix: "rackscan-disks-" };

/// Control groups, one for each node, and the block device that holds the files of all nodes.
#[derive(Debug)]
pub(crate) struct SlowDisks {
    groups: Vec<Group>,
    /// `major:minor`.
    device: String,
}

impl SlowDisks {
    /// Creates groups for `nodes` nodes, whose devices are in this folder.
    pub(crate) fn create(nodes: u16, folder: &Path) -> Result<Self, String> {
        Ok(Self { device: disk_of(folder)?, groups: groups::create(CONTROLLER, nodes)? })
    }

    /// Moves each process into a group of its own. Call it again after nodes were restarted.
    pub(crate) fn hold(&self, pids: &[u32]) -> Result<(), String> {
        groups::hold(&self.groups, pids)
    }

    /// Limits each node to `mb_per_s` MB (10^6 bytes) per second of reads, and the same of writes;
    /// `None` removes the limit.
    pub(crate) fn set(&self, mb_per_s: Option<u32>) -> Result<(), String> {
        let Self { groups, device } = self;
        groups.iter().try_for_each(|group| {
            lines(group.version, device, mb_per_s).iter().try_for_each(|(file, text)| group.write(file, text))
        })
    }
}

/// The lines to write, each with the file of the group it goes to.
fn lines(version: CgroupVersion, device: &str, mb_per_s: Option<u32>) -> Vec<(&'static str, String)> {
    let bytes = mb_per_s.map(|rate| u64::from(rate) * 1_000_000);
    match version {
        CgroupVersion::One => {
            // 0 means no limit.
            let text = format!("{device} {}", bytes.unwrap_or(0));
            vec![("blkio.throttle.read_bps_device", text.clone()), ("blkio.throttle.write_bps_device", text)]
        }
        CgroupVersion::Two => {
            let rate = bytes.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
            vec![("io.max", format!("{device} rbps={rate} wbps={rate}"))]
        }
    }
}

/// The disk, not its partition, that holds the files of a folder.
fn disk_of(folder: &Path) -> Result<String, String> {
    let metadata = fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let known = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    if !known.exists() {
        return Err(format!(
            "{}: its filesystem is not on a single block device; choose a folder on ext4 or xfs",
            folder.display()
        ));
    }
    let file = if known.join("partition").exists() { known.join("../dev") } else { known.join("dev") };
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_bytes_in_either_direction_and_none_takes_it_back() {
        let one = lines(CgroupVersion::One, "254:0", Some(100));
        assert_eq!(one[0], ("blkio.throttle.read_bps_device", "254:0 100000000".to_owned()));
        assert_eq!(one[1], ("blkio.throttle.write_bps_device", "254:0 100000000".to_owned()));
        assert_eq!(lines(CgroupVersion::One, "8:0", None)[0].1, "8:0 0");
        assert_eq!(lines(CgroupVersion::Two, "8:0", Some(1))[0].1, "8:0 rbps=1000000 wbps=1000000");
        assert_eq!(lines(CgroupVersion::Two, "8:0", None)[0].1, "8:0 rbps=max wbps=max");
    }

    #[test]
    fn a_folder_that_is_on_no_block_device_is_named() {
        assert!(disk_of(Path::new("/proc")).unwrap_err().contains("/proc"));
        assert!(disk_of(Path::new("/no/such/folder")).unwrap_err().contains("/no/such/folder"));
    }
}
