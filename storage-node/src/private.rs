//! Makes a node's files and folders readable by their owner only.
//!
//! Earlier versions created files with the default mode of the system, which everybody can read.
//! The node makes such files private when it starts. (This version creates private files: `rackscan
//! node` sets the umask of its process.)

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use crate::config::Config;

/// A data folder has folders with files.
const DEPTH_MAX: usize = 2;
/// The permission bits of others.
const OTHERS: u32 = 0o077;

/// Removes all permissions of others from the data folder, its content, and device files. Logs what
/// could not be changed.
pub(crate) fn make_private(config: &Config) {
    tighten_all(&config.data_dir, DEPTH_MAX);
    for device in &config.devices {
        // The system manages the permissions of block devices.
        if fs::metadata(&device.path).is_ok_and(|found| found.is_file()) {
            tighten(&device.path);
        }
    }
}

fn tighten_all(path: &Path, depth: usize) {
    tighten(path);
    if depth == 0 {
        return;
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "others may be able to read its files: it could not be listed");
            return;
        }
    };
    for entry in entries.filter_map(Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => tighten_all(&entry.path(), depth - 1),
            Ok(kind) if kind.is_file() => tighten(&entry.path()),
            // Links point elsewhere, and sockets are private already.
            _ => {}
        }
    }
}

fn tighten(path: &Path) {
    let changed = fs::metadata(path).and_then(|found| {
        let mode = found.permissions().mode();
        if mode & OTHERS == 0 {
            return Ok(());
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode & !OTHERS))
    });
    match changed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "others can read it: its mode could not be changed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClusterId, DeviceConfig};
    use rackscan_format::ids::NodeId;

    #[test]
    fn what_an_earlier_version_made_for_everybody_is_its_owners_alone() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        fs::create_dir_all(data.join("maps")).unwrap();
        let paths =
            [data.clone(), data.join("maps"), data.join("maps/00000001"), data.join("transactions.log")];
        fs::write(&paths[2], "map").unwrap();
        fs::write(&paths[3], "log").unwrap();
        let device = root.path().join("device");
        fs::write(&device, "device").unwrap();
        let outside = root.path().join("outside");
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, data.join("link")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for path in paths.iter().chain([&device, &outside]) {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let described = DeviceConfig { path: device.clone(), size: None, reserve: false };
        make_private(&Config::new(NodeId(1), ClusterId(1), data.clone(), described, "key".into()));
        for path in paths.iter().chain([&device]) {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        assert_eq!(mode(&outside), 0o755, "what a link leads to is not the node's");
    }
}
