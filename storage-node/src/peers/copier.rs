//! How do other nodes come to have the home's log, and keep up with it?
//!
//! ```text
//! connected: what have you of this log? -> it is a beginning of it: go on from there
//!                                       -> it goes on differently: cut it where this life began, or begin anew
//! behind:    a piece of what is missing, all that gathered while the last one was on its way -> it has that now -> the home is told
//! a shorter log is ready: its pieces, in turn with those -> it has them -> the home is told, and exchanges its log
//! ```
//!
//! Invariants
//! - One request is on its way to each keeper, so its piece of the connection's memory is its own.
//! - The home is told only of what is in the copy that counts.

use std::sync::Arc;

use rackscan_client::Lines;
use rackscan_format::{
    ids::NodeId,
    limits::{KEPT_BYTES_MAX, TRANSACT_BYTES_MAX},
    message::{Answer, KeepLog, LogKept, LogPoint, Parcel, Refusal, Request, Target},
};
use rackscan_ramp::log::Follower;

use super::outlet::{LogNow, OpenLog, Outlet};
use crate::copies::{point, tail};

/// What is known of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing over this connection.
    Unknown,
    /// It has the beginning of the log with this number, up to there; and whether that copy counts.
    Follows { log: u32, through: u64, is_whole: bool },
    /// What it has goes on differently behind this point.
    Differs { log: u32, from: LogPoint },
    /// It does not keep now: it is asked again at the next tick.
    Rests,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    tag: u64,
    log: u32,
    /// Where the copy should end then; `None` if that is what is asked.
    through: Option<u64>,
    /// Whether the copy was to be cut.
    cuts: bool,
    /// Whether it was to be the one that counts then.
    ends: bool,
    /// Whether it is about the log's successor.
    ahead: bool,
}

#[derive(Debug)]
struct Keeper {
    /// Its number among the lines.
    node: usize,
    standing: Standing,
    asked: Option<Asked>,
    /// What it has of the log's successor: its number, and up to where.
    ahead: (u32, u64),
    /// Whether it is the successor's turn, when there is something of both.
    turn: bool,
    /// Whether it was said that it refuses.
    refuses: bool,
}

/// What the home is told of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// It has all records up to there.
    Through { copy: usize, sequence: u64 },
    /// It has what there is of the log with this number, which will take the place of the present one.
    Ahead { copy: usize, log: u32 },
}

/// Keeps the keepers in step.
#[derive(Debug)]
pub(super) struct Copier {
    origin: NodeId,
    outlet: Arc<Outlet>,
    keepers: Vec<Keeper>,
    file: OpenLog,
    successor: OpenLog,
    bytes: Vec<u8>,
}

impl Copier {
    /// Of the log of this node, for the keepers with these numbers among the lines.
    pub(super) fn new(origin: NodeId, outlet: Arc<Outlet>, keepers: &[usize]) -> Self {
        let keeper = |node: &usize| Keeper {
            node: *node,
            standing: Standing::Unknown,
            asked: None,
            ahead: (0, 0),
            turn: false,
            refuses: false,
        };
        let keepers = keepers.iter().map(keeper).collect();
        Self {
            origin,
            outlet,
            keepers,
            file: OpenLog::default(),
            successor: OpenLog::default(),
            bytes: Vec::new(),
        }
    }

    /// Sends each keeper that waits for nothing what it lacks.
    pub(super) fn pump(&mut self, lines: &mut Lines, tags: &mut u64) {
        let Some(now) = self.outlet.now() else { return };
        for copy in 0..self.keepers.len() {
            let Keeper { node, standing, asked: None, ahead, turn, .. } = self.keepers[copy] else {
                continue;
            };
            if standing == Standing::Rests || lines.away(node).is_some() {
                continue;
            }
            let follows =
                matches!(standing, Standing::Follows { log, is_whole: true, .. } if log == now.number);
            let first = if follows && turn { self.next_ahead(ahead, lines, node) } else { None };
            let next = first.or_else(|| self.next_request(standing, now, lines, node));
            let next = next.or_else(|| if follows { self.next_ahead(ahead, lines, node) } else { None });
            let Some((request, asked)) = next else { continue };
            self.keepers[copy].turn = !asked.ahead;
            *tags += 1;
            let sent = lines.send(node, *tags, Request::KeepLog(request));
            match sent {
                Ok(()) => self.keepers[copy].asked = Some(Asked { tag: *tags, ..asked }),
                Err(error) => {
                    tracing::debug!(%error, "a part of the log was not sent to a node that keeps a copy");
                    self.keepers[copy].standing = Standing::Rests;
                }
            }
        }
    }

