//! Shows which message formats a receiver can poll for in memory that a sender writes one-sided.
//!
//! This demonstrates the purpose of the simulated wire. The sender writes a message into a buffer
//! of the receiver with one write. The receiver polls the buffer between steps and takes a message
//! when its format indicates that it is complete. Whether the format is right depends on what the
//! network may do; for each wrong combination a seed is found that shows it.
//!
//! | format | how the receiver knows | needs |
//! |---|---|---|
//! | one indicator | a byte behind the length | writes that are never torn |
//! | two indicators (RAMP with RDMA, section 3.1) | that byte, and one behind the body | bytes seen from the lowest address |
//! | line versions | a word in every line of 64 bytes | lines that are never torn |
//! | word versions | 2 of the 8 bytes of every word | only what holds on every wire |
//! | checksum | a digest of round, length and body | only what holds on every wire, and luck of 1 in 2^64 |

use rackscan_fabric::{
    Event, Operation, Region,
    sim::{Chance, Order, Random, Seed, SimConfig, Tearing},
};

use crate::scene::{CLIENT, Scene, each_seed};

const BUFFER_BYTES: usize = 1024;
const BODY_BYTES_MAX: usize = 300;
const ROUNDS: u16 = 4;

/// A format: how a message is put into a buffer, and how the receiver sees that it is there.
struct Format {
    /// The bytes of the message of a round.
    put: fn(u16, &[u8]) -> Vec<u8>,
    /// The body, if the format indicates that the message is complete.
    take: fn(u16, &Region) -> Option<Vec<u8>>,
}

fn bytes(buffer: &Region, offset: usize, length: usize) -> Option<Vec<u8>> {
    buffer.to_vec(offset, length).ok().filter(|_| offset + length <= BUFFER_BYTES)
}

fn length_at(buffer: &Region, offset: usize) -> Option<usize> {
    let length = usize::try_from(buffer.load_u64(offset).ok()?).ok()?;
    (length <= BODY_BYTES_MAX).then_some(length)
}

/// Length, indicator, body, indicator. The receiver clears its buffer, so that a set indicator is
/// new.
fn put_indicators(_round: u16, body: &[u8]) -> Vec<u8> {
    let mut message = (body.len() as u64).to_le_bytes().to_vec();
    message.push(1);
    message.extend_from_slice(body);
    message.push(1);
    message
}

const ONE_INDICATOR: Format = Format {
    put: put_indicators,
    take: |_, buffer| {
        let arrived = bytes(buffer, 8, 1)? == [1];
        arrived.then(|| bytes(buffer, 9, length_at(buffer, 0)?)).flatten()
    },
};

const TWO_INDICATORS: Format = Format {
    put: put_indicators,
    take: |_, buffer| {
        let head_arrived = bytes(buffer, 8, 1)? == [1];
        let length = length_at(buffer, 0).filter(|_| head_arrived)?;
        let all_arrived = bytes(buffer, 9 + length, 1)? == [1];
        all_arrived.then(|| bytes(buffer, 9, length)).flatten()
    },
};

/// Length and body in parts of `part` bytes, each preceded by the round in `version` bytes.
fn put_versions(round: u16, body: &[u8], version: usize, part: usize) -> Vec<u8> {
    let mut plain = u16::try_from(body.len()).expect("a short body").to_le_bytes().to_vec();
    plain.extend_from_slice(body);
    plain.resize(plain.len().next_multiple_of(part), 0);
    let versioned = |part: &[u8]| [&u64::from(round).to_le_bytes()[..version], part].concat();
    plain.chunks(part).flat_map(versioned).collect()
}

fn take_versions(round: u16, buffer: &Region, version: usize, part: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut wanted = 2;
    for at in (0..BUFFER_BYTES).step_by(version + part) {
        let versioned = bytes(buffer, at, version + part)?;
        if versioned[..version] != u64::from(round).to_le_bytes()[..version] {
            return None;
        }
        plain.extend_from_slice(&versioned[version..]);
        wanted = 2 + usize::from(u16::from_le_bytes([plain[0], plain[1]]));
        if plain.len() >= wanted {
            break;
        }
    }
    plain.get(2..wanted).map(<[u8]>::to_vec)
}

const LINE_VERSIONS: Format = Format {
    put: |round, body| put_versions(round, body, 8, 56),
    take: |round, buffer| take_versions(round, buffer, 8, 56),
};

const WORD_VERSIONS: Format = Format {
    put: |round, body| put_versions(round, body, 2, 6),
    take: |round, buffer| take_versions(round, buffer, 2, 6),
};

