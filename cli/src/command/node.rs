//! `rackscan node`: runs one storage node in the foreground.

use crate::{args, cluster::node_config, failure::Failure};
use rackscan_storage_node::Node;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use std::io::Read;

/// Runs the node until it is told to stop: by a request, by SIGTERM or Ctrl-C, or, with
/// `--lifeline`, by the end of standard input.
pub(crate) fn run(node: &args::Node) -> Result<(), Failure> {
    let config = node_config(&node.config, node.id)?;
    let id = config.node;
    let handle = Node::start(config).map_err(|error| Failure::of(&error))?;
    for address in handle.addresses() {
        tracing::info!("node {id} listens at {address}");
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| Failure::Runtime(format!("cannot watch for signals: {error}")))?;
    let asked = handle.stopper();
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            tracing::info!("stopping on signal {signal}");
            asked();
        }
    });
    if node.lifeline {
        let held = handle.stopper();
        std::thread::spawn(move || {
            // Nothing is ever sent: this returns when the parent has ended or closed the pipe.
            let mut nothing = [0_u8; 1];
            while matches!(std::io::stdin().read(&mut nothing), Ok(1..)) {}
            held();
        });
    }
    handle.wait().map_err(|error| Failure::of(&error))
}
