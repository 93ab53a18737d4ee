//! How does the owner of several connections wait for all of them?
//!
//! Invariants
//! - Whatever comes before the kernel is asked to wait is seen: connections are armed and the bell
//!   is listened to first.
//! - A wait ends when something has happened, the bell was rung, or the time is over; never later
//!   than the next thing to be done about a node.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rackscan_device::Wait;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{LineEvent, Lines, link::Link};
use crate::limits::EXPIRY_PERIOD;

impl Lines {
    /// Appends what has happened to `events` and says how many events that was; none may also mean
    /// that the bell was rung. Waits as told: `ForOne` returns at once if no node owes anything and
    /// none is away, `Until` sleeps until the instant even then.
    pub fn poll(&mut self, wait: Wait, events: &mut Vec<LineEvent>) -> usize {
        let before = events.len();
        self.release();
        self.take(events, true);
        let mut now = Instant::now();
        if now >= self.seen_to + EXPIRY_PERIOD {
            self.see_to(now, events);
        }
        if events.len() > before || wait == Wait::Now || self.bell.was_rung() {
            return events.len() - before;
        }
        let spin_until = now + self.spin.time();
        loop {
            self.see_to(now, events);
            let idle = || self.links.iter().all(|link| link.outstanding() == 0 && link.up().is_some());
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

    /// Takes what has come, from all nodes or from those that owe something.
    fn take(&mut self, events: &mut Vec<LineEvent>, all: bool) {
        events.append(&mut self.ready);
        if self.dialled_bell.load(Ordering::Relaxed) && self.dialled_bell.swap(false, Ordering::SeqCst) {
            while let Ok((node, line)) = self.dialled.try_recv() {
                if self.links.get_mut(node).is_some_and(|link| link.dialled(line).is_ok()) {
                    events.push(LineEvent::Back { node });
                }
            }
        }
        for (node, link) in self.links.iter_mut().enumerate() {
            if all || link.outstanding() > 0 {
                link.poll(node, &mut self.scratch, events);
            }
        }
    }

    /// Does what is due: silent nodes are lost, lost ones connected to again.
    fn see_to(&mut self, now: Instant, events: &mut Vec<LineEvent>) {
        self.seen_to = now;
        for node in 0..self.links.len() {
            self.links[node].expire(node, (now, &self.lateness), events);
            if self.links[node].begin_to_dial(now) {
                self.dial(node);
            }
        }
    }

    /// Sleeps until something may have happened. Whether the bell was rung.
    fn sleep(&mut self, until: Option<Instant>, now: Instant) -> bool {
        self.bell.bell.fall_asleep();
        // What was handed over before that did not ring; see the doorbell's invariants.
        let rung = self.bell.was_rung();
        let is_idle =
            !rung && !self.dialled_bell.load(Ordering::SeqCst) && self.links.iter_mut().all(Link::arm);
        if is_idle {
            let deadlines = self.links.iter().filter_map(|link| link.next_deadline(now, &self.lateness));
            let until = deadlines.chain(until).min();
            let from = Instant::now();
            let timeout = until.map(|until| timespec(until.saturating_duration_since(now)));
            let mut fds = Vec::with_capacity(self.links.len() + 1);
            fds.push(PollFd::new(&*self.bell.bell, PollFlags::IN));
            let connections = self.links.iter().filter_map(Link::wait_fd);
            fds.extend(connections.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            // Whatever poll answers, the caller looks at everything next.
            let slept = rustix::event::poll(&mut fds, timeout.as_ref());
            if let (Ok(0), Some(until)) = (slept, until) {
                let now = Instant::now();
                self.lateness.note(now.saturating_duration_since(until), now);
            }
            let readable: Vec<bool> = fds.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let watched = self.links.iter_mut().filter(|link| link.wait_fd().is_some());
            watched.zip(readable).filter(|(_, readable)| *readable).for_each(|(link, _)| link.woken());
            self.spin.slept(from.elapsed());
        }
        self.bell.bell.wake_up();
        rung
    }

    /// Whether these nodes live at this moment, so that what was copied out of their memory before
    /// counts. One system call for all of them: on `shm` nothing but the kernel knows that a
    /// process is gone. Those that do not are lost.
    pub fn are_there(&mut self, nodes: &[usize]) -> bool {
        let links = nodes.iter().filter_map(|node| self.links.get(*node));
        let mut fds: Vec<PollFd<'_>> =
            links.filter_map(Link::wait_fd).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let mut all = fds.len() == nodes.len();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut fds, Some(&now)) == Ok(0) {
            return all;
        }
        drop(fds);
        // Something is there: a wake-up that nobody waited for, or an end.
        for node in nodes {
            if let Some(link) = self.links.get_mut(*node) {
                link.look(*node, &mut self.scratch, &mut self.ready);
                all &= link.up().is_some();
            }
        }
        all
    }

    /// As [`Lines::are_there`], of one node.
    pub fn is_there(&mut self, node: usize) -> bool {
        self.are_there(&[node])
    }
}

/// Rounded up, so that a deadline has passed when the sleep ends.
fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time + Duration::from_micros(100)).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
}