    /// What a keeper is to be asked for, if anything.
    fn next_request(
        &mut self,
        standing: Standing,
        now: LogNow,
        lines: &Lines,
        node: usize,
    ) -> Option<(KeepLog, Asked)> {
        let number = now.number;
        let request = |offset_bytes, bytes| KeepLog {
            origin: self.origin,
            log: number,
            offset_bytes,
            cut: None,
            is_whole: false,
            bytes,
        };
        let nothing = || Parcel::Here(Vec::new());
        let asked = Asked { tag: 0, log: number, through: None, cuts: false, ends: false, ahead: false };
        match standing {
            Standing::Follows { log, through, is_whole } if log == number => {
                if through == now.end.offset_bytes {
                    let last = KeepLog { is_whole: true, ..request(through, nothing()) };
                    return (!is_whole)
                        .then_some((last, Asked { through: Some(through), ends: true, ..asked }));
                }
                let read = self.outlet.read(number, through, KEPT_BYTES_MAX, &mut self.file, &mut self.bytes);
                if let Err(error) = read {
                    tracing::warn!(%error, "the log of transactions could not be read back for a copy");
                }
                let end = through + self.bytes.len() as u64;
                let origin = self.origin;
                let bytes = if self.bytes.is_empty() { None } else { parcel(&self.bytes, lines, node) };
                let is_whole = end == now.end.offset_bytes;
                let (log, cut) = (number, None);
                bytes.map(|bytes| {
                    let part = KeepLog { origin, log, offset_bytes: through, cut, is_whole, bytes };
                    (part, Asked { through: Some(end), ends: is_whole, ..asked })
                })
            }
            Standing::Differs { log, from } if log == number => {
                let cut = KeepLog { cut: Some(from), ..request(from.offset_bytes, nothing()) };
                Some((cut, Asked { cuts: true, ..asked }))
            }
            Standing::Rests => None,
            // Of another log, or nothing yet: what has it of this one?
            _ => Some((request(0, nothing()), asked)),
        }
    }

    /// A piece of the log's successor, if there is one and the keeper lacks some of it.
    fn next_ahead(
        &mut self,
        (log, through): (u32, u64),
        lines: &Lines,
        node: usize,
    ) -> Option<(KeepLog, Asked)> {
        let (number, end) = self.outlet.successor()?;
        let offset_bytes = if log == number { through } else { 0 };
        if offset_bytes >= end.offset_bytes {
            return None;
        }
        let read =
            self.outlet.read(number, offset_bytes, KEPT_BYTES_MAX, &mut self.successor, &mut self.bytes);
        if read.is_err() || self.bytes.is_empty() {
            // It was given up; the home will know.
            return None;
        }
        let (origin, through) = (self.origin, Some(offset_bytes + self.bytes.len() as u64));
        let bytes = parcel(&self.bytes, lines, node)?;
        let part = KeepLog { origin, log: number, offset_bytes, cut: None, is_whole: false, bytes };
        Some((part, Asked { tag: 0, log: number, through, cuts: false, ends: false, ahead: true }))
    }

    /// A node has answered, if it was asked by this. What the home is to be told.
    pub(super) fn heard(
        &mut self,
        node: usize,
        tag: u64,
        outcome: &Result<Answer, Box<Refusal>>,
    ) -> Result<Option<Copied>, NotAsked> {
        let of_tag =
            |keeper: &Keeper| keeper.node == node && keeper.asked.is_some_and(|asked| asked.tag == tag);
        let copy = self.keepers.iter().position(of_tag).ok_or(NotAsked)?;
        let Some(asked) = self.keepers[copy].asked.take() else { return Err(NotAsked) };
        let kept = match outcome {
            Ok(Answer::LogKept(kept)) => {
                self.keepers[copy].refuses = false;
                *kept
            }
            Ok(other) => {
                tracing::warn!(node, answer = ?other, "a part of the log was answered with something else");
                self.keepers[copy].standing = Standing::Rests;
                return Ok(None);
            }
            Err(refusal) => {
                let keeper = &mut self.keepers[copy];
                keeper.standing = Standing::Rests;
                if !std::mem::replace(&mut keeper.refuses, true) {
                    tracing::warn!(copy, reason = refusal.text, "a node does not keep a copy of the log now");
                }
                return Ok(None);
            }
        };
        if asked.ahead {
            return Ok(self.heard_ahead(copy, asked, kept));
        }
        let Some(now) = self.outlet.now() else { return Ok(None) };
        let standing = self.standing(asked, kept, now);
        self.keepers[copy].standing = standing;
        let counts = matches!(standing, Standing::Follows { is_whole: true, .. });
        Ok(counts.then_some(Copied::Through { copy, sequence: kept.end.sequence }))
    }

