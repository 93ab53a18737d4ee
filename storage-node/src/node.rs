//! Assembles a node from its parts, and starts and stops them in order.
//!
//! ```text
//! start: configuration, key, lock and identity of the data folder, catalog and devices, memory,
//!        scan workers, publisher, log replicas, participant, listeners, relays, reactors
//! stop:  reactors refuse new requests and finish those in progress, connections close, workers and
//!        publisher end, devices close
//! ```
//!
//! Invariants
//! - After the start, new threads only open or close connections, serve `tcp` connections, execute
//!   one device operation each (bridge `dynamic`), or write a log that was recovered. All memory is
//!   allocated, or has a bound (`memory_plan`). A failed start ends all its threads.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicUsize, mpsc},
    thread::JoinHandle,
    time::Instant,
};

use rackscan_cache::PageCache;
use rackscan_device::{BufferPool, BufferRegistration, pin_current_thread};
use rackscan_fabric::{
    Address, ClusterKey, Listener, Region,
    inbox::{Inbox, InboxHandle},
    raise_descriptor_limit,
};

use rackscan_format::ids::NodeId;

use crate::{
    bridge::{BridgeIo, Core, Intake, Links, NodeParts, Reactor, ReactorParts},
    cache::NodeCache,
    config::{ByteSize, Config},
    copies::Keeping,
    cpu_share::CpuShare,
    error::{StartError, Stopped},
    folder_lock::FolderLock,
    host_memory::available_memory,
    identity::{self, Identity},
    lifecycle::Lifecycle,
    limits::{BUFFER_BYTES_MAX, ECHO_BYTES},
    memory_plan::{MemoryPlan, inbox_config},
    message_queue::MessageQueue,
    metrics::Metrics,
    participant::{self, FirstParticipant, ParticipantAccess},
    peers,
    private::make_private,
    relay,
    scan_pool::{self, Programs, ScanQueue, ScanQuota, WorkerParts},
    staging::Staging,
    store::{Publisher, Reclaim, Store, make_durably},
};

/// A storage node.
#[derive(Debug)]
pub struct Node;

/// A running node. Dropping the handle stops it and waits for its end.
#[derive(Debug)]
pub struct NodeHandle {
    addresses: Vec<Address>,
    lifecycle: Arc<Lifecycle>,
    scans: Arc<ScanQueue>,
    reactors: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    /// Dropped after the reactors have ended, and before the store.
    reclaim: Option<Reclaim>,
    /// Holds the data folder until all threads have ended.
    identity: Arc<Identity>,
}

impl Node {
    /// Starts a node: allocates its memory, opens or makes its devices, recovers its catalog, and
    /// listens.
    ///
    /// # Errors
    /// [`StartError`] names what prevents the start.
    pub fn start(config: Config) -> Result<NodeHandle, StartError> {
        config.check()?;
        let key = read_key(&config)?;
        let plan = plan_of(&config)?;
        let metrics = Arc::new(Metrics::default());
        let lifecycle = Arc::new(Lifecycle::default());
        let lock = lock_folder(&config)?;
        let begin = identity::FolderStart::check(&config)?;
        let (store, files) = Store::open(&config, plan.metadata_bytes, Arc::clone(&metrics))?;
        let store = Arc::new(store);
        let identity = Arc::new(Identity::new(begin.begin(&config, &store.nodes_of_tables())?, lock));
        let cache = make_cache(&config, &plan, &store, &metrics)?;
        let opened = participant::open(&config, plan.participant, &lifecycle, &metrics)?;
        let scans = Arc::new(ScanQueue::new(config.scan_queue.into()));
        let mut handle = NodeHandle::new(&lifecycle, &scans, &identity);
        let pages = cache.as_ref().map(NodeCache::pages);
        let mut reports = start_workers(&mut handle, (&config, &plan), &store, pages, &metrics)?;
        let (publisher, thread) =
            Publisher::start(&config, Arc::clone(&store), files, Arc::clone(&lifecycle))?;
        handle.others.push(thread);
        start_reclaim(&mut handle, &config, &store)?;
        let queues = make_message_queues(&config, &lifecycle)?;
        let keeping = start_keeping(&mut handle, &config, opened.as_ref())?;
        let participant = opened.as_ref().map(participant::Opened::shared);
        let mut service = start_participant(&mut handle, &config, &key, opened, &queues)?;
        let inboxes = make_inboxes(&config)?;
        let listeners = listen_everywhere(&config, &key, &inboxes)?;
        handle.addresses = listeners.iter().map(|listener| listener.address().clone()).collect();
        let relays = start_relays(&mut handle, (&config, &plan), &key, &store, &metrics)?;
        let node = Arc::new(NodeParts {
            cpu_share: CpuShare::new(),
            programs: Programs::default(),
            refusals_under_way: AtomicUsize::new(0),
            plan,
            started: Instant::now(),
            host: boot_id()?,
            identity,
            store,
            cache,
            participant,
            keeping,
            relays,
            metrics,
            scans,
            lifecycle,
            registered_buffers: OnceLock::new(),
            config,
        });
        let mut listeners = Some(listeners);
        for ((number, queue), inbox) in (0_u16..).zip(&queues).zip(inboxes) {
            let parts =
                ReactorParts { listeners: listeners.take().unwrap_or_default(), reactors: queues.clone() };
            let has_participant = node.participant.is_some();
            let participant = ParticipantAccess::new(number, service.take(), has_participant, queues.clone());
            let start = ReactorStart {
                number,
                node: Arc::clone(&node),
                publisher: publisher.clone(),
                message_queue: Arc::clone(queue),
                intake: Intake::new(inbox, node.config.private_rings),
                participant,
            };
            let (thread, report) = start.spawn(parts)?;
            handle.reactors.push(thread);
            reports.push(report);
        }
        // Set once, here.
        let _ = node.registered_buffers.set(registration(&reports));
        handle.identity.ready()?;
        handle.say_ready(node.config.node);
        Ok(handle)
    }
}

