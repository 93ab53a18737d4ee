//! Tests that a client connects again to a node that reports its status and then ends the
//! connection.

use std::{
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use rackscan_client::{Lines, LinesOptions, NodeEndpoint};
use rackscan_device::Wait;
use rackscan_fabric::{Connection, Event, Listener, Operation};
use rackscan_format::message::{Answer, LoadReport, ReplyMessage, RequestMessage};

use crate::fake_node::{addresses, key, status};

const SOON: Duration = Duration::from_secs(10);

/// Answers one request after the other; where `hangs_up`, the answer and the end go together.
fn answer(mut connection: Connection, hangs_up: bool) {
    let (mut events, deadline) = (Vec::new(), Instant::now() + SOON);
    while connection.wait(&mut events, deadline) > 0 {
        for event in events.drain(..) {
            let Event::Message { bytes } = event else { continue };
            let message = RequestMessage::decode(&bytes).expect("the client speaks our protocol");
            let outcome = Ok(Answer::Status(Box::new(status(0))));
            let reply = ReplyMessage { id: message.id, outcome, load: LoadReport::default() };
            let bytes = reply.encode().expect("a small reply");
            connection.hold();
            connection.post(0, Operation::Send { bytes: &bytes }).expect("the queue has room");
            if hangs_up {
                return;
            }
            connection.release();
        }
    }
}

#[test]
fn a_node_that_ends_with_its_greeting_is_connected_to_again() {
    let folder = tempfile::tempdir().expect("a folder");
    for address in addresses(&folder, 0) {
        let mut listener = Listener::bind(&address, &key()).expect("the address is free");
        let nodes = vec![NodeEndpoint { id: status(0).node, addresses: vec![listener.address().clone()] }];
        let (is_met, met) = channel();
        let serving = std::thread::spawn(move || {
            for hangs_up in [true, false] {
                let connection = listener.accept_until(Instant::now() + SOON).expect("a caller");
                let Some(connection) = connection else { return };
                is_met.send(hangs_up).expect("the test goes on");
                answer(connection, hangs_up);
            }
        });
        let (wire, memory_bytes, patience, posts) = (None, 1 << 20, SOON, false);
        let options = LinesOptions { nodes, key: key(), wire, memory_bytes, patience, posts };
        let mut lines = Lines::begin(options).expect("it begins");
        let deadline = Instant::now() + SOON;
        let (mut events, mut connections) = (Vec::new(), Vec::new());
        while (connections.len() < 2 || lines.unavailable(0).is_some()) && Instant::now() < deadline {
            lines.poll(Wait::Until(Instant::now() + Duration::from_millis(10)), &mut events);
            connections.extend(met.try_iter());
        }
        assert_eq!((connections, lines.unavailable(0)), (vec![true, false], None), "{address}");
        drop(lines);
        serving.join().expect("the node did not panic");
    }
}
