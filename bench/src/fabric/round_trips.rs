//! Measures the round trip of a small request and its reply over a wire, next to the same over a
//! Unix socket.
//!
//! Invariants
//! - On the fabric both sides poll. On the socket both sides block in the kernel, as is usual
//!   there.

use std::{
    io::{Read, Write},
    os::unix::net::UnixListener,
    time::Instant,
};

use super::{
    FabricBenchError, FabricLine, FabricOptions, Partner, Place, Task, Through, ends::Outgoing, least, times,
};
use crate::Provenance;

/// Bytes of a request and of its reply.
const BYTES: usize = 64;
/// Round trips of one turn.
const TRIPS_PER_TURN: u32 = 20_000;

/// Measures round trips over the wire and over a Unix socket.
pub(super) fn measure(
    partner: &mut Partner,
    place: &Place,
    options: &FabricOptions,
) -> Result<Vec<FabricLine>, FabricBenchError> {
    let count = times(TRIPS_PER_TURN, options.effort);
    let message = Outgoing::new(BYTES)?;
    let (mut wire, mut sockets) = (Vec::new(), Vec::new());
    for _ in 0..options.repeat {
        partner.ask(&Task::Echo { through: Through::Both, bytes: BYTES, count })?;
        wire.push(2.0 * partner.ends.ping_pong(Through::Both, &message, count)?);
        sockets.push(over_a_socket(partner, count)?);
    }
    let socket = least(&sockets);
    let line = |wire, runs: Vec<f64>| {
        let best = least(&runs);
        let provenance = Provenance::now("fabric", 0.0);
        let (what, unit, against, ratio) = ("round-trip", "us", "unix-socket", socket / best);
        FabricLine { provenance, what, wire, bytes: BYTES, unit, runs, best, against, ratio }
    };
    Ok(vec![line("unix-socket".to_owned(), sockets), line(place.wire(), wire)])
}

/// Microseconds of a round trip over a Unix socket.
fn over_a_socket(partner: &mut Partner, count: u32) -> Result<f64, FabricBenchError> {
    let path = std::env::temp_dir().join(format!("rackscan-bench-{}.sock", std::process::id()));
    let failed = |source| FabricBenchError::Process { action: "measure a socket", source };
    // A file left by an earlier run that was killed would prevent binding.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(failed)?;
    partner.ask(&Task::EchoSocket { path: path.display().to_string(), bytes: BYTES, count })?;
    let trips = || {
        let (mut socket, _) = listener.accept()?;
        let mut bytes = [7; BYTES];
        let started = Instant::now();
        for _ in 0..count {
            socket.write_all(&bytes)?;
            socket.read_exact(&mut bytes)?;
        }
        std::io::Result::Ok(started.elapsed().as_secs_f64() / f64::from(count) * 1e6)
    };
    let us = trips();
    let _ = std::fs::remove_file(&path);
    us.map_err(failed)
}
