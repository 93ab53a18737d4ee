//! Contains the parts of a node that all its reactors share.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicUsize},
    time::Instant,
};

use crate::{
    cache::NodeCache,
    config::Config,
    copies::Keeping,
    cpu_share::CpuShare,
    identity::Identity,
    lifecycle::Lifecycle,
    memory_plan::MemoryPlan,
    metrics::Metrics,
    participant::ParticipantShared,
    relay::Relay,
    scan_pool::{Programs, ScanQueue},
    store::Store,
};

/// What all reactors of a node share.
#[derive(Debug)]
pub(crate) struct NodeParts {
    pub(crate) config: Config,
    pub(crate) plan: MemoryPlan,
    pub(crate) started: Instant,
    /// The kernel's boot id.
    pub(crate) host: String,
    /// What the data folder says of itself.
    pub(crate) identity: Arc<Identity>,
    pub(crate) store: Arc<Store>,
    /// Pages in memory, if there is a cache.
    pub(crate) cache: Option<NodeCache>,
    /// What all know of the participant of transactions, if the node keeps keys.
    pub(crate) participant: Option<Arc<ParticipantShared>>,
    /// The way to the copies of other nodes' logs, if some are kept here.
    pub(crate) keeping: Option<Keeping>,
    /// Its relays of stripes.
    pub(crate) relays: Vec<Relay>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) scans: Arc<ScanQueue>,
    pub(crate) cpu_share: CpuShare,
    pub(crate) programs: Programs,
    /// Connections that are being told that they are refused.
    pub(crate) refusals_under_way: AtomicUsize,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// Whether every ring could register its buffers; set when all threads are there.
    pub(crate) registered_buffers: OnceLock<Result<(), String>>,
}
