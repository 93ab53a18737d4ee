//! Checks that a source file contains no marks of unfinished work, is ASCII, and opens with a
//! sentence that says what the file does.

use crate::Violation;
use crate::lex::{code_and_comments_of, code_of, has_word};
use crate::tree::is_rust;

/// Marks of unfinished work, in code and comments of any language.
const MARKS: [&str; 4] = ["FIXME", "XXX", "TODO", "HACK"];

/// Macros that stand for missing or forgotten code, and attributes that disable a lint or a test
/// without an end.
const CODE: [(&str, &str); 6] = [
    ("todo!", "write it, or leave the feature out"),
    ("unimplemented!", "write it, or leave the feature out"),
    ("dbg!", "use tracing"),
    ("#[allow(", "use #[expect(lint, reason = \"...\")], which ends when the lint no longer fires"),
    ("#![allow(", "use #![expect(lint, reason = \"...\")], which ends when the lint no longer fires"),
    ("#[ignore", "a test that does not run promises nothing: make it quick, or make it a benchmark"),
];

/// Sources that need characters outside ASCII, and why.
pub const NON_ASCII_FILES: &[(&str, &str)] = &[];

/// Returns marks of unfinished work, and constructs that should not stay.
pub fn leftovers(path: &str, text: &str) -> Vec<Violation> {
    let readable = if is_rust(path) { code_and_comments_of(text) } else { text.to_owned() };
    let mut violations = Vec::new();
    for (number, line) in (1..).zip(readable.lines()) {
        let marks = MARKS.iter().filter(|mark| has_word(line, mark));
        violations
            .extend(marks.map(|mark| {
                Violation::at(path, number, format!("found {mark}: finish it or file an issue"))
            }));
    }
    if is_rust(path) {
        for (number, line) in (1..).zip(code_of(text).lines()) {
            let found = CODE.iter().filter(|(construct, _)| line.contains(construct));
            violations.extend(found.map(|(construct, instead)| {
                Violation::at(path, number, format!("found {construct}: {instead}"))
            }));
        }
    }
    violations
}

/// Returns lines with characters outside ASCII.
pub fn not_ascii(path: &str, text: &str, exceptions: &[(&str, &str)]) -> Vec<Violation> {
    let excepted = exceptions.iter().any(|(exception, _)| *exception == path);
    if excepted && text.is_ascii() {
        return vec![Violation::of(path, "is plain ASCII now: remove its entry from NON_ASCII_FILES")];
    }
    let bad = |line: &str| line.chars().find(|c| !c.is_ascii());
    let lines = (1..).zip(text.lines()).filter_map(|(number, line)| Some((number, bad(line)?)));
    let violations = lines.map(|(number, c)| {
        Violation::at(
            path,
            number,
            format!("found {c:?} (U+{:04X}); sources are ASCII, use an escape", u32::from(c)),
        )
    });
    if excepted { Vec::new() } else { violations.collect() }
}

/// Fails unless a Rust source opens with a `//!` sentence.
pub fn missing_opening(path: &str, text: &str) -> Option<Violation> {
    let opening = text.lines().next().and_then(|line| line.strip_prefix("//! "));
    if opening.is_some_and(|sentence| !sentence.trim().is_empty()) {
        return None;
    }
    Some(Violation::at(path, 1, "does not open with //! and a sentence that says what the file does"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        leftovers(path, text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn marks_of_unfinished_work_are_seen() {
        for mark in MARKS {
            assert_eq!(found("a/src/b.rs", &format!("f();\n// {mark}: later\n")).len(), 1, "{mark}");
            assert_eq!(found("queries/q.sql", &format!("-- {mark}")).len(), 1, "{mark}");
        }
        assert_eq!(found("a/src/b.rs", "let MAXXX = \"FIXME\";"), Vec::<String>::new());
    }

    #[test]
    fn constructs_that_should_not_stay_are_seen() {
        for (construct, _) in CODE {
            assert_eq!(found("a/src/b.rs", &format!("f();\n{construct}x)")).len(), 1, "{construct}");
            assert_eq!(
                found("a/src/b.rs", &format!("// {construct}\nf(\"{construct}\");")).len(),
                0,
                "{construct}"
            );
        }
    }

    #[test]
    fn letters_outside_ascii_are_seen() {
        let text = "f();\nlet x = '\u{e9}';\n";
        assert_eq!(not_ascii("a/src/b.rs", text, &[])[0].line, Some(2));
        assert_eq!(not_ascii("a/src/b.rs", text, &[("a/src/b.rs", "a sample")]), []);
        assert_eq!(not_ascii("a/src/b.rs", "f();", &[("a/src/b.rs", "a sample")]).len(), 1);
    }

    #[test]
    fn a_file_without_an_opening_sentence_is_seen() {
        for text in ["", "use a;", "// Which?", "//!", "//! ", "#![forbid(unsafe_code)]\n//! Which?"] {
            assert!(missing_opening("a/src/b.rs", text).is_some(), "{text}");
        }
        assert_eq!(missing_opening("a/src/b.rs", "//! Which rows?\n"), None);
    }
}
