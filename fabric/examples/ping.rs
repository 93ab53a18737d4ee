//! How fast is each wire on this machine?
//!
//! ```text
//! cargo run --release -p rackscan-fabric --example ping [-- [quick] [shm|tcp]]
//! ```
//!
//! Two processes (this one starts the other) and one JSON line per measurement: the round trip of a message and its
//! answer, a one-sided read of a 4 KiB page, and the rate of one-sided writes and reads by size, beside a copy of the same
//! size inside one process. It measures; it judges nothing. `quick` takes a hundredth of the time, to see that it runs.

use std::{
    error::Error,
    process::{Child, Command},
    time::{Duration, Instant},
};

use rackscan_fabric::{
    Access, Address, ClusterKey, Connection, Event, Listener, Operation, Region, RemoteRegion, connect,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const REGION_BYTES: usize = 64 << 20;
const SIZES: [usize; 5] = [4 << 10, 32 << 10, 128 << 10, 1 << 20, 8 << 20];
const DEPTH: usize = 16;

fn key() -> ClusterKey {
    ClusterKey::from_bytes([42; 32])
}

fn patience() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, address] = arguments.as_slice()
        && role == "answer"
    {
        return answer(&address.parse()?);
    }
    let (quick, wires): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| *argument == "quick");
    let effort = if quick.is_empty() { FULL } else { QUICK };
    memory_copy(effort)?;
    for wire in ["shm", "tcp"] {
        if wires.is_empty() || wires.iter().any(|wanted| *wanted == wire) {
            measure(wire, effort)?;
        }
    }
    Ok(())
}

/// How much is done for one figure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    bytes_per_rate: usize,
    round_trips: usize,
}

const FULL: Effort = Effort { bytes_per_rate: 2 << 30, round_trips: 20_000 };
const QUICK: Effort = Effort { bytes_per_rate: 16 << 20, round_trips: 200 };

/// What a figure is about.
#[derive(Debug, Clone, Copy)]
struct Subject<'a> {
    what: &'a str,
    wire: &'a str,
    bytes: usize,
    effort: Effort,
}

/// The other process: grants a region and answers every message with the same bytes.
fn answer(address: &Address) -> Outcome<()> {
    let mut connection = connect(address, &key(), patience())?;
    let region = Region::allocate(REGION_BYTES)?;
    let remote = connection.register(&region, Access::ReadWrite)?;
    connection.post(0, Operation::Send { bytes: &remote.to_bytes() })?;
    let mut events = Vec::new();
    while connection.ended().is_none() {
        connection.wait(&mut events, patience());
        for event in events.drain(..) {
            if let Event::Message { bytes } = event {
                connection.post(0, Operation::Send { bytes: &bytes })?;
            }
        }
    }
    Ok(())
}

struct Peer {
    process: Child,
    connection: Connection,
    remote: RemoteRegion,
    region: Region,
}

fn start(wire: &str) -> Outcome<Peer> {
    let address = match wire {
        "shm" => format!("shm:{}/rackscan-ping-{}.sock", std::env::temp_dir().display(), std::process::id()),
        _ => "tcp:127.0.0.1:0".to_owned(),
    };
    let mut listener = Listener::bind(&address.parse()?, &key())?;
    let process =
        Command::new(std::env::current_exe()?).args(["answer", &listener.address().to_string()]).spawn()?;
    let mut connection = listener.accept_until(patience())?.ok_or("the other process did not come")?;
    let name = receive(&mut connection)?;
    let remote = RemoteRegion::from_bytes(name.as_slice().try_into()?);
    Ok(Peer { process, connection, remote, region: Region::allocate(REGION_BYTES)? })
}

