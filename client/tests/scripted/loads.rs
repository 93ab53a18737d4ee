//! Tests that a load is published completely or not at all, whatever its nodes do.

use std::time::{Duration, Instant};

use crate::fake_node::{Act, FakeNode, addresses, connect, status};
use rackscan_client::{ClientError, LoadSession};
use rackscan_format::{
    codec::{Envelope, decode_envelope, encode_envelope},
    derived::{DerivedDefinition, DerivedKind},
    ids::{ColumnId, DeviceId, NodeId, SegmentId, TableId},
    message::{Answer, NodeCatalog, NodeTable, RefusalCode, Request},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
    withheld::WithheldRows,
    zone::Zone,
};

const TIMEOUT: Duration = Duration::from_secs(20);
const NODE: NodeId = NodeId(1);

fn definition() -> TableDefinition {
    let column = |name: &str| ColumnDefinition {
        name: name.to_owned(),
        column_type: ColumnType::Int64,
        nullable: false,
    };
    TableDefinition {
        id: TableId(7),
        name: "t".to_owned(),
        columns: vec![column("a"), column("b")],
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 1024,
        nodes: vec![NODE, NodeId(2)],
        rows: 0,
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    }
}

/// A segment of 100 rows, each column one page of 4 and 8 KiB.
fn segment(number: u32) -> (SegmentDirectory, Vec<Vec<u8>>) {
    let chunk = |length_bytes: u32| {
        let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
        let page = PageEntry { extent, first_row: 0, rows: 100, zone: Zone::default() };
        ChunkDirectory { pages: vec![page] }
    };
    let chunks = vec![chunk(4096), chunk(8192)];
    let directory = SegmentDirectory { table: TableId(7), segment: SegmentId(number), rows: 100, chunks };
    (directory, vec![vec![1; 4096], vec![2; 8192]])
}

fn catalog(node: NodeId, tables: Vec<NodeTable>) -> Act {
    let bytes = encode_envelope(Envelope::CatalogReply, &NodeCatalog { node, tables }).expect("it is small");
    let total_bytes = bytes.len() as u64;
    Act::Answer(bytes, Answer::Catalog { written_bytes: total_bytes, total_bytes, generation: 1 })
}

/// What a well-behaved node without tables does.
fn obey(node: u16, request: &Request) -> Act {
    match request {
        Request::Catalog { .. } => catalog(NodeId(node), Vec::new()),
        Request::Append { .. } => Act::Store,
        _ => keeps_no_keys(request).unwrap_or(Act::Answer(Vec::new(), Answer::Done)),
    }
}

/// What a node says that keeps no keys: nobody can write rows there.
fn keeps_no_keys(request: &Request) -> Option<Act> {
    match request {
        Request::OpenParticipant => Some(Act::Answer(Vec::new(), Answer::Participant(None))),
        Request::Transact { .. } => Some(Act::Refuse(RefusalCode::NotFound, 0)),
        _ => None,
    }
}

