//! Stores the state of one session at a node, and opens it by these messages:
//!
//! ```text
//! client       -- Open  -->  node           begins the session: the node allocates rings for the client
//! client       <-- Rings --  node           where these rings are; then the node connects to all nodes that it forwards to
//! other node   -- Join  -->  node           a node that forwards to this one: the node allocates rings for it
//! other node   <-- Rings --  node           where these rings are
//! client       <-- Ready --  node           all nodes that it forwards to have sent Rings, all that forward to it have joined
//! ```
//!
//! Invariants
//! - Registered memory is allocated when the session opens, and never afterwards.
//! - Any failure of a stripe ends its session. So no slices are left in rings for the next stripe
//!   to find.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_fabric::{RegionError, RegisterError, RemoteRegion};
use rackscan_stripe::Node as StripeNode;

use super::{
    lane::{ActiveStripe, in_index},
    links::Links,
    shared::{IncomingLink, NodeShared, OutgoingLink, SessionShared},
};
use crate::{
    checksum,
    counters::Counters,
    error::Failure,
    limits::PROTOCOL,
    message::{Begin, Cause, Join, Message, Rings},
    rings::{Incoming, Outgoing, RingsFault, Slots},
    shape::{Layout, Member},
    store::{Beginning, Store, StripeName},
};

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u64,
    pub(super) layout: Arc<Layout>,
    pub(super) me: usize,
    pub(super) members: Vec<Member>,
    pub(super) client: usize,
    incoming: Vec<Option<IncomingLink>>,
    outgoing: Vec<Option<OutgoingLink>>,
    own: Option<Slots>,
    zeros_of_slice: u32,
    lanes: Vec<Option<ActiveStripe>>,
    is_ready: bool,
    /// Whether there was progress since [`Session::idle`] was last called, and the last time at
    /// which it found progress.
    has_moved: bool,
    moved: Instant,
}

impl Session {
    /// Allocates memory and answers the client. Links to other nodes are still missing.
    pub(super) fn open(
        layout: Arc<Layout>,
        (number, me, members): (u64, usize, Vec<Member>),
        client: usize,
        credits: RemoteRegion,
        links: &mut Links,
    ) -> Result<Self, Failure> {
        let mine = |error: &dyn ToString| Failure::new(Some(me), Cause::Refused, error.to_string());
        let nodes = layout.nodes();
        let own = match layout.slots_of_link(layout.own) {
            0 => None,
            slots => Some(Slots::new(slots * layout.shape.slice_bytes).map_err(|error| mine(&error))?),
        };
        let mut session = Self {
            number,
            me,
            members,
            client,
            incoming: (0..=nodes).map(|_| None).collect(),
            outgoing: (0..nodes).map(|_| None).collect(),
            own,
            zeros_of_slice: checksum::of_zeros(layout.shape.slice_bytes),
            lanes: (0..layout.shape.lanes).map(|_| None).collect(),
            is_ready: false,
            has_moved: false,
            moved: Instant::now(),
            layout,
        };
        session.receive(None, client, credits, links)?;
        Ok(session)
    }

