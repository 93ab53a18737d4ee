//! Measures how long a snapshot of a participant's store takes. A node takes one when it replaces
//! its log by a shorter one, and its reactor pauses meanwhile. The records of the new log are
//! encoded outside of that pause, and measured separately.
//!
//! Usage: `snapshotbench [KEYS]`.

use rackscan_ramp::{
    item::{Key, Metadata, Value},
    log::snapshot_records,
    message::{Guard, Part, ParticipantId},
    slot::SlotVector,
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};
use std::{error::Error, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let keys: u64 = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    for value_bytes in [100, 1000] {
        let options = StoreOptions { budget_bytes: usize::MAX, life: 1 };
        let mut store = Store::new(options, SlotVector::zeroed(256 << 20));
        for time in 1..=keys {
            let timestamp = Timestamp { time, client: ClientId(1) };
            let key = Key::new(format!("user{:019}", time.wrapping_mul(0x9e37_79b9_7f4a_7c15)).as_bytes())?;
            let items = vec![(key, Value::new(&vec![7; value_bytes])?)];
            let (participants, guard, metadata) = (vec![ParticipantId(0)], Guard::Open, Metadata::Timestamp);
            store.prepare(&Part { timestamp, participants, guard, metadata, items })?;
            store.commit(timestamp);
            store.settle(timestamp);
        }
        let began = Instant::now();
        let snapshot = store.snapshot();
        let pause = began.elapsed();
        let began = Instant::now();
        let records = snapshot_records(snapshot);
        println!(
            "{keys} keys with values of {value_bytes} bytes: snapshot {:.1} ms, {} records in {:.1} ms elsewhere",
            pause.as_secs_f64() * 1e3,
            records.len(),
            began.elapsed().as_secs_f64() * 1e3,
        );
    }
    Ok(())
}
