//! Opens sessions at a node: defines which messages are accepted from a connection in each of its
//! roles, and checks whether the node can take part.
//!
//! The client and the nodes of a session connect to this node independently of each other. If a
//! node that will forward slices connects before the client has opened the session, its connection
//! waits for a limited time.
//!
//! Invariant: a session is refused if the node does not know all of its members, or does not have
//! enough memory for it.

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
    /// Handles a message.
    pub(super) fn handle_message(&mut self, index: usize, message: Message) {
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
                    self.end(session, Failure::from_message(ends, members, peer));
                }
                None => self.drop_link(index),
            },
            (role, _) => {
                let why = format!("the peer sent a message that is not allowed in its role {role:?}");
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
                    session.announce_if_ready(&mut self.links);
                }
            }
            Err(failure) => {
                tracing::warn!(why = failure.why, "a session for stripes was refused");
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
                "this is node {}, but the client expects another node at this address",
                self.config.node
            )));
        }
        if self.sessions.len() >= SESSIONS_MAX || self.sessions.contains_key(&open.session) {
            return Err(refused(format!(
                "{} sessions are open at this node, expected fewer than {SESSIONS_MAX}, and none with the new one's number",
                self.sessions.len()
            )));
        }
        let shape = Shape {
            parity: open.parity,
            task: open.task,
            cell_bytes_max: open.cell_bytes_max,
            slice_bytes: usize::try_from(open.slice_bytes).expect("usize has at least 32 bits"),
            lanes: usize::from(open.lanes),
            slots: usize::from(open.slots),
        };
        let layout = self.layouts.of(shape, members.len()).map_err(|error| refused(error.to_string()))?;
        let taken: u64 = self.sessions.values().map(|session| session.layout.node_bytes()).sum();
        let (needed, memory) = (layout.node_bytes(), self.config.memory_bytes);
        if taken.saturating_add(needed) > memory {
            let why = format!(
                "the session needs {needed} bytes of memory at this node, but {taken} of {memory} are taken"
            );
            return Err(refused(why));
        }
        Session::open(layout, (open.session, me, members), index, open.credits.into(), &mut self.links)
    }

    /// The members of a session; an error unless this node knows all of them.
    fn members(&self, open: &Open) -> Result<Vec<Member>, String> {
        let ascending = open.members.is_sorted_by(|(one, _), (other, _)| one < other);
        if !ascending {
            return Err("the client's list of nodes is not in ascending order of ids".to_owned());
        }
        let known = |(node, address): &(_, String)| {
            let same = |peer: &&Member| peer.node == *node && peer.address.to_string() == *address;
            let peer = self.config.peers.iter().find(same).cloned();
            peer.ok_or_else(|| format!("the configuration of this node has no node {node} at {address}"))
        };
        open.members.iter().map(known).collect()
    }

    /// Handles a node that forwards to this one and names its session.
    fn joined(&mut self, index: usize, join: Join) {
        if self.sessions.contains_key(&join.session) {
            return self.join(index, &join);
        }
        // The number of such links was checked when the link was added.
        self.links.set_role(index, Role::Early(join));
    }

    fn join(&mut self, index: usize, join: &Join) {
        let Some(session) = self.sessions.get_mut(&join.session) else { return };
        match session.join(index, join, &mut self.links) {
            Ok(member) => self.links.set_role(index, Role::From(join.session, member)),
            // Any peer may claim to be a member. That alone must not end the session of others.
            Err(failure) if failure.cause == Cause::Violation => {
                self.fault(index, failure.cause, &failure.why);
            }
            Err(failure) => {
                // The link is not in the session yet, so ending the session would not drop it.
                self.drop_link(index);
                self.end(join.session, failure);
            }
        }
    }

    /// Takes the answers to calls. Returns whether there were any.
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
                    self.end(session, Failure::new(me, Cause::Refused, "the node has too many connections"));
                }
            }
        }
        any
    }
}
