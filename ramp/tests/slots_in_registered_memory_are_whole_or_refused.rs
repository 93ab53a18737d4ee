//! Tests that a reader in another thread, which copies slots out of registered memory while their
//! owner writes, never accepts a torn slot, or one that was replaced before the copy began.
//!
//! Goal: the fabric's regions provide what `SlotMemory` requires. Method: a store over a region, a
//! writer that commits continually, and a reader that knows the offsets of the slots.

use rackscan_fabric::Region;
use rackscan_ramp::{
    algorithm::Algorithm,
    item::{Key, Value},
    message::{Guard, Part, ParticipantId},
    slot::{Place, SlotMemory, decode},
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// What a storage node writes around a region to keep slots in it.
struct Registered(Region);

impl SlotMemory for Registered {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn write(&mut self, offset: usize, words: &[u8]) {
        self.0.copy_in(offset, words).expect("slots lie inside");
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        self.0.store_u64(offset, word).expect("slots lie inside");
    }
}

const LIFE: u64 = 9;
const KEYS: usize = 4;

fn key(number: usize) -> Key {
    Key::new(format!("key{number}").as_bytes()).expect("a key")
}

fn commit(store: &mut Store<Registered>, time: u64) {
    let keys: Vec<Key> = (0..KEYS).map(key).collect();
    let timestamp = Timestamp { time, client: ClientId(1) };
    // Lengths differ, but not so much that a slot moves: the reader keeps its places.
    let copies = 60 + usize::try_from(time % 20).expect("few");
    let value = Value::new(&timestamp.to_bytes().repeat(copies)).expect("a value");
    let metadata = Algorithm::Fast.metadata(&keys);
    let items = keys.into_iter().map(|key| (key, value.clone())).collect();
    let part = Part { timestamp, participants: vec![ParticipantId(0)], guard: Guard::Open, metadata, items };
    store.prepare(&part).expect("there is room");
    store.commit(timestamp);
    store.settle(timestamp);
}

#[test]
fn slots_in_registered_memory_are_whole_or_refused() {
    let region = Region::allocate(64 << 10).unwrap();
    let options = StoreOptions { budget_bytes: 1 << 20, life: LIFE };
    let mut store = Store::new(options, Registered(region.clone()));
    // The longest first, so that all that follow fit its slots.
    commit(&mut store, 19);
    let places: Vec<Place> = (0..KEYS).map(|number| store.get(&key(number)).place.unwrap()).collect();
    let committed = AtomicU64::new(19);
    let until = Instant::now() + Duration::from_millis(300);
    let (mut believed, mut refused) = (0_u64, 0_u64);
    thread::scope(|scope| {
        scope.spawn(|| {
            for time in 20_u64.. {
                commit(&mut store, time);
                committed.store(time, Ordering::SeqCst);
                if Instant::now() > until {
                    return;
                }
                // So that readers find slots at rest, too.
                (0..time % 64).for_each(|_| std::hint::spin_loop());
            }
        });
        while Instant::now() < until {
            for (number, place) in places.iter().enumerate() {
                let before = committed.load(Ordering::SeqCst);
                let (offset, length) = (place.offset_bytes, place.length_bytes);
                let length = usize::try_from(length).unwrap();
                let bytes = region.to_vec(usize::try_from(offset).unwrap(), length).unwrap();
                let Ok(found) = decode(&bytes, &key(number), LIFE) else {
                    refused += 1;
                    continue;
                };
                believed += 1;
                assert!(found.timestamp.time >= before, "{} was replaced by {before}", found.timestamp);
                let value = found.value.bytes().unwrap();
                assert!(value.chunks(12).all(|copy| copy == found.timestamp.to_bytes()), "a torn value");
            }
        }
    });
    println!("{believed} believed, {refused} refused, {} transactions", committed.load(Ordering::SeqCst));
    assert!(believed > 0 && refused > 0, "{believed} believed, {refused} refused");
}
