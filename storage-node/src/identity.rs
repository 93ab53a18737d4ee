//! Identifies a data folder: its node, the nodes of its cluster, and whether it is the newest state
//! of the folder that other nodes know.
//!
//! The file `identity.toml` in the data folder records this. The first start of a node writes it;
//! every start increments the number of starts in it.
//!
//! ```text
//! check          before anything is opened: compare cluster, node, member list and path of the folder,
//!                and refuse a folder that another node has found outdated
//! begin          when the store is open: increment the number of starts, durable before the node listens
//! record_start   record a start of another node, durably: when it connects, and before a part of its log is stored
//! ```
//!
//! Invariants
//! - The member list of a folder (all nodes of the cluster) never changes. Addresses, devices and
//!   the path of the folder may change.
//! - A folder of an earlier version gets its member list once, and only if its tables do not
//!   contradict the list.
//! - A copy of a folder is refused while its original exists, and nothing is written to the copy.

mod error;

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rackscan_format::{
    ids::NodeId,
    message::{FolderIdentity, Refusal, RefusalCode, SeenStart, Start, StartHistory},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    config::{ClusterId, Config},
    durable_file,
    error::StartError,
    folder_lock::{FolderLock, FolderLockError},
    participant::log_files,
};
pub use error::IdentityError;
use error::VERSION;

const NAME: &str = "identity.toml";
const NAME_NEW: &str = "identity.toml.new";
const HEAD: &str =
    "# Which node of which cluster lives in this folder. Written by rackscan: do not change it.\n";

/// A number that TOML's signed integers cannot hold, as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hex(u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |error| D::Error::custom(format!("{text:?} is no hexadecimal number: {error}"));
        u64::from_str_radix(&text, 16).map(Self).map_err(wrong)
    }
}

/// A start of a peer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenText {
    node: NodeId,
    lineage: Hex,
    number: u64,
    id: Hex,
}

/// The file's content as TOML.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    cluster: ClusterId,
    node: NodeId,
    members: Vec<NodeId>,
    /// Drawn anew for a copy that takes the place of its original.
    folder: Hex,
    /// Where the folder was at the last start, and its inode.
    path: String,
    inode: Hex,
    lineage: Hex,
    starts: u64,
    recent: Vec<Hex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outdated: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    seen: Vec<SeenText>,
}

/// The content of a data folder's `identity.toml`.
#[derive(Clone, Debug)]
pub struct IdentityFile {
    folder: PathBuf,
    text: Text,
}

