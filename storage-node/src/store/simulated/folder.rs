//! Simulates a folder, and determines what remains of it when its node loses power.
//!
//! | not synced | what may remain |
//! |---|---|
//! | the bytes of a file | the bytes before, all new bytes, or a part of the new bytes with holes |
//! | a name that was created, renamed or removed | each such change on its own; a rename happens completely or not at all |
//! | a new folder | nothing of its content |
//!
//! Invariants
//! - A file that was synced has its bytes, under any of the names that remain for it.
//! - A process that is killed while the host keeps its power finds everything that it wrote. That
//!   is still not durable.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use super::{
    super::folder::{Folder, Handle, ITSELF},
    power::{Party, Power},
};

/// What a crash keeps of what was not made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image {
    /// Nothing.
    OnlySynced,
    /// Any part of it.
    AnyPart,
    /// All of it.
    Everything,
    /// Only the process is gone: everything is there, and may be lost later.
    Killed,
}

/// A defect: what a folder or device does not do though it reports success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StorageDefect {
    /// Files are not synced.
    pub(super) files: bool,
    /// Names are not synced.
    pub(super) names: bool,
    /// Devices are not flushed.
    pub(super) devices: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    File(usize),
    Folder,
}

#[derive(Clone, Debug)]
enum Change {
    Given(String, Entry),
    Moved(String, String, Entry),
    Removed(String),
}

type Entries = BTreeMap<String, Entry>;

impl Change {
    fn apply(&self, entries: &mut Entries) {
        match self {
            Self::Given(name, entry) => drop(entries.insert(name.clone(), *entry)),
            Self::Moved(from, to, entry) => {
                // Another change of this name may have been lost or kept by itself.
                if entries.get(from) == Some(entry) {
                    entries.remove(from);
                }
                entries.insert(to.clone(), *entry);
            }
            Self::Removed(name) => drop(entries.remove(name)),
        }
    }
}

/// The names of one folder: those that are durable, and what has changed since.
#[derive(Clone, Debug, Default)]
struct Names {
    durable: Entries,
    changes: Vec<Change>,
}

impl Names {
    fn now(&self) -> Entries {
        let mut now = self.durable.clone();
        self.changes.iter().for_each(|change| change.apply(&mut now));
        now
    }

