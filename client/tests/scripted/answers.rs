//! Tests that a client reports the truth in time when its nodes refuse, send wrong answers, fall
//! silent or die.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::fake_node::{Act, FakeNode, addresses, connect, key, status};
use rackscan_client::{
    ClientError, Cluster, ClusterOptions, NodeEndpoint, OfferedProgram, ProcessAnswer, SegmentPart,
};
use rackscan_fabric::Address;
use rackscan_format::{
    codec::{Envelope, encode_envelope},
    derived::{DerivedDefinition, DerivedKind, Factor, SumDefinition, Within},
    ids::{ColumnId, DeviceId, NodeId, PageNumber, RequestId, SegmentId, TableId},
    limits::WITHHELD_HERE_BYTES_MAX,
    message::{
        Answer, BounceReason, Cost, LoadReport, NodeCatalog, NodeTable, Payload, RefusalCode, ReplyMessage,
        Request,
    },
    program::{Output, PROGRAM_VERSION, ScanProgram},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
    segment::Extent,
    withheld::WithheldRows,
};
use rackscan_scan::PageWanted;

const LONG: Duration = Duration::from_secs(20);
const NODE: NodeId = NodeId(1);

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// The answer of a node that read so many pages and keeps none.
fn fetched(pages_read: u32) -> Answer {
    Answer::Fetched { cost: Cost { pages_read, ..Cost::default() }, places: Vec::new(), cached: Vec::new() }
}

fn page(number: u16, length_bytes: u32) -> PageWanted {
    let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
    PageWanted { column: ColumnId(0), page: PageNumber(number), extent }
}

fn definition(rows: u64) -> TableDefinition {
    let column = ColumnDefinition { name: "a".to_owned(), column_type: ColumnType::Int64, nullable: false };
    TableDefinition {
        id: TableId(7),
        name: "t".to_owned(),
        columns: vec![column],
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 1024,
        nodes: vec![NODE],
        rows,
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    }
}

fn program() -> OfferedProgram {
    let program = ScanProgram {
        version: PROGRAM_VERSION,
        table: TableId(7),
        inputs: Vec::new(),
        nodes: Vec::new(),
        filter: Vec::new(),
        output: Output::Rows(Vec::new()),
        limit_rows: None,
        key_filters: Vec::new(),
    };
    OfferedProgram::plain(Arc::new(program.verify(&definition(0)).expect("it claims nothing")))
}

/// Of the first segment, from its first block on.
fn part() -> SegmentPart {
    SegmentPart {
        table: TableId(7),
        segment: SegmentId(0),
        first_block: 0,
        withheld: None,
        report_reads: false,
    }
}

fn processed(written_bytes: u64, next_block: Option<u32>) -> Answer {
    Answer::Processed {
        written_bytes,
        batches: 0,
        rows: 0,
        next_block,
        cost: Cost::default(),
        reads: Vec::new(),
    }
}

async fn fetch_one(cluster: &Cluster) -> Result<(), ClientError> {
    cluster.fetch(NODE, TableId(7), SegmentId(0), &[page(0, 4096)]).await.map(drop)
}

#[tokio::test]
async fn pages_arrive_whole_and_in_order_over_both_wires() {
    let folder = folder();
    for address in addresses(&folder, 1) {
        let node = FakeNode::start(
            &address,
            status(1),
            Box::new(|request| {
                let Request::Fetch { pages, .. } = request else { return Act::HangUp };
                let mut bytes = vec![0; 4096 * pages.len()];
                for (slot, page) in bytes.chunks_mut(4096).zip(pages) {
                    slot.fill(u8::try_from(page.page.0).expect("few pages"));
                }
                Act::Answer(bytes, fetched(3))
            }),
        );
        let cluster = connect(&[&node], LONG).await.unwrap();
        let wanted = [page(9, 4096), page(2, 4096), page(5, 4096)];
        let fetched = cluster.fetch(NODE, TableId(7), SegmentId(0), &wanted).await.unwrap();
        let found: Vec<(usize, u8)> = fetched.pages.iter().map(|page| (page.len(), page[4095])).collect();
        assert_eq!(found, [(4096, 9), (4096, 2), (4096, 5)]);
        assert_eq!((fetched.round_trips, fetched.cost.pages_read), (1, 3));
        assert!((12_288..12_600).contains(&fetched.wire_bytes), "{} bytes", fetched.wire_bytes);
        assert_eq!(cluster.load_report(NODE).unwrap().scans_queued, 5);
    }
}

