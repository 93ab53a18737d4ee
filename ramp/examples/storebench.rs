//! Measures the CPU time that a transaction takes in clients and participants, without wires and
//! disks.
//!
//! Usage: `cargo run --release -p rackscan-ramp --example storebench -- TRANSACTIONS`. A
//! transaction has eight keys with values of 1 KB, on four participants in this process. Each line
//! of the output is one algorithm: microseconds for a write and for a read by messages, and for a
//! read of eight slots.

use rackscan_ramp::{
    algorithm::{Algorithm, Begun, Cluster, Coordinator, Event, Message, Outcome},
    item::{Key, Value},
    log::{LogWriter, Tail},
    message::{LeaseId, ParticipantId, Reply, Request},
    participant::{Participant, Peer},
    slot::{Place, SlotVector, decode},
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};
use std::{error::Error, time::Instant};

const PARTICIPANTS: u16 = 4;
const KEYS: u64 = 1000;
const KEYS_PER_TRANSACTION: u64 = 8;

struct Participants {
    participants: Vec<Participant<SlotVector>>,
    leases: Vec<LeaseId>,
}

impl Cluster for Participants {
    fn participant(&self, key: &Key) -> ParticipantId {
        ParticipantId(
            u16::try_from(key.fingerprint().0 % u64::from(PARTICIPANTS)).expect("below PARTICIPANTS"),
        )
    }

    fn lease(&self, participant: ParticipantId) -> LeaseId {
        self.leases[usize::from(participant.0)]
    }
}

impl Participants {
    fn new() -> Self {
        let options = StoreOptions { budget_bytes: 1 << 30, life: 1 };
        let participant = |_| {
            Participant::new(Store::new(options, SlotVector::zeroed(4 << 20)), LogWriter::after(Tail::START))
        };
        let mut this =
            Self { participants: (0..PARTICIPANTS).map(participant).collect(), leases: Vec::new() };
        for participant in 0..PARTICIPANTS {
            let Some(Reply::Leased { lease, .. }) =
                this.ask(ParticipantId(participant), Request::Lease { client: ClientId(1) }).pop()
            else {
                continue;
            };
            this.leases.push(lease);
        }
        this
    }

    /// A participant's answers; its log is durable at once.
    fn ask(&mut self, participant: ParticipantId, request: Request) -> Vec<Reply> {
        let participant = &mut self.participants[usize::from(participant.0)];
        participant.request(Peer(0), request);
        if let Some(batch) = participant.log_mut().take_batch() {
            participant.durable(batch.sequence);
        }
        participant.take_replies().into_iter().map(|(_, reply)| reply).collect()
    }

    /// Carries a transaction to its end.
    fn run(&mut self, (mut coordinator, mut messages): (Coordinator, Vec<Message>)) -> Option<Outcome> {
        while !messages.is_empty() {
            let mut next = Vec::new();
            let mut outcome = None;
            for Message { to, request } in messages {
                for reply in self.ask(to, request) {
                    let step = coordinator.step(Event::Reply { from: to, reply });
                    next.extend(step.messages);
                    outcome = outcome.or(step.outcome);
                }
            }
            if outcome.is_some() {
                return outcome;
            }
            messages = next;
        }
        None
    }
}

fn keys(draw: &mut u64) -> Vec<Key> {
    let mut keys: Vec<u64> = Vec::new();
    while (keys.len() as u64) < KEYS_PER_TRANSACTION {
        *draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (*draw >> 33) % KEYS;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.into_iter().map(|key| Key::new(format!("user{key:019}").as_bytes()).expect("a key")).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let transactions: u32 = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let micros = |start: Instant| start.elapsed().as_secs_f64() * 1e6 / f64::from(transactions);
    for algorithm in Algorithm::ALL {
        let (mut participants, mut draw, mut settled) = (Participants::new(), 1, Vec::new());
        let value = Value::new(&[7; 1000])?;
        let start = Instant::now();
        for time in 1..=u64::from(transactions) {
            let timestamp = Timestamp { time, client: ClientId(1) };
            let items = keys(&mut draw).into_iter().map(|key| (key, value.clone()).into()).collect();
            let begun = Begun { timestamp, wall_ms: 0, settled: &settled };
            let begun = algorithm.begin_write(begun, items, &participants)?;
            settled = match participants.run(begun) {
                Some(Outcome::Committed { timestamp }) => vec![timestamp],
                other => return Err(format!("{algorithm}: {other:?}").into()),
            };
        }
        let write = micros(start);
        let start = Instant::now();
        for time in 1..=u64::from(transactions) {
            let timestamp = Timestamp { time: (1 << 40) + time, client: ClientId(1) };
            let begun = algorithm.begin_read(timestamp, &keys(&mut draw), &participants)?;
            if !matches!(participants.run(begun), Some(Outcome::Read { .. })) {
                return Err(format!("{algorithm}: a read did not end").into());
            }
        }
        let read = micros(start);
        let places: Vec<(Key, usize, Place)> = (0..KEYS)
            .filter_map(|key| {
                let key = Key::new(format!("user{key:019}").as_bytes()).ok()?;
                let participant = usize::from(participants.participant(&key).0);
                participants.participants[participant]
                    .store()
                    .get(&key)
                    .place
                    .map(|place| (key, participant, place))
            })
            .collect();
        let start = Instant::now();
        let mut believed = 0_u64;
        for (key, participant, place) in
            places.iter().cycle().take(places.len().min(1) * 8 * transactions as usize)
        {
            let from = usize::try_from(place.offset_bytes)?;
            let memory = participants.participants[*participant].store().area().memory().as_slice();
            let copy = memory[from..from + place.length_bytes as usize].to_vec();
            believed += u64::from(decode(&copy, key, 1).is_ok());
        }
        let slots = micros(start);
        let status: Vec<_> =
            participants.participants.iter().map(|participant| participant.store().status()).collect();
        let sum = |of: fn(&rackscan_ramp::store::StoreStatus) -> usize| status.iter().map(of).sum::<usize>();
        #[expect(clippy::cast_precision_loss, reason = "a share in percent")]
        let share = 100.0 * sum(|of| of.metadata_bytes) as f64 / sum(|of| of.value_bytes).max(1) as f64;
        println!(
            "{algorithm}: write {write:.2} us, read {read:.2} us, eight slots {slots:.2} us ({believed} believed), metadata {share:.2} % of values"
        );
    }
    Ok(())
}
