//! Promise: whatever a client sends, the node answers with a refusal or closes the connection, and
//! serves the next client.

use std::time::{Duration, Instant};

use rackscan_fabric::{Access, ClusterKey, Event, Operation, Region};
use rackscan_format::{
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    message::{PageWanted, RefusalCode, Request, RequestMessage, Target},
    program::Node,
};

use crate::support::{
    client::Client,
    node::{BRIDGES, Bridge, NodeFolder, Running},
    table::Table,
};

fn loaded() -> (NodeFolder, Running, Table) {
    loaded_over(BRIDGES[0])
}

fn loaded_over(bridge: Bridge) -> (NodeFolder, Running, Table) {
    let node_folder = NodeFolder::new();
    let node = node_folder.start_over(bridge);
    let table = Table::new(1, "t", 1, 3000);
    table.load(&mut node.shm());
    (node_folder, node, table)
}

fn fetch(table: &Table, pages: Vec<PageWanted>, target: Target) -> Request {
    Request::Fetch { table: table.id(), segment: SegmentId(0), pages, target }
}

#[test]
fn things_that_are_not_here_are_not_found() {
    let (_node_folder, node, table) = loaded();
    for (wire, mut client) in node.both() {
        let target = client.target(0, 1 << 20);
        let page = table.segments[0].wanted()[0];
        let other_column = PageWanted { column: ColumnId(3), ..page };
        let other_page = PageWanted { page: PageNumber(999), ..page };
        let requests = [
            fetch(&table, vec![other_column], target),
            fetch(&table, vec![page, other_page], target),
            Request::Fetch { table: TableId(2), segment: SegmentId(0), pages: vec![page], target },
            Request::Fetch { table: table.id(), segment: SegmentId(1), pages: vec![page], target },
            Request::CommitPublish { load: TableId(77) },
            Request::Process {
                withheld: None,
                key_filters: Vec::new(),
                program: table.program(1),
                table: table.id(),
                segment: SegmentId(9),
                first_block: 0,
                target,
                report_reads: false,
            },
        ];
        for request in requests {
            assert_eq!(client.refusal_code(request.clone()), RefusalCode::NotFound, "{wire}: {request:?}");
        }
    }
    node.stop();
}

#[test]
fn targets_that_are_not_the_clients_are_refused_as_memory() {
    for bridge in BRIDGES {
        let (_node_folder, node, table) = loaded_over(bridge);
        for (wire, mut client) in node.both() {
            let good = client.target(0, 1 << 20);
            let page = table.segments[0].wanted()[0];
            let read_only = Region::allocate(1 << 20).unwrap();
            let read_only = client.connection.register(&read_only, Access::Read).unwrap();
            let targets = [
                Target { key: good.key ^ 1, ..good },
                Target { offset_bytes: 32 << 20, ..good },
                Target { length_bytes: u64::MAX, offset_bytes: 4096, ..good },
                Target { offset_bytes: u64::MAX - 4095, length_bytes: 1 << 20, ..good },
                Target { key: read_only.key, offset_bytes: read_only.address, length_bytes: 1 << 20 },
            ];
            for target in targets {
                let requests = [
                    fetch(&table, vec![page], target),
                    Request::Catalog { from_bytes: 0, target },
                    Request::Echo { bytes: 4096, target },
                    Request::Process {
                        withheld: None,
                        key_filters: Vec::new(),
                        program: table.program(1000),
                        table: table.id(),
                        segment: SegmentId(0),
                        first_block: 0,
                        target,
                        report_reads: false,
                    },
                ];
                for request in requests {
                    // On tcp only what is really written is refused, and a region that begins well
                    // takes a small answer.
                    let outcome = client.ask(request.clone());
                    let begins_well = target.key == good.key && target.offset_bytes < 32 << 20;
                    match outcome {
                        Err(refusal) => {
                            assert_eq!(refusal.code, RefusalCode::Memory, "{wire}: {request:?}: {refusal:?}")
                        }
                        Ok(answer) => assert!(begins_well, "{wire}: {request:?}: {answer:?}"),
                    }
                }
            }
            let served = client.ask(fetch(&table, vec![page], good));
            assert!(served.is_ok(), "{wire}: {served:?}");
        }
        node.stop();
    }
}

