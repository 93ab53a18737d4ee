//! Tests that a failing seed is printed, and that `RACKSCAN_SEED` replays it exactly.

use std::process::Command;

use rackscan_fabric::sim::{SEED_VARIABLE, SimConfig};

use crate::scene::{Scene, each_seed};

const FAIL: &str = "RACKSCAN_SIM_MUST_FAIL";
const NAME: &str = "replay::a_write_is_never_seen_torn";

/// Does nothing unless this binary was started by the test below. Then it is a test that fails on
/// some seeds.
#[test]
fn a_write_is_never_seen_torn() {
    if std::env::var_os(FAIL).is_none() {
        return;
    }
    each_seed(1000, |seed| {
        let mut scene = Scene::new(seed, SimConfig::default());
        scene.write(1, 0, &[1; 16]);
        while scene.net.step() {
            let sight = scene.bytes(0, 16);
            assert_eq!(sight[0], sight[15], "digest {:#x}", scene.net.digest());
        }
    });
}

/// Runs that test alone, which must fail, and returns the seed, the digest and the trace that it
/// prints.
fn failure(seed: Option<&str>) -> (String, String, Vec<String>) {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args(["--exact", NAME]).env(FAIL, "1").env_remove(SEED_VARIABLE);
    if let Some(seed) = seed {
        command.env(SEED_VARIABLE, seed);
    }
    let output = command.output().expect("run alone");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    let after = |mark: &str| {
        let (_, rest) = said.split_once(mark).unwrap_or_else(|| panic!("no '{mark}' in: {said}"));
        rest.split_whitespace().next().expect("a word").to_owned()
    };
    let seed = after(&format!("{SEED_VARIABLE}="));
    let replay = said.lines().find(|line| line.contains("to replay")).expect("the command");
    assert!(replay.contains(" cargo test") && replay.ends_with(NAME), "{replay}");
    let trace =
        said.lines().filter(|line| line.trim_start().starts_with("step ")).map(str::to_owned).collect();
    (seed, after("digest "), trace)
}

#[test]
fn a_failing_seed_is_printed_and_fails_again_in_the_same_way() {
    let first = failure(None);
    assert!(first.2.iter().any(|line| line.contains("client > server: wrote 8 bytes")), "{:?}", first.2);
    assert_eq!(failure(Some(&first.0)), first);
}

/// As the test above: does nothing unless this binary was started by the test below.
#[test]
fn seeds_are_tried() {
    if std::env::var_os(FAIL).is_some() {
        each_seed(5, |seed| println!("this seed: {seed}"));
    }
}

#[test]
fn with_a_seed_in_the_environment_only_that_one_is_tried() {
    let tried = |seed: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.args(["--exact", "replay::seeds_are_tried", "--nocapture"]).env(FAIL, "1");
        command.env_remove(SEED_VARIABLE).envs(seed.map(|seed| (SEED_VARIABLE, seed)));
        let output = command.output().expect("run alone");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.lines().filter_map(|line| Some(line.split_once("this seed: ")?.1.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(tried(None).len(), 5);
    assert_eq!(tried(Some("0x0000000000000042")), ["0x0000000000000042"]);
}

#[test]
fn a_wrong_seed_in_the_environment_is_named() {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    let output = command.args(["--exact", NAME]).env(FAIL, "1").env(SEED_VARIABLE, "0xnonsense").output();
    let output = output.expect("run alone");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("0xnonsense"), "{said}");
}
