//! Does the tree keep its own rules?
//!
//! Each rule is a pure function from texts to a list of [`Violation`]s, so that each rule is shown
//! able to fail on a bad sample beside it. `tests/tidy.rs` runs all of them over the tree, as part
//! of `cargo test`.
//!
//! Invariants
//! - A rule has no switch: an exception is a line in that rule's table, with its reason.
//! - An exception that is no longer needed is a violation too, so the tables only hold what is
//!   true.
//! - Nothing here depends on another crate of the workspace: the judge is not a party.

#![forbid(unsafe_code)]

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

pub use cycles::{IMPORT_CYCLES, import_cycles};
pub use dependencies::unreasoned_dependencies;
pub use fence::{UNSAFE_FOLDERS, missing_forbid, unfenced_unsafe};
pub use length::{LENGTH_MAX, LONG_FILES, LongFile, too_long};
pub use links::broken_links;
pub use manifest::missing_workspace_lints;
pub use modules::dead_files;
pub use names::vague_name;
pub use ranks::{
    DEV_UPWARD, FENCES, Fence, OUTSIDE_RANKS, Package, RANKS, Upward, outside_fences, packages,
    wrong_direction,
};
pub use root::{ROOT_ENTRIES, is_ignored, unexpected_root_entries};
pub use source::{NON_ASCII_FILES, leftovers, missing_opening, not_ascii};
pub use tree::{Tree, is_rust, is_source};
pub use violation::Violation;
pub use width::{WIDTH_MAX, too_wide};
pub use words::{RETIRED_WORDS, RetiredWord, retired_words};
