//! Promise: a node serves many clients, most of them idle, within its planned memory; a client
//! beyond the maximum is refused with the numbers.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rackscan_fabric::{Event, Operation, connect, raise_descriptor_limit};
use rackscan_format::{
    ids::RequestId,
    message::{Answer, NodeStatus, RefusalCode, ReplyMessage, Request, RequestMessage},
};
use rackscan_storage_node::limits::CONNECTION_BYTES;

use crate::support::{
    client::Client,
    node::{NodeFolder, Running},
};

const IDLE: usize = 1000;
const BUSY: usize = 100;
const WIRES: [(&str, usize); 2] = [("shm", 0), ("tcp", 1)];
/// No step takes a tenth of it, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn echo(client: &mut Client) {
    let target = client.target(0, 0);
    assert_eq!(client.ask(Request::Echo { bytes: 0, target }), Ok(Answer::Done));
}

/// Memory of this process, in which the node and all clients are, in bytes. A page that is mapped
/// by several connections counts once.
fn own_bytes() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("/proc");
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

fn assert_within_plan(status: &NodeStatus, open: u64) {
    let counters = &status.counters;
    assert!(counters.connections_open >= open, "{counters:?}");
    assert!(counters.memory_used_bytes >= open * CONNECTION_BYTES, "they are counted: {counters:?}");
    assert!(counters.memory_peak_bytes <= status.memory_budget_bytes, "{counters:?}");
}

/// Set in the process in which a test runs that measures memory, because others would take some
/// beside it.
const OWN_PROCESS: &str = "RACKSCAN_TEST_OWN_PROCESS";

#[test]
fn a_hundred_busy_clients_are_served_beside_a_thousand_idle_ones() {
    if std::env::var_os(OWN_PROCESS).is_none() {
        let name = "many_clients::a_hundred_busy_clients_are_served_beside_a_thousand_idle_ones";
        let mut test = Command::new(std::env::current_exe().expect("this program"));
        let ran = test.args([name, "--exact"]).env(OWN_PROCESS, "1").output().expect("it starts");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    // Both ends of all connections are in this process.
    let (found, needed) = (raise_descriptor_limit(), 2 * 5 * (IDLE + BUSY) as u64 + 1000);
    assert!(found >= needed, "this test needs {needed} descriptors (ulimit -Hn); found {found}");
    for (wire, number) in WIRES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start();
        let before = own_bytes();
        let mut idle: Vec<Client> = (0..IDLE).map(|_| node.small(number)).collect();
        // Each has been served once.
        idle.iter_mut().for_each(echo);
        assert_within_plan(&node.small(number).status(), IDLE as u64);
        std::thread::scope(|threads| {
            for _ in 0..BUSY {
                threads.spawn(|| {
                    let mut client = node.small(number);
                    (0..20).for_each(|_| echo(&mut client));
                });
            }
        });
        // They may count on it all the time.
        idle.iter_mut().step_by(10).for_each(echo);
        let status = node.small(number).status();
        assert_within_plan(&status, IDLE as u64);
        assert_eq!(status.counters.connections_refused, 0, "{wire}");
        // Both ends of each, and a page that each client has registered.
        let grown = own_bytes().saturating_sub(before);
        assert!(
            grown < 2 * (IDLE + BUSY) as u64 * CONNECTION_BYTES,
            "{wire}: {grown} bytes for all connections"
        );
        drop(idle);
        wait_until(|| node.small(number).status().counters.connections_open < 10);
        node.stop();
    }
}

fn wait_until(mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "it did not come to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a node says to a new connection instead of an answer, if it does.
fn farewell(node: &Running, wire: usize) -> Option<ReplyMessage> {
    const ASKED: RequestId = RequestId(7);
    let deadline = Instant::now() + PATIENCE;
    let address = &node.handle.addresses()[wire];
    let mut connection = connect(address, &node.key, deadline).expect("the node accepts");
    let message = RequestMessage { id: ASKED, request: Request::Status }.encode().expect("a request");
    // The connection may have ended already, and has said why all the same.
    let _ = connection.post(1, Operation::Send { bytes: &message });
    let mut events = Vec::new();
    while connection.wait(&mut events, deadline) > 0 {
        for event in events.drain(..) {
            match event {
                Event::Message { bytes } => {
                    let reply = ReplyMessage::decode(&bytes).expect("a reply");
                    return (reply.id != ASKED).then_some(reply);
                }
                Event::Closed(ending) => panic!("it ended without a word: {ending}"),
                Event::Completed { .. } | Event::Immediate { .. } => {}
            }
        }
    }
    panic!("no word within {PATIENCE:?}")
}

#[test]
fn a_client_beyond_the_maximum_is_told_so_with_numbers_and_finds_room_when_another_leaves() {
    for (_, wire) in WIRES {
        let node_folder = NodeFolder::new();
        let mut config = node_folder.config();
        config.connections = 3;
        let node = node_folder.start_with(config).expect("the node starts");
        let mut clients: Vec<Client> = (0..3).map(|_| node.small(wire)).collect();
        clients.iter_mut().for_each(echo);
        for _ in 0..5 {
            let farewell = farewell(&node, wire).expect("no room");
            let refusal = farewell.outcome.expect_err("a refusal");
            assert_eq!(refusal.code, RefusalCode::TooManyConnections, "{refusal:?}");
            for part in ["node ", "has 3 connections", "at most 3", "try again", "`connections`"] {
                assert!(refusal.text.contains(part), "{part:?} in {:?}", refusal.text);
            }
        }
        // Nobody who is there was harmed, and who leaves makes room.
        clients.iter_mut().for_each(echo);
        assert_eq!(clients[0].status().counters.connections_refused, 5);
        drop(clients.pop());
        wait_until(|| farewell(&node, wire).is_none());
        node.stop();
    }
}

#[test]
fn a_client_that_floods_a_node_keeps_none_of_fifty_slow_ones_waiting() {
    for (wire, number) in WIRES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start();
        let (over, flooded) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut client = node.small(number);
                let mut asked = std::collections::VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    while asked.len() < 200 {
                        let target = client.target(0, 0);
                        asked.push_back(client.send(Request::Echo { bytes: 0, target }));
                    }
                    if let Some(id) = asked.pop_front() {
                        // More than a connection may have in progress are busy; that is an answer,
                        // too.
                        let _ = client.wait(id);
                        flooded.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            wait_until(|| flooded.load(Ordering::Relaxed) > 100);
            let slow: Vec<_> = (0..50)
                .map(|_| {
                    threads.spawn(|| {
                        let mut client = node.small(number);
                        (0..20).for_each(|_| echo(&mut client));
                    })
                })
                .collect();
            let served: Vec<bool> = slow.into_iter().map(|client| client.join().is_ok()).collect();
            let at_end = flooded.load(Ordering::Relaxed);
            over.store(true, Ordering::Relaxed);
            assert!(served.iter().all(|served| *served), "{wire}: slow clients were not served");
            assert!(at_end > 100, "{wire}: {at_end} answers to who floods");
        });
        node.stop();
    }
}
