//! Measures latency and bandwidth of messages through an inbox, next to a private ring.
//!
//! Invariants
//! - A latency is half of a ping-pong's round trip, with both sides polling (5.2). A bandwidth is
//!   that of a stream to a receiver that takes every message out of its ring and counts it.

use az::SaturatingAs;
use serde::Serialize;

use crate::{
    Provenance,
    fabric::{FabricBenchError, Outgoing, Partner, Place, Shape, Task, Through, least, most, times},
};

/// What to measure.
#[derive(Clone, Debug)]
pub struct InboxOptions {
    /// The wires, with the addresses that both processes listen at.
    pub places: Vec<Place>,
    /// Sizes of messages, in bytes.
    pub sizes: Vec<usize>,
    /// The shape of the inboxes.
    pub shape: Shape,
    /// Repetitions of each figure.
    pub repeat: u32,
    /// Effort per repetition, as a factor of the usual effort (1.0).
    pub effort: f64,
}

/// Default message sizes: 8 B to 1 MiB.
pub const SIZES: [usize; 8] = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Ping-pongs of one turn with small messages.
const TRIPS_PER_TURN: u32 = 20_000;
/// Maximum mebibytes that one turn moves in each direction.
const MEBIBYTES_PER_TURN: u32 = 256;
/// Maximum messages of a stream.
const STREAM_MESSAGES_MAX: u32 = 200_000;

/// One message size on one wire, as one JSON line.
#[derive(Clone, Debug, Serialize)]
pub struct InboxLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The wire.
    pub wire: String,
    /// Bytes of a message.
    pub bytes: usize,
    /// The inboxes' shape.
    pub shape: Shape,
    /// One-way microseconds through private rings, per repetition.
    pub push_us: Vec<f64>,
    /// The same through inboxes.
    pub inbox_us: Vec<f64>,
    /// Gigabytes per second through private rings, per repetition.
    pub push_gb_per_s: Vec<f64>,
    /// The same through inboxes.
    pub inbox_gb_per_s: Vec<f64>,
    /// Best latency of the inbox, as a multiple of the private ring's.
    pub latency_ratio: f64,
    /// Best bandwidth of the inbox, as a multiple of the private ring's.
    pub bandwidth_ratio: f64,
}

/// Runs the measurement; `progress` receives what is measured next.
///
/// # Errors
/// The first failure.
pub fn side_by_side(
    options: &InboxOptions,
    start: &dyn Fn() -> std::process::Command,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<InboxLine>, FabricBenchError> {
    let mut lines = Vec::new();
    for place in &options.places {
        let mut partner = Partner::start_shaped(place, options.shape, start())?;
        for &bytes in &options.sizes {
            progress(&format!("{}: messages of {bytes} bytes", place.wire()));
            lines.push(measure(&mut partner, place, bytes, options)?);
        }
        partner.stop()?;
    }
    Ok(lines)
}

fn measure(
    partner: &mut Partner,
    place: &Place,
    bytes: usize,
    options: &InboxOptions,
) -> Result<InboxLine, FabricBenchError> {
    let message = Outgoing::new(bytes)?;
    let fitting =
        ((MEBIBYTES_PER_TURN as usize) << 20).saturating_as::<u32>() / bytes.max(1).saturating_as::<u32>();
    let trips = times(TRIPS_PER_TURN.min(fitting), options.effort);
    let stream = times(STREAM_MESSAGES_MAX.min(fitting), options.effort);
    // Indexed by way of receiving, then by turn.
    let mut us = [Vec::new(), Vec::new()];
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..=options.repeat {
        for (index, through) in [Through::Push, Through::Inbox].into_iter().enumerate() {
            partner.ask(&Task::Echo { through, bytes, count: trips })?;
            let one_way = partner.ends.ping_pong(through, &message, trips)?;
            partner.ask(&Task::Take { through, bytes, count: stream })?;
            let rate = partner.ends.stream(through, &message, stream)?;
            // The first turn does not count: it touches all memory for the first time.
            if turn > 0 {
                us[index].push(one_way);
                rates[index].push(rate);
            }
        }
    }
    let [push_us, inbox_us] = us;
    let [push_gb_per_s, inbox_gb_per_s] = rates;
    Ok(InboxLine {
        provenance: Provenance::now("inbox", 0.0),
        wire: place.wire(),
        bytes,
        shape: options.shape,
        latency_ratio: least(&inbox_us) / least(&push_us),
        bandwidth_ratio: most(&inbox_gb_per_s) / most(&push_gb_per_s),
        push_us,
        inbox_us,
        push_gb_per_s,
        inbox_gb_per_s,
    })
}
