//! Tests that a trace can be replayed, locally and through nodes, and that every failure ends in a
//! report or one clear message.

use super::support::{Data, Ran, interrupt, kill, processes_with};
use std::{
    fmt::Write as _,
    path::PathBuf,
    time::{Duration, Instant},
};

impl Data {
    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file for the test");
        path
    }

    fn json(&self, name: &str) -> serde_json::Value {
        let text = std::fs::read_to_string(self.path().join(name)).expect("a report");
        serde_json::from_str(&text).expect("a JSON object")
    }
}

/// An iolog of fio, version 3, with a read every `gap_us`.
fn iolog(count: u64, gap_us: u64) -> String {
    let mut text = "fio version 3 iolog\n0 /dev/sdx add\n0 /dev/sdx open\n".to_owned();
    for at in 0..count {
        writeln!(text, "{} /dev/sdx read {} 4096", at * gap_us, at * 4096).expect("a string grows");
    }
    text
}

/// Runs a command while `meanwhile` acts on what the command started.
fn run_while(data: &Data, line: &str, meanwhile: impl FnOnce()) -> Ran {
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| data.run(line));
        meanwhile();
        ran.join().expect("the running thread lives")
    })
}

/// Waits for the process that has an argument ending in `text`.
fn process_with(data: &Data, text: &str) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let of_data = processes_with(data.path().to_str().expect("a UTF-8 path"));
        let found = processes_with(text).into_iter().find(|pid| of_data.contains(pid));
        if let Some(pid) = found {
            return pid;
        }
        assert!(Instant::now() < deadline, "no process with {text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_query_read_is_read_again_remotely_and_locally_and_both_are_compared() {
    let data = Data::new("replay-query");
    data.run("load tpch --scale 0.01 --page-size 16KiB --segment-rows 8192").succeeds();
    let (trace, far) = (data.path().join("q06.csv"), data.path().join("far.json"));
    let (trace, far) = (trace.display(), far.display());
    data.run(&format!("query q06 --placement remote-fetch --trace {trace}")).succeeds();
    let text = std::fs::read_to_string(data.path().join("q06.csv")).expect("a trace");
    let records = text.lines().count() as u64 - 1;
    let remote = data.run(&format!("lab replay {trace} --no-stall --json {far} --depth 8")).succeeds();
    assert!(remote.contains("shm") && remote.contains("no stalls"), "{remote}");
    let report = data.json("far.json");
    assert_eq!((report["records"].as_u64(), report["ios"].as_u64()), (Some(records), Some(records)));
    assert!(report["cpu_nodes_ns_per_io"].as_f64().is_some_and(|cpu| cpu > 0.0), "{report}");
    assert!(
        report["commit"].is_string()
            && report["command"].as_str().is_some_and(|words| words.contains("--depth 8"))
    );
    let page = data.path().join("page");
    let (near, page) = (data.path().join("near.json"), page.display());
    let near = near.display();
    let local = data
        .run(&format!("lab replay {trace} --no-stall --local --compare {far} --json {near} --report {page}"))
        .succeeds();
    assert!(local.contains("B / A") && local.contains("local, uring"), "{local}");
    assert_eq!(data.json("near.json")["read_bytes"], report["read_bytes"]);
    for file in
        ["index.html", "points.jsonl", "figures/latency-histogram.png", "figures/latency-cumulative.svg"]
    {
        assert!(data.path().join("page").join(file).exists(), "{file}");
    }
    let both = data.run(&format!("lab replay --compare {near} {far}")).succeeds();
    assert!(both.contains("mode") && both.contains("IOPS"), "{both}");
    // The requested bridge runs, for the time of the replay only.
    let bridged = data
        .run(&format!("lab replay {trace} --no-stall --bridge static --io-threads 2 --wire tcp"))
        .succeeds();
    assert!(bridged.contains("bridge static, 2 IO threads") && bridged.contains("tcp"), "{bridged}");
    data.run("cluster start").succeeds();
    data.run(&format!("lab replay {trace} --bridge dynamic"))
        .fails(1, &["not as asked", "rackscan cluster stop"]);
    data.run("cluster stop").succeeds();
    assert!(
        !data
            .path()
            .join("data")
            .read_dir()
            .expect("a folder")
            .any(|entry| { entry.expect("an entry").file_name().to_string_lossy().starts_with("replay-") })
    );
}