/// Waits for a message.
fn receive(connection: &mut Connection) -> Outcome<Vec<u8>> {
    let mut events = Vec::new();
    loop {
        if connection.wait(&mut events, patience()) == 0 {
            return Err("the other process is silent".into());
        }
        for event in events.drain(..) {
            match event {
                Event::Message { bytes } => return Ok(bytes),
                Event::Completed { outcome, .. } => drop(outcome?),
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
}

/// Waits until at most `left` operations are in flight.
fn complete(connection: &mut Connection, left: usize) -> Outcome<()> {
    let mut events = Vec::new();
    while connection.in_flight() > left {
        if connection.wait(&mut events, patience()) == 0 {
            return Err("operations do not complete".into());
        }
        for event in events.drain(..) {
            match event {
                Event::Completed { outcome, .. } => drop(outcome?),
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    Ok(())
}

fn measure(wire: &str, effort: Effort) -> Outcome<()> {
    let mut peer = start(wire)?;
    let subject = |what, bytes| Subject { what, wire, bytes, effort };
    for bytes in [64, 4096] {
        round_trips(subject("send_round_trip", bytes), || {
            peer.connection.post(0, Operation::Send { bytes: &[7; 4096][..bytes] })?;
            receive(&mut peer.connection).map(drop)
        })?;
    }
    round_trips(subject("read_one_page", 4096), || {
        let target = peer.region.slice(0, 4096)?;
        peer.connection.post(0, Operation::Read { source: peer.remote, source_offset: 4096, target })?;
        complete(&mut peer.connection, 0)
    })?;
    for bytes in SIZES {
        rate(subject("write", bytes), |step| {
            let Step::Transfer { offset } = step else { return complete(&mut peer.connection, 0) };
            let source = peer.region.slice(offset, bytes)?;
            let target_offset = offset as u64;
            peer.connection.post(0, Operation::Write { source, target: peer.remote, target_offset })?;
            complete(&mut peer.connection, DEPTH)
        })?;
        rate(subject("read", bytes), |step| {
            let Step::Transfer { offset } = step else { return complete(&mut peer.connection, 0) };
            let target = peer.region.slice(offset, bytes)?;
            let source_offset = offset as u64;
            peer.connection.post(0, Operation::Read { source: peer.remote, source_offset, target })?;
            complete(&mut peer.connection, DEPTH)
        })?;
    }
    peer.connection.close();
    let status = peer.process.wait()?;
    if status.success() { Ok(()) } else { Err(format!("the other process: {status}").into()) }
}

/// The limit that shared memory can reach: a copy of the same size in private memory, and out of a region.
fn memory_copy(effort: Effort) -> Outcome<()> {
    let subject = |what, bytes| Subject { what, wire: "none", bytes, effort };
    let source = vec![1_u8; REGION_BYTES];
    let mut target = vec![0_u8; REGION_BYTES];
    let region = Region::allocate(REGION_BYTES)?;
    for bytes in SIZES {
        rate(subject("memcpy", bytes), |step| {
            let Step::Transfer { offset } = step else { return Ok(()) };
            target[offset..offset + bytes].copy_from_slice(&source[offset..offset + bytes]);
            std::hint::black_box(&mut target);
            Ok(())
        })?;
        rate(subject("region_copy_out", bytes), |step| {
            let Step::Transfer { offset } = step else { return Ok(()) };
            region.copy_out(offset, &mut target[offset..offset + bytes])?;
            Ok(())
        })?;
    }
    Ok(())
}

fn round_trips(subject: Subject<'_>, mut trip: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    let Subject { what, wire, bytes, effort: Effort { round_trips, .. } } = subject;
    for _ in 0..round_trips / 10 {
        trip()?;
    }
    let mut times = Vec::with_capacity(round_trips);
    for _ in 0..round_trips {
        let started = Instant::now();
        trip()?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let us = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000].as_secs_f64() * 1e6;
    println!(
        "{{\"bench\":\"fabric_{what}\",\"wire\":\"{wire}\",\"bytes\":{bytes},\"us_p50\":{:.2},\"us_p99\":{:.2},\"runs\":{round_trips}}}",
        us(500),
        us(990)
    );
    Ok(())
}

/// What the measured code is asked to do.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Start a transfer at this offset.
    Transfer { offset: usize },
    /// Wait until all of them are done.
    Finish,
}

fn rate(subject: Subject<'_>, mut act: impl FnMut(Step) -> Outcome<()>) -> Outcome<()> {
    let Subject { what, wire, bytes, effort: Effort { bytes_per_rate, .. } } = subject;
    let steps = bytes_per_rate / bytes;
    let places = REGION_BYTES / bytes;
    for place in 0..places {
        act(Step::Transfer { offset: place * bytes })?;
    }
    act(Step::Finish)?;
    let started = Instant::now();
    for number in 0..steps {
        act(Step::Transfer { offset: number % places * bytes })?;
    }
    act(Step::Finish)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let gb_per_s = (steps * bytes) as f64 / started.elapsed().as_secs_f64() / 1e9;
    println!(
        "{{\"bench\":\"fabric_{what}\",\"wire\":\"{wire}\",\"bytes\":{bytes},\"gb_per_s\":{gb_per_s:.2},\"runs\":{steps}}}"
    );
    Ok(())
}
