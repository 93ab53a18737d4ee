//! Divides the memory budget of a node among its parts.
//!
//! ```text
//! relays        as configured; none without relays. Rings, sums, checksums and links of sessions that
//!               relay stripes, and the links that belong to no session yet, up to the maximum of each
//!               address. The remainder of the budget is divided as if it were the whole:
//!
//! cache         as configured, or an eighth of the budget if enough remains for the other parts
//! transactions  as configured, or a sixteenth of the budget if enough remains for the other parts:
//!   copies      1/8 if the configuration lists other nodes, at most 4 MiB: pieces of logs in transit to
//!               log replicas here, and from this participant to other nodes. Of the remainder:
//!   transit     1/8: requests being served, and their records in batches of the log (more if 1/8
//!               is less than the largest request)
//!   feed        1/8, between a minimum and a maximum: recent writes, for followers (one fabric region)
//!   slots       half of the remainder: newest versions, which peers read one-sidedly (one fabric region)
//!   versions    the other half: all versions, and the state of their transactions
//!
//! the remainder, in sixteenths:
//! staging       6: pages and results in transit to or from a requester (a fabric region per reactor
//!               or poller; two buffers suffice where every wire maps the requester's memory here)
//! scans         6: half of it pages being scanned, half the scan's own memory (a pool per worker)
//! appends       1: pages being checked and written (a pool per reactor or poller)
//! metadata      2: directories of the tables, twice: parsed, and encoded as the catalog
//! wires         1: the receive queues of the reactors, and the boxes of connections that use them
//!
//! connections   as configured, each with its maximum of own memory. This is in addition to the budget,
//!               because only connections that are used take it.
//! ```
//!
//! Invariants
//! - The parts never exceed the budget plus the memory of connections. Each part is allocated at
//!   start, or admitted against its bound.
//! - Every part is large enough for any single request to make progress alone.

use az::SaturatingAs;
use rackscan_cache::limits::{CACHE_BYTES_MAX, CACHE_BYTES_MIN};
use rackscan_fabric::{
    CONNECTION_DESCRIPTORS,
    inbox::{InboxConfig, WhenFull},
    limits::{REGION_ALIGNMENT_BYTES, SEND_BYTES_MAX},
};

use crate::{
    config::Config,
    limits::{
        ADAPTER_CONNECTION_BYTES, APPEND_PARTS, BUDGET_PARTS, BUFFER_BYTES_MAX, CACHE_SHARE,
        CONNECTION_BYTES, COPIES_BYTES_MAX, COPIES_SHARE, DESCRIPTORS_RESERVED, ECHO_BYTES, FEED_BYTES_MAX,
        FEED_BYTES_MIN, FEED_SHARE, INBOX_RING_BYTES, METADATA_PARTS, POSTS_BYTES, SCAN_PARTS,
        SENDERS_PER_REACTOR_MAX, STAGING_PARTS, TRANSACTIONS_BYTES_MAX, TRANSACTIONS_BYTES_MIN,
        TRANSACTIONS_SHARE, TRANSIT_BYTES_WANTED, TRANSIT_SHARE, WIRE_PARTS,
    },
};

/// Bytes for each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// The whole budget, connections included.
    pub(crate) budget_bytes: u64,
    /// The page cache of the node, its book-keeping included; 0 if there is none.
    pub(crate) cache_bytes: u64,
    /// Stripes that are relayed, and links that have not identified themselves yet; 0 without
    /// relays.
    pub(crate) relay_bytes: u64,
    /// The participant of transactions, if the node keeps keys.
    pub(crate) participant: Option<ParticipantPlan>,
    /// Staging of one reactor, without its echo memory.
    pub(crate) staging_bytes: usize,
    /// Append pool of one reactor.
    pub(crate) append_bytes: usize,
    /// Pages of one scan worker.
    pub(crate) scan_page_bytes: usize,
    /// The other memory of a scan worker: decoded blocks, groups, the batch being built.
    pub(crate) scan_work_bytes: usize,
    /// Directories of all tables and loads.
    pub(crate) metadata_bytes: u64,
    /// Connections of the whole node.
    pub(crate) connections: u64,
    /// The most that each of them may take.
    pub(crate) connection_bytes: u64,
    /// The number of them that may have post boxes.
    pub(crate) boxes: u64,
}