#[test]
fn all_combinations_of_a_replay_run_by_turns_on_one_file() {
    let data = Data::new("replay-grid");
    let (trace, disk) = (data.file("trace.iolog", iolog(60, 10)), data.path().join("disk"));
    let (lines, page) = (data.path().join("lines.jsonl"), data.path().join("page"));
    let [trace, disk, lines, page] = [&trace, &disk, &lines, &page].map(|path| path.display());
    let line = format!(
        "lab replay {trace} --no-stall --local --remote --wires shm,tcp --bridges static,dynamic --io-threads 2 \
         --connections 1,2 --depths 4 --sizes 512,64KiB --repeat 2 --folder {disk} --file-size 16MiB --json {lines} \
         --report {page}"
    );
    let table = data.run(&line).succeeds();
    assert!(table.contains("dynamic") && table.contains("65536"), "{table}");
    let text = std::fs::read_to_string(data.path().join("lines.jsonl")).expect("lines");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    // For each size and number of connections: here, and by two bridges on two wires.
    assert_eq!(lines.len(), 2 * 2 * (1 + 2 * 2), "{text}");
    for line in &lines {
        assert_eq!(line["rounds_s"].as_array().map(Vec::len), Some(2), "{line}");
        let size = line["setting"]["size_bytes"].as_u64().expect("a size");
        assert_eq!(
            (line["ios"].as_u64(), line["read_bytes"].as_u64()),
            (Some(60), Some(60 * size)),
            "{line}"
        );
    }
    assert!(data.path().join("page/figures/replay-rates-1.svg").exists());
    let left = data.path().join("disk").read_dir().expect("the folder of the user").count();
    assert_eq!(left, 0, "the file is removed");
}

#[test]
fn a_foreign_trace_runs_on_a_file_of_its_own_at_its_own_times() {
    let data = Data::new("replay-foreign");
    let mut text = iolog(200, 2000);
    text.push_str("400000 /dev/sdx write 1099511627776 8192\n400100 /dev/sdx sync 0 0\n");
    let (trace, report, folder) =
        (data.file("web.log", text), data.path().join("r.json"), data.path().join("disk"));
    let (trace, report, folder) = (trace.display(), report.display(), folder.display());
    for mode in ["", "--local"] {
        let line = format!(
            "lab replay {trace} {mode} --folder {folder} --file-size 4MiB --offsets wrap --speed 4x --json {report}"
        );
        let table = data.run(&line).succeeds();
        assert!(table.contains("1 flushes") && table.contains("issued behind intended time"), "{table}");
        let report = data.json("r.json");
        assert_eq!(
            (report["ios"].as_u64(), report["written_bytes"].as_u64()),
            (Some(201), Some(8192)),
            "{mode}"
        );
        // The trace takes 400 ms; at four times the speed, 100 ms.
        let seconds = report["seconds"].as_f64().expect("a number");
        assert!((0.1..5.0).contains(&seconds), "{mode}: {seconds} s");
        assert_eq!(report["fidelity"]["lateness"]["count"].as_u64(), Some(201));
    }
    let left: Vec<_> = data.path().join("disk").read_dir().expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
    let refused = format!("lab replay {trace} --folder {folder} --file-size 4MiB --strict");
    data.run(&refused).fails(1, &["record 201", "does not fit into the target's"]);
}

