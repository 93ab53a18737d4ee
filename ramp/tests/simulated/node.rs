//! A node of the simulation: a participant, the disk under its log, and the transactions that it
//! terminates. A crash loses all bytes that were not synced, and some of those that were being
//! synced.

use crate::{defect::Defect, memory::Slots};
use rackscan_fabric::sim::Random;
use rackscan_ramp::{
    limits::LOG_HEADER_BYTES,
    log::{Batch, LogWriter, Record, Tail, read, recover, snapshot_records},
    message::{LeaseId, Reply, Request},
    participant::{Participant, Peer},
    store::StoreOptions,
    termination::Termination,
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, VecDeque};

/// A disk that keeps what was synced.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    bytes: Vec<u8>,
    /// What is being synced.
    pub(crate) batch: Option<Batch>,
}

impl Disk {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    /// The batch is on the disk, all of it.
    pub(crate) fn synced(&mut self) -> u64 {
        let batch = self.batch.take().expect("a batch is being synced");
        self.write(usize::try_from(batch.offset_bytes).expect("an offset"), &batch.bytes);
        batch.sequence
    }

    /// Power is lost: some pieces of the batch are on the disk.
    fn crash(&mut self, random: &mut Random) {
        let Some(batch) = self.batch.take() else { return };
        let step = [8, 64, 512][random.index(3)];
        let offset = usize::try_from(batch.offset_bytes).expect("an offset");
        for (at, piece) in (offset..).step_by(step).zip(batch.bytes.chunks(step)) {
            if random.below(2) == 0 {
                self.write(at, piece);
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Which life of the participant; what was sent to another one is lost.
    pub(crate) life: u64,
    /// None while it is down.
    pub(crate) participant: Option<Participant<Slots>>,
    pub(crate) memory: Slots,
    pub(crate) disk: Disk,
    /// Waits until what was written to memory has been seen.
    pub(crate) inbox: VecDeque<(Peer, Request)>,
    pub(crate) outbox: Vec<(Peer, Reply)>,
    pub(crate) endings: BTreeMap<Timestamp, Termination>,
    /// Leases that it gave, for a defect.
    pub(crate) leases: Vec<LeaseId>,
    /// How wrong its clock is, in milliseconds.
    pub(crate) skew: i64,
    budget_bytes: usize,
    defect: Option<Defect>,
}

/// What a node found when it came back.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) cut: bool,
    pub(crate) in_doubt: usize,
}

impl Node {
    pub(crate) fn new(budget_bytes: usize, defect: Option<Defect>) -> Self {
        let (memory, inbox, outbox) = (Slots::new(defect), VecDeque::new(), Vec::new());
        let (endings, leases, skew) = (BTreeMap::new(), Vec::new(), 0);
        Self {
            life: 0,
            participant: None,
            memory,
            disk: Disk::default(),
            inbox,
            outbox,
            endings,
            leases,
            skew,
            budget_bytes,
            defect,
        }
    }

    pub(crate) fn crash(&mut self, random: &mut Random) {
        self.participant = None;
        self.disk.crash(random);
        self.inbox.clear();
        self.outbox.clear();
        self.endings.clear();
        self.leases.clear();
    }

    /// A new life from what is on the disk.
    pub(crate) fn start(&mut self, random: &mut Random) -> Found {
        self.life += 1;
        self.memory = Slots::new(self.defect);
        if self.disk.bytes.is_empty() {
            self.disk.bytes = Tail::header(0, 0).0.to_vec();
        }
        let start = Tail::from_header(&self.disk.bytes).expect("a log");
        let (records, tail, cut) = read(start, &self.disk.bytes[LOG_HEADER_BYTES..]);
        self.disk.bytes.truncate(usize::try_from(tail.offset_bytes).expect("an offset"));
        let options = StoreOptions { budget_bytes: self.budget_bytes, life: self.life };
        let store = recover(options, self.memory.clone(), records).expect("a log of this participant");
        let mut log = LogWriter::after(tail);
        if random.below(3) == 0 {
            log = self.compact(tail.sequence, snapshot_records(store.snapshot()));
        }
        let participant = Participant::new(store, log);
        let in_doubt =
            participant.store().unsettled().filter(|(_, transaction)| !transaction.committed).count();
        self.participant = Some(participant);
        Found { cut: cut.is_some(), in_doubt }
    }

    /// A new log takes the place of the old one, at once.
    fn compact(&mut self, sequence: u64, records: Vec<Record>) -> LogWriter {
        let (header, start) = Tail::header(sequence, 0);
        let mut log = LogWriter::after(start);
        for record in &records {
            log.append(record);
        }
        self.disk.bytes = header.to_vec();
        self.disk.bytes.extend(log.take_batch().into_iter().flat_map(|batch| batch.bytes));
        log
    }

    /// A new log while the participant runs, if all of the old one is durable.
    pub(crate) fn replace_log(&mut self) -> bool {
        let Some(mut participant) = self.participant.take() else { return false };
        let idle = self.disk.batch.is_none() && participant.log_mut().waiting_bytes() == 0;
        if idle {
            let sequence = participant.log_mut().sequence();
            let log = self.compact(sequence, snapshot_records(participant.store().snapshot()));
            participant.replace_log(log).expect("all is durable");
        }
        self.participant = Some(participant);
        idle
    }

    /// What a participant of before admission did: it prepares what is older than what it has. Its
    /// log has it, and it votes for it.
    pub(crate) fn prepare_unseen(&mut self, request: &Request) {
        let (Some(participant), Request::Prepare { part, .. }) = (&mut self.participant, request) else {
            return;
        };
        if participant.store_mut().prepare(part) == Ok(true) {
            participant.log_mut().append(&Record::Prepare(part.clone()));
            if part.is_whole() {
                participant.store_mut().commit(part.timestamp);
            }
        }
    }

    /// What the participant has said, and what it wants to write.
    pub(crate) fn collect(&mut self) -> bool {
        let Some(participant) = &mut self.participant else { return false };
        if self.defect == Some(Defect::EarlyAnswers) {
            let last = participant.log_mut().sequence();
            participant.durable(last);
        }
        self.outbox.extend(participant.take_replies());
        if self.disk.batch.is_some() {
            return false;
        }
        self.disk.batch = participant.log_mut().take_batch();
        self.disk.batch.is_some()
    }
}
