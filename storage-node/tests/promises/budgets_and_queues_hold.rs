//! Promise: memory and queues stay within their bounds under any number of requests; a request that
//! does not fit is refused as busy and can be sent again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rackscan_format::{
    ids::{DeviceId, NodeId, SegmentId},
    message::{Answer, RawRead, RefusalCode, Request},
};

use rackscan_storage_node::ByteSize;

use crate::support::{
    client::Client,
    node::{NodeFolder, Running},
    table::Table,
};

/// Asks `count` times at once for a fetch and a scan each; returns how often each outcome came.
fn storm(client: &mut Client, table: &Table, count: u64) -> BTreeMap<String, usize> {
    let segment = &table.segments[0];
    let bytes = segment.stored_bytes();
    let mut requests = Vec::new();
    for _ in 0..count {
        let target = client.target(0, bytes);
        let (id, segment_id) = (table.id(), segment.directory.segment);
        let fetch = Request::Fetch { table: id, segment: segment_id, pages: segment.wanted(), target };
        let program = table.program(1000);
        let target = client.target(16 << 20, 8 << 20);
        let process = Request::Process {
            withheld: None,
            key_filters: Vec::new(),
            table: program.table,
            program,
            segment: SegmentId(0),
            first_block: 0,
            target,
            report_reads: false,
        };
        requests.extend([("fetch", client.send(fetch)), ("process", client.send(process))]);
    }
    let mut outcomes = BTreeMap::new();
    for (kind, id) in requests {
        let outcome = match client.wait(id).outcome {
            Ok(Answer::Fetched { .. } | Answer::Processed { .. }) => "served".to_owned(),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => format!("{:?}", refusal.code),
        };
        *outcomes.entry(format!("{kind} {outcome}")).or_default() += 1;
    }
    outcomes
}

fn loaded(change: impl FnOnce(&mut rackscan_storage_node::Config)) -> (NodeFolder, Running, Table) {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config();
    change(&mut config);
    let node = node_folder.start_with(config).expect("the node starts");
    let table = Table::new(1, "t", 1, 60_000);
    table.load(&mut node.shm());
    (node_folder, node, table)
}

#[test]
fn a_full_scan_queue_bounces_scans_and_still_serves_fetches() {
    let (_node_folder, node, table) = loaded(|config| config.scan_queue = 1);
    for (wire, mut client) in node.both() {
        let before = client.status().counters.bounced_requests;
        let outcomes = storm(&mut client, &table, 30);
        assert_eq!(outcomes.get("fetch served"), Some(&30), "{wire}: {outcomes:?}");
        // Over tcp the memory for results may be full before the queue is.
        let bounced = outcomes.iter().filter(|(outcome, _)| outcome.starts_with("process Bounced("));
        let busy: usize = bounced.map(|(_, count)| count).sum();
        assert!(wire != "shm" || outcomes.contains_key("process Bounced(Queue)"), "{outcomes:?}");
        let served = outcomes.get("process served").copied().unwrap_or(0);
        assert!(busy > 0 && served > 0 && busy + served == 30, "{wire}: {outcomes:?}");
        assert_eq!(client.status().counters.bounced_requests - before, busy as u64, "{wire}");
    }
    node.stop();
}

