//! Promise: a table is there with all of its segments, or not at all, whenever the node stops.

use rackscan_format::{
    ids::TableId,
    message::{Answer, NodeTable, RefusalCode, Request},
};

use crate::support::{
    node::{BRIDGES, DEVICE_BYTES, NodeFolder, Running},
    table::Table,
};

fn tables(node: &Running) -> Vec<NodeTable> {
    node.shm().catalog(1 << 20).tables
}

fn names(node: &Running) -> Vec<(u32, bool)> {
    tables(node).into_iter().map(|table| (table.definition.id.0, table.committed)).collect()
}

fn used_bytes(node: &Running) -> u64 {
    node.shm().status().devices.iter().map(|device| device.used_bytes).sum()
}

#[test]
fn a_load_that_was_not_prepared_is_gone_after_a_restart_and_its_room_is_free() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let empty = used_bytes(&node);
    let table = Table::new(1, "t", 2, 3000);
    let mut client = node.shm();
    table.append_all(&mut client);
    assert_eq!(names(&node), []);
    assert!(used_bytes(&node) > empty);
    node.stop();
    let node = node_folder.start();
    assert_eq!((names(&node), used_bytes(&node)), (vec![], empty));
    node.stop();
}

#[test]
fn a_prepared_table_survives_a_restart_and_can_still_be_committed_or_aborted() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let empty = used_bytes(&node);
    let (first, second) = (Table::new(1, "a", 1, 3000), Table::new(2, "b", 1, 3000));
    let mut client = node.shm();
    for table in [&first, &second] {
        table.append_all(&mut client);
        table.prepare(&mut client);
        table.prepare(&mut client);
    }
    drop(client);
    node.stop();
    let node = node_folder.start();
    assert_eq!(names(&node), [(1, false), (2, false)]);
    let mut client = node.shm();
    client.done(Request::CommitPublish { load: first.id() });
    client.done(Request::CommitPublish { load: first.id() });
    client.done(Request::AbortLoad { load: second.id() });
    client.done(Request::AbortLoad { load: second.id() });
    drop(client);
    node.stop();
    let node = node_folder.start();
    assert_eq!(names(&node), [(1, true)]);
    let mut client = node.shm();
    assert_eq!(client.refusal_code(Request::AbortLoad { load: first.id() }), RefusalCode::Malformed);
    client.done(Request::Drop { table: first.id() });
    client.done(Request::Drop { table: first.id() });
    assert_eq!((names(&node), used_bytes(&node)), (vec![], empty));
    drop(client);
    node.stop();
}

#[test]
fn a_crash_at_any_step_of_a_load_leaves_the_table_whole_or_absent() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_over(bridge);
        let mut client = node.shm();
        Table::new(1, "t", 1, 3000).load(&mut client);
        let new_version = Table::new(2, "t", 2, 3000);
        let mut crashes = vec![node_folder.copy()];
        new_version.segments[0].append(&mut client).unwrap();
        crashes.push(node_folder.copy());
        new_version.segments[1].append(&mut client).unwrap();
        crashes.push(node_folder.copy());
        new_version.prepare(&mut client);
        crashes.push(node_folder.copy());
        client.done(Request::CommitPublish { load: new_version.id() });
        crashes.push(node_folder.copy());
        client.done(Request::Drop { table: new_version.id() });
        crashes.push(node_folder.copy());
        drop(client);
        node.stop();
        let expected: [&[(u32, bool)]; 6] =
            [&[(1, true)], &[(1, true)], &[(1, true)], &[(1, true), (2, false)], &[(2, true)], &[]];
        for (step, (crashed, expected)) in crashes.iter().zip(expected).enumerate() {
            let node = crashed.start();
            assert_eq!(names(&node), expected, "step {step}");
            let mut client = node.shm();
            for (id, _) in expected {
                let table = Table::new(*id, "t", *id, 3000);
                for segment in &table.segments {
                    let (pages, target) = (segment.wanted(), client.target(0, segment.stored_bytes()));
                    let request = Request::Fetch {
                        table: table.id(),
                        segment: segment.directory.segment,
                        pages,
                        target,
                    };
                    assert!(matches!(client.ask(request), Ok(Answer::Fetched { .. })), "step {step}");
                    let found = client.copy_out(0, segment.stored_bytes());
                    assert!(found == segment.pages.concat(), "step {step}, table {id}");
                }
            }
            drop(client);
            node.stop();
        }
    }
}

#[test]
fn a_published_table_is_the_same_after_a_restart() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 3, 3000);
    table.load(&mut node.shm());
    let before = tables(&node);
    assert_eq!(before[0].definition, table.definition);
    assert_eq!(before[0].segments.len(), 3);
    node.stop();
    let node = node_folder.start();
    assert_eq!(tables(&node), before);
    let mut client = node.tcp();
    assert_eq!(client.catalog(100).tables, before, "also when read in small parts");
    let segment = &table.segments[2];
    let (target, pages) = (client.target(0, segment.stored_bytes()), segment.wanted());
    let request = Request::Fetch { table: table.id(), segment: segment.directory.segment, pages, target };
    assert!(matches!(client.ask(request), Ok(Answer::Fetched { .. })));
    assert!(client.copy_out(0, segment.stored_bytes()) == segment.pages.concat());
    drop(client);
    node.stop();
}

