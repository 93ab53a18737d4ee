//! Promise: pages that are read again come from the cache, which stays within its memory budget,
//! and clients may read them there one-sidedly; a page that was dropped, or that an earlier process
//! of the node has cached, is never returned.

use std::time::{Duration, Instant};

use rackscan_cache::View;
use rackscan_fabric::{Event, Operation, Region};
use rackscan_format::{
    ids::SegmentId,
    message::{Answer, CachePlace, CacheRegion, CacheStatus, Cost, PageWanted, Request},
    segment::Extent,
};
use rackscan_storage_node::ByteSize;

use crate::support::{
    client::Client,
    node::{NodeFolder, Running},
    table::{Segment, Table},
};

fn start(node_folder: &NodeFolder, cache_bytes: u64) -> Running {
    let mut config = node_folder.config();
    config.cache = Some(ByteSize(cache_bytes));
    config.memory_budget = ByteSize(config.memory_budget.0 + cache_bytes);
    node_folder.start_with(config).expect("the node starts")
}

/// Fetches pages and checks that they are right.
fn fetch(
    client: &mut Client,
    table: &Table,
    segment: &Segment,
    pages: Vec<PageWanted>,
) -> (Cost, Vec<Option<CachePlace>>) {
    let target = client.target(0, segment.stored_bytes());
    client.region.zero(0, 1 << 20).expect("inside");
    let (table, id) = (table.id(), segment.directory.segment);
    let answer = client.ask(Request::Fetch { table, segment: id, pages: pages.clone(), target });
    let Ok(Answer::Fetched { cost, places, .. }) = answer else { panic!("{answer:?}") };
    for page in &pages {
        let expected = segment.page(page.column, page.page);
        let found = client.copy_out(page.target_offset_bytes, expected.len() as u64);
        assert!(found == expected, "{page:?}");
    }
    (cost, places)
}

fn fetch_all(client: &mut Client, table: &Table, segment: &Segment) -> (Cost, Vec<Option<CachePlace>>) {
    fetch(client, table, segment, segment.wanted())
}

fn status(client: &mut Client) -> CacheStatus {
    client.status().cache
}

fn open(client: &mut Client) -> (View, CacheRegion) {
    match client.ask(Request::OpenCache) {
        Ok(Answer::Cache(Some(region))) => (View::new(&region).expect("a node describes its cache"), region),
        other => panic!("a cache was expected, not {other:?}"),
    }
}

/// Takes a page without asking the node; `None` if it is not usable or the wire refuses.
fn take(client: &mut Client, view: &View, place: CachePlace, extent: &Extent) -> Option<Vec<u8>> {
    let length = extent.length_bytes as usize;
    let memory = Region::allocate((length + 64).next_multiple_of(4096)).expect("memory");
    let [page, header] = view.reads(place, extent, &memory, 0).expect("it fits");
    client.connection.post_batch(&[(1, page), (2, header)]).expect("the connection is open");
    let (mut events, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while events.len() < 2 {
        assert!(client.connection.wait(&mut events, deadline) > 0, "{:?}", client.connection);
        // Completions of earlier sends.
        events.retain(|event| !matches!(event, Event::Completed { id: u64::MAX, .. }));
    }
    let is_done = |event: &Event| matches!(event, Event::Completed { outcome: Ok(_), .. });
    if !events.iter().all(is_done) {
        return None;
    }
    let page = memory.to_vec(0, length).expect("inside");
    let header = memory.to_vec(length, 64).expect("inside").try_into().expect("64 bytes");
    view.verify(&page, &header, place, extent).is_ok().then_some(page)
}

/// The extents of a segment's pages, in the order of its names.
fn extents(client: &mut Client, table: &Table) -> Vec<Extent> {
    let catalog = client.catalog(1 << 20);
    let stored = catalog.tables.iter().find(|stored| stored.definition.id == table.id()).expect("loaded");
    stored.segments[0]
        .directory
        .chunks
        .iter()
        .flat_map(|chunk| &chunk.pages)
        .map(|page| page.extent)
        .collect()
}

#[test]
fn pages_that_fit_come_out_of_memory_the_second_time_on_every_wire() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder, 8 << 20);
    let table = Table::new(1, "t", 2, 5000);
    table.load(&mut node.shm());
    let mut misses = 0;
    for (wire, mut client) in node.both() {
        let before = status(&mut client);
        for segment in &table.segments {
            let pages = segment.pages.len();
            let (cold, places) = fetch_all(&mut client, &table, segment);
            let (warm, again) = fetch_all(&mut client, &table, segment);
            assert!(places.len() == pages && places.iter().all(Option::is_some), "{wire}: {places:?}");
            assert_eq!((warm.pages_read, warm.pages_cached as usize), (0, pages), "{wire}");
            assert_eq!((warm.disk_bytes, places == again), (0, true), "{wire}");
            misses += cold.pages_read;
            assert_eq!((cold.pages_read + cold.pages_cached) as usize, pages, "{wire}");
        }
        let after = status(&mut client);
        let pages: u64 = table.segments.iter().map(|segment| segment.pages.len() as u64).sum();
        assert_eq!(after.hits + after.misses - before.hits - before.misses, 2 * pages, "{wire}");
        assert_eq!((after.pages, after.misses), (pages, u64::from(misses)), "{wire}");
        assert!(after.used_bytes <= after.budget_bytes && after.budget_bytes == 8 << 20);
    }
    node.stop();
}

