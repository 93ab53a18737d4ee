//! Determines the commit of this build, which benchmark lines carry so that figures can be traced
//! to code.

use std::process::Command;

fn main() {
    // HEAD changes with a checkout, logs/HEAD with each commit. A fresh build directory always runs
    // this script.
    for file in ["../.git/HEAD", "../.git/logs/HEAD"] {
        if std::path::Path::new(file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let described = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let commit = described.ok().filter(|output| output.status.success());
    let commit = commit.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let commit = if commit.trim().is_empty() { "unknown" } else { commit.trim() };
    println!("cargo::rustc-env=RACKSCAN_COMMIT={commit}");
}
