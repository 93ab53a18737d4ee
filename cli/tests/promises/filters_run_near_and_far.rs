//! Tests that `lab query-io` runs the paper's filters over a real node, draws its figures, leaves
//! nothing behind, and reports what is not possible.

use super::support::{Data, interrupt, kill, processes_with};
use std::{
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

fn lines(stdout: &str) -> Vec<serde_json::Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("each line is an object")).collect()
}

fn assert_empty(folder: &Path) {
    let left: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("one").path()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(processes_with(folder.to_str().expect("a UTF-8 path")), Vec::<u32>::new());
}

/// The command, left running.
fn started(folder: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
    command.args(["lab", "query-io", "--folder"]).arg(folder).args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits until `found` finds something, as long as the command runs.
fn until<T>(child: &mut Child, found: impl Fn(u32) -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found(child.id()) {
            return found;
        }
        assert!(child.try_wait().expect("ours").is_none(), "it has ended");
        assert!(Instant::now() < deadline, "it did not get there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The node whose data is below the folder.
fn node_below(folder: &Path) -> Option<u32> {
    let folder = folder.to_str().expect("a UTF-8 path");
    let mut nodes = processes_with("--lifeline").into_iter().filter(|pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(folder)
    });
    nodes.next_back()
}

/// Whether a thread of the process scans for a query.
fn scans(pid: u32) -> Option<()> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let mut names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.starts_with("query ")).then_some(())
}

/// Processor time of a process, in hundredths of a second.
fn processor_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    // User and system time are the 14th and 15th word; the second one is in parentheses and may
    // contain blanks.
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(2).map(|word| word.parse::<u64>().expect("a number")).sum()
}

