//! Runs each rule over the whole tree, so that the tree keeps its own rules.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use rackscan_tidy::{
    DEV_UPWARD, FENCES, LONG_FILES, NON_ASCII_FILES, Package, RANKS, RETIRED_WORDS, Tree, Violation,
    broken_links, dead_files, import_cycles, is_rust, is_source, leftovers, long_document, missing_forbid,
    missing_opening, missing_workspace_lints, not_ascii, outside_fences, packages, retired_words,
    silent_conversions, too_long, too_wide, unexpected_root_entries, unfenced_unsafe,
    unreasoned_dependencies, vague_name, wrong_direction,
};

static ROOT: LazyLock<&Path> =
    LazyLock::new(|| Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tidy has a parent"));
static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::read(&ROOT).expect("the tree can be read"));
static PACKAGES: LazyLock<Vec<Package>> = LazyLock::new(|| {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(*ROOT).output().expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    packages(&serde_json::from_slice(&output.stdout).expect("JSON"))
        .expect("the shape of cargo metadata, version 1")
});

/// The files that cargo builds directly, relative to the root.
fn roots() -> Vec<String> {
    let relative = |path: &String| {
        let path = Path::new(path).strip_prefix(*ROOT).expect("a target lies in the tree");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    PACKAGES.iter().flat_map(|package| &package.roots).map(relative).collect()
}

fn texts(wanted: fn(&str) -> bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    TREE.texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).filter(move |(path, _)| wanted(path))
}

fn assert_none(violations: impl IntoIterator<Item = Violation>) {
    let lines: Vec<String> = violations.into_iter().map(|violation| format!("\n  {violation}")).collect();
    assert!(lines.is_empty(), "{} violations:{}", lines.len(), lines.concat());
}

#[test]
fn the_walk_sees_every_crate_and_this_file() {
    assert!(TREE.texts.contains_key("tidy/tests/tidy.rs"));
    for (package, _) in RANKS {
        let folder = package.trim_start_matches("rackscan-");
        assert!(
            TREE.texts.contains_key(&format!("{folder}/Cargo.toml")),
            "{package} is ranked but not in the tree"
        );
    }
}

#[test]
fn dependencies_point_to_lower_ranks() {
    assert_none(wrong_direction(&PACKAGES, DEV_UPWARD));
}

#[test]
fn fenced_dependencies_stay_in_their_crates() {
    assert_none(outside_fences(&PACKAGES, FENCES));
}

#[test]
fn every_dependency_is_used_and_has_its_reasons() {
    let list = "docs/decisions/0001-dependencies.md";
    assert_none(unreasoned_dependencies(&TREE.texts["Cargo.toml"], list, &TREE.texts[list], &PACKAGES));
}

#[test]
fn files_are_short_enough_to_be_read_in_one_sitting() {
    assert_none(too_long(texts(is_rust), LONG_FILES));
}

#[test]
fn documents_are_short_enough_to_be_read_in_one_sitting() {
    assert_none(TREE.texts.iter().filter_map(|(path, text)| long_document(path, text)));
}

#[test]
fn every_crate_outside_the_fence_forbids_unsafe_code() {
    let crate_roots = roots().into_iter().filter(|path| path.contains("/src/"));
    assert_none(crate_roots.filter_map(|path| missing_forbid(&path, &TREE.texts[&path])));
}

#[test]
fn unsafe_code_is_fenced_and_announced() {
    assert_none(texts(is_rust).filter_map(|(path, text)| unfenced_unsafe(path, text)));
}

#[test]
fn nothing_unfinished_is_left() {
    assert_none(texts(is_source).flat_map(|(path, text)| leftovers(path, text)));
}

#[test]
fn a_number_that_does_not_fit_is_a_named_clamp_or_a_failure() {
    assert_none(texts(is_rust).flat_map(|(path, text)| silent_conversions(path, text)));
}

#[test]
fn sources_are_ascii() {
    assert_none(texts(is_source).flat_map(|(path, text)| not_ascii(path, text, NON_ASCII_FILES)));
}

#[test]
fn every_rust_source_opens_with_a_sentence_about_its_job() {
    assert_none(texts(is_rust).filter_map(|(path, text)| missing_opening(path, text)));
}

#[test]
fn comments_and_documents_are_narrow_enough_to_be_read_beside_code() {
    let read = |path: &str| is_rust(path) || path.ends_with(".md");
    assert_none(texts(read).flat_map(|(path, text)| too_wide(path, text)));
}

#[test]
fn names_have_the_words_of_the_glossary() {
    assert_none(retired_words(texts(is_rust), RETIRED_WORDS));
}

#[test]
fn names_say_what_a_file_holds() {
    assert_none(TREE.paths.iter().filter_map(|path| vague_name(path)));
}

#[test]
fn every_crate_keeps_the_lints_of_the_workspace() {
    let manifests = texts(|path| path.ends_with("/Cargo.toml"));
    assert_none(manifests.filter_map(|(path, text)| missing_workspace_lints(path, text)));
}

#[test]
fn files_of_a_crate_do_not_import_each_other_in_a_circle() {
    assert_none(import_cycles(texts(is_rust)));
}

#[test]
fn every_rust_source_is_compiled() {
    assert_none(dead_files(&roots(), &TREE.texts));
}

#[test]
fn the_root_holds_only_what_is_listed() {
    assert_none(unexpected_root_entries(TREE.root_entries()));
}

#[test]
fn links_in_the_documents_lead_to_files() {
    let documents = texts(|path| path.ends_with(".md"));
    assert_none(documents.flat_map(|(path, text)| broken_links(path, text, &TREE.paths)));
}
