//! Refreshes and queries are commands beside each other, on the same nodes.

use super::support::{Data, kill, processes_with};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Nothing that is waited for here takes a tenth of it.
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

/// Tells a running program something; the next line that it prints.
fn ask(child: &mut Child, word: &str) -> String {
    let stdin = child.stdin.as_mut().expect("it has a standard input");
    stdin.write_all(word.as_bytes()).expect("it reads its input");
    // One byte at a time: what follows the line is left for the next question.
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

/// What a program printed that ends by itself.
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

#[test]
fn commands_on_one_data_folder_run_beside_each_other() {
    let data = Data::new("beside");
    let mut shell = start(&data, &["shell", "--format", "csv"]);
    assert_eq!(ask(&mut shell, "select 3 as a;\n"), "a\n");
    // The shell has started the nodes, and waits for words.
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
