//! Tests that refreshes and queries run as concurrent commands on the same nodes, alternate when
//! they are measured, and leave no process behind.

use super::support::{Data, kill, processes_with};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Ten times longer than any wait here takes.
const TIME_MAX: Duration = Duration::from_secs(120);

fn start(data: &Data, words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rackscan"))
        .arg("--data")
        .arg(data.path().join("data"))
        .args(words)
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Sends a line to a running program. Returns the next line that it prints.
fn ask(child: &mut Child, word: &str) -> String {
    let stdin = child.stdin.as_mut().expect("it has a standard input");
    stdin.write_all(word.as_bytes()).expect("it reads its input");
    // One byte at a time, so that later lines stay unread.
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("it has a standard output");
    BufReader::with_capacity(1, stdout).read_line(&mut line).expect("it prints text");
    line
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIME_MAX;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {TIME_MAX:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The output of a program that ends by itself.
fn ended(mut child: Child) -> Output {
    drop(child.stdin.take());
    let pid = child.id();
    let waiting = std::thread::spawn(move || child.wait_with_output());
    let deadline = Instant::now() + TIME_MAX;
    while !waiting.is_finished() {
        if Instant::now() > deadline {
            kill(pid);
            panic!("process {pid} did not end within {TIME_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    waiting.join().expect("the waiting thread lives").expect("the program ran")
}

/// All processes that work on this data folder.
fn processes(data: &Data) -> Vec<u32> {
    processes_with(&data.path().display().to_string())
}

/// The process of the streams of a measurement on this data folder.
fn streams(data: &Data) -> Option<u32> {
    let all = processes(data);
    processes_with("refresh-streams").into_iter().find(|pid| all.contains(pid))
}

fn number(data: &Data, sql: &str) -> u64 {
    let text = data.run_words(&["sql", sql, "--format", "csv"], "").succeeds();
    text.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{sql}: {text}"))
}

/// The niceness of each thread of a process.
fn nice(pid: u32) -> Vec<i64> {
    named(pid).into_iter().map(|(_, nice)| nice).collect()
}

/// The same, with their names.
fn named(pid: u32) -> Vec<(String, i64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").filter_map(Result::ok);
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    // The third field follows the name, which is in parentheses; the nineteenth field is the
    // niceness.
    let one = |stat: String| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        Some((name.to_owned(), rest.split_whitespace().nth(16)?.parse().ok()?))
    };
    stats.map(|stat| one(stat).expect("a number")).collect()
}

#[test]
fn commands_on_one_data_folder_run_beside_each_other() {
    let data = Data::new("beside");
    let mut shell = start(&data, &["shell", "--format", "csv"]);
    assert_eq!(ask(&mut shell, "select 3 as a;\n"), "a\n");
    // The shell has started the nodes, and waits for input.
    let text = data.run_words(&["sql", "select 4 as b", "--format", "csv"], "").succeeds();
    assert_eq!(text, "b\n4\n");
    assert!(shell.try_wait().expect("a child").is_none(), "the shell goes on");
    assert!(ended(shell).status.success());
    until("the nodes to end with the command that started them", || {
        processes(&data).is_empty().then_some(())
    });
}

#[test]
fn two_commands_that_begin_together_start_the_nodes_once() {
    let data = Data::new("together");
    data.run("tables").succeeds();
    let mut running: Vec<Child> =
        (0..4).map(|_| start(&data, &["sql", "select 5", "--format", "csv"])).collect();
    for child in running.drain(..) {
        let output = ended(child);
        let (rows, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(
            (rows.lines().last(), stderr.as_ref()),
            (Some("5"), "scans: none\n"),
            "nothing is warned of"
        );
    }
}

const STREAMS: [&str; 12] = [
    "lab",
    "refresh-streams",
    "--scale",
    "0.01",
    "--streams",
    "2",
    "--first",
    "1",
    "--nice",
    "10",
    "--placement",
    "auto",
];

#[test]
fn streams_refresh_when_they_are_told_and_rest_between() {
    let data = Data::new("turns");
    data.run("load tpch --scale 0.01").succeeds();
    let mut child = start(&data, &STREAMS);
    assert!(ask(&mut child, "").starts_with("{\"resting\":{\"inserted\":0,\"deleted\":0"));
    let (mut inserted, mut deleted) = (0, 0);
    for _ in 0..3 {
        assert_eq!(ask(&mut child, "go\n"), "{\"working\":{}}\n");
        let turn: Value = serde_json::from_str(&ask(&mut child, "pause\n")).expect("JSON");
        let count = |of: &str| turn["resting"][of].as_u64().expect("a count");
        inserted += count("inserted");
        deleted += count("deleted");
        // While streams rest, the number of orders matches their counts.
        assert_eq!(number(&data, "select count(*) from orders"), 15_000 + inserted - deleted, "{turn}");
    }
    assert!(inserted > 0 && deleted > 0, "{inserted} inserted, {deleted} deleted");
    let alone = "select count(*) from lineitem where l_orderkey not in (select o_orderkey from orders)";
    assert_eq!(number(&data, alone), 0);
    let last = ask(&mut child, "hurry\n");
    assert!(last.starts_with("{\"failed\":") && last.contains("hurry"), "{last}");
    let output = ended(child);
    assert_eq!((output.status.code(), output.stderr), (Some(1), Vec::new()));
}

#[test]
fn all_threads_of_streams_are_nice_and_of_nodes_those_that_write_transactions_down() {
    let data = Data::new("nice");
    data.run("load tpch --scale 0.01").succeeds();
    let ours = nice(std::process::id())[0];
    let mut child = start(&data, &STREAMS);
    ask(&mut child, "");
    ask(&mut child, "go\n");
    let of_streams = nice(child.id());
    assert!(of_streams.len() > 4 && of_streams.iter().all(|nice| *nice == ours.max(10)), "{of_streams:?}");
    let nodes: Vec<u32> = processes(&data).into_iter().filter(|pid| *pid != child.id()).collect();
    assert_eq!(nodes.len(), 4, "the streams have started them");
    for node in nodes {
        let writes = |name: &str| ["-log", "-copies", "-peers"].iter().any(|part| name.ends_with(part));
        let (writers, others): (Vec<_>, Vec<_>) = named(node).into_iter().partition(|(name, _)| writes(name));
        assert!(writers.len() == 3 && writers.iter().all(|(_, nice)| *nice == 19), "{writers:?}");
        // Threads that connect to other nodes inherit the niceness of the threads that talk to
        // them.
        let is_ours = |(name, nice): &(String, i64)| *nice == ours || name.contains("dial");
        assert!(others.iter().all(is_ours), "{others:?}");
    }
    assert!(ended(child).status.success());
}

#[test]
fn queries_are_measured_beside_streams_of_either_kind_and_nothing_is_left() {
    let data = Data::new("measured-beside");
    for kind in ["process", "thread"] {
        // Not nice: on a busy machine they would wait forever.
        let words = format!("lab refresh --scale 0.01 --repeat 2 --queries q06 --nice 0 --streams-in {kind}");
        let text = data.run(&words).succeeds();
        let line: Value = serde_json::from_str(text.trim()).expect("one line of JSON");
        assert_eq!(line["streams_in"], kind);
        let count = |of: &str| line[of].as_u64().expect("a count");
        assert!(count("inserted") > 0 && count("deleted") > 0, "{line}");
        assert_eq!(count("transactions"), count("inserted") + count("deleted"), "{line}");
        // Each check included most of the orders that streams reach.
        assert_eq!(count("looks"), 5, "{line}");
        assert!(count("orders_checked") > 5 * 1_000, "{line}");
        assert_eq!(processes(&data), Vec::<u32>::new());
    }
}

#[test]
fn a_measurement_ends_when_its_streams_do_and_says_how_they_ended() {
    let data = Data::new("streams-killed");
    let child = start(&data, &["lab", "refresh", "--scale", "0.01", "--repeat", "1000"]);
    kill(until("streams", || streams(&data)));
    let output = ended(child);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: the process of the streams has ended (signal: 9"), "{stderr}");
    assert_eq!(processes(&data), Vec::<u32>::new());
}

#[test]
fn streams_do_not_outlive_their_measurement() {
    let data = Data::new("measurement-killed");
    data.run("load tpch --scale 0.01 --parity none").succeeds();
    let mut child = start(&data, &["lab", "refresh", "--scale", "0.01", "--repeat", "1000", "--nice", "0"]);
    until("streams", || streams(&data));
    until("refreshes", || (number(&data, "select count(*) from orders") != 15_000).then_some(()));
    kill(child.id());
    child.wait().expect("it ends");
    until("streams and nodes to end", || processes(&data).is_empty().then_some(()));
}
