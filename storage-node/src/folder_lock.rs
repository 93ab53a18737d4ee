//! Locks a data folder for one node, and reports which process holds the lock.
//!
//! The node that uses a folder locks (`flock`) the file `lock` in it, and writes its process id
//! into the file.
//!
//! Invariants
//! - At most one node uses a folder. The kernel releases the lock when the node's process ends,
//!   however it ends.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rackscan_format::ids::NodeId;

const NAME: &str = "lock";
const READY: &str = "ready";
const STARTING: &str = "starting";
/// A node that was just told to stop, or a process that only inspects the folder, releases the lock
/// within this time.
const WAIT_MAX: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_millis(10);

/// Why a folder cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum FolderLockError {
    /// The system refused.
    #[error("{file}: {action} failed: {source}", file = file.display())]
    Os {
        /// The lock's file.
        file: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "{folder}: process {owner} already runs a node over this data folder, and a data folder has one node: end that process \
         (`rackscan cluster stop --node {node}`, or `kill {owner}`), or give this node another `data_dir`",
        folder = folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process, or "?".
        owner: String,
        /// The node that was to start.
        node: NodeId,
    },
}

/// The node that runs over a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderOwner {
    /// Its process id; `None` until it has written it.
    pub process_id: Option<u32>,
    /// Whether it listens.
    pub is_ready: bool,
}

/// A locked folder. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
    path: PathBuf,
}

impl FolderLock {
    /// Locks an existing folder. Waits up to [`WAIT_MAX`] for its present owner.
    pub(crate) fn take(folder: &Path, node: NodeId) -> Result<Self, FolderLockError> {
        let path = folder.join(NAME);
        let os = |action| {
            let file = path.clone();
            move |source| FolderLockError::Os { file, action, source }
        };
        let opened =
            File::options().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
        let file = opened.map_err(os("opening it"))?;
        let until = Instant::now() + WAIT_MAX;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(WAIT_STEP),
                Err(TryLockError::WouldBlock) => {
                    let owner = read(&file).process_id;
                    let owner = owner.map_or_else(|| "?".to_owned(), |owner| owner.to_string());
                    return Err(FolderLockError::InUse { folder: folder.to_owned(), owner, node });
                }
                Err(TryLockError::Error(source)) => return Err(os("locking it")(source)),
            }
        }
        let lock = Self { file, path };
        lock.write_state(STARTING)?;
        Ok(lock)
    }

    /// The node listens.
    pub(crate) fn ready(&self) -> Result<(), FolderLockError> {
        self.write_state(READY)
    }

    fn write_state(&self, state: &str) -> Result<(), FolderLockError> {
        // The text has one length and overwrites what is there, so that a concurrent reader always
        // finds a process id, and a full disk is no obstacle.
        let text = format!("{:10} {state:8}\n", std::process::id());
        let mut file = &self.file;
        let said = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(text.as_bytes()));
        let path = self.path.clone();
        said.map_err(|source| FolderLockError::Os { file: path, action: "writing it", source })
    }
}

fn read(mut file: &File) -> FolderOwner {
    let mut text = String::new();
    let found = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    let mut words = text.split_whitespace();
    let process_id = found.ok().and_then(|_| words.next()?.parse().ok());
    FolderOwner { process_id, is_ready: words.next() == Some(READY) }
}

/// The node that runs over a folder of this host; `None` if there is none.
///
/// # Errors
/// The lock's file cannot be opened or queried.
pub fn folder_owner(folder: &Path) -> Result<Option<FolderOwner>, FolderLockError> {
    let path = folder.join(NAME);
    let os = |action| {
        let file = path.clone();
        move |source| FolderLockError::Os { file, action, source }
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(os("opening it")(source)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(read(&file))),
        Err(TryLockError::Error(source)) => Err(os("looking at it")(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_who_is_known_and_it_is_free_when_he_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(folder_owner(folder.path()).unwrap(), None);
        let lock = FolderLock::take(folder.path(), NodeId(3)).unwrap();
        let process_id = Some(std::process::id());
        assert_eq!(folder_owner(folder.path()).unwrap(), Some(FolderOwner { process_id, is_ready: false }));
        lock.ready().unwrap();
        assert_eq!(folder_owner(folder.path()).unwrap(), Some(FolderOwner { process_id, is_ready: true }));
        let error = FolderLock::take(folder.path(), NodeId(3)).unwrap_err().to_string();
        let own = std::process::id().to_string();
        assert!(error.contains(&own) && error.contains("cluster stop --node 3"), "{error}");
        drop(lock);
        assert_eq!(folder_owner(folder.path()).unwrap(), None);
        FolderLock::take(folder.path(), NodeId(3)).unwrap();
    }
}
