//! Accepts new connections, distributes them to the reactors, and refuses those beyond the maximum
//! number.
//!
//! Invariants
//! - The node has at most as many connections as its memory plan allows. A further connection gets
//!   a refusal that states both numbers, and is closed.
//! - At most `REFUSALS_UNDER_WAY_MAX` refusals are in progress; beyond that, no connection is
//!   accepted until one of them has ended.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use rackscan_fabric::{Connection, Operation};
use rackscan_format::{
    ids::RequestId,
    message::{Refusal, RefusalCode, ReplyMessage},
};

use super::Reactor;
use crate::{
    bridge::outcome::encoded,
    ids::ConnectionId,
    limits::{CONNECTIONS_PER_REACTOR_MAX, REFUSALS_LOGGED_EVERY, REFUSALS_UNDER_WAY_MAX},
    link::{Link, REPLY},
    message_queue::Mail,
    metrics::add,
};

impl Reactor {
    /// Accepts new connections from the listeners and hands each to the reactor to whose inbox it
    /// was assigned.
    pub(super) fn accept(&mut self) -> bool {
        let mut happened = false;
        for listener in &mut self.parts.listeners {
            // A refusal that ends wakes this reactor.
            while self.core.node.refusals_under_way.load(Ordering::Relaxed) < REFUSALS_UNDER_WAY_MAX {
                match listener.accept() {
                    Ok(Some(connection)) => {
                        let inbox = connection.inbox().map_or(0, |(inbox, _)| inbox);
                        let reactor = &self.parts.reactors[inbox % self.parts.reactors.len()];
                        if let Err(connection) = reactor.hand_over(Box::new(connection)) {
                            tracing::warn!(
                                peer = connection.peer(),
                                "a connection was refused: its reactor is busy"
                            );
                            add(&self.core.node.metrics.connections_refused, 1);
                        }
                    }
                    Ok(None) => break,
                    // The listener has logged it, within its rate limit.
                    Err(_) => add(&self.core.node.metrics.connections_refused, 1),
                }
                happened = true;
            }
        }
        happened
    }

    pub(super) fn connected(&mut self, connection: Connection) {
        let metrics = Arc::clone(&self.core.node.metrics);
        if let Some(refusal) = self.no_room() {
            return self.refuse(connection, refusal);
        }
        add(&metrics.connections_accepted, 1);
        add(&metrics.connections_open, 1);
        metrics.memory_taken(self.core.node.plan.connection_bytes);
        self.next_connection += 1;
        tracing::debug!(peer = connection.peer(), "connected");
        let sender = connection.inbox().map(|(_, sender)| sender);
        let index = self.core.links.add(Link::new(connection, ConnectionId(self.next_connection)));
        let Some(sender) = sender else { return };
        match self.intake.connected(sender, index) {
            Some(early) => early.iter().for_each(|bytes| self.request(index, None, bytes)),
            None => self.hang_up(index, "more requests than may arrive before their connection"),
        }
    }

    /// The refusal of one more connection, if there is no room for it.
    fn no_room(&self) -> Option<Refusal> {
        let node = &self.core.node;
        if node.lifecycle.is_stopping() {
            return Some(Refusal::new(RefusalCode::Stopping, "the node is stopping".to_owned()));
        }
        let of_node = (node.metrics.counters().connections_open, node.plan.connections);
        let here = (self.core.links.count() as u64, CONNECTIONS_PER_REACTOR_MAX as u64);
        let (found, most) = [of_node, here].into_iter().find(|(found, most)| found >= most)?;
        Some(Refusal::new(
            RefusalCode::TooManyConnections,
            format!(
                "node {} has {found} connections, and takes at most {most}; end sessions that are not used and try again, or \
                 raise `connections` in its configuration and its limit of descriptors",
                node.config.node
            ),
        ))
    }

    /// Sends a refusal on a connection and closes it on another thread.
    fn refuse(&mut self, mut connection: Connection, refusal: Refusal) {
        let node = Arc::clone(&self.core.node);
        add(&node.metrics.connections_refused, 1);
        if self.refusals_logged.is_none_or(|at| at.elapsed() >= REFUSALS_LOGGED_EVERY) {
            self.refusals_logged = Some(Instant::now());
            let refused = node.metrics.counters().connections_refused;
            tracing::warn!(
                peer = connection.peer(),
                refused,
                reason = refusal.text,
                "a connection was refused"
            );
        }
        if let Some((_, sender)) = connection.inbox() {
            self.intake.gone(sender);
        }
        let load = self.core.load_report();
        if let Some(bytes) = encoded(ReplyMessage { id: RequestId(0), outcome: Err(refusal), load }) {
            // A peer that does not receive it sees the connection close.
            let _ = connection.post(REPLY, Operation::Send { bytes: &bytes });
        }
        node.refusals_under_way.fetch_add(1, Ordering::Relaxed);
        let (under_way, acceptor) = (Arc::clone(&node), self.parts.reactors.first().map(Arc::clone));
        let close = move || {
            connection.close();
            under_way.refusals_under_way.fetch_sub(1, Ordering::Relaxed);
            if let Some(acceptor) = acceptor {
                acceptor.send(Mail::HungUp(Vec::new()));
            }
        };
        if std::thread::Builder::new().name("hang-up".to_owned()).spawn(close).is_err() {
            // The connection was dropped with the closure, which has closed it.
            node.refusals_under_way.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