/// Two nodes; the first follows `script` where it says something else than obeying.
fn nodes(
    folder: &tempfile::TempDir,
    mut script: impl FnMut(&Request) -> Option<Act> + Send + 'static,
) -> [FakeNode; 2] {
    let first = Box::new(move |request: &Request| script(request).unwrap_or_else(|| obey(1, request)));
    [
        FakeNode::start(&addresses(folder, 1)[0], status(1), first),
        FakeNode::start(&addresses(folder, 2)[0], status(2), Box::new(|request| obey(2, request))),
    ]
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The requests of the load itself, once there are as many.
fn seen(node: &FakeNode, count: usize) -> Vec<String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let kinds: Vec<String> = node.kinds().into_iter().filter(|kind| kind != "Catalog").collect();
        if kinds.len() >= count || Instant::now() > deadline {
            return kinds;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_segment_arrives_with_its_directory_first_and_its_pages_in_order() {
    for wire in 0..2 {
        let folder = folder();
        let script = |node: u16| Box::new(move |request: &Request| obey(node, request));
        let one = FakeNode::start(&addresses(&folder, 1)[wire], status(1), script(1));
        let two = FakeNode::start(&addresses(&folder, 2)[wire], status(2), script(2));
        let cluster = connect(&[&one, &two], TIMEOUT).await.unwrap();
        let session = LoadSession::begin(&cluster, definition()).await.unwrap();
        let (directory, pages) = segment(0);
        let appended = session.append(NODE, &directory, &pages).await.unwrap();
        let published = session.publish().await.unwrap();
        let stored = one.stored.lock().unwrap().remove(0);
        assert_eq!(stored.len(), 4096 + 4096 + 8192);
        assert!(appended.stored_bytes == stored.len() as u64 && appended.wire_bytes > appended.stored_bytes);
        let found: SegmentDirectory = decode_envelope(Envelope::Segment, "segment", &stored[..4096]).unwrap();
        assert_eq!(found, directory);
        assert!(
            stored[4096..8192].iter().all(|byte| *byte == 1) && stored[8192..].iter().all(|byte| *byte == 2)
        );
        assert_eq!(published.rows, 100);
        let prepared = |node: &FakeNode| {
            node.seen.lock().unwrap().iter().find_map(|request| match request {
                Request::PreparePublish { definition, segments } => Some((definition.rows, *segments)),
                _ => None,
            })
        };
        assert_eq!((prepared(&one), prepared(&two)), (Some((100, 1)), Some((100, 0))));
        assert_eq!(seen(&two, 2), ["PreparePublish", "CommitPublish"]);
    }
}

#[tokio::test]
async fn a_session_that_is_dropped_is_forgotten_by_every_node() {
    let folder = folder();
    let nodes = nodes(&folder, |_| None);
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let session = LoadSession::begin(&cluster, definition()).await.unwrap();
    let (directory, pages) = segment(0);
    session.append(NODE, &directory, &pages).await.unwrap();
    drop(session);
    // Closing the cluster waits for the aborts.
    drop(cluster);
    assert_eq!(seen(&nodes[0], 0), ["Append", "AbortLoad"]);
    assert_eq!(seen(&nodes[1], 0), ["AbortLoad"]);
}

#[tokio::test]
async fn an_abort_does_not_overtake_an_append_that_was_given_up() {
    let folder = folder();
    let is_append = |request: &Request| matches!(request, Request::Append { .. });
    let nodes = nodes(&folder, move |request| is_append(request).then_some(Act::Ignore));
    let cluster = connect(&[&nodes[0], &nodes[1]], Duration::from_millis(300)).await.unwrap();
    let session = LoadSession::begin(&cluster, definition()).await.unwrap();
    let (directory, pages) = segment(0);
    let given_up =
        tokio::time::timeout(Duration::from_millis(50), session.append(NODE, &directory, &pages)).await;
    assert!(given_up.is_err(), "the node does not answer");
    drop(session);
    assert_eq!(seen(&nodes[1], 1), ["AbortLoad"]);
    // Long enough for the other abort to arrive too, if it had been sent.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(seen(&nodes[0], 0), ["Append"], "its abort waits for the append's answer");
}

#[tokio::test]
async fn a_load_is_not_published_when_a_segment_could_not_be_stored() {
    let folder = folder();
    let full = |request: &Request| {
        matches!(request, Request::Append { .. }).then_some(Act::Refuse(RefusalCode::Full, 0))
    };
    let nodes = nodes(&folder, full);
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let session = LoadSession::begin(&cluster, definition()).await.unwrap();
    let (directory, pages) = segment(0);
    assert!(session.append(NODE, &directory, &pages).await.is_err());
    let error = session.publish().await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { node: NODE, during: "append", .. }), "{error}");
    assert_eq!(seen(&nodes[0], 2), ["Append", "AbortLoad"]);
    assert_eq!(seen(&nodes[1], 1), ["AbortLoad"]);
}

