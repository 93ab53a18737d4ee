//! What does a node keep for one session, and when is it open?
//!
//! ```text
//! client -- Open --> node: rings for the client are registered, nodes that we forward to are called     Rings -->
//! node -- Join --> node: rings for it are registered                                                    Rings -->
//! all called nodes have rings for us, all that forward to us have joined                                Ready --> client
//! ```
//!
//! Invariants
//! - Registered memory is taken when the session opens, and never more.
//! - Whatever goes wrong with a stripe ends its session: nothing is left in rings that the next one
//!   would find.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_device::DeviceIo;
use rackscan_fabric::{RegionError, RegisterError, RemoteRegion};
use rackscan_stripe::Node as Turn;

use super::{
    disk::Disk,
    lane::{Underway, in_index},
    links::Links,
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

/// Somebody who sends to us.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) link: usize,
    /// Who; the client without.
    pub(super) member: Option<usize>,
    pub(super) rings: Incoming,
}

/// Somebody whom we send to.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) link: usize,
    pub(super) rings: Outgoing,
    /// Whether a slice waits for room there.
    pub(super) waits: bool,
}

/// What a node's sessions share.
pub(super) struct Hands<'a> {
    pub(super) links: &'a mut Links,
    pub(super) io: &'a mut dyn DeviceIo,
    pub(super) disk: &'a mut Disk,
    pub(super) store: &'a mut dyn Store,
}

/// What a session's stripes share.
pub(super) struct Parts<'a> {
    pub(super) layout: &'a Layout,
    pub(super) me: usize,
    pub(super) incoming: &'a mut [Option<Arriving>],
    pub(super) outgoing: &'a mut [Option<Leaving>],
    /// Slots of the node's own: of what it reads, and of sums.
    pub(super) own: Option<&'a Slots>,
    pub(super) counters: &'a mut Counters,
    zeros_of_slice: u32,
}

impl Parts<'_> {
    /// The checksum of so many zeros.
    pub(super) fn zeros(&self, length: usize) -> u32 {
        if length == self.layout.shape.slice_bytes { self.zeros_of_slice } else { checksum::of_zeros(length) }
    }

    /// Something is wrong with this node itself.
    pub(super) fn broken(&self, error: &impl ToString) -> Failure {
        Failure::new(Some(self.me), Cause::Violation, error.to_string())
    }
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u64,
    pub(super) layout: Arc<Layout>,
    pub(super) me: usize,
    pub(super) members: Vec<Member>,
    pub(super) client: usize,
    incoming: Vec<Option<Arriving>>,
    outgoing: Vec<Option<Leaving>>,
    own: Option<Slots>,
    zeros_of_slice: u32,
    lanes: Vec<Option<Underway>>,
    is_ready: bool,
    /// Whether anything has happened since it was asked, and when that was.
    has_moved: bool,
    moved: Instant,
}

impl Session {
    /// Takes memory and answers the client; links to other nodes are still missing.
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

