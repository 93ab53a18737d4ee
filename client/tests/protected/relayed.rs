//! Tests that nodes compute the parity of loads, and rebuild the lost cells of a node, by relaying
//! cells to each other; and that a load or a rebuild continues when they cannot.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use rackscan_client::{Cluster, LoadSession, RepairProgress, ScrubOptions};
use rackscan_format::{
    ids::TableId,
    message::RelayStatus,
    schema::Protection,
    stripe_set::{StripeSet, TableMap},
};
use rackscan_stripe::{Geometry, Node};

use super::support::{PATIENCE, Rack, append, definition, id, is_read, load, said, table};

const DEVICE_BYTES: u64 = 24 << 20;

/// What relays of all nodes have done, and bytes that nodes have pulled from clients.
async fn done(rack: &Rack, cluster: &Cluster) -> (RelayStatus, u64) {
    let (mut all, mut pulled) = (RelayStatus::default(), 0);
    for node in rack.ids() {
        let status = cluster.status(node).await.expect("it is there");
        pulled += status.counters.wire_read_bytes;
        for relay in status.relays {
            all.stripes += relay.stripes;
            all.kept_bytes += relay.kept_bytes;
            all.xored_bytes += relay.xored_bytes;
            all.sent_bytes += relay.sent_bytes;
        }
    }
    (all, pulled)
}

