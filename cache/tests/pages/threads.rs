//! Tests readers on real wires with real threads: two threads serve and withdraw pages, and readers
//! read them one-sidedly and, on `shm`, from the mapped memory. Counters, which are raised before
//! and after each change, record which content was valid.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rackscan_cache::{Book, Look, PageCache, View};
use rackscan_fabric::{
    Access, Address, ClusterKey, Connection, Event, Listener, RawSlice, Region,
    sim::{Random, Seed},
};
use rackscan_format::{
    message::{CachePlace, CacheRegion, Target},
    segment::Extent,
};

use crate::pages::{content, extents, read_into};

const TIME: Duration = Duration::from_millis(1500);

/// What the threads of the test share.
struct Stage {
    cache: Arc<PageCache>,
    extents: Vec<Extent>,
    /// How often each extent's bytes were changed; held while its device is read or written.
    devices: Vec<Mutex<u64>>,
    /// Raised behind a withdrawal, before the bytes change.
    writings: Vec<AtomicU64>,
    places: Mutex<Vec<Option<CachePlace>>>,
    is_over: AtomicBool,
}

impl Stage {
    fn new() -> Self {
        let extents = extents();
        let cache = PageCache::new(64 << 10, 1, 5).expect("memory").expect("large enough");
        Self {
            cache,
            devices: extents.iter().map(|_| Mutex::new(0)).collect(),
            writings: extents.iter().map(|_| AtomicU64::new(0)).collect(),
            places: Mutex::new(vec![None; extents.len()]),
            extents,
            is_over: AtomicBool::new(false),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn tell(&self, which: usize, place: Option<CachePlace>) {
        if place.is_some() {
            self.places.lock().unwrap_or_else(PoisonError::into_inner)[which] = place;
        }
    }

    /// Serves requests for pages.
    fn serve(&self, mut random: Random) {
        while !self.is_over() {
            let which = random.index(self.extents.len());
            let extent = &self.extents[which];
            match self.cache.look(extent) {
                Look::Hit(pin) => self.tell(which, pin.place()),
                Look::Fill(fill) => {
                    let writing = *self.devices[which].lock().expect("no panic meanwhile");
                    let bytes = content(extent, writing);
                    read_into(&self.cache, &fill, &bytes, true);
                    read_into(&self.cache, &fill, &bytes, false);
                    let pin = fill.publish();
                    let sent = pin.slice().expect("inside");
                    self.tell(which, pin.place());
                    std::thread::yield_now();
                    let still = sent.region().to_vec(sent.offset(), sent.len()).expect("inside");
                    assert!(still == bytes, "the bytes of a slot changed while it was sent");
                }
                Look::Bypass => {}
            }
        }
    }

    /// Changes extents, as loads and drops do.
    fn change(&self, mut random: Random) {
        while !self.is_over() {
            let which = random.index(self.extents.len());
            let mut device = self.devices[which].lock().expect("no panic meanwhile");
            self.cache.withdraw(&self.extents[which]);
            self.writings[which].fetch_add(1, Ordering::SeqCst);
            *device += 1;
            drop(device);
            // Whoever read the old bytes meanwhile must not publish them behind our back.
            self.cache.withdraw(&self.extents[which]);
            std::thread::sleep(Duration::from_micros(random.below(300)));
        }
    }
}

/// A reader's line to the cache.
struct Line {
    connection: Connection,
    view: View,
    mapped: Option<RawSlice>,
    memory: Region,
}

impl Line {
    /// The page as it was read, or `None` if it must be asked for.
    fn take(&mut self, place: CachePlace, extent: &Extent) -> Option<Vec<u8>> {
        let length = extent.length_bytes as usize;
        let mut page = vec![0; length];
        if let Some(mapped) = &self.mapped {
            let taken = self.view.take_mapped(mapped, place, extent, &mut page).expect("a place inside");
            return taken.ok().map(|()| page);
        }
        let [bytes, header] = self.view.reads(place, extent, &self.memory, 0).expect("it fits");
        self.connection.post_batch(&[(1, bytes), (2, header)]).expect("post");
        let (mut events, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
        while events.len() < 2 {
            assert!(self.connection.wait(&mut events, deadline) > 0, "no answer: {:?}", self.connection);
        }
        assert!(events.iter().all(|event| matches!(event, Event::Completed { outcome: Ok(_), .. })));
        self.memory.copy_out(0, &mut page).expect("inside");
        let mut header = [0; 64];
        self.memory.copy_out(length, &mut header).expect("inside");
        self.view.verify(&page, &header, place, extent).is_ok().then_some(page)
    }

    /// Takes pages until it is over. How many were accepted and refused.
    fn read(mut self, stage: &Stage, mut random: Random) -> (u64, u64) {
        let (mut accepted, mut refused) = (0, 0);
        let mut book = Book::new(stage.extents.len());
        while !stage.is_over() {
            let which = random.index(stage.extents.len());
            // Places are heard of now and then, and used long after.
            if random.below(4) == 0
                && let Some(place) = stage.places.lock().unwrap_or_else(PoisonError::into_inner)[which]
            {
                book.learn(which, place);
            }
            let Some(place) = book.find(&which) else { continue };
            let before = stage.writings[which].load(Ordering::SeqCst);
            let taken = self.take(place, &stage.extents[which]);
            let after = stage.writings[which].load(Ordering::SeqCst);
            match taken {
                Some(page) => {
                    accepted += 1;
                    let is_true =
                        (before..=after).any(|writing| content(&stage.extents[which], writing) == page);
                    assert!(is_true, "a torn or stale page of extent {which}: writings {before} to {after}");
                }
                None => {
                    refused += 1;
                    book.forget(&which);
                }
            }
        }
        (accepted, refused)
    }
}

/// Lets everybody work for a while over a wire.
fn stress(address: &Address, is_mapped: bool) {
    let key = ClusterKey::from_bytes([3; 32]);
    let seed = Seed::choose().expect("a seed");
    let _replay = seed.replay_on_panic();
    let number = |of: u64| Random::new(Seed::new(seed.number().wrapping_add(of << 32)));
    let stage = Stage::new();
    let mut listener = Listener::bind(address, &key).expect("bind");
    let mut lines = Vec::new();
    let mut nodes_ends = Vec::new();
    for _ in 0..2 {
        let soon = Instant::now() + Duration::from_secs(10);
        let mut connection = rackscan_fabric::connect(listener.address(), &key, soon).expect("connect");
        let mut theirs = listener.accept_until(soon).expect("accept").expect("a caller");
        let name = theirs.register(stage.cache.region(), Access::Read).expect("register");
        let memory = Target { key: name.key, offset_bytes: name.address, length_bytes: name.length };
        let frames = stage.cache.geometry().frames();
        let region = CacheRegion { memory, frames, epoch: stage.cache.epoch() };
        let view = View::new(&region).expect("a cache's own description");
        // The grant is there before what is sent behind it.
        theirs.post(0, rackscan_fabric::Operation::Send { bytes: b"open" }).expect("post");
        let mut events = Vec::new();
        assert!(connection.wait(&mut events, soon) > 0);
        let mapped = if is_mapped {
            let whole = connection.map_remote(view.memory(), 0, view.memory().length, Access::Read);
            Some(whole.expect("shm maps what is granted"))
        } else {
            None
        };
        let memory = Region::allocate(32 << 10).expect("memory");
        lines.push(Line { connection, view, mapped, memory });
        nodes_ends.push(theirs);
    }
    let (mut accepted, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let servers: Vec<_> = (0..2)
            .map(|n| {
                scope.spawn({
                    let stage = &stage;
                    let random = number(n);
                    move || stage.serve(random)
                })
            })
            .collect();
        let changer = scope.spawn(|| stage.change(number(7)));
        let readers: Vec<_> = (10..)
            .zip(lines)
            .map(|(n, line)| {
                let (stage, random) = (&stage, number(n));
                scope.spawn(move || line.read(stage, random))
            })
            .collect();
        std::thread::sleep(TIME);
        stage.is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            let (yes, no) = reader.join().expect("no reader was given a wrong page");
            accepted += yes;
            refused += no;
        }
        servers.into_iter().for_each(|server| server.join().expect("no slot changed while it was sent"));
        changer.join().expect("the changer only changes");
    });
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
    let status = stage.cache.status();
    assert!(status.evictions > 0 && status.withdrawals > 0 && status.used_bytes <= status.budget_bytes);
    drop(nodes_ends);
}

#[test]
fn threads_over_shared_memory_take_only_true_pages() {
    let folder = std::env::temp_dir().join(format!("rackscan-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    stress(&Address::Shm { path: folder.join("reads") }, false);
    stress(&Address::Shm { path: folder.join("mapped") }, true);
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test]
fn threads_over_tcp_take_only_true_pages() {
    stress(&Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }, false);
}
