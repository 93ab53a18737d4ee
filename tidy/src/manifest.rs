//! Checks that every crate inherits the lints of the workspace.

use crate::Violation;

/// Fails unless the manifest says `[lints] workspace = true`.
pub fn missing_workspace_lints(path: &str, text: &str) -> Option<Violation> {
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[lints]" && line.replace(' ', "") == "workspace=true" {
            return None;
        }
    }
    Some(Violation::of(
        path,
        "found no \"workspace = true\" under [lints]: every crate keeps the workspace's lints",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_without_the_workspace_lints_is_seen() {
        assert!(missing_workspace_lints("a/Cargo.toml", "[package]\nname = \"a\"\n").is_some());
        assert!(missing_workspace_lints("a/Cargo.toml", "[dependencies]\nworkspace = true\n").is_some());
        assert!(missing_workspace_lints("a/Cargo.toml", "[lints]\n# workspace = true\n").is_some());
        assert_eq!(missing_workspace_lints("a/Cargo.toml", "[lints]\nworkspace = true\n"), None);
    }
}
