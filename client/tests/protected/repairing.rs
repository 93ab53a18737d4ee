//! Tests that corrupt pages and cells, and lost parts and maps, are found, reconstructed for reads,
//! and repaired with exactly the bytes that were there.

use std::{
    collections::BTreeSet,
    fs::File,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rackscan_client::{ClientError, Cluster, LoadSession, ScrubOptions, ScrubReport};
use rackscan_format::{
    codec, ids::TableId, message::NodeCatalog, schema::Protection, segment::Extent, stripe_set::TableMap,
};
use tokio::sync::Notify;

use crate::new_versions::succeed;
use crate::support::{PATIENCE, Rack, append, definition, id, is_read, load, said, segment, table, wanted};

const LOOK: ScrubOptions = ScrubOptions { repair: false, equations: true, bytes_per_second: None };
const REPAIR: ScrubOptions = ScrubOptions { repair: true, equations: true, bytes_per_second: None };

/// Where what lies of a table at each node, and what.
struct Lying {
    places: Vec<Vec<(Extent, Vec<u8>)>>,
    /// How many of each node's places are pages.
    pages: Vec<usize>,
}

impl Lying {
    fn of(rack: &Rack, map: &TableMap) -> Self {
        let (mut places, mut pages) = (Vec::new(), Vec::new());
        for node in 0..rack.ids().len() {
            let (mut of_pages, mut of_parity) = (Vec::new(), Vec::new());
            for stream in map.sets.iter().flat_map(|set| &set.streams).filter(|s| s.node == id(node)) {
                of_pages.extend(stream.extents());
                of_parity.extend(stream.parity.iter().map(|cell| cell.extent));
            }
            pages.push(of_pages.len());
            let file = File::open(rack.device(node)).expect("the device is a file");
            let extents = of_pages.into_iter().chain(of_parity);
            places.push(extents.map(|extent| (extent, bytes(&file, &extent))).collect());
        }
        Self { places, pages }
    }

    /// That every place of every node has the bytes that it had.
    fn is_there(&self, rack: &Rack) {
        for (node, places) in self.places.iter().enumerate() {
            let file = File::open(rack.device(node)).expect("the device is a file");
            for (at, (extent, expected)) in places.iter().enumerate() {
                assert!(&bytes(&file, extent) == expected, "place {at} of node {}: {extent:?}", id(node));
            }
        }
    }

    fn count(&self) -> u64 {
        self.places.iter().map(|places| places.len() as u64).sum()
    }
}

fn bytes(file: &File, extent: &Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.length_bytes as usize];
    file.read_exact_at(&mut bytes, extent.offset_bytes).expect("the device is as long");
    bytes
}

fn map(rack: &Rack, node: usize, table: u32) -> TableMap {
    let file = rack.data(node).join("maps").join(format!("{table:08x}"));
    TableMap::decode_envelope(&std::fs::read(file).expect("it has the map")).expect("the map is whole")
}

/// Overwrites bytes of a device behind the back of its node, which runs.
fn spoil(rack: &Rack, node: usize, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(rack.device(node)).expect("the device is a file");
    file.write_all_at(bytes, offset).expect("the device is as long");
    file.sync_all().expect("the file can be flushed");
}

/// Flips a bit of a place.
fn flip(rack: &Rack, node: usize, extent: &Extent, at: u64) {
    let file = File::open(rack.device(node)).expect("the device is a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, extent.offset_bytes + at).expect("the device is as long");
    spoil(rack, node, extent.offset_bytes + at, &[byte[0] ^ 4]);
}

async fn scrub(cluster: &Cluster, table: u32, options: ScrubOptions) -> ScrubReport {
    cluster.scrub(TableId(table), &options, &|_| {}).await.expect("all nodes do what they are asked for")
}

/// Four nodes with a table that bears the loss of two.
async fn four() -> (Rack, Cluster, Lying) {
    let rack = Rack::new(4);
    let cluster = rack.connect(0).await.expect("all nodes are there");
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[2, 1, 3, 2]).await;
    let lying = Lying::of(&rack, &map(&rack, 0, 7));
    (rack, cluster, lying)
}