    fn crash(&mut self, mut is_kept: impl FnMut() -> bool) {
        for change in std::mem::take(&mut self.changes) {
            if is_kept() {
                change.apply(&mut self.durable);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Bytes {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Whether they are the same.
    is_synced: bool,
}

impl Bytes {
    fn sync(&mut self) {
        self.durable.clone_from(&self.now);
        self.is_synced = true;
    }

    fn crash(&mut self, image: Image, random: &mut fastrand::Rng) {
        if self.is_synced {
            return;
        }
        if image == Image::Everything || image == Image::AnyPart && random.u8(..3) == 0 {
            self.durable.clone_from(&self.now);
        } else if image == Image::AnyPart && random.bool() {
            // The length may be there before the bytes are.
            let length = random.usize(..=self.now.len());
            let hole = random.usize(..=length);
            self.durable = self.now[..length].to_vec();
            self.durable[hole..].fill(0);
        }
        self.now.clone_from(&self.durable);
        self.is_synced = true;
    }
}

/// What is in a folder.
#[derive(Clone, Debug)]
pub(super) struct Files {
    bytes: Vec<Bytes>,
    folders: BTreeMap<String, Names>,
}

impl Default for Files {
    fn default() -> Self {
        Self { bytes: Vec::new(), folders: BTreeMap::from([(ITSELF.to_owned(), Names::default())]) }
    }
}

/// A file's folder and its name there.
fn split(file: &str) -> (&str, &str) {
    file.rsplit_once('/').unwrap_or((ITSELF, file))
}

impl Files {
    fn folder(&mut self, folder: &str) -> io::Result<&mut Names> {
        self.folders.get_mut(folder).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn entry(&mut self, file: &str) -> io::Result<Entry> {
        let (folder, name) = split(file);
        self.folder(folder)?.now().get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Loses power.
    pub(super) fn crash(&mut self, image: Image, random: &mut fastrand::Rng) {
        if image == Image::Killed {
            return;
        }
        self.bytes.iter_mut().for_each(|bytes| bytes.crash(image, random));
        for names in self.folders.values_mut() {
            names.crash(|| match image {
                Image::OnlySynced | Image::Killed => false,
                Image::AnyPart => random.bool(),
                Image::Everything => true,
            });
        }
        let left = self.folders[ITSELF].durable.clone();
        self.folders.retain(|folder, _| folder == ITSELF || left.contains_key(folder));
    }
}

type Deed = Box<dyn Fn() + Send>;

/// What other parties do to the node before each step of its folder.
#[derive(Clone, Default)]
pub(super) struct Meanwhile {
    what: Arc<Mutex<Option<Deed>>>,
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what others do")
    }
}

impl Meanwhile {
    /// Sets that action, or none.
    pub(super) fn set(&self, what: Option<Deed>) {
        *self.what.lock().unwrap() = what;
    }
}

/// A folder of a node.
#[derive(Debug)]
pub(super) struct SimFolder {
    node: Party,
    power: Arc<Power>,
    lies: StorageDefect,
    files: Arc<Mutex<Files>>,
    meanwhile: Meanwhile,
}

impl SimFolder {
    pub(super) fn new(node: Party, power: Arc<Power>, lies: StorageDefect, files: Arc<Mutex<Files>>) -> Self {
        Self { node, power, lies, files, meanwhile: Meanwhile::default() }
    }

    /// The place to set what other parties do.
    pub(super) fn meanwhile(&self) -> Meanwhile {
        self.meanwhile.clone()
    }

    fn handle(&self, what: Opened) -> Box<dyn Handle> {
        let (power, files) = (Arc::clone(&self.power), Arc::clone(&self.files));
        let meanwhile = self.meanwhile.clone();
        Box::new(SimHandle { node: self.node, power, lies: self.lies, files, meanwhile, what })
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap()
    }

    fn step(&self) -> io::Result<()> {
        step(&self.power, self.node, &self.meanwhile)
    }
}

fn step(power: &Power, node: Party, meanwhile: &Meanwhile) -> io::Result<()> {
    if let Some(what) = &*meanwhile.what.lock().unwrap() {
        what();
    }
    if power.step(node) { Ok(()) } else { Err(io::Error::other("there is no power")) }
}

struct SimHandle {
    node: Party,
    power: Arc<Power>,
    lies: StorageDefect,
    files: Arc<Mutex<Files>>,
    meanwhile: Meanwhile,
    what: Opened,
}

enum Opened {
    File(usize),
    Folder(String),
}

impl Handle for SimHandle {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        step(&self.power, self.node, &self.meanwhile)?;
        let Opened::File(file) = self.what else { return Err(io::ErrorKind::IsADirectory.into()) };
        let mut files = self.files.lock().unwrap();
        let file = &mut files.bytes[file];
        file.now.extend_from_slice(bytes);
        file.is_synced = false;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        step(&self.power, self.node, &self.meanwhile)?;
        let mut files = self.files.lock().unwrap();
        match &self.what {
            Opened::File(file) if !self.lies.files => files.bytes[*file].sync(),
            Opened::Folder(folder) if !self.lies.names => files.folder(folder)?.crash(|| true),
            _ => {}
        }
        Ok(())
    }
}

impl Folder for SimFolder {
    fn path(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("node {}: {file}", self.node))
    }

    fn read(&self, file: &str) -> io::Result<Vec<u8>> {
        let mut files = self.files();
        match files.entry(file)? {
            Entry::File(at) => Ok(files.bytes[at].now.clone()),
            Entry::Folder => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn create(&self, file: &str) -> io::Result<Box<dyn Handle>> {
        self.step()?;
        let mut files = self.files();
        let at = match files.entry(file) {
            Ok(Entry::File(at)) => at,
            Ok(Entry::Folder) => return Err(io::ErrorKind::IsADirectory.into()),
            Err(_) => {
                let (at, (folder, name)) = (files.bytes.len(), split(file));
                files.folder(folder)?.changes.push(Change::Given(name.to_owned(), Entry::File(at)));
                files.bytes.push(Bytes::default());
                at
            }
        };
        files.bytes[at].now.clear();
        files.bytes[at].is_synced = false;
        drop(files);
        Ok(self.handle(Opened::File(at)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.step()?;
        let mut files = self.files();
        let (entry, (folder, to_name)) = (files.entry(from)?, split(to));
        assert_eq!(split(from).0, folder, "nobody moves a file to another folder");
        let moved = Change::Moved(split(from).1.to_owned(), to_name.to_owned(), entry);
        files.folder(folder)?.changes.push(moved);
        Ok(())
    }

    fn remove(&self, file: &str) -> io::Result<()> {
        self.step()?;
        let mut files = self.files();
        files.entry(file)?;
        let (folder, name) = split(file);
        files.folder(folder)?.changes.push(Change::Removed(name.to_owned()));
        Ok(())
    }

    fn make(&self, folder: &str) -> io::Result<()> {
        let mut files = self.files();
        if files.folders.contains_key(folder) {
            return Ok(());
        }
        self.step()?;
        files.folder(ITSELF)?.changes.push(Change::Given(folder.to_owned(), Entry::Folder));
        files.folders.insert(folder.to_owned(), Names::default());
        Ok(())
    }

    fn open(&self, folder: &str) -> io::Result<Box<dyn Handle>> {
        self.files().folder(folder)?;
        Ok(self.handle(Opened::Folder(folder.to_owned())))
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let now = self.files().folder(folder)?.now();
        let is_file = |(name, entry): (String, Entry)| matches!(entry, Entry::File(_)).then_some(name);
        Ok(now.into_iter().filter_map(is_file).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a file that was replaced with or without syncing what must be, over many
    /// seeds.
    fn left(lies: StorageDefect, image: Image) -> BTreeMap<Option<Vec<u8>>, u32> {
        let mut found = BTreeMap::new();
        for seed in 0..200 {
            let (power, files) = (Arc::new(Power::new(1)), Arc::new(Mutex::new(Files::default())));
            for (at, lies) in [StorageDefect::default(), lies].into_iter().enumerate() {
                let folder = SimFolder::new(0, Arc::clone(&power), lies, Arc::clone(&files));
                let mut file = folder.create("new").unwrap();
                file.write_all(&[u8::try_from(at).unwrap() + 1; 8]).unwrap();
                file.sync().unwrap();
                folder.rename("new", "it").unwrap();
                folder.open(ITSELF).unwrap().sync().unwrap();
            }
            files.lock().unwrap().crash(image, &mut fastrand::Rng::with_seed(seed));
            let folder = SimFolder::new(0, power, lies, files);
            *found.entry(folder.read("it").ok()).or_default() += 1;
        }
        found
    }

    #[test]
    fn a_file_that_was_replaced_in_order_is_there_and_without_a_sync_is_not_always() {
        let all = [Image::OnlySynced, Image::AnyPart, Image::Everything, Image::Killed];
        for image in all {
            assert_eq!(
                left(StorageDefect::default(), image),
                BTreeMap::from([(Some(vec![2; 8]), 200)]),
                "{image:?}"
            );
        }
        let without = |files, names| left(StorageDefect { files, names, devices: false }, Image::AnyPart);
        let old_or_new = without(false, true);
        assert_eq!(old_or_new.keys().cloned().collect::<Vec<_>>(), [Some(vec![1; 8]), Some(vec![2; 8])]);
        let torn = without(true, false);
        assert!(!torn.contains_key(&Some(vec![1; 8])) && torn.len() > 5, "{torn:?}");
        assert!(torn.contains_key(&Some(Vec::new())), "its name may be there before its bytes: {torn:?}");
    }
}