impl NodeHandle {
    /// A handle without threads.
    fn new(lifecycle: &Arc<Lifecycle>, scans: &Arc<ScanQueue>, identity: &Arc<Identity>) -> Self {
        Self {
            addresses: Vec::new(),
            lifecycle: Arc::clone(lifecycle),
            scans: Arc::clone(scans),
            reactors: Vec::new(),
            others: Vec::new(),
            reclaim: None,
            identity: Arc::clone(identity),
        }
    }

    /// The addresses at which it listens, in the order of the configuration, with the ports that
    /// the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Asks the node to stop: requests in progress are finished, new ones are refused. Returns at
    /// once.
    pub fn stop(&self) {
        self.lifecycle.stop();
    }

    /// A function that stops the node from another thread, while this handle waits.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + Clone + 'static {
        let lifecycle = Arc::clone(&self.lifecycle);
        move || lifecycle.stop()
    }

    /// Waits until the node has stopped, on request or because it cannot continue.
    ///
    /// # Errors
    /// [`Stopped`] when it stopped by itself.
    pub fn wait(mut self) -> Result<(), Stopped> {
        self.join();
        self.lifecycle.failure().map_or(Ok(()), Err)
    }

    fn say_ready(&self, node: NodeId) {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(%node, ?addresses, "the node is ready");
    }

    fn join(&mut self) {
        // A thread that panicked has logged it and stopped the node (`Lifecycle::guard`).
        for reactor in self.reactors.drain(..) {
            let _ = reactor.join();
        }
        self.scans.close();
        self.reclaim = None;
        for thread in self.others.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.stop();
        self.join();
    }
}

/// Divides the memory of a node, with as many connections as its file descriptors allow.
fn plan_of(config: &Config) -> Result<MemoryPlan, StartError> {
    let budget = config.memory_budget;
    // A budget above the available memory would end other processes of the host.
    if let Some(available) = available_memory().ok().filter(|available| budget.0 > *available) {
        let available = ByteSize(available);
        let reason = format!("it is {budget}, expected at most the {available} that this process may use");
        return Err(StartError::Memory { reason });
    }
    let plan = MemoryPlan::of(config).map_err(|small| StartError::Memory { reason: small.to_string() })?;
    let descriptors = raise_descriptor_limit();
    let (wanted, plan) = (plan.connections, plan.within(descriptors));
    if plan.connections < wanted {
        tracing::warn!(
            "the node may have {descriptors} descriptors, which is enough for {} connections of {wanted}; raise the limit \
             (`ulimit -Hn`, or LimitNOFILE) or lower `connections` in its configuration",
            plan.connections
        );
    }
    Ok(plan)
}

/// Makes the data folder if it does not exist, and locks it.
fn lock_folder(config: &Config) -> Result<FolderLock, StartError> {
    let made = make_durably(&config.data_dir);
    made.map_err(|source| StartError::Os { action: "make the data folder", source })?;
    let lock = FolderLock::take(&config.data_dir, config.node)?;
    make_private(config);
    Ok(lock)
}

