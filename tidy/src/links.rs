//! Checks that every link in the documents leads to an existing file.

use std::collections::BTreeSet;

use crate::Violation;
use crate::modules::resolve;

/// Returns links of a Markdown text to files that are not in `paths`. Web addresses are not
/// checked.
pub fn broken_links(path: &str, text: &str, paths: &BTreeSet<String>) -> Vec<Violation> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut violations = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let broken = targets(line).filter(|target| !resolves(folder, target, paths));
            violations.extend(broken.map(|target| {
                Violation::at(path, number, format!("links to {target}, which does not exist"))
            }));
        }
    }
    violations
}

/// The targets of the links `[...](...)` in a line, outside of code spans.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let prose = line.split('`').step_by(2);
    prose
        .flat_map(|text| text.split("](").skip(1))
        .filter_map(|after| after.split_once(')'))
        .map(|(target, _)| target)
}

fn resolves(folder: &str, target: &str, paths: &BTreeSet<String>) -> bool {
    let file = target.split('#').next().unwrap_or_default();
    let on_the_web = target.contains("://") || target.starts_with("mailto:");
    on_the_web || file.is_empty() || paths.contains(&resolve(folder, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> usize {
        let paths = ["docs", "docs/STYLE.md", "README.md"].map(str::to_owned).into();
        broken_links("docs/STYLE.md", text, &paths).len()
    }

    #[test]
    fn a_link_to_a_missing_file_is_seen() {
        assert_eq!(broken("See [a](GONE.md) and [b](../README.md), [c](../gone/README.md#x)."), 2);
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        assert_eq!(
            broken("[a](../README.md) [b](STYLE.md#x) [c](#x) [d](https://example.org/) [e](../docs/)"),
            0
        );
    }

    #[test]
    fn code_is_not_a_link() {
        assert_eq!(broken("`[a](GONE.md)`\n```\n[a](GONE.md)\n```\n"), 0);
        assert_eq!(broken("```\n```\n`x` [a](GONE.md)"), 1);
    }
}
