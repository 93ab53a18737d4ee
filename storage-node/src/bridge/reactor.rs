//! Runs a reactor: a thread that serves many connections and devices, and sleeps when it is idle.
//!
//! ```text
//! messages, listeners, connections, inbox, io_uring -- each polled without waiting --> requests advance --> replies
//! idle for a short time, if polling was useful recently: arm the inbox and every connection, then sleep in
//! one system call on the io_uring, which watches the inbox, the connections, the listeners and the message queue
//! ```
//!
//! Invariants
//! - A task (a request in progress) is removed only when nothing that it started is in flight; its
//!   connection may be closed earlier.
//! - Requests that wait for memory are served in the order in which they began to wait, with one
//!   exception: nothing waits behind a request whose own connection holds the memory that it waits
//!   for.
//! - An idle reactor uses no processor time. It never sleeps while it has an unprocessed
//!   completion.

mod connect;
mod mail;
mod posts;
mod sleep;

use std::{collections::VecDeque, os::fd::AsFd, sync::Arc, time::Instant};

use az::SaturatingAs;
use rackscan_device::{Completion, DeviceIo, Wait};
use rackscan_fabric::{Ending, Event, Listener, OperationError, Spin};
use rackscan_format::message::{Answer, Refusal, ReplyMessage, RequestMessage};

use super::{
    core::Core,
    intake::{Incoming, Intake},
    outcome::{Refused, encoded, fits_a_box, timestamp},
    request_admission::refusal,
};
use crate::{
    ids::TaskIndex,
    limits::{
        ARRIVALS_PER_TURN_MAX, COMPLETIONS_PER_TURN_MAX, POSTS_BYTES, REACTOR_SPIN, REPLIES_WAITING_MAX,
        STOP_TIME_MAX, TURNS_UNTIL_WATCHED,
    },
    link::{Link, REPLY},
    message_queue::{Mail, MessageQueue},
    metrics::{add, take},
    serve,
    task::{Place, Progress, Task, Tasks},
};

/// The connection index of a task whose connection was closed.
const NO_LINK: usize = usize::MAX;

/// The sources of a reactor's connections.
pub(crate) struct ReactorParts {
    /// The node's listeners; only the first reactor has them.
    pub(crate) listeners: Vec<Listener>,
    /// All reactors, including this one, in the order of their inboxes. The listeners distribute
    /// connections among them.
    pub(crate) reactors: Vec<Arc<MessageQueue>>,
}

/// One reactor thread.
pub(crate) struct Reactor {
    core: Core,
    parts: ReactorParts,
    intake: Intake,
    /// The request that has just arrived as a message.
    bytes: Vec<u8>,
    /// The request that was just taken from a box.
    posted: Vec<u8>,
    tasks: Tasks,
    /// Completions of device operations that were not processed yet.
    ended: VecDeque<Completion>,
    /// Tasks that wait for memory or for room in a queue.
    starved: VecDeque<TaskIndex>,
    next_connection: u64,
    turns: u32,
    /// When refused connections were last logged.
    refusals_logged: Option<Instant>,
    stop_deadline: Option<Instant>,
}

impl Reactor {
    /// Watches everything that must wake the sleeping reactor. `number` distinguishes the names of
    /// its connections from those of other reactors.
    pub(crate) fn new(
        mut core: Core,
        intake: Intake,
        parts: ReactorParts,
        number: u16,
    ) -> Result<Self, std::io::Error> {
        let message_queue = Arc::clone(&core.message_queue);
        core.watch(message_queue.as_fd())?;
        core.watch(intake.inbox().wait_fd())?;
        for listener in &parts.listeners {
            core.watch(listener.wait_fd())?;
        }
        Ok(Self {
            core,
            parts,
            intake,
            bytes: Vec::new(),
            posted: Vec::new(),
            tasks: Tasks::default(),
            ended: VecDeque::new(),
            starved: VecDeque::new(),
            next_connection: u64::from(number) << 48,
            turns: 0,
            refusals_logged: None,
            stop_deadline: None,
        })
    }