/// A budget that is too small for its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "at least {min_bytes} bytes for {reactors} reactors (or pollers) and {scan_workers} scan workers beside a cache of \
     {cache_bytes} bytes, {participant_bytes} bytes of transactions and {relay_bytes} bytes of relays"
)]
pub(crate) struct TooSmall {
    min_bytes: u64,
    cache_bytes: u64,
    participant_bytes: u64,
    relay_bytes: u64,
    reactors: u16,
    scan_workers: u16,
}

/// Bytes for each use of a participant of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParticipantPlan {
    /// Pieces of logs in flight, half of them to replicas here.
    pub(crate) copies_bytes: u64,
    /// Requests being served, and their records that are not in the log yet.
    pub(crate) transit_bytes: u64,
    /// The region of the feed.
    pub(crate) feed_bytes: usize,
    /// The region of the slots.
    pub(crate) slots_bytes: usize,
    /// All versions.
    pub(crate) versions_bytes: usize,
}

impl ParticipantPlan {
    /// Divides the memory of a participant. `copies`: whether logs are replicated.
    fn of(bytes: u64, copies: bool) -> Self {
        let copies_bytes = if copies { COPIES_BYTES_MAX.min(bytes / COPIES_SHARE) } else { 0 };
        let bytes = bytes - copies_bytes;
        let transit_bytes = (bytes / TRANSIT_SHARE).max(TRANSIT_BYTES_WANTED.min(bytes / 2));
        let whole = |bytes: u64| bytes - bytes % REGION_ALIGNMENT_BYTES as u64;
        let feed_bytes = whole((bytes / FEED_SHARE).clamp(FEED_BYTES_MIN, FEED_BYTES_MAX));
        let half = bytes.saturating_sub(transit_bytes + feed_bytes) / 2;
        let size = |bytes: u64| bytes.saturating_as::<usize>();
        // A value is in a slot and among the versions, so both fill equally.
        let (slots_bytes, versions_bytes) = (size(whole(half)), size(half));
        Self { copies_bytes, transit_bytes, feed_bytes: size(feed_bytes), slots_bytes, versions_bytes }
    }

    /// The sum of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        let regions = self.feed_bytes as u64 + self.slots_bytes as u64;
        self.copies_bytes + self.transit_bytes + regions + self.versions_bytes as u64
    }
}

impl MemoryPlan {
    /// Divides the budget of a configuration.
    pub(crate) fn of(config: &Config) -> Result<Self, TooSmall> {
        let (reactors, workers) = (u64::from(config.pollers().max(1)), u64::from(config.scan_workers.max(1)));
        let buffer = BUFFER_BYTES_MAX as u64;
        let budget_bytes = config.memory_budget.0;
        let (connections, connection_bytes) = (u64::from(config.connections), connection_bytes(config));
        let inbox_bytes = inbox_config(config).memory_bytes() * reactors;
        // Two of the largest buffers are the minimum: one is filled while the other is sent.
        let least = [
            (2 * buffer + ECHO_BYTES as u64) * reactors * BUDGET_PARTS / STAGING_PARTS,
            2 * 2 * buffer * workers * BUDGET_PARTS / SCAN_PARTS,
            buffer * reactors * BUDGET_PARTS / APPEND_PARTS,
            (inbox_bytes + 4 * POSTS_BYTES) * BUDGET_PARTS / WIRE_PARTS,
        ];
        // Rounding down to whole buffers below must not fall below the minimum.
        let min_bytes = least.into_iter().max().unwrap_or(0).next_multiple_of(1 << 20);
        // Configured parts come before the default ones, which take only spare memory.
        let asked_bytes = config.transactions.map_or(0, |asked| asked.0);
        let relay_bytes = config.relay_bytes() + relay_links_bytes(config);
        // Without its relays, the node divides the remaining memory as any other node does.
        let others_bytes = budget_bytes.saturating_sub(relay_bytes);
        let cache_bytes = cache_bytes(config, others_bytes, min_bytes + asked_bytes);
        let participant_bytes = participant_bytes(config, others_bytes, min_bytes + cache_bytes);
        let taken_bytes = cache_bytes + participant_bytes + relay_bytes;
        let shared_bytes = budget_bytes.saturating_sub(taken_bytes);
        let part = |parts: u64| shared_bytes / BUDGET_PARTS * parts;
        if shared_bytes < min_bytes {
            return Err(TooSmall {
                min_bytes: min_bytes + taken_bytes,
                cache_bytes,
                participant_bytes,
                relay_bytes,
                reactors: config.pollers(),
                scan_workers: config.scan_workers,
            });
        }
        let whole_buffers = |bytes: u64| (bytes - bytes % buffer).saturating_as::<usize>();
        let scan_worker = part(SCAN_PARTS) / workers;
        let staging_bytes = whole_buffers(part(STAGING_PARTS) / reactors - ECHO_BYTES as u64);
        Ok(Self {
            budget_bytes: budget_bytes.saturating_add(connections * connection_bytes),
            cache_bytes,
            relay_bytes,
            participant: (participant_bytes > 0)
                .then(|| ParticipantPlan::of(participant_bytes, !config.peers.is_empty())),
            staging_bytes: if maps_all_memory(config) { 2 * BUFFER_BYTES_MAX } else { staging_bytes },
            append_bytes: whole_buffers(part(APPEND_PARTS) / reactors),
            scan_page_bytes: whole_buffers(scan_worker / 2),
            scan_work_bytes: (scan_worker / 2).saturating_as::<usize>(),
            metadata_bytes: part(METADATA_PARTS),
            connections,
            connection_bytes,
            boxes: ((part(WIRE_PARTS) - inbox_bytes) / POSTS_BYTES).min(connections),
        })
    }

