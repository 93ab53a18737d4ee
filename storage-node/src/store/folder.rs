//! Defines the operations on the store's files beside its devices.
//!
//! This is the interface between the logic of files (`catalog_file`, `maps`, `scratch`) and the
//! filesystem: that of the host, or a simulated one that loses in a crash what was not made durable
//! (`simulated`).
//!
//! Invariants
//! - File names are relative to the folder. The writer of a file decides when its content is made
//!   durable, and when its name is.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::error::CatalogFileError;
use crate::config::Config;

/// The name of the folder itself.
pub(super) const ITSELF: &str = "";

/// An open file or folder.
pub(crate) trait Handle {
    /// Appends bytes.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the content durable; of a folder, the names in it.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder with files and folders.
pub(crate) trait Folder: fmt::Debug + Send + Sync {
    /// The path of a file, for messages.
    fn path(&self, file: &str) -> PathBuf;
    /// Reads a whole file.
    fn read(&self, file: &str) -> io::Result<Vec<u8>>;
    /// Creates an empty file, replacing any other.
    fn create(&self, file: &str) -> io::Result<Box<dyn Handle>>;
    /// Renames a file, replacing any other.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, file: &str) -> io::Result<()>;
    /// Makes a folder, unless it exists.
    fn make(&self, folder: &str) -> io::Result<()>;
    /// Opens a folder, to make its names durable.
    fn open(&self, folder: &str) -> io::Result<Box<dyn Handle>>;
    /// The names in a folder.
    fn names(&self, folder: &str) -> io::Result<Vec<String>>;
}

/// A folder of the host.
#[derive(Debug)]
pub(super) struct HostFolder {
    path: PathBuf,
}

impl HostFolder {
    /// Makes the folder if it does not exist, and checks that its content is durable, unless it is
    /// volatile on purpose.
    pub(super) fn of(config: &Config) -> Result<Self, CatalogFileError> {
        let path = &config.data_dir;
        if config.volatile {
            tracing::warn!(folder = %path.display(), "the data folder is volatile: what is stored here is lost with the host");
            let os =
                |source| CatalogFileError::Os { file: path.clone(), action: "making the folder", source };
            make_durably(path).map_err(os)?;
            return Ok(Self { path: path.clone() });
        }
        Self::at(path)
    }

    /// Makes the folder if it does not exist, and checks that its content is durable.
    pub(super) fn at(path: &Path) -> Result<Self, CatalogFileError> {
        let os = |action| move |source| CatalogFileError::Os { file: path.to_owned(), action, source };
        make_durably(path).map_err(os("making the folder"))?;
        match rackscan_device::memory_filesystem(path).map_err(os("statfs"))? {
            Some(filesystem) => Err(CatalogFileError::MemoryOnly { folder: path.to_owned(), filesystem }),
            None => Ok(Self { path: path.to_owned() }),
        }
    }
}

/// Makes a folder and its parents, unless they exist, durably.
pub(crate) fn make_durably(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new(""));
    make_durably(parent)?;
    match fs::create_dir(path) {
        // Another process made it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    File::open(parent)?.sync_all()
}

impl Handle for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Folder for HostFolder {
    fn path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    fn read(&self, file: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(file))
    }

    fn create(&self, file: &str) -> io::Result<Box<dyn Handle>> {
        Ok(Box::new(File::create(self.path(file))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, file: &str) -> io::Result<()> {
        fs::remove_file(self.path(file))
    }

    fn make(&self, folder: &str) -> io::Result<()> {
        fs::create_dir_all(self.path(folder))
    }

    fn open(&self, folder: &str) -> io::Result<Box<dyn Handle>> {
        Ok(Box::new(File::open(self.path(folder))?))
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.path(folder))?.filter_map(Result::ok);
        Ok(entries.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_with_those_above_them_and_a_file_in_the_way_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        make_durably(&deep).unwrap();
        make_durably(&deep).unwrap();
        assert!(deep.is_dir());
        fs::write(deep.join("file"), b"").unwrap();
        assert!(make_durably(&deep.join("file")).is_err());
        assert!(make_durably(&deep.join("file/d")).is_err());
    }

    #[test]
    fn a_folder_in_memory_is_refused_with_the_way_out() {
        let folder = tempfile::TempDir::new_in("/dev/shm").unwrap();
        let error = HostFolder::at(folder.path()).unwrap_err().to_string();
        assert!(error.contains("tmpfs") && error.contains("ext4"), "{error}");
    }
}
