//! Tests new table versions that replace protected ones.

use rackscan_client::{ClusterTable, LoadSession};
use rackscan_format::{
    ids::{SegmentId, TableId},
    schema::{Protection, TableDefinition},
    withheld::WithheldRows,
};

use crate::support::{Rack, append, definition, id, is_read, load, said, table};

/// Publishes a new version that keeps all segments but those named, one row less each, with a new
/// segment at some nodes.
pub(crate) async fn succeed(
    rack: &Rack,
    before: &ClusterTable,
    as_id: u32,
    without: &[u32],
    counts: &[u32],
) -> TableDefinition {
    let cluster = rack.connect(0).await.expect("all nodes are there");
    let next = TableDefinition {
        id: TableId(as_id),
        succeeds: Some(before.definition.id),
        ..(*before.definition).clone()
    };
    let session = LoadSession::begin(&cluster, next).await.expect("all nodes are there");
    for placed in before.segments.iter().filter(|placed| !without.contains(&placed.directory.segment.0)) {
        let rows = WithheldRows::of([1, as_id]).expect("all nodes are there");
        let withheld = if placed.withheld.is_empty() { rows } else { (*placed.withheld).clone() };
        session.keep(placed.node, &placed.directory, &withheld).await.expect("all nodes are there");
    }
    let first = before.segments.iter().map(|placed| placed.directory.segment.0 + 1).max().unwrap_or(0);
    append(&session, first, counts).await;
    session.publish().await.expect("all nodes are there")
}

fn numbers(table: &ClusterTable) -> Vec<SegmentId> {
    table.segments.iter().map(|placed| placed.directory.segment).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_survives_losses_with_what_it_keeps_and_what_it_adds_and_its_predecessor_is_read_on() {
    let mut rack = Rack::new(4);
    let cluster = rack.connect(2).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[1, 2, 1, 2]).await;
    let first = table(&cluster, 7).await;
    // Segment 1 goes, but its bytes are needed for those that stay.
    succeed(&rack, &first, 8, &[1], &[1, 0, 1, 0]).await;
    let second = table(&cluster, 8).await;
    assert_eq!(numbers(&second).len(), 7);
    for lost in [[0, 1], [1, 2], [2, 3], [0, 3]] {
        lost.iter().for_each(|node| rack.stop(*node));
        let degraded = rack.connect(2).await.unwrap();
        assert!(said(&table(&degraded, 8).await) == said(&second));
        assert!(is_read(&degraded, &second).await.0 > 0);
        // Whoever began on the table before reads on what it still shares with the new version,
        // whose map he finds.
        let mut kept = first.clone();
        kept.segments.retain(|placed| placed.directory.segment != SegmentId(1));
        assert!(is_read(&degraded, &kept).await.0 > 0);
        let other = rack.connect(2).await.unwrap();
        assert!(is_read(&other, &kept).await.0 > 0);
        lost.iter().for_each(|node| rack.start(*node));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stripe_set_goes_when_none_of_its_segments_is_kept_and_not_before() {
    let mut rack = Rack::new(3);
    let cluster = rack.connect(1).await.unwrap();
    let empty = rack.used_bytes(&cluster).await;
    load(&cluster, definition(7, &rack.ids(), Some(Protection::Xor)), &[1, 1, 1]).await;
    let first = table(&cluster, 7).await;
    let loaded = rack.used_bytes(&cluster).await;
    succeed(&rack, &first, 8, &[0, 1], &[0, 0, 0]).await;
    assert_eq!(rack.used_bytes(&cluster).await, loaded, "the bytes of the segments that are gone are needed");
    (0..3).for_each(|node| rack.restart(node));
    let cluster = rack.connect(1).await.unwrap();
    assert_eq!(rack.used_bytes(&cluster).await, loaded);
    let second = table(&cluster, 8).await;
    assert_eq!(numbers(&second), [SegmentId(2)]);
    rack.stop(2);
    assert!(is_read(&cluster, &second).await.0 > 0);
    rack.start(2);
    let whole = rack.connect(0).await.unwrap();
    succeed(&rack, &table(&whole, 8).await, 9, &[0, 1, 2], &[1, 0, 0]).await;
    let third = table(&whole, 9).await;
    assert_eq!(numbers(&third), [SegmentId(3)]);
    rack.comes_to_use(&whole, |used| used < loaded).await;
    rack.stop(0);
    let cluster = rack.connect(1).await.unwrap();
    assert_eq!(cluster.unavailable(), [id(0)]);
    assert!(is_read(&cluster, &table(&cluster, 9).await).await.0 > 0);
    rack.start(0);
    let whole = rack.connect(0).await.unwrap();
    whole.drop_table("t7").await.unwrap();
    rack.comes_to_use(&whole, |used| used == empty).await;
    for node in 0..3 {
        let maps: Vec<_> = std::fs::read_dir(rack.data(node).join("maps")).unwrap().collect();
        assert!(maps.is_empty(), "{maps:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_becomes_protected_by_a_new_version_that_says_so() {
    let mut rack = Rack::new(3);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), None), &[1, 2, 1]).await;
    let mut first = table(&cluster, 7).await;
    first.definition =
        TableDefinition { protection: Some(Protection::Xor), ..(*first.definition).clone() }.into();
    succeed(&rack, &first, 8, &[], &[0, 1, 0]).await;
    let second = table(&cluster, 8).await;
    for node in 0..3 {
        rack.stop(node);
        let degraded = rack.connect(1).await.unwrap();
        assert!(said(&table(&degraded, 8).await) == said(&second));
        assert!(is_read(&degraded, &second).await.0 > 0);
        rack.start(node);
    }
}
