//! Runs the second process of a wire measurement: the partner, which answers the measuring process.
//!
//! Invariants
//! - The partner carries out the tasks that arrive on its standard input, and ends when that
//!   closes.

use std::{
    collections::VecDeque,
    io::{BufRead, Read, Write},
    os::unix::net::UnixStream,
    time::Instant,
};

use rackscan_fabric::{Access, Address, ClusterKey, Listener, Operation, Region, connect, inbox::Inbox};

use super::{
    Ends, FabricBenchError, Task, Through,
    ends::{Outgoing, PATIENCE, check_length},
    partner::{LISTENS, REGION_BYTES, Shape, accept, called, distinct},
};

/// Serves the measuring process until it has no more tasks.
///
/// # Errors
/// The first failure.
pub fn answer() -> Result<(), FabricBenchError> {
    let mut lines = std::io::stdin().lock().lines();
    let Some(Task::Meet { key, plain, inbox, listen, shape }) = next(&mut lines)? else {
        return Err(FabricBenchError::Partner { found: "another task".into(), expected: "where to meet" });
    };
    let wrong = |found: String| FabricBenchError::Partner { found, expected: "a key and addresses" };
    let key: ClusterKey = key.parse().map_err(|error| wrong(format!("{error}")))?;
    let address = |text: &str| text.parse::<Address>().map_err(|error| wrong(error.to_string()));
    let meeting =
        Meeting { key, plain: address(&plain)?, inbox: address(&inbox)?, listen: address(&listen)?, shape };
    let (mut ends, _memory) = meet(&meeting)?;
    while let Some(task) = next(&mut lines)? {
        match task {
            Task::Meet { .. } => return Err(wrong("a second meeting".into())),
            Task::Echo { through, bytes, count } => echo(&mut ends, through, bytes, count)?,
            Task::Take { through, bytes, count } => take(&mut ends, through, bytes, count)?,
            Task::EchoSocket { path, bytes, count } => {
                let failed = |source| FabricBenchError::Process { action: "echo over a socket", source };
                echo_socket(&path, bytes, count).map_err(failed)?;
            }
        }
    }
    Ok(())
}

struct Meeting {
    key: ClusterKey,
    plain: Address,
    inbox: Address,
    listen: Address,
    shape: Shape,
}

/// The next task, if there is one.
fn next(lines: &mut std::io::Lines<std::io::StdinLock<'_>>) -> Result<Option<Task>, FabricBenchError> {
    let failed = |source| FabricBenchError::Process { action: "read a task", source };
    let Some(line) = lines.next().transpose().map_err(failed)? else { return Ok(None) };
    serde_json::from_str(&line).map(Some).map_err(std::io::Error::other).map_err(failed)
}

/// Connects to the measuring process. Returns the region that it reads and writes.
fn meet(meeting: &Meeting) -> Result<(Ends, Region), FabricBenchError> {
    let Meeting { key, plain, inbox: into, listen, shape } = meeting;
    let deadline = Instant::now() + PATIENCE;
    // In the order in which the other side accepts them.
    let mut both = connect(&called(plain, listen), key, deadline)?;
    let push_out = connect(&called(plain, listen), key, deadline)?;
    let push_in = connect(&called(plain, listen), key, deadline)?;
    let to_partner = connect(&called(into, listen), key, deadline)?;
    let mut inbox = Inbox::new(shape.config())?;
    let mut listener = Listener::bind_inboxes(&distinct(listen, "second"), key, vec![inbox.handle()])?;
    let failed = |source| FabricBenchError::Process { action: "print an address", source };
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{LISTENS}{}", listener.address()).and_then(|()| stdout.flush()).map_err(failed)?;
    let from_partner = accept(&mut listener, deadline)?;
    if shape.private
        && let Some((_, sender)) = from_partner.inbox()
    {
        // As on the other side.
        let _ = inbox.make_private(sender);
    }
    let memory = Region::allocate(REGION_BYTES)?;
    let name = both.register(&memory, Access::ReadWrite)?;
    both.post(0, Operation::Send { bytes: &name.to_bytes() })?;
    let mut ends = Ends { both, push_in, push_out, inbox, from_partner, to_partner, early: VecDeque::new() };
    ends.settle(Through::Both)?;
    Ok((ends, memory))
}

fn echo(ends: &mut Ends, through: Through, length: usize, count: u32) -> Result<(), FabricBenchError> {
    let message = Outgoing::new(length)?;
    let (mut events, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        check_length(ends.receive(through, &mut events, &mut bytes)?, length)?;
        ends.send(through, &message)?;
    }
    ends.settle(through)
}

fn take(ends: &mut Ends, through: Through, length: usize, count: u32) -> Result<(), FabricBenchError> {
    let (mut events, mut bytes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        check_length(ends.receive(through, &mut events, &mut bytes)?, length)?;
    }
    ends.send(through, &Outgoing::new(8)?)?;
    ends.settle(through)
}

fn echo_socket(path: &str, length: usize, count: u32) -> std::io::Result<()> {
    let mut socket = UnixStream::connect(path)?;
    let mut bytes = vec![0; length];
    for _ in 0..count {
        socket.read_exact(&mut bytes)?;
        socket.write_all(&bytes)?;
    }
    Ok(())
}
