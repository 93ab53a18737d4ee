//! Tests that `lab io` measures over a real node, draws the paper's figures, leaves nothing behind,
//! and reports what is not possible.

use super::support::{Data, kill, processes_with};
use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const LITTLE: &str = "--seconds 60 --count 20 --warm-up 0 --repeat 1 --file-size 8MiB";

fn lines(stdout: &str) -> Vec<serde_json::Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("each line is an object")).collect()
}

fn assert_empty(folder: &Path) {
    let left: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("one").path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Whether a node whose data is below the folder has begun to listen.
fn listens(folder: &Path) -> bool {
    let labs = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let logs = labs.filter_map(|lab| std::fs::read_to_string(lab.path().join("node0/node.log")).ok());
    logs.into_iter().any(|log| log.contains("listens at tcp"))
}

#[test]
fn every_bridge_is_measured_beside_the_device_and_nothing_stays() {
    let data = Data::new("bench-io");
    let folder = data.path().join("disk");
    let line = format!(
        "lab io --sizes 512,16KiB --depths 4 --connections 2 --bridges reactor,static,dynamic --io-threads 2 --wires \
         shm,tcp --folder {} {LITTLE}",
        folder.display()
    );
    let ran = data.run(&line);
    let lines = lines(&ran.succeeds());
    // Three bridges over two wires, two sizes, three modes.
    assert_eq!(lines.len(), 3 * 2 * 2 * 3);
    for line in &lines {
        for key in ["bench", "command", "commit", "machine", "scale", "iops", "latency", "cpu"] {
            assert!(!line[key].is_null(), "{key} in {line}");
        }
        assert!(line["median_iops"].as_f64().is_some_and(|iops| iops > 0.0), "{line}");
        let remote = line["mode"] == "remote";
        assert_eq!(line["over_local"].is_number(), remote, "{line}");
    }
    assert!(ran.stderr().contains("of local") && ran.stderr().contains("node ns/read"), "{}", ran.stderr());
    assert_empty(&folder);
    assert_eq!(processes_with(folder.to_str().expect("a UTF-8 path")), Vec::<u32>::new());
}

#[test]
fn a_kept_file_is_used_again_and_a_sweep_draws_its_figures() {
    let data = Data::new("bench-sweep");
    let (folder, report) = (data.path().join("disk"), data.path().join("report"));
    let keep = format!("--folder {} --file-size 8MiB --keep", folder.display());
    let once = format!("lab io --modes local --seconds 0.05 --warm-up 0 --repeat 1 {keep}");
    data.run(&once).succeeds();
    let whole_log =
        || std::fs::read_to_string(folder.join("rackscan-lab/node0/node.log")).expect("it is kept");
    // The log of the last start.
    let log = || whole_log().rsplit("-- rackscan").next().unwrap_or_default().to_owned();
    assert!(log().contains("filling the scratch area"), "{}", log());
    data.run(&once).succeeds();
    assert!(!log().contains("filling the scratch area"), "{}", log());
    let ran =
        data.run(&format!("lab io --sweep --effort 0.001 --count 5 --report {} {keep}", report.display()));
    assert!(lines(&ran.succeeds()).len() > 40);
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    for number in 2..=18 {
        let name = format!("figure-4-{number:02}");
        assert!(page.contains(&name) && report.join(format!("figures/{name}.png")).exists(), "{name}");
    }
    assert!(report.join("points.jsonl").exists());
}

#[test]
fn a_node_of_a_cluster_is_measured_as_it_is_configured() {
    let data = Data::new("bench-cluster");
    data.run("load tpch --scale 0.05").succeeds();
    let file = data.path().join("data/cluster.toml");
    let before = std::fs::read_to_string(&file).expect("the cluster's file");
    let io = format!(
        "lab io --cluster {} --node 2 --sizes 4KiB --depths 4 --seconds 60 --count 20",
        file.display()
    );
    let ran = data.run(&format!("{io} --warm-up 0 --repeat 1 --wires shm,tcp"));
    let lines = lines(&ran.succeeds());
    assert_eq!(lines.len(), 2 * 3, "two wires, three modes: {lines:?}");
    for line in lines.iter().filter(|line| line["mode"] == "remote") {
        assert!(line["bridge"] == "reactor" && line["over_local"].is_number(), "{line}");
        assert!(line["cpu"]["node_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{line}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("the cluster's file"), before);
    data.run(&io.replace("--node 2", "--node 9")).fails(2, &["--node 9", "lists nodes 0, 1, 2, 3"]);
    data.run(&format!("{io} --bridges static")).fails(2, &["--bridges has no effect", "as it is configured"]);
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_runs() {
    let data = Data::new("bench-wrong");
    let folder = data.path().join("disk");
    let at = format!("--folder {}", folder.display());
    for (words, code, parts) in [
        ("--sizes 1000", 2, ["1000 bytes", "multiple of 512"]),
        ("--sizes 0", 2, ["0 bytes", "512"]),
        ("--sizes 2MiB", 2, ["2097152 bytes", "1MiB"]),
        ("--depths 0", 2, ["IOs in flight", "1 to 4096"]),
        ("--connections 9999", 2, ["9999 connections", "1 to 1024"]),
        ("--open-loop 0", 2, ["--open-loop 0", "from 0.001"]),
        ("--io-threads 256 --connections 160 --io pread", 2, ["40960 threads", "fewer connections"]),
        ("--connections 1024 --depths 64 --sizes 1MiB", 2, ["of memory", "smaller reads"]),
        ("--cluster /nonexistent --wire tcp", 2, ["--wire has no effect", "does not use it"]),
        ("--io-threads 4", 2, ["--io-threads has no effect", "--bridges static"]),
        ("--sweep --sizes 512", 2, ["--sweep", "--sizes"]),
        ("--effort 0.1", 2, ["required", "--sweep"]),
        ("--zipf 1", 2, ["--zipf 1", "below 1"]),
        (
            "--wires verbs",
            2,
            ["--wires verbs", if cfg!(feature = "verbs") { "DEVICE@ADDRESS" } else { "--features verbs" }],
        ),
        ("--file-size 4000000MiB", 2, ["expected whole MiB", "1TiB"]),
        ("--file-size 1000GiB", 1, ["bytes are free", "smaller --file-size"]),
    ] {
        data.run(&format!("lab io {words} {at}")).fails(code, &parts);
    }
    data.run("lab io --cluster /nonexistent").fails(1, &["/nonexistent"]);
    data.run("lab io --folder /proc/nowhere").fails(1, &["/proc/nowhere"]);
    data.run("lab io --file-size 8MiB --folder /dev/shm/rackscan-bench-wrong")
        .fails(1, &["--folder", "tmpfs", "ext4"]);
    let _removed = std::fs::remove_dir_all("/dev/shm/rackscan-bench-wrong");
}

#[test]
fn a_node_that_is_killed_ends_the_measurement_with_what_there_is() {
    let data = Data::new("bench-killed");
    let folder = data.path().join("disk");
    let mut child = Command::new(env!("CARGO_BIN_EXE_rackscan"))
        .args(["lab", "io", "--modes", "remote", "--sizes", "4KiB", "--seconds", "60", "--repeat", "1"])
        .args(["--warm-up", "0", "--file-size", "8MiB", "--folder"])
        .arg(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let node = loop {
        let mut nodes = processes_with("--lifeline").into_iter().filter(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(folder.to_str().expect("a UTF-8 path"))
        });
        if let Some(node) = nodes.next_back()
            && listens(&folder)
        {
            break node;
        }
        assert!(
            Instant::now() < deadline && child.try_wait().expect("ours").is_none(),
            "no node was started"
        );
        std::thread::sleep(Duration::from_millis(10));
    };
    std::thread::sleep(Duration::from_millis(1500));
    kill(node);
    let output = child.wait_with_output().expect("it ends");
    assert!(Instant::now() < deadline, "it did not wait for the end of the turn");
    assert_eq!(output.status.code(), Some(1));
    let lines = lines(&String::from_utf8_lossy(&output.stdout));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(lines.len() == 1 && lines[0]["partial"].is_string(), "{lines:?} {stderr}");
    assert!(lines[0]["median_iops"].as_f64().is_some_and(|iops| iops > 0.0), "{lines:?}");
    assert!(stderr.contains("error:") && stderr.contains("measured before"), "{stderr}");
    assert_empty(&folder);
}
