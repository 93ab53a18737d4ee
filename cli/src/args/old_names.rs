//! Warns about old names of commands and options, which are accepted until the next release.

use std::ffi::OsStr;

/// Old options and their new names.
const OPTIONS: [(&str, &str); 1] = [("--away", "--tolerate-unavailable")];

/// Warns about each old option among the words of the command line.
pub(super) fn warn_options<'w>(words: impl Iterator<Item = &'w OsStr>) {
    for word in words {
        let name = word.to_str().map(|word| word.split_once('=').map_or(word, |(name, _)| name));
        if let Some((old, new)) = OPTIONS.into_iter().find(|(old, _)| Some(*old) == name) {
            note!("warning: `{old}` is called `{new}` now; the next release removes the old name");
        }
    }
}

/// Warns that a command was called by its old name.
pub(crate) fn warn_command(old: &str, new: &str) {
    note!("warning: `rackscan {old}` is called `rackscan {new}` now; the next release removes the old name");
}
