//! Measures how long the history checker (`rackscan_ramp::history`) takes.
//!
//! Usage: `cargo run --release -p rackscan-ramp --example checkbench -- TRANSACTIONS KEYS`. Half of
//! the transactions write and half read; each names four of the KEYS keys. The history contains no
//! violation.

use rackscan_ramp::{
    history::{End, History, Read, Write, check},
    timestamp::{ClientId, Timestamp},
};
use std::time::Instant;

fn main() {
    let argument = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(Ok(default), |text| text.parse()).expect("a number")
    };
    let (transactions, keys) = (argument(1, 1_000_000), argument(2, 100_000));
    let timestamp = |time| Timestamp { time, client: ClientId(1) };
    let mut history = History::default();
    let mut state = vec![Timestamp::FIRST; usize::try_from(keys).expect("keys fit memory")];
    let mut place = 0_u64;
    for time in 1..=transactions {
        let picked = [0, 1, 2, 3].map(|step: u64| {
            place =
                place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407 + step);
            (place >> 33) % keys
        });
        let session = u32::try_from(time % 64).expect("a small number");
        let (from, to) = (2 * time, 2 * time + 1);
        let at = |key: u64| usize::try_from(key).expect("keys fit memory");
        if time.is_multiple_of(2) {
            picked.iter().for_each(|key| state[at(*key)] = timestamp(time));
            let write = Write {
                timestamp: timestamp(time),
                keys: picked.to_vec(),
                expected: vec![],
                session,
                from,
                to,
                end: End::Committed,
            };
            history.writes.push(write);
        } else {
            let found = picked.iter().map(|key| (*key, state[at(*key)])).collect();
            history.reads.push(Read { found, session, from, to });
        }
    }
    let start = Instant::now();
    let violations = check(&history).len();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{transactions} transactions, {} operations, {violations} violations, {seconds:.3} s",
        4 * transactions
    );
}