#[tokio::test]
async fn a_large_fetch_is_split_into_requests_that_fit_the_memory() {
    let folder = folder();
    let node = FakeNode::start(
        &addresses(&folder, 1)[0],
        status(1),
        Box::new(|_| Act::Answer(Vec::new(), fetched(1))),
    );
    let cluster = connect(&[&node], LONG).await.unwrap();
    let wanted: Vec<PageWanted> = (0..20).map(|number| page(number, 2 << 20)).collect();
    let fetched = cluster.fetch(NODE, TableId(7), SegmentId(0), &wanted).await.unwrap();
    assert_eq!((fetched.pages.len(), fetched.round_trips, fetched.cost.pages_read), (20, 5, 5));
}

#[tokio::test]
async fn a_node_that_dies_fails_every_request_outstanding_there_at_once() {
    let folder = folder();
    for address in addresses(&folder, 1) {
        let mut requests = 0;
        let node = FakeNode::start(
            &address,
            status(1),
            Box::new(move |_| {
                requests += 1;
                if requests == 40 { Act::HangUp } else { Act::Ignore }
            }),
        );
        let cluster = connect(&[&node], LONG).await.unwrap();
        let begun = Instant::now();
        let fetches: Vec<_> = (0..40)
            .map(|_| {
                let cluster = cluster.clone();
                tokio::spawn(async move { fetch_one(&cluster).await })
            })
            .collect();
        for fetch in fetches {
            let error = fetch.await.unwrap().unwrap_err();
            assert!(matches!(error, ClientError::NodeLost { node: NODE, during: "fetch", .. }), "{error}");
        }
        assert!(begun.elapsed() < LONG / 4, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_lost_node_is_connected_to_again_and_named_if_it_is_down() {
    let folder = folder();
    let address = &addresses(&folder, 1)[0];
    let dying = FakeNode::start(address, status(1), Box::new(|_| Act::HangUp));
    let cluster = connect(&[&dying], LONG).await.unwrap();
    assert!(matches!(fetch_one(&cluster).await, Err(ClientError::NodeLost { .. })));
    drop(dying);
    let error = fetch_one(&cluster).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { node: NODE, .. }), "{error}");
    assert!(error.to_string().contains("1.sock") && error.to_string().contains("cluster start"), "{error}");
    let answer = |_: &Request| Act::Answer(vec![1; 4096], fetched(0));
    let _back = FakeNode::start(address, status(1), Box::new(answer));
    fetch_one(&cluster).await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_refused_here_is_not_said_to_be_perhaps_carried_out() {
    let folder = folder();
    let node = FakeNode::start(&addresses(&folder, 1)[0], status(1), Box::new(|_| Act::HangUp));
    let down = NodeEndpoint { id: NodeId(2), addresses: vec![addresses(&folder, 2)[0].clone()] };
    let mut options = ClusterOptions::new(vec![node.endpoint.clone(), down], key());
    (options.memory_bytes, options.unavailable_max) = (16 << 20, 1);
    let cluster = Cluster::connect(options).await.unwrap();
    let error = cluster.status(NodeId(2)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { node: NodeId(2), .. }), "{error}");
    assert!(error.is_node_lost() && error.to_string().contains("2.sock"), "{error}");
}

#[tokio::test]
async fn a_silent_node_is_given_up_after_the_timeout_and_its_memory_is_not_used_again() {
    let folder = folder();
    let node = FakeNode::start(&addresses(&folder, 1)[0], status(1), Box::new(|_| Act::Ignore));
    let cluster = connect(&[&node], Duration::from_millis(200)).await.unwrap();
    let error = cluster.echo(NODE, 15 << 20).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { node: NODE, during: "echo", .. }), "{error}");
    let error = cluster.echo(NODE, 15 << 20).await.unwrap_err();
    assert!(matches!(error, ClientError::MemoryTooSmall { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_that_breaks_the_protocol_ends_the_connection() {
    let folder = folder();
    let unknown = ReplyMessage { id: RequestId(999), outcome: Ok(Answer::Done), load: LoadReport::default() };
    for bytes in [b"garbage".to_vec(), Vec::new(), unknown.encode().unwrap()] {
        let sent = bytes.clone();
        let node =
            FakeNode::start(&addresses(&folder, 1)[0], status(1), Box::new(move |_| Act::Send(sent.clone())));
        let cluster = connect(&[&node], LONG).await.unwrap();
        let error = fetch_one(&cluster).await.unwrap_err();
        assert!(matches!(error, ClientError::NodeLost { .. }), "{bytes:?}: {error}");
    }
}

#[tokio::test]
async fn an_answer_of_another_kind_or_out_of_bounds_is_refused() {
    let folder = folder();
    for (answer, expected) in [
        (Answer::Done, "done"),
        (processed(1 << 40, None), "1099511627776 bytes"),
        (processed(64, None), "batch"),
        (processed(0, Some(0)), "block 0"),
    ] {
        let node = FakeNode::start(
            &addresses(&folder, 1)[0],
            status(1),
            Box::new(move |_| Act::Answer(Vec::new(), answer.clone())),
        );
        let cluster = connect(&[&node], LONG).await.unwrap();
        let error = cluster.process(NODE, &program(), &part()).await.unwrap_err();
        assert!(matches!(error, ClientError::BadAnswer { node: NODE, .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_busy_node_bounces_a_scan_and_a_small_target_grows() {
    let folder = folder();
    let mut requests = 0;
    let node = FakeNode::start(
        &addresses(&folder, 1)[0],
        status(1),
        Box::new(move |request| {
            let Request::Process { target, .. } = request else { return Act::HangUp };
            requests += 1;
            match requests {
                1 => Act::Refuse(RefusalCode::Bounced(BounceReason::Queue), 0),
                2 => Act::Refuse(RefusalCode::TargetTooSmall, 5 << 20),
                _ if target.length_bytes >= 5 << 20 => Act::Answer(Vec::new(), processed(0, Some(3))),
                _ => Act::HangUp,
            }
        }),
    );
    let cluster = connect(&[&node], LONG).await.unwrap();
    let bounced = cluster.process(NODE, &program(), &part()).await.unwrap();
    assert!(matches!(bounced, ProcessAnswer::Bounced { load: LoadReport { scans_queued: 5, .. }, .. }));
    let answer = cluster.process(NODE, &program(), &part()).await.unwrap();
    let ProcessAnswer::Processed(processed) = answer else { panic!("expected rows, found {answer:?}") };
    assert_eq!((processed.round_trips, processed.next_block), (2, Some(3)));
}

#[tokio::test]
async fn withheld_rows_that_are_too_many_for_a_request_lie_behind_its_target() {
    let few = Arc::new(WithheldRows::of([3, 99, 2000]).unwrap());
    let many = Arc::new(WithheldRows::of((0..100_000).filter(|row| row % 3 > 0)).unwrap());
    assert!(many.as_bytes().len() > WITHHELD_HERE_BYTES_MAX);
    let folder = folder();
    for address in addresses(&folder, 1) {
        let expected = few.as_bytes().to_vec();
        let script = move |request: &Request| match request {
            Request::Process { withheld: Some(Payload::Here(bytes)), .. } if *bytes == expected => {
                Act::Answer(Vec::new(), processed(0, None))
            }
            Request::Process { withheld: Some(Payload::Beside(source)), target, .. }
                if target.key == source.key
                    && target.length_bytes >= 2 << 20
                    && target.offset_bytes + target.length_bytes <= source.offset_bytes =>
            {
                Act::Store
            }
            Request::Process { withheld: None, .. } => Act::Answer(Vec::new(), processed(0, None)),
            _ => Act::HangUp,
        };
        let node = FakeNode::start(&address, status(1), Box::new(script));
        let cluster = connect(&[&node], LONG).await.unwrap();
        let without = |withheld| SegmentPart { withheld, ..part() };
        for rows in [None, Some(Arc::default()), Some(Arc::clone(&few))] {
            cluster.process(NODE, &program(), &without(rows)).await.unwrap();
        }
        // What the script answers when it has read them is no answer to a scan.
        cluster.process(NODE, &program(), &without(Some(Arc::clone(&many)))).await.unwrap_err();
        assert_eq!(*node.stored.lock().unwrap(), [many.as_bytes()]);
    }
}

#[tokio::test]
async fn a_refusal_is_told_with_the_nodes_words() {
    let folder = folder();
    let node = FakeNode::start(
        &addresses(&folder, 1)[0],
        status(1),
        Box::new(|_| Act::Refuse(RefusalCode::NotFound, 0)),
    );
    let cluster = connect(&[&node], LONG).await.unwrap();
    let error = fetch_one(&cluster).await.unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains("the script says so"), "{error}");
    assert!(matches!(cluster.status(NodeId(5)).await, Err(ClientError::UnknownNode { node: NodeId(5), .. })));
}

#[tokio::test]
async fn a_node_that_is_not_the_one_configured_is_named_with_its_address() {
    let folder = folder();
    let wrong_id = |address: &Address| {
        let mut node = FakeNode::start(address, status(2), Box::new(|_| Act::HangUp));
        node.endpoint.id = NODE;
        node
    };
    let node = wrong_id(&addresses(&folder, 1)[0]);
    let error = connect(&[&node], LONG).await.unwrap_err().to_string();
    assert!(error.contains("1.sock") && error.contains("expected 1"), "{error}");
    let mut other = status(3);
    other.cluster = 78;
    let one = FakeNode::start(&addresses(&folder, 4)[0], status(4), Box::new(|_| Act::HangUp));
    let three = FakeNode::start(&addresses(&folder, 3)[0], other, Box::new(|_| Act::HangUp));
    let error = connect(&[&one, &three], LONG).await.unwrap_err().to_string();
    assert!(error.contains("cluster it belongs to"), "{error}");
}

#[tokio::test]
async fn an_unreachable_node_is_named_with_its_address_and_a_way_out() {
    let folder = folder();
    for (address, hint) in
        [("shm:/nowhere/at-all.sock", "/nowhere/at-all.sock"), ("tcp:127.0.0.1:1", "127.0.0.1:1")]
    {
        let node = FakeNode::start(&addresses(&folder, 1)[0], status(1), Box::new(|_| Act::HangUp));
        let missing = NodeEndpoint { id: NodeId(6), addresses: vec![address.parse().unwrap()] };
        let options = ClusterOptions::new(vec![node.endpoint.clone(), missing], key());
        let error = Cluster::connect(options).await.unwrap_err();
        assert_eq!(error.node(), Some(NodeId(6)));
        assert!(error.to_string().contains(hint) && error.to_string().contains("start the node"), "{error}");
    }
}

fn encoded(committed: bool, definition: TableDefinition) -> Vec<u8> {
    let table = NodeTable { definition, committed, segments: Vec::new(), sets: Vec::new() };
    encode_envelope(Envelope::CatalogReply, &NodeCatalog { node: NODE, tables: vec![table] })
        .expect("it is small")
}

#[tokio::test]
async fn a_catalog_is_read_in_parts_and_again_when_it_changes() {
    let folder = folder();
    let mut requests = 0;
    let node = FakeNode::start(
        &addresses(&folder, 1)[0],
        status(1),
        Box::new(move |request| {
            let Request::Catalog { from_bytes, .. } = request else { return Act::HangUp };
            requests += 1;
            let bytes = encoded(true, definition(0));
            let from = usize::try_from(*from_bytes).expect("it is small");
            let part = bytes[from..bytes.len().min(from + 20)].to_vec();
            let (written_bytes, total_bytes) = (part.len() as u64, bytes.len() as u64);
            // The second request of all finds that the catalog has changed.
            let generation = if requests < 2 { 1 } else { 2 };
            Act::Answer(part, Answer::Catalog { written_bytes, total_bytes, generation })
        }),
    );
    let cluster = connect(&[&node], LONG).await.unwrap();
    let catalog = cluster.catalog().await.unwrap();
    assert_eq!(catalog.table("t").unwrap().definition.id, TableId(7));
    assert!(node.kinds().len() > 3);
}

#[tokio::test]
async fn what_a_table_derives_comes_with_its_catalog_and_what_does_not_fit_it_breaks_the_table() {
    let folder = folder();
    let named = |name: &str, kind| DerivedDefinition { name: name.to_owned(), kind };
    let column = ColumnId(0);
    let sum = SumDefinition {
        group: column,
        factors: vec![Factor::Column(column), Factor::OneMinus(column), Factor::OnePlus(column)],
        within: Some(Within { column, from: i64::MIN, until: i64::MAX }),
        base: Some(TableId(u32::MAX)),
    };
    let all = vec![
        named("by a", DerivedKind::Index { column }),
        named("children", DerivedKind::Parent { key: column, child: "u".to_owned() }),
        named("parents", DerivedKind::Child { key: column, parent: "u".to_owned() }),
        named("sum", DerivedKind::Sum(sum)),
    ];
    let twice = [&all[..1], &all[..1]].concat();
    for (number, derived, problem) in
        [(1, all, None), (2, twice, Some("a derivation's name is that of an earlier"))]
    {
        let bytes = encoded(true, TableDefinition { derived: derived.clone(), ..definition(0) });
        let node = FakeNode::start(
            &addresses(&folder, number)[0],
            status(1),
            Box::new(move |_| {
                let total_bytes = bytes.len() as u64;
                let answer = Answer::Catalog { written_bytes: total_bytes, total_bytes, generation: 1 };
                Act::Answer(bytes.clone(), answer)
            }),
        );
        let cluster = connect(&[&node], LONG).await.unwrap();
        let catalog = cluster.catalog().await.unwrap();
        match (catalog.table("t"), problem) {
            (Ok(table), None) => assert_eq!(table.definition.derived, derived),
            (Err(error), Some(problem)) => assert!(error.to_string().contains(problem), "{error}"),
            (found, _) => panic!("{found:?}, {problem:?}"),
        }
    }
}

#[tokio::test]
async fn a_half_published_table_is_completed_by_the_reader() {
    let folder = folder();
    let mut is_committed = false;
    let one = FakeNode::start(
        &addresses(&folder, 1)[0],
        status(1),
        Box::new(move |request| {
            is_committed |= matches!(request, Request::CommitPublish { load: TableId(7) });
            answer_catalog(request, 1, is_committed)
        }),
    );
    let two = FakeNode::start(
        &addresses(&folder, 2)[0],
        status(2),
        Box::new(|request| answer_catalog(request, 2, true)),
    );
    let cluster = connect(&[&one, &two], LONG).await.unwrap();
    let catalog = cluster.catalog().await.unwrap();
    assert_eq!(catalog.table("t").unwrap().definition.rows, 0);
    assert_eq!(one.kinds(), ["Catalog", "CommitPublish", "Catalog"]);
    assert_eq!(two.kinds(), ["Catalog", "Catalog"]);
}

#[tokio::test]
async fn a_table_that_is_published_between_the_answers_of_two_nodes_is_whole() {
    let folder = folder();
    let mut asked = 0;
    let one = FakeNode::start(
        &addresses(&folder, 1)[0],
        status(1),
        Box::new(move |request| {
            asked += 1;
            if asked == 1 { answer_tables(1, Vec::new()) } else { answer_catalog(request, 1, true) }
        }),
    );
    let two = FakeNode::start(
        &addresses(&folder, 2)[0],
        status(2),
        Box::new(|request| answer_catalog(request, 2, true)),
    );
    let cluster = connect(&[&one, &two], LONG).await.unwrap();
    let catalog = cluster.catalog().await.unwrap();
    assert_eq!(catalog.table("t").unwrap().definition.rows, 0);
    assert_eq!(one.kinds(), ["Catalog", "Catalog"]);
}

#[tokio::test]
async fn a_table_of_which_a_node_has_no_part_whenever_it_is_asked_is_broken() {
    let folder = folder();
    let nodes = [1, 2].map(|node| {
        let answer = move |request: &Request| match node {
            1 => answer_tables(1, Vec::new()),
            _ => answer_catalog(request, node, true),
        };
        FakeNode::start(&addresses(&folder, node)[0], status(node), Box::new(answer))
    });
    let cluster = connect(&[&nodes[0], &nodes[1]], LONG).await.unwrap();
    let error = cluster.catalog().await.unwrap().table("t").map(|table| table.segments.len()).unwrap_err();
    assert!(error.to_string().contains("node 1 does not have its part"), "{error}");
    assert_eq!(nodes[0].kinds(), ["Catalog", "Catalog"], "two looks that find the same are enough");
}

fn answer_catalog(request: &Request, node: u16, committed: bool) -> Act {
    let Request::Catalog { .. } = request else { return Act::Answer(Vec::new(), Answer::Done) };
    let definition = TableDefinition { nodes: vec![NodeId(1), NodeId(2)], ..definition(0) };
    let table = NodeTable { definition, committed, segments: Vec::new(), sets: Vec::new() };
    answer_tables(node, vec![table])
}

fn answer_tables(node: u16, tables: Vec<NodeTable>) -> Act {
    let generation = tables.iter().filter(|table| table.committed).count() as u64;
    let bytes = encode_envelope(Envelope::CatalogReply, &NodeCatalog { node: NodeId(node), tables });
    let bytes = bytes.expect("it is small");
    let total_bytes = bytes.len() as u64;
    Act::Answer(bytes, Answer::Catalog { written_bytes: total_bytes, total_bytes, generation })
}

#[tokio::test]
async fn a_corrupt_catalog_is_an_error_that_names_the_node() {
    let folder = folder();
    let node = FakeNode::start(
        &addresses(&folder, 1)[0],
        status(1),
        Box::new(|_| {
            let mut bytes = encoded(true, definition(0));
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            let total_bytes = bytes.len() as u64;
            Act::Answer(bytes, Answer::Catalog { written_bytes: total_bytes, total_bytes, generation: 1 })
        }),
    );
    let cluster = connect(&[&node], LONG).await.unwrap();
    let error = cluster.catalog().await.unwrap_err();
    assert!(matches!(error, ClientError::Codec { node: NODE, .. }), "{error}");
}