/// Node ids as people write them.
pub(crate) fn listed(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn os(file: &Path, action: &'static str) -> impl Fn(io::Error) -> IdentityError {
    move |source| IdentityError::Os { file: file.to_owned(), action, source }
}

fn random(file: &Path) -> Result<u64, IdentityError> {
    let failed = |error: getrandom::Error| io::Error::other(error.to_string());
    // 0 stands for no number.
    getrandom::u64().map(|number| number.max(1)).map_err(failed).map_err(os(file, "drawing a number"))
}

/// The location of the folder: its path without links, its inode and its device.
fn place(folder: &Path) -> Result<(PathBuf, u64, u64), IdentityError> {
    let path = fs::canonicalize(folder).map_err(os(folder, "looking for it"))?;
    let found = fs::metadata(&path).map_err(os(folder, "looking at it"))?;
    Ok((path, found.ino(), found.dev()))
}

impl IdentityFile {
    /// Reads the file; `None` if the folder does not exist or no node of this version has used it.
    ///
    /// # Errors
    /// A file that cannot be read or does not parse.
    pub fn read(folder: &Path) -> Result<Option<Self>, IdentityError> {
        let file = folder.join(NAME);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(os(&file, "reading it")(source)),
        };
        let damaged = |reason| IdentityError::Damaged { file: file.clone(), reason };
        let text: Text = toml::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if text.version != VERSION {
            return Err(damaged(format!("it has version {}", text.version)));
        }
        Ok(Some(Self { folder: folder.to_owned(), text }))
    }

    /// The random number of this folder. A copy of the folder gets another one when it is used.
    #[must_use]
    pub fn folder_id(&self) -> u64 {
        self.text.folder.0
    }

    /// Why the folder is outdated, if a peer has found that it is.
    #[must_use]
    pub fn outdated(&self) -> Option<&str> {
        self.text.outdated.as_deref()
    }

    /// Whether a node with this configuration may use the folder, whether or not it is outdated.
    ///
    /// # Errors
    /// Names what contradicts the configuration.
    pub fn check(&self, config: &Config) -> Result<(), IdentityError> {
        let file = self.folder.join(NAME);
        let (cluster, node) = (config.cluster, config.node);
        let (found_cluster, found_node) = (self.text.cluster, self.text.node);
        if (found_cluster, found_node) != (cluster, node) {
            return Err(IdentityError::Foreign { file, found_cluster, found_node, cluster, node });
        }
        let told = members_of(config);
        if !told.is_empty() && !self.text.members.is_empty() && told != self.text.members {
            let (found, expected) = (listed(&told), listed(&self.text.members));
            return Err(IdentityError::Members { file, found, expected });
        }
        self.check_place()
    }

    /// Refuses a copy whose original is still there.
    fn check_place(&self) -> Result<(), IdentityError> {
        let (path, inode, device) = place(&self.folder)?;
        let original = PathBuf::from(&self.text.path);
        if original == path {
            return Ok(());
        }
        // The same folder under another name is no copy, and one that cannot be read is no
        // original.
        let is_itself = place(&original).is_ok_and(|(_, other, on)| (other, on) == (inode, device));
        let there = Self::read(&original).ok().flatten();
        let is_original = there.is_some_and(|there| there.text.folder == self.text.folder);
        if is_itself || !is_original {
            return Ok(());
        }
        Err(IdentityError::Copy { folder: path, original })
    }

    /// Makes the file durable.
    fn write(&self) -> Result<(), IdentityError> {
        let file = self.folder.join(NAME);
        let text = toml::to_string(&self.text)
            .map_err(|error| os(&file, "encoding it")(io::Error::other(error.to_string())))?;
        let text = [HEAD, &text].concat();
        durable_file::replace(&self.folder, NAME_NEW, NAME, text.as_bytes())
            .map_err(os(&file, "replacing it"))
    }

    /// What clients and peers are told of the folder.
    pub(crate) fn told(&self) -> FolderIdentity {
        let Text { members, folder, lineage, starts, recent, seen, .. } = &self.text;
        let recent = recent.iter().map(|id| id.0).collect();
        let seen = seen.iter().map(|seen| SeenStart {
            node: seen.node,
            start: Start { lineage: seen.lineage.0, number: seen.number, id: seen.id.0 },
        });
        FolderIdentity {
            members: members.clone(),
            folder: folder.0,
            history: StartHistory { lineage: lineage.0, number: *starts, recent },
            seen: seen.collect(),
        }
    }

    /// Records the start over which a peer runs. Returns whether that is new; if so, it is durable.
    pub(crate) fn record_start(&mut self, node: NodeId, start: Start) -> Result<bool, IdentityError> {
        let Start { lineage, number, id } = start;
        let seen = SeenText { node, lineage: Hex(lineage), number, id: Hex(id) };
        let known = self.text.seen.iter_mut().find(|known| known.node == node);
        match known {
            Some(known) if (known.lineage, known.number, known.id) == (seen.lineage, number, seen.id) => {
                return Ok(false);
            }
            Some(known) => *known = seen,
            None => self.text.seen.push(seen),
        }
        self.write().map(|()| true)
    }

    /// Records that a peer knows a newer state: the next start is refused.
    pub(crate) fn mark_outdated(&mut self, reason: &str) -> Result<(), IdentityError> {
        self.text.outdated = Some(reason.to_owned());
        self.write()
    }
}

/// The member list that a configuration gives, ascending.
fn members_of(config: &Config) -> Vec<NodeId> {
    let mut members = config.members.clone();
    members.sort_unstable();
    members.dedup();
    members
}