    /// The members that this node forwards to.
    pub(super) fn to_call(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.members.len()).filter(|to| self.layout.rings(Some(self.me), *to) > 0)
    }

    /// Takes the link of a node that forwards to this one.
    pub(super) fn join(&mut self, link: usize, join: &Join, links: &mut Links) -> Result<usize, Failure> {
        let from = usize::from(join.from);
        let expected = from < self.members.len() && self.layout.rings(Some(from), self.me) > 0;
        if !expected || self.incoming[in_index(Some(from))].is_some() {
            let why = format!(
                "member {from} joined the session, but does not forward to this node, or has already joined"
            );
            return Err(Failure::new(Some(from), Cause::Violation, why));
        }
        self.receive(Some(from), link, join.credits.into(), links)?;
        self.announce_if_ready(links);
        Ok(from)
    }

    /// Makes rings for a sender, and sends it their location.
    fn receive(
        &mut self,
        member: Option<usize>,
        link: usize,
        credits: RemoteRegion,
        links: &mut Links,
    ) -> Result<(), Failure> {
        let fault = |error: RingsFault| match error {
            RingsFault::Region(error) => Failure::new(Some(self.me), Cause::Refused, error),
            error => Failure::new(member, Cause::Violation, error),
        };
        let rings =
            Incoming::new(&self.layout, self.layout.rings(member, self.me), credits).map_err(fault)?;
        if let Some(link) = links.get_mut(link)
            && let Some(answer) = registered(member, rings.register(link))?
        {
            link.say(&Message::Rings(answer));
        }
        self.incoming[in_index(member)] = Some(IncomingLink { link, member, rings });
        self.has_moved = true;
        Ok(())
    }

    /// Takes the link to a node that this one forwards to.
    pub(super) fn called(&mut self, to: usize, link: usize, links: &mut Links) -> Result<(), Failure> {
        let refused = |error: RegionError| Failure::new(Some(self.me), Cause::Refused, error);
        let rings = Outgoing::new(&self.layout, self.layout.rings(Some(self.me), to)).map_err(refused)?;
        if let Some(link) = links.get_mut(link) {
            let from = u8::try_from(self.me).expect("the index of a member is below NODES_MAX");
            let (protocol, session) = (PROTOCOL, self.number);
            if let Some(credits) = registered(Some(to), rings.register(link))? {
                let credits = credits.into();
                link.say(&Message::Join(Join { protocol, session, from, credits }));
            }
        }
        self.outgoing[to] = Some(OutgoingLink { link, rings, waits: false });
        Ok(())
    }

    /// Takes the rings of a node that this one forwards to.
    pub(super) fn found(&mut self, to: usize, rings: &Rings, links: &mut Links) -> Result<(), Failure> {
        let violation = |why: String| Failure::new(Some(to), Cause::Violation, why);
        let Some(leaving) = self.outgoing.get_mut(to).and_then(Option::as_mut) else {
            return Err(violation("the peer sent the location of rings that were not requested".to_owned()));
        };
        if leaving.rings.is_found() {
            return Err(violation("the peer sent the location of its rings twice".to_owned()));
        }
        leaving.rings.found(rings).map_err(|error| violation(error.to_string()))?;
        self.has_moved = true;
        self.announce_if_ready(links);
        Ok(())
    }

    /// Tells the client that this node is ready, once all links are there.
    pub(super) fn announce_if_ready(&mut self, links: &mut Links) {
        let outgoing = |to: usize| self.outgoing[to].as_ref().is_some_and(|leaving| leaving.rings.is_found());
        let incoming = |from: usize| {
            self.layout.rings(Some(from), self.me) == 0 || self.incoming[in_index(Some(from))].is_some()
        };
        if !self.is_ready && self.to_call().all(outgoing) && (0..self.members.len()).all(incoming) {
            self.is_ready = true;
            if let Some(link) = links.get_mut(self.client) {
                link.say(&Message::Ready);
            }
        }
    }

    /// Begins a stripe.
    pub(super) fn begin(&mut self, begin: &Begin, store: &mut dyn Store) -> Result<(), Failure> {
        let violation = |why: String| Failure::new(None, Cause::Violation, why);
        let lane = usize::from(begin.lane);
        if !self.is_ready || !matches!(self.lanes.get(lane), Some(None)) {
            return Err(violation(format!("the client began a stripe in lane {lane}, which is not free")));
        }
        if !self.layout.fits(begin.cell_bytes) {
            return Err(violation(format!(
                "the client began a stripe with cells of {} bytes, which the session does not allow",
                begin.cell_bytes
            )));
        }
        let name = StripeName { session: self.number, stripe: begin.stripe };
        let node = StripeNode(u8::try_from(self.me).expect("the index of a member is below NODES_MAX"));
        let column = self.layout.geometry.column_of(name.stripe, node);
        let column = column.map_err(|error| violation(error.to_string()))?;
        let plan = &self.layout.rotation(name.stripe).columns[usize::from(column.0)];
        let kept: Vec<_> = plan.keeps.iter().map(|keeping| keeping.cell).collect();
        let (what, held, cell_bytes) = (&begin.what[..], &plan.held[..], begin.cell_bytes);
        let beginning = Beginning { name, what, held, kept: &kept, cell_bytes };
        let refused = |why: String| Failure::new(Some(self.me), Cause::Refused, why);
        let places = store.begin(&beginning).map_err(|refusal| refused(refusal.0))?;
        let underway = ActiveStripe::new(&self.layout, name, column, begin, places).map_err(|why| {
            store.given_up(name);
            refused(why)
        })?;
        self.lanes[lane] = Some(underway);
        self.has_moved = true;
        Ok(())
    }

    /// Advances all stripes as far as possible. Returns whether there was progress.
    pub(super) fn advance(
        &mut self,
        counters: &mut Counters,
        node: &mut NodeShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for lane in 0..self.lanes.len() {
            let Some(underway) = &mut self.lanes[lane] else { continue };
            let mut shared = SessionShared {
                layout: &self.layout,
                me: self.me,
                incoming: &mut self.incoming,
                outgoing: &mut self.outgoing,
                own: self.own.as_ref(),
                counters: &mut *counters,
                zeros_of_slice: self.zeros_of_slice,
            };
            moved |= underway.advance(lane, &mut shared, node)?;
            if underway.is_durable(node) {
                underway.leave_rings(lane, &mut shared);
                self.stored(lane, counters, node)?;
                moved = true;
            }
        }
        self.has_moved |= moved;
        Ok(moved)
    }

    /// If there was no progress for `limit`: a failure that names the place that is waited for.
    pub(super) fn idle(&mut self, now: Instant, limit: Duration) -> Option<Failure> {
        if std::mem::take(&mut self.has_moved) {
            self.moved = now;
        }
        if now.saturating_duration_since(self.moved) < limit {
            return None;
        }
        let (member, what) = self.awaited();
        Some(Failure::new(member, Cause::Idle, format!("{what} for {:.1} s", limit.as_secs_f64())))
    }

    /// The place that the session waits for, and why: a member that is not connected, or else the
    /// one that the first stripe waits for.
    fn awaited(&self) -> (Option<usize>, &'static str) {
        let members = 0..self.members.len();
        let is_missing = |member: &usize| {
            self.layout.rings(Some(*member), self.me) > 0 && self.incoming[in_index(Some(*member))].is_none()
        };
        let gives_no_rings = |member: &usize| {
            self.layout.rings(Some(self.me), *member) > 0
                && self.outgoing[*member].as_ref().is_none_or(|leaving| !leaving.rings.is_found())
        };
        if let Some(missing) = members.clone().find(is_missing) {
            return (Some(missing), "it has not joined the session");
        }
        if let Some(silent) = members.clone().find(gives_no_rings) {
            return (Some(silent), "it has not sent the location of its rings");
        }
        match self.stripes().next() {
            Some(underway) => underway.awaited(&self.layout, self.me),
            None => (None, "no stripe was begun"),
        }
    }

    fn stored(
        &mut self,
        lane: usize,
        counters: &mut Counters,
        node: &mut NodeShared<'_>,
    ) -> Result<(), Failure> {
        let Some(underway) = self.lanes[lane].take() else { return Ok(()) };
        let (stripe, cells) = (underway.name.stripe, underway.stored_cells());
        let (kept, held) = (cells.iter().map(|cell| cell.checksum).collect(), underway.held_checksums());
        let stored = node.store.stored(underway.name, &cells);
        // Before the client is told: this frees the places of the stripe, and the client's next
        // request may need them at once.
        drop(underway);
        stored.map_err(|refusal| Failure::new(Some(self.me), Cause::Refused, refusal))?;
        counters.stripes += 1;
        let Some(link) = node.links.get_mut(self.client) else { return Ok(()) };
        let lane = u8::try_from(lane).expect("there are at most LANES_MAX lanes");
        if link.say(&Message::Stored { lane, stripe, kept, held }) {
            return Ok(());
        }
        Err(Failure::new(None, Cause::Violation, "the client receives no messages"))
    }

    /// Takes in a slice that has arrived.
    pub(super) fn arrived(&mut self, member: Option<usize>, checksum: u32) -> Result<(), Failure> {
        let violation = |error: &dyn ToString| Failure::new(member, Cause::Violation, error.to_string());
        let arriving = self.incoming.get_mut(in_index(member)).and_then(Option::as_mut);
        let arriving =
            arriving.ok_or_else(|| violation(&"the peer sent a slice before it had rings here"))?;
        arriving.rings.arrived(checksum).map_err(|error| violation(&error))
    }

    /// The stripe of a lane, if it has one.
    pub(super) fn underway(&mut self, lane: usize) -> Option<&mut ActiveStripe> {
        self.lanes.get_mut(lane)?.as_mut()
    }

    /// Its stripes in progress.
    pub(super) fn stripes(&self) -> impl Iterator<Item = &ActiveStripe> {
        self.lanes.iter().flatten()
    }

    /// Reads the credits that receivers have granted. Returns whether any was new.
    pub(super) fn read_credits(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        for (member, leaving) in self.outgoing.iter_mut().enumerate() {
            let Some(leaving) = leaving else { continue };
            let read = leaving.rings.read_credits();
            any |= read.map_err(|error| Failure::new(Some(member), Cause::Violation, error))?;
        }
        Ok(any)
    }
}

/// The registered memory; `None` if the link is closed. The next poll reports why, after the last
/// messages of the peer.
fn registered<T>(member: Option<usize>, outcome: Result<T, RegisterError>) -> Result<Option<T>, Failure> {
    match outcome {
        Ok(name) => Ok(Some(name)),
        Err(RegisterError::Closed(_)) => Ok(None),
        Err(error) => Err(Failure::new(member, Cause::Refused, error)),
    }
}