fn digest(round: u16, body: &[u8]) -> u64 {
    let words =
        [u64::from(round), body.len() as u64].into_iter().chain(body.iter().map(|byte| u64::from(*byte)));
    words.fold(0xCBF2_9CE4_8422_2325, |digest, word| {
        let mixed = (digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 29)
    })
}

const CHECKSUM: Format = Format {
    put: |round, body| {
        [&digest(round, body).to_le_bytes()[..], &(body.len() as u64).to_le_bytes(), body].concat()
    },
    take: |round, buffer| {
        // A private copy is checked and handed out, so that later writes cannot change it.
        let body = bytes(buffer, 16, length_at(buffer, 8)?)?;
        (buffer.load_u64(0).ok()? == digest(round, &body)).then_some(body)
    },
};

/// Sends messages of random lengths. `Err` is the round whose message the receiver got wrong.
fn converse(seed: Seed, config: SimConfig, format: &Format) -> Result<(), u16> {
    let mut random = Random::new(seed);
    let mut scene = Scene::new(seed, config);
    for round in 1..=ROUNDS {
        let body: Vec<u8> =
            (0..random.index(BODY_BYTES_MAX)).map(|_| random.next_u64().to_le_bytes()[0]).collect();
        let message = (format.put)(round, &body);
        let write = Operation::WriteBytes { bytes: &message, target: scene.name, target_offset: 0 };
        if scene.client.post(u64::from(round), write).is_err() {
            return Ok(());
        }
        let taken = loop {
            if let Some(taken) = (format.take)(round, &scene.memory) {
                break taken;
            }
            if !scene.net.step() {
                // Only a crash may keep a message from arriving.
                return if scene.net.crashes(CLIENT) > 0 { Ok(()) } else { Err(round) };
            }
        };
        if taken != body {
            return Err(round);
        }
        scene.memory.zero(0, BUFFER_BYTES).expect("zero");
        let mut events = Vec::new();
        // The answer permits the next write. The receiver may learn first that its sender has
        // crashed.
        if scene.server.post(u64::from(round), Operation::Send { bytes: b"next" }).is_err() {
            return Ok(());
        }
        while !events.iter().any(|event| matches!(event, Event::Message { .. } | Event::Closed(_))) {
            scene.client.poll(&mut events);
        }
    }
    Ok(())
}

/// Networks from benign to hostile, and how often the sender crashes on each.
fn network(tearing: Tearing, order: Order) -> SimConfig {
    let chance = Chance {
        crash_per_million: 2000,
        faults_max: 1,
        mortal: vec![CLIENT.to_owned()],
        ..Chance::default()
    };
    SimConfig { tearing, order, chance, ..SimConfig::default() }
}

const NETWORKS: [(Tearing, Order); 5] = [
    (Tearing::Whole, Order::Any),
    (Tearing::At64, Order::Ascending),
    (Tearing::At8, Order::Ascending),
    (Tearing::At64, Order::Any),
    (Tearing::At8, Order::Any),
];

/// Whether a format is right on each of the networks: no seed of many fails, or at least one does.
fn assert_right_on(format: &Format, expected: [bool; 5]) {
    for ((tearing, order), right) in NETWORKS.into_iter().zip(expected) {
        let config = network(tearing, order);
        if right {
            each_seed(2000, |seed| {
                let outcome = converse(seed, config.clone(), format);
                assert_eq!(outcome, Ok(()), "{tearing:?} {order:?}");
            });
        } else {
            // Fixed seeds, because the test shows that the simulation finds the fault.
            let wrong =
                (0..1000).find(|number| converse(Seed::new(*number), config.clone(), format).is_err());
            assert!(wrong.is_some(), "{tearing:?} {order:?}: no seed shows that the format is wrong");
        }
    }
}

#[test]
fn one_indicator_is_right_only_if_writes_are_not_torn() {
    assert_right_on(&ONE_INDICATOR, [true, false, false, false, false]);
    each_seed(100, |seed| assert_eq!(converse(seed, SimConfig::calm(), &ONE_INDICATOR), Ok(())));
}

#[test]
fn two_indicators_are_right_only_if_bytes_are_seen_in_order() {
    assert_right_on(&TWO_INDICATORS, [true, true, true, false, false]);
}

#[test]
fn line_versions_are_right_only_if_lines_are_not_torn() {
    assert_right_on(&LINE_VERSIONS, [true, true, false, true, false]);
}

#[test]
fn word_versions_are_right_on_every_network() {
    assert_right_on(&WORD_VERSIONS, [true; 5]);
}

#[test]
fn a_checksum_is_right_on_every_network() {
    assert_right_on(&CHECKSUM, [true; 5]);
}