#[tokio::test]
async fn a_node_that_cannot_prepare_or_is_first_to_refuse_a_commit_ends_the_load() {
    for refused in ["PreparePublish", "CommitInPlace"] {
        let folder = folder();
        let script = move |request: &Request| {
            format!("{request:?}").starts_with(refused).then_some(Act::Refuse(RefusalCode::Storage, 0))
        };
        let nodes = nodes(&folder, script);
        let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
        let session = LoadSession::begin(&cluster, definition()).await.unwrap();
        assert!(session.publish().await.is_err());
        assert_eq!(seen(&nodes[0], 0).last().map(String::as_str), Some("AbortLoad"));
        assert_eq!(seen(&nodes[1], 2), ["PreparePublish", "AbortLoad"], "it never committed");
    }
}

#[tokio::test]
async fn a_first_node_that_dies_in_its_commit_is_asked_again_and_nothing_is_aborted() {
    let folder = folder();
    let mut commits = 0;
    let nodes = nodes(&folder, move |request| {
        commits += i32::from(matches!(request, Request::CommitInPlace { .. }));
        (commits == 1 && matches!(request, Request::CommitInPlace { .. })).then_some(Act::HangUp)
    });
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let session = LoadSession::begin(&cluster, definition()).await.unwrap();
    session.publish().await.unwrap();
    assert_eq!(seen(&nodes[0], 0), ["PreparePublish", "CommitInPlace", "CommitInPlace"]);
    assert_eq!(seen(&nodes[1], 0), ["PreparePublish", "CommitPublish"]);
}

#[tokio::test]
async fn a_kept_segment_is_told_with_the_rows_that_are_gone_and_counts_as_one_of_the_load() {
    let folder = folder();
    let nodes = nodes(&folder, |request| match request {
        Request::Keep { withheld_bytes, .. } if *withheld_bytes > 0 => Some(Act::Store),
        _ => None,
    });
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let new_version = TableDefinition { id: TableId(8), succeeds: Some(TableId(7)), ..definition() };
    let session = LoadSession::begin(&cluster, new_version).await.unwrap();
    let gone = WithheldRows::of([3, 99]).unwrap();
    session.keep(NODE, &segment(0).0, &gone).await.unwrap();
    session.keep(NODE, &segment(1).0, &WithheldRows::NONE).await.unwrap();
    let published = session.publish().await.unwrap();
    assert_eq!(published.rows, 200, "rows of all segments, withheld ones too");
    let seen: Vec<Request> = nodes[0].seen.lock().unwrap().clone();
    let kept = seen.iter().filter_map(|request| match request {
        Request::Keep { load, of, segment, withheld_bytes, .. } => {
            Some((load.0, of.0, segment.0, *withheld_bytes))
        }
        _ => None,
    });
    let bytes = u32::try_from(gone.as_bytes().len()).unwrap();
    assert_eq!(kept.collect::<Vec<_>>(), [(8, 7, 0, bytes), (8, 7, 1, 0)]);
    assert!(nodes[0].stored.lock().unwrap()[0].starts_with(gone.as_bytes()));
    let prepared = seen.iter().find_map(|request| match request {
        Request::PreparePublish { segments, .. } => Some(*segments),
        _ => None,
    });
    assert_eq!(prepared, Some(2));
}

