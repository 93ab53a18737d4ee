//! Checks that `unsafe` occurs only where it is expected and explained.
//!
//! Crates outside [`UNSAFE_FOLDERS`] forbid it. Inside these folders, a file with `unsafe` opens
//! with `#![expect(unsafe_code, reason = "...")]`, so that a reader knows this beforehand.

use crate::Violation;
use crate::lex::{code_of, has_word};

/// The folders that may contain `unsafe`, and why.
pub const UNSAFE_FOLDERS: [(&str, &str); 2] = [
    ("fabric/", "maps memory that another process writes, and hands it to RDMA adapters"),
    ("device/", "hands buffers to the kernel, through io_uring and in system calls"),
];

/// Fails if the root file of a crate outside [`UNSAFE_FOLDERS`] does not forbid unsafe code.
pub fn missing_forbid(root_file: &str, text: &str) -> Option<Violation> {
    let squeezed: String = code_of(text).split_whitespace().collect();
    if may_be_unsafe(root_file) || squeezed.contains("#![forbid(unsafe_code)]") {
        return None;
    }
    Some(Violation::of(
        root_file,
        "found no #![forbid(unsafe_code)]: every crate but fabric and device has it",
    ))
}

/// Fails if a file outside [`UNSAFE_FOLDERS`] has `unsafe`, or one inside has it without announcing
/// it.
pub fn unfenced_unsafe(path: &str, text: &str) -> Option<Violation> {
    let code = code_of(text);
    let line = code.lines().position(|line| has_word(line, "unsafe"))? + 1;
    if !may_be_unsafe(path) {
        return Some(Violation::at(
            path,
            line,
            "found unsafe outside fabric and device: move it behind one of their interfaces",
        ));
    }
    if opens_with_expectation(&code) {
        return None;
    }
    Some(Violation::at(
        path,
        line,
        "found unsafe, but the file does not open with #![expect(unsafe_code, reason = \"...\")]",
    ))
}

fn may_be_unsafe(path: &str) -> bool {
    UNSAFE_FOLDERS.iter().any(|(folder, _)| path.starts_with(folder))
}

/// Whether one of the inner attributes before the first item expects unsafe code.
fn opens_with_expectation(code: &str) -> bool {
    let squeezed: String = code.split_whitespace().collect();
    let mut rest = squeezed.as_str();
    while let Some((attribute, after)) = rest.strip_prefix("#![").and_then(|inner| inner.split_once(']')) {
        if attribute.starts_with("expect(unsafe_code,reason=") {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_does_not_forbid_unsafe_code_is_seen() {
        assert!(missing_forbid("scan/src/lib.rs", "// #![forbid(unsafe_code)]\nmod a;").is_some());
        assert_eq!(missing_forbid("scan/src/lib.rs", "#![forbid(unsafe_code)]\nmod a;"), None);
        assert_eq!(missing_forbid("fabric/src/lib.rs", "mod a;"), None);
    }

    #[test]
    fn unsafe_outside_the_fence_is_seen() {
        let found = unfenced_unsafe(
            "scan/src/run.rs",
            "//! Doc.\n#![expect(unsafe_code, reason = \"r\")]\nunsafe {}",
        );
        assert_eq!(found.and_then(|v| v.line), Some(3));
        assert_eq!(unfenced_unsafe("scan/src/run.rs", "// unsafe\nf(\"unsafe\", unsafe_code);"), None);
    }

    #[test]
    fn unannounced_unsafe_inside_the_fence_is_seen() {
        assert!(unfenced_unsafe("device/src/ring.rs", "fn f() { unsafe {} }").is_some());
        let late = "use a;\n#![expect(unsafe_code, reason = \"r\")]\nunsafe {}";
        assert!(unfenced_unsafe("device/src/ring.rs", late).is_some());
    }

    #[test]
    fn an_announcement_may_span_lines_and_follow_other_attributes() {
        let text =
            "//! Doc.\n#![cfg(unix)]\n#![expect(\n    unsafe_code,\n    reason = \"long\"\n)]\nunsafe {}";
        assert_eq!(unfenced_unsafe("device/src/ring.rs", text), None);
    }
}
