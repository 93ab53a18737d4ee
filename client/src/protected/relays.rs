//! How does a client have nodes make cells of what they hold, among themselves?
//!
//! ```text
//! status of the nodes -> relays of one wire -> a session (`rackscan_relay::Writer`, a thread of its own) -> stripe after stripe: where cells lie, no bytes
//!     Parity    what a load has written -> its parities, into room that was reserved       (parity)
//!     Rebuild   what survivors have     -> the cells of the one that lost its part          (rebuild)
//! ```
//!
//! Invariants
//! - No byte of a cell passes the client: it says where cells lie, and hears their checksums.
//! - A stripe counts when all nodes have it on disk, and the checksums of what was read give those
//!   of what was kept.
//! - Whatever goes wrong ends the session; its caller does what is left in another way.

use std::{sync::Arc, time::Instant};

use futures::future::try_join_all;
use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::{
    ids::{NodeId, TableId},
    message::RelayedTo,
    segment::Extent,
    stripe_set::SetId,
};
use rackscan_relay::{Ended, LostMembers, Member, Shape, Stripe, Task, Writer};
use rackscan_stripe::Cell;
use tokio::sync::{mpsc, oneshot};

use super::{
    layout::parity_of,
    pace::Pace,
    stripes::{CellRange, Piece, Stripes},
};
use crate::{
    Cluster,
    limits::{CONNECT_TIME_MAX, GREETING_TIME_MAX, RELAY_LANES, RELAY_LOOK, RELAY_SESSION_BYTES_MAX},
};

/// The relays of some nodes, in the order of their ids.
#[derive(Debug, Clone)]
pub(super) struct Relays {
    members: Vec<Member>,
    key: ClusterKey,
}

/// What stripes are relayed for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// The parities of a load's set.
    Parity { load: TableId, set: u32 },
    /// The cells of the node at this place of a table's set.
    Rebuild { table: TableId, set: SetId, place: usize },
}

impl Purpose {
    fn task(self) -> Task {
        match self {
            Self::Parity { .. } => Task::Protect,
            Self::Rebuild { place, .. } => Task::Rebuild(LostMembers::of(&[place])),
        }
    }

    /// What a node is told of a stripe of which it holds and keeps these cells.
    fn describe(
        self,
        stripes: &Stripes,
        stripe: u64,
        (held, kept): (&[Cell], Vec<Cell>),
    ) -> Result<Vec<u8>, String> {
        let places = |cells: &[Cell]| -> Result<Vec<Vec<Extent>>, String> {
            cells.iter().map(|cell| extents(stripes, stripe, *cell)).collect()
        };
        let held = places(held)?;
        let to = match self {
            Self::Parity { load, set } => {
                let first = kept.first().and_then(|cell| stripes.layout.held(stripe, *cell));
                let first_cell = u32::try_from(first.map_or(0, |first| first.index));
                let first_cell = first_cell.map_err(|error| error.to_string())?;
                RelayedTo::Parity { load, set, first_cell, held }
            }
            Self::Rebuild { table, set, .. } => RelayedTo::Rebuild { table, set, held, kept: places(&kept)? },
        };
        to.encode().map_err(|error| error.to_string())
    }
}

/// Where a cell lies, neighbouring pieces as one; nothing behind the end of its stream.
fn extents(stripes: &Stripes, stripe: u64, cell: Cell) -> Result<Vec<Extent>, String> {
    let range = CellRange { stripe, cell, from: 0, length: stripes.cell_bytes() };
    let (_, pieces) =
        stripes.pieces(&range).ok_or_else(|| format!("cell {cell:?} of stripe {stripe} lies nowhere"))?;
    let mut extents: Vec<Extent> = Vec::new();
    for Piece { extent, .. } in pieces {
        match extents.last_mut() {
            Some(last) if last.device == extent.device && last.end_bytes() == Some(extent.offset_bytes) => {
                last.length_bytes += extent.length_bytes;
            }
            _ => extents.push(extent),
        }
    }
    Ok(extents)
}