#[tokio::test]
async fn a_segment_that_cannot_be_kept_is_refused_before_anything_is_sent_and_ends_the_load() {
    let folder = folder();
    let nodes = nodes(&folder, |_| None);
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let directory = segment(0).0;
    let outside = WithheldRows::of([100]).unwrap();
    for (succeeds, node, gone, expected) in [
        (None, NODE, WithheldRows::NONE, "succeeds no other"),
        (Some(TableId(7)), NodeId(9), WithheldRows::NONE, "node 9"),
        (Some(TableId(7)), NODE, outside, "below 100"),
    ] {
        let definition = TableDefinition { id: TableId(8), succeeds, ..definition() };
        let session = LoadSession::begin(&cluster, definition).await.unwrap();
        let error = session.keep(node, &directory, &gone).await.unwrap_err();
        assert!(matches!(error, ClientError::BadSegment { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(session.publish().await.is_err());
    }
    assert!(seen(&nodes[0], 3).iter().all(|kind| kind == "AbortLoad"));
}

#[tokio::test]
async fn a_new_version_that_comes_too_late_is_forgotten_and_its_maker_learns_why() {
    let folder = folder();
    let late = |request: &Request| {
        matches!(request, Request::CommitPublish { .. }).then_some(Act::Refuse(RefusalCode::Replaced, 0))
    };
    let nodes = nodes(&folder, late);
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let new_version = TableDefinition { id: TableId(8), succeeds: Some(TableId(7)), ..definition() };
    let session = LoadSession::begin(&cluster, new_version).await.unwrap();
    let error = session.publish().await.unwrap_err();
    let ClientError::Refused { node: NODE, refusal, .. } = error else { panic!("{error}") };
    assert_eq!(refusal.code, RefusalCode::Replaced);
    assert_eq!(seen(&nodes[0], 3), ["PreparePublish", "CommitPublish", "AbortLoad"]);
    assert_eq!(seen(&nodes[1], 2), ["PreparePublish", "AbortLoad"]);
}

#[tokio::test]
async fn a_segment_that_is_not_one_of_the_load_is_refused_before_it_is_sent() {
    let folder = folder();
    let nodes = nodes(&folder, |_| None);
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let session = LoadSession::begin(&cluster, definition()).await.unwrap();
    let (directory, pages) = segment(0);
    let mut other_table = directory.clone();
    other_table.table = TableId(8);
    let mut other_rows = directory.clone();
    other_rows.rows = 99;
    let mut other_length = pages.clone();
    other_length[1].truncate(4096);
    for (directory, pages) in [
        (&other_table, &pages[..]),
        (&other_rows, &pages[..]),
        (&directory, &pages[..1]),
        (&directory, &other_length[..]),
    ] {
        let error = session.append(NODE, directory, pages).await.unwrap_err();
        assert!(matches!(error, ClientError::BadSegment { .. }), "{error}");
    }
    assert!(session.append(NodeId(9), &directory, &pages).await.is_err());
    assert!(seen(&nodes[0], 0).is_empty());
}

#[tokio::test]
async fn what_an_interrupted_load_left_prepared_is_forgotten_by_the_next() {
    let folder = folder();
    let left = TableDefinition { id: TableId(6), ..definition() };
    let nodes = nodes(&folder, move |request| {
        let table =
            NodeTable { definition: left.clone(), committed: false, segments: Vec::new(), sets: Vec::new() };
        matches!(request, Request::Catalog { .. }).then(|| catalog(NODE, vec![table]))
    });
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let session = LoadSession::begin(&cluster, definition()).await.unwrap();
    assert_eq!(seen(&nodes[0], 1), ["AbortLoad"]);
    session.abort().await.unwrap();
}

#[tokio::test]
async fn what_is_left_prepared_is_forgotten_first_where_it_would_be_decided_and_nowhere_if_it_has_been() {
    for refused in [false, true] {
        let folder = folder();
        // The second node would decide.
        let prepared = |request: &Request, node| {
            let left = TableDefinition { id: TableId(6), nodes: vec![NodeId(2), NODE], ..definition() };
            let table =
                NodeTable { definition: left, committed: false, segments: Vec::new(), sets: Vec::new() };
            matches!(request, Request::Catalog { .. }).then(|| catalog(node, vec![table]))
        };
        let decided = move |request: &Request| {
            let is_abort = matches!(request, Request::AbortLoad { .. });
            (refused && is_abort).then_some(Act::Refuse(RefusalCode::Malformed, 0))
        };
        let one = move |request: &Request| prepared(request, NODE).unwrap_or_else(|| obey(1, request));
        let two = move |request: &Request| {
            prepared(request, NodeId(2)).or_else(|| decided(request)).unwrap_or_else(|| obey(2, request))
        };
        let one = FakeNode::start(&addresses(&folder, 1)[0], status(1), Box::new(one));
        let two = FakeNode::start(&addresses(&folder, 2)[0], status(2), Box::new(two));
        let cluster = connect(&[&one, &two], TIMEOUT).await.unwrap();
        let begun = LoadSession::begin(&cluster, definition()).await;
        assert_eq!(begun.is_err(), refused);
        // If it has been decided meanwhile, the load looks again.
        assert!(seen(&two, 1).iter().all(|kind| kind == "AbortLoad"));
        assert_eq!(one.kinds().iter().any(|kind| kind == "AbortLoad"), !refused);
        if let Ok(session) = begun {
            session.abort().await.unwrap();
        }
    }
}

/// A node on which another load of the same name appears while this one is prepared, and what it is
/// asked of commits.
fn races(node: u16, mut is_committed: bool) -> impl FnMut(&Request) -> Act + Send + 'static {
    let mut is_there = false;
    move |request| {
        is_there |= matches!(request, Request::PreparePublish { .. });
        is_committed |= matches!(request, Request::CommitPublish { load: TableId(6) });
        let definition = TableDefinition { id: TableId(6), ..definition() };
        let other = NodeTable { definition, committed: is_committed, segments: Vec::new(), sets: Vec::new() };
        match request {
            Request::Catalog { .. } if is_there => catalog(NodeId(node), vec![other]),
            _ => obey(node, request),
        }
    }
}

#[tokio::test]
async fn a_load_whose_commit_is_on_its_way_is_committed_everywhere_before_another_takes_its_place() {
    let folder = folder();
    let one = FakeNode::start(&addresses(&folder, 1)[0], status(1), Box::new(races(1, true)));
    let two = FakeNode::start(&addresses(&folder, 2)[0], status(2), Box::new(races(2, false)));
    let cluster = connect(&[&one, &two], TIMEOUT).await.unwrap();
    LoadSession::begin(&cluster, definition()).await.unwrap().publish().await.unwrap();
    let commits = |node: &FakeNode| {
        let seen = node.seen.lock().unwrap();
        let commits = seen.iter().filter(|request| {
            matches!(request, Request::CommitPublish { .. } | Request::CommitInPlace { .. })
        });
        commits.cloned().collect::<Vec<_>>()
    };
    assert_eq!(commits(&one), [Request::CommitInPlace { load: TableId(7), of: Some(TableId(6)) }]);
    let expected = [6, 7].map(|load| Request::CommitPublish { load: TableId(load) });
    assert_eq!(commits(&two), expected);
}

#[tokio::test]
async fn a_table_is_not_replaced_while_a_node_that_keeps_keys_refuses_to_close_it() {
    // Whichever node answers first.
    for late in [NODE, NodeId(2)] {
        let folder = folder();
        let answers = move |node: u16| {
            move |request: &Request| {
                if matches!(request, Request::OpenParticipant) && NodeId(node) == late {
                    std::thread::sleep(Duration::from_millis(100));
                }
                let definition = TableDefinition { id: TableId(6), ..definition() };
                let table = NodeTable { definition, committed: true, segments: Vec::new(), sets: Vec::new() };
                match request {
                    Request::Catalog { .. } => catalog(NodeId(node), vec![table]),
                    Request::OpenParticipant if NodeId(node) == NODE => Act::Refuse(RefusalCode::Full, 0),
                    _ => obey(node, request),
                }
            }
        };
        let one = FakeNode::start(&addresses(&folder, 1)[0], status(1), Box::new(answers(1)));
        let two = FakeNode::start(&addresses(&folder, 2)[0], status(2), Box::new(answers(2)));
        let cluster = connect(&[&one, &two], TIMEOUT).await.unwrap();
        let load = LoadSession::begin(&cluster, definition()).await.unwrap();
        let error = load.publish().await.unwrap_err();
        assert!(matches!(error, ClientError::NotClosed { .. }), "{error}");
        assert_eq!(seen(&one, 2).last().map(String::as_str), Some("AbortLoad"));
    }
}

#[tokio::test]
async fn a_table_is_dropped_by_name_and_an_unknown_name_is_an_error() {
    let folder = folder();
    let mut is_there = true;
    let nodes = nodes(&folder, move |request| {
        let definition = definition();
        let table = NodeTable { definition, committed: true, segments: Vec::new(), sets: Vec::new() };
        is_there &= !matches!(request, Request::Drop { .. });
        let tables = if is_there { vec![table] } else { Vec::new() };
        keeps_no_keys(request)
            .or_else(|| matches!(request, Request::Catalog { .. }).then(|| catalog(NODE, tables)))
    });
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let error = cluster.drop_table("u").await.unwrap_err();
    assert!(matches!(error, ClientError::UnknownTable { .. }), "{error}");
    // The second node does not have its part: the table cannot be read, but it can be dropped.
    assert!(cluster.catalog().await.unwrap().table("t").is_err());
    cluster.drop_table("t").await.unwrap();
    let asked = seen(&nodes[0], 2);
    let first = |kind: &str| asked.iter().position(|asked| asked == kind);
    assert!(
        first("Transact").is_some() && first("Transact") < first("Drop"),
        "closed, then dropped: {asked:?}"
    );
}

#[tokio::test]
async fn a_load_takes_the_place_of_the_table_that_it_has_seen_or_looks_again() {
    let folder = folder();
    let mut looks = 0;
    let nodes = nodes(&folder, move |request| {
        let place = |id| TableDefinition { id: TableId(id), ..definition() };
        let of =
            |id| NodeTable { definition: place(id), committed: true, segments: Vec::new(), sets: Vec::new() };
        looks += i32::from(matches!(request, Request::PreparePublish { .. }));
        keeps_no_keys(request).or_else(|| match request {
            // Somebody flushes it between the first look and the commit.
            Request::Catalog { .. } if looks < 2 => Some(catalog(NODE, vec![of(5)])),
            Request::Catalog { .. } => Some(catalog(NODE, vec![of(6)])),
            Request::CommitInPlace { of: Some(TableId(6)), .. } => None,
            Request::CommitInPlace { .. } => {
                looks += 1;
                Some(Act::Refuse(RefusalCode::Replaced, 0))
            }
            _ => None,
        })
    });
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let session = LoadSession::begin(&cluster, definition()).await.unwrap();
    session.publish().await.unwrap();
    let commits: Vec<Option<TableId>> = nodes[0]
        .seen
        .lock()
        .unwrap()
        .iter()
        .filter_map(|request| match request {
            Request::CommitInPlace { of, .. } => Some(*of),
            _ => None,
        })
        .collect();
    assert_eq!(commits, [Some(TableId(5)), Some(TableId(6))]);
    assert_eq!(seen(&nodes[1], 0).last().map(String::as_str), Some("CommitPublish"));
}

#[tokio::test]
async fn a_new_version_is_prepared_with_what_it_is_to_derive_and_not_with_what_does_not_fit_it() {
    let folder = folder();
    let nodes = nodes(&folder, |_| None);
    let cluster = connect(&[&nodes[0], &nodes[1]], TIMEOUT).await.unwrap();
    let index = |column| {
        let kind = DerivedKind::Index { column: ColumnId(column) };
        vec![DerivedDefinition { name: "by a".to_owned(), kind }]
    };
    let of = |derived| TableDefinition { derived, ..definition() };
    let error = LoadSession::succeed(&cluster, &of(index(2))).await.unwrap_err().to_string();
    assert!(error.contains("the indexed column is column 2 (derivation \"by a\")"), "{error}");
    let session = LoadSession::succeed(&cluster, &of(index(0))).await.unwrap();
    let published = session.publish().await.unwrap();
    assert_eq!((published.succeeds, &published.derived), (Some(TableId(7)), &index(0)));
    for node in &nodes {
        let seen: Vec<Request> = node.seen.lock().unwrap().clone();
        let prepared = seen.iter().find_map(|request| match request {
            Request::PreparePublish { definition, .. } => Some(definition),
            _ => None,
        });
        assert_eq!(prepared, Some(&published));
    }
}
