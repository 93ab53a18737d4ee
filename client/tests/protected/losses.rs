//! Tests protected tables that lose nodes, before and after a client has connected.

use rackscan_client::{ClientError, LoadSession};
use rackscan_format::schema::{Protection, TableDefinition};

use crate::support::{PATIENCE, Rack, append, are_back, definition, id, is_read, load, said, table, wanted};

/// All ways to lose one to `most` of `nodes`.
fn losses(nodes: usize, most: usize) -> Vec<Vec<usize>> {
    let ones = (0..nodes).map(|node| vec![node]);
    let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| vec![a, b]));
    ones.chain(pairs.filter(|_| most > 1)).collect()
}

async fn survives_every_loss(nodes: usize, protection: Protection) {
    let mut rack = Rack::new(nodes);
    let cluster = rack.connect(0).await.expect("all nodes are there");
    // A node without segments, and others with different numbers of them.
    let counts: Vec<u32> = (0..4).cycle().take(nodes).collect();
    load(&cluster, definition(7, &rack.ids(), Some(protection)), &counts).await;
    let before = table(&cluster, 7).await;
    assert_eq!(is_read(&cluster, &before).await, (0, 0));
    drop(cluster);
    for lost in losses(nodes, protection.lost_max()) {
        lost.iter().for_each(|node| rack.stop(*node));
        let cluster = rack.connect(lost.len()).await.expect("enough are there");
        assert_eq!(cluster.unavailable(), lost.iter().map(|node| id(*node)).collect::<Vec<_>>());
        let degraded = table(&cluster, 7).await;
        assert!((said(&degraded), &degraded.definition) == (said(&before), &before.definition), "{lost:?}");
        let gone = |node| lost.iter().any(|lost| id(*lost) == node);
        let pages: usize = before.segments.iter().filter(|s| gone(s.node)).map(|s| wanted(s).len()).sum();
        let (reconstructed, read) = is_read(&cluster, &degraded).await;
        assert_eq!(reconstructed as usize, pages, "{lost:?}");
        assert_eq!(read > 0, pages > 0, "{lost:?}");
        lost.iter().for_each(|node| rack.start(*node));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_with_one_parity_survive_the_loss_of_any() {
    survives_every_loss(3, Protection::Xor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_with_two_parities_survive_the_loss_of_any_two() {
    survives_every_loss(4, Protection::TwoD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_nodes_with_two_parities_survive_the_loss_of_any_two() {
    survives_every_loss(5, Protection::TwoD).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_lost_while_pages_are_read_are_done_without_and_used_again_when_they_are_back() {
    let mut rack = Rack::new(4);
    let cluster = rack.connect(2).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[2, 3, 1, 2]).await;
    let before = table(&cluster, 7).await;
    assert_eq!((is_read(&cluster, &before).await, cluster.unavailable()), ((0, 0), vec![]));
    rack.stop(1);
    // Nobody has read a map so far: it is found when it is needed.
    assert!(is_read(&cluster, &before).await.0 > 0);
    assert_eq!(cluster.unavailable(), [id(1)]);
    rack.stop(3);
    let two = is_read(&cluster, &before).await;
    assert_eq!(cluster.unavailable(), [id(1), id(3)]);
    assert!(said(&table(&cluster, 7).await) == said(&before));
    rack.start(1);
    rack.start(3);
    are_back(&cluster).await;
    assert!(said(&table(&cluster, 7).await) == said(&before));
    assert!(two.0 > 0 && is_read(&cluster, &before).await == (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_lost_nodes_are_an_error_that_names_the_table_the_pages_and_the_nodes() {
    let mut rack = Rack::new(5);
    let cluster = rack.connect(3).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[1, 1, 1, 1, 1]).await;
    let before = table(&cluster, 7).await;
    (0..3).for_each(|node| rack.stop(node));
    let placed = before.segments.iter().find(|placed| placed.node == id(1)).unwrap();
    let (written, number) = (placed.directory.table, placed.directory.segment);
    let error = cluster.fetch(id(1), written, number, &wanted(placed)).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClientError::LostPages { .. }), "{text}");
    for part in ["\"t7\"", "page 0 of column 0 of segment 1 (bytes", "nodes 1, 2, 3", "2d-xor"] {
        assert!(text.contains(part), "{text}, expected {part}");
    }
    let catalog = cluster.catalog().await.unwrap();
    let text = catalog.table("t7").unwrap_err().to_string();
    for part in ["\"t7\"", "nodes 1, 2, 3", "2d-xor bears the loss of 2", "start them"] {
        assert!(text.contains(part), "{text}, expected {part}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_does_not_bear_a_loss_is_broken_and_the_others_are_not() {
    let mut rack = Rack::new(4);
    let cluster = rack.connect(0).await.unwrap();
    let ids = rack.ids();
    load(&cluster, definition(7, &ids, Some(Protection::TwoD)), &[1, 1, 1, 1]).await;
    load(&cluster, definition(8, &ids, Some(Protection::Xor)), &[1, 1, 1, 1]).await;
    load(&cluster, definition(9, &ids, None), &[1, 1, 1, 1]).await;
    load(&cluster, definition(10, &ids[2..], None), &[1, 1]).await;
    drop(cluster);
    rack.stop(0);
    rack.stop(1);
    assert!(rack.connect(1).await.unwrap_err().is_node_lost());
    let cluster = rack.connect(2).await.unwrap();
    let catalog = cluster.catalog().await.unwrap();
    let names: Vec<&str> = catalog.tables.iter().map(|table| table.definition.name.as_str()).collect();
    assert_eq!(names, ["t10", "t7"]);
    let (xor, none) = (catalog.table("t8").unwrap_err(), catalog.table("t9").unwrap_err());
    assert!(xor.to_string().contains("xor bears the loss of 1"), "{xor}");
    assert!(none.to_string().contains("it is not protected"), "{none}");
    // Nothing is loaded without all of its nodes.
    let begun = LoadSession::begin(&cluster, definition(11, &ids, None)).await;
    assert!(begun.unwrap_err().is_node_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parity_may_be_computed_before_and_again() {
    let mut rack = Rack::new(3);
    let cluster = rack.connect(1).await.unwrap();
    let session =
        LoadSession::begin(&cluster, definition(7, &rack.ids(), Some(Protection::Xor))).await.unwrap();
    session.protect().await.unwrap();
    let next = append(&session, 0, &[1, 2, 0]).await;
    session.protect().await.unwrap();
    session.protect().await.unwrap();
    append(&session, next, &[0, 1, 1]).await;
    session.publish().await.unwrap();
    let before = table(&cluster, 7).await;
    for node in 0..3 {
        rack.stop(node);
        assert!(is_read(&cluster, &before).await.0 > 0);
        rack.start(node);
        are_back(&cluster).await;
        assert!(said(&table(&cluster, 7).await) == said(&before));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_rows_is_protected_too() {
    let mut rack = Rack::new(3);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[]).await;
    rack.stop(1);
    rack.stop(2);
    let cluster = rack.connect(2).await.unwrap();
    assert!(table(&cluster, 7).await.segments.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_room_for_parity_ends_the_load_and_nothing_stays_of_it() {
    let rack = Rack::new(3);
    let cluster = rack.connect(0).await.unwrap();
    let empty = rack.used_bytes(&cluster).await;
    let session =
        LoadSession::begin(&cluster, definition(7, &rack.ids(), Some(Protection::Xor))).await.unwrap();
    // About 150 KiB each: the first node has room for them, and not for its part of the parity.
    let mut number = 0;
    loop {
        let (directory, pages) = crate::support::segment(session.definition(), number, 4000);
        let bytes: u64 = pages.iter().map(|page| page.len() as u64).sum();
        let status = cluster.status(id(0)).await.unwrap();
        if status.devices[0].capacity_bytes - status.devices[0].used_bytes < 2 * bytes {
            break;
        }
        for node in [0, 1] {
            let (directory, pages) = match node {
                0 => (directory.clone(), pages.clone()),
                _ => crate::support::segment(session.definition(), number + 1000, 4000),
            };
            session.append(id(node), &directory, &pages).await.unwrap();
        }
        number += 1;
    }
    let error = session.publish().await.unwrap_err().to_string();
    assert!(error.contains("is full"), "{error}");
    // Parity of another stripe may have been on its way.
    rack.comes_to_use(&cluster, |used| used == empty).await;
    assert!(cluster.catalog().await.unwrap().tables.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_lost_pages_with_the_least_memory_all_get_theirs() {
    let mut rack = Rack::new(5);
    let cluster = rack.connect_with(2, rackscan_client::limits::MEMORY_BYTES_MIN).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[1, 1, 1, 1, 1]).await;
    let before = table(&cluster, 7).await;
    rack.stop(0);
    rack.stop(4);
    let readers = (0..48).map(|_| {
        let (cluster, before) = (cluster.clone(), before.clone());
        tokio::spawn(async move { is_read(&cluster, &before).await })
    });
    for reader in readers.collect::<Vec<_>>() {
        let read = tokio::time::timeout(PATIENCE, reader).await;
        assert!(read.expect("nobody waits for ever").unwrap().0 > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_that_race_under_one_name_leave_one_whole_table() {
    let rack = Rack::new(3);
    let cluster = rack.connect(0).await.unwrap();
    let mut published = 0;
    for round in 0..40 {
        let (mut loads, mut publishing) = (Vec::new(), Vec::new());
        for racer in 0..4 {
            let definition = definition(100 + round * 4 + racer, &rack.ids(), None);
            let definition = TableDefinition { name: "raced".to_owned(), ..definition };
            let load = LoadSession::begin(&cluster, definition).await.expect("others give way");
            append(&load, 0, &[1, 1, 1]).await;
            // Some are prepared at the same time; others begin while some are being published.
            if round % 2 == 0 { loads.push(load) } else { publishing.push(tokio::spawn(load.publish())) }
        }
        publishing.extend(loads.into_iter().map(|load| tokio::spawn(load.publish())));
        if round % 4 < 2 {
            // What is being published is dropped by somebody else, or is not there yet.
            drop(cluster.drop_table("raced").await);
        }
        for load in publishing {
            published += u32::from(load.await.expect("no panic").is_ok());
        }
        let catalog = cluster.catalog().await.unwrap();
        let broken: Vec<String> = catalog.broken.iter().map(|broken| broken.error.to_string()).collect();
        assert!(broken.is_empty(), "round {round}: {broken:?}");
    }
    assert!(published > 40, "{published} of 160 loads were published, expected several of each round");
}
