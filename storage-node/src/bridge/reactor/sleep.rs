//! Puts a reactor to sleep and wakes it.
//!
//! Invariants
//! - A reactor first arms the inbox and every connection, then checks that nothing has arrived, and
//!   only then sleeps. So anything that arrives after the check wakes it.
//! - A connection that has not woken the reactor stays armed and watched over any number of sleeps.

use std::time::{Duration, Instant};

use rackscan_device::{DeviceIo, Token, Wait};

use super::Reactor;
use crate::{bridge::core::Core, ids::ConnectionId, link::WATCH};

impl Reactor {
    /// Sleeps until a device, a connection, a listener or another thread has something, and
    /// collects what has completed. Returns how long it slept; `None` if there was something
    /// already.
    pub(super) fn sleep(&mut self) -> Option<Duration> {
        if !self.ended.is_empty() || self.core.participant.is_busy() {
            return None;
        }
        let Core { links, io, .. } = &mut self.core;
        let armed = self.intake.arm() && links.arm(io, |_| true);
        if !armed || self.core.message_queue.has_mail() {
            return None;
        }
        let wait = self.stop_deadline.map_or(Wait::ForOne, Wait::Until);
        let from = Instant::now();
        self.collect(wait);
        let slept = from.elapsed();
        self.complete();
        Some(slept)
    }

    /// Collects completions of devices and fired watches.
    pub(super) fn collect(&mut self, wait: Wait) {
        let Self { core, ended, .. } = self;
        let reaped = core.io.reap(wait, &mut |completion| ended.push_back(completion));
        if let Err(error) = reaped {
            self.core.node.lifecycle.fail(&format!("a reactor cannot wait for its devices: {error}"));
            // Without its ring, the reactor cannot wait for what is in flight.
            self.stop_deadline = Some(Instant::now());
        }
    }

    /// Handles a fired watch. Everything is polled anyway, but a connection's watch is gone once it
    /// has fired.
    pub(super) fn fired(&mut self, token: Token) {
        let id = ConnectionId(token.0 & !WATCH);
        self.core.links.fired(id);
    }
}
