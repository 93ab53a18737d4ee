//! Checks that the root folder of the tree contains only the listed entries.

use crate::Violation;

/// Everything that belongs in the root. Any other entry is a leftover until it is listed.
pub const ROOT_ENTRIES: [&str; 33] = [
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "bench",
    "cache",
    "client",
    "cli",
    "clippy.toml",
    "datasets",
    "delta",
    "device",
    "docs",
    "engine",
    "fabric",
    "figures",
    "format",
    "lab",
    "planner",
    "queries",
    "ramp",
    "relay",
    "rustfmt.toml",
    "scan",
    "storage-node",
    "stripe",
    "tests",
    "tidy",
    "trace",
];

/// Returns entries of the root that are not listed.
pub fn unexpected_root_entries<'a>(entries: impl Iterator<Item = &'a str>) -> Vec<Violation> {
    entries
        .filter(|entry| !ROOT_ENTRIES.contains(entry))
        .map(|entry| {
            Violation::of(
                entry,
                "does not belong in the root: move it, remove it, or list it in tidy/src/root.rs",
            )
        })
        .collect()
}

/// Whether `.gitignore` excludes this entry. Only two of git's forms are supported: `/name` for the
/// root, and `*.ext` anywhere.
pub fn is_ignored(gitignore: &str, in_root: bool, name: &str) -> bool {
    gitignore.lines().any(|pattern| match (pattern.strip_prefix('/'), pattern.strip_prefix('*')) {
        (Some(rooted), _) => in_root && rooted == name,
        (_, Some(suffix)) => name.ends_with(suffix),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_in_the_root_is_seen() {
        let found = unexpected_root_entries(["Cargo.toml", "perf.data", "engine"].into_iter());
        assert_eq!(found.iter().map(|v| v.place.as_str()).collect::<Vec<_>>(), ["perf.data"]);
    }

    #[test]
    fn what_git_ignores_is_not_part_of_the_tree() {
        let gitignore = "/target\n*.tmp\n";
        assert!(is_ignored(gitignore, true, "target"));
        assert!(!is_ignored(gitignore, false, "target"));
        assert!(is_ignored(gitignore, false, "a.tmp"));
        assert!(!is_ignored(gitignore, true, "a.rs"));
    }
}
