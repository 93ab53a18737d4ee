//! Polls several connections, and sleeps until something happens on one of them.
//!
//! Invariants
//! - No event is missed: the bell is watched and the connections are armed before the kernel is
//!   asked to wait, and both report what happened until then.
//! - A wait ends when something has happened, the bell was rung, or the time is over; it never
//!   lasts beyond the next deadline of a node.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rackscan_device::Wait;
use rackscan_fabric::poll_timeout;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{LineEvent, Lines, node_line::NodeLine};
use crate::limits::EXPIRY_PERIOD;

impl Lines {
    /// Appends new events to `events` and returns their number; 0 may also mean that the bell was
    /// rung. Waits as `wait` says: `ForOne` returns at once if no node owes anything and none is
    /// unavailable, `Until` sleeps until the instant even then.
    pub fn poll(&mut self, wait: Wait, events: &mut Vec<LineEvent>) -> usize {
        let before = events.len();
        self.release();
        self.take(events, true);
        let mut now = Instant::now();
        if now >= self.deadlines_checked_at + EXPIRY_PERIOD {
            self.handle_deadlines(now, events);
        }
        if events.len() > before || wait == Wait::Now || self.bell.was_rung() {
            return events.len() - before;
        }
        let spin_until = now + self.spin.time();
        loop {
            self.handle_deadlines(now, events);
            let idle = || self.node_lines.iter().all(|line| line.outstanding() == 0 && line.open().is_some());
            let is_over = match wait {
                Wait::Now => true,
                Wait::ForOne => idle(),
                Wait::Until(instant) => now >= instant,
            };
            if events.len() > before || is_over || self.bell.was_rung() {
                return events.len() - before;
            }
            if now < spin_until {
                std::thread::yield_now();
                self.take(events, false);
            } else {
                let until = if let Wait::Until(instant) = wait { Some(instant) } else { None };
                if self.sleep(until, now) {
                    return events.len() - before;
                }
                self.take(events, true);
            }
            if events.len() > before {
                return events.len() - before;
            }
            now = Instant::now();
        }
    }

    /// Takes the events of all nodes, or only of those that owe something.
    fn take(&mut self, events: &mut Vec<LineEvent>, all: bool) {
        events.append(&mut self.ready);
        if self.dialled_bell.load(Ordering::Relaxed) && self.dialled_bell.swap(false, Ordering::SeqCst) {
            while let Ok((node, dialled)) = self.dialled.try_recv() {
                if self.node_lines.get_mut(node).is_some_and(|line| line.dialled(dialled).is_ok()) {
                    events.push(LineEvent::Back { node });
                }
            }
        }
        for (node, line) in self.node_lines.iter_mut().enumerate() {
            if all || line.outstanding() > 0 {
                line.poll(node, &mut self.scratch, events);
            }
        }
    }

    /// Handles deadlines: loses silent nodes, and dials lost ones again.
    fn handle_deadlines(&mut self, now: Instant, events: &mut Vec<LineEvent>) {
        self.deadlines_checked_at = now;
        for node in 0..self.node_lines.len() {
            self.node_lines[node].expire(node, (now, &self.lateness), events);
            if self.node_lines[node].begin_to_dial(now) {
                self.dial(node);
            }
        }
    }

    /// Sleeps until something may have happened. Returns whether the bell was rung.
    fn sleep(&mut self, until: Option<Instant>, now: Instant) -> bool {
        self.bell.bell.fall_asleep();
        // Work that was handed over before did not ring the bell; see the doorbell's invariants.
        let rung = self.bell.was_rung();
        let is_idle = !rung
            && !self.dialled_bell.load(Ordering::SeqCst)
            && self.node_lines.iter_mut().all(NodeLine::arm);
        if is_idle {
            let deadlines = self.node_lines.iter().filter_map(|line| line.next_deadline(now, &self.lateness));
            let until = deadlines.chain(until).min();
            let from = Instant::now();
            let timeout = until.map(|until| timespec(until.saturating_duration_since(now)));
            let mut fds = Vec::with_capacity(self.node_lines.len() + 1);
            fds.push(PollFd::new(&*self.bell.bell, PollFlags::IN));
            let connections = self.node_lines.iter().filter_map(NodeLine::wait_fd);
            fds.extend(connections.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            // Whatever `poll` returns, the caller checks everything next.
            let slept = rustix::event::poll(&mut fds, timeout.as_ref());
            if let (Ok(0), Some(until)) = (slept, until) {
                let now = Instant::now();
                self.lateness.note(now.saturating_duration_since(until), now);
            }
            let readable: Vec<bool> = fds.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let watched = self.node_lines.iter_mut().filter(|line| line.wait_fd().is_some());
            watched.zip(readable).filter(|(_, readable)| *readable).for_each(|(line, _)| line.woken());
            self.spin.slept(from.elapsed());
        }
        self.bell.bell.wake_up();
        rung
    }

    /// Returns whether these nodes are alive now, so that bytes copied out of their memory before
    /// count. It takes one system call for all of them: on `shm` only the kernel knows that a
    /// process has ended. Nodes that are not alive are lost.
    pub fn are_there(&mut self, nodes: &[usize]) -> bool {
        let node_lines = nodes.iter().filter_map(|node| self.node_lines.get(*node));
        let mut fds: Vec<PollFd<'_>> = node_lines
            .filter_map(NodeLine::wait_fd)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let mut all = fds.len() == nodes.len();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&now)) == Ok(0) {
            return all;
        }
        drop(fds);
        // A connection is readable: an old wake-up, or the end of the connection.
        for node in nodes {
            if let Some(line) = self.node_lines.get_mut(*node) {
                line.check_alive(*node, &mut self.scratch, &mut self.ready);
                all &= line.open().is_some();
            }
        }
        all
    }
}

/// Rounds up, so that a deadline has passed when the sleep ends.
fn timespec(time: Duration) -> Timespec {
    poll_timeout(time.saturating_add(Duration::from_micros(100)))
}
