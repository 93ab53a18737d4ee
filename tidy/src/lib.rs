//! Checks that the source tree keeps the rules of the project.
//!
//! Each rule is a pure function from texts to a list of [`Violation`]s, with a test beside it that
//! shows the rule failing on a bad sample. `tests/tidy.rs` runs all rules over the tree, as part of
//! `cargo test`. The crate is not a linter of Rust code: clippy does that, with the lints in the
//! workspace's `Cargo.toml`.
//!
//! ```text
//! tree        reads the files of the tree
//! violation   a broken rule
//!
//! rules about crates
//!   ranks, fence           direction of dependencies; unsafe code only where expected
//!   manifest, dependencies lints of the workspace; reasons for dependencies
//! rules about files
//!   modules, cycles        every file is compiled; no import cycles
//!   names, root, length    names that say something; entries of the root; short enough
//! rules about contents
//!   conversions            numbers that do not fit are clamped by name, or fail
//!   source, lex            unfinished code, ASCII, opening sentences; separates code from comments
//!   width, words, links    columns; names use words of the glossary; links of documents
//! ```
//!
//! Invariants
//! - A rule cannot be switched off. An exception is a line in that rule's table, with its reason.
//! - An exception that is no longer needed is a violation too, so the tables stay true. This does
//!   not apply to the users in `FENCES`, to `ROOT_ENTRIES` and to `UNSAFE_FOLDERS`.
//! - This crate depends on no other crate of the workspace, because the rules apply to all of them.
//!
//! An example: rules over a file that is not finished, and whose name says nothing.
//!
//! ```
//! use rackscan_tidy::{leftovers, missing_opening, vague_name};
//!
//! let (path, text) = ("scan/src/utils.rs", "//! Reads pages.\n\nfn read() {\n    todo!()\n}\n");
//! let found: Vec<String> = leftovers(path, text).iter().map(ToString::to_string).collect();
//! assert_eq!(found, ["scan/src/utils.rs:4: found todo!: write it, or leave the feature out"]);
//! assert!(vague_name(path).is_some_and(|violation| violation.what.contains("\"utils\"")));
//! assert_eq!(missing_opening(path, text), None);
//! ```

#![forbid(unsafe_code)]

mod conversions;
mod cycles;
mod dependencies;
mod fence;
mod length;
mod lex;
mod links;
mod manifest;
mod modules;
mod names;
mod ranks;
mod root;
mod source;
mod tree;
mod violation;
mod width;
mod words;

pub use conversions::silent_conversions;
pub use cycles::import_cycles;
pub use dependencies::unreasoned_dependencies;
pub use fence::{UNSAFE_FOLDERS, missing_forbid, unfenced_unsafe};
pub use length::{DOCUMENT_LENGTHS, LENGTH_MAX, LONG_FILES, LongFile, long_document, too_long};
pub use links::broken_links;
pub use manifest::missing_workspace_lints;
pub use modules::dead_files;
pub use names::vague_name;
pub use ranks::{
    DEV_UPWARD, FENCES, Fence, OUTSIDE_RANKS, Package, RANKS, UpwardUse, outside_fences, packages,
    wrong_direction,
};
pub use root::{ROOT_ENTRIES, is_ignored, unexpected_root_entries};
pub use source::{NON_ASCII_FILES, leftovers, missing_opening, not_ascii};
pub use tree::{Tree, is_rust, is_source};
pub use violation::Violation;
pub use width::{WIDTH_MAX, too_wide};
pub use words::{RETIRED_WORDS, RetiredWord, retired_words};
