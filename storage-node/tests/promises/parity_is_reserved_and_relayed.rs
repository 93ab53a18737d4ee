//! Promise: relayed stripes write only parity cells that a load has reserved, and places that a
//! node has lost and adopted, but no place that may be whole; a reserved cell that was not written
//! becomes part of no table.
//!
//! Method: two nodes, of which the test asks the first one and the second one discards its cells.
//! With two nodes, each of them gets the client's cell, as data or as its parity.

use std::time::{Duration, Instant};

use rackscan_fabric::{Region, connect};
use rackscan_format::{
    codec,
    ids::{NodeId, TableId},
    message::{Adopt, Answer, Refusal, RefusalCode, RelayedTo, Request, ReserveParity, Verify},
    segment::Extent,
    stripe_set::{ParityCell, SetId, TableMap},
};
use rackscan_relay::{Member, Shape, Stripe, Writer};
use rackscan_storage_node::{ByteSize, PeerConfig};
use rackscan_stripe::{Parity, Way};

use crate::{
    places_take_only_their_bytes::{bytes, lose},
    protected_tables_need_their_maps::{CELL, held, keep_map, map, prepare, table, used_bytes},
    support::{
        client::Client,
        node::{NodeFolder, Running},
        table::Table,
    },
};

const LOAD: TableId = TableId(7);
const SET: SetId = SetId { load: LOAD, number: 0 };
/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two nodes that relay.
struct Pair {
    node_folders: [NodeFolder; 2],
    nodes: [Running; 2],
}

impl Pair {
    fn start(node_folders: [NodeFolder; 2]) -> Self {
        let peer = |number: usize| PeerConfig {
            node: id(number),
            addresses: vec![node_folders[number].relay_socket()],
            relay: vec![node_folders[number].relay_socket()],
        };
        let start = |number: usize| {
            let mut config = node_folders[number].config();
            (config.node, config.relay) = (id(number), vec![node_folders[number].relay_socket()]);
            (config.memory_budget, config.relay_memory) = (ByteSize(96 << 20), Some(ByteSize(16 << 20)));
            config.peers = vec![peer(1 - number)];
            config.transactions = Some(ByteSize(0));
            node_folders[number].start_with(config).expect("the node starts")
        };
        let nodes = [start(0), start(1)];
        Self { node_folders, nodes }
    }

    fn client(&self) -> Client {
        self.nodes[0].shm()
    }

    /// Has the first node keep these bytes as a cell.
    fn relay(&self, to: &RelayedTo, cell: &[u8]) -> Result<(), String> {
        let members = [0, 1]
            .map(|number| Member { node: id(number), address: self.node_folders[number].relay_socket() });
        let (key, deadline) = (&self.node_folders[0].key, Instant::now() + PATIENCE);
        let shape = Shape { slice_bytes: 4096, ..Shape::new(Parity::Xor, Way::Relay, 1 << 20) };
        let reach = |address: &_| connect(address, key, deadline);
        let mut writer = Writer::open(shape, members.into(), reach, deadline).map_err(|e| e.to_string())?;
        let region = Region::allocate(cell.len()).expect("memory for a test");
        region.copy_in(0, cell).expect("it fits");
        let data = [region.slice(0, cell.len()).expect("it fits")];
        let what = [to, &RelayedTo::Memory].map(|to| to.encode().expect("it is small"));
        let stripe = Stripe { number: 0, cell_bytes: cell.len() as u64, what: &what, data: &data };
        writer.write(&stripe).map_err(|error| error.to_string())?;
        let ended = writer.wait(deadline).expect("a stripe ends in time");
        ended.outcome.map_err(|end| end.to_string())
    }

    fn restarted(self) -> Self {
        self.nodes.into_iter().for_each(Running::stop);
        Self::start(self.node_folders)
    }

    fn stop(self) {
        self.nodes.into_iter().for_each(Running::stop);
    }
}

fn id(number: usize) -> NodeId {
    NodeId(3 + u16::try_from(number).expect("two"))
}

fn cell(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..CELL).map(|_| random.u8(..)).collect()
}

fn parity(first_cell: u32) -> RelayedTo {
    RelayedTo::Parity { load: LOAD, set: 0, first_cell, held: Vec::new() }
}

fn reserve(client: &mut Client, load: u32, first_cell: u32, cells: u32) -> Result<Vec<Extent>, Refusal> {
    ask_for(client, ReserveParity { load: TableId(load), set: 0, first_cell, cells, cell_bytes: CELL })
}

fn ask_for(client: &mut Client, request: ReserveParity) -> Result<Vec<Extent>, Refusal> {
    match client.ask(Request::ReserveParity(request))? {
        Answer::ParityPlaced { extents } => Ok(extents),
        other => panic!("{other:?}"),
    }
}