#[test]
fn a_node_without_a_cache_says_so_and_serves() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder, 0);
    let table = Table::new(1, "t", 1, 5000);
    table.load(&mut node.shm());
    for (wire, mut client) in node.both() {
        assert_eq!(client.ask(Request::OpenCache), Ok(Answer::Cache(None)), "{wire}");
        for _ in 0..2 {
            let (cost, places) = fetch_all(&mut client, &table, &table.segments[0]);
            assert!(places.is_empty() && cost.pages_cached == 0, "{wire}");
        }
        client.done(Request::CacheUsed { places: vec![CachePlace { frame: 0, version: 2 }] });
        assert_eq!(status(&mut client), CacheStatus::default());
    }
    node.stop();
}

#[test]
fn the_budget_holds_under_load_and_every_page_stays_right() {
    let node_folder = NodeFolder::new();
    // A few dozen frames for some hundred pages.
    let node = start(&node_folder, 256 << 10);
    let table = Table::new(1, "t", 2, 30_000);
    table.load(&mut node.shm());
    std::thread::scope(|threads| {
        for number in 0..4_usize {
            let (node, table) = (&node, &table);
            threads.spawn(move || {
                let mut client = if number.is_multiple_of(2) { node.shm() } else { node.tcp() };
                for round in 0..6 {
                    let segment = &table.segments[(number + round) % 2];
                    fetch_all(&mut client, table, segment);
                    // Some pages more often than others, and not in the order of the device.
                    let mut some: Vec<PageWanted> = segment.wanted().into_iter().step_by(5).collect();
                    some.reverse();
                    fetch(&mut client, table, segment, some);
                    let now = status(&mut client);
                    assert!(now.used_bytes <= now.budget_bytes, "{now:?}");
                }
            });
        }
    });
    let mut client = node.shm();
    let now = status(&mut client);
    assert!(now.hits > 0 && now.misses > 0 && now.evictions > 0 && now.pages > 0, "{now:?}");
    let counters = client.status().counters;
    assert!(counters.memory_peak_bytes <= client.status().memory_budget_bytes);
    node.stop();
}

#[test]
fn a_scan_takes_pages_from_the_cache_and_leaves_there_what_it_read() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder, 8 << 20);
    let table = Table::new(1, "t", 2, 5000);
    table.load(&mut node.shm());
    let program = table.program(500);
    for (wire, mut client) in node.both() {
        // One wire finds what the other has left.
        for segment in 0..2 {
            for round in 0..3 {
                let (program, target) = (program.clone(), client.target(0, 4 << 20));
                let answer = client.ask(Request::Process {
                    withheld: None,
                    table: program.table,
                    program,
                    key_filters: Vec::new(),
                    segment: SegmentId(segment),
                    first_block: 0,
                    target,
                    report_reads: true,
                });
                let Ok(Answer::Processed { cost, reads, rows, .. }) = answer else { panic!("{answer:?}") };
                let expected = table.scan_locally(segment as usize, &table.program(500)).num_rows();
                assert_eq!(rows, expected as u64, "{wire}, round {round}");
                assert_eq!(reads.len(), cost.pages_read as usize, "only what a device was asked for");
                let stored = cost.disk_bytes + cost.cached_bytes;
                assert!(stored > 0 && (cost.cached_bytes > 0) == (cost.pages_cached > 0), "{cost:?}");
                if round > 0 || wire != "shm" {
                    assert_eq!((cost.pages_read, cost.disk_bytes), (0, 0), "{wire}, round {round}: {cost:?}");
                }
            }
        }
        let segment = &table.segments[0];
        let (cost, _) = fetch_all(&mut client, &table, segment);
        assert_eq!(cost.pages_read, 0, "fetches find what scans have left: {cost:?}");
    }
    node.stop();
}

