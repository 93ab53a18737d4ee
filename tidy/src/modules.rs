//! Checks that every Rust source is compiled.
//!
//! A file that no `mod` declaration reaches is never built, so errors in it would stay unnoticed.

use std::collections::{BTreeMap, BTreeSet};

use crate::Violation;
use crate::lex::code_of;
use crate::tree::is_rust;

/// Returns Rust sources that no target reaches. `roots` are the files that cargo builds directly.
pub fn dead_files(roots: &[String], texts: &BTreeMap<String, String>) -> Vec<Violation> {
    let mut reached: BTreeSet<String> = roots.iter().cloned().collect();
    let mut open: Vec<String> = roots.to_vec();
    while let Some(path) = open.pop() {
        let Some(text) = texts.get(&path) else { continue };
        for child in children(&path, text, roots.contains(&path)) {
            if texts.contains_key(&child) && reached.insert(child.clone()) {
                open.push(child);
            }
        }
    }
    let dead = texts.keys().filter(|path| is_rust(path) && !reached.contains(*path));
    dead.map(|path| {
        Violation::of(path, "is not compiled, because no mod declaration reaches it: declare or remove it")
    })
    .collect()
}

/// The possible paths of the modules that this file declares.
fn children(path: &str, text: &str, is_root: bool) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    // The children of a root and of a `mod.rs` are in the same folder; those of another file are in
    // a folder of its name.
    let own_folder = if is_root || name == "mod.rs" {
        folder.to_owned()
    } else {
        format!("{folder}/{}", name.trim_end_matches(".rs"))
    };
    let mut children = Vec::new();
    let mut previous = "";
    for (line, original) in code_of(text).lines().zip(text.lines()) {
        if let Some(module) = declared_module(line) {
            match previous.trim().strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
                Some(given) => children.push(resolve(folder, given)),
                None => children
                    .extend([format!("{own_folder}/{module}.rs"), format!("{own_folder}/{module}/mod.rs")]),
            }
        }
        previous = original;
    }
    children
}

/// The name in `mod name;`, `pub mod name;` or `pub(...) mod name;`.
fn declared_module(line: &str) -> Option<&str> {
    let declaration = line.trim().strip_suffix(';')?;
    let (visibility, name) = declaration.split_once("mod ")?;
    let is_visibility = visibility.is_empty()
        || visibility == "pub "
        || (visibility.starts_with("pub(") && visibility.ends_with(") "));
    is_visibility.then_some(name)
}

/// Resolves the path `given` relative to `folder`, removing `..`.
pub(crate) fn resolve(folder: &str, given: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in given.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        dead_files(&["a/src/lib.rs".to_owned()], &texts).into_iter().map(|v| v.place).collect()
    }

    #[test]
    fn a_file_that_nobody_declares_is_seen() {
        assert_eq!(
            dead(&[("a/src/lib.rs", "mod b;"), ("a/src/b.rs", ""), ("a/src/c.rs", "")]),
            ["a/src/c.rs"]
        );
    }

    #[test]
    fn a_declaration_in_a_comment_does_not_count() {
        assert_eq!(dead(&[("a/src/lib.rs", "// mod b;\n/* mod b; */"), ("a/src/b.rs", "")]), ["a/src/b.rs"]);
    }

    #[test]
    fn nested_modules_are_followed_in_every_spelling() {
        let files = [
            ("a/src/lib.rs", "pub mod b;\npub(crate) mod d;\n#[path = \"../odd/f.rs\"]\nmod f;"),
            ("a/src/b.rs", "mod c;"),
            ("a/src/b/c.rs", ""),
            ("a/src/d/mod.rs", "mod e;"),
            ("a/src/d/e.rs", ""),
            ("a/odd/f.rs", ""),
        ];
        assert_eq!(dead(&files), Vec::<String>::new());
    }

    #[test]
    fn a_child_in_the_wrong_folder_is_seen() {
        let files = [("a/src/lib.rs", "mod b;"), ("a/src/b.rs", "mod c;"), ("a/src/c.rs", "")];
        assert_eq!(dead(&files), ["a/src/c.rs"]);
    }
}