    /// The nodes that we forward to.
    pub(super) fn to_call(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.members.len()).filter(|to| self.layout.rings(Some(self.me), *to) > 0)
    }

    /// A node that forwards to us has a link.
    pub(super) fn join(&mut self, link: usize, join: &Join, links: &mut Links) -> Result<usize, Failure> {
        let from = usize::from(join.from);
        let expected = from < self.members.len() && self.layout.rings(Some(from), self.me) > 0;
        if !expected || self.incoming[in_index(Some(from))].is_some() {
            let why = format!("member {from} joined, who does not forward here or did before");
            return Err(Failure::new(Some(from), Cause::Violation, why));
        }
        self.receive(Some(from), link, join.credits.into(), links)?;
        self.look_whether_ready(links);
        Ok(from)
    }

    /// Gives somebody rings.
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
        self.incoming[in_index(member)] = Some(Arriving { link, member, rings });
        self.has_moved = true;
        Ok(())
    }

    /// A node that we forward to was reached.
    pub(super) fn called(&mut self, to: usize, link: usize, links: &mut Links) -> Result<(), Failure> {
        let refused = |error: RegionError| Failure::new(Some(self.me), Cause::Refused, error);
        let rings = Outgoing::new(&self.layout, self.layout.rings(Some(self.me), to)).map_err(refused)?;
        if let Some(link) = links.get_mut(link) {
            let from = u8::try_from(self.me).unwrap_or(u8::MAX);
            let (protocol, session) = (PROTOCOL, self.number);
            if let Some(credits) = registered(Some(to), rings.register(link))? {
                let credits = credits.into();
                link.say(&Message::Join(Join { protocol, session, from, credits }));
            }
        }
        self.outgoing[to] = Some(Leaving { link, rings, waits: false });
        Ok(())
    }

    /// A node that we forward to has rings for us.
    pub(super) fn found(&mut self, to: usize, rings: &Rings, links: &mut Links) -> Result<(), Failure> {
        let violation = |why: String| Failure::new(Some(to), Cause::Violation, why);
        let Some(leaving) = self.outgoing.get_mut(to).and_then(Option::as_mut) else {
            return Err(violation("it gave rings to nobody".to_owned()));
        };
        if leaving.rings.is_found() {
            return Err(violation("it gave rings twice".to_owned()));
        }
        leaving.rings.found(rings).map_err(|error| violation(error.to_string()))?;
        self.has_moved = true;
        self.look_whether_ready(links);
        Ok(())
    }

    /// Tells the client when all links are there.
    pub(super) fn look_whether_ready(&mut self, links: &mut Links) {
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

    /// A stripe begins.
    pub(super) fn begin(&mut self, begin: &Begin, store: &mut dyn Store) -> Result<(), Failure> {
        let violation = |why: String| Failure::new(None, Cause::Violation, why);
        let lane = usize::from(begin.lane);
        if !self.is_ready || !matches!(self.lanes.get(lane), Some(None)) {
            return Err(violation(format!("it began a stripe in lane {lane}, which is not free")));
        }
        if !self.layout.fits(begin.cell_bytes) {
            return Err(violation(format!("it began a stripe with cells of {} bytes", begin.cell_bytes)));
        }
        let name = StripeName { session: self.number, stripe: begin.stripe };
        let node = Turn(u8::try_from(self.me).unwrap_or(u8::MAX));
        let column = self.layout.geometry.column_of(name.stripe, node);
        let column = column.map_err(|error| violation(error.to_string()))?;
        let plan = &self.layout.turn(name.stripe).columns[usize::from(column.0)];
        let kept: Vec<_> = plan.keeps.iter().map(|keeping| keeping.cell).collect();
        let (what, held, cell_bytes) = (&begin.what[..], &plan.held[..], begin.cell_bytes);
        let beginning = Beginning { name, what, held, kept: &kept, cell_bytes };
        let refused = |why: String| Failure::new(Some(self.me), Cause::Refused, why);
        let places = store.begin(&beginning).map_err(|refusal| refused(refusal.0))?;
        let underway = Underway::new(&self.layout, name, column, begin, places).map_err(|why| {
            store.given_up(name);
            refused(why)
        })?;
        self.lanes[lane] = Some(underway);
        self.has_moved = true;
        Ok(())
    }

    /// Does whatever can be done for its stripes. Whether anything was.
    pub(super) fn advance(
        &mut self,
        counters: &mut Counters,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for lane in 0..self.lanes.len() {
            let Some(underway) = &mut self.lanes[lane] else { continue };
            let mut parts = Parts {
                layout: &self.layout,
                me: self.me,
                incoming: &mut self.incoming,
                outgoing: &mut self.outgoing,
                own: self.own.as_ref(),
                counters: &mut *counters,
                zeros_of_slice: self.zeros_of_slice,
            };
            moved |= underway.advance(lane, &mut parts, hands)?;
            if underway.is_durable(hands) {
                underway.leave_rings(lane, &mut parts);
                self.stored(lane, counters, hands)?;
                moved = true;
            }
        }
        self.has_moved |= moved;
        Ok(moved)
    }

    /// Who is to blame that nothing has happened for so long, if that is so.
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

    /// Whom the session waits for, and why: who has not come, or else whoever the first stripe
    /// waits for.
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
            return (Some(silent), "it has given no rings");
        }
        match self.stripes().next() {
            Some(underway) => underway.awaited(&self.layout, self.me),
            None => (None, "no stripe was begun"),
        }
    }

    fn stored(&mut self, lane: usize, counters: &mut Counters, hands: &mut Hands<'_>) -> Result<(), Failure> {
        let Some(underway) = self.lanes[lane].take() else { return Ok(()) };
        let (stripe, cells) = (underway.name.stripe, underway.stored_cells());
        let (kept, held) = (cells.iter().map(|cell| cell.checksum).collect(), underway.held_checksums());
        let stored = hands.store.stored(underway.name, &cells);
        stored.map_err(|refusal| Failure::new(Some(self.me), Cause::Refused, refusal))?;
        counters.stripes += 1;
        let Some(link) = hands.links.get_mut(self.client) else { return Ok(()) };
        let lane = u8::try_from(lane).unwrap_or(u8::MAX);
        if link.say(&Message::Stored { lane, stripe, kept, held }) {
            return Ok(());
        }
        Err(Failure::new(None, Cause::Violation, "it does not take in what is said to it"))
    }

    /// A slice has come.
    pub(super) fn arrived(&mut self, member: Option<usize>, checksum: u32) -> Result<(), Failure> {
        let violation = |error: &dyn ToString| Failure::new(member, Cause::Violation, error.to_string());
        let arriving = self.incoming.get_mut(in_index(member)).and_then(Option::as_mut);
        let arriving = arriving.ok_or_else(|| violation(&"it sent a slice without a ring"))?;
        arriving.rings.arrived(checksum).map_err(|error| violation(&error))
    }

    /// The stripe of a lane, if it has one.
    pub(super) fn underway(&mut self, lane: usize) -> Option<&mut Underway> {
        self.lanes.get_mut(lane)?.as_mut()
    }

    /// Its stripes.
    pub(super) fn stripes(&self) -> impl Iterator<Item = &Underway> {
        self.lanes.iter().flatten()
    }

    /// Hears what receivers say of how far we may go. Whether anything was new.
    pub(super) fn hear_credit(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        for (member, leaving) in self.outgoing.iter_mut().enumerate() {
            let Some(leaving) = leaving else { continue };
            let heard = leaving.rings.hear();
            any |= heard.map_err(|error| Failure::new(Some(member), Cause::Violation, error))?;
        }
        Ok(any)
    }
}

/// What was registered; nothing if the link is over, of which the next poll says why: what its peer
/// said last comes first.
fn registered<T>(member: Option<usize>, outcome: Result<T, RegisterError>) -> Result<Option<T>, Failure> {
    match outcome {
        Ok(name) => Ok(Some(name)),
        Err(RegisterError::Closed(_)) => Ok(None),
        Err(error) => Err(Failure::new(member, Cause::Refused, error)),
    }
}
