//! Who uses a data folder now?
//!
//! The file `lock` in the folder is locked (`flock`) by the node that runs over it, and says which
//! process that is.
//!
//! Invariants
//! - At most one node runs over a folder. The kernel gives the lock back when its process ends,
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
/// A node that has just been told to stop, or whose folder somebody looks at, gives the lock back
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
        "{folder}: process {owner} runs a node over this data folder, expected nobody: a data folder has one node. End it \
         (`rackscan cluster stop --node {node}`, or `kill {owner}`), or let this node have another `data_dir`",
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
    /// Its process; `None` while it has not said so yet.
    pub process_id: Option<u32>,
    /// Whether it listens.
    pub is_ready: bool,
}

/// A locked folder; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
    path: PathBuf,
}

impl FolderLock {
    /// Locks a folder that is there.
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
        lock.say(STARTING)?;
        Ok(lock)
    }

    /// The node listens.
    pub(crate) fn ready(&self) -> Result<(), FolderLockError> {
        self.say(READY)
    }

    fn say(&self, state: &str) -> Result<(), FolderLockError> {
        // Of one length and written over what is there, so that whoever reads it meanwhile finds a
        // process, and a full disk is no obstacle.
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
/// A lock that cannot be looked at.
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
