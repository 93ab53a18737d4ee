//! How does a session come to be at a node: what is said, in which order, by whom?
//!
//! Clients and nodes reach a node over different connections, so a node that forwards may be here
//! before the client: it waits, for a while.
//!
//! Invariants
//! - Nothing is taken for a session whose members this node does not know, or that does not fit its
//!   memory.

use rackscan_device::DeviceIo;
use rackscan_fabric::Address;

use super::{Node, links::Role, session::Session};
use crate::{
    error::Failure,
    limits::SESSIONS_MAX,
    message::{Cause, Join, Message, Open},
    shape::{Member, Shape},
    store::Store,
};

impl<I: DeviceIo, S: Store> Node<I, S> {
    /// A message has come.
    pub(super) fn hear(&mut self, index: usize, message: Message) {
        let Some(role) = self.links.role(index).cloned() else { return };
        match (role, message) {
            (_, Message::Look) => {}
            (Role::New, Message::Open(open)) => self.open(index, &open),
            (Role::New, Message::Join(join)) => self.joined(index, join),
            (Role::Client(session), Message::Begin(begin)) => {
                let Some(of) = self.sessions.get_mut(&session) else { return };
                if let Err(failure) = of.begin(&begin, &mut self.store) {
                    self.end(session, failure);
                }
            }
            (Role::To(session, member), Message::Rings(rings)) => {
                let Some(of) = self.sessions.get_mut(&session) else { return };
                if let Err(failure) = of.found(member, &rings, &mut self.links) {
                    self.end(session, failure);
                }
            }
            (role, Message::Ends(ends)) => match role.session() {
                Some((session, peer)) => {
                    let members = self.sessions.get(&session).map_or(0, |session| session.members.len());
                    self.end(session, Failure::heard(ends, members, peer));
                }
                None => self.drop_link(index),
            },
            (role, _) => {
                let why = format!("it said something that nobody says as {role:?}");
                self.fault(index, Cause::Violation, &why);
            }
        }
    }

    /// A client opens a session.
    fn open(&mut self, index: usize, open: &Open) {
        match self.opened(index, open) {
            Ok(session) => {
                let number = session.number;
                let to_call: Vec<(usize, Address)> =
                    session.to_call().map(|to| (to, session.members[to].address.clone())).collect();
                self.sessions.insert(number, session);
                self.links.set_role(index, Role::Client(number));
                for (member, address) in to_call {
                    self.next_call += 1;
                    self.called.insert(self.next_call, (number, member));
                    self.calls.call(self.next_call, &address);
                }
                let waiting = |role: &Role| matches!(role, Role::Early(join) if join.session == number);
                for early in self.links.with(waiting) {
                    if let Some(Role::Early(join)) = self.links.role(early).cloned() {
                        self.join(early, &join);
                    }
                }
                if let Some(session) = self.sessions.get_mut(&number) {
                    session.look_whether_ready(&mut self.links);
                }
            }
            Err(failure) => {
                tracing::warn!(why = failure.why, "a session was refused");
                if let Some(link) = self.links.get_mut(index) {
                    link.say_last(&Message::Ends(failure.to_message()));
                }
                self.drop_link(index);
            }
        }
    }

    fn opened(&mut self, index: usize, open: &Open) -> Result<Session, Failure> {
        let me = usize::from(open.you);
        let refused = |why: String| Failure::new(Some(me), Cause::Refused, why);
        let members = self.members(open).map_err(refused)?;
        if members.get(me).is_none_or(|member| member.node != self.config.node) {
            return Err(refused(format!(
                "this is node {}, not what the client takes it for",
                self.config.node
            )));
        }
        if self.sessions.len() >= SESSIONS_MAX || self.sessions.contains_key(&open.session) {
            return Err(refused(format!("{} sessions are open here, or this one is", self.sessions.len())));
        }
        let shape = Shape {
            parity: open.parity,
            task: open.task,
            cell_bytes_max: open.cell_bytes_max,
            slice_bytes: usize::try_from(open.slice_bytes).unwrap_or(usize::MAX),
            lanes: usize::from(open.lanes),
            slots: usize::from(open.slots),
        };
        let layout = self.layouts.of(shape, members.len()).map_err(|error| refused(error.to_string()))?;
        let taken: u64 = self.sessions.values().map(|session| session.layout.node_bytes()).sum();
        let (needed, memory) = (layout.node_bytes(), self.config.memory_bytes);
        if taken.saturating_add(needed) > memory {
            let why =
                format!("the session needs {needed} bytes of memory here, {taken} of {memory} are taken");
            return Err(refused(why));
        }
        Session::open(layout, (open.session, me, members), index, open.credits.into(), &mut self.links)
    }

    /// The members of a session, all of whom this node knows.
    fn members(&self, open: &Open) -> Result<Vec<Member>, String> {
        let ascending = open.members.is_sorted_by(|(one, _), (other, _)| one < other);
        if !ascending {
            return Err("the nodes are not in ascending order".to_owned());
        }
        let known = |(node, address): &(_, String)| {
            let same = |peer: &&Member| peer.node == *node && peer.address.to_string() == *address;
            let peer = self.config.peers.iter().find(same).cloned();
            peer.ok_or_else(|| format!("node {node} at {address} is not known here"))
        };
        open.members.iter().map(known).collect()
    }

    /// A node that forwards to us says in which session.
    fn joined(&mut self, index: usize, join: Join) {
        if self.sessions.contains_key(&join.session) {
            return self.join(index, &join);
        }
        // How many of these there may be was asked when the link came.
        self.links.set_role(index, Role::Early(join));
    }

    fn join(&mut self, index: usize, join: &Join) {
        let Some(session) = self.sessions.get_mut(&join.session) else { return };
        match session.join(index, join, &mut self.links) {
            Ok(member) => self.links.set_role(index, Role::From(join.session, member)),
            // Anybody may claim to be a member: that alone does not end the others' session.
            Err(failure) if failure.cause == Cause::Violation => {
                self.fault(index, failure.cause, &failure.why);
            }
            Err(failure) => {
                // The link is not in the session yet, so it is not among those that are told.
                self.drop_link(index);
                self.end(join.session, failure);
            }
        }
    }

    /// Nodes that were called have answered, or not.
    pub(super) fn take_answers(&mut self) -> bool {
        let mut any = false;
        while let Some((call, answer)) = self.calls.answered() {
            any = true;
            let Some((session, member)) = self.called.remove(&call) else {
                // The session has ended meanwhile.
                if let Ok(connection) = answer {
                    self.calls.hang_up(connection);
                }
                continue;
            };
            let connection = match answer {
                Ok(connection) => connection,
                Err(error) => {
                    self.end(session, Failure::new(Some(member), Cause::Unreachable, error));
                    continue;
                }
            };
            match self.links.add(connection, Role::To(session, member)) {
                Ok(link) => {
                    let Some(of) = self.sessions.get_mut(&session) else { continue };
                    if let Err(failure) = of.called(member, link, &mut self.links) {
                        self.end(session, failure);
                    }
                }
                Err(connection) => {
                    self.calls.hang_up(*connection);
                    let me = self.sessions.get(&session).map(|session| session.me);
                    self.end(session, Failure::new(me, Cause::Refused, "it has too many links"));
                }
            }
        }
        any
    }
}