/// The identity of a running node's folder, which it holds.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Locked while a thread that has met a peer writes it.
    file: Mutex<IdentityFile>,
    /// The durable content of the file: reactors answer with it without waiting for a disk.
    told: Mutex<FolderIdentity>,
    lock: FolderLock,
}

impl Identity {
    pub(crate) fn new(file: IdentityFile, lock: FolderLock) -> Self {
        Self { told: Mutex::new(file.told()), file: Mutex::new(file), lock }
    }

    /// Records that the node listens.
    pub(crate) fn ready(&self) -> Result<(), FolderLockError> {
        self.lock.ready()
    }

    /// What clients and peers are told of the folder.
    pub(crate) fn told(&self) -> FolderIdentity {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Compares the starts that this node and a peer have recorded of each other, and records the
    /// peer's newest start.
    pub(crate) fn compare(
        &self,
        peer: NodeId,
        told: &FolderIdentity,
    ) -> Result<FolderComparison, IdentityError> {
        let mut file = self.file();
        let here = file.told();
        if let Some(seen) = told.seen_of(file.text.node).filter(|seen| here.history.lacks(seen)) {
            let (starts, number) = (here.history.number, seen.number);
            let reason = format!(
                "this is start {starts} of the folder, and node {peer} has seen another start {number} that the folder does not record"
            );
            file.mark_outdated(&reason)?;
            let (folder, node) = (file.folder.clone(), file.text.node);
            return Ok(FolderComparison::OutdatedHere(
                IdentityError::Outdated { folder, reason, node }.to_string(),
            ));
        }
        if here.seen_of(peer).is_some_and(|seen| told.history.lacks(&seen)) {
            return Ok(FolderComparison::Outdated(format!(
                "its data folder is outdated: `rackscan rebuild {peer}` brings it up to date"
            )));
        }
        if let Some(start) = told.history.last() {
            file.record_start(peer, start)?;
            self.tell(&file);
        }
        Ok(FolderComparison::Current)
    }

    /// Records, durably, over which start of its folder a peer writes to this node. If the peer's
    /// folder is restored to an older state later, this node notices.
    ///
    /// # Errors
    /// The peer's folder is older than the one that this node has seen, or the disk failed.
    pub(crate) fn record_served(&self, peer: NodeId, start: Start) -> Result<(), Refusal> {
        if start.lineage == 0 {
            return Ok(());
        }
        let mut file = self.file();
        let seen = file.told().seen_of(peer).filter(|seen| seen.lineage == start.lineage);
        if let Some(seen) = seen
            && (seen.number > start.number || seen.number == start.number && seen.id != start.id)
        {
            let text = format!(
                "node {peer} writes over start {} of its folder, and another start {} was seen here: its data \
                 folder is outdated; `rackscan rebuild {peer}` brings it up to date",
                start.number, seen.number
            );
            return Err(Refusal::new(RefusalCode::Replaced, text));
        }
        let saw = file.record_start(peer, start);
        saw.map_err(|error| Refusal::new(RefusalCode::Storage, error.to_string()))?;
        self.tell(&file);
        Ok(())
    }

    fn tell(&self, file: &IdentityFile) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = file.told();
    }

    fn file(&self) -> MutexGuard<'_, IdentityFile> {
        // A thread that panicked while it held the lock has changed a number at most, or stopped
        // the node.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of comparing this node's folder with a peer's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FolderComparison {
    /// Neither is outdated.
    Current,
    /// The peer's folder is outdated.
    Outdated(String),
    /// This node's folder is outdated, and is marked so.
    OutdatedHere(String),
}

