//! Reads the files of the source tree.
//!
//! Paths are relative to the root and use `/`. Entries of the root that `.gitignore` names are not
//! part of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use crate::root::is_ignored;

/// Extensions of the files that people write and the rules read.
const TEXT_EXTENSIONS: [&str; 6] = ["rs", "toml", "md", "sql", "py", "sh"];

/// The files of the tree.
#[derive(Debug)]
pub struct Tree {
    /// Every file and folder.
    pub paths: BTreeSet<String>,
    /// The texts, by path. Bytes that are not UTF-8 read as U+FFFD, which the ASCII rule then
    /// reports.
    pub texts: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the tree under `root`.
    ///
    /// # Errors
    /// The error of the file system for the first folder or file that cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let ignore = fs::read_to_string(root.join(".gitignore"))?;
        let mut tree = Self { paths: BTreeSet::new(), texts: BTreeMap::new() };
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(&folder))? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name == ".git" || is_ignored(&ignore, folder.is_empty(), &name) {
                    continue;
                }
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                if entry.file_type()?.is_dir() {
                    folders.push(path.clone());
                } else if is_text(&path) {
                    let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
                    tree.texts.insert(path.clone(), text);
                }
                tree.paths.insert(path);
            }
        }
        Ok(tree)
    }

    /// The entries of the root itself.
    pub fn root_entries(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str).filter(|path| !path.contains('/'))
    }
}

/// Whether this is a Rust source.
pub fn is_rust(path: &str) -> bool {
    extension(path) == Some("rs")
}

/// Whether this is a source in any language: every text except Markdown.
pub fn is_source(path: &str) -> bool {
    is_text(path) && extension(path) != Some("md")
}

fn is_text(path: &str) -> bool {
    extension(path).is_some_and(|extension| TEXT_EXTENSIONS.contains(&extension)) || path.starts_with(".ci/")
}

fn extension(path: &str) -> Option<&str> {
    Path::new(path).extension().and_then(|extension| extension.to_str())
}
