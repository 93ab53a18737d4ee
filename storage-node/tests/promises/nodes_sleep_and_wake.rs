//! Promise: a node without work uses almost no processor time, and a request that arrives while it
//! falls asleep is not lost.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use rackscan_fabric::Address;
use rackscan_format::message::{Answer, Request};
use rustix::time::{ClockId, clock_gettime};

use crate::support::node::{BRIDGES, Bridge, NodeFolder, Running};

/// Set in the process that measures itself: other tests would be measured with it.
const ALONE: &str = "RACKSCAN_NODE_ALONE";

/// Processor time of this process.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(spent.tv_sec).expect("time spent is not negative");
    Duration::new(seconds, u32::try_from(spent.tv_nsec).expect("nanoseconds"))
}

#[test]
fn a_node_without_work_uses_less_than_one_percent_of_a_core() {
    if std::env::var_os(ALONE).is_none() {
        let output = Command::new(std::env::current_exe().expect("our own path"))
            .args([
                "--exact",
                "nodes_sleep_and_wake::a_node_without_work_uses_less_than_one_percent_of_a_core",
            ])
            .env(ALONE, "1")
            .output()
            .expect("run alone");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    BRIDGES.into_iter().for_each(costs_nothing);
}

fn costs_nothing(bridge: Bridge) {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config_over(bridge);
    (config.reactors, config.scan_workers) = (2, 2);
    config.memory_budget = rackscan_storage_node::ByteSize(448 << 20);
    config.relay = vec![node_folder.relay_socket(), Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }];
    let node = node_folder.start_with(config).expect("the node starts");
    // Clients that are connected and have asked something cost nothing either once they are silent.
    let mut clients: Vec<_> = (0..8).flat_map(|_| [node.shm(), node.tcp()]).collect();
    for client in &mut clients {
        let _ = client.status();
    }
    std::thread::sleep(Duration::from_millis(200));
    let (before, began) = (processor_time(), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let (spent, time) = (processor_time().saturating_sub(before), began.elapsed());
    assert!(spent < time / 100, "{spent:?} of processor time in {time:?} without work, {bridge:?}");
    drop(clients);
    node.stop();
}

#[test]
fn a_request_is_answered_however_it_meets_a_reactor_that_falls_asleep() {
    falls_asleep(BRIDGES[0], 4000);
    BRIDGES[1..].iter().for_each(|bridge| falls_asleep(*bridge, 1000));
}

fn falls_asleep(bridge: Bridge, rounds: u64) {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_over(bridge);
    for connect in [Running::shm, Running::tcp] {
        // A reactor polls for some microseconds after its last work: pauses from none to twice as
        // long meet every step. Two clients in turn: what one is told must not depend on the
        // other's wake-up.
        let mut clients = [connect(&node), connect(&node)];
        for round in 0..rounds {
            let until = Instant::now() + Duration::from_nanos(round % 80 * 500);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            let client = &mut clients[usize::from(round % 3 == 0)];
            let target = client.target(0, 0);
            let asked = Instant::now();
            assert_eq!(client.ask(Request::Echo { bytes: 0, target }), Ok(Answer::Done));
            // A lost wake-up would last until the client gives up; nothing else takes seconds.
            assert!(
                asked.elapsed() < Duration::from_secs(5),
                "{bridge:?}, round {round}: {:?}",
                asked.elapsed()
            );
        }
    }
    node.stop();
}