/// Makes an outdated data folder usable again: its tables stay, and its log of transactions is put
/// aside, so that the node fetches the newer one from its replicas. False if the folder is not
/// outdated.
///
/// # Errors
/// A folder that is in use or belongs to another node, and errors of the system.
pub fn renew_outdated(config: &Config) -> Result<bool, StartError> {
    let folder = &config.data_dir;
    let is_outdated = |found: &IdentityFile| found.outdated().is_some();
    if !IdentityFile::read(folder)?.as_ref().is_some_and(is_outdated) {
        return Ok(false);
    }
    let _lock = FolderLock::take(folder, config.node)?;
    let Some(mut found) = IdentityFile::read(folder)?.filter(is_outdated) else { return Ok(false) };
    found.check(config)?;
    let [log, _] = log_files(config);
    match fs::rename(&log, log.with_extension("log.outdated")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        put => put.map_err(os(&log, "putting it aside"))?,
    }
    let text = &mut found.text;
    (text.lineage, text.starts, text.outdated) = (Hex(random(&log)?), 0, None);
    text.recent.clear();
    found.write()?;
    Ok(true)
}

/// A start over a data folder whose identity matches the configuration.
pub(crate) struct FolderStart {
    found: Option<IdentityFile>,
}

impl FolderStart {
    /// Reads the folder's identity and compares it with the configuration. Nothing is written.
    pub(crate) fn check(config: &Config) -> Result<Self, IdentityError> {
        let found = IdentityFile::read(&config.data_dir)?;
        if let Some(found) = &found {
            found.check(config)?;
            if let Some(reason) = found.outdated() {
                let (folder, reason) = (config.data_dir.clone(), reason.to_owned());
                return Err(IdentityError::Outdated { folder, reason, node: config.node });
            }
        }
        Ok(Self { found })
    }

    /// Counts this start and makes the new content durable. `tables` are the nodes of each table in
    /// the folder.
    pub(crate) fn begin(
        self,
        config: &Config,
        tables: &[Vec<NodeId>],
    ) -> Result<IdentityFile, IdentityError> {
        let folder = config.data_dir.clone();
        let file = folder.join(NAME);
        let (path, inode, _) = place(&folder)?;
        let (path, inode) = (path.display().to_string(), Hex(inode));
        let mut identity = match self.found {
            Some(found) => found,
            None => IdentityFile {
                folder,
                text: Text {
                    version: VERSION,
                    cluster: config.cluster,
                    node: config.node,
                    members: Vec::new(),
                    folder: Hex(random(&file)?),
                    path: path.clone(),
                    inode,
                    lineage: Hex(random(&file)?),
                    starts: 0,
                    recent: Vec::new(),
                    outdated: None,
                    seen: Vec::new(),
                },
            },
        };
        let text = &mut identity.text;
        if text.members.is_empty() {
            text.members = adopted(config, tables)?;
        }
        if text.inode != inode {
            tracing::warn!(
                before = text.path,
                now = path,
                "the data folder was restored or moved: it gets a new number"
            );
            text.folder = Hex(random(&file)?);
        }
        (text.path, text.inode) = (path, inode);
        let mut history = identity.told().history;
        history.begin(random(&file)?);
        (identity.text.starts, identity.text.recent) =
            (history.number, history.recent.into_iter().map(Hex).collect());
        identity.write()?;
        Ok(identity)
    }
}

/// The member list of a folder that records none, if its tables do not contradict the
/// configuration.
fn adopted(config: &Config, tables: &[Vec<NodeId>]) -> Result<Vec<NodeId>, IdentityError> {
    let members = members_of(config);
    let sorted = |nodes: &Vec<NodeId>| {
        let mut nodes = nodes.clone();
        nodes.sort_unstable();
        nodes
    };
    let tables: Vec<Vec<NodeId>> = tables.iter().map(sorted).collect();
    // Tables that were loaded before the cluster grew have fewer nodes. The largest must have all
    // members, and no table may have others.
    let Some(largest) = tables.iter().max_by_key(|nodes| nodes.len()) else { return Ok(members) };
    let is_within = tables.iter().flatten().all(|node| members.contains(node));
    if members.is_empty() || (is_within && *largest == members) {
        return Ok(members);
    }
    let (found, expected) = (listed(&members), listed(largest));
    Err(IdentityError::Adoption { folder: config.data_dir.clone(), found, expected })
}

#[cfg(test)]
mod tests;
