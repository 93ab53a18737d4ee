//! Finds import cycles: files of one crate that use each other's items in a circle.
//!
//! Without cycles, a reader can read each file once, after the files that it uses. Re-exports (`pub
//! use`) are interfaces and do not count as uses: a name is traced to the file that declares it.
//! Test modules may use any file.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use crate::Violation;
use crate::lex::code_of;

/// Crates that have files in import cycles.
pub fn import_cycles<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str, String)>> = BTreeMap::new();
    for (path, text) in files {
        let Some((folder, file)) = path.split_once("/src/") else { continue };
        if !file.starts_with("bin/") {
            crates.entry(folder).or_default().push((path, file, code_of(text)));
        }
    }
    crates.iter().filter_map(|(folder, files)| judge(folder, files)).collect()
}

fn judge(folder: &str, files: &[(&str, &str, String)]) -> Option<Violation> {
    let modules = Modules::of(files);
    let uses: BTreeMap<&Path, BTreeSet<Path>> =
        modules.files.keys().map(|module| (module, modules.used_by(module))).collect();
    let circles: Vec<Vec<&Path>> = uses.keys().filter_map(|module| shortest_circle(module, &uses)).collect();
    let example = circles.iter().min_by_key(|circle| circle.len())?;
    let path = |module: &Path| modules.files.get(module).map_or("", |file| file.path);
    let names: Vec<&str> = example.iter().map(|module| path(module)).collect();
    let what = format!(
        "{} files in import cycles, such as {}: move what both use into a file below them",
        circles.len(),
        names.join(" -> ")
    );
    Some(Violation::of(folder, what))
}

/// The names of modules from the crate's root down; empty for the root.
type Path<'a> = Vec<&'a str>;

struct File<'a> {
    path: &'a str,
    uses: Vec<Path<'a>>,
    /// What the file re-exports: the name, and the path as written.
    exports: BTreeMap<&'a str, Path<'a>>,
    test_modules: Vec<&'a str>,
}

struct Modules<'a> {
    files: BTreeMap<Path<'a>, File<'a>>,
}

impl<'a> Modules<'a> {
    fn of(files: &'a [(&'a str, &'a str, String)]) -> Self {
        let parsed = files.iter().map(|(path, file, code)| (module_of(file), parse(path, code)));
        let mut files: BTreeMap<Path, File> = parsed.collect();
        let tests: Vec<Path> = files
            .iter()
            .flat_map(|(module, file)| {
                file.test_modules.iter().map(|name| [module.as_slice(), &[name]].concat())
            })
            .collect();
        files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Self { files }
    }

    /// The other modules whose items this one names.
    fn used_by(&self, module: &Path<'a>) -> BTreeSet<Path<'a>> {
        let Some(file) = self.files.get(module) else { return BTreeSet::new() };
        let absolute = file.uses.iter().filter_map(|path| self.absolute(module, path));
        absolute.map(|path| self.declaring(path)).filter(|used| used != module).collect()
    }

    /// The path from the crate's root, unless it leads into another crate.
    fn absolute(&self, module: &[&'a str], path: &[&'a str]) -> Option<Path<'a>> {
        match path {
            ["crate", rest @ ..] => Some(rest.to_vec()),
            ["self", rest @ ..] => Some([module, rest].concat()),
            ["super", rest @ ..] => {
                let (_, parent) = module.split_last()?;
                if rest.first() == Some(&"super") {
                    return self.absolute(parent, rest);
                }
                Some([parent, rest].concat())
            }
            [first, ..] => {
                let is_child = self.files.contains_key([module, &[*first]].concat().as_slice());
                is_child.then(|| [module, path].concat())
            }
            [] => None,
        }
    }

    /// The module that declares what an absolute path names, through any re-exports.
    fn declaring(&self, mut path: Path<'a>) -> Path<'a> {
        // A chain of re-exports is at most as long as there are files.
        for _ in 0..=self.files.len() {
            let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length]));
            let (module, rest) = path.split_at(length.unwrap_or_default());
            let file = self.files.get(module);
            let exported = rest.first().and_then(|name| file.and_then(|file| file.exports.get(name)));
            match exported.and_then(|exported| self.absolute(module, exported)) {
                Some(next) if !next.starts_with(module) || next.len() > module.len() + 1 => path = next,
                _ => return module.to_vec(),
            }
        }
        path
    }
}

fn module_of(file: &str) -> Path<'_> {
    let mut names: Path = file.trim_end_matches(".rs").split('/').collect();
    if names.last() == Some(&"mod") || matches!(names.as_slice(), ["lib" | "main"]) {
        names.pop();
    }
    names
}