    /// A keeper has something of the log's successor.
    fn heard_ahead(&mut self, copy: usize, asked: Asked, kept: LogKept) -> Option<Copied> {
        let log = asked.log;
        let follows = asked.through == Some(kept.through_bytes);
        self.keepers[copy].ahead = (log, if follows { kept.through_bytes } else { 0 });
        let (number, end) = self.outlet.successor()?;
        (follows && log == number && kept.through_bytes == end.offset_bytes)
            .then_some(Copied::Ahead { copy, log })
    }

    /// What it means that a keeper has this.
    fn standing(&mut self, asked: Asked, kept: LogKept, now: LogNow) -> Standing {
        let log = asked.log;
        if log != now.number {
            return Standing::Unknown;
        }
        let LogKept { through_bytes, end, is_whole } = kept;
        if asked.through == Some(through_bytes) {
            if asked.ends && !is_whole {
                // It has all of it and does not let it count.
                return Standing::Rests;
            }
            return Standing::Follows { log, through: through_bytes, is_whole };
        }
        if end.offset_bytes > 0 && self.is_beginning(end, now) {
            return Standing::Follows { log, through: end.offset_bytes, is_whole };
        }
        let start = point(now.start);
        if !asked.cuts && end.offset_bytes > start.offset_bytes {
            return Standing::Differs { log, from: start };
        }
        if end.offset_bytes > 0 {
            tracing::warn!(?end, ours = ?point(now.end), "a copy of the log goes on differently: it is made anew");
        }
        Standing::Follows { log, through: 0, is_whole: false }
    }

    /// Whether the log goes on behind this point, or ends there.
    fn is_beginning(&mut self, end: LogPoint, now: LogNow) -> bool {
        let end = tail(end);
        if end.offset_bytes >= now.end.offset_bytes {
            return end == now.end;
        }
        // The next record's checksum continues that of the one before.
        let mut follower = Follower::after(end);
        loop {
            let from = follower.through_bytes();
            let read = self.outlet.read(now.number, from, KEPT_BYTES_MAX, &mut self.file, &mut self.bytes);
            if read.is_err() || self.bytes.is_empty() {
                return false;
            }
            let damage = follower.whole(&self.bytes);
            if follower.tail() != end {
                return true;
            }
            if damage.is_some() {
                return false;
            }
        }
    }

    /// A node is away.
    pub(super) fn lost(&mut self, node: usize) {
        for keeper in self.keepers.iter_mut().filter(|keeper| keeper.node == node) {
            (keeper.standing, keeper.asked, keeper.ahead) = (Standing::Unknown, None, (0, 0));
        }
    }

    /// Some time has gone by.
    pub(super) fn tick(&mut self) {
        for keeper in self.keepers.iter_mut().filter(|keeper| keeper.standing == Standing::Rests) {
            keeper.standing = Standing::Unknown;
        }
    }
}

/// The reply is to something else.
#[derive(Debug)]
pub(super) struct NotAsked;

/// Bytes as they travel: in the request, or in the connection's memory.
fn parcel(bytes: &[u8], lines: &Lines, node: usize) -> Option<Parcel> {
    if bytes.len() <= TRANSACT_BYTES_MAX {
        return Some(Parcel::Here(bytes.to_vec()));
    }
    let (region, memory) = lines.memory(node)?;
    region.copy_in(0, bytes).ok()?;
    Some(Parcel::Beside(Target { length_bytes: bytes.len() as u64, ..memory }))
}
