//! Checks that the names of files and folders say what they contain.

use crate::Violation;

/// Names without a meaning: whatever is in such a file belongs to an idea that has a name.
const VAGUE: [&str; 9] =
    ["common", "util", "utils", "helper", "helpers", "manager", "managers", "misc", "miscellaneous"];

/// Fails if a folder or file name in this path has no meaning.
pub fn vague_name(path: &str) -> Option<Violation> {
    let vague = path.split('/').map(stem).find(|name| VAGUE.contains(name))?;
    Some(Violation::of(path, format!("the name \"{vague}\" says nothing: name the idea that the file holds")))
}

fn stem(name: &str) -> &str {
    name.split_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_files_and_folders_are_seen() {
        for path in ["scan/src/utils.rs", "engine/tests/common/mod.rs", "client/src/manager.rs"] {
            assert!(vague_name(path).is_some(), "{path}");
        }
        assert_eq!(vague_name("scan/src/selection.rs"), None);
    }
}