#[test]
fn requests_that_break_a_rule_are_malformed() {
    for bridge in BRIDGES {
        let (_node_folder, node, table) = loaded_over(bridge);
        for (wire, mut client) in node.both() {
            let target = client.target(0, 8192);
            let page = table.segments[0].wanted()[0];
            let at = |target_offset_bytes| vec![PageWanted { target_offset_bytes, ..page }];
            let mut wrong_input = table.program(1);
            wrong_input.inputs[0].column = ColumnId(99);
            let mut forward = table.program(1);
            forward.nodes[0] = Node::Not(4);
            let mut huge = table.definition.clone();
            huge.id = TableId(8);
            huge.page_size = 1;
            let process = |program, first_block| Request::Process {
                withheld: None,
                key_filters: Vec::new(),
                program,
                table: table.id(),
                segment: SegmentId(0),
                first_block,
                target,
                report_reads: false,
            };
            let requests = [
                fetch(&table, at(8192), target),
                fetch(&table, at(100), target),
                fetch(&table, at(u64::MAX - 4095), target),
                process(wrong_input, 0),
                process(forward, 0),
                process(table.program(1), 1_000_000),
                Request::Echo { bytes: 8193, target },
                Request::Catalog { from_bytes: 1 << 40, target },
                Request::Append { load: TableId(9), directory_bytes: 0, source: target },
                Request::Append { load: TableId(9), directory_bytes: u32::MAX, source: target },
                Request::Append { load: TableId(9), directory_bytes: 100, source: target },
                Request::PreparePublish { definition: huge, segments: 0 },
            ];
            for request in requests {
                assert_eq!(
                    client.refusal_code(request.clone()),
                    RefusalCode::Malformed,
                    "{wire}: {request:?}"
                );
            }
        }
        node.stop();
    }
}

#[test]
fn pages_that_are_not_what_the_directory_says_are_not_stored() {
    let (_node_folder, node, _) = loaded();
    // Both stay to the end: a load whose last connection is gone is forgotten, and its extents are
    // free too.
    let mut clients = node.both();
    for (id, (wire, client)) in (10..).zip(&mut clients) {
        let used = client.status().devices[0].used_bytes;
        let table = Table::new(id, "u", 1, 3000);
        let request = table.segments[0].stage(client);
        let Request::Append { source, .. } = &request else { panic!("it is an append") };
        let last = usize::try_from(source.length_bytes).unwrap() - 4096;
        let byte = client.region.to_vec(last, 1).unwrap()[0];
        client.region.copy_in(last, &[byte ^ 0x80]).unwrap();
        let refusal = client.refused(request.clone());
        assert_eq!(refusal.code, RefusalCode::Malformed, "{wire}");
        assert!(refusal.text.contains("checksum"), "{wire}: {}", refusal.text);
        assert_eq!(client.status().devices[0].used_bytes, used, "{wire}: the extents are free again");
        client.region.copy_in(last, &[byte]).unwrap();
        assert!(client.ask(request).is_ok(), "{wire}: and the right bytes are taken");
    }
    node.stop();
}

#[test]
fn garbage_ends_the_connection_and_nothing_else() {
    for bridge in BRIDGES {
        let (_node_folder, node, _) = loaded_over(bridge);
        let mut witness = node.shm();
        let well_formed = RequestMessage { id: rackscan_format::ids::RequestId(1), request: Request::Status };
        let mut too_long = well_formed.encode().unwrap();
        too_long.push(0);
        for garbage in [b"".to_vec(), b"GET / HTTP/1.1".to_vec(), vec![0xff; 60_000], too_long] {
            for (wire, mut client) in node.both() {
                client.send_bytes(&garbage);
                let deadline = Instant::now() + Duration::from_secs(10);
                while client.poll(deadline) {}
                assert!(client.connection.ended().is_some(), "{wire}: the connection goes on");
            }
            assert_eq!(witness.status().counters.connections_open, 1);
        }
        node.stop();
    }
}

#[test]
fn callers_with_another_key_are_counted_and_turned_away() {
    let (_node_folder, node, _) = loaded();
    let mut client = node.shm();
    let before = client.status().counters.connections_refused;
    let wrong = ClusterKey::from_bytes([8; 32]);
    for address in node.handle.addresses() {
        let refused = rackscan_fabric::connect(address, &wrong, Instant::now() + Duration::from_secs(5));
        assert!(refused.is_err(), "{address}");
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while client.status().counters.connections_refused < before + 2 {
        assert!(Instant::now() < deadline, "the refused callers were not counted");
        std::thread::sleep(Duration::from_millis(10));
    }
    node.stop();
}

#[test]
fn what_a_client_does_with_the_fabric_alone_disturbs_nobody() {
    let (_node_folder, node, table) = loaded();
    for (wire, mut client) in node.both() {
        // The node has registered nothing, so there is nothing to read or write there.
        let remote = rackscan_fabric::RemoteRegion { key: 1, address: 0, length: 4096 };
        let source = client.region.slice(0, 4096).unwrap();
        client.connection.post(5, Operation::Write { source, target: remote, target_offset: 0 }).unwrap();
        let mut events = Vec::new();
        client.connection.wait(&mut events, Instant::now() + Duration::from_secs(5));
        assert!(matches!(events[..], [Event::Completed { id: 5, outcome: Err(_) }]), "{wire}: {events:?}");
        let target = client.target(0, 1 << 20);
        assert!(client.ask(fetch(&table, vec![table.segments[0].wanted()[0]], target)).is_ok(), "{wire}");
    }
    node.stop();
}

#[test]
fn a_node_told_to_stop_answers_and_then_refuses() {
    for bridge in BRIDGES {
        let (_node_folder, node, _) = loaded_over(bridge);
        let mut client: Client = node.shm();
        client.done(Request::Stop);
        let deadline = Instant::now() + Duration::from_secs(10);
        while client.poll(deadline) {}
        assert!(client.connection.ended().is_some());
        node.handle.wait().unwrap();
    }
}