    /// Serves until the node stops.
    pub(crate) fn run(mut self) {
        let (mut last_work, mut spin) = (Instant::now(), Spin::new(REACTOR_SPIN));
        loop {
            let happened = self.turn();
            if happened {
                last_work = Instant::now();
            }
            if self.is_over() {
                break;
            }
            if happened || last_work.elapsed() < spin.time() {
                std::thread::yield_now();
                continue;
            }
            if let Some(slept) = self.sleep() {
                spin.slept(slept);
            }
            last_work = Instant::now();
        }
        for link in self.core.links.take_all() {
            take(&self.core.node.metrics.connections_open, 1);
            drop(link);
        }
    }

    /// Polls everything once, without waiting. Returns whether anything happened.
    fn turn(&mut self) -> bool {
        let mut happened = self.take_mail();
        happened |= self.accept();
        // Connections come first: over `tcp`, polling them brings requests into the inbox.
        happened |= self.poll_links();
        self.watch_idle();
        happened |= self.poll_inbox();
        happened |= self.see_to_participant();
        happened |= self.reap();
        happened | self.feed_starved()
    }

    /// Whether the node is stopping and this reactor is done, or its deadline has passed.
    fn is_over(&mut self) -> bool {
        if !self.core.node.lifecycle.is_stopping() {
            return false;
        }
        let deadline = *self.stop_deadline.get_or_insert_with(|| Instant::now() + STOP_TIME_MAX);
        // The participant stops after the last request of any reactor.
        let participant_is_idle =
            self.core.node.participant.as_ref().is_none_or(|participant| participant.is_idle());
        self.tasks.len() == 0 && participant_is_idle || Instant::now() >= deadline
    }

    fn reap(&mut self) -> bool {
        self.collect(Wait::Now);
        self.complete()
    }

    /// Advances requests whose operations completed. Returns whether any did.
    fn complete(&mut self) -> bool {
        let happened = !self.ended.is_empty();
        for _ in 0..COMPLETIONS_PER_TURN_MAX {
            let Some(completion) = self.ended.pop_front() else { break };
            self.completed(completion);
            // Where releasing takes no system call, the first answer need not wait for the last of
            // many reads that completed together.
            self.core.release_mapped();
        }
        self.core.release();
        happened
    }

    fn completed(&mut self, completion: Completion) {
        let (token, memory, outcome) = match completion {
            Completion::Read { token, memory, outcome } | Completion::Write { token, memory, outcome } => {
                (token, memory, outcome)
            }
            Completion::Ready { token, .. } => return self.fired(token),
            Completion::Fsync { token, outcome } => {
                let (index, _) = Place::of_operation(token.0);
                let task = self.tasks.get_mut(index).expect("a task outlives its operations");
                task.work.flushed(&mut self.core, outcome);
                return self.advance(index);
            }
        };
        let (index, part) = Place::of_operation(token.0);
        let task = self.tasks.get_mut(index).expect("a task outlives its operations");
        task.work.device_done(&mut self.core, task.place, part, memory, outcome);
        self.advance(index);
    }

    /// Takes requests out of the inbox.
    fn poll_inbox(&mut self) -> bool {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut happened = false;
        for _ in 0..ARRIVALS_PER_TURN_MAX {
            let Some(incoming) = self.intake.next(&mut bytes, &self.core.node.metrics) else { break };
            happened = true;
            if let Incoming::Request(link) = incoming {
                add(&self.core.node.metrics.inbox_messages, 1);
                // Requests in boxes were written before the message was sent, so they come first.
                self.take_posts(link);
                self.request(link, None, &bytes);
            }
        }
        self.bytes = bytes;
        happened
    }

    fn poll_links(&mut self) -> bool {
        let mut happened = false;
        let mut events = Vec::new();
        let mut at = 0;
        while let Some(index) = self.core.links.awake_at(at) {
            at += 1;
            let Some(link) = self.core.links.get_mut(index) else { continue };
            let mut moved = link.poll(&mut events);
            if link.holds_back() {
                // Operations that had been held back were posted.
                self.core.links.use_at(index);
            }
            moved |= self.take_posts(index);
            if let Some(link) = self.core.links.get_mut(index) {
                link.count_turn(moved);
            }
            happened |= moved;
            for event in events.drain(..) {
                if self.core.links.get_mut(index).is_none() {
                    // The node closed the connection while handling its events. Closing reports the
                    // transfers among the remaining events.
                    break;
                }
                self.handle(index, event);
            }
        }
        happened
    }

