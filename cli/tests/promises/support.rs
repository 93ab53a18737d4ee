//! Runs the program over a data folder of its own, with a time limit, and ends what it started.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Ten times longer than anything here takes; a hang must fail the test, not the build.
const TIME_MAX: Duration = Duration::from_secs(120);

/// A data folder on a filesystem with direct IO; the nodes in it are stopped and it is removed at
/// the end.
pub(crate) struct Data(PathBuf);

impl Data {
    pub(crate) fn new(name: &str) -> Self {
        Self::at(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id())))
    }

    pub(crate) fn at(folder: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Runs `rackscan` with the arguments in `line`, separated by blanks.
    pub(crate) fn run(&self, line: &str) -> Ran {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.run_words(&words, "")
    }

    pub(crate) fn run_words(&self, words: &[&str], input: &str) -> Ran {
        use std::io::Write;
        let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
        command.env("RACKSCAN_DATA", self.path().join("data")).args(words).env_remove("RUST_LOG");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("it has a standard input");
        stdin.write_all(input.as_bytes()).expect("it reads its input");
        drop(stdin);
        let pid = child.id();
        let watchdog = std::thread::spawn(move || child.wait_with_output());
        let deadline = Instant::now() + TIME_MAX;
        while !watchdog.is_finished() {
            if Instant::now() > deadline {
                kill(pid);
                panic!("rackscan {words:?} did not end within {TIME_MAX:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = watchdog.join().expect("the waiting thread lives").expect("the program ran");
        Ran { words: words.join(" "), output }
    }
}

impl Data {
    /// Prints the last log lines of the nodes, after a failed test.
    fn show_logs(&self) {
        for entry in std::fs::read_dir(self.path().join("data")).into_iter().flatten().flatten() {
            let log = entry.path().join("node.log");
            let Ok(text) = std::fs::read_to_string(&log) else { continue };
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("-- {}:", log.display());
            lines[lines.len().saturating_sub(20)..].iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
        if self.path().join("data/cluster.toml").exists() {
            self.run("cluster stop");
        }
        std::fs::remove_dir_all(self.path()).expect("the test's folder can be removed");
    }
}

/// One run of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    words: String,
    output: Output,
}

impl Ran {
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Asserts success. Returns its standard output.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> String {
        assert_eq!(self.output.status.code(), Some(0), "rackscan {}: {}", self.words, self.stderr());
        self.stdout()
    }

    /// Asserts that it failed with `code` and one message that contains all `parts`, and printed
    /// nothing on standard output.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        self.fails_later(code, parts);
        assert_eq!(self.stdout(), "", "rackscan {}", self.words);
    }

    /// The same for a script whose first statements have been answered.
    #[track_caller]
    pub(crate) fn fails_later(&self, code: i32, parts: &[&str]) {
        let stderr = self.stderr();
        assert_eq!(self.output.status.code(), Some(code), "rackscan {}: {stderr}", self.words);
        for part in parts {
            assert!(stderr.contains(part), "rackscan {}: expected {part:?} in: {stderr}", self.words);
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

/// The processes of the running nodes.
pub(crate) fn pids(data: &Data) -> Vec<u32> {
    let status = data.run("cluster status --format ndjson").succeeds();
    let rows = status.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    rows.map(|row| row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")).collect()
}

/// Waits until every node's log has all its replicas, and all nodes know so. A node that is killed
/// earlier may leave the only whole log behind, and queries then refuse rightly.
pub(crate) fn wait_for_log_replicas(data: &Data) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = data.run("cluster status --format ndjson").succeeds();
        let is_ready = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let replicas = row["log replicas"].as_str().expect("a text");
            replicas.starts_with("2 of 2") && !replicas.contains("not known")
        };
        if status.lines().all(is_ready) {
            return;
        }
        assert!(Instant::now() < deadline, "no replicas after a minute: {status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A cluster of four nodes with TPC-H and the default parity, and rows that have changed since.
pub(crate) fn protected(name: &str) -> Data {
    let data = Data::new(name);
    data.run("load tpch --scale 0.01 --segment-rows 4096 --page-size 8KiB").succeeds();
    data.run("cluster start").succeeds();
    let changes = "update orders set o_comment = 'late' where o_orderkey <= 400; delete from lineitem where l_orderkey in (1, 2, 3, 7); \
                   insert into region values (5, 'ATLANTIS', 'far')";
    data.run_words(&["sql", changes], "").succeeds();
    wait_for_log_replicas(&data);
    data
}

/// Changes a bit in every `every`-th sector of a file that is not empty. Returns the number of
/// changed sectors.
pub(crate) fn flip(path: &Path, every: usize) -> usize {
    use std::os::unix::fs::FileExt;
    // The device's label is before this offset.
    const FIRST: u64 = 64 << 10;
    let file = std::fs::File::options().read(true).write(true).open(path).expect("a device");
    let (mut sector, mut written, mut flipped) = (vec![0; 4096], 0, 0);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("it is there"));
    let mut at = FIRST;
    // Device files have holes, also at their end.
    while written * 8 < usize::try_from(blocks).expect("a file") && at < 1 << 30 {
        if file.read_at(&mut sector, at).expect("it can be read") < sector.len() {
            break;
        }
        if sector.iter().any(|byte| *byte != 0) {
            written += 1;
            if written % every == 0 {
                file.write_all_at(&[sector[100] ^ 4], at + 100).expect("it can be written");
                flipped += 1;
            }
        }
        at += 4096;
    }
    flipped
}

/// Kills a process, like a power cut, and waits until it is gone: until then its socket accepts
/// connections, and a command that starts nodes would find it running.
pub(crate) fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs");
    assert!(status.success(), "kill -9 {pid}");
    for _ in 0..1000 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses: Z is a process that nobody has
        // waited for. Its other threads may still be ending, and hold its sockets.
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        if state.is_empty() || state.starts_with('Z') && threads <= 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("process {pid} was killed and goes on");
}

/// A stopped process, which continues when this value is dropped.
pub(crate) struct Stopped(u32);

impl Stopped {
    pub(crate) fn new(pid: u32) -> Self {
        signal(pid, "-STOP");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "-CONT");
    }
}

fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill runs");
    assert!(status.success(), "kill {signal} {pid}");
}

/// Asks a process to end, as Ctrl-C does.
pub(crate) fn interrupt(pid: u32) {
    let status = Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill runs");
    assert!(status.success(), "kill -INT {pid}");
}

/// Processes whose command line contains `text`.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    pids.filter(|pid| *pid != own)
        .filter(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(text)
        })
        .collect()
}