#[test]
fn a_node_that_dies_leaves_a_partial_report_and_a_clear_error() {
    let data = Data::new("replay-death");
    let trace = data.file("slow.log", iolog(2000, 10_000));
    let folder = data.path().join("disk");
    let line = format!(
        "lab replay {} --folder {} --file-size 4MiB --offsets wrap",
        trace.display(),
        folder.display()
    );
    let ran = run_while(&data, &line, || {
        let node = process_with(&data, "--lifeline");
        // The file is created and written before any request is issued.
        let socket = || {
            std::fs::read_dir(&folder)
                .into_iter()
                .flatten()
                .flatten()
                .any(|entry| entry.path().join("socket").exists())
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !socket() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_secs(2));
        kill(node);
    });
    let stderr = ran.stderr();
    assert_eq!(ran.code(), Some(1), "{stderr}");
    assert!(stderr.contains("connection 0 to node 0") && stderr.contains("the report above"), "{stderr}");
    assert!(ran.stdout().contains("not issued") && ran.stdout().contains("ended well"), "{}", ran.stdout());
}

#[test]
fn ctrl_c_ends_a_replay_with_its_report() {
    let data = Data::new("replay-interrupt");
    let trace = data.file("slow.log", iolog(2000, 10_000));
    let folder = data.path().join("disk");
    let line = format!(
        "lab replay {} --local --folder {} --file-size 4MiB --offsets wrap",
        trace.display(),
        folder.display()
    );
    let ran = run_while(&data, &line, || {
        let replay = process_with(&data, "slow.log");
        std::thread::sleep(Duration::from_secs(3));
        interrupt(replay);
    });
    assert_eq!(ran.code(), Some(1), "{}", ran.stderr());
    assert!(ran.stderr().contains("it was asked to end"), "{}", ran.stderr());
    assert!(ran.stdout().contains("not issued"), "{}", ran.stdout());
    assert_eq!(processes_with(data.path().to_str().expect("a UTF-8 path")), Vec::<u32>::new());
}

#[test]
fn traces_and_reports_that_make_no_sense_end_in_one_message() {
    let data = Data::new("replay-nonsense");
    let empty = data.file("empty.csv", "");
    let binary = data.file("binary.csv", [0_u8, 159, 146, 150, 0, 1, 2, 3]);
    let text = data.file("prose.txt", "Call me Ishmael.\nSome years ago\n");
    let fine = data.file("fine.log", iolog(3, 10));
    let [empty, binary, text, fine] = [&empty, &binary, &text, &fine].map(|path| path.display());
    data.run(&format!("lab replay {empty}")).fails(1, &["empty.csv"]);
    data.run(&format!("lab replay {binary}")).fails(1, &["binary.csv"]);
    data.run(&format!("lab replay {text}")).fails(1, &["prose.txt"]);
    data.run("replay nowhere.csv").fails(1, &["nowhere.csv"]);
    data.run(&format!("lab replay {fine}")).fails(1, &["no cluster to replay on", "--folder"]);
    data.run(&format!("lab replay {fine} --compare {text}")).fails(1, &["prose.txt", "--json of a replay"]);
    data.run(&format!("lab replay --compare {text}")).fails(1, &["prose.txt"]);
    data.run(&format!("lab replay {fine} --speed 0x")).fails(2, &["expected a factor"]);
    data.run(&format!("lab replay {fine} --speed 2x --no-stall")).fails(2, &["cannot be used with"]);
    data.run(&format!("lab replay {fine} --offsets sideways")).fails(2, &["expected refuse, wrap"]);
    data.run(&format!("lab replay {fine} --local --bridge static")).fails(2, &["--local has no nodes"]);
    data.run(&format!("lab replay {fine} --wires shm --wire tcp")).fails(2, &["cannot be used with"]);
    data.run(&format!("lab replay {fine} --sizes 100")).fails(2, &["multiple of 512"]);
    data.run(&format!("lab replay {fine} --connections 1,2 --compare {text}")).fails(1, &["prose.txt"]);
    data.run("replay").fails(2, &["required"]);
    // Nodes were started for none of these.
    assert!(!data.path().join("data/cluster.toml").exists());
}