fn read_key(config: &Config) -> Result<ClusterKey, StartError> {
    let file = &config.key_file;
    let read = |source| StartError::KeyFile { file: file.clone(), source };
    let text = std::fs::read_to_string(file).map_err(read)?;
    let key: Result<ClusterKey, _> = text.parse();
    let key = key.map_err(|source| StartError::Key { file: file.clone(), source })?;
    Ok(key.of_cluster(config.cluster.0).of_node(config.node.0))
}

/// Listens at all addresses of the node; callers are given the receive queues of its reactors.
fn listen_everywhere(
    config: &Config,
    key: &ClusterKey,
    inboxes: &[Inbox],
) -> Result<Vec<Listener>, StartError> {
    let receive: Vec<InboxHandle> = inboxes.iter().map(Inbox::handle).collect();
    config.listen.iter().map(|address| listen(address, key, &receive)).collect()
}

fn listen(address: &Address, key: &ClusterKey, inboxes: &[InboxHandle]) -> Result<Listener, StartError> {
    if let Address::Shm { path } = address
        && let Some(folder) = path.parent()
    {
        std::fs::create_dir_all(folder)
            .map_err(|source| StartError::Os { action: "make the folder of a socket", source })?;
    }
    Ok(Listener::bind_inboxes(address, key, inboxes.to_vec())?)
}

/// The kernel's boot id: equal for all processes of a host, different after a restart.
fn boot_id() -> Result<String, StartError> {
    let read = |source| StartError::Os { action: "read /proc/sys/kernel/random/boot_id", source };
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(read)?.trim().to_owned())
}

/// Makes a message queue for each reactor, which the lifecycle wakes.
fn make_message_queues(config: &Config, lifecycle: &Lifecycle) -> Result<Vec<Arc<MessageQueue>>, StartError> {
    let make = |_| MessageQueue::new().map(Arc::new);
    let made = (0..config.pollers()).map(make).collect::<Result<Vec<_>, _>>();
    let made = made.map_err(|source| StartError::Os { action: "make a message queue", source })?;
    lifecycle.watch_over(made.clone());
    Ok(made)
}

/// Starts the threads that relay stripes.
fn start_relays(
    handle: &mut NodeHandle,
    (config, plan): (&Config, &MemoryPlan),
    key: &ClusterKey,
    store: &Arc<Store>,
    metrics: &Metrics,
) -> Result<Vec<relay::Relay>, StartError> {
    let relays = relay::start(config, key, store, &handle.lifecycle, &mut handle.others)?;
    metrics.memory_taken(plan.relay_bytes);
    Ok(relays)
}

fn make_inboxes(config: &Config) -> Result<Vec<Inbox>, StartError> {
    let made = (0..config.pollers()).map(|_| Inbox::new(inbox_config(config))).collect::<Result<_, _>>();
    made.map_err(|error| StartError::Memory { reason: format!("inboxes for requests: {error}") })
}

/// The page cache, which reactors and scan workers use at the same time.
fn make_cache(
    config: &Config,
    plan: &MemoryPlan,
    store: &Store,
    metrics: &Metrics,
) -> Result<Option<NodeCache>, StartError> {
    let threads = usize::from(config.pollers()) + usize::from(config.scan_workers);
    let cache = NodeCache::new(plan.cache_bytes, threads)?;
    if let Some(cache) = &cache {
        store.keep_in_step(Arc::clone(cache.pages()));
        metrics.memory_taken(plan.cache_bytes);
    }
    Ok(cache)
}

/// Starts the thread that returns disk space, if a device is sparse.
fn start_reclaim(handle: &mut NodeHandle, config: &Config, store: &Arc<Store>) -> Result<(), StartError> {
    let (reclaim, thread) = Reclaim::start(config, store, &handle.lifecycle)?.unzip();
    handle.reclaim = reclaim;
    handle.others.extend(thread);
    Ok(())
}

/// Starts the thread that keeps replicas of other nodes' logs, if there are any.
fn start_keeping(
    handle: &mut NodeHandle,
    config: &Config,
    opened: Option<&participant::Opened>,
) -> Result<Option<Keeping>, StartError> {
    let Some(opened) = opened else { return Ok(None) };
    let started =
        Keeping::start(config, opened.copies_bytes() / 2, &handle.lifecycle, Arc::clone(&handle.identity))?;
    let (keeping, thread) = started.unzip();
    handle.others.extend(thread);
    Ok(keeping)
}

