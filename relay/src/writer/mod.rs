//! Writes stripes from a client, or has nodes compute parities or rebuild cells.
//!
//! A [`Writer`] opens a session with all nodes, accepts stripes as long as a lane is free, and
//! reports for each stripe whether it was stored on all disks, and otherwise which place was at
//! fault. It runs in the caller's thread, which sleeps while nothing moves. `flight` sends one
//! stripe.
//!
//! Invariants
//! - A stripe counts as stored when every node has reported it as stored, and the reported
//!   checksums agree with those of the data, or of the cells that the nodes have read.
//! - Any failure ends the session with all stripes in progress. The caller may then open a new
//!   session.
//! - The caller must not change data until its stripe has ended. A stripe does not end before the
//!   writer's own operations have completed, so the next stripe of its lane gets no completions of
//!   the stripe before.

mod flight;

use std::{
    collections::VecDeque,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rackscan_fabric::{Address, ConnectError, Connection, Ending, Region, RegionSlice, spin_time};
use rackscan_stripe::{Cell, Node};
use rustix::event::{PollFd, PollFlags, Timespec};

use self::flight::{Flight, NodeLink, Shared};
use crate::{
    counters::Counters,
    error::{Failure, SessionEnd, WriteError},
    limits::{PROTOCOL, SPIN, WHAT_BYTES_MAX},
    link::{Link, LinkEvent},
    message::{Begin, Cause, Message, Open},
    rings::{Outgoing, whole_pages},
    shape::{Layout, Member, Shape},
};

/// A stripe to be written.
#[derive(Clone, Debug)]
pub struct Stripe<'a> {
    /// Its number, which determines the rotation of its columns.
    pub number: u64,
    /// Bytes of every cell: a multiple of [`crate::limits::SECTOR_BYTES`], at most the session's
    /// maximum.
    pub cell_bytes: u64,
    /// The description for each node's store, by index of the member.
    pub what: &'a [Vec<u8>],
    /// The bytes of each data cell, in the order of [`rackscan_stripe::Geometry::data`], in
    /// registered memory, from where they are sent. Zeros follow if they are shorter than a cell.
    /// Empty if nodes have the data ([`crate::Task::Protect`], [`crate::Task::Rebuild`]).
    pub data: &'a [RegionSlice],
}

/// How a stripe ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub number: u64,
    /// `Ok` if it is on the disks of all nodes that keep some of it; else why the session ended.
    pub outcome: Result<(), SessionEnd>,
    /// The CRC-32Cs, as far as known, of the cells that nodes kept or read, ascending.
    pub checksums: Vec<(Cell, u32)>,
}

/// A client's end of a session.
#[derive(Debug)]
pub struct Writer {
    layout: Layout,
    members: Vec<Member>,
    reached: Vec<NodeLink>,
    sums: Option<Region>,
    zeros: Region,
    lanes: Vec<Option<Flight>>,
    ended: VecDeque<Ended>,
    end: Option<SessionEnd>,
    counters: Counters,
    happened: Vec<LinkEvent>,
}

impl Writer {
    /// Asks all nodes for a session. [`Writer::is_open`] says when all have agreed.
    ///
    /// # Errors
    /// [`WriteError`]: for the shape, the order of the members, a failed `connect`, or memory.
    pub fn ask(
        shape: Shape,
        members: Vec<Member>,
        mut connect: impl FnMut(&Address) -> Result<Connection, ConnectError>,
    ) -> Result<Self, WriteError> {
        if !members.is_sorted_by(|one, other| one.node < other.node) {
            return Err(WriteError::Order);
        }
        let layout = Layout::new(shape, members.len())?;
        let sum_slots = layout.slots_of_link(layout.client.sums.len());
        let sums = (sum_slots > 0).then(|| Region::allocate(sum_slots * shape.slice_bytes)).transpose()?;
        let zeros = Region::allocate(whole_pages(shape.slice_bytes))?;
        let session = getrandom::u64().map_err(|error| WriteError::Random { why: error.to_string() })?;
        let mut reached = Vec::with_capacity(members.len());
        for (you, member) in members.iter().enumerate() {
            let node = member.node;
            let connection =
                connect(&member.address).map_err(|source| WriteError::Connect { node, source })?;
            let mut link = Link::new(connection);
            let rings = Outgoing::new(&layout, layout.rings(None, you))?;
            let credits =
                rings.register(&mut link).map_err(|source| WriteError::Register { node, source })?;
            link.say(&Message::Open(opening(&layout, session, &members, you, credits)));
            reached.push(NodeLink { node, link, rings, is_ready: false, waits: false });
        }
        Ok(Self {
            lanes: (0..shape.lanes).map(|_| None).collect(),
            layout,
            members,
            reached,
            sums,
            zeros,
            ended: VecDeque::new(),
            end: None,
            counters: Counters::default(),
            happened: Vec::new(),
        })
    }