fn ended(child: Child) -> Output {
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Counts of the engine over the rows that are loaded for it, by SQL.
fn counted_by_sql(data: &Data) -> [(&'static str, u64); 3] {
    data.run("load tpch --scale 0.01").succeeds();
    [
        ("q01", "l_shipdate <= date '1998-12-01' - interval '120' day"),
        (
            "q06",
            "l_shipdate >= date '1995-01-01' and l_shipdate < date '1995-01-01' + interval '1' year \
             and l_discount between 0.05 - 0.01 and 0.05 + 0.01 and l_quantity < 24",
        ),
        ("q15", "l_shipdate >= date '1993-04-01' and l_shipdate < date '1993-04-01' + interval '3' month"),
    ]
    .map(|(query, condition)| {
        let text = format!("select count(*) as n from lineitem where {condition}");
        let answer = data.run_words(&["sql", &text, "--format", "csv"], "").succeeds();
        (query, answer.lines().last().and_then(|line| line.trim().parse().ok()).expect("a count"))
    })
}

#[test]
fn every_placement_counts_the_same_rows_and_the_figures_are_drawn() {
    let data = Data::new("bench-query");
    let (folder, report) = (data.path().join("disk"), data.path().join("report"));
    let ran = data.run(&format!(
        "lab query-io --scale 0.01 --segment-rows 16384 --page-sizes 4KiB,64KiB --connections 1,2 --io-threads 2 \
         --repeat 1 --wire tcp --folder {} --report {} --json {}",
        folder.display(),
        report.display(),
        data.path().join("lines.jsonl").display()
    ));
    let table = ran.succeeds();
    let lines = lines(&std::fs::read_to_string(data.path().join("lines.jsonl")).expect("the file"));
    assert_eq!(lines.len(), 3 * 2 * 3 * 2);
    let counts = counted_by_sql(&data);
    for line in &lines {
        for key in ["bench", "command", "commit", "machine", "scale", "iops", "mb_per_s", "own_cpu"] {
            assert!(!line[key].is_null(), "{key} in {line}");
        }
        let (_, rows) = counts.iter().find(|(query, _)| line["query"] == *query).expect("one of them");
        assert_eq!(line["rows"].as_u64(), Some(*rows), "{line}");
        let is_local = line["placement"] == "local";
        assert_eq!(line["wire"].as_str(), if is_local { None } else { Some("tcp") }, "{line}");
        assert_eq!(line["node_cpu"].is_null(), is_local, "{line}");
    }
    assert!(table.contains("node user %") && table.contains("of local"), "{table}");
    assert!(!table.contains("{\""), "the lines are in the file only: {table}");
    let page = std::fs::read_to_string(report.join("index.html")).expect("the page");
    for number in 32..=40 {
        assert!(page.contains(&format!("figure 4.{number})")), "figure 4.{number}");
    }
    assert!(page.contains("table 4.6") && report.join("points.jsonl").exists());
    assert_empty(&folder);
}

#[test]
fn what_cannot_be_run_is_said_before_anything_is_loaded() {
    let data = Data::new("query-wrong");
    let folder = data.path().join("disk");
    let at = format!("--folder {}", folder.display());
    for (words, code, parts) in [
        ("--queries q02", 2, ["\"q02\"", "q01, q06 or q15"]),
        ("--page-sizes 2KiB", 2, ["2048 bytes", "4KiB to 1MiB"]),
        ("--page-sizes 6000", 2, ["6000 bytes", "multiple of 4KiB"]),
        ("--connections 0", 2, ["0 connections", "1 to 128"]),
        ("--io-threads 1000", 2, ["1000 threads", "1 to 256"]),
        ("--connections 128 --io-threads 256", 2, ["34359738368 bytes", "fewer connections"]),
        ("--placements there", 2, ["there", "remote-process"]),
        ("--wire verbs", 2, ["--wire verbs", "shm and tcp"]),
        ("--segment-rows 1000", 2, ["1000", "1024"]),
        ("--scale 90000", 1, ["bytes are free", "smaller --scale"]),
    ] {
        data.run(&format!("lab query-io {words} {at}")).fails(code, &parts);
    }
    data.run("lab query-io --folder /proc/nowhere").fails(1, &["/proc/nowhere"]);
    let on_tmpfs = "--scale 0.01 --folder /dev/shm/rackscan-query-wrong";
    data.run(&format!("lab query-io {on_tmpfs}")).fails(1, &["tmpfs"]);
    let _removed = std::fs::remove_dir_all("/dev/shm/rackscan-query-wrong");
}

#[test]
fn a_node_that_is_killed_ends_the_simulation_with_what_there_is() {
    let data = Data::new("query-killed");
    let (folder, report) = (data.path().join("disk"), data.path().join("report"));
    let report_word = report.to_str().expect("a UTF-8 path");
    let mut child = started(
        &folder,
        &[
            "--scale",
            "0.01",
            "--queries",
            "q06",
            "--page-sizes",
            "4KiB",
            "--connections",
            "1",
            "--io-threads",
        ]
        .into_iter()
        .chain(["1", "--placements", "remote-process", "--repeat", "1000", "--segment-rows", "1024"])
        .chain(["--report", report_word])
        .collect::<Vec<_>>(),
    );
    until(&mut child, scans);
    let node = node_below(&folder).expect("a node of the command");
    // After this time many of the 1,000 queries have run, but not all of them, however slow the
    // machine is.
    let begun = processor_ticks(node);
    until(&mut child, |_| (processor_ticks(node) > begun + 30).then_some(()));
    kill(node);
    let output = ended(child);
    let lines = lines(&String::from_utf8_lossy(&output.stdout));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(lines.len() == 1 && lines[0]["partial"].is_string(), "{lines:?} {stderr}");
    assert!(lines[0]["rows"].as_u64().is_some_and(|rows| rows > 0), "{lines:?}");
    assert!(stderr.contains("error: ") && stderr.contains("measured before"), "{stderr}");
    assert!(report.join("index.html").exists());
    assert_empty(&folder);
}

#[test]
fn an_interrupt_ends_a_load_and_leaves_nothing() {
    let data = Data::new("query-interrupted");
    let folder = data.path().join("disk");
    let mut child = started(&folder, &["--scale", "1", "--page-sizes", "4KiB"]);
    until(&mut child, |_| node_below(&folder));
    let begun = Instant::now();
    interrupt(child.id());
    let output = ended(child);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(lines(&String::from_utf8_lossy(&output.stdout)).len(), 0);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("stopped") && stderr.contains("nothing was measured"), "{stderr}");
    assert_empty(&folder);
}
