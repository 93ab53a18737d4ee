//! Starts the second process of a wire measurement, the partner, and sends it tasks.
//!
//! Invariants
//! - Tasks are JSON lines on the partner's standard input. Everything that is measured goes over
//!   the fabric.
//! - The partner ends when its standard input closes, so it never outlives this process.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use rackscan_fabric::{
    Address, ClusterKey, Connection, Listener, RemoteRegion, connect,
    inbox::{Inbox, InboxConfig},
};
use serde::{Deserialize, Serialize};

use super::{
    FabricBenchError,
    ends::{Ends, PATIENCE, Through},
};

/// The addresses at which the two processes connect.
#[derive(Clone, Debug)]
pub struct Place {
    /// An address of this process; its unique part is changed for each listener.
    pub ours: Address,
    /// An address of the other process.
    pub theirs: Address,
}

impl Place {
    /// The name of its wire.
    #[must_use]
    pub fn wire(&self) -> String {
        let text = self.ours.to_string();
        text.split(':').next().unwrap_or_default().to_owned()
    }
}

/// Tasks of the other process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Task {
    /// First task: connect to both addresses and listen at the third.
    Meet {
        /// The cluster key, in hexadecimal digits.
        key: String,
        /// A listener without an inbox.
        plain: String,
        /// A listener with an inbox.
        inbox: String,
        /// Address to listen at with an inbox of its own.
        listen: String,
        /// The shape of that inbox.
        shape: Shape,
    },
    /// Echo this many messages.
    Echo {
        /// The way to send them.
        through: Through,
        /// Bytes of each.
        bytes: usize,
        /// Number of messages.
        count: u32,
    },
    /// Receive this many messages, then confirm with one.
    Take {
        /// The way to send them.
        through: Through,
        /// Bytes of each.
        bytes: usize,
        /// Number of messages.
        count: u32,
    },
    /// Connect to a Unix socket and echo this many messages.
    EchoSocket {
        /// Path of the socket.
        path: String,
        /// Bytes of each.
        bytes: usize,
        /// Number of messages.
        count: u32,
    },
}

/// The shape of the measured inboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Shape {
    /// Bytes of each ring.
    pub ring_bytes: usize,
    /// Bytes of a packet.
    pub packet_bytes: usize,
    /// Whether the sender has a ring of its own.
    pub private: bool,
}

impl Shape {
    /// The configuration of such an inbox for one or a few senders.
    #[must_use]
    pub fn config(self) -> InboxConfig {
        InboxConfig {
            ring_bytes: self.ring_bytes,
            packet_bytes: self.packet_bytes,
            private_rings: u16::from(self.private),
            ..InboxConfig::default()
        }
    }
}

impl Default for Shape {
    fn default() -> Self {
        let InboxConfig { ring_bytes, packet_bytes, .. } = InboxConfig::default();
        Self { ring_bytes, packet_bytes, private: true }
    }
}

/// The other process, and the connections and memory shared with it.
#[derive(Debug)]
pub struct Partner {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The ends of this process.
    pub ends: Ends,
    /// Memory of the other process.
    pub memory: RemoteRegion,
}

/// The memory that each process shares, in bytes.
pub(crate) const REGION_BYTES: usize = 64 << 20;

/// Prefix of the line in which the second process reports its listening address.
pub(crate) const LISTENS: &str = "listens at ";

/// Another address for one more listener.
pub(crate) fn distinct(address: &Address, name: &str) -> Address {
    match address {
        Address::Shm { path } => {
            let mut file = path.as_os_str().to_owned();
            file.push(format!("-{}-{name}", std::process::id()));
            Address::Shm { path: file.into() }
        }
        other => other.clone(),
    }
}

impl Partner {
    /// Starts `command`, which must call [`super::answer`], and connects to it.
    ///
    /// # Errors
    /// The process cannot be started, or does not connect.
    pub fn start(place: &Place, command: Command) -> Result<Self, FabricBenchError> {
        Self::start_shaped(place, Shape::default(), command)
    }