#[test]
fn memory_stays_within_the_budget_and_comes_back_under_many_clients() {
    let (_node_folder, node, table) = loaded(|config| {
        config.scan_workers = 2;
        config.memory_budget = ByteSize(96 << 20);
    });
    let idle = node.shm().status().counters.memory_used_bytes;
    std::thread::scope(|threads| {
        for number in 0..6 {
            let (node, table) = (&node, &table);
            threads.spawn(move || {
                let mut client = if number % 2 == 0 { node.shm() } else { node.tcp() };
                for _ in 0..3 {
                    let outcomes = storm(&mut client, table, 20);
                    assert_eq!(outcomes.get("fetch served"), Some(&20), "{outcomes:?}");
                }
            });
        }
    });
    let status = node.shm().status();
    let peak = status.counters.memory_peak_bytes;
    assert!(peak <= status.memory_budget_bytes, "{peak} of {}", status.memory_budget_bytes);
    // So that the test would notice if nothing were counted: six connections and a page each, at
    // least.
    assert!(peak > idle + 6 * 8192, "{peak}, idle {idle}");
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while node.shm().status().counters.memory_used_bytes > idle {
        assert!(std::time::Instant::now() < deadline, "memory did not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
    node.stop();
}

#[test]
fn connections_are_shared_by_all_reactors_and_threads_run_where_they_are_told() {
    let core = rackscan_device::allowed_cores()[0];
    let (_node_folder, node, table) = loaded(|config| {
        config.node = NodeId(88);
        config.reactors = 3;
        config.pin_cores = vec![core];
        config.memory_budget = ByteSize(256 << 20);
    });
    std::thread::scope(|threads| {
        for number in 0..6 {
            let (node, table) = (&node, &table);
            threads.spawn(move || {
                let mut client = if number % 2 == 0 { node.shm() } else { node.tcp() };
                assert_eq!(storm(&mut client, table, 10).get("fetch served"), Some(&10));
            });
        }
    });
    let mut pinned = 0;
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap_or_default();
        if status.contains("n88-reactor") || status.contains("n88-scan") {
            assert!(status.contains(&format!("Cpus_allowed_list:\t{core}\n")), "{status}");
            pinned += 1;
        }
    }
    assert_eq!(pinned, 4, "three reactors and a scan worker");
    node.stop();
}

#[test]
fn more_requests_than_a_connection_may_have_are_busy() {
    let (_node_folder, node, _) = loaded(|_| {});
    let mut client = node.tcp();
    // Large echoes keep the requests in progress while the others arrive.
    let ids: Vec<u64> = (0..200)
        .map(|_| {
            let target = client.target(0, 8 << 20);
            client.send(Request::Echo { bytes: 8 << 20, target })
        })
        .collect();
    let outcomes: Vec<bool> = ids
        .into_iter()
        .map(|id| match client.wait(id).outcome {
            Ok(_) => true,
            Err(refusal) => {
                assert_eq!(refusal.code, RefusalCode::Busy, "{refusal:?}");
                false
            }
        })
        .collect();
    assert!(outcomes.contains(&true) && outcomes.contains(&false));
    node.stop();
}

#[test]
fn appends_that_share_little_memory_end_while_others_keep_the_device_busy() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config();
    config.reactor_depth = 2;
    config.devices[0].size = Some(ByteSize(64 << 20));
    let node = node_folder.start_with(config).expect("the node starts");
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut client = node.shm();
            let target = client.target(0, 64 * 4096);
            let part = |number: u64| RawRead {
                device: DeviceId(0),
                offset_bytes: number * 4096,
                length_bytes: 4096,
                target_offset_bytes: number * 4096,
            };
            let request = Request::ReadRaw { reads: (0..64).map(part).collect(), target };
            let mut asked: VecDeque<u64> = (0..8).map(|_| client.send(request.clone())).collect();
            while let Some(id) = asked.pop_front() {
                assert!(client.wait(id).outcome.is_ok());
                if !over.load(Ordering::Relaxed) {
                    asked.push_back(client.send(request.clone()));
                }
            }
        });
        // Each append alone takes all of the memory for pages that are checked.
        let loaders: Vec<_> = (1..5)
            .map(|id| {
                let node = &node;
                threads.spawn(move || {
                    let mut client = if id == 4 { node.tcp() } else { node.shm() };
                    for round in 0..3 {
                        // An id is used once.
                        let table = Table::with_pages(id + 10 * round, "t", 1, 400_000, 256 << 10);
                        assert!(table.segments[0].stored_bytes() > 4 << 20);
                        table.append_all(&mut client);
                        client.done(Request::AbortLoad { load: table.id() });
                    }
                })
            })
            .collect();
        let ended: Vec<bool> = loaders.into_iter().map(|loader| loader.join().is_ok()).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(ended, [true; 4]);
    });
    node.stop();
}

#[test]
fn an_idle_node_sleeps() {
    // The node's number is in the names of its threads; other tests run nodes in this process too.
    let (_node_folder, node, _) = loaded(|config| config.node = NodeId(77));
    let mut clients = [node.shm(), node.tcp()];
    clients.iter_mut().for_each(|client| drop(client.status()));
    std::thread::sleep(Duration::from_millis(200));
    let ticks = || -> u64 {
        let mut total = 0;
        for thread in std::fs::read_dir("/proc/self/task").unwrap() {
            let folder = thread.unwrap().path();
            // A thread of another test may end meanwhile.
            let Ok(name) = std::fs::read_to_string(folder.join("comm")) else { continue };
            let Ok(stat) = std::fs::read_to_string(folder.join("schedstat")) else { continue };
            if name.starts_with("n77-") {
                total += stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        total
    };
    let before = ticks();
    assert!(before > 0, "the node's threads were not found");
    std::thread::sleep(Duration::from_secs(1));
    let spent = ticks() - before;
    assert!(spent < 1_000_000, "{spent} ns of a second in the threads of an idle node");
    node.stop();
}
