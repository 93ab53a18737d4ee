//! How does a reactor sleep, and what wakes it?
//!
//! Invariants
//! - It sleeps only when the inbox and every connection are armed, and nothing has come meanwhile:
//!   said first, looked after.
//! - A connection that has not woken it stays armed and watched, over any number of sleeps.

use std::time::{Duration, Instant};

use rackscan_device::{DeviceIo, Token, Wait};

use super::Reactor;
use crate::{bridge::core::Core, link::WATCH, store::ConnectionId};

impl Reactor {
    /// Sleeps until a device, a connection, a listener or another thread has something, and does
    /// what has ended. How long it has slept; nothing if there was something already.
    pub(super) fn sleep(&mut self) -> Option<Duration> {
        if !self.ended.is_empty() || self.core.home.is_busy() {
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

    /// Takes what devices and watches have done.
    pub(super) fn collect(&mut self, wait: Wait) {
        let Self { core, ended, .. } = self;
        let reaped = core.io.reap(wait, &mut |completion| ended.push_back(completion));
        if let Err(error) = reaped {
            self.core.node.lifecycle.fail(&format!("a reactor cannot wait for its devices: {error}"));
            // Without its ring nothing that is under way can be waited for.
            self.stop_deadline = Some(Instant::now());
        }
    }

    /// A watch has fired: everything is looked at anyway, but a connection's watch is gone then.
    pub(super) fn fired(&mut self, token: Token) {
        let id = ConnectionId(token.0 & !WATCH);
        self.core.links.fired(id);
    }
}
