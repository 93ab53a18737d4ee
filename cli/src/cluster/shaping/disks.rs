//! How slow is the disk of each node? A control group for each of them, in which so many bytes a
//! second go to and come from the block device.
//!
//! All nodes of this host share a disk, which is quicker than processors that all of them share,
//! too. With a disk each that is as slow as told, what they do can be held against it.

use super::groups::{self, Controller, Group};
use rackscan_storage_node::CgroupVersion;
use std::{fs, os::unix::fs::MetadataExt, path::Path};

const CONTROLLER: Controller = Controller { names: ("blkio", "io"), prefix: "rackscan-disks-" };

/// Control groups, one for each node, and the block device on which all of them have their files.
#[derive(Debug)]
pub(crate) struct SlowDisks {
    groups: Vec<Group>,
    /// `major:minor`.
    device: String,
}

impl SlowDisks {
    /// Makes groups for so many nodes, whose devices lie in this folder.
    pub(crate) fn create(nodes: u16, folder: &Path) -> Result<Self, String> {
        Ok(Self { device: disk_of(folder)?, groups: groups::create(CONTROLLER, nodes)? })
    }

    /// Takes processes in, each into a group of its own: again, if some of them were started anew.
    pub(crate) fn hold(&self, pids: &[u32]) -> Result<(), String> {
        groups::hold(&self.groups, pids)
    }

    /// Lets each node read so many megabytes (10^6 bytes) a second, and write as many; all that
    /// there are if `None`.
    pub(crate) fn set(&self, mb_per_s: Option<u32>) -> Result<(), String> {
        let Self { groups, device } = self;
        groups.iter().try_for_each(|group| {
            lines(group.version, device, mb_per_s).iter().try_for_each(|(file, text)| group.write(file, text))
        })
    }
}

/// What is written to which file of a group.
fn lines(version: CgroupVersion, device: &str, mb_per_s: Option<u32>) -> Vec<(&'static str, String)> {
    let bytes = mb_per_s.map(|rate| u64::from(rate) * 1_000_000);
    match version {
        CgroupVersion::One => {
            // 0 is no limit.
            let text = format!("{device} {}", bytes.unwrap_or(0));
            vec![("blkio.throttle.read_bps_device", text.clone()), ("blkio.throttle.write_bps_device", text)]
        }
        CgroupVersion::Two => {
            let rate = bytes.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
            vec![("io.max", format!("{device} rbps={rate} wbps={rate}"))]
        }
    }
}

/// The disk, not its partition, that the files of a folder lie on.
fn disk_of(folder: &Path) -> Result<String, String> {
    let metadata = fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let known = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    if !known.exists() {
        return Err(format!(
            "{}: its filesystem is on no single block device; choose a folder on ext4 or xfs",
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