    /// From time to time, arms watches on idle connections instead of polling them.
    fn watch_idle(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_UNTIL_WATCHED) {
            let Core { links, io, .. } = &mut self.core;
            links.arm(io, Link::is_idle);
        }
    }

    fn handle(&mut self, link: usize, event: Event) {
        match event {
            Event::Completed { id: REPLY, .. } | Event::Immediate { .. } => {}
            Event::Completed { id, outcome } => {
                if let Some(link) = self.core.links.get_mut(link) {
                    link.reported(id);
                }
                self.transferred(id, outcome.map(drop));
            }
            // Every listener of a node has inboxes, which deliver the messages.
            Event::Message { .. } => self.hang_up(link, "a message beside the inbox"),
            Event::Closed(ending) => self.disconnected(link, &ending),
        }
    }

    fn transferred(&mut self, id: u64, outcome: Result<(), OperationError>) {
        let (index, part) = Place::of_operation(id);
        let Some(task) = self.tasks.get_mut(index) else { return };
        task.work.wire_done(&mut self.core, task.place, part, outcome);
        self.advance(index);
    }

    /// Handles a peer that has disconnected. Everything that was in flight has been reported
    /// before.
    fn disconnected(&mut self, index: usize, ending: &Ending) {
        let Some(link) = self.forget(index) else { return };
        tracing::debug!(peer = link.peer(), %ending, "disconnected");
        let transfers = link.close();
        self.abandon(transfers);
    }

    /// Closes the connection of a peer that must be disconnected. Another thread does it, because a
    /// peer that does not read can make it slow. Requests with transfers in flight end when it is
    /// closed.
    fn hang_up(&mut self, index: usize, reason: &str) {
        let Some(link) = self.forget(index) else { return };
        tracing::warn!(peer = link.peer(), reason, "the connection is closed");
        let message_queue = Arc::clone(&self.core.message_queue);
        let close = move || message_queue.send(Mail::HungUp(link.close()));
        let spawned = std::thread::Builder::new().name("hang-up".to_owned()).spawn(close);
        if let Err(error) = spawned {
            // The closure was dropped, and the connection with it. The state of what was in flight
            // is unknown.
            self.core.node.lifecycle.fail(&format!("no thread to close a connection: {error}"));
        }
    }

    /// Removes a connection from the table. Its requests end as soon as nothing that they started
    /// is in flight.
    fn forget(&mut self, index: usize) -> Option<Link> {
        let link = self.core.links.take(index)?;
        link.forget();
        if let Some(sender) = link.sender() {
            self.intake.gone(sender);
        }
        if let Some(watch) = link.watch()
            && let Err(error) = self.core.io.unwatch(watch)
        {
            // It may still cause a spurious wake-up.
            tracing::debug!(%error, "a watch could not be ended");
        }
        let metrics = &self.core.node.metrics;
        take(&metrics.connections_open, 1);
        metrics.memory_returned(self.core.node.plan.connection_bytes);
        if link.has_posts() {
            take(&metrics.connections_with_boxes, 1);
            metrics.memory_returned(POSTS_BYTES);
        }
        self.core.node.store.connection_closed(link.id());
        if link.transacts {
            self.core.participant.connection_closed(link.id());
        }
        let mut abandoned = Vec::new();
        for task in self.tasks.iter_mut().filter(|task| task.place.link == index) {
            task.place.link = NO_LINK;
            abandoned.push(task.place.task);
        }
        for task in abandoned {
            self.advance(task);
        }
        Some(link)
    }

    /// Fails transfers that will not be reported.
    fn abandon(&mut self, transfers: Vec<u64>) {
        let ending = Ending::Lost { reason: "the node closed the connection".to_owned() };
        for id in transfers {
            self.transferred(id, Err(OperationError::Closed(ending.clone())));
        }
    }

    /// Handles a message, or the content of box `post`: a request, or malformed bytes, which end
    /// the connection.
    fn request(&mut self, link_index: usize, post: Option<usize>, bytes: &[u8]) {
        let Some(link) = self.core.links.get_mut(link_index) else { return };
        let message = match RequestMessage::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                add(&self.core.node.metrics.refused_requests, 1);
                self.hang_up(link_index, &format!("not a request: {error}"));
                return;
            }
        };
        if link.replies_waiting() > REPLIES_WAITING_MAX {
            self.hang_up(link_index, &format!("more than {REPLIES_WAITING_MAX} replies wait to be read"));
            return;
        }
        let in_progress = link.requests;
        link.requests += 1;
        let kind = serve::kind(&message.request);
        add((kind.counter)(&self.core.node.metrics), 1);
        let span = tracing::debug_span!(
            "request",
            kind = kind.name,
            table = kind.table.map(|table| table.0),
            segment = kind.segment.map(|segment| segment.0),
            bytes = tracing::field::Empty,
            us = tracing::field::Empty,
        );
        let refused = refusal(&self.core.node.lifecycle, in_progress, self.tasks.len());
        let RequestMessage { id, request } = message;
        let core = &mut self.core;
        let index = self.tasks.insert(|task| {
            let place = Place { task, link: link_index };
            let began = Instant::now();
            let entered = span.clone().entered();
            let started = refused.map_or_else(|| serve::start(core, place, request), Err);
            drop(entered);
            let work = started.unwrap_or_else(|refusal| Box::new(Refused(Some(refusal))));
            Task { request: id, place, post, queued: false, began, span, work }
        });
        self.advance(index);
    }

    /// Advances a task after an event.
    fn advance(&mut self, index: TaskIndex) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        if task.queued {
            // It advances when its turn comes.
            return;
        }
        match task.work.advance(&mut self.core, task.place) {
            Progress::Working => {}
            Progress::Starved => {
                task.queued = true;
                self.starved.push_back(index);
            }
            Progress::Finished(outcome) => self.finish(index, outcome),
        }
    }

    /// Advances waiting tasks in order, until one waits for what other connections hold. Returns
    /// whether any advanced.
    fn feed_starved(&mut self) -> bool {
        let (mut happened, mut at) = (false, 0);
        while let Some(index) = self.starved.get(at).copied() {
            let task = self.tasks.get_mut(index).expect("a waiting task ends only here");
            match task.work.advance(&mut self.core, task.place) {
                Progress::Starved if self.core.waits_for_itself(task.place) => {
                    at += 1;
                    continue;
                }
                Progress::Starved => break,
                Progress::Working => task.queued = false,
                Progress::Finished(outcome) => self.finish(index, outcome),
            }
            self.starved.remove(at);
            happened = true;
        }
        self.core.release();
        happened
    }

    fn finish(&mut self, index: TaskIndex, mut outcome: Result<Answer, Refusal>) {
        let Some(task) = self.tasks.remove(index) else { return };
        let us = task.began.elapsed().as_micros().saturating_as::<u64>();
        let bytes = timestamp(&mut outcome, us);
        let entered = task.span.enter();
        task.span.record("us", us);
        task.span.record("bytes", bytes);
        match &outcome {
            Ok(_) => tracing::debug!(bytes, us, "served"),
            Err(refusal) => {
                add(&self.core.node.metrics.refused_requests, 1);
                tracing::debug!(us, code = ?refusal.code, reason = refusal.text, "refused");
            }
        }
        drop(entered);
        let load = self.core.load_report();
        let Some(link) = self.core.link(task.place) else { return };
        link.requests -= 1;
        let post = task.post.filter(|_| fits_a_box(&outcome));
        if let Some(bytes) = encoded(ReplyMessage { id: task.request, outcome, load })
            && !post.is_some_and(|index| link.reply_by_post(index, &bytes))
        {
            link.reply(bytes);
        }
    }
}
