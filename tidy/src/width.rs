//! Checks that comments and documents are narrow enough to be read beside code.
//!
//! Fenced blocks (diagrams and code) and tables are exempt.

use crate::Violation;
use crate::lex::code_and_comments_of;
use crate::tree::is_rust;

/// The maximum number of columns of a comment line or a line of Markdown.
pub const WIDTH_MAX: usize = 100;

/// Returns lines of comments, or of a document, that are wider than [`WIDTH_MAX`].
pub fn too_wide(path: &str, text: &str) -> Vec<Violation> {
    let source = is_rust(path);
    let readable = if source { code_and_comments_of(text) } else { text.to_owned() };
    let mut is_fenced = false;
    let mut violations = Vec::new();
    for (number, line) in (1..).zip(readable.lines()) {
        let Some(words) = (if source { comment(line) } else { Some(line.trim()) }) else {
            is_fenced = false;
            continue;
        };
        let is_fence = words.starts_with("```");
        is_fenced ^= is_fence;
        let columns = line.chars().count();
        // A line without blanks cannot be broken.
        let is_exempt = is_fence || is_fenced || words.starts_with('|') || !words.contains(' ');
        if columns > WIDTH_MAX && !is_exempt {
            let what = format!("{columns} columns, at most {WIDTH_MAX} allowed: divide the line");
            violations.push(Violation::at(path, number, what));
        }
    }
    violations
}

/// The text of a line of Rust that consists of a comment only.
fn comment(line: &str) -> Option<&str> {
    let words = line.trim_start().strip_prefix("//")?;
    Some(words.trim_start_matches(['/', '!']).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_and_paragraphs_are_found_and_pictures_are_not() {
        let wide = "word ".repeat(25);
        let numbers = |path, text: &str| -> Vec<_> {
            too_wide(path, text).into_iter().filter_map(|violation| violation.line).collect()
        };
        let rust = format!("//! ```text\n//! {wide}\n//! ```\n//! {wide}\nlet a = \"{wide}\";\n// {wide}\n");
        assert_eq!(numbers("a/src/lib.rs", &rust), [4, 6]);
        let document = format!("{wide}\n| {wide} |\n```\n{wide}\n```\n{}\n- {wide}\n", "w".repeat(120));
        assert_eq!(numbers("README.md", &document), [1, 7]);
    }
}
