//! Runs the responder: the thread that serves a `tcp` connection while the connection's owner does
//! not.
//!
//! Invariants
//! - It receives only while the connection's owner does not drive (see `drive`). While the owner
//!   drives, it checks from time to time whether that is still the case.
//! - The loop blocks only in `poll`. It stops reading when there is no room for messages, and never
//!   stops sending. Each direction moves at most its limit (`TCP_ROUND_BYTES`,
//!   `TCP_INLINE_BYTES_MAX`) before the other has its turn.
//! - After the last frame it polls the socket for `TCP_SPIN_US`, yielding the processor, before it
//!   blocks.
//! - It ends when the connection ends, or within `CLOSE_TIME_MAX` after the application closes.

use std::{
    os::fd::AsFd,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    net::{RecvFlags, Shutdown},
};

use super::{
    drive::Watchman,
    outbox::Sent,
    receive::{Pause, Receiver},
    shared::SharedState,
};
use crate::{
    error::Ending,
    limits::{CLOSE_TIME_MAX, TCP_INLINE_BYTES_MAX, TCP_SPIN_US},
    spin::spin_time_us,
    timeout::poll_timeout,
};

/// The responder's thread.
pub(super) fn run(shared: &SharedState) {
    let ending = serve(shared);
    // Everything that it has put into an inbox is published; nothing follows.
    drop(shared.drive.receiver().take());
    shared.end(&ending);
    // So the peer's responder learns at once that nobody answers any more.
    let _ = rustix::net::shutdown(&shared.socket, Shutdown::Both);
}

/// Serves until the connection ends. Returns its ending.
fn serve(shared: &SharedState) -> Ending {
    let mut close_by: Option<Instant> = None;
    let mut spin_until = Instant::now();
    let mut watchman = Watchman::new();
    loop {
        // Read first: then everything that was posted before the close is held, or in the outbox
        // when `send` below reports that all was sent.
        let closing = shared.closing.load(Ordering::SeqCst);
        if !closing && shared.drive.owner_drives() {
            stand_by(shared, &mut watchman);
            continue;
        }
        let mut guard = shared.drive.receiver();
        // Only this thread removes the receiver, at the end.
        let Some(receiver) = guard.as_mut() else { return Ending::Orderly };
        let pause =
            match receiver.receive(shared).and_then(|pause| receiver.acknowledge(shared).map(|()| pause)) {
                Ok(pause) => pause,
                Err(ending) => return ending,
            };
        let must_send = match send(shared) {
            Ok(Sent::All) => false,
            Ok(Sent::Some) => true,
            // The peer's last frames are still in the socket. They decide how the connection ended.
            Err(reason) => return receive_last(receiver, shared, reason),
        };
        if closing {
            let now = Instant::now();
            let by = *close_by.get_or_insert(now + CLOSE_TIME_MAX);
            if now >= by || (!must_send && !shared.flights.lock().holds_back()) {
                end_stream(shared, by);
                return Ending::Orderly;
            }
        }
        if pause == Pause::TakeTurns {
            continue;
        }
        // The next frame often follows soon. Polling for it costs less than being woken, and
        // yielding lets its sender run first.
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
        sleep(shared, pause, must_send, close_by);
    }
}

/// Sleeps while the owner drives, until it is time to check whether it still does.
fn stand_by(shared: &SharedState, watchman: &mut Watchman) {
    poll(&mut [PollFd::new(&shared.responder_bell, PollFlags::IN)], watchman.nap(&shared.drive));
    shared.responder_bell.drain();
    watchman.check_owner(&shared.drive);
}

/// Sends a part of the outbox, and notes under the lock whether the loop will wait for the socket
/// to take more. It does not send everything at once, because a `post` may be waiting for the lock.
fn send(shared: &SharedState) -> Result<Sent, String> {
    let mut outbox = shared.outbox.lock();
    let sent = outbox.send(shared.socket.as_fd(), TCP_INLINE_BYTES_MAX);
    outbox.responder_watches = sent == Ok(Sent::Some);
    sent.map_err(|error| std::io::Error::from(error).to_string())
}

/// Reads the remainder of a stream that can no longer be written.
fn receive_last(receiver: &mut Receiver, shared: &SharedState, reason: String) -> Ending {
    loop {
        match receiver.receive(shared) {
            Err(ending) => return ending,
            Ok(Pause::TakeTurns) => {}
            Ok(Pause::Drained | Pause::MessagesFull) => return Ending::Lost { reason },
        }
    }
}

/// Ends our half of the stream and waits until `by` for the peer to end its half. Closing earlier
/// would make the kernel discard bytes that the peer has not read yet.
fn end_stream(shared: &SharedState, by: Instant) {
    if rustix::net::shutdown(&shared.socket, Shutdown::Write).is_err() {
        return;
    }
    let mut rest = vec![0; 64 * 1024];
    loop {
        match rustix::net::recv(&shared.socket, rest.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => return,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let left = by.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                poll(&mut [PollFd::new(&shared.socket, PollFlags::IN)], Some(left));
            }
            Err(_) => return,
        }
    }
}

fn sleep(shared: &SharedState, pause: Pause, must_send: bool, close_by: Option<Instant>) {
    let mut interest = PollFlags::empty();
    if pause == Pause::Drained {
        interest |= PollFlags::IN;
    }
    if must_send {
        interest |= PollFlags::OUT;
    }
    let time = close_by.map(|by| by.saturating_duration_since(Instant::now()));
    let bell = PollFd::new(&shared.responder_bell, PollFlags::IN);
    if interest.is_empty() {
        // Not watched: a socket that is watched for nothing would still report a hang-up again and
        // again. It is read after the application has made room.
        poll(&mut [bell], time);
    } else {
        poll(&mut [bell, PollFd::new(&shared.socket, interest)], time);
    }
    shared.responder_bell.drain();
}

/// However the sleep ends, the loop checks everything again.
fn poll(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    let timeout = time.map(poll_timeout);
    let _ = rustix::event::poll(fds, timeout.as_ref());
}
