//! Tests readers on the simulated wire, while the node fills, evicts, withdraws and rewrites pages
//! between any two steps of the network. Readers also use places from long ago. Reads are torn at 8
//! and 64 bytes, and their parts are executed at different times.
//!
//! A reader uses either one connection, on which its two reads are executed in order, or two,
//! between which no order is guaranteed. With two, only the checksum shows that a page is torn, as
//! on a wire that guarantees less order than the fabric promises.

use std::{collections::BTreeMap, sync::Arc};

use rackscan_cache::{Book, Fill, Look, PageCache, Pin, View};
use rackscan_fabric::{
    Access, ClusterKey, Connection, Event, Listener, Operation, Region,
    sim::{Chance, Random, Seed, SimConfig, SimNet, Tearing},
};
use rackscan_format::{
    message::{CachePlace, CacheRegion, Target},
    segment::Extent,
};

use crate::pages::{content, extents, read_into};

const EPOCH: u64 = 77;
const STEPS: u32 = 400;

/// The node: a cache over extents whose content changes.
struct Node {
    cache: Arc<PageCache>,
    /// How often each extent was written.
    writings: Vec<u64>,
    filling: Vec<(usize, u64, Fill)>,
    sending: Vec<Pin>,
}

impl Node {
    fn new(epoch: u64) -> Self {
        // Room for about half of the extents.
        let cache = PageCache::new(64 << 10, 1, epoch).expect("memory").expect("large enough");
        Self { cache, writings: vec![0; extents().len()], filling: Vec::new(), sending: Vec::new() }
    }

    /// Does something that a node may do at any moment; tells which extent lies where if that is
    /// known now.
    fn act(&mut self, random: &mut Random, extents: &[Extent]) -> Option<(usize, CachePlace)> {
        let which = random.index(extents.len());
        match random.below(10) {
            0 => {
                self.cache.withdraw(&extents[which]);
                self.writings[which] += 1;
            }
            1 => drop(self.sending.pop()),
            2 if !self.filling.is_empty() => {
                // A device that fails.
                drop(self.filling.swap_remove(random.index(self.filling.len())));
            }
            3..=5 if !self.filling.is_empty() => {
                let (which, writing, fill) = self.filling.swap_remove(random.index(self.filling.len()));
                read_into(&self.cache, &fill, &content(&extents[which], writing), false);
                let pin = fill.publish();
                let place = pin.place();
                self.sending.push(pin);
                return place.map(|place| (which, place));
            }
            _ => match self.cache.look(&extents[which]) {
                Look::Hit(pin) => {
                    let place = pin.place();
                    if self.sending.len() < 2 {
                        self.sending.push(pin);
                    }
                    return place.map(|place| (which, place));
                }
                Look::Fill(fill) => {
                    read_into(&self.cache, &fill, &content(&extents[which], self.writings[which]), true);
                    self.filling.push((which, self.writings[which], fill));
                }
                Look::Bypass => {}
            },
        }
        None
    }
}

/// A page on its way to a reader.
struct Taking {
    which: usize,
    place: CachePlace,
    /// The extent's writings that were true at some moment since the reads began.
    true_writings: Vec<u64>,
    left: u8,
}

/// A reader with one connection for pages and one for headers, which may be the same.
struct Reader {
    pages: Connection,
    headers: Option<Connection>,
    view: View,
    header_view: View,
    memory: Region,
    book: Book<usize>,
    taking: Option<Taking>,
}

#[derive(Default, Debug)]
struct Counters {
    accepted: u64,
    refused: BTreeMap<&'static str, u64>,
}

fn key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

/// A connection to the node, over which it lets its cache be read; the node's end must be kept.
fn open(net: &SimNet, listener: &mut Listener, cache: &PageCache) -> (Connection, Connection, View) {
    let ours = net.connect("reader", listener.address(), &key()).expect("connect");
    let mut theirs = listener.accept().expect("accept").expect("a caller");
    let name = theirs.register(cache.region(), Access::Read).expect("register");
    let memory = Target { key: name.key, offset_bytes: name.address, length_bytes: name.length };
    let region = CacheRegion { memory, frames: cache.geometry().frames(), epoch: cache.epoch() };
    (ours, theirs, View::new(&region).expect("a cache's own description"))
}

