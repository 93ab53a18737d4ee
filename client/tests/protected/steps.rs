//! Tests loads that stop before their end, and maps that are damaged.

use std::time::{Duration, Instant};

use rackscan_client::LoadSession;
use rackscan_format::{schema::Protection, stripe_set::TableMap};

use crate::support::{PATIENCE, Rack, append, definition, id, is_read, load, said, segment, table, wanted};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_is_dropped_or_loses_a_node_at_any_step_leaves_nothing() {
    let mut rack = Rack::new(3);
    let empty = rack.used_bytes(&rack.connect(0).await.unwrap()).await;
    for (number, step) in (20..).zip(["begun", "appended", "protected", "protected and appended"]) {
        for (id, loses_a_node) in [(number, false), (number + 10, true)] {
            let cluster = rack.connect(0).await.unwrap();
            let wanted = definition(id, &rack.ids(), Some(Protection::Xor));
            let session = LoadSession::begin(&cluster, wanted).await.unwrap();
            if step != "begun" {
                append(&session, 0, &[1, 2, 1]).await;
            }
            if step.starts_with("protected") {
                session.protect().await.unwrap();
            }
            if step.ends_with("and appended") {
                append(&session, 10, &[1, 0, 0]).await;
            }
            if loses_a_node {
                rack.stop(2);
                assert!(session.publish().await.is_err(), "{step}");
                rack.start(2);
            } else {
                drop(session);
            }
            drop(cluster);
            let cluster = rack.connect(0).await.unwrap();
            rack.comes_to_use(&cluster, |used| used == empty).await;
            let catalog = cluster.catalog().await.unwrap();
            assert!(catalog.tables.is_empty() && catalog.broken.is_empty(), "{step}: {catalog:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_there_after_all_nodes_have_started_anew() {
    let mut rack = Rack::new(4);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[2, 0, 1, 3]).await;
    let before = table(&cluster, 7).await;
    drop(cluster);
    (0..4).for_each(|node| rack.restart(node));
    // What lay free was given back to the filesystem meanwhile; parity was not free.
    rack.stop(0);
    rack.stop(3);
    let cluster = rack.connect(2).await.unwrap();
    assert!(said(&table(&cluster, 7).await) == said(&before));
    assert!(is_read(&cluster, &before).await.0 > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_map_is_found_and_others_are_used_and_nothing_else_of_the_node_is_lost() {
    let mut rack = Rack::new(4);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[1, 1, 1, 1]).await;
    let before = table(&cluster, 7).await;
    drop(cluster);
    let file = |rack: &Rack, node: usize| rack.data(node).join("maps").join("00000007");
    let whole = std::fs::read(file(&rack, 0)).unwrap();
    for node in 1..4 {
        assert_eq!(std::fs::read(file(&rack, node)).unwrap(), whole);
    }
    let map = TableMap::decode_envelope(&whole).unwrap();
    assert_eq!((map.definition.id.0, map.parts.len()), (7, 4));
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for seed in 0..1000 {
        let mut broken = whole.clone();
        if seed % 2 == 0 {
            broken.truncate(draw(whole.len()));
        } else {
            let at = draw(whole.len());
            broken[at] ^= 1 << draw(8);
        }
        assert!(TableMap::decode_envelope(&broken).is_err(), "seed {seed}");
    }
    // A node with a damaged map, and one without.
    for node in [1, 2] {
        rack.stop(node);
    }
    std::fs::write(file(&rack, 1), &whole[..whole.len() / 2]).unwrap();
    std::fs::remove_file(file(&rack, 2)).unwrap();
    std::fs::write(rack.data(2).join("maps").join("000000ff"), b"nobody's").unwrap();
    for node in [1, 2] {
        rack.start(node);
    }
    assert!(!rack.data(2).join("maps").join("000000ff").exists());
    rack.stop(0);
    let cluster = rack.connect(2).await.unwrap();
    assert!(said(&table(&cluster, 7).await) == said(&before));
    assert!(is_read(&cluster, &before).await.0 > 0);
    // The last map goes: what is there says so, and does not guess.
    rack.stop(3);
    let cluster = rack.connect(2).await.unwrap();
    let catalog = cluster.catalog().await.unwrap();
    let text = catalog.table("t7").unwrap_err().to_string();
    assert!(text.contains("none of its other nodes has its map") && text.contains("nodes 1, 4"), "{text}");
    assert_eq!(cluster.unavailable(), [id(0), id(3)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_while_he_publishes_leaves_a_table_that_survives_losses_or_none() {
    let mut rack = Rack::new(3);
    let (mut whole, mut none, mut took) = (0, 0, Duration::ZERO);
    for number in 0..24 {
        let cluster = rack.connect(0).await.unwrap();
        let wanted = definition(20 + number, &rack.ids(), Some(Protection::Xor));
        let session = LoadSession::begin(&cluster, wanted).await.unwrap();
        append(&session, 0, &[1, 1, 1]).await;
        // The first and the last one get all the time that they need; in between it is longer each
        // time, from none through all steps and past the last one.
        let patience = match number {
            0 | 23 => PATIENCE,
            _ => took * (number - 1) / 16,
        };
        let begun = Instant::now();
        let published = tokio::time::timeout(patience, session.publish()).await;
        if number == 0 {
            took = begun.elapsed();
        }
        drop(cluster);
        if number % 2 == 0 {
            (0..3).for_each(|node| rack.restart(node));
        }
        let cluster = rack.connect(1).await.unwrap();
        let catalog = cluster.catalog().await.unwrap();
        assert!(catalog.broken.is_empty(), "{:?}", catalog.broken);
        let name = format!("t{}", 20 + number);
        let Some(found) = catalog.tables.iter().find(|table| table.definition.name == name) else {
            assert!(published.is_err(), "what was said to be published is there");
            none += 1;
            continue;
        };
        whole += 1;
        let lost = number as usize % 3;
        rack.stop(lost);
        assert!(is_read(&cluster, found).await.0 > 0);
        rack.start(lost);
        rack.connect(0).await.unwrap().drop_table(&name).await.unwrap();
    }
    assert!(whole > 0 && none > 0, "{whole} published, {none} not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_invented_where_survivors_have_other_bytes_than_they_had() {
    let mut rack = Rack::new(3);
    let cluster = rack.connect(0).await.unwrap();
    load(&cluster, definition(7, &rack.ids(), Some(Protection::Xor)), &[2, 2, 2]).await;
    let before = table(&cluster, 7).await;
    drop(cluster);
    rack.stop(1);
    rack.stop(2);
    // Each page of the second node has another byte.
    let file = std::fs::OpenOptions::new().write(true).open(rack.device(1)).unwrap();
    for placed in before.segments.iter().filter(|placed| placed.node == id(1)) {
        for page in wanted(placed) {
            std::os::unix::fs::FileExt::write_all_at(&file, &[0xEE; 16], page.extent.offset_bytes + 200)
                .unwrap();
        }
    }
    drop(file);
    rack.start(1);
    let cluster = rack.connect(1).await.unwrap();
    let (mut right, mut refused) = (0, 0);
    for placed in before.segments.iter().filter(|placed| placed.node == id(2)) {
        let (written, number) = (placed.directory.table, placed.directory.segment);
        let (_, pages) = segment(&before.definition, number.0, placed.directory.rows);
        for (page, expected) in wanted(placed).into_iter().zip(pages) {
            match cluster.fetch(placed.node, written, number, &[page]).await {
                Ok(found) => {
                    assert!(found.pages[0].bytes() == expected, "an invented page");
                    right += 1;
                }
                Err(error) => {
                    assert!(error.to_string().contains("does not reconstruct it"), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0, "{right} right");
}