    /// As [`Writer::ask`], and waits until all nodes have agreed.
    ///
    /// # Errors
    /// As [`Writer::ask`], and if a node refused, or was silent until the deadline.
    pub fn open(
        shape: Shape,
        members: Vec<Member>,
        connect: impl FnMut(&Address) -> Result<Connection, ConnectError>,
        deadline: Instant,
    ) -> Result<Self, WriteError> {
        let mut writer = Self::ask(shape, members, connect)?;
        while !writer.is_open() {
            writer.move_until(deadline);
            if let Some(end) = writer.end {
                return Err(WriteError::Ended(end));
            }
            if Instant::now() >= deadline && !writer.is_open() {
                let silent = writer.reached.iter().filter(|reached| !reached.is_ready);
                let silent: Vec<String> = silent.map(|reached| reached.node.to_string()).collect();
                return Err(WriteError::TimedOut { silent: silent.join(", ") });
            }
        }
        Ok(writer)
    }

    /// Whether all nodes have agreed, and the session has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.end.is_none() && self.reached.iter().all(|reached| reached.is_ready && reached.rings.is_found())
    }

    /// Why the session has ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<&SessionEnd> {
        self.end.as_ref()
    }

    /// Whether another stripe can be accepted now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.is_open() && self.lanes.iter().any(Option::is_none)
    }

    /// Operations that move slices and have not completed.
    #[cfg(test)]
    pub(crate) fn slices_in_flight(&self) -> usize {
        self.reached.iter().map(|reached| reached.link.slices_in_flight()).sum()
    }

    /// The number of stripes in progress.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.lanes.iter().flatten().count()
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let of = |reached: &NodeLink| reached.link.get().counters();
        let (written_bytes, messages) =
            self.reached.iter().map(of).fold((0, 0), |(bytes, sends), counters| {
                (bytes + counters.written_bytes, sends + counters.sends)
            });
        Counters { written_bytes, messages, ..self.counters }
    }

    /// The cells of a stripe that a member reads, and those that it keeps, ascending. Its store is
    /// told of these. Both are empty if there is no such member.
    #[must_use]
    pub fn cells(&self, stripe: u64, member: usize) -> (&[Cell], Vec<Cell>) {
        let node = u8::try_from(member).ok().map(Node);
        let column = node.and_then(|node| self.layout.geometry.column_of(stripe, node).ok());
        let plan = column.and_then(|column| self.layout.rotation(stripe).columns.get(usize::from(column.0)));
        plan.map_or((&[], Vec::new()), |plan| {
            (&plan.held, plan.keeps.iter().map(|keeping| keeping.cell).collect())
        })
    }

    /// Accepts a stripe. Its data must not change until it has ended.
    ///
    /// # Errors
    /// [`WriteError`]; then nothing has happened.
    pub fn write(&mut self, stripe: &Stripe<'_>) -> Result<(), WriteError> {
        if let Some(end) = &self.end {
            return Err(WriteError::Ended(end.clone()));
        }
        if !self.is_open() {
            return Err(WriteError::NotOpen);
        }
        self.check(stripe)?;
        let lanes = self.lanes.len();
        let lane = self.lanes.iter().position(Option::is_none).ok_or(WriteError::LanesFull { lanes })?;
        let (number, cell_bytes) = (stripe.number, stripe.cell_bytes);
        for (member, what) in stripe.what.iter().enumerate() {
            let what = what.clone();
            let lane = u8::try_from(lane).expect("there are at most LANES_MAX lanes");
            let begin = Begin { lane, stripe: number, cell_bytes, what };
            if !self.reached[member].link.say(&Message::Begin(begin)) {
                let failure = Failure::new(Some(member), Cause::Violation, "the node receives no messages");
                self.fail(failure.clone());
                return Err(WriteError::Ended(failure.into_session_end(&self.members)));
            }
        }
        let flight = Flight::new(&self.layout, number, cell_bytes, stripe.data.to_vec());
        self.lanes[lane] = Some(flight);
        Ok(())
    }

    fn check(&self, stripe: &Stripe<'_>) -> Result<(), WriteError> {
        let wrong = |what, found: u64, expected: String| WriteError::Stripe {
            stripe: stripe.number,
            what,
            found,
            expected,
        };
        if !self.layout.fits(stripe.cell_bytes) {
            let most = self.layout.shape.cell_bytes_max;
            return Err(wrong(
                "the length of its cells",
                stripe.cell_bytes,
                format!("a multiple of the sector size up to {most} bytes"),
            ));
        }
        let (cells, nodes) = (self.layout.client.origins.len(), self.members.len());
        if stripe.data.len() != cells {
            return Err(wrong("the number of its data cells", stripe.data.len() as u64, cells.to_string()));
        }
        if stripe.what.len() != nodes {
            return Err(wrong("the number of descriptions", stripe.what.len() as u64, nodes.to_string()));
        }
        let longest = stripe.what.iter().map(Vec::len).max().unwrap_or(0);
        if longest > WHAT_BYTES_MAX {
            return Err(wrong(
                "the length of a description",
                longest as u64,
                format!("up to {WHAT_BYTES_MAX}"),
            ));
        }
        let longest = stripe.data.iter().map(RegionSlice::len).max().unwrap_or(0) as u64;
        if longest > stripe.cell_bytes {
            return Err(wrong(
                "the length of a cell's data",
                longest,
                format!("up to {}", stripe.cell_bytes),
            ));
        }
        if self.lanes.iter().flatten().any(|flight| flight.stripe == stripe.number) {
            return Err(wrong("its number", stripe.number, "a number not in progress".to_owned()));
        }
        Ok(())
    }

    /// Polls everything once, without waiting. Returns whether anything happened.
    pub fn turn(&mut self) -> bool {
        let mut moved = false;
        let mut happened = std::mem::take(&mut self.happened);
        for member in 0..self.reached.len() {
            moved |= self.reached[member].link.poll(&mut happened);
            for event in happened.drain(..) {
                if let Err(failure) = self.handle(member, event) {
                    self.fail(failure);
                }
            }
        }
        self.happened = happened;
        moved | self.advance()
    }

    /// The next stripe that has ended, if there is one.
    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Works until a stripe has ended, and returns it. `None` if none is in progress, or at the
    /// deadline. The death of a node is noticed without a deadline; a node that is connected but
    /// does nothing is not. Dropping the writer ends the session.
    pub fn wait(&mut self, deadline: Instant) -> Option<Ended> {
        while self.ended.is_empty() && self.under_way() > 0 && Instant::now() < deadline {
            self.move_until(deadline);
        }
        self.ended.pop_front()
    }

    /// Works until something has happened, or until the deadline.
    pub fn move_until(&mut self, deadline: Instant) {
        let spin_until = Instant::now() + spin_time(SPIN);
        while !self.turn() {
            let now = Instant::now();
            if now >= deadline {
                return;
            }
            if now < spin_until {
                std::thread::yield_now();
            } else {
                self.sleep(deadline - now);
            }
        }
    }

    /// Sleeps until a link has an event, at most for `time`.
    fn sleep(&mut self, time: Duration) {
        let armed = self.reached.iter_mut().all(|reached| reached.link.arm());
        if !armed || self.read_credits() {
            return;
        }
        let fds = self.reached.iter().map(|reached| reached.link.get().as_fd());
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(time).ok();
        // The result does not matter: the links are polled next.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    /// Reads the credits of all nodes. Returns whether any was new, or violated the protocol.
    fn read_credits(&mut self) -> bool {
        let mut any = false;
        for member in 0..self.reached.len() {
            match self.reached[member].rings.read_credits() {
                Ok(read) => any |= read,
                Err(error) => {
                    self.fail(Failure::new(Some(member), Cause::Violation, error));
                    return true;
                }
            }
        }
        any
    }

    fn handle(&mut self, member: usize, event: LinkEvent) -> Result<(), Failure> {
        let violation = |why: &dyn ToString| Failure::new(Some(member), Cause::Violation, why.to_string());
        match event {
            LinkEvent::Message(bytes) => {
                let message = Message::decode(&bytes).map_err(|error| violation(&error))?;
                self.handle_message(member, message)
            }
            LinkEvent::Arrived(_) => Err(violation(&"the node sent a slice to a client")),
            LinkEvent::Refused(why) => Err(violation(&why)),
            LinkEvent::Unposted(why) => Err(Failure::new(None, Cause::Violation, why)),
            LinkEvent::Sent { lane, send } => {
                if let Some(flight) = self.lanes.get_mut(lane).and_then(Option::as_mut) {
                    flight.sent(send);
                }
                Ok(())
            }
            LinkEvent::Closed(ending) => {
                let cause = match ending {
                    Ending::Orderly => Cause::Closed,
                    Ending::Violation { .. } => Cause::Violation,
                    _ => Cause::Lost,
                };
                Err(Failure::new(Some(member), cause, ending))
            }
        }
    }

    fn handle_message(&mut self, member: usize, message: Message) -> Result<(), Failure> {
        let violation = |why: String| Failure::new(Some(member), Cause::Violation, why);
        let reached = &mut self.reached[member];
        match message {
            Message::Rings(rings) if !reached.rings.is_found() => {
                reached.rings.found(&rings).map_err(|error| violation(error.to_string()))
            }
            Message::Ready if !reached.is_ready => {
                reached.is_ready = true;
                Ok(())
            }
            Message::Stored { lane, stripe, kept, held } => {
                let flight = self.lanes.get_mut(usize::from(lane)).and_then(Option::as_mut);
                match flight.filter(|flight| flight.stripe == stripe) {
                    Some(flight) => flight.stored(&self.layout, member, &kept, &held),
                    None => Err(violation(format!("the node stored stripe {stripe}, which nobody sent"))),
                }
            }
            Message::Look => Ok(()),
            Message::Ends(ends) => Err(Failure::from_message(ends, self.members.len(), Some(member))),
            other => Err(violation(format!("the node sent an unexpected message to the client: {other:?}"))),
        }
    }

    /// Sends as much as possible, lane by lane in their order.
    fn advance(&mut self) -> bool {
        let mut moved = false;
        if self.end.is_some() {
            return false;
        }
        loop {
            let mut shared = Shared {
                layout: &self.layout,
                reached: &mut self.reached,
                sums: self.sums.as_ref(),
                zeros: &self.zeros,
                counters: &mut self.counters,
            };
            let mut any = false;
            let mut failed = None;
            for (lane, flight) in self.lanes.iter_mut().enumerate() {
                let Some(flight) = flight else { continue };
                match flight.advance(lane, &mut shared) {
                    Ok(advanced) => any |= advanced,
                    Err(failure) => failed = Some(failure),
                }
            }
            if let Some(failure) = failed {
                self.fail(failure);
                return true;
            }
            if !any {
                break;
            }
            moved = true;
        }
        moved | self.end_stored()
    }

    fn end_stored(&mut self) -> bool {
        let mut any = false;
        for lane in &mut self.lanes {
            if let Some(flight) = lane.take_if(|flight| flight.is_stored() && flight.is_through()) {
                self.counters.stripes += 1;
                let checksums = flight.checksums(&self.layout);
                self.ended.push_back(Ended { number: flight.stripe, outcome: Ok(()), checksums });
                any = true;
            }
        }
        any
    }

    /// Ends the session: tells all nodes, and ends all stripes in progress.
    fn fail(&mut self, failure: Failure) {
        if self.end.is_some() {
            return;
        }
        let ends = Message::Ends(failure.to_message());
        for reached in &mut self.reached {
            reached.link.say_last(&ends);
        }
        let end = failure.into_session_end(&self.members);
        for flight in self.lanes.iter_mut().filter_map(Option::take) {
            // A stripe that all nodes have stored stays stored, whatever fails afterwards.
            let outcome = if flight.is_stored() { Ok(()) } else { Err(end.clone()) };
            self.counters.stripes += u64::from(outcome.is_ok());
            let checksums = flight.checksums(&self.layout);
            self.ended.push_back(Ended { number: flight.stripe, outcome, checksums });
        }
        self.end = Some(end);
    }
}

fn opening(
    layout: &Layout,
    session: u64,
    members: &[Member],
    you: usize,
    credits: rackscan_fabric::RemoteRegion,
) -> Open {
    let Shape { parity, task, cell_bytes_max, slice_bytes, lanes, slots } = layout.shape;
    Open {
        protocol: PROTOCOL,
        session,
        parity,
        task,
        cell_bytes_max,
        slice_bytes: u32::try_from(slice_bytes).expect("a slice has at most SLICE_BYTES_MAX bytes"),
        lanes: u16::try_from(lanes).expect("there are at most LANES_MAX lanes"),
        slots: u16::try_from(slots).expect("a ring has at most SLOTS_MAX slots"),
        members: members.iter().map(|member| (member.node, member.address.to_string())).collect(),
        you: u8::try_from(you).expect("the index of a member is below NODES_MAX"),
        credits: credits.into(),
    }
}
