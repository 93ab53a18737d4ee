//! Who plays the network card on a TCP connection?
//!
//! Invariants
//! - It takes part only while the connection's owner does not drive (see `drive`), and otherwise
//!   looks from time to time whether that is so.
//! - The loop blocks only in `poll`. It stops reading when messages have no room, and never stops
//!   sending; neither direction moves more than its limit (`TCP_ROUND_BYTES`,
//!   `TCP_INLINE_BYTES_MAX`) before the other has its turn.
//! - After the last frame it asks the socket again for `TCP_SPIN_US`, yielding the processor,
//!   before it blocks.
//! - It ends when the connection ends, or within `CLOSE_TIME_MAX` after the application closes.

use std::{
    os::fd::AsFd,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    net::{RecvFlags, Shutdown},
};

use super::{
    drive::Watchman,
    link::Link,
    outbox::Sent,
    receive::{Pause, Receiver},
};
use crate::{
    error::Ending,
    limits::{CLOSE_TIME_MAX, TCP_INLINE_BYTES_MAX, TCP_SPIN_US},
    spin::spin_time_us,
};

/// The responder's thread.
pub(super) fn run(link: &Link) {
    let ending = serve(link);
    // Whatever it has put into an inbox is there; nothing follows.
    drop(link.drive.receiver().take());
    link.end(&ending);
    // The peer's responder learns at once that nobody answers any more.
    let _ = rustix::net::shutdown(&link.socket, Shutdown::Both);
}

/// Serves until the connection ends and says how it did.
fn serve(link: &Link) -> Ending {
    let mut close_by: Option<Instant> = None;
    let mut spin_until = Instant::now();
    let mut watchman = Watchman::new();
    loop {
        // Asked first: what was posted before is then held, or in the outbox when `send` says that
        // all is sent.
        let closing = link.closing.load(Ordering::SeqCst);
        if !closing && link.drive.is_by_owner() {
            stand_by(link, &mut watchman);
            continue;
        }
        let mut guard = link.drive.receiver();
        // It is this thread that takes it away, at the end.
        let Some(receiver) = guard.as_mut() else { return Ending::Orderly };
        let pause = match receiver.receive(link).and_then(|pause| receiver.acknowledge(link).map(|()| pause))
        {
            Ok(pause) => pause,
            Err(ending) => return ending,
        };
        let must_send = match send(link) {
            Ok(Sent::All) => false,
            Ok(Sent::Some) => true,
            // What the peer said last is still in the socket; it decides how this ended.
            Err(reason) => return receive_last(receiver, link, reason),
        };
        if closing {
            let now = Instant::now();
            let by = *close_by.get_or_insert(now + CLOSE_TIME_MAX);
            if now >= by || (!must_send && !link.flights.lock().holds_back()) {
                say_end(link, by);
                return Ending::Orderly;
            }
        }
        if pause == Pause::TakeTurns {
            continue;
        }
        // What follows a frame often follows soon: asking again costs less than being woken, and
        // yielding lets whoever produces it run first.
        if receiver.take_activity() {
            spin_until = Instant::now() + spin_time_us(TCP_SPIN_US);
        }
        let may_change_soon = pause == Pause::Drained || receiver.waits_for_inbox();
        if may_change_soon && !must_send && Instant::now() < spin_until {
            drop(guard);
            std::thread::yield_now();
            continue;
        }
        if pause == Pause::MessagesFull && !receiver.may_sleep() {
            continue;
        }
        drop(guard);
        sleep(link, pause, must_send, close_by);
    }
}

/// Sleeps while the owner drives, until it is time to look whether it still does.
fn stand_by(link: &Link, watchman: &mut Watchman) {
    poll(&mut [PollFd::new(&link.responder_bell, PollFlags::IN)], watchman.nap(&link.drive));
    link.responder_bell.drain();
    watchman.look(&link.drive);
}

/// Sends some of what waits, and notes under the lock whether the loop will watch for more room.
/// Not all of it, because a `post` may be waiting for the lock.
fn send(link: &Link) -> Result<Sent, String> {
    let mut outbox = link.outbox.lock();
    let sent = outbox.send(link.socket.as_fd(), TCP_INLINE_BYTES_MAX);
    outbox.responder_watches = sent == Ok(Sent::Some);
    sent.map_err(|error| std::io::Error::from(error).to_string())
}

/// The stream cannot be written any more: reads what is left of it.
fn receive_last(receiver: &mut Receiver, link: &Link, reason: String) -> Ending {
    loop {
        match receiver.receive(link) {
            Err(ending) => return ending,
            Ok(Pause::TakeTurns) => {}
            Ok(Pause::Drained | Pause::MessagesFull) => return Ending::Lost { reason },
        }
    }
}

/// Ends our half of the stream and gives the peer until `by` to end its half. Closing earlier would
/// make the kernel throw away what the peer has not taken yet.
fn say_end(link: &Link, by: Instant) {
    if rustix::net::shutdown(&link.socket, Shutdown::Write).is_err() {
        return;
    }
    let mut rest = vec![0; 64 * 1024];
    loop {
        match rustix::net::recv(&link.socket, rest.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let left = by.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                poll(&mut [PollFd::new(&link.socket, PollFlags::IN)], Some(left));
            }
            Err(_) => return,
        }
    }
}

fn sleep(link: &Link, pause: Pause, must_send: bool, close_by: Option<Instant>) {
    let mut interest = PollFlags::empty();
    if pause == Pause::Drained {
        interest |= PollFlags::IN;
    }
    if must_send {
        interest |= PollFlags::OUT;
    }
    let time = close_by.map(|by| by.saturating_duration_since(Instant::now()));
    let bell = PollFd::new(&link.responder_bell, PollFlags::IN);
    if interest.is_empty() {
        // A socket without interest would still report a hang-up, again and again; it is looked at
        // after the application has made room.
        poll(&mut [bell], time);
    } else {
        poll(&mut [bell, PollFd::new(&link.socket, interest)], time);
    }
    link.responder_bell.drain();
}

/// However the sleep ends, the loop looks at everything again.
fn poll(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    let timeout = time.map(|t| Timespec::try_from(t).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 }));
    let _ = rustix::event::poll(fds, timeout.as_ref());
}
