//! Checks that every dependency is used and that `docs/decisions` gives a reason for it.

use std::collections::BTreeSet;

use crate::{Package, Violation};

/// Returns dependencies of the workspace's manifest that no package uses, dependencies that the
/// list of reasons leaves out, and entries of that list that the manifest does not declare. The
/// list names each in the first column of a table: `` | `name` | ``.
pub fn unreasoned_dependencies(
    manifest: &str,
    list_path: &str,
    list: &str,
    packages: &[Package],
) -> Vec<Violation> {
    let declared = declared(manifest);
    let reasoned: BTreeSet<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let used = |name: &str| packages.iter().any(|package| package.uses.iter().any(|(used, _)| used == name));
    let mut violations = Vec::new();
    for name in &declared {
        if !reasoned.contains(name) {
            violations.push(Violation::of(list_path, format!("gives no reason for {name}: add a row")));
        }
        if !used(name) {
            violations.push(Violation::of(
                "Cargo.toml",
                format!("declares {name}, which no crate uses: remove it"),
            ));
        }
    }
    let gone = reasoned.difference(&declared);
    violations.extend(
        gone.map(|name| {
            Violation::of(list_path, format!("explains {name}, which Cargo.toml does not declare"))
        }),
    );
    violations
}

/// The names under `[workspace.dependencies]` that come from outside the workspace.
fn declared(manifest: &str) -> BTreeSet<&str> {
    let section = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    let entries = lines.filter_map(|line| line.split_once(" = "));
    let outside = entries.filter(|(name, value)| !name.starts_with([' ', '#']) && !value.contains("path ="));
    outside.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace.dependencies]\nours = { path = \"ours\" }\n# why\narrow = { version = \"1\", features = [\n    \"a\",\n] }\ntoml = \"1\"\n\n[workspace.lints.rust]\nx = \"deny\"\n";

    fn found(list: &str, uses: &[&str]) -> Vec<String> {
        let uses = uses.iter().map(|name| ((*name).to_owned(), false)).collect();
        let package = Package { name: "ours".to_owned(), uses, roots: Vec::new() };
        unreasoned_dependencies(MANIFEST, "list.md", list, &[package])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_dependency_without_a_reason_a_user_or_a_declaration_is_seen() {
        assert_eq!(found("| `arrow` | 1 |\n| `toml` | 1 |\n", &["arrow", "toml"]), Vec::<String>::new());
        assert!(found("| `arrow` | 1 |\n", &["arrow", "toml"])[0].contains("no reason for toml"));
        assert!(
            found("| `arrow` | 1 |\n| `toml` | 1 |\n", &["arrow"])[0].contains("toml, which no crate uses")
        );
        assert!(
            found("| `arrow` |\n| `toml` |\n| `gone` |\n", &["arrow", "toml"])[0].contains("explains gone")
        );
    }
}
