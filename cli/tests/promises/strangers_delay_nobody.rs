//! Tests callers that do not have the cluster's key: whatever they do, clients with the key are
//! served, and nodes run out of neither memory nor descriptors nor log space.

use std::{
    io::Write,
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Resource, getrlimit, setrlimit};

use super::support::{Data, pids};

/// Maximum time of each command meanwhile, on a slow and busy machine. Delayed by strangers it
/// would take minutes.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum descriptors that a node may hold for strangers: two classes of 256 for each listener, of
/// which it has four.
const DESCRIPTORS_MAX: usize = 4 * 2 * 256;
const MEMORY_KIB_MAX: u64 = 32 << 10;
const LOG_LINES_MAX: usize = 200;

/// The addresses at which a node listens and relays, on both wires.
fn addresses(data: &Data, node: usize) -> Vec<String> {
    let text = std::fs::read_to_string(data.path().join("data/cluster.toml")).expect("a cluster file");
    let file: toml::Table = text.parse().expect("TOML");
    let texts = |value: &toml::Value| -> Vec<String> {
        value.as_array().expect("a list").iter().map(|text| text.as_str().expect("text").to_owned()).collect()
    };
    let node = &file["node"][node];
    [texts(&node["listen"]), texts(&node["relay"])].concat()
}

/// A socket to an address of a node, or `None` if its backlog is full.
fn stranger(data: &Data, address: &str) -> Option<Box<dyn Write + Send>> {
    match address.split_once(':').expect("an address") {
        ("tcp", place) => TcpStream::connect(place).ok().map(|socket| Box::new(socket) as _),
        ("shm", path) => {
            let path = data.path().join("data").join(Path::new(path));
            UnixStream::connect(path).ok().map(|socket| Box::new(socket) as _)
        }
        other => panic!("{other:?}"),
    }
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the node runs").count()
}

fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the node runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

fn log_lines(data: &Data, node: usize) -> usize {
    let path = data.path().join(format!("data/node{node}/node.log"));
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Raises the limit of descriptors, because the sockets of this test count, too.
fn allow_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("raise the limit of descriptors");
}

/// Checks that keys are written and read over both wires.
fn assert_serves(data: &Data, round: &str) {
    for wire in ["tcp", "shm"] {
        let begun = Instant::now();
        data.run(&format!("kv put {round}{wire} a other{round}{wire} b --wire {wire}")).succeeds();
        let found = data.run(&format!("kv get {round}{wire} --wire {wire}")).succeeds();
        assert_eq!(found.trim(), "a");
        let took = begun.elapsed();
        assert!(took < 2 * COMMAND_TIME_MAX, "{round} over {wire} took {took:?}");
    }
}

#[test]
fn thousands_of_silent_slow_and_talkative_strangers_delay_no_command() {
    allow_descriptors();
    let data = Data::new("strangers");
    data.run("kv put before 1").succeeds();
    data.run("cluster start").succeeds();
    let pid = pids(&data)[0];
    let (descriptors_before, memory_before) = (descriptors(pid), memory_kib(pid));
    let addresses = addresses(&data, 0);
    assert_eq!(addresses.len(), 4, "{addresses:?}");

    let silent: Vec<_> = (0..1000).map(|at| stranger(&data, &addresses[at % addresses.len()])).collect();
    assert!(silent.iter().flatten().count() >= 900, "few strangers could call");
    assert_serves(&data, "silent");
    assert!(descriptors(pid) < descriptors_before + DESCRIPTORS_MAX);

    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (data, addresses, over) = (&data, &addresses, &over);
        // They begin correctly and then declare huge lengths, speak another protocol, or hang up at
        // once.
        let said: [&[u8]; 4] =
            [b"", b"RSFABRIC", b"RSFABRIC\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", b"GET / HTTP/1.1\r\n\r\n"];
        for thread in 0..2 {
            scope.spawn(move || {
                for round in thread.. {
                    if over.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    if let Some(mut stranger) = stranger(data, &addresses[round % addresses.len()]) {
                        let _ = stranger.write_all(said[round / 2 % said.len()]);
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut slow: Vec<_> = (0..200).filter_map(|at| stranger(data, &addresses[at % 4])).collect();
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                slow.iter_mut().for_each(|slow| drop(slow.write_all(b"R")));
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let served = std::panic::catch_unwind(|| assert_serves(data, "loud"));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Err(panic) = served {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(descriptors(pid) < descriptors_before + DESCRIPTORS_MAX);
    let memory_after = memory_kib(pid);
    assert!(memory_after < memory_before + MEMORY_KIB_MAX, "{memory_before} KiB, then {memory_after}");
    let lines = log_lines(&data, 0);
    assert!(lines < LOG_LINES_MAX, "{lines} lines of the log");
    drop(silent);
    // Strangers that have disconnected, or timed out, leave nothing.
    let deadline = Instant::now() + COMMAND_TIME_MAX;
    while descriptors(pid) > descriptors_before + 16 {
        assert!(Instant::now() < deadline, "{} descriptors, before {descriptors_before}", descriptors(pid));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_with_few_descriptors_serves_behind_strangers() {
    allow_descriptors();
    let data = Data::new("few-descriptors");
    data.run("kv put before 1").succeeds();
    let program = env!("CARGO_BIN_EXE_rackscan");
    let script =
        format!("ulimit -n 400 && {program} --data {} cluster start", data.path().join("data").display());
    let started = Command::new("sh").args(["-c", &script]).status().expect("a shell");
    assert!(started.success());
    let pid = pids(&data)[0];
    let addresses = addresses(&data, 0);
    for round in ["first", "second"] {
        let silent: Vec<_> = (0..1000).map(|at| stranger(&data, &addresses[at % addresses.len()])).collect();
        assert_serves(&data, round);
        assert!(descriptors(pid) <= 400);
        drop(silent);
    }
}