fn parse<'a>(path: &'a str, code: &'a str) -> File<'a> {
    let mut file = File { path, uses: Vec::new(), exports: BTreeMap::new(), test_modules: Vec::new() };
    let tokens = without_tests(&tokens(code), &mut file.test_modules);
    let mut rest = tokens.iter().copied().peekable();
    let mut is_public = false;
    while let Some(token) = rest.next() {
        match token {
            // `use<'a>` in a type captures lifetimes.
            "use" if rest.peek() != Some(&"<") => {
                let mut paths = Vec::new();
                use_tree(&mut rest, Vec::new(), &mut paths);
                if is_public {
                    let named = paths.into_iter().filter_map(|path| Some((*path.last()?, path)));
                    file.exports.extend(named);
                } else {
                    file.uses.extend(paths);
                }
            }
            word if is_name(word) && rest.peek() == Some(&"::") => {
                let mut path = vec![word];
                while rest.next_if_eq(&"::").is_some() {
                    match rest.next_if(|next| is_name(next)) {
                        Some(name) => path.push(name),
                        None => break,
                    }
                }
                file.uses.push(path);
            }
            _ => {}
        }
        // `pub(in crate::x) use` is as public as `pub use`.
        is_public = token == "pub" || (is_public && matches!(token, "(" | ")" | "crate" | "super" | "in"));
    }
    file
}

/// Names, `::` and single other characters, without white space.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match rest.find(|c: char| !c.is_alphanumeric() && c != '_') {
            Some(0) if rest.starts_with("::") => 2,
            Some(0) => first.len_utf8(),
            Some(length) => length,
            None => rest.len(),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The tokens outside of items that only tests have; `modules` gets the names of test modules.
fn without_tests<'a>(tokens: &[&'a str], modules: &mut Vec<&'a str>) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].starts_with(&["#", "[", "cfg", "("]) && attribute(&tokens[at..]).contains(&"test") {
            let item = at + attribute(&tokens[at..]).len();
            let end = item + item_length(&tokens[item..]);
            let declared = tokens[item..end].windows(2).find(|pair| pair[0] == "mod");
            modules.extend(declared.map(|pair| pair[1]));
            at = end;
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

fn attribute<'t, 'a>(tokens: &'t [&'a str]) -> &'t [&'a str] {
    let end = tokens.iter().position(|token| *token == "]").map_or(tokens.len(), |end| end + 1);
    &tokens[..end]
}

/// The tokens of an item: up to its semicolon, or to the brace that closes its body.
fn item_length(tokens: &[&str]) -> usize {
    let is_use = tokens.iter().take(8).any(|token| *token == "use");
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 && (*token == ";" || (*token == "}" && !is_use)) {
            return at + 1;
        }
    }
    tokens.len()
}

/// The paths of one `use` declaration, up to its semicolon.
fn use_tree<'a, I>(tokens: &mut Peekable<I>, mut path: Path<'a>, paths: &mut Vec<Path<'a>>)
where
    I: Iterator<Item = &'a str>,
{
    while let Some(token) = tokens.next_if(|token| !matches!(*token, "," | "}" | ";")) {
        match token {
            "{" => {
                while tokens.next_if_eq(&"}").is_none() && tokens.peek().is_some_and(|token| *token != ";") {
                    if tokens.next_if_eq(&",").is_none() {
                        use_tree(tokens, path.clone(), paths);
                    }
                }
                return;
            }
            "::" => {}
            "as" => drop(tokens.next()),
            "self" if !path.is_empty() => {}
            name => path.push(name),
        }
    }
    paths.push(path);
}

/// The shortest chain of uses from a module back to itself.
fn shortest_circle<'u, 'a>(
    module: &'u Path<'a>,
    uses: &'u BTreeMap<&'u Path<'a>, BTreeSet<Path<'a>>>,
) -> Option<Vec<&'u Path<'a>>> {
    let mut seen = BTreeSet::new();
    let mut routes = vec![vec![module]];
    while !routes.is_empty() {
        let mut longer = Vec::new();
        for route in routes {
            for next in route.last().and_then(|last| uses.get(*last)).into_iter().flatten() {
                let extended = [route.as_slice(), &[next]].concat();
                if next == module {
                    return Some(extended);
                }
                if seen.insert(next) {
                    longer.push(extended);
                }
            }
        }
        routes = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(files: &[(&str, &str)]) -> Vec<String> {
        import_cycles(files.iter().copied()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_use_each_other_in_a_circle_are_found_through_re_exports() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; mod c; pub use a::{A, deep::D}; pub(crate) use b::B;"),
            ("x/src/a/mod.rs", "mod deep; pub struct A; fn f() { deep::D; }"),
            ("x/src/a/deep.rs", "use crate::{B, std::fmt}; pub struct D;"),
            ("x/src/b.rs", "pub struct B(crate::c::C);"),
            ("x/src/c.rs", "use super::A; pub struct C;"),
        ];
        let found = judged(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("4 files in import cycles"), "{found:?}");
        assert!(
            found[0].contains("x/src/a/deep.rs -> x/src/b.rs -> x/src/c.rs -> x/src/a/mod.rs"),
            "{found:?}"
        );
    }

    #[test]
    fn re_exports_and_tests_are_no_uses() {
        let files = [
            ("x/src/lib.rs", "mod a; mod b; pub use a::A; pub use b::B;"),
            (
                "x/src/a.rs",
                "use crate::B; pub struct A; #[cfg(test)] mod tests; #[cfg(test)] use crate::b::{T, U};",
            ),
            ("x/src/a/tests.rs", "use crate::{A, B};"),
            ("x/src/b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::A; fn f() { if true {} } }"),
        ];
        assert!(judged(&files).is_empty(), "{:?}", judged(&files));
    }
}