#[test]
fn a_new_load_of_a_name_replaces_the_old_one_at_once_and_frees_its_room() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    Table::new(1, "t", 2, 3000).load(&mut client);
    let used = used_bytes(&node);
    let new_version = Table::new(2, "t", 2, 3000);
    new_version.append_all(&mut client);
    new_version.prepare(&mut client);
    assert_eq!(names(&node), [(1, true), (2, false)]);
    client.done(Request::CommitPublish { load: new_version.id() });
    assert_eq!(names(&node), [(2, true)]);
    assert_eq!(used_bytes(&node), used);
    drop(client);
    node.stop();
    let node = node_folder.start();
    assert_eq!(names(&node), [(2, true)]);
    node.stop();
}

#[test]
fn a_load_takes_the_place_of_exactly_the_table_that_it_names() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let (first, second, third) =
        (Table::new(1, "t", 1, 3000), Table::new(2, "t", 2, 3000), Table::new(3, "t", 3, 3000));
    let commit = |table: &Table, of: Option<&Table>| Request::CommitInPlace {
        load: table.id(),
        of: of.map(Table::id),
    };
    for table in [&first, &second, &third] {
        table.append_all(&mut client);
        table.prepare(&mut client);
    }
    assert_eq!(client.refusal_code(commit(&first, Some(&second))), RefusalCode::Replaced);
    client.done(commit(&first, None));
    client.done(commit(&first, None));
    // Whoever saw nothing there, or another table, has closed nothing, or another one.
    assert_eq!(client.refusal_code(commit(&second, None)), RefusalCode::Replaced);
    client.done(commit(&second, Some(&first)));
    client.done(commit(&second, Some(&first)));
    assert_eq!(client.refusal_code(commit(&third, Some(&first))), RefusalCode::Replaced);
    assert_eq!(names(&node), [(2, true), (3, false)]);
    client.done(commit(&third, Some(&second)));
    assert_eq!(names(&node), [(3, true)]);
    drop(client);
    node.stop();
}

#[test]
fn a_catalog_that_was_half_written_at_a_crash_is_ignored_and_a_damaged_one_stops_the_start() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    Table::new(1, "t", 1, 3000).load(&mut node.shm());
    node.stop();
    let catalog = node_folder.path("data").join("catalog");
    let whole = std::fs::read(&catalog).unwrap();
    std::fs::write(node_folder.path("data").join("catalog.new"), &whole[..whole.len() / 2]).unwrap();
    let node = node_folder.start();
    assert_eq!(names(&node), [(1, true)]);
    node.stop();
    std::fs::write(&catalog, &whole[..whole.len() / 2]).unwrap();
    let error = node_folder.start_with(node_folder.config()).err().expect("it must not start").to_string();
    assert!(error.contains("catalog") && error.contains("restore"), "{error}");
    std::fs::write(&catalog, &whole).unwrap();
    node_folder.start().stop();
}

#[test]
fn a_load_counts_only_when_it_is_complete() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let table = Table::new(1, "t", 2, 3000);
    table.segments[0].append(&mut client).unwrap();
    let prepare = |segments| Request::PreparePublish { definition: table.definition.clone(), segments };
    assert_eq!(client.refusal_code(prepare(2)), RefusalCode::Malformed);
    assert_eq!(client.refusal_code(Request::CommitPublish { load: table.id() }), RefusalCode::NotFound);
    assert_eq!(
        table.segments[0].append(&mut client).unwrap_err().code,
        RefusalCode::Malformed,
        "appended twice"
    );
    table.segments[1].append(&mut client).unwrap();
    let mut narrow = table.definition.clone();
    narrow.columns.pop();
    let refused = Request::PreparePublish { definition: narrow, segments: 2 };
    assert_eq!(client.refusal_code(refused), RefusalCode::Malformed, "another number of columns");
    client.done(prepare(2));
    assert_eq!(
        table.segments[1].append(&mut client).unwrap_err().code,
        RefusalCode::Malformed,
        "prepared already"
    );
    node.stop();
}

#[test]
fn a_table_without_a_segment_here_is_published_like_any_other() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let mut table = Table::new(1, "t", 1, 1000);
    table.segments.clear();
    table.load(&mut client);
    assert_eq!(names(&node), [(1, true)]);
    node.stop();
}

#[test]
fn a_full_device_refuses_with_numbers_and_an_aborted_load_makes_room_again() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let empty = used_bytes(&node);
    let mut client = node.shm();
    let table = Table::new(1, "t", 1, 100_000);
    let per_segment = table.segments[0].stored_bytes();
    let mut appended = 0;
    let refusal = loop {
        let load = 100 + appended;
        match Table::new(load, "t", 1, 100_000).segments[0].append(&mut client) {
            Ok(_) => appended += 1,
            Err(refusal) => break refusal,
        }
        assert!(u64::from(appended) * per_segment <= 2 * DEVICE_BYTES, "the devices never fill up");
    };
    assert_eq!(refusal.code, RefusalCode::Full, "{refusal:?}");
    for part in ["device", "needed", "free"] {
        assert!(refusal.text.contains(part), "{}", refusal.text);
    }
    assert!(appended >= 2, "{appended} segments of {per_segment} bytes");
    for load in 0..appended {
        client.done(Request::AbortLoad { load: TableId(100 + load) });
    }
    assert_eq!(used_bytes(&node), empty);
    table.load(&mut client);
    assert_eq!(names(&node), [(1, true)]);
    node.stop();
}