    /// The same plan, with no more connections than this number of file descriptors allows.
    pub(crate) fn within(self, descriptors: u64) -> Self {
        let most =
            descriptors.saturating_sub(DESCRIPTORS_RESERVED + descriptors / 4) / CONNECTION_DESCRIPTORS;
        let connections = self.connections.min(most.max(1));
        let budget_bytes = self.budget_bytes - (self.connections - connections) * self.connection_bytes;
        Self { connections, budget_bytes, boxes: self.boxes.min(connections), ..self }
    }
}

/// The memory of one connection, over the wires that the node listens on.
fn connection_bytes(config: &Config) -> u64 {
    let has_adapter = config.listen.iter().any(|address| address.wire().has_adapter());
    if has_adapter { ADAPTER_CONNECTION_BYTES } else { CONNECTION_BYTES }
}

/// The memory of relay links that belong to no session.
fn relay_links_bytes(config: &Config) -> u64 {
    (config.relay.len() * config.relay_links()) as u64 * ADAPTER_CONNECTION_BYTES
}

/// The memory of the page cache.
fn cache_bytes(config: &Config, budget_bytes: u64, min_bytes: u64) -> u64 {
    let spare_bytes = budget_bytes.saturating_sub(min_bytes);
    match config.cache {
        Some(asked) => asked.0,
        None if spare_bytes < CACHE_BYTES_MIN => 0,
        None => spare_bytes.min(budget_bytes / CACHE_SHARE).min(CACHE_BYTES_MAX),
    }
}

/// The memory of the participant of transactions. `others_bytes`: the cache and the minimum of the
/// other parts.
fn participant_bytes(config: &Config, budget_bytes: u64, others_bytes: u64) -> u64 {
    let spare_bytes = budget_bytes.saturating_sub(others_bytes);
    match config.transactions {
        Some(asked) => asked.0,
        None if spare_bytes < TRANSACTIONS_BYTES_MIN => 0,
        None => spare_bytes.min(budget_bytes / TRANSACTIONS_SHARE).min(TRANSACTIONS_BYTES_MAX),
    }
}

/// The shape of each reactor's receive queue.
pub(crate) fn inbox_config(config: &Config) -> InboxConfig {
    InboxConfig {
        ring_bytes: INBOX_RING_BYTES,
        private_rings: config.private_rings,
        shared_rings: 1,
        senders_max: SENDERS_PER_REACTOR_MAX,
        // Requests are sent from plain memory, so no honest one is longer. None is split into
        // packets, so reassembly needs no memory that grows with the number of clients.
        message_bytes_max: SEND_BYTES_MAX,
        packet_bytes: SEND_BYTES_MAX,
        when_full: WhenFull::Stall,
    }
}

