//! Tests what a peer can do that knows the cluster key but ignores the protocol: nodes close its
//! connections, other sessions continue, nothing panics, and no memory grows.

use rackscan_fabric::{
    Access, Connection, Event, Operation, Region, RemoteRegion,
    sim::{Random, Seed},
};
use rackscan_format::ids::NodeId;
use rackscan_stripe::{Parity, Way};

use super::cluster::{Cluster, place_of};
use crate::{
    Cause, Shape, Task, Who,
    limits::{EARLY_MAX, PROTOCOL},
    message::{Begin, Ends, Join, Message, Open, Rings},
    ring::{Credit, SliceName},
};

fn shape() -> Shape {
    Shape {
        parity: Parity::TwoD,
        task: Task::Write(Way::Relay),
        cell_bytes_max: 16384,
        slice_bytes: 4096,
        lanes: 2,
        slots: 2,
    }
}

/// A hostile peer with one connection.
struct Mallory {
    connection: Connection,
    events: Vec<Event>,
}

impl Mallory {
    fn to(cluster: &Cluster, node: usize) -> Self {
        let connection =
            cluster.net.connect("mallory", &cluster.members[node].address, &cluster.key).unwrap();
        Self { connection, events: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        // A link that was hung up on takes nothing.
        let _ = self.connection.post(1, Operation::Send { bytes });
    }

    fn say(&mut self, message: &Message) {
        self.send(&message.encode().unwrap());
    }

    fn turn(&mut self, cluster: &mut Cluster, turns: usize) {
        for _ in 0..turns {
            cluster.turn();
            self.connection.poll(&mut self.events);
        }
    }

    fn messages(&self) -> Vec<Message> {
        let message = |event: &Event| match event {
            Event::Message { bytes } => Message::decode(bytes).ok(),
            _ => None,
        };
        self.events.iter().filter_map(message).collect()
    }

    fn is_hung_up_on(&self) -> bool {
        self.connection.ended().is_some()
    }
}

fn open_of(cluster: &Cluster, you: u8, credits: RemoteRegion) -> Open {
    Open {
        protocol: PROTOCOL,
        session: 99,
        parity: Parity::TwoD,
        task: Task::Write(Way::Relay),
        cell_bytes_max: 16384,
        slice_bytes: 4096,
        lanes: 2,
        slots: 2,
        members: cluster.members.iter().map(|member| (member.node, member.address.to_string())).collect(),
        you,
        credits: credits.into(),
    }
}

/// A client of all nodes that does by hand what it likes: its links, the credits, and where each
/// node's rings are.
fn client(cluster: &mut Cluster) -> (Vec<Mallory>, Vec<Region>, Vec<(RemoteRegion, RemoteRegion)>) {
    client_with(cluster, |credits| credits)
}

/// The same, with a wrong claim about its credits.
fn client_with(
    cluster: &mut Cluster,
    say: impl Fn(RemoteRegion) -> RemoteRegion,
) -> (Vec<Mallory>, Vec<Region>, Vec<(RemoteRegion, RemoteRegion)>) {
    let nodes = cluster.members.len();
    let (mut links, mut credits) = (Vec::new(), Vec::new());
    for node in 0..nodes {
        let mut link = Mallory::to(cluster, node);
        let words = Region::allocate(4096).unwrap();
        let name = link.connection.register(&words, Access::Write).unwrap();
        let open = open_of(cluster, u8::try_from(node).unwrap(), say(name));
        link.say(&Message::Open(open));
        links.push(link);
        credits.push(words);
    }
    for _ in 0..5000 {
        cluster.turn();
        for link in &mut links {
            link.connection.poll(&mut link.events);
        }
    }
    let rings = |link: &Mallory| {
        assert!(link.messages().contains(&Message::Ready), "{:?}", link.events);
        let found = link.messages().into_iter().find_map(|message| match message {
            Message::Rings(Rings { slots, journal }) => Some((slots.into(), journal.into())),
            _ => None,
        });
        found.unwrap()
    };
    let rings = links.iter().map(rings).collect();
    (links, credits, rings)
}

/// Whoever was wronged says so, and an honest writer finds all nodes in order.
fn assert_others_go_on(cluster: &mut Cluster) {
    cluster.ended.clear();
    let mut writer = cluster.open();
    cluster.write(&mut writer, &[(500, 8192), (501, 16384)]);
    cluster.assert_all_stored();
    assert_eq!(cluster.ended.len(), 2);
}

#[test]
fn garbage_is_hung_up_on_and_others_go_on() {
    Seed::each(8, |seed| {
        let mut cluster = Cluster::new(seed, 3, shape());
        let mut random = Random::new(seed);
        let valid = [
            Message::Ready,
            Message::Rings(Rings { slots: name().into(), journal: name().into() }),
            Message::Begin(Begin { lane: 0, stripe: 0, cell_bytes: 4096, what: vec![1; 100] }),
            Message::Stored { lane: 0, stripe: 0, kept: vec![1, 2, 3], held: vec![4] },
        ];
        for round in 0..40 {
            let mut mallory = Mallory::to(&cluster, 0);
            let mut bytes: Vec<u8> = match valid.get(round) {
                Some(message) => message.encode().unwrap(),
                None => valid[2].encode().unwrap(),
            };
            if round >= valid.len() {
                let length = bytes.len();
                bytes[random.index(length)] ^= 1 << random.index(8);
                bytes.truncate(1 + random.index(length));
            }
            mallory.send(&bytes);
            mallory.turn(&mut cluster, 400);
            assert!(mallory.is_hung_up_on(), "{bytes:?}");
        }
        assert_others_go_on(&mut cluster);
    })
    .unwrap();
}

fn name() -> RemoteRegion {
    RemoteRegion { key: 1, address: 0, length: 1 << 40 }
}

#[test]
fn sessions_that_do_not_fit_are_refused_with_the_reason() {
    let mut cluster = Cluster::new(Seed::new(1), 3, shape());
    let good = open_of(&cluster, 0, name());
    let stranger = (NodeId(77), "sim:1/elsewhere".to_owned());
    let bad = [
        ("own", Open { you: 1, ..good.clone() }),
        ("out of range", Open { you: 200, ..good.clone() }),
        ("protocol", Open { protocol: 99, ..good.clone() }),
        ("strange", Open { members: [good.members.clone(), vec![stranger]].concat(), ..good.clone() }),
        ("twice", Open { members: vec![good.members[0].clone(); 3], ..good.clone() }),
        ("few", Open { members: good.members[..2].to_vec(), ..good.clone() }),
        ("many lanes", Open { lanes: u16::MAX, ..good.clone() }),
        ("no slots", Open { slots: 0, ..good.clone() }),
        ("odd slices", Open { slice_bytes: 4097, ..good.clone() }),
        ("long slices", Open { slice_bytes: u32::MAX, ..good.clone() }),
        ("long cells", Open { cell_bytes_max: u64::MAX, ..good.clone() }),
        (
            "memory",
            Open { slots: 1024, slice_bytes: 4 << 20, lanes: 64, cell_bytes_max: 1 << 32, ..good.clone() },
        ),
        ("credits", Open { credits: RemoteRegion { length: 8, ..name() }.into(), ..good.clone() }),
    ];
    for (what, open) in bad {
        let mut mallory = Mallory::to(&cluster, 0);
        let is_of_our_protocol = open.protocol == PROTOCOL;
        mallory.say(&Message::Open(open));
        mallory.turn(&mut cluster, 400);
        assert!(mallory.is_hung_up_on(), "{what}");
        let refusals = mallory.messages();
        assert_eq!(refusals.len(), usize::from(is_of_our_protocol), "{what}: {refusals:?}");
        assert!(refusals.iter().all(|message| matches!(message, Message::Ends(_))), "{what}");
    }
    assert!(cluster.nodes.iter().flatten().all(|node| node.sessions() == 0));
    assert_others_go_on(&mut cluster);
}

#[test]
fn links_that_wait_for_a_session_are_bounded() {
    let mut cluster = Cluster::new(Seed::new(2), 3, shape());
    let mut many = Vec::new();
    for session in 0..EARLY_MAX as u64 + 20 {
        let mut mallory = Mallory::to(&cluster, 1);
        let join = Join { protocol: PROTOCOL, session, from: 0, credits: name().into() };
        mallory.say(&Message::Join(join));
        mallory.turn(&mut cluster, 2);
        many.push(mallory);
    }
    for _ in 0..50 {
        cluster.turn();
        many.iter_mut().for_each(|mallory| {
            mallory.connection.poll(&mut mallory.events);
        });
    }
    assert_eq!(many.iter().filter(|mallory| mallory.is_hung_up_on()).count(), 20);
    drop(many);
    // Until the node has noticed that they are closed, it accepts no others.
    (0..500).for_each(|_| cluster.turn());
    assert_others_go_on(&mut cluster);
}

#[test]
fn a_client_that_breaks_the_protocol_ends_its_session_and_no_other() {
    type Break = fn(&mut Mallory, RemoteRegion, RemoteRegion);
    let breaks: [(&str, Break); 9] = [
        ("a lane that is not there", |link, _, _| link.say(&beginning(9, 4096))),
        ("a lane twice", |link, _, _| (0..2).for_each(|_| link.say(&beginning(0, 4096)))),
        ("cells too long", |link, _, _| link.say(&beginning(0, 1 << 20))),
        ("cells that are no sectors", |link, _, _| link.say(&beginning(0, 5000))),
        ("a second open", |link, _, _| link.say(&Message::Ready)),
        ("a slice in a ring that is not there", |link, slots, journal| {
            link.slice(slots, journal, 0, SliceName { ring: 999, slice: 0, stripe: 0 });
        }),
        ("more slices than slots", |link, slots, journal| {
            for position in 0..3 {
                let slice = u32::try_from(position).unwrap();
                link.slice(slots, journal, position, SliceName { ring: 0, slice, stripe: 7 });
            }
        }),
        ("slices out of order", |link, slots, journal| {
            link.slice(slots, journal, 0, SliceName { ring: 0, slice: 1, stripe: 7 });
            link.say(&beginning(0, 16384));
        }),
        ("slices of another stripe", |link, slots, journal| {
            link.slice(slots, journal, 0, SliceName { ring: 0, slice: 0, stripe: 8 });
            link.say(&beginning(0, 16384));
        }),
    ];
    for (what, act) in breaks {
        let mut cluster = Cluster::new(Seed::new(3), 3, shape());
        let (mut links, credits, rings) = client(&mut cluster);
        act(&mut links[1], rings[1].0, rings[1].1);
        for _ in 0..1000 {
            cluster.turn();
            links.iter_mut().for_each(|link| {
                link.connection.poll(&mut link.events);
            });
        }
        assert!(links.iter().all(Mallory::is_hung_up_on), "{what}");
        for node in cluster.nodes.iter_mut().flatten() {
            assert_eq!(node.sessions(), 0, "{what}");
            let ends = node.take_ended();
            assert!(
                ends.iter().all(|end| end.who == Who::Client && end.cause == Cause::Violation),
                "{ends:?}"
            );
        }
        drop((links, credits));
        assert_others_go_on(&mut cluster);
    }
}

fn beginning(lane: u8, cell_bytes: u64) -> Message {
    Message::Begin(Begin { lane, stripe: 7, cell_bytes, what: Vec::new() })
}

impl Mallory {
    /// Zeros, with a checksum that is not theirs.
    fn slice(&mut self, slots: RemoteRegion, journal: RemoteRegion, position: u64, name: SliceName) {
        self.zeros((slots, journal), position, name, 5);
    }

