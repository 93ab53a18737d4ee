//! Checks that files are short enough to be read in one sitting.
//!
//! A file that is longer than the limit needs an entry with its current length. The length in the
//! entry may only shrink.

use crate::Violation;

/// The maximum number of lines of a Rust source, outside of test modules.
pub const LENGTH_MAX: usize = 500;

/// A file that is longer than [`LENGTH_MAX`].
#[derive(Debug, Clone, Copy)]
pub struct LongFile {
    /// Path from the root of the tree.
    pub path: &'static str,
    /// Its current length.
    pub lines: usize,
    /// Why it has not been split.
    pub reason: &'static str,
}

/// The files that are longer than the limit today.
pub const LONG_FILES: &[LongFile] = &[];

/// Files longer than the limit, files longer than their entry, and entries that are out of date.
pub fn too_long<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    long_files: &[LongFile],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen = Vec::new();
    for (path, text) in files.filter(|(path, _)| !is_test_file(path)) {
        let lines = lines_outside_tests(text);
        let entry = long_files.iter().find(|entry| entry.path == path);
        seen.extend(entry.map(|entry| entry.path));
        let limit = entry.map_or(LENGTH_MAX, |entry| entry.lines);
        let what = if lines > limit {
            format!(
                "{lines} lines outside tests, at most {limit} allowed: divide it into files, one idea each"
            )
        } else if entry.is_some() && lines <= LENGTH_MAX {
            "short enough now: remove its entry from LONG_FILES".to_owned()
        } else if lines < limit && entry.is_some() {
            format!("shrank to {lines} lines: lower its entry in LONG_FILES from {limit}")
        } else {
            continue;
        };
        violations.push(Violation::of(path, what));
    }
    let gone = long_files.iter().filter(|entry| !seen.contains(&entry.path));
    violations
        .extend(gone.map(|entry| Violation::of(entry.path, "is gone: remove its entry from LONG_FILES")));
    violations
}

/// Documents that a reader must be able to finish in one sitting: the beginning of their paths, and
/// the maximum number of lines.
pub const DOCUMENT_LENGTHS: &[(&str, usize)] = &[("README.md", 150), ("docs/decisions/0", 120)];

/// A document with more lines than its kind may have.
pub fn long_document(path: &str, text: &str) -> Option<Violation> {
    let (_, limit) = DOCUMENT_LENGTHS.iter().find(|(prefix, _)| path.starts_with(prefix))?;
    let lines = text.lines().count();
    (lines > *limit)
        .then(|| Violation::of(path, format!("{lines} lines, at most {limit} allowed: shorten it")))
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Lines of the file without its `#[cfg(test)] mod ... { ... }` at the outermost level.
fn lines_outside_tests(text: &str) -> usize {
    let mut count = 0;
    let mut in_tests = false;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let opens = line == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        in_tests |= opens;
        count += usize::from(!in_tests);
        in_tests &= line != "}";
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_documents_are_seen() {
        let text = "a line\n".repeat(121);
        assert!(long_document("docs/decisions/0001-dependencies.md", &text).is_some());
        assert!(
            long_document("README.md", &text).is_none() && long_document("docs/formats.md", &text).is_none()
        );
    }

    const ENTRY: LongFile = LongFile { path: "a/src/b.rs", lines: 600, reason: "a sample" };

    fn check(lines: usize, long_files: &[LongFile]) -> Vec<String> {
        let text = "//\n".repeat(lines);
        too_long([("a/src/b.rs", text.as_str())].into_iter(), long_files)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_file_over_the_limit_is_seen() {
        assert_eq!(check(LENGTH_MAX, &[]), Vec::<String>::new());
        assert_eq!(check(LENGTH_MAX + 1, &[]).len(), 1);
    }

    #[test]
    fn an_entry_may_only_shrink() {
        assert_eq!(check(600, &[ENTRY]), Vec::<String>::new());
        assert!(check(601, &[ENTRY])[0].contains("at most 600"));
        assert!(check(599, &[ENTRY])[0].contains("lower its entry"));
        assert!(check(500, &[ENTRY])[0].contains("remove its entry"));
        assert!(too_long(std::iter::empty(), &[ENTRY])[0].what.contains("is gone"));
    }

    #[test]
    fn test_modules_do_not_count() {
        assert_eq!(lines_outside_tests("a\n#[cfg(test)]\nmod tests {\n    b\n}\nc\n"), 2);
        assert_eq!(lines_outside_tests("a\n#[cfg(test)]\nmod tests;\nc\n"), 4);
    }
}
