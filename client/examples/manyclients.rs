//! Measures how long reads of busy clients take at running nodes, alone and beside many idle
//! clients.
//!
//! Run: `cargo run -p rackscan-client --example manyclients -- KEY_FILE IDLE BUSY SECONDS
//! ADDRESS...`, with an address of each node in the order of their ids. An idle client has two
//! connections to each node, like a shell in which nobody types. A busy client reads four keys
//! again as soon as it has its answer. The program prints a line of JSON; measure the memory of the
//! nodes separately meanwhile.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use rackscan_client::{Lines, LinesOptions, NodeEndpoint, Session, SessionOptions};
use rackscan_fabric::{Address, ClusterKey, raise_descriptor_limit};
use rackscan_format::ids::NodeId;
use rackscan_ramp::item::{Key, Value};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const KEYS: usize = 1000;
const KEYS_PER_READ: usize = 4;

fn options(nodes: &[Address], key: &ClusterKey, memory_bytes: usize) -> LinesOptions {
    let endpoint = |(node, address): (u16, &Address)| NodeEndpoint {
        id: NodeId(node),
        addresses: vec![address.clone()],
    };
    let nodes = (0..).zip(nodes).map(endpoint).collect();
    LinesOptions {
        nodes,
        key: key.clone(),
        wire: None,
        memory_bytes,
        patience: Duration::from_secs(30),
        posts: false,
    }
}

fn keys() -> Outcome<Vec<Key>> {
    let keys = (0..KEYS).map(|number| Key::new(format!("many{number}").as_bytes()));
    Ok(keys.collect::<Result<_, _>>()?)
}

/// How long each read took, in microseconds.
fn busy(mut session: Session, keys: &[Key], client: usize, end: Instant) -> Outcome<Vec<u64>> {
    let mut took = Vec::new();
    let mut at = client * 37;
    while Instant::now() < end {
        let wanted: Vec<Key> =
            (0..KEYS_PER_READ).map(|step| keys[(at + step * 251) % keys.len()].clone()).collect();
        at += 1;
        let begun = Instant::now();
        session.read(&wanted)?;
        took.push(u64::try_from(begun.elapsed().as_micros())?);
    }
    session.close();
    Ok(took)
}

fn main() -> Outcome<()> {
    raise_descriptor_limit();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [key_file, idle, busy_clients, seconds, addresses @ ..] = words.as_slice() else {
        return Err("expected KEY_FILE IDLE BUSY SECONDS ADDRESS...".into());
    };
    let key: ClusterKey = std::fs::read_to_string(key_file)?.parse()?;
    let (idle_clients, busy_clients): (usize, usize) = (idle.parse()?, busy_clients.parse()?);
    let seconds: u64 = seconds.parse()?;
    let nodes = addresses.iter().map(|text| text.parse()).collect::<Result<Vec<Address>, _>>()?;
    let keys = keys()?;
    let begun = Instant::now();
    let mut idle = Vec::new();
    for _ in 0..2 * idle_clients {
        let lines = Lines::connect(options(&nodes, &key, 128 << 10))?;
        if let Some(reason) = (0..nodes.len()).find_map(|node| lines.unavailable(node)) {
            return Err(format!("connection {}: {reason}", idle.len()).into());
        }
        idle.push(lines);
    }
    let connecting_s = begun.elapsed().as_secs_f64();
    let open = || Session::open(SessionOptions::new(options(&nodes, &key, 4 << 20)));
    let mut first = open()?;
    let value = Value::new(&[7; 100])?;
    for some in keys.chunks(50) {
        first.write(some.iter().map(|key| (key.clone(), value.clone())).collect())?;
    }
    first.close();
    let sessions = (0..busy_clients).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let took = std::thread::scope(|threads| {
        let running: Vec<_> = sessions
            .into_iter()
            .enumerate()
            .map(|(client, session)| {
                let keys = &keys;
                threads.spawn(move || busy(session, keys, client, end))
            })
            .collect();
        running
            .into_iter()
            .map(|client| client.join().map_err(|_| "a client panicked")?)
            .collect::<Outcome<Vec<_>>>()
    })?;
    let least = took.iter().map(Vec::len).min().unwrap_or(0);
    let most = took.iter().map(Vec::len).max().unwrap_or(0);
    let mut all: Vec<u64> = took.into_iter().flatten().collect();
    all.sort_unstable();
    let at = |share: usize| all.get(all.len().saturating_sub(1) * share / 1000).copied().unwrap_or(0);
    println!(
        "{{\"idle\": {idle_clients}, \"busy\": {busy_clients}, \"connecting_s\": {connecting_s:.2}, \"reads\": {}, \
         \"p50_us\": {}, \"p99_us\": {}, \"max_us\": {}, \"reads_of_slowest\": {least}, \"reads_of_fastest\": {most}}}",
        all.len(),
        at(500),
        at(990),
        at(1000)
    );
    Ok(())
}