/// Bytes of a cell that lie on a device.
pub(super) fn stored_bytes(stripes: &Stripes, stripe: u64, cell: Cell) -> u64 {
    let extents = extents(stripes, stripe, cell).unwrap_or_default();
    extents.iter().map(|extent| u64::from(extent.length_bytes)).sum()
}

impl Cluster {
    /// The relays of these nodes, all over one wire: the one over which the cluster is reached, if
    /// there is one; nothing if a node has none, or relays are not to be used.
    pub(super) async fn relays(&self, nodes: &[NodeId]) -> Option<Relays> {
        if !self.uses_relays || !nodes.is_sorted_by(|one, other| one < other) {
            return None;
        }
        let statuses = try_join_all(nodes.iter().map(|node| self.status(*node))).await.ok()?;
        let mut members = Vec::with_capacity(nodes.len());
        for (node, status) in nodes.iter().zip(statuses) {
            let wire = self.address(*node)?.wire();
            let addresses: Vec<Address> =
                status.relays.iter().filter_map(|relay| relay.address.parse().ok()).collect();
            let address = addresses.into_iter().find(|address| address.wire() == wire)?;
            members.push(Member { node: *node, address });
        }
        Some(Relays { members, key: self.shared.key.clone() })
    }
}

/// A session that is open.
pub(super) struct Relaying {
    jobs: mpsc::Sender<u64>,
    ended: mpsc::UnboundedReceiver<Result<Relayed, String>>,
}

/// A stripe that is on all disks.
#[derive(Debug)]
pub(super) struct Relayed {
    pub(super) stripe: u64,
    /// Of each cell that was read or kept, its CRC-32C, ascending.
    pub(super) checksums: Vec<(Cell, u32)>,
    /// Those that were kept, and bytes on devices that were read for them.
    pub(super) kept: Vec<Cell>,
    pub(super) read_bytes: u64,
}

impl Relays {
    /// The shape of a session over a set, as small as needed to fit what nodes have for relays.
    fn shape(&self, stripes: &Stripes, purpose: Purpose) -> Result<Shape, String> {
        let (parity, cell_bytes) = (parity_of(stripes.set.protection), stripes.cell_bytes());
        let mut shape = Shape { lanes: RELAY_LANES, ..Shape::new(parity, purpose.task(), cell_bytes) };
        shape.slice_bytes = shape.slice_bytes.min(usize::try_from(cell_bytes).unwrap_or(usize::MAX));
        loop {
            let bytes = shape.node_bytes(self.members.len()).map_err(|error| error.to_string())?;
            match (bytes > RELAY_SESSION_BYTES_MAX, shape.slots) {
                (true, slots) if slots > 2 => shape.slots = slots / 2,
                _ => return Ok(shape),
            }
        }
    }

    /// Opens a session for the stripes of a set.
    pub(super) async fn open(&self, stripes: &Arc<Stripes>, purpose: Purpose) -> Result<Relaying, String> {
        let shape = self.shape(stripes, purpose)?;
        let (jobs, work) = mpsc::channel(RELAY_LANES);
        let (told, ended) = mpsc::unbounded_channel();
        let (opened, is_open) = oneshot::channel();
        let (relays, of) = (self.clone(), Arc::clone(stripes));
        let run = move || match relays.writer(shape) {
            Ok(writer) => {
                // Whoever asked may have gone; then there is no work either.
                let _ = opened.send(Ok(()));
                Thread { writer, stripes: of, purpose, told }.run(work);
            }
            Err(why) => drop(opened.send(Err(why))),
        };
        let thread = std::thread::Builder::new().name("stripes".to_owned()).spawn(run);
        thread.map_err(|error| format!("no thread could be started: {error}"))?;
        is_open.await.map_err(|_| "the session's thread has ended".to_owned())??;
        Ok(Relaying { jobs, ended })
    }

    fn writer(&self, shape: Shape) -> Result<Writer, String> {
        let by = Instant::now() + CONNECT_TIME_MAX;
        let key_of = |address: &Address| {
            let member = self.members.iter().find(|member| member.address == *address);
            member.map_or_else(|| self.key.of_any_node(), |member| self.key.of_node(member.node.0))
        };
        let connect = |address: &Address| rackscan_fabric::connect(address, &key_of(address), by);
        let deadline = Instant::now() + GREETING_TIME_MAX;
        Writer::open(shape, self.members.clone(), connect, deadline).map_err(|error| error.to_string())
    }
}