fn corrupt(client: &mut Client) -> (u64, Vec<u64>) {
    let verify = Verify { set: SET, from: 0, bytes_max: u64::MAX };
    match client.ask(Request::Verify(verify)) {
        Ok(Answer::Verified(found)) if found.next.is_none() => (found.places, found.corrupt),
        other => panic!("{other:?}"),
    }
}

/// Loads table 7, with two cells of parity that stripes brought.
fn loaded(pair: &Pair) -> TableMap {
    let (table, mut client) = (table(7), pair.client());
    table.append_all(&mut client);
    let extents = reserve(&mut client, 7, 0, 2).expect("there is room");
    let cells = [0, 1].map(cell);
    let known =
        |(extent, cell): (&Extent, &Vec<u8>)| ParityCell { extent: *extent, checksum: codec::checksum(cell) };
    let known: Vec<ParityCell> = extents.iter().zip(&cells).map(known).collect();
    let map = map(&table, held(&mut client, 7), known);
    assert_eq!(keep_map(&mut client, 7, &map.encode_envelope().expect("it is right")), Ok(Answer::Done));
    for (number, cell) in (0_u32..).zip(&cells) {
        let refused = prepare(&mut client, &table).expect_err("a cell is missing");
        let says = format!("cell {number} was reserved here and has not been written, set 7.0");
        assert!(refused.text.contains(&says), "{refused:?}");
        pair.relay(&parity(number), cell).expect("it is stored");
    }
    let again = pair.relay(&parity(1), &cells[1]).expect_err("it was written");
    assert!(again.contains("cell 1 of parity of set 7.0 has been written before"), "{again}");
    assert_eq!(prepare(&mut client, &table), Ok(Answer::Done));
    client.done(Request::CommitPublish { load: LOAD });
    for (extent, cell) in extents.iter().zip(&cells) {
        assert!(bytes(&pair.node_folders[0], extent) == *cell);
    }
    map
}

#[test]
fn stripes_bring_the_parity_for_which_there_is_room_and_the_table_has_it_after_a_restart() {
    let pair = Pair::start([NodeFolder::new(), NodeFolder::new()]);
    loaded(&pair);
    let pair = pair.restarted();
    assert_eq!(corrupt(&mut pair.client()).1, [0_u64; 0]);
    let late = pair.relay(&parity(0), &cell(0)).unwrap_err();
    assert!(late.contains("load 7 was aborted"), "{late}");
    pair.stop();
}

#[test]
fn a_stripe_is_refused_where_nothing_was_reserved_for_it() {
    let pair = Pair::start([NodeFolder::new(), NodeFolder::new()]);
    let mut client = pair.client();
    reserve(&mut client, 7, 2, 1).expect("there is room");
    for (to, length, says) in [
        (parity(1), CELL, "cell 1 of parity of set 7.0 is not reserved here"),
        (parity(3), CELL, "cell 3 of parity of set 7.0 is not reserved here"),
        (parity(2), 4096, "has 8192 bytes here, the stripe's cells have 4096"),
    ] {
        let refused = pair.relay(&to, &vec![1; length as usize]).unwrap_err();
        assert!(refused.contains("node 3") && refused.contains(says), "{refused}, expected {says}");
    }
    pair.relay(&parity(2), &cell(2)).expect("it is stored");
    client.done(Request::AbortLoad { load: LOAD });
    let refused = pair.relay(&parity(2), &cell(2)).unwrap_err();
    assert!(refused.contains("load 7 was aborted"), "{refused}");
    drop(client);
    pair.stop();
}

#[test]
fn room_that_was_reserved_is_free_when_its_load_is_gone_and_what_cannot_be_reserved_takes_none() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let empty = used_bytes(&node);
    let mut client = node.shm();
    let extents = reserve(&mut client, 7, 0, 64).expect("there is room");
    assert!(extents.len() == 64 && extents.iter().all(|extent| extent.length_bytes == CELL));
    assert_eq!(used_bytes(&node), empty + 64 * u64::from(CELL));
    for first_cell in [0, 63] {
        let twice = reserve(&mut client, 7, first_cell, 2).unwrap_err();
        assert!(twice.text.contains("has arrived before"), "{twice:?}");
    }
    assert_eq!(reserve(&mut client, 7, u32::MAX, 2).unwrap_err().code, RefusalCode::Malformed);
    let good = ReserveParity { load: LOAD, set: 1, first_cell: 0, cells: 1, cell_bytes: CELL };
    for cell_bytes in [0, 4095, 12_288, 2 << 20, u32::MAX] {
        let refused = ask_for(&mut client, ReserveParity { cell_bytes, ..good }).unwrap_err();
        assert_eq!(refused.code, RefusalCode::Malformed, "{cell_bytes}: {refused:?}");
    }
    let full = ReserveParity { load: TableId(8), cells: 64, cell_bytes: 1 << 20, ..good };
    assert_eq!(ask_for(&mut client, full).unwrap_err().code, RefusalCode::Full);
    assert_eq!(used_bytes(&node), empty + 64 * u64::from(CELL), "nothing of what was refused");
    client.done(Request::AbortLoad { load: LOAD });
    assert_eq!(used_bytes(&node), empty);
    let aborted = reserve(&mut client, 7, 0, 1).unwrap_err();
    assert_eq!(aborted.code, RefusalCode::NotFound, "{aborted:?}");
    reserve(&mut client, 9, 0, 3).expect("there is room");
    drop(client);
    let deadline = Instant::now() + PATIENCE;
    while used_bytes(&node) != empty {
        assert!(Instant::now() < deadline, "its connection is gone, and it has room");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = node.shm();
    Table::new(10, "t", 1, 1000).load(&mut client);
    let refused = reserve(&mut client, 10, 0, 1).unwrap_err();
    assert!(refused.text.contains("a load needs a fresh id"), "{refused:?}");
    drop(client);
    node.stop();
}

