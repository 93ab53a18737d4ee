//! Tests that `lab placement` compares automatic placement with the best forced one, under limits
//! that it sets up itself, and `lab tpch` with other engines; both leave nothing behind, and report
//! what is not possible.

use super::support::{Data, interrupt, processes_with};
use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

const LITTLE: &str = "--scale 0.01 --segment-rows 4096 --repeat 1";
/// Size of a burst on a limited wire.
const BURST_BYTES: f64 = 131_072.0;

fn lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("each line is an object")).collect()
}

fn assert_empty(folder: &Path) {
    let left: Vec<_> =
        fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("one").path()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_with(folder.to_str().expect("a UTF-8 path")), Vec::<u32>::new());
}

/// Control groups of the command that ran as this process.
fn control_groups(pid: u32) -> Vec<PathBuf> {
    let wanted = format!("rackscan-bench-{pid}-");
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok) {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&wanted)) {
                found.push(entry.path());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// Whether this process may create networks and control groups: the kernel's files that only root
/// may write show that.
fn is_root() -> bool {
    fs::File::options().write(true).open("/proc/sys/vm/drop_caches").is_ok()
}

/// Runs the command with programs of another folder instead of the system's.
fn with_path(data: &Data, path: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
    command.env("RACKSCAN_DATA", data.path().join("data")).args(line.split_whitespace()).env("PATH", path);
    command.stdin(Stdio::null()).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn without_root_selectivities_are_measured_and_drawn() {
    let data = Data::new("placement");
    let (folder, report) = (data.path().join("disk"), data.path().join("report"));
    let ran = data.run(&format!(
        "lab placement --cpu-shares 100 --bandwidths unlimited --selectivities 0.01,1 {LITTLE} --folder {} --report {} --json {}",
        folder.display(),
        report.display(),
        data.path().join("lines.jsonl").display()
    ));
    let table = ran.succeeds();
    let lines = lines(&fs::read_to_string(data.path().join("lines.jsonl")).expect("the file"));
    assert_eq!(lines.len(), 2 * 2);
    for line in &lines {
        for key in ["bench", "command", "commit", "machine", "scale", "sql"] {
            assert!(!line[key].is_null(), "{key} in {line}");
        }
        let contenders: Vec<&String> = line["ms"].as_object().expect("times").keys().collect();
        assert_eq!(contenders, ["auto", "remote-fetch", "remote-process"]);
        let selectivity = line["selectivity"].as_f64().expect("a number");
        let share = line["rows_share"].as_f64().expect("a number");
        assert!((share / selectivity - 1.0).abs() < 0.2, "{line}");
        assert_eq!(line["rows"].as_u64() == Some(1), line["query"] == "aggregate", "{line}");
        let best =
            line["median_ms"][line["best_forced"].as_str().expect("a name")].as_f64().expect("its time");
        let auto = line["median_ms"]["auto"].as_f64().expect("a time");
        assert!((line["over_best"].as_f64().expect("a ratio") - auto / best).abs() < 0.001, "{line}");
        assert_eq!(line["auto_segments"]["local"], 0, "{line}");
    }
    assert!(table.contains("devices not attached") && table.contains("4 points: median"), "{table}");
    let page = fs::read_to_string(report.join("index.html")).expect("the page");
    assert!(
        page.contains("ratio-rows-unlimited")
            && report.join("figures/ms-aggregate-unlimited-100.svg").exists()
    );
    assert_empty(&folder);
}

#[test]
fn local_takes_part_where_devices_are_attached() {
    let data = Data::new("placement-attached");
    let folder = data.path().join("disk");
    let ran = data.run(&format!(
        "lab placement --attached --cpu-shares 100 --bandwidths unlimited --queries aggregate --selectivities 1 {LITTLE} \
         --folder {}",
        folder.display(),
    ));
    let lines = lines(&ran.succeeds());
    assert!(lines.len() == 1 && lines[0]["median_ms"]["local"].is_number(), "{lines:?}");
    assert!(ran.stderr().contains("attached to the engine's host"), "{}", ran.stderr());
    assert_empty(&folder);
}

#[test]
fn a_narrow_wire_and_a_quota_hold_back_what_runs_and_end_with_the_command() {
    let data = Data::new("placement-shaped");
    let folder = data.path().join("disk");
    let bench = format!(
        "lab placement --cpu-shares 10,100 --bandwidths 10,unlimited --queries rows --selectivities 1 {LITTLE} --folder {}",
        folder.display(),
    );
    let ran = data.run(&bench);
    if !is_root() {
        ran.fails(1, &["--bandwidths: ", "--cpu-shares: ", "run it as root"]);
        return;
    }
    let first = lines(&ran.succeeds());
    assert_eq!(first.len(), 4);
    let time = |lines: &[serde_json::Value], wire: Option<u64>, share: u64, placement: &str| {
        let line = lines.iter().find(|line| {
            line["wire_mb_per_s"].as_u64() == wire && line["cpu_share_percent"].as_u64() == Some(share)
        });
        let line = line.expect("the point");
        let bytes = line["wire_bytes_of"][placement].as_f64().expect("bytes");
        (line["median_ms"][placement].as_f64().expect("a time"), bytes)
    };
    for placement in ["remote-fetch", "remote-process"] {
        let (ms, bytes) = time(&first, Some(10), 100, placement);
        assert!(bytes > 2.0 * BURST_BYTES, "{bytes} bytes show nothing");
        let least_ms = (bytes - BURST_BYTES) / 10e6 * 1e3;
        assert!(ms > least_ms * 0.9, "{placement}: {bytes} bytes in {ms} ms over 10 MB/s");
        // How much faster it is without a limit depends on the other load.
        assert!(time(&first, None, 100, placement).0 > 0.0, "{placement} was not measured without a limit");
    }
    // Single times: other load can slow either down, but not always the same one.
    let is_held_back = |lines: &[serde_json::Value]| {
        time(lines, None, 10, "remote-process").0 > time(lines, None, 100, "remote-process").0
    };
    let again = || is_held_back(&lines(&data.run(&bench).succeeds()));
    assert!(is_held_back(&first) || again() || again(), "{first:?}");
    assert_empty(&folder);
    let shown = Command::new("tc").args(["qdisc", "show", "dev", "lo"]).output().expect("tc runs");
    assert!(!text(&shown.stdout).contains("tbf"), "the machine's own loopback was changed");
}

#[test]
fn what_is_missing_for_one_axis_is_said_and_the_other_is_measured() {
    let data = Data::new("placement-half");
    let (folder, nothing) = (data.path().join("disk"), data.path().join("nothing"));
    let ran = with_path(
        &data,
        &nothing,
        &format!(
            "lab placement --cpu-shares 50,100 --bandwidths 50 --queries aggregate --selectivities 0.1 {LITTLE} --folder {}",
            folder.display()
        ),
    );
    let stderr = text(&ran.stderr);
    assert!(stderr.contains("cannot run ip") && stderr.contains("install the package iproute2"), "{stderr}");
    if !is_root() {
        assert_eq!(ran.status.code(), Some(1));
        assert!(stderr.contains("creating control groups needs root"), "{stderr}");
        return;
    }
    assert_eq!(ran.status.code(), Some(0), "{stderr}");
    let lines = lines(&text(&ran.stdout));
    let shares: Vec<_> = lines.iter().map(|line| line["cpu_share_percent"].as_u64()).collect();
    assert_eq!(shares, [Some(50), Some(100)]);
    assert!(lines.iter().all(|line| line["wire_mb_per_s"].is_null()), "{lines:?}");
    assert!(stderr.contains("--bandwidths is left out"), "{stderr}");
    assert_empty(&folder);
}

/// A command that does not outlive its test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _waited_for_already = self.0.wait();
    }
}

