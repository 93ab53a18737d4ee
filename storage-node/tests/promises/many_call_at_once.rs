//! Promise: every client is answered, however many connect at the same moment.

use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

use rackscan_format::message::{Answer, Request};
use rackscan_storage_node::ByteSize;

use crate::support::node::{BRIDGES, Bridge, NodeFolder};

const CALLERS: usize = 32;

#[test]
fn all_who_call_at_once_are_answered() {
    BRIDGES.into_iter().for_each(call_at_once);
}

fn call_at_once(bridge: Bridge) {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config_over(bridge);
    (config.reactors, config.pollers, config.memory_budget) = (8, 8, ByteSize(640 << 20));
    let node = node_folder.start_with(config).expect("the node starts");
    for wire in [0, 1] {
        let rounds = 5;
        for round in 0..rounds {
            let together = Barrier::new(CALLERS);
            std::thread::scope(|threads| {
                for _ in 0..CALLERS {
                    threads.spawn(|| {
                        together.wait();
                        let asked = Instant::now();
                        let mut client = node.small(wire);
                        let target = client.target(0, 0);
                        assert_eq!(client.ask(Request::Echo { bytes: 0, target }), Ok(Answer::Done));
                        let waited = asked.elapsed();
                        assert!(waited < Duration::from_secs(5), "{bridge:?}, round {round}: {waited:?}");
                    });
                }
            });
        }
    }
    node.stop();
}