#[test]
fn what_was_lost_and_adopted_is_rebuilt_by_stripes_until_it_is_found_whole() {
    let pair = Pair::start([NodeFolder::new(), NodeFolder::new()]);
    let map = loaded(&pair);
    let stream = &map.sets[0].streams[0];
    let extents = stream.extents().chain(stream.parity.iter().map(|cell| cell.extent));
    let places: Vec<(Extent, Vec<u8>)> =
        extents.map(|extent| (extent, bytes(&pair.node_folders[0], &extent))).collect();
    let rebuild = |extent: Extent| RelayedTo::Rebuild {
        table: LOAD,
        set: SET,
        held: Vec::new(),
        kept: vec![vec![extent]],
    };
    let (first, last) = (places[0].clone(), places[places.len() - 1].clone());
    let refused = pair.relay(&rebuild(first.0), &vec![1; first.1.len()]).unwrap_err();
    assert!(refused.contains("its places take only their bytes"), "{refused}");
    let Pair { node_folders, nodes } = pair;
    nodes.into_iter().for_each(Running::stop);
    lose(&node_folders[0]);
    let pair = Pair::start(node_folders);
    let refused = pair.relay(&rebuild(first.0), &first.1).unwrap_err();
    assert!(refused.contains("no table 7 with stripe set 7.0 is published here"), "{refused}");
    let mut client = pair.client();
    assert_eq!(keep_map(&mut client, 7, &map.encode_envelope().expect("it is right")), Ok(Answer::Done));
    assert_eq!(client.ask(Request::Adopt(Adopt { table: LOAD })), Ok(Answer::Done));
    let all: Vec<u64> = (0..places.len() as u64).collect();
    assert_eq!(corrupt(&mut client), (all.len() as u64, all.clone()));
    let refused = pair.relay(&rebuild(last.0), &cell(77)).unwrap_err();
    assert!(refused.contains("is not its parity"), "{refused}");
    let beside = Extent { offset_bytes: last.0.offset_bytes + (8 << 20), ..last.0 };
    let refused = pair.relay(&rebuild(beside), &last.1).unwrap_err();
    assert!(refused.contains("elsewhere than to places"), "{refused}");
    for (extent, whole) in &places {
        pair.relay(&rebuild(*extent), whole).expect("it is stored");
    }
    for (extent, whole) in &places {
        assert!(bytes(&pair.node_folders[0], extent) == *whole);
    }
    // Nobody has looked yet.
    pair.relay(&rebuild(first.0), &first.1).expect("it is stored");
    assert_eq!(corrupt(&mut client), (all.len() as u64, Vec::new()));
    let refused = pair.relay(&rebuild(first.0), &vec![1; first.1.len()]).unwrap_err();
    assert!(refused.contains("has been found whole since"), "{refused}");
    assert_eq!(corrupt(&mut client).1, [0_u64; 0]);
    drop(client);
    pair.stop();
}

#[test]
fn after_a_restart_nobody_knows_what_of_an_adopted_part_is_whole_and_stripes_are_refused() {
    let pair = Pair::start([NodeFolder::new(), NodeFolder::new()]);
    let map = loaded(&pair);
    let extent = map.sets[0].streams[0].parity[0].extent;
    let Pair { node_folders, nodes } = pair;
    nodes.into_iter().for_each(Running::stop);
    lose(&node_folders[0]);
    let pair = Pair::start(node_folders);
    let mut client = pair.client();
    assert_eq!(keep_map(&mut client, 7, &map.encode_envelope().expect("it is right")), Ok(Answer::Done));
    assert_eq!(client.ask(Request::Adopt(Adopt { table: LOAD })), Ok(Answer::Done));
    drop(client);
    let pair = pair.restarted();
    let to = RelayedTo::Rebuild { table: LOAD, set: SET, held: Vec::new(), kept: vec![vec![extent]] };
    let refused = pair.relay(&to, &cell(0)).unwrap_err();
    assert!(refused.contains("was not adopted since this node started"), "{refused}");
    pair.stop();
}