#[test]
fn a_sweep_that_is_interrupted_takes_its_nodes_network_and_group_along() {
    let data = Data::new("placement-stopped");
    let folder = data.path().join("disk");
    let shaping: &[&str] = if is_root() {
        &["--bandwidths", "1"]
    } else {
        &["--bandwidths", "unlimited", "--cpu-shares", "100"]
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
    command
        .args(["lab", "placement", "--scale", "0.01", "--repeat", "1000", "--folder"])
        .arg(&folder)
        .args(shaping);
    let mut child =
        Started(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the program starts"));
    let pid = child.0.id();
    // The devices are moved away once everything is loaded.
    let loaded = || {
        let roots = fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
        roots.map(|root| root.path().join("node1/device0.away")).any(|device| device.exists())
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !loaded() {
        assert!(child.0.try_wait().expect("ours").is_none(), "it has ended");
        assert!(Instant::now() < deadline, "it did not load");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(control_groups(pid).is_empty(), !is_root(), "a group is there as long as it runs");
    interrupt(pid);
    let mut stderr = String::new();
    child.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    let status = child.0.wait().expect("it ends");
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("stopped after"), "{stderr}");
    assert_eq!(control_groups(pid), Vec::<PathBuf>::new());
    assert_empty(&folder);
}

#[test]
fn what_cannot_be_swept_is_said_before_anything_runs() {
    let data = Data::new("placement-wrong");
    for (words, parts) in [
        ("--selectivities 0", ["--selectivities", "above 0, at most 1"]),
        ("--selectivities 2", ["--selectivities", "above 0, at most 1"]),
        ("--cpu-shares 0", ["--cpu-shares", "1..=100"]),
        ("--bandwidths fast", ["--bandwidths", "or unlimited"]),
        ("--minutes 0", ["--minutes", "above 0"]),
        ("--wire shm", ["--wire", "tcp"]),
        ("--nodes 0", ["--nodes", "1..=64"]),
    ] {
        data.run(&format!("lab placement {words}")).fails(2, &parts);
    }
    let quick = "--cpu-shares 100 --bandwidths unlimited";
    data.run(&format!("lab placement {quick} --folder /proc/nowhere")).fails(1, &["/proc/nowhere"]);
    data.run(&format!("lab placement {quick} --scale 90000"))
        .fails(1, &["bytes are free", "smaller --scale"]);
    let help = data.run("lab placement --help").succeeds();
    assert!(help.contains("Examples:") && help.contains("control group"), "{help}");
}

/// A folder with a python3 that answers like the peers' script, each query with one row after a
/// millisecond.
fn false_python(data: &Data) -> PathBuf {
    let folder = data.path().join("programs");
    fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("python3");
    let script = format!(
        "#!/bin/sh\nshift 2\nprintf '%s\\n' \"$*\" >>{asked}\nprintf '{{\"version\": \"1\"}}\\n'\nwhile read -r line; do\n\
         printf '%s\\n' \"$line\" >>{asked}\ncase \"$line\" in\n*reopen*) printf '{{\"reopened\": true}}\\n';;\n\
         *) printf '{{\"ms\": 1.0, \"rows\": 1}}\\n';;\nesac\ndone\n",
        asked = data.path().join("asked").display()
    );
    fs::write(&program, script).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it can be run");
    folder
}

#[test]
fn times_are_compared_with_every_peer_and_with_the_best_placement() {
    let data = Data::new("tpch-peers");
    let (programs, report) = (false_python(&data), data.path().join("report"));
    let ran = with_path(
        &data,
        &programs,
        &format!(
            "lab tpch --scale 0.01 --repeat 2 --queries q06,q14 --peers datafusion,duckdb-native --cache 8MiB --json {} --report {}",
            data.path().join("lines.jsonl").display(),
            report.display()
        ),
    );
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let lines = lines(&fs::read_to_string(data.path().join("lines.jsonl")).expect("the file"));
    let names: Vec<_> = lines.iter().filter_map(|line| line["name"].as_str()).collect();
    assert_eq!(names, ["local", "remote-fetch", "remote-process", "auto", "datafusion", "duckdb-native"]);
    for line in &lines[..4] {
        let median = line["median_ms"]["q06"].as_f64().expect("a time");
        assert_eq!(
            line["over"]["duckdb-native"]["of"]["q06"].as_f64(),
            Some(median),
            "the peer takes 1 ms: {line}"
        );
        assert_eq!(
            (&line["caches"], &line["node_cache_bytes"]),
            (&"warm".into(), &(32 << 20).into()),
            "{line}"
        );
        assert_eq!(
            line["ms"]["q14"].as_array().map(Vec::len),
            Some(2),
            "the first turn does not count: {line}"
        );
    }
    let best = &lines[3]["over_best_forced"];
    let worst = best["worst_query"].as_str().expect("a query");
    assert_eq!(best["of"][worst], best["worst"], "{best}");
    assert!(lines[2]["wire_bytes_of"]["q06"].as_u64().is_some_and(|bytes| bytes < 64 << 10), "{}", lines[2]);
    let table = text(&ran.stdout);
    for part in ["Caches are warm", "/ duckdb-native", "/ best forced", "geometric mean", "at worst"] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let asked = fs::read_to_string(data.path().join("asked")).expect("what it was asked");
    assert!(asked.contains("--engine duckdb-native") && !asked.contains("reopen"), "{asked}");
    assert!(report.join("figures/q14.svg").exists() && report.join("figures/queries-1.png").exists());
}

#[test]
fn cold_runs_begin_with_nothing_in_memory_or_not_at_all() {
    let data = Data::new("tpch-cold");
    let programs = false_python(&data);
    let line = "lab tpch --cold --scale 0.01 --repeat 2 --queries q06 --placements local,remote-fetch --peers duckdb-native";
    data.run(&format!("{line} --engine-cache 1MiB")).fails(2, &["--cold and --engine-cache"]);
    data.run(&format!("{line} --warm-up 1")).fails(2, &["--cold", "--warm-up"]);
    let ran = with_path(&data, &programs, line);
    let stderr = text(&ran.stderr);
    if !is_root() {
        assert_eq!(ran.status.code(), Some(1));
        assert!(stderr.contains("/proc/sys/vm/drop_caches") && stderr.contains("needs root"), "{stderr}");
        return;
    }
    assert_eq!(ran.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("Caches are cold"), "{stderr}");
    for line in &lines(&text(&ran.stdout))[..2] {
        assert_eq!((&line["caches"], &line["node_cache_bytes"]), (&"cold".into(), &0.into()), "{line}");
        assert!(line["disk_bytes_of"]["q06"].as_u64().is_some_and(|bytes| bytes > 0), "{line}");
    }
    let asked = fs::read_to_string(data.path().join("asked")).expect("what it was asked");
    assert_eq!(asked.matches("reopen").count(), 2, "before each of two runs: {asked}");
}