/// Waits until so many pages that reads have found corrupt are whole again.
async fn are_repaired(cluster: &Cluster, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    while cluster.corrupt_pages().repaired < count {
        assert!(Instant::now() < deadline, "{:?} for ever", cluster.corrupt_pages());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_page_is_read_right_and_repaired_where_it_lies() {
    let (rack, cluster, lying) = four().await;
    let before = table(&cluster, 7).await;
    let clean = scrub(&cluster, 7, LOOK).await;
    assert!(clean.is_whole() && clean.places == lying.count() && clean.corrupt.count == 0, "{clean:?}");
    flip(&rack, 2, &lying.places[2][1].0, 300);
    let (reconstructed, read) = is_read(&cluster, &before).await;
    assert!(reconstructed == 1 && read > 0);
    are_repaired(&cluster, 1).await;
    assert_eq!(cluster.corrupt_pages().found, 1);
    lying.is_there(&rack);
    let other = rack.connect(0).await.unwrap();
    assert_eq!(is_read(&other, &before).await, (0, 0));
    assert_eq!(other.corrupt_pages().found, 0);
    let after = scrub(&other, 7, LOOK).await;
    assert!(after.is_whole() && after.corrupt.count == 0, "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_corrupt_pages_of_a_stripe_are_read_right_and_repaired() {
    let (rack, cluster, lying) = four().await;
    let before = table(&cluster, 7).await;
    // The streams of two nodes begin in the first stripe.
    for node in [0, 1] {
        flip(&rack, node, &lying.places[node][0].0, 77);
    }
    assert_eq!(is_read(&cluster, &before).await.0, 2);
    are_repaired(&cluster, 2).await;
    lying.is_there(&rack);
    for node in [2, 3] {
        flip(&rack, node, &lying.places[node][0].0, 0);
    }
    let seen = scrub(&cluster, 7, LOOK).await;
    assert!(seen.corrupt.count == 2 && seen.repaired == 0 && !seen.is_whole(), "{seen:?}");
    let repaired = scrub(&cluster, 7, REPAIR).await;
    assert!(repaired.corrupt.count == 2 && repaired.repaired == 2 && repaired.is_whole(), "{repaired:?}");
    lying.is_there(&rack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_parity_is_found_by_its_node_and_repaired() {
    let (rack, cluster, lying) = four().await;
    for node in [1, 3] {
        for (extent, _) in &lying.places[node][lying.pages[node]..] {
            flip(&rack, node, extent, u64::from(extent.length_bytes) - 1);
        }
    }
    let cells = (lying.places[1].len() + lying.places[3].len() - lying.pages[1] - lying.pages[3]) as u64;
    let seen = scrub(&cluster, 7, LOOK).await;
    assert!(cells > 1 && seen.corrupt.count == cells, "{seen:?}");
    assert!(seen.corrupt.first.iter().all(|found| found.starts_with("parity at bytes")), "{seen:?}");
    let repaired = scrub(&cluster, 7, REPAIR).await;
    assert!(repaired.is_whole() && repaired.repaired == cells && repaired.survivor_bytes > 0, "{repaired:?}");
    lying.is_there(&rack);
}

/// Makes a cell of parity one of something else, with the checksum that it then has, wherever that
/// is said.
fn forge(rack: &Rack, node: usize) {
    let nodes = rack.ids().len();
    let mut forged = map(rack, node, 7);
    let streams = forged.sets[0].streams.iter_mut();
    let cell = streams.filter(|stream| stream.node == id(node)).find_map(|stream| stream.parity.first_mut());
    let cell = cell.expect("it has parity");
    flip(rack, node, &cell.extent, 5);
    let file = File::open(rack.device(node)).expect("the rack has it");
    cell.checksum = codec::checksum(&bytes(&file, &cell.extent));
    let cell = *cell;
    for other in 0..nodes {
        std::fs::write(
            rack.data(other).join("maps").join("00000007"),
            forged.encode_envelope().expect("the rack has it"),
        )
        .expect("the rack has it");
    }
    let file = rack.data(node).join("catalog");
    let content = codec::decode_envelope(
        codec::Envelope::Catalog,
        "the catalog",
        &std::fs::read(&file).expect("the rack has it"),
    );
    let (labels, cluster, mut catalog): (Vec<u64>, u64, NodeCatalog) = content.expect("the rack has it");
    let sets = catalog.tables.iter_mut().flat_map(|table| &mut table.sets);
    let held = sets.flat_map(|set| &mut set.parity).find(|held| held.extent == cell.extent);
    held.expect("the catalog has it").checksum = cell.checksum;
    std::fs::write(
        &file,
        codec::encode_envelope(codec::Envelope::Catalog, &(labels, cluster, catalog))
            .expect("the rack has it"),
    )
    .expect("the rack has it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parity_of_something_else_with_a_right_checksum_is_found_by_its_equation() {
    let (mut rack, cluster, _) = four().await;
    drop(cluster);
    (0..4).for_each(|node| rack.stop(node));
    forge(&rack, 1);
    (0..4).for_each(|node| rack.start(node));
    let cluster = rack.connect(0).await.unwrap();
    let without = scrub(&cluster, 7, ScrubOptions { equations: false, ..LOOK }).await;
    assert!(without.is_whole(), "nobody sees it who does not compute: {without:?}");
    let seen = scrub(&cluster, 7, REPAIR).await;
    assert!(!seen.is_whole() && seen.corrupt.count == 0 && seen.unequal.count >= 1, "{seen:?}");
    let named = |text: &String| text.contains("does not hold") && text.contains("of node 2");
    assert!(seen.unequal.first.iter().any(named), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_more_nodes_lose_than_parity_bears_is_named_and_nothing_is_put_in_its_place() {
    let (rack, cluster, lying) = four().await;
    let before = table(&cluster, 7).await;
    let mut expected = Vec::new();
    for node in 0..3 {
        // All that there is of the node: whatever the stripe, three of its cells are gone.
        for (extent, _) in &lying.places[node] {
            flip(&rack, node, extent, 40);
        }
        let file = File::open(rack.device(node)).unwrap();
        expected.push(lying.places[node].iter().map(|(extent, _)| bytes(&file, extent)).collect::<Vec<_>>());
    }
    let report = scrub(&cluster, 7, ScrubOptions { equations: false, ..REPAIR }).await;
    assert!(!report.is_whole() && report.corrupt.count == report.repaired + report.unreadable.count);
    assert!(
        report.unreadable.count > 0 && report.unreadable.first[0].contains("does not bear"),
        "{report:?}"
    );
    assert!(report.unreadable.first[0].contains("at bytes"), "{report:?}");
    let (mut repaired, mut left) = (0, 0);
    for (node, (places, spoiled)) in lying.places.iter().zip(&expected).enumerate().take(3) {
        let file = File::open(rack.device(node)).unwrap();
        for ((extent, whole), spoiled) in places.iter().zip(spoiled) {
            let found = bytes(&file, extent);
            assert!(found == *whole || found == *spoiled, "bytes that were never there");
            if found == *whole { repaired += 1 } else { left += 1 }
        }
    }
    assert_eq!((repaired, left), (report.repaired, report.unreadable.count));
    let mut refused = 0;
    for placed in &before.segments {
        let (written, number) = (placed.directory.table, placed.directory.segment);
        let (_, pages) = segment(&before.definition, number.0, placed.directory.rows);
        for (page, expected) in wanted(placed).into_iter().zip(pages) {
            match cluster.fetch(placed.node, written, number, &[page]).await {
                Ok(found) => assert!(found.pages[0].bytes() == expected, "an invented page"),
                Err(error) => {
                    assert!(matches!(error, ClientError::LostPages { .. }), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_was_read_from_the_device_of_a_dropped_table_is_refused_and_not_called_corrupt() {
    let (rack, cluster, _) = four().await;
    let before = table(&cluster, 7).await;
    let placed = &before.segments[0];
    let segment = (placed.directory.table, placed.directory.segment);
    let pages = wanted(placed);
    // The page of another table in place of its own: as if the space was used again.
    load(&cluster, definition(8, &rack.ids(), None), &[1, 1, 1, 1]).await;
    let new = &table(&cluster, 8).await.segments[0];
    let mut fetched =
        cluster.fetch(new.node, TableId(8), new.directory.segment, &wanted(new)[..1]).await.unwrap();
    let other = fetched.pages.pop().into_iter().collect();
    let dropping = rack.connect(0).await.unwrap();
    dropping.drop_published(TableId(7)).await.unwrap();
    let read = cluster.made_right(placed.node, segment, &pages[..1], other, &mut fetched).await;
    let error = read.map(|pages| pages.len()).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert_eq!((cluster.corrupt_pages().found, fetched.reconstructed_pages), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_segment_that_its_node_has_lost_is_reconstructed_and_not_called_corrupt() {
    let (mut rack, cluster, _) = four().await;
    let before = table(&cluster, 7).await;
    let placed = before.segments.iter().find(|placed| placed.node == id(2)).unwrap();
    let lost = (placed.directory.table, placed.directory.segment);
    let pages = wanted(placed);
    drop(cluster);
    lose(&mut rack, 2);
    let cluster = rack.connect(0).await.unwrap();
    cluster.catalog().await.unwrap();
    // A page of a table without parity is not verified when it is fetched.
    let others: Vec<_> = rack.ids().into_iter().filter(|node| *node != id(2)).collect();
    load(&cluster, definition(8, &others, None), &[1, 1, 1]).await;
    let new = &table(&cluster, 8).await.segments[0];
    let mut fetched =
        cluster.fetch(new.node, TableId(8), new.directory.segment, &wanted(new)[..1]).await.unwrap();
    let found = fetched.pages.pop().into_iter().collect();
    let read = cluster.made_right(placed.node, lost, &pages[..1], found, &mut fetched).await.unwrap();
    let (_, expected) = segment(&before.definition, lost.1.0, placed.directory.rows);
    assert!(read[0].bytes() == expected[0], "the page as it was");
    assert_eq!((cluster.corrupt_pages().found, fetched.reconstructed_pages), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupt_page_of_a_table_without_parity_comes_as_it_is_and_is_not_scrubbed() {
    let rack = Rack::new(3);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), None), &[1, 1, 1]).await;
    let before = table(&cluster, 7).await;
    let placed = &before.segments[0];
    let pages = wanted(placed);
    flip(&rack, usize::from(placed.node.0 - 1), &pages[0].extent, 300);
    let (written, number) = (placed.directory.table, placed.directory.segment);
    let fetched = cluster.fetch(placed.node, written, number, &pages[..1]).await.unwrap();
    let (_, expected) = segment(&before.definition, number.0, placed.directory.rows);
    assert!(fetched.reconstructed_pages == 0 && fetched.pages[0].bytes() != expected[0]);
    assert_eq!(cluster.corrupt_pages().found, 0);
    let error = cluster.scrub(TableId(7), &LOOK, &|_| {}).await.unwrap_err();
    assert!(matches!(error, ClientError::NotProtected { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_its_map_gets_it_from_another() {
    let (mut rack, cluster, _) = four().await;
    drop(cluster);
    let file = |node: usize| rack.data(node).join("maps").join("00000007");
    let (first, second) = (file(1), file(2));
    let whole = std::fs::read(&first).unwrap();
    rack.stop(1);
    rack.stop(2);
    std::fs::remove_file(&first).unwrap();
    std::fs::write(&second, &whole[..whole.len() - 9]).unwrap();
    rack.start(1);
    rack.start(2);
    let cluster = rack.connect(0).await.unwrap();
    let seen = scrub(&cluster, 7, LOOK).await;
    assert_eq!(seen.maps_lost, [id(1), id(2)]);
    let repaired = scrub(&cluster, 7, REPAIR).await;
    assert_eq!(repaired.maps_lost, [id(1), id(2)]);
    assert!(scrub(&cluster, 7, LOOK).await.maps_lost.is_empty());
    for file in [first, second] {
        assert!(std::fs::read(file).unwrap() == whole);
    }
    rack.restart(1);
    let cluster = rack.connect(0).await.unwrap();
    assert!(scrub(&cluster, 7, LOOK).await.maps_lost.is_empty());
}

/// A node loses its folder, and what is on its device.
fn lose(rack: &mut Rack, node: usize) {
    rack.stop(node);
    std::fs::remove_dir_all(rack.data(node)).expect("it had a folder");
    std::fs::remove_file(rack.device(node)).expect("it had a device");
    rack.start(node);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_lost_its_folder_is_read_past_and_rebuilt_byte_by_byte() {
    let (mut rack, cluster, lying) = four().await;
    let before = table(&cluster, 7).await;
    let used = rack.used_bytes(&cluster).await;
    load(&cluster, definition(8, &rack.ids(), None), &[1, 1, 1, 1]).await;
    drop(cluster);
    lose(&mut rack, 2);
    let cluster = rack.connect(0).await.unwrap();
    let catalog = cluster.catalog().await.unwrap();
    assert_eq!(catalog.broken.len(), 1, "the one that is not protected");
    assert!(said(&table(&cluster, 7).await) == said(&before));
    assert!(is_read(&cluster, &before).await.0 > 0);
    let seen = scrub(&cluster, 7, ScrubOptions { equations: false, ..REPAIR }).await;
    assert_eq!((seen.lost.clone(), seen.is_whole()), (vec![id(2)], false), "{seen:?}");
    let totals = std::sync::Mutex::new(BTreeSet::new());
    let listener = |progress: &rackscan_client::RepairProgress| {
        assert!(progress.bytes_done <= progress.bytes_total, "{progress:?}");
        totals.lock().unwrap().insert(progress.bytes_total);
    };
    let report = cluster.rebuild(id(2), &ScrubOptions::default(), &listener).await.unwrap();
    let held: u64 = lying.places[2].iter().map(|(extent, _)| u64::from(extent.length_bytes)).sum();
    assert_eq!(totals.into_inner().unwrap(), BTreeSet::from([held]), "known beforehand");
    assert_eq!((report.rebuilt_bytes(), report.tables.len()), (held, 1), "{report:?}");
    assert!(report.tables[0].adopted && report.read_per_byte() > 0.0, "{report:?}");
    assert!(report.left.len() == 1 && report.left[0].0 == "t8", "{report:?}");
    lying.is_there(&rack);
    let other = rack.connect(0).await.unwrap();
    assert!(said(&table(&other, 7).await) == said(&before));
    assert_eq!(is_read(&other, &before).await, (0, 0));
    let again = other.rebuild(id(2), &ScrubOptions::default(), &|_| {}).await.unwrap();
    assert_eq!((again.rebuilt_bytes(), again.tables[0].adopted), (0, false), "{again:?}");
    other.drop_table("t8").await.unwrap();
    rack.comes_to_use(&other, |now| now == used).await;
    rack.restart(2);
    let other = rack.connect(0).await.unwrap();
    let whole = scrub(&other, 7, LOOK).await;
    assert!(whole.is_whole() && whole.corrupt.count == 0 && whole.maps_lost.is_empty(), "{whole:?}");
    lying.is_there(&rack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_lost_its_folder_takes_no_new_table_before_it_is_rebuilt() {
    let (mut rack, cluster, lying) = four().await;
    let new = |id| definition(id, &rack.ids(), Some(Protection::TwoD));
    let (early, late) = (new(8), new(9));
    let begun = LoadSession::begin(&cluster, early).await.expect("all nodes have their parts");
    lose(&mut rack, 2);
    let refused = |error: &ClientError| match error {
        ClientError::Unrebuilt { node, table } => *node == id(2) && table == "t7",
        _ => false,
    };
    // A load that began before the folder was lost.
    append(&begun, 0, &[1, 1]).await;
    let error = begun.publish().await.unwrap_err();
    assert!(refused(&error) || error.is_node_lost(), "{error}");
    let cluster = rack.connect(0).await.unwrap();
    let error = LoadSession::begin(&cluster, late.clone()).await.unwrap_err();
    assert!(refused(&error), "{error}");
    assert!(error.to_string().contains("rackscan rebuild"), "{error}");
    let report = cluster.rebuild(id(2), &ScrubOptions::default(), &|_| {}).await.unwrap();
    assert!(report.left.is_empty() && report.tables[0].report.is_whole(), "{report:?}");
    load(&cluster, late, &[1, 1, 1, 1]).await;
    lying.is_there(&rack);
    assert_eq!(cluster.catalog().await.unwrap().tables.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_that_only_the_stripes_of_a_new_version_still_have_are_scrubbed_and_rebuilt_too() {
    let (mut rack, cluster, old) = four().await;
    let first = table(&cluster, 7).await;
    // The node of segment 1 keeps its bytes, and nobody reads them any more.
    let gone = first.segments.iter().find(|placed| placed.directory.segment.0 == 1).unwrap();
    let (node, page) = (usize::from(gone.node.0 - 1), wanted(gone)[0].extent);
    succeed(&rack, &first, 8, &[1], &[1, 0, 1, 0]).await;
    let second = table(&cluster, 8).await;
    let lying = Lying::of(&rack, &map(&rack, 0, 8));
    assert!(lying.count() > old.count());
    flip(&rack, node, &page, 100);
    let repaired = scrub(&cluster, 8, REPAIR).await;
    assert!(repaired.is_whole() && repaired.repaired == 1, "{repaired:?}");
    drop(cluster);
    lose(&mut rack, node);
    let cluster = rack.connect(0).await.unwrap();
    let report = cluster.rebuild(id(node), &ScrubOptions::default(), &|_| {}).await.unwrap();
    assert!(report.left.is_empty() && report.tables[0].report.is_whole(), "{report:?}");
    lying.is_there(&rack);
    rack.restart(node);
    let cluster = rack.connect(0).await.unwrap();
    assert!(said(&table(&cluster, 8).await) == said(&second));
    assert_eq!(is_read(&cluster, &second).await, (0, 0));
    let whole = scrub(&cluster, 8, LOOK).await;
    assert!(whole.is_whole() && whole.corrupt.count == 0, "{whole:?}");
    let error = cluster.scrub(TableId(7), &LOOK, &|_| {}).await.unwrap_err();
    assert!(matches!(error, ClientError::NotProtected { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_have_lost_everything_are_rebuilt_one_after_the_other() {
    let (mut rack, cluster, lying) = four().await;
    let before = table(&cluster, 7).await;
    drop(cluster);
    lose(&mut rack, 0);
    lose(&mut rack, 3);
    let cluster = rack.connect(0).await.unwrap();
    assert!(said(&table(&cluster, 7).await) == said(&before));
    // The first one takes its part, and is ended before it has any bytes: they are there, and not
    // right.
    let enough = Notify::new();
    let listener = |_: &rackscan_client::RepairProgress| enough.notify_one();
    tokio::select! {
        biased;
        () = enough.notified() => {}
        _ = cluster.rebuild(id(3), &REPAIR, &listener) => panic!("it was to be ended"),
    }
    for node in [0, 3] {
        let report = cluster.rebuild(id(node), &ScrubOptions::default(), &|_| {}).await.unwrap();
        assert!(report.left.is_empty() && report.tables[0].report.is_whole(), "{report:?}");
    }
    lying.is_there(&rack);
    assert_eq!(is_read(&rack.connect(0).await.unwrap(), &before).await, (0, 0));
    // Three are too many: it is said, and nothing is taken.
    drop(cluster);
    (0..3).for_each(|node| lose(&mut rack, node));
    let cluster = rack.connect(0).await.unwrap();
    let empty = cluster.status(id(0)).await.unwrap().devices[0].used_bytes;
    let report = cluster.rebuild(id(0), &ScrubOptions::default(), &|_| {}).await.unwrap();
    assert!(report.tables.is_empty() && report.left.len() == 1, "{report:?}");
    assert_eq!(cluster.status(id(0)).await.unwrap().devices[0].used_bytes, empty);
    assert_eq!(cluster.catalog().await.unwrap().broken.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_ends_in_its_middle_goes_on_and_what_is_read_meanwhile_is_right() {
    let mut rack = Rack::new(4);
    let cluster = rack.connect(0).await.unwrap();
    for table in [7, 8, 9] {
        load(&cluster, definition(table, &rack.ids(), Some(Protection::TwoD)), &[2, 1, 3, 2]).await;
    }
    let mut before = Vec::new();
    for number in [7, 8, 9] {
        before.push((table(&cluster, number).await, Lying::of(&rack, &map(&rack, 0, number))));
    }
    drop(cluster);
    lose(&mut rack, 2);
    let places: u64 = before.iter().map(|(_, lying)| lying.places[2].len() as u64).sum();
    let (mut repaired, mut ends) = (0, 0);
    for events in 1_u64.. {
        let cluster = rack.connect(0).await.unwrap();
        // Who reads has looked at what there is.
        assert!(said(&table(&cluster, 9).await) == said(&before[2].0));
        let (seen, found, enough) = (AtomicU64::new(0), AtomicU64::new(0), Notify::new());
        let listener = |progress: &rackscan_client::RepairProgress| {
            found.store(progress.repaired, Ordering::Relaxed);
            if seen.fetch_add(1, Ordering::Relaxed) + 1 == events {
                enough.notify_one();
            }
        };
        let rebuild = cluster.rebuild(id(2), &REPAIR, &listener);
        let reader = async {
            for (table, _) in &before {
                is_read(&cluster, table).await;
            }
        };
        let ended = tokio::select! {
            biased;
            () = enough.notified() => None,
            (report, ()) = async { tokio::join!(rebuild, reader) } => Some(report.unwrap()),
        };
        drop(cluster);
        if let Some(report) = ended {
            assert!(report.left.is_empty() && report.tables.len() == 3, "{report:?}");
            // Readers repair, too: nothing is done twice, and nothing is left.
            assert!(repaired + found.load(Ordering::Relaxed) <= places);
            break;
        }
        (repaired, ends) = (repaired + found.load(Ordering::Relaxed), ends + 1);
        if events % 2 == 0 {
            rack.restart(2);
        }
    }
    assert!(ends > 3, "it ended in its middle {ends} times");
    let cluster = rack.connect(0).await.unwrap();
    for (table, lying) in &before {
        lying.is_there(&rack);
        assert_eq!(is_read(&cluster, table).await, (0, 0));
        assert!(scrub(&cluster, table.definition.id.0, LOOK).await.is_whole());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_times_damage_to_at_most_two_nodes_is_found_and_repaired() {
    let (rack, cluster, lying) = four().await;
    let mut state = 20_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut trials = 0;
    for round in 0.. {
        if trials >= 10_000 {
            break;
        }
        let first = draw(4);
        let nodes = [first, (first + 1 + draw(3)) % 4];
        // Few at first, so that most of what survives is used, then more.
        for _ in 0..1 + round * 8 % 300 {
            let node = usize::try_from(nodes[usize::try_from(draw(2)).unwrap()]).unwrap();
            let (extent, _) =
                &lying.places[node][usize::try_from(draw(lying.places[node].len() as u64)).unwrap()];
            let at = draw(extent.length_bytes.into());
            if draw(8) == 0 {
                let length = usize::try_from(u64::from(extent.length_bytes) - at).unwrap();
                spoil(&rack, node, extent.offset_bytes + at, &vec![0; length]);
            } else {
                flip(&rack, node, extent, at);
            }
            trials += 1;
        }
        let mut spoiled = 0;
        for (node, places) in lying.places.iter().enumerate() {
            let file = File::open(rack.device(node)).unwrap();
            spoiled += places.iter().filter(|(extent, whole)| bytes(&file, extent) != *whole).count() as u64;
        }
        let report = scrub(&cluster, 7, REPAIR).await;
        assert_eq!((report.corrupt.count, report.repaired), (spoiled, spoiled), "round {round}: {report:?}");
        assert!(report.is_whole(), "round {round}: {report:?}");
        lying.is_there(&rack);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_nobody_has_any_more_are_named_by_node_and_device() {
    let (mut rack, _, lying) = four().await;
    [0, 1, 3].into_iter().for_each(|node| rack.stop(node));
    let cluster = rack.connect(3).await.unwrap();
    let report = scrub(&cluster, 7, ScrubOptions { repair: false, ..REPAIR }).await;
    assert!(report.unreadable.count > 0 && !report.is_whole(), "{report:?}");
    let pages = |node: usize| lying.places[node].iter().any(|(extent, _)| extent.length_bytes > 0);
    for node in [0, 1, 3].into_iter().filter(|node| pages(*node)) {
        let named = format!("of node {} (set 7.0): nodes ", id(node));
        assert!(report.unreadable.first.iter().any(|found| found.contains(&named)), "{named}: {report:?}");
    }
    assert!(!report.unreadable.first.iter().any(|found| found.contains(&format!("of node {} (", id(2)))));
}