    fn zeros(
        &mut self,
        (slots, journal): (RemoteRegion, RemoteRegion),
        position: u64,
        name: SliceName,
        immediate: u32,
    ) {
        let word = name.to_word().to_le_bytes();
        let target_offset = 8 * position;
        self.connection
            .post(2, Operation::WriteBytes { bytes: &word, target: journal, target_offset })
            .unwrap();
        let bytes = Region::allocate(4096).unwrap();
        let source = bytes.whole();
        let write = Operation::WriteWithImmediate { source, target: slots, target_offset: 0, immediate };
        self.connection.post(3, write).unwrap();
    }
}

#[test]
fn bytes_that_are_not_what_their_checksum_says_are_never_stored() {
    let mut cluster = Cluster::new(Seed::new(4), 3, shape());
    let (mut links, credits, rings) = client(&mut cluster);
    for link in &mut links {
        link.say(&beginning(0, 4096));
    }
    // Whichever node has a data cell of this stripe in its first ring gets zeros with a wrong
    // checksum.
    for (link, (slots, journal)) in links.iter_mut().zip(&rings) {
        link.slice(*slots, *journal, 0, SliceName { ring: 0, slice: 0, stripe: 7 });
    }
    for _ in 0..3000 {
        cluster.turn();
        links.iter_mut().for_each(|link| {
            link.connection.poll(&mut link.events);
        });
    }
    let said: Vec<Message> = links.iter().flat_map(Mallory::messages).collect();
    assert!(!said.iter().any(|message| matches!(message, Message::Stored { .. })), "{said:?}");
    let is_checksum =
        |message: &Message| matches!(message, Message::Ends(Ends { cause: Cause::Checksum, .. }));
    assert!(said.iter().any(is_checksum), "{said:?}");
    for node in cluster.nodes.iter_mut().flatten() {
        assert!(node.store().stored.is_empty());
    }
    drop(credits);
    assert_others_go_on(&mut cluster);
}

#[test]
fn a_client_whose_credits_lie_where_no_memory_can_be_is_named() {
    let mut cluster = Cluster::new(Seed::new(6), 3, shape());
    let (mut links, credits, rings) = client_with(&mut cluster, |credits| RemoteRegion {
        address: u64::MAX - 4,
        length: 1 << 40,
        ..credits
    });
    // Credit of the second lane lies behind that of the first, so it cannot even be posted, and
    // nothing of it ever completes.
    let ring = crate::shape::Layout::new(shape(), 3).unwrap().rings(None, 1);
    links[1].say(&beginning(1, 16384));
    for position in 0..2 {
        let name = SliceName {
            ring: u16::try_from(ring).unwrap(),
            slice: u32::try_from(position).unwrap(),
            stripe: 7,
        };
        links[1].zeros(rings[1], position, name, crate::checksum::of_zeros(4096));
    }
    for _ in 0..1000 {
        cluster.turn();
        links.iter_mut().for_each(|link| {
            link.connection.poll(&mut link.events);
        });
    }
    let ends = cluster.nodes[1].as_mut().unwrap().take_ended();
    assert!(ends.iter().any(|end| end.who == Who::Client && end.cause == Cause::Violation), "{ends:?}");
    drop((links, credits));
    assert_others_go_on(&mut cluster);
}

#[test]
fn a_node_that_gives_credit_for_what_was_not_sent_is_hung_up_on() {
    // Mallory listens where node 2 should, and gives rings to whoever joins.
    let mut cluster = Cluster::new(Seed::new(5), 3, shape());
    cluster.nodes[2] = None;
    let mut listener = cluster.net.listen(&place_of(2), &cluster.key).unwrap();
    let (net, key) = (cluster.net.clone(), cluster.key.clone());
    let connect = |address: &rackscan_fabric::Address| net.connect("client", address, &key);
    let mut writer = crate::Writer::ask(shape(), cluster.members.clone(), connect).unwrap();
    let memory = Region::allocate(1 << 20).unwrap();
    let mut held: Vec<(Connection, Vec<Event>)> = Vec::new();
    for _ in 0..5000 {
        cluster.turn();
        writer.turn();
        while let Some(connection) = listener.accept().unwrap() {
            held.push((connection, Vec::new()));
        }
        for (connection, events) in &mut held {
            connection.poll(events);
            for event in events.drain(..) {
                let Event::Message { bytes } = event else { continue };
                answer(connection, &memory, &bytes);
            }
        }
        if writer.end().is_some() {
            break;
        }
        if writer.has_room() && writer.under_way() == 0 {
            let filled = super::cluster::Filled::new(&cluster.geometry, Task::Write(Way::Relay), 1, 8192);
            let what = vec![Vec::new(); 3];
            let stripe = crate::Stripe { number: 1, cell_bytes: 8192, what: &what, data: &filled.data };
            writer.write(&stripe).unwrap();
        }
    }
    let end = writer.end().expect("it is found out");
    assert!(matches!(end.who, Who::Node { node: NodeId(20), .. }) && end.cause == Cause::Violation, "{end}");
    drop((writer, held));
    cluster.settle();
}

/// Rings for anybody, and credit for everything.
fn answer(connection: &mut Connection, memory: &Region, bytes: &[u8]) {
    let credits: RemoteRegion = match Message::decode(bytes) {
        Ok(Message::Open(open)) => open.credits.into(),
        Ok(Message::Join(join)) => join.credits.into(),
        _ => return,
    };
    let name = connection.register(memory, Access::Write).unwrap().into();
    let rings = Message::Rings(Rings { slots: name, journal: name }).encode().unwrap();
    connection.post(1, Operation::Send { bytes: &rings }).unwrap();
    connection.post(2, Operation::Send { bytes: &Message::Ready.encode().unwrap() }).unwrap();
    let words: Vec<u8> =
        (0..credits.length / Credit::BYTES as u64).flat_map(|_| Credit(1000).to_bytes()).collect();
    connection.post(3, Operation::WriteBytes { bytes: &words, target: credits, target_offset: 0 }).unwrap();
}