    /// Like [`Partner::start`], with inboxes of a given shape on both sides.
    ///
    /// # Errors
    /// The process cannot be started, or does not connect.
    pub fn start_shaped(place: &Place, shape: Shape, mut command: Command) -> Result<Self, FabricBenchError> {
        let process = |action| move |source| FabricBenchError::Process { action, source };
        let key = ClusterKey::generate().map_err(process("generate a key"))?;
        let mut plain = Listener::bind(&distinct(&place.ours, "plain"), &key)?;
        let mut inbox = Inbox::new(shape.config())?;
        let mut into_inbox =
            Listener::bind_inboxes(&distinct(&place.ours, "inbox"), &key, vec![inbox.handle()])?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(process("start the second process"))?;
        let stdin = child.stdin.take();
        let gone = || std::io::Error::other("it has no pipe");
        let stdout =
            child.stdout.take().ok_or_else(gone).map_err(process("open the output of the second process"))?;
        let mut stdout = BufReader::new(stdout);
        let mut stdin = stdin.ok_or_else(gone).map_err(process("open the input of the second process"))?;
        let meet = Task::Meet {
            key: key.to_hex(),
            plain: plain.address().to_string(),
            inbox: into_inbox.address().to_string(),
            listen: place.theirs.to_string(),
            shape,
        };
        say(&mut stdin, &meet)?;
        let deadline = Instant::now() + PATIENCE;
        let both = accept(&mut plain, deadline)?;
        let push_in = accept(&mut plain, deadline)?;
        let push_out = accept(&mut plain, deadline)?;
        let from_partner = accept(&mut into_inbox, deadline)?;
        let mut line = String::new();
        stdout.read_line(&mut line).map_err(process("read the address of the second process"))?;
        let expected = "the address that it listens at";
        let theirs = line.trim().strip_prefix(LISTENS).and_then(|address| address.parse().ok());
        let theirs: Address = theirs.ok_or(FabricBenchError::Partner { found: line.clone(), expected })?;
        let to_partner = connect(&called(&theirs, &place.ours), &key, deadline)?;
        if shape.private
            && let Some((_, sender)) = from_partner.inbox()
        {
            // An inbox without private rings (on verbs it is one shared queue) keeps the sender
            // where it is.
            let _ = inbox.make_private(sender);
        }
        let mut ends =
            Ends { both, push_in, push_out, inbox, from_partner, to_partner, early: VecDeque::new() };
        let name = ends.message()?;
        let expected = "the name of its memory";
        let name = name.as_slice().try_into();
        let name = name.map_err(|_| FabricBenchError::Partner {
            found: "a message of another length".into(),
            expected,
        })?;
        let memory = RemoteRegion::from_bytes(name);
        Ok(Self { child, stdin: Some(stdin), stdout, ends, memory })
    }

    /// Sends a task to the other process.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask(&mut self, task: &Task) -> Result<(), FabricBenchError> {
        let gone =
            || FabricBenchError::Partner { found: "that it has ended".into(), expected: "a living process" };
        say(self.stdin.as_mut().ok_or_else(gone)?, task)
    }

    /// Ends the other process.
    ///
    /// # Errors
    /// It ends with a failure.
    pub fn stop(mut self) -> Result<(), FabricBenchError> {
        drop(self.stdin.take());
        let mut rest = String::new();
        // Its remaining output does not matter; this waits for its end.
        let _ = self.stdout.read_line(&mut rest);
        let status = self.child.wait().map_err(|source| FabricBenchError::Process {
            action: "wait for the end of the second process",
            source,
        })?;
        if status.success() {
            return Ok(());
        }
        Err(FabricBenchError::Partner { found: status.to_string(), expected: "success" })
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Closing its input ends it; after a failed measurement it must not wait for anything else.
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of a listener as this process reaches it: with the device of this side.
pub(crate) fn called(theirs: &Address, ours: &Address) -> Address {
    match (theirs, ours) {
        (Address::Verbs { host, port, .. }, Address::Verbs { device, .. }) => {
            Address::Verbs { device: device.clone(), host: host.clone(), port: *port }
        }
        _ => theirs.clone(),
    }
}

fn say(stdin: &mut ChildStdin, task: &Task) -> Result<(), FabricBenchError> {
    let action = "send a task to the second process";
    let line = serde_json::to_string(task).map_err(std::io::Error::other);
    line.and_then(|line| writeln!(stdin, "{line}"))
        .and_then(|()| stdin.flush())
        .map_err(|source| FabricBenchError::Process { action, source })
}

pub(crate) fn accept(listener: &mut Listener, deadline: Instant) -> Result<Connection, FabricBenchError> {
    listener.accept_until(deadline)?.ok_or(FabricBenchError::Partner {
        found: "no connection within the time limit".into(),
        expected: "a connection",
    })
}