impl Relaying {
    /// Relays these stripes, of each of which so many bytes are read, as fast as `pace` allows;
    /// `done` hears of each that is on all disks. What went wrong, if not all are.
    pub(super) async fn carry(
        mut self,
        numbers: impl Iterator<Item = (u64, u64)>,
        pace: Option<&Pace<'_>>,
        mut done: impl FnMut(Relayed) -> Result<(), String>,
    ) -> Result<(), String> {
        for (number, bytes) in numbers {
            if let Some(pace) = pace {
                pace.take(bytes).await;
            }
            if self.jobs.send(number).await.is_err() {
                break;
            }
            while let Ok(ended) = self.ended.try_recv() {
                done(ended?)?;
            }
        }
        drop(self.jobs);
        while let Some(ended) = self.ended.recv().await {
            done(ended?)?;
        }
        Ok(())
    }
}

/// What drives a session.
struct Thread {
    writer: Writer,
    stripes: Arc<Stripes>,
    purpose: Purpose,
    told: mpsc::UnboundedSender<Result<Relayed, String>>,
}

impl Thread {
    /// Relays what it is given until there is no more, or something goes wrong, or nobody listens.
    fn run(mut self, mut work: mpsc::Receiver<u64>) {
        if let Err(why) = self.relay(&mut work) {
            // Nobody may listen any more.
            let _ = self.told.send(Err(why));
        }
    }

    fn relay(&mut self, work: &mut mpsc::Receiver<u64>) -> Result<(), String> {
        let mut is_over = false;
        loop {
            while !is_over && self.writer.has_room() {
                let next = match self.writer.under_way() {
                    0 => work.blocking_recv(),
                    _ => match work.try_recv() {
                        Ok(number) => Some(number),
                        Err(mpsc::error::TryRecvError::Empty) => break,
                        Err(mpsc::error::TryRecvError::Disconnected) => None,
                    },
                };
                match next {
                    Some(number) => self.begin(number)?,
                    None => is_over = true,
                }
            }
            // Several may have ended at once.
            while let Some(ended) = self.writer.next_ended() {
                self.tell(ended)?;
            }
            if let Some(end) = self.writer.end() {
                return Err(end.to_string());
            }
            if is_over && self.writer.under_way() == 0 {
                return Ok(());
            }
            // Whoever still has stripes to come may come with one at any moment.
            let look = if !is_over && self.writer.has_room() { RELAY_LOOK } else { GREETING_TIME_MAX };
            if let Some(ended) = self.writer.wait(Instant::now() + look) {
                self.tell(ended)?;
            }
        }
    }

    fn begin(&mut self, number: u64) -> Result<(), String> {
        let members = 0..self.stripes.set.streams.len();
        let describe =
            |member: usize| self.purpose.describe(&self.stripes, number, self.writer.cells(number, member));
        let what = members.map(describe).collect::<Result<Vec<_>, _>>()?;
        let cell_bytes = self.stripes.cell_bytes();
        let stripe = Stripe { number, cell_bytes, what: &what, data: &[] };
        self.writer.write(&stripe).map_err(|error| error.to_string())
    }

    /// Says that a stripe has ended; who does not listen any more has given up.
    fn tell(&self, ended: Ended) -> Result<(), String> {
        let relayed = self.ended(ended)?;
        self.told.send(Ok(relayed)).map_err(|_| "nobody listens".to_owned())
    }

    fn ended(&self, Ended { number, outcome, checksums }: Ended) -> Result<Relayed, String> {
        outcome.map_err(|end| end.to_string())?;
        let (mut kept, mut read_bytes) = (Vec::new(), 0);
        for member in 0..self.stripes.set.streams.len() {
            let (held, keeps) = self.writer.cells(number, member);
            kept.extend_from_slice(&keeps);
            read_bytes += held.iter().map(|cell| stored_bytes(&self.stripes, number, *cell)).sum::<u64>();
        }
        Ok(Relayed { stripe: number, checksums, kept, read_bytes })
    }
}