/// The same when so many stripes are counted, each at each node: relays say what they have done
/// when they rest.
async fn done_with(rack: &Rack, cluster: &Cluster, stripes: u64) -> (RelayStatus, u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = done(rack, cluster).await;
        if found.0.stripes >= stripes {
            return found;
        }
        assert!(Instant::now() < deadline, "{} of {stripes} stripes are counted", found.0.stripes);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// The stripe sets of a table, as a node's map has them.
fn sets(rack: &Rack, table: u32) -> Vec<StripeSet> {
    let file = rack.data(0).join("maps").join(format!("{table:08x}"));
    TableMap::decode_envelope(&std::fs::read(file).expect("it has the map")).expect("a map").sets
}

async fn is_whole(cluster: &Cluster, table: u32) -> bool {
    let options = ScrubOptions { repair: false, equations: true, ..ScrubOptions::default() };
    cluster.scrub(TableId(table), &options, &|_| {}).await.expect("it is there").is_clean()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_make_the_parity_of_a_load_and_a_client_sends_its_data_and_nothing_else() {
    for (nodes, protection) in [(4, Protection::TwoD), (5, Protection::TwoD), (3, Protection::Xor)] {
        let mut rack = Rack::relaying(nodes, DEVICE_BYTES);
        let cluster = rack.connect(0).await.unwrap();
        let before = done(&rack, &cluster).await.1;
        let session =
            LoadSession::begin(&cluster, definition(7, &rack.ids(), Some(protection))).await.unwrap();
        // One node has none of the table, and others more than each other.
        let counts: Vec<u32> = [29, 0, 32, 34, 28][..nodes].to_vec();
        append(&session, 0, &counts).await;
        let appended = done(&rack, &cluster).await.1;
        session.protect().await.unwrap();
        let protected = done(&rack, &cluster).await.1;
        assert_eq!(protected, appended, "nothing was pulled for the parity");
        session.publish().await.unwrap();
        let sets = sets(&rack, 7);
        assert_eq!(sets.len(), 1);
        let (relays, _) = done_with(&rack, &cluster, sets[0].stripes * nodes as u64).await;
        assert!(appended > before && relays.xored_bytes > 0, "{relays:?}");
        let kept: usize = sets[0].streams.iter().map(|stream| stream.parity.len()).sum();
        assert_eq!(relays.kept_bytes, kept as u64 * u64::from(sets[0].cell_bytes));
        assert!(is_whole(&cluster, 7).await);
        let found = table(&cluster, 7).await;
        drop(cluster);
        for lost in 0..protection.lost_max() {
            rack.stop(lost * 2);
        }
        let cluster = rack.connect(protection.lost_max()).await.unwrap();
        assert!(is_read(&cluster, &found).await.0 > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parity_is_the_same_whoever_computes_it_and_of_little_it_is_the_client() {
    let rack = Rack::relaying(4, DEVICE_BYTES);
    let cluster = rack.connect(0).await.unwrap();
    let alone = cluster.with_relays(false);
    let counts = [9, 10, 11, 12];
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &counts).await;
    let stripes = done_with(&rack, &cluster, sets(&rack, 7)[0].stripes * 4).await.0.stripes;
    // The same table once more: a page differs in its identity, so only what lies where is the
    // same.
    load(&alone, definition(8, &rack.ids(), Some(Protection::TwoD)), &counts).await;
    load(&cluster, definition(9, &rack.ids(), Some(Protection::TwoD)), &[1, 1, 0, 0]).await;
    assert_eq!(done(&rack, &cluster).await.0.stripes, stripes, "neither was relayed");
    for table in [7, 8, 9] {
        assert!(is_whole(&cluster, table).await, "table {table}");
    }
    let shape = |table: u32| {
        let set = sets(&rack, table).remove(0);
        let cells = set.streams.iter().map(|stream| (stream.cells.len(), stream.parity.len()));
        (set.cell_bytes, set.stripes, cells.collect::<Vec<_>>())
    };
    assert_eq!(shape(7), shape(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_goes_on_by_itself_when_relays_have_no_room_for_its_stripes() {
    let rack = Rack::relaying(4, DEVICE_BYTES);
    let cluster = rack.connect(0).await.unwrap();
    // Somebody else has taken all of the memory that relays have.
    let others = hold_sessions(&rack, &cluster).await;
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[9, 10, 11, 12]).await;
    assert_eq!(done(&rack, &cluster).await.0.stripes, 0);
    assert!(is_whole(&cluster, 7).await);
    drop(others);
}

/// Opens sessions until no relay takes another one.
async fn hold_sessions(rack: &Rack, cluster: &Cluster) -> Vec<rackscan_relay::Writer> {
    let mut members = Vec::new();
    for node in rack.ids() {
        let status = cluster.status(node).await.expect("it is there");
        let address = status.relays[0].address.parse().expect("it is there");
        members.push(rackscan_relay::Member { node, address });
    }
    let key = rack.options().key;
    let shape = rackscan_relay::Shape {
        slots: 2,
        slice_bytes: 4096,
        lanes: 1,
        ..rackscan_relay::Shape::new(rackscan_stripe::Parity::TwoD, rackscan_stripe::Way::Bare, 4096)
    };
    tokio::task::spawn_blocking(move || {
        let deadline = Instant::now() + PATIENCE;
        let connect = |address: &rackscan_fabric::Address| rackscan_fabric::connect(address, &key, deadline);
        let mut held = Vec::new();
        // The largest session that is possible, then what is left.
        let mut shape = rackscan_relay::Shape { slots: 256, slice_bytes: 64 << 10, ..shape };
        shape.cell_bytes_max = 64 << 10;
        while shape.slots > 0 {
            match rackscan_relay::Writer::open(shape, members.clone(), connect, deadline) {
                Ok(writer) => held.push(writer),
                Err(_) => shape.slots /= 2,
            }
        }
        assert!(!held.is_empty());
        held
    })
    .await
    .expect("it is there")
}

/// A node loses its folder, and what is on its device.
fn lose(rack: &mut Rack, node: usize) {
    rack.stop(node);
    std::fs::remove_dir_all(rack.data(node)).expect("it had a folder");
    std::fs::remove_file(rack.device(node)).expect("it had a device");
    rack.start(node);
}

/// Bytes that survivors must read for a node's cells, as the geometry says.
fn predicted(set: &StripeSet, lost: usize) -> u64 {
    let geometry = Geometry::new(set.streams.len()).expect("it is there");
    let (mut reads, mut cells) = (0, 0);
    for stripe in 0..set.streams.len() as u64 {
        let lost = geometry
            .lost_with(stripe, &[Node(u8::try_from(lost).expect("it is there"))])
            .expect("it is there");
        let recovery = geometry.rebuild(lost);
        reads += recovery.reads.len() as u64;
        cells += recovery.repairs.len() as u64;
    }
    reads * 1000 / cells
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_has_lost_is_relayed_to_it_by_the_others_and_read_from_them_as_often_as_the_geometry_says()
 {
    let mut rack = Rack::relaying(5, DEVICE_BYTES);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[20, 21, 20, 20, 21]).await;
    let (before, set) = (table(&cluster, 7).await, sets(&rack, 7).remove(0));
    drop(cluster);
    lose(&mut rack, 2);
    let cluster = rack.connect(0).await.unwrap();
    // The lost node counts anew.
    let (relayed_before, pulled_before) = done_with(&rack, &cluster, set.stripes * 4).await;
    let most = AtomicU64::new(0);
    let listener = |progress: &RepairProgress| {
        assert!(progress.bytes_done <= progress.bytes_total, "{progress:?}");
        most.fetch_max(progress.bytes_done, Relaxed);
    };
    let report = cluster.rebuild(id(2), &ScrubOptions::default(), &listener).await.unwrap();
    let held: u64 = set.streams[2].bytes() + set.streams[2].parity.len() as u64 * u64::from(set.cell_bytes);
    assert_eq!((report.rebuilt_bytes(), most.into_inner()), (held, held), "{report:?}");
    let (relayed, pulled) = done_with(&rack, &cluster, relayed_before.stripes + set.stripes * 5).await;
    assert_eq!(relayed.stripes - relayed_before.stripes, set.stripes * 5, "each node, each stripe");
    // Only the map came from the client, and no page.
    assert!(pulled - pulled_before < held / 4, "{pulled} of {held} bytes went through the client");
    // Cells at the ends of streams are shorter.
    let (found, expected) = (report.read_per_byte() * 1000.0, predicted(&set, 2) as f64);
    assert!((found / expected - 1.0).abs() < 0.15, "{found}, expected {expected} thousandths");
    assert!(is_whole(&cluster, 7).await);
    let other = rack.connect(0).await.unwrap();
    assert!(said(&table(&other, 7).await) == said(&before));
    assert_eq!(is_read(&other, &before).await, (0, 0));
    // It is found whole now, and nothing is relayed again.
    let again = other.rebuild(id(2), &ScrubOptions::default(), &|_| {}).await.unwrap();
    assert_eq!(again.rebuilt_bytes(), 0);
    assert_eq!(done(&rack, &cluster).await.0.stripes, relayed.stripes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_with_corrupt_bytes_does_not_spoil_what_is_rebuilt() {
    let mut rack = Rack::relaying(4, DEVICE_BYTES);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[12, 12, 12, 12]).await;
    let (before, set) = (table(&cluster, 7).await, sets(&rack, 7).remove(0));
    drop(cluster);
    // A page of another node is corrupt, and its node does not know it.
    let extent = set.streams[3].segments[1].extents[0];
    let file = std::fs::OpenOptions::new().write(true).open(rack.device(3)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x5A; 700], extent.offset_bytes + 300).unwrap();
    lose(&mut rack, 1);
    let cluster = rack.connect(0).await.unwrap();
    let relayed = done(&rack, &cluster).await.0.stripes;
    let report = cluster.rebuild(id(1), &ScrubOptions::default(), &|_| {}).await.unwrap();
    assert!(report.left.is_empty(), "{report:?}");
    assert!(done_with(&rack, &cluster, relayed + 1).await.0.stripes > relayed, "relays took part");
    let options = ScrubOptions { repair: true, equations: false, ..ScrubOptions::default() };
    let repaired = cluster.scrub(TableId(7), &options, &|_| {}).await.unwrap();
    assert!(repaired.is_whole(), "{repaired:?}");
    assert!(is_whole(&cluster, 7).await);
    assert_eq!(is_read(&cluster, &before).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_that_a_node_has_lost_is_repaired_by_the_client() {
    let mut rack = Rack::relaying(4, DEVICE_BYTES);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[1, 1, 1, 1]).await;
    let before = table(&cluster, 7).await;
    drop(cluster);
    lose(&mut rack, 1);
    let cluster = rack.connect(0).await.unwrap();
    let report = cluster.rebuild(id(1), &ScrubOptions::default(), &|_| {}).await.unwrap();
    assert!(report.left.is_empty() && report.rebuilt_bytes() > 0, "{report:?}");
    assert_eq!(done(&rack, &cluster).await.0.stripes, 0, "nothing was relayed");
    assert!(is_whole(&cluster, 7).await);
    assert_eq!(is_read(&cluster, &before).await, (0, 0));
}