#[test]
fn cached_pages_are_taken_without_the_node_until_their_table_is_dropped() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder, 8 << 20);
    let table = Table::new(1, "t", 1, 5000);
    table.load(&mut node.shm());
    for (wire, mut client) in node.both() {
        let segment = &table.segments[0];
        let extents = extents(&mut client, &table);
        let (view, _) = open(&mut client);
        let (_, places) = fetch_all(&mut client, &table, segment);
        let fetches = client.status().counters.fetch_requests;
        for ((extent, place), page) in extents.iter().zip(&places).zip(&segment.pages) {
            let taken = take(&mut client, &view, place.expect("cached"), extent);
            assert!(taken.as_ref() == Some(page), "{wire}");
        }
        let used: Vec<CachePlace> = places.iter().flatten().copied().collect();
        client.done(Request::CacheUsed { places: used.clone() });
        let now = client.status();
        assert_eq!(now.counters.fetch_requests, fetches, "{wire}");
        assert!(now.cache.one_sided_hits.is_multiple_of(used.len() as u64) && now.cache.one_sided_hits > 0);
    }
    let (mut shm, mut tcp) = (node.shm(), node.tcp());
    let lines = [open(&mut shm).0, open(&mut tcp).0];
    let extents = extents(&mut shm, &table);
    let (_, places) = fetch_all(&mut shm, &table, &table.segments[0]);
    shm.done(Request::Drop { table: table.id() });
    // Another table takes the same places on the devices, and its pages the same frames.
    let next = Table::new(2, "t", 1, 5000);
    next.load(&mut shm);
    for again in [false, true] {
        for (client, view) in [&mut shm, &mut tcp].into_iter().zip(&lines) {
            for (extent, place) in extents.iter().zip(&places) {
                assert_eq!(
                    take(client, view, place.expect("cached"), extent),
                    None,
                    "a page of a dropped table"
                );
            }
        }
        if !again {
            fetch_all(&mut shm, &next, &next.segments[0]);
        }
    }
    assert!(status(&mut shm).withdrawals >= places.len() as u64);
    node.stop();
}

#[test]
fn an_aborted_load_and_one_whose_loader_died_leave_nothing_in_the_cache() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder, 8 << 20);
    let mut client = node.shm();
    for (round, is_aborted) in (10..).zip([true, false]) {
        let table = Table::new(round, "t", 1, 5000);
        let mut loader = node.shm();
        table.append_all(&mut loader);
        if is_aborted {
            // A prepared table is visible by its id.
            table.prepare(&mut loader);
            fetch_all(&mut client, &table, &table.segments[0]);
            assert!(status(&mut client).pages > 0);
            loader.done(Request::AbortLoad { load: table.id() });
        }
        drop(loader);
        let deadline = Instant::now() + Duration::from_secs(10);
        while status(&mut client).pages > 0 {
            assert!(Instant::now() < deadline, "{:?}", status(&mut client));
        }
    }
    node.stop();
}

#[test]
fn places_of_an_earlier_life_of_the_node_are_worth_nothing_in_the_next() {
    let node_folder = NodeFolder::new();
    let table = Table::new(1, "t", 1, 5000);
    let (old_places, old_region) = {
        let node = start(&node_folder, 8 << 20);
        let mut client = node.shm();
        table.load(&mut client);
        let (_, region) = open(&mut client);
        let (_, places) = fetch_all(&mut client, &table, &table.segments[0]);
        drop(client);
        node.stop();
        (places, region)
    };
    let node = start(&node_folder, 8 << 20);
    for (wire, mut client) in node.both() {
        let extents = extents(&mut client, &table);
        let (view, region) = open(&mut client);
        let (_, places) = fetch_all(&mut client, &table, &table.segments[0]);
        assert_ne!(region.epoch, old_region.epoch, "{wire}");
        // Whoever uses the new memory with the old life's epoch, as a client that missed the
        // restart would.
        let confused = View::new(&CacheRegion { epoch: old_region.epoch, ..region }).expect("the same shape");
        for ((extent, place), old) in extents.iter().zip(&places).zip(&old_places) {
            let (place, old) = (place.expect("cached"), old.expect("cached"));
            assert!(take(&mut client, &view, place, extent).is_some(), "{wire}");
            assert_eq!(take(&mut client, &confused, old, extent), None, "{wire}");
        }
        // The old key opens nothing.
        let stale = View::new(&old_region).expect("it was one");
        assert_eq!(take(&mut client, &stale, old_places[0].expect("cached"), &extents[0]), None, "{wire}");
    }
    node.stop();
}

#[test]
fn the_cache_cannot_be_written_by_clients() {
    let node_folder = NodeFolder::new();
    let node = start(&node_folder, 8 << 20);
    let table = Table::new(1, "t", 1, 5000);
    table.load(&mut node.shm());
    for (wire, mut client) in node.both() {
        let extent = extents(&mut client, &table)[0];
        let (view, _) = open(&mut client);
        let (_, places) = fetch_all(&mut client, &table, &table.segments[0]);
        let write = Operation::WriteBytes { bytes: &[0xff; 64], target: *view.memory(), target_offset: 0 };
        client.connection.post(3, write).expect("the connection is open");
        let (mut events, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
        while !events.iter().any(|event| matches!(event, Event::Completed { id: 3, .. })) {
            assert!(client.connection.wait(&mut events, deadline) > 0);
        }
        let refused = |event: &Event| matches!(event, Event::Completed { id: 3, outcome: Err(_) });
        assert!(events.iter().any(refused), "{wire}: {events:?}");
        assert!(take(&mut client, &view, places[0].expect("cached"), &extent).is_some(), "{wire}");
    }
    node.stop();
}