/// Whether every wire maps the requester's memory, so that pages need no staging.
fn maps_all_memory(config: &Config) -> bool {
    config.listen.iter().all(|address| address.wire().maps_memory())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ByteSize, ClusterId, DeviceConfig};
    use rackscan_format::{ids::NodeId, message::BridgeKind};

    fn config(budget_bytes: u64, reactors: u16, scan_workers: u16) -> Config {
        let device = DeviceConfig { path: "device".into(), size: None, reserve: false };
        let mut config = Config::new(NodeId(0), ClusterId(1), "data".into(), device, "key".into());
        config.memory_budget = ByteSize(budget_bytes);
        config.listen = vec!["tcp:127.0.0.1:0".parse().unwrap()];
        config.reactors = reactors;
        config.scan_workers = scan_workers;
        config
    }

    #[test]
    fn a_cache_takes_an_eighth_or_what_the_rest_can_spare_unless_it_is_told() {
        let cache = |budget_bytes, cache: Option<u64>| {
            let config = Config { cache: cache.map(ByteSize), ..config(budget_bytes, 1, 1) };
            MemoryPlan::of(&config).map(|plan| plan.cache_bytes)
        };
        assert_eq!(cache(512 << 20, None), Ok(64 << 20));
        assert_eq!((cache(64 << 20, None), cache(68 << 20, None)), (Ok(0), Ok(4 << 20)));
        assert_eq!((cache(512 << 20, Some(0)), cache(80 << 20, Some(16 << 20))), (Ok(0), Ok(16 << 20)));
        let refused = cache(72 << 20, Some(16 << 20)).unwrap_err();
        assert_eq!(refused.min_bytes, 80 << 20);
    }

    #[test]
    fn transactions_take_a_sixteenth_or_what_cache_and_rest_can_spare_unless_they_are_told() {
        let participant = |budget_bytes, transactions: Option<u64>| {
            let config = Config { transactions: transactions.map(ByteSize), ..config(budget_bytes, 1, 1) };
            MemoryPlan::of(&config).map(|plan| plan.participant.map_or(0, |participant| participant.bytes()))
        };
        assert_eq!((participant(512 << 20, None), participant(1 << 30, None)), (Ok(32 << 20), Ok(64 << 20)));
        assert_eq!(
            (participant(64 << 20, None), participant(73 << 20, None)),
            (Ok(0), Ok(0)),
            "the cache comes first"
        );
        assert_eq!(
            (participant(512 << 20, Some(0)), participant(80 << 20, Some(8 << 20))),
            (Ok(0), Ok(8 << 20))
        );
        let refused = participant(64 << 20, Some(8 << 20)).unwrap_err();
        assert_eq!((refused.min_bytes, refused.participant_bytes), (72 << 20, 8 << 20));
    }

    #[test]
    fn a_participant_holds_slots_and_versions_alike_and_the_largest_request_where_it_can() {
        for bytes in [TRANSACTIONS_BYTES_MIN, (5 << 20) + 4097, 32 << 20, 1 << 30, TRANSACTIONS_BYTES_MAX] {
            let copied = ParticipantPlan::of(bytes, true);
            assert!(copied.bytes() <= bytes && bytes - copied.bytes() <= 8192, "{copied:?} of {bytes}");
            assert_eq!(copied.copies_bytes, (bytes / 8).min(4 << 20));
            let plan = ParticipantPlan::of(bytes, false);
            assert!(plan.bytes() <= bytes && bytes - plan.bytes() <= 8192, "{plan:?} of {bytes}");
            assert!(plan.versions_bytes - plan.slots_bytes < REGION_ALIGNMENT_BYTES);
            assert!(plan.slots_bytes.is_multiple_of(REGION_ALIGNMENT_BYTES) && plan.slots_bytes > 0);
            assert!(plan.feed_bytes.is_multiple_of(REGION_ALIGNMENT_BYTES));
            let feed_bytes = plan.feed_bytes as u64;
            assert!((FEED_BYTES_MIN..=FEED_BYTES_MAX).contains(&feed_bytes) && feed_bytes <= bytes / 8);
            let holds = plan.transit_bytes >= TRANSIT_BYTES_WANTED;
            assert_eq!(holds, bytes >= 2 * TRANSIT_BYTES_WANTED, "{plan:?}");
        }
    }

    #[test]
    fn the_parts_of_every_plan_stay_within_its_budget_and_can_hold_a_largest_buffer() {
        for (reactors, workers) in [(1, 1), (1, 2), (4, 16), (64, 256)] {
            let least = MemoryPlan::of(&config(0, reactors, workers)).unwrap_err().min_bytes;
            assert!(MemoryPlan::of(&config(least - 1, reactors, workers)).is_err());
            for budget in [least, least + 4095, 3 * least, 1 << 36] {
                let plan = MemoryPlan::of(&config(budget, reactors, workers)).unwrap();
                let per_reactor = plan.staging_bytes + plan.append_bytes + ECHO_BYTES;
                let per_worker = plan.scan_page_bytes + plan.scan_work_bytes;
                let total = plan.cache_bytes
                    + plan.participant.map_or(0, |participant| participant.bytes())
                    + per_reactor as u64 * u64::from(reactors)
                    + per_worker as u64 * u64::from(workers)
                    + plan.metadata_bytes
                    + inbox_config(&config(budget, reactors, workers)).memory_bytes() * u64::from(reactors)
                    + plan.boxes * POSTS_BYTES;
                assert!(total <= budget, "{plan:?}");
                assert_eq!(plan.budget_bytes, budget + plan.connections * plan.connection_bytes);
                assert!(plan.staging_bytes >= 2 * BUFFER_BYTES_MAX && plan.append_bytes >= BUFFER_BYTES_MAX);
                assert!(plan.scan_page_bytes >= 2 * BUFFER_BYTES_MAX && plan.boxes >= 4);
            }
        }
    }

    #[test]
    fn a_default_node_has_connections_for_a_thousand_idle_and_a_hundred_busy_clients() {
        let plan = MemoryPlan::of(&config(512 << 20, 1, 1)).unwrap();
        assert!(plan.connections >= 3 * 1100, "{plan:?}");
        assert!(plan.connections * plan.connection_bytes < 400 << 20, "{plan:?}");
        assert!(plan.boxes >= 100, "{plan:?}");
    }

    #[test]
    fn few_descriptors_are_enough_for_few_connections() {
        let plan = MemoryPlan::of(&config(512 << 20, 1, 1)).unwrap();
        assert_eq!(plan.within(u64::MAX), plan);
        assert_eq!(plan.within(1 << 20), plan);
        let few = plan.within(4096);
        assert_eq!(few.connections, (4096 - 256 - 1024) / CONNECTION_DESCRIPTORS);
        assert_eq!(few.budget_bytes, (512 << 20) + few.connections * CONNECTION_BYTES);
        assert_eq!(plan.within(100).connections, 1);
    }

    #[test]
    fn pollers_count_as_the_reactors_whose_place_they_take() {
        let reactors = config(1 << 30, 8, 1);
        for bridge in [BridgeKind::Static, BridgeKind::Dynamic] {
            let pollers = Config { bridge, reactors: 1, pollers: 8, ..reactors.clone() };
            assert_eq!(MemoryPlan::of(&pollers), MemoryPlan::of(&reactors));
        }
    }

    #[test]
    fn a_node_that_is_reached_by_shared_memory_only_stages_little() {
        let mut shared = config(1 << 30, 1, 1);
        shared.listen = vec!["shm:node".parse().unwrap()];
        let (shared, both) =
            (MemoryPlan::of(&shared).unwrap(), MemoryPlan::of(&config(1 << 30, 1, 1)).unwrap());
        assert_eq!(shared.staging_bytes, 2 * BUFFER_BYTES_MAX);
        assert!(both.staging_bytes > 256 << 20);
        assert_eq!(shared, MemoryPlan { staging_bytes: shared.staging_bytes, ..both });
    }

    #[test]
    fn relays_take_what_is_configured_and_their_links_and_leave_the_rest_to_the_others() {
        let alone = MemoryPlan::of(&config(512 << 20, 1, 1)).unwrap();
        let mut relaying = config(512 << 20, 1, 1);
        (relaying.cache, relaying.transactions) = (Some(ByteSize(0)), Some(ByteSize(0)));
        relaying.relay = vec!["shm:a".parse().unwrap(), "shm:b".parse().unwrap()];
        relaying.relay_memory = Some(ByteSize(100 << 20));
        let plan = MemoryPlan::of(&relaying).unwrap();
        assert_eq!(alone.relay_bytes, 0);
        assert_eq!(plan.relay_bytes, (100 << 20) + 2 * 16 * ADAPTER_CONNECTION_BYTES);
        assert_eq!(plan.metadata_bytes, ((512 << 20) - plan.relay_bytes) / BUDGET_PARTS * METADATA_PARTS);
        // With as much more memory, everything else is as without relays.
        let relaying = Config {
            memory_budget: ByteSize((512 << 20) + plan.relay_bytes),
            cache: None,
            transactions: None,
            ..relaying
        };
        let MemoryPlan { relay_bytes, budget_bytes, .. } = MemoryPlan::of(&relaying).unwrap();
        assert_eq!(MemoryPlan::of(&relaying).unwrap(), MemoryPlan { relay_bytes, budget_bytes, ..alone });
    }

    #[test]
    fn the_default_budget_holds_the_default_threads() {
        assert!(MemoryPlan::of(&config(512 << 20, 1, 2)).is_ok());
    }
}
