//! Tests that pages of a loaded table that are read again come out of memory: out of a node's
//! cache, which the client reads without a request, or out of the client's own cache.

use rackscan_client::{Cluster, FetchedPages};
use rackscan_datasets::{LoadOptions, tpch};
use rackscan_fabric::Wire;
use rackscan_format::{
    ids::{ColumnId, NodeId, PageNumber},
    page::PageView,
    segment::SegmentDirectory,
};
use rackscan_scan::PageWanted;

use crate::cluster::TestCluster;

fn wanted(directory: &SegmentDirectory) -> Vec<PageWanted> {
    let chunks = (0..).zip(&directory.chunks);
    chunks
        .flat_map(|(column, chunk)| {
            (0..).zip(&chunk.pages).map(move |(page, entry)| PageWanted {
                column: ColumnId(column),
                page: PageNumber(page),
                extent: entry.extent,
            })
        })
        .collect()
}

/// Fetches every page of a table, and opens each.
async fn fetch_all(cluster: &Cluster, table: &str) -> (usize, FetchedPages) {
    let catalog = cluster.catalog().await.expect("the nodes answer");
    let table = catalog.table(table).expect("it is loaded");
    let (mut pages, mut sum) = (0, FetchedPages::default());
    for segment in &table.segments {
        let directory = &segment.directory;
        let wanted = wanted(directory);
        let fetched = cluster.fetch(segment.node, directory.table, directory.segment, &wanted).await;
        let fetched = fetched.expect("the pages are there");
        assert_eq!(fetched.pages.len(), wanted.len());
        for (page, bytes) in wanted.iter().zip(&fetched.pages) {
            PageView::open(bytes, &directory.identity(page.column, page.page)).expect("the page is right");
        }
        pages += wanted.len();
        sum.one_sided_pages += fetched.one_sided_pages;
        sum.own_pages += fetched.own_pages;
        sum.cost.pages_read += fetched.cost.pages_read;
        sum.cost.pages_cached += fetched.cost.pages_cached;
        sum.round_trips += fetched.round_trips;
    }
    (pages, sum)
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_wanted_again_are_taken_without_asking_until_their_table_is_replaced() {
    let test = TestCluster::start(2).await.unwrap();
    let options = LoadOptions { segment_rows: 2048, page_size: 8192, ..LoadOptions::default() };
    tpch::load(&test.cluster, 0.002, &[], &options, &|_| ()).await.unwrap();
    for wire in [Wire::Shm, Wire::Tcp] {
        let cluster = test.another(|options| options.wire = Some(wire)).await.unwrap();
        let (pages, _) = fetch_all(&cluster, "lineitem").await;
        let (_, again) = fetch_all(&cluster, "lineitem").await;
        assert_eq!((again.one_sided_pages as usize, again.round_trips), (pages, 0), "{wire:?}");
        let mut told = 0;
        for node in [NodeId(0), NodeId(1)] {
            told += cluster.status(node).await.unwrap().cache.one_sided_hits;
        }
        assert!(told >= pages as u64, "{wire:?}: {told} of {pages} one-sided hits are told");
        // Loaded anew, every extent may hold another page.
        tpch::load(&test.cluster, 0.002, &[], &options, &|_| ()).await.unwrap();
        let (_, anew) = fetch_all(&cluster, "lineitem").await;
        assert_eq!((anew.one_sided_pages, anew.cost.pages_cached), (0, 0), "{wire:?}");
    }
    let deaf = test.another(|options| options.reads_caches = false).await.unwrap();
    for _ in 0..2 {
        assert_eq!(fetch_all(&deaf, "lineitem").await.1.one_sided_pages, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_our_own_memory_cost_no_request_and_stay_within_their_budget() {
    let test = TestCluster::start(1).await.unwrap();
    let options = LoadOptions { segment_rows: 2048, page_size: 8192, ..LoadOptions::default() };
    tpch::load(&test.cluster, 0.002, &[], &options, &|_| ()).await.unwrap();
    let cluster = test.another(|options| options.page_cache_bytes = 64 << 20).await.unwrap();
    let (pages, first) = fetch_all(&cluster, "orders").await;
    let (_, again) = fetch_all(&cluster, "orders").await;
    assert_eq!((first.own_pages, again.own_pages as usize, again.round_trips), (0, pages, 0));
    // A little memory keeps some of the pages, and the others come as ever.
    let cluster = test.another(|options| options.page_cache_bytes = 512 << 10).await.unwrap();
    fetch_all(&cluster, "orders").await;
    let (_, again) = fetch_all(&cluster, "orders").await;
    assert!(again.own_pages > 0 && (again.own_pages as usize) < pages, "{} of {pages}", again.own_pages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_takes_its_cached_pages_with_it() {
    let test = TestCluster::start(1).await.unwrap();
    let options = LoadOptions { segment_rows: 2048, page_size: 8192, ..LoadOptions::default() };
    tpch::load(&test.cluster, 0.002, &[], &options, &|_| ()).await.unwrap();
    for wire in [Wire::Shm, Wire::Tcp] {
        let cluster = test.another(|options| options.wire = Some(wire)).await.unwrap();
        fetch_all(&cluster, "nation").await;
        let (pages, again) = fetch_all(&cluster, "nation").await;
        assert_eq!(again.one_sided_pages as usize, pages, "{wire:?}");
        if wire == Wire::Shm {
            continue;
        }
        let catalog = cluster.catalog().await.unwrap();
        let segment = &catalog.table("nation").unwrap().segments[0];
        let directory = &segment.directory;
        test.stop_one();
        // The driver learns of the end by itself; what it was told until then is still true of the
        // node that was.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let wanted = wanted(directory);
        let lost = cluster.fetch(segment.node, directory.table, directory.segment, &wanted).await;
        assert!(lost.is_err(), "a page of a node that is gone");
    }
}
