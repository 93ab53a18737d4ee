//! Opens relay sessions, in which nodes compute cells from the cells that they have, and relay them
//! among themselves.
//!
//! ```text
//! status of the nodes -> their relays, all over one wire
//!  -> a session (`rackscan_relay::Writer`, on a thread of its own)
//!  -> for one stripe after the other: the extents of its cells, no bytes of them
//!
//!     Parity    the cells that a load has written -> parity cells, in reserved extents        (used by `parity`)
//!     Rebuild   the cells that survivors have     -> the cells of the node that lost its part (used by `rebuild`)
//! ```
//!
//! Invariants
//! - No byte of a cell passes through the client: it names the extents of cells, and receives their
//!   checksums.
//! - A stripe counts as done when all nodes have stored it durably, and the checksums of the
//!   written cells agree with those of the cells that were read.
//! - Any failure ends the session; its caller does the remaining stripes in another way.

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
    pace::Pace,
    streams::parity_of,
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

/// The purpose of a relay session.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// The parities of a load's set.
    Parity { load: TableId, set: u32 },
    /// The cells of the node at this position in a table's set.
    Rebuild { table: TableId, set: SetId, place: usize },
}

impl Purpose {
    fn task(self) -> Task {
        match self {
            Self::Parity { .. } => Task::Protect,
            Self::Rebuild { place, .. } => Task::Rebuild(LostMembers::of(&[place])),
        }
    }

    /// The description of a stripe for a node that holds and keeps these cells of it.
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

/// The extents of a cell, with neighbouring pieces merged; nothing behind the end of its stream.
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
    /// The relays of these nodes, each over the wire by which the node is reached; `None` if a node
    /// has no such relay, or relays are not to be used.
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

/// An open relay session.
pub(super) struct RelaySession {
    jobs: mpsc::Sender<u64>,
    /// A result for each job, and the failure that ends the session. The channel has no bound of
    /// its own. All results are taken after each job, so it holds at most those of the jobs that
    /// waited or were relayed then (`RELAY_LANES` each), of that job, and the failure.
    results: mpsc::UnboundedReceiver<Result<RelayedStripe, String>>,
}

/// A relayed stripe, which is on the disks of all nodes.
#[derive(Debug)]
pub(super) struct RelayedStripe {
    pub(super) stripe: u64,
    /// The CRC-32C of each cell that was read or kept, ascending by cell.
    pub(super) checksums: Vec<(Cell, u32)>,
    /// The cells that were kept, and the bytes read from devices for them.
    pub(super) kept: Vec<Cell>,
    pub(super) read_bytes: u64,
}

impl Relays {
    /// The shape of a session over a set, reduced until it fits the memory of relays.
    fn shape(&self, stripes: &Stripes, purpose: Purpose) -> Result<Shape, String> {
        let (parity, cell_bytes) = (parity_of(stripes.set.protection), stripes.cell_bytes());
        let mut shape = Shape { lanes: RELAY_LANES, ..Shape::new(parity, purpose.task(), cell_bytes) };
        let slice_bytes_max = usize::try_from(cell_bytes).expect("the bytes of a cell: they fit 32 bits");
        shape.slice_bytes = shape.slice_bytes.min(slice_bytes_max);
        loop {
            let bytes = shape.node_bytes(self.members.len()).map_err(|error| error.to_string())?;
            match (bytes > RELAY_SESSION_BYTES_MAX, shape.slots) {
                (true, slots) if slots > 2 => shape.slots = slots / 2,
                _ => return Ok(shape),
            }
        }
    }

    /// Opens a session for the stripes of a set.
    pub(super) async fn open(
        &self,
        stripes: &Arc<Stripes>,
        purpose: Purpose,
    ) -> Result<RelaySession, String> {
        let shape = self.shape(stripes, purpose)?;
        let (jobs, work) = mpsc::channel(RELAY_LANES);
        let (to_results, results) = mpsc::unbounded_channel();
        let (opened, is_open) = oneshot::channel();
        let (relays, of) = (self.clone(), Arc::clone(stripes));
        let run = move || match relays.writer(shape) {
            Ok(writer) => {
                // The caller may have gone; then there is no work either.
                let _ = opened.send(Ok(()));
                RelayThread { writer, stripes: of, purpose, results: to_results }.run(work);
            }
            Err(why) => drop(opened.send(Err(why))),
        };
        let thread = std::thread::Builder::new().name("stripes".to_owned()).spawn(run);
        thread.map_err(|error| format!("no thread could be started: {error}"))?;
        is_open.await.map_err(|_| "the session's thread has ended".to_owned())??;
        Ok(RelaySession { jobs, results })
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

impl RelaySession {
    /// Relays these stripes as fast as `pace` allows. `numbers` are the stripes, each with the
    /// bytes that are read for it. Calls `done` for each stripe that is on all disks.
    ///
    /// # Errors
    /// What went wrong, if not all stripes were relayed.
    pub(super) async fn carry(
        mut self,
        numbers: impl Iterator<Item = (u64, u64)>,
        pace: Option<&Pace<'_>>,
        mut done: impl FnMut(RelayedStripe) -> Result<(), String>,
    ) -> Result<(), String> {
        for (number, bytes) in numbers {
            if let Some(pace) = pace {
                pace.take(bytes).await;
            }
            if self.jobs.send(number).await.is_err() {
                break;
            }
            while let Ok(ended) = self.results.try_recv() {
                done(ended?)?;
            }
        }
        drop(self.jobs);
        while let Some(ended) = self.results.recv().await {
            done(ended?)?;
        }
        Ok(())
    }
}

/// The thread that drives a session.
struct RelayThread {
    writer: Writer,
    stripes: Arc<Stripes>,
    purpose: Purpose,
    results: mpsc::UnboundedSender<Result<RelayedStripe, String>>,
}

impl RelayThread {
    /// Relays stripes until there are no more, something goes wrong, or the receiver is dropped.
    fn run(mut self, mut work: mpsc::Receiver<u64>) {
        if let Err(why) = self.relay(&mut work) {
            // The receiver may be dropped.
            let _ = self.results.send(Err(why));
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
            // While more stripes may come, look for the next one often.
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

    /// Reports that a stripe has ended.
    ///
    /// # Errors
    /// If the stripe failed, or the receiver is dropped because the caller has given up.
    fn tell(&self, ended: Ended) -> Result<(), String> {
        let relayed = self.ended(ended)?;
        self.results.send(Ok(relayed)).map_err(|_| "nobody listens".to_owned())
    }

    fn ended(&self, Ended { number, outcome, checksums }: Ended) -> Result<RelayedStripe, String> {
        outcome.map_err(|end| end.to_string())?;
        let (mut kept, mut read_bytes) = (Vec::new(), 0);
        for member in 0..self.stripes.set.streams.len() {
            let (held, keeps) = self.writer.cells(number, member);
            kept.extend_from_slice(&keeps);
            read_bytes += held.iter().map(|cell| stored_bytes(&self.stripes, number, *cell)).sum::<u64>();
        }
        Ok(RelayedStripe { stripe: number, checksums, kept, read_bytes })
    }
}
