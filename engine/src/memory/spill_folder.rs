//! Creates and removes the folder in which the queries of an engine write data that does not fit
//! into memory.
//!
//! The folder is removed with the engine. A killed process leaves its folder behind. The next
//! engine with the same parent folder finds that the folder is not locked, and removes it.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

const LOCK: &str = "lock";
const PREFIX: &str = "engine-";

/// How many names are tried.
const ATTEMPTS_MAX: u32 = 100;
/// Making a folder and its lock takes less than this.
const MAKING_TIME_MAX: Duration = Duration::from_secs(60);

/// Numbers the folders of engines in one process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The folder, held by a lock.
#[derive(Debug)]
pub(super) struct SpillFolder {
    path: PathBuf,
    _lock: File,
}

impl SpillFolder {
    /// Makes a folder in `parent`, which is made if it is missing.
    pub(super) fn make(parent: &Path) -> io::Result<Self> {
        private().recursive(true).create(parent)?;
        remove_left(parent);
        for _ in 0..ATTEMPTS_MAX {
            let name = format!("{PREFIX}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
            let path = parent.join(name);
            match private().create(&path) {
                Ok(()) => {}
                // The folder belongs to a process with the same number, on another host or earlier.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            let lock = File::options().write(true).create_new(true).mode(0o600).open(path.join(LOCK))?;
            lock.lock()?;
            // Another engine may have removed it as left behind before it was locked.
            if path.join(LOCK).exists() {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!("{}: cannot be removed: {error}", self.path.display());
        }
    }
}

/// Only the user may read the rows in it.
fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Removes the folders of dead processes. One that cannot be removed is left to the next engine.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if is_ours
            && is_left(&path)
            && let Err(error) = fs::remove_dir_all(&path)
        {
            tracing::debug!("{}: cannot be removed: {error}", path.display());
        }
    }
}

/// Whether a folder is not in use.
fn is_left(path: &Path) -> bool {
    match File::open(path.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        // Without a lock file it is being made or removed at this time, unless it is old.
        Err(_) => {
            let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > MAKING_TIME_MAX))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_left_is_removed_and_what_another_uses_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("engine-1-0");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        fs::write(left.join("rows"), "rows").unwrap();
        let not_ours = parent.path().join("notes");
        fs::create_dir(&not_ours).unwrap();
        let taken =
            parent.path().join(format!("{PREFIX}{}-{}", std::process::id(), NUMBER.load(Ordering::Relaxed)));
        fs::create_dir(&taken).unwrap();
        let used = SpillFolder::make(parent.path()).unwrap();
        assert!(!left.exists() && not_ours.exists() && taken.exists());
        let another = SpillFolder::make(parent.path()).unwrap();
        assert!(used.path().exists() && another.path() != used.path());
        let path = another.path().to_owned();
        drop(another);
        assert!(!path.exists() && used.path().exists());
    }
}
