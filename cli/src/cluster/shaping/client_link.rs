//! Limits the link of a client: the nodes run in a network namespace of their own, which this
//! command reaches over a pair of virtual interfaces.
//!
//! ```text
//! this command -- [rate] link [rate] -- nodes, which reach each other by their own loopback
//! ```
//!
//! Invariants
//! - Both networks are unnamed: they belong to the processes in them and to this value, and the
//!   kernel removes them with the last of those.
//! - Only the calling thread of [`ClientLink::among_nodes`] enters the nodes' network, and only for
//!   the duration of that call.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
    process::{Child, Command, Stdio},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::wire::{BURST_BYTES, LATENCY, own_network, run};

/// Names and addresses of the interfaces; these networks have no other.
const CLIENT_END: &str = "client";
const NODES_END: &str = "nodes";
const CLIENT_ADDRESS: &str = "10.83.0.1/30";
const NODES_ADDRESS: &str = "10.83.0.2/30";
/// Address of the nodes on the link.
const NODES_HOST: &str = "10.83.0.2";

/// A link between this command and nodes that it starts.
#[derive(Debug)]
pub(crate) struct ClientLink {
    ours: File,
    theirs: File,
}

impl ClientLink {
    /// Restarts this command in a network of its own, unless it already runs in one, and creates a
    /// second network with a link between both that carries `mb_per_s` MB (10^6 bytes) per second
    /// in each direction. Returns in the restarted process; in the original process only on
    /// failure, with the reason.
    pub(crate) fn enter(mb_per_s: u32) -> Result<Self, String> {
        own_network()?;
        let open = |path: String| File::open(&path).map_err(|error| format!("{path}: {error}"));
        let mut holder = Holder::start()?;
        let pid = holder.enter()?;
        let link = Self {
            ours: open("/proc/thread-self/ns/net".to_owned())?,
            theirs: open(format!("/proc/{pid}/ns/net"))?,
        };
        let pair =
            ["link", "add", CLIENT_END, "type", "veth", "peer", "name", NODES_END, "netns", &pid.to_string()];
        run("ip", &pair)?;
        up(CLIENT_END, CLIENT_ADDRESS, mb_per_s)?;
        link.among_nodes(|| {
            run("ip", &["link", "set", "lo", "up"])?;
            up(NODES_END, NODES_ADDRESS, mb_per_s)
        })??;
        Ok(link)
    }

    /// The address at which nodes listen to be reached over the link.
    pub(crate) fn host(&self) -> &'static str {
        NODES_HOST
    }

    /// Runs `what` in the network of the nodes: processes started there stay there.
    pub(crate) fn among_nodes<T>(&self, what: impl FnOnce() -> T) -> Result<T, String> {
        let enter = |network: &File| {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|error| format!("cannot move a thread into another network: {error}"))
        };
        enter(&self.theirs)?;
        let done = what();
        enter(&self.ours)?;
        Ok(done)
    }
}

/// Gives an interface of this thread's network an address and a rate.
fn up(interface: &str, address: &str, mb_per_s: u32) -> Result<(), String> {
    run("ip", &["addr", "add", address, "dev", interface])?;
    run("ip", &["link", "set", interface, "up"])?;
    let (rate, burst) = (format!("{}bit", u64::from(mb_per_s) * 8_000_000), BURST_BYTES.to_string());
    let bucket = ["root", "tbf", "rate", &rate, "burst", &burst, "latency", LATENCY];
    run("tc", &[&["qdisc", "add", "dev", interface], bucket.as_slice()].concat()).map(drop)
}

/// A process in a new network, which keeps the network alive until this process has opened it.
struct Holder(Child);

impl Holder {
    fn start() -> Result<Self, String> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        unshare.spawn().map(Self).map_err(|error| format!("cannot run unshare: {error}"))
    }

    /// Waits until the process runs in the new network: it echoes a byte once it does. Returns its
    /// id.
    fn enter(&mut self) -> Result<u32, String> {
        let (Some(to), Some(from)) = (&mut self.0.stdin, &mut self.0.stdout) else {
            return Err("the process of unshare has no standard input or output".to_owned());
        };
        let mut heard = [0; 1];
        let said = to.write_all(b"\n").and_then(|()| from.read_exact(&mut heard));
        said.map_err(|error| format!("unshare --net: {error} (a network of its own needs root)"))?;
        Ok(self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // `cat` ends when its standard input closes.
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}
