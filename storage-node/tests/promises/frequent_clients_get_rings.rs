//! Promise: a client that sends many requests gets a private receive ring for as long as it does,
//! and no request is lost when it changes rings.

use std::time::{Duration, Instant};

use rackscan_format::message::{Answer, Request};

use crate::support::node::{NodeFolder, Running};

#[test]
fn a_client_that_becomes_frequent_is_moved_and_every_request_is_answered() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config();
    config.private_rings = 2;
    let node = node_folder.start_with(config).expect("the node starts");
    for connect in [Running::shm, Running::tcp] {
        let moves = |node: &Running| node.shm().status().counters.inbox_moves;
        let before = moves(&node);
        let mut rare: Vec<_> = (0..6).map(|_| connect(&node)).collect();
        let mut busy = connect(&node);
        let mut answered = 0_u64;
        let deadline = Instant::now() + Duration::from_secs(30);
        // Requests are in flight all the time, so that a move meets them.
        while moves(&node) == before || answered < 4000 {
            assert!(Instant::now() < deadline, "{answered} requests, {} moves", moves(&node) - before);
            let target = busy.target(0, 0);
            let asked: Vec<u64> = (0..50).map(|_| busy.send(Request::Echo { bytes: 0, target })).collect();
            for client in &mut rare {
                if answered.is_multiple_of(1000) {
                    let _ = client.status();
                }
            }
            for id in asked {
                assert_eq!(busy.wait(id).outcome, Ok(Answer::Done));
                answered += 1;
            }
        }
        // The others are served as before.
        for client in &mut rare {
            let _ = client.status();
        }
    }
    let counters = node.shm().status().counters;
    assert!(counters.inbox_messages > 8000, "{counters:?}");
    node.stop();
}