impl Reader {
    /// Starts to take a page of the book.
    fn begin(&mut self, random: &mut Random, node: &Node, extents: &[Extent]) {
        let which = random.index(extents.len());
        let Some(place) = self.book.find(&which) else { return };
        let [page, _] = self.view.reads(place, &extents[which], &self.memory, 0).expect("it fits");
        let [_, header] = self.header_view.reads(place, &extents[which], &self.memory, 0).expect("it fits");
        let posted = match &mut self.headers {
            None => self.pages.post_batch(&[(1, page), (2, header)]).is_ok(),
            Some(headers) => {
                let operation: [(u64, Operation<'_>); 1] = [(2, header)];
                self.pages.post(1, page).is_ok() & headers.post_batch(&operation).is_ok()
            }
        };
        if posted {
            let true_writings = vec![node.writings[which]];
            self.taking = Some(Taking { which, place, true_writings, left: 2 });
        }
    }

    /// Looks at what has arrived; judges a page that is complete. False when the connection is
    /// over.
    fn look(&mut self, node: &Node, extents: &[Extent], counters: &mut Counters) -> bool {
        if let Some(taking) = &mut self.taking {
            let now = node.writings[taking.which];
            if taking.true_writings.last() != Some(&now) {
                taking.true_writings.push(now);
            }
        }
        let mut events = Vec::new();
        self.pages.poll(&mut events);
        if let Some(headers) = &mut self.headers {
            headers.poll(&mut events);
        }
        for event in events {
            match event {
                Event::Completed { outcome, .. } => {
                    let Some(taking) = &mut self.taking else { continue };
                    taking.left -= 1;
                    if outcome.is_err() {
                        self.taking = None;
                    }
                }
                Event::Closed(_) => return false,
                Event::Message { .. } | Event::Immediate { .. } => {}
            }
        }
        if let Some(taking) = self.taking.take_if(|taking| taking.left == 0) {
            self.judge(&taking, extents, counters);
        }
        true
    }

    fn judge(&mut self, taking: &Taking, extents: &[Extent], counters: &mut Counters) {
        let extent = &extents[taking.which];
        let length = extent.length_bytes as usize;
        let page = self.memory.to_vec(0, length).expect("inside");
        let header: [u8; 64] = self.memory.to_vec(length, 64).expect("inside").try_into().expect("64 bytes");
        match self.view.verify(&page, &header, taking.place, extent) {
            Ok(()) => {
                counters.accepted += 1;
                let is_true = taking.true_writings.iter().any(|writing| content(extent, *writing) == page);
                assert!(is_true, "a torn or stale page of extent {} was accepted", taking.which);
            }
            Err(reason) => {
                let name = match reason {
                    rackscan_cache::Unusable::Version { .. } => "version",
                    rackscan_cache::Unusable::Epoch { .. } => "epoch",
                    rackscan_cache::Unusable::Key { .. } => "key",
                    rackscan_cache::Unusable::Checksum { .. } => "checksum",
                };
                *counters.refused.entry(name).or_default() += 1;
                self.book.forget(&taking.which);
            }
        }
    }
}

/// Lets a node and a reader live side by side. `crashes`: the reader's or the node's place dies at
/// some moment.
fn live(seed: Seed, config: SimConfig, is_ordered: bool, counters: &mut Counters) {
    let (mut random, extents) = (Random::new(seed), extents());
    let net = SimNet::new(seed, config);
    let mut listener = net.listen("node", &key()).expect("listen");
    let mut node = Node::new(EPOCH);
    let (pages, _theirs, view) = open(&net, &mut listener, &node.cache);
    let second = (!is_ordered).then(|| open(&net, &mut listener, &node.cache));
    let header_view = second.as_ref().map_or(view, |(_, _, view)| *view);
    let (headers, _theirs_too) = second.map(|(ours, theirs, _)| (ours, theirs)).unzip();
    let memory = Region::allocate(32 << 10).expect("memory");
    let book = Book::new(extents.len());
    let mut reader = Reader { pages, headers, view, header_view, memory, book, taking: None };
    for _ in 0..STEPS {
        if random.below(3) == 0
            && let Some((which, place)) = node.act(&mut random, &extents)
            && random.below(2) == 0
        {
            reader.book.learn(which, place);
        }
        if reader.taking.is_none() {
            reader.begin(&mut random, &node, &extents);
        }
        net.step();
        if !reader.look(&node, &extents, counters) {
            break;
        }
        let status = node.cache.status();
        assert!(status.used_bytes <= status.budget_bytes && status.pages <= extents.len() as u64);
    }
}

fn config(tearing: Tearing) -> SimConfig {
    let chance = Chance { crash_per_million: 500, loss_per_million: 500, faults_max: 1, ..Chance::default() };
    SimConfig { tearing, chance, ..SimConfig::default() }
}

fn all_seeds() -> bool {
    Seed::from_environment().expect("a seed").is_none()
}

#[test]
fn pages_taken_in_order_are_true_however_reads_are_torn() {
    for tearing in [Tearing::At8, Tearing::At64, Tearing::Drawn] {
        let mut counters = Counters::default();
        Seed::each(300, |seed| live(seed, config(tearing), true, &mut counters)).expect("a seed");
        if all_seeds() {
            assert!(counters.accepted > 1000 && counters.refused["version"] > 300, "{counters:?}");
            // Words of one header taken at different times may belong to two lives of a frame; in
            // one piece they never do.
            let header_is_whole = matches!(tearing, Tearing::At64);
            assert!(
                !(header_is_whole && counters.refused.contains_key("checksum")),
                "order alone keeps pages whole: {counters:?}"
            );
        }
    }
}

#[test]
fn pages_taken_without_any_order_are_true_by_version_and_checksum_together() {
    for tearing in [Tearing::At8, Tearing::At64] {
        let mut counters = Counters::default();
        Seed::each(600, |seed| live(seed, config(tearing), false, &mut counters)).expect("a seed");
        if all_seeds() {
            assert!(counters.accepted > 1000 && counters.refused["version"] > 300, "{counters:?}");
            assert!(counters.refused.get("checksum").is_some_and(|count| *count > 0), "{counters:?}");
        }
    }
}

#[test]
fn places_of_an_earlier_life_are_refused_in_the_next() {
    Seed::each(50, |seed| {
        let net = SimNet::new(seed, SimConfig::default());
        let mut listener = net.listen("node", &key()).expect("listen");
        let extents = extents();
        let place_in = |epoch| {
            let node = Node::new(epoch);
            let Look::Fill(fill) = node.cache.look(&extents[0]) else {
                panic!("an empty cache takes a page")
            };
            read_into(&node.cache, &fill, &content(&extents[0], epoch), true);
            read_into(&node.cache, &fill, &content(&extents[0], epoch), false);
            let place = fill.publish().place().expect("published");
            (node, place)
        };
        let ((first, old), (second, _)) = (place_in(1), place_in(2));
        let (_, _, old_view) = open(&net, &mut listener, &first.cache);
        let (mut ours, _theirs, view) = open(&net, &mut listener, &second.cache);
        let memory = Region::allocate(8192).expect("memory");
        // The same frame and version, in another life: only the epoch tells.
        let reads = view.reads(old, &extents[0], &memory, 0).expect("it fits");
        let [page, header] = reads;
        ours.post_batch(&[(1, page), (2, header)]).expect("post");
        net.run_until_idle();
        let page = memory.to_vec(0, 4096).expect("inside");
        let header: [u8; 64] = memory.to_vec(4096, 64).expect("inside").try_into().expect("64 bytes");
        assert_eq!(view.verify(&page, &header, old, &extents[0]), Ok(()));
        assert!(old_view.verify(&page, &header, old, &extents[0]).is_err());
    })
    .expect("a seed");
}