/// Starts the thread of the participant's log and the one that talks to other nodes, if there is a
/// participant.
fn start_participant(
    handle: &mut NodeHandle,
    config: &Config,
    key: &ClusterKey,
    opened: Option<participant::Opened>,
    message_queues: &[Arc<MessageQueue>],
) -> Result<Option<FirstParticipant>, StartError> {
    let (Some(opened), Some(first)) = (opened, message_queues.first()) else { return Ok(None) };
    let shared = (opened.shared(), opened.copies_bytes() / 2);
    let shares = (&handle.lifecycle, &handle.identity);
    let started = peers::start(config, key, shared, Arc::clone(first), shares)?;
    let (peers, thread) = started.unzip();
    handle.others.extend(thread);
    let (service, thread) = opened.start(config, key, Arc::clone(first), &handle.lifecycle, peers)?;
    handle.others.push(thread);
    Ok(Some(service))
}

fn start_workers(
    handle: &mut NodeHandle,
    (config, plan): (&Config, &MemoryPlan),
    store: &Arc<Store>,
    cache: Option<&Arc<PageCache>>,
    metrics: &Arc<Metrics>,
) -> Result<Vec<BufferRegistration>, StartError> {
    let mut reports = Vec::new();
    for worker in 0..config.scan_workers {
        let parts = WorkerParts {
            quota: ScanQuota::of(config),
            queue: Arc::clone(&handle.scans),
            devices: store.devices().to_vec(),
            cache: cache.map(Arc::clone),
            depth: config.scan_depth,
            page_bytes: plan.scan_page_bytes,
            work_bytes: plan.scan_work_bytes,
            metrics: Arc::clone(metrics),
            lifecycle: Arc::clone(&handle.lifecycle),
            core: config.core_of(usize::from(config.pollers()) + usize::from(worker)),
        };
        let (thread, report) = scan_pool::start(&format!("n{}-scan{worker}", config.node), parts)?;
        handle.others.push(thread);
        reports.push(report.buffers);
    }
    Ok(reports)
}

/// Whether every ring could register its buffers; if not, the reason and the advice.
fn registration(reports: &[BufferRegistration]) -> Result<(), String> {
    let refused = reports.iter().find_map(|report| match *report {
        BufferRegistration::Refused { needed_bytes, limit_bytes, source } => {
            let limit = limit_bytes.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
            Some(format!(
                "the kernel refused to register {needed_bytes} bytes of buffers: {source} (limit of locked memory: {limit}); \
                 transfers work, with more CPU for each; raise the limit with `ulimit -l` or LimitMEMLOCK"
            ))
        }
        BufferRegistration::NotAsked | BufferRegistration::Registered { .. } => None,
    });
    refused.map_or(Ok(()), |reason| {
        tracing::warn!(reason, "buffers are not registered");
        Err(reason)
    })
}

/// The parameters of a reactor thread.
struct ReactorStart {
    number: u16,
    node: Arc<NodeParts>,
    publisher: Publisher,
    message_queue: Arc<MessageQueue>,
    intake: Intake,
    participant: ParticipantAccess,
}

impl ReactorStart {
    /// Starts the thread; returns when it is ready.
    fn spawn(self, parts: ReactorParts) -> Result<(JoinHandle<()>, BufferRegistration), StartError> {
        let (ready, is_ready) = mpsc::sync_channel(1);
        let name = format!("n{}-reactor{}", self.node.config.node, self.number);
        let run = move || {
            let lifecycle = Arc::clone(&self.node.lifecycle);
            match self.build(parts) {
                Ok((reactor, report)) => {
                    // The other side waits for exactly this.
                    let _ = ready.send(Ok(report));
                    let _guard = lifecycle.guard("a reactor");
                    reactor.run();
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread.map_err(|source| StartError::Os { action: "start a reactor", source })?;
        let report = is_ready.recv().map_err(|_| StartError::Os {
            action: "start a reactor",
            source: std::io::Error::other("it ended at once"),
        })??;
        Ok((thread, report))
    }

    fn build(self, parts: ReactorParts) -> Result<(Reactor, BufferRegistration), StartError> {
        let Self { number, node, publisher, message_queue, intake, participant } = self;
        if let Some(core) = node.config.core_of(number.into()) {
            pin_current_thread(core)?;
        }
        let pool = BufferPool::new(node.plan.append_bytes, BUFFER_BYTES_MAX)?;
        let io = BridgeIo::new(&node, number, pool.clone())?;
        let report = io.registration();
        let staging = Staging::new(node.plan.staging_bytes, Arc::clone(&node.metrics))?;
        let echo = Region::allocate(ECHO_BYTES)?;
        let (reserved, links) = (0, Links::default());
        let core =
            Core { node, publisher, message_queue, io, reserved, pool, staging, echo, participant, links };
        let reactor = Reactor::new(core, intake, parts, number)
            .map_err(|source| StartError::Os { action: "watch the reactor's descriptors", source })?;
        Ok((reactor, report))
    }
}
