//! Checks that a failed conversion of a number is named: a value that does not fit is clamped by a
//! method that says so, or it is impossible and panics.

use crate::Violation;
use crate::lex::code_of;

/// Returns conversions whose failure becomes another number (`u16::try_from(x).unwrap_or(..)`),
/// which hides whether that is a clamp or a fault. Tests may do so.
pub fn silent_conversions(path: &str, text: &str) -> Vec<Violation> {
    if path.split('/').any(|folder| folder == "tests") {
        return Vec::new();
    }
    let code = code_of(text);
    let conversions = code.match_indices("::try_from(").chain(code.match_indices(".try_into("));
    let silent = conversions.filter(|(at, name)| {
        let open = at + name.len() - 1;
        let rest = code[end_of_parentheses(&code, open)..].trim_start();
        let rest = rest.strip_prefix(".ok()").map_or(rest, str::trim_start);
        SILENT.iter().any(|silent| rest.starts_with(silent))
    });
    silent
        .map(|(at, _)| {
            let line = 1 + code[..at].matches('\n').count();
            let instead =
                "use az's saturating_as for a clamp, expect(\"why it fits\") for the impossible, or an error";
            Violation::at(path, line, format!("found try_from(..).unwrap_or(..): {instead}"))
        })
        .collect()
}

/// What makes another number of a failed conversion.
const SILENT: [&str; 5] =
    [".unwrap_or(", ".unwrap_or_default(", ".unwrap_or_else(|_|", ".map_or(", ".map_or_else(|_|"];

/// The position behind the parenthesis that closes the one at `open`.
fn end_of_parentheses(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<Option<usize>> {
        silent_conversions(path, text).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn conversions_that_hide_a_failure_are_seen() {
        for silent in [
            "u16::try_from(x).unwrap_or(u16::MAX)",
            "usize::try_from(f(x)).ok().unwrap_or(0)",
            "usize::try_from(\n    f(x),\n)\n.unwrap_or_default()",
            "f(x.try_into().unwrap_or(u64::MAX))",
            "usize::try_from(x).map_or(0, f)",
            "usize::try_from(x).unwrap_or_else(|_| 0)",
        ] {
            assert_eq!(lines("a/src/b.rs", &format!("f();\nlet y = {silent};\n")), [Some(2)], "{silent}");
        }
    }

    #[test]
    fn conversions_that_name_it_are_fine() {
        for named in [
            "x.saturating_as::<u16>()",
            "u16::try_from(x).expect(\"a port\")",
            "u16::try_from(x).map_err(Error::Port)?",
            "u16::try_from(x.unwrap_or(0))",
            "\"u16::try_from(x).unwrap_or(0)\"",
        ] {
            assert_eq!(lines("a/src/b.rs", &format!("let y = {named};\n")), [], "{named}");
        }
        assert_eq!(lines("a/tests/b.rs", "let y = u16::try_from(x).unwrap_or(0);\n"), []);
    }
}
