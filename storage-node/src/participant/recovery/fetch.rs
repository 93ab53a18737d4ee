//! Fetches a log replica from the node that stores it.
//!
//! The replica is fetched piece by piece into a file beside the log, and each record is checked as
//! it arrives.
//!
//! Invariants
//! - Either the whole announced replica is fetched and valid, or the fetch fails.
//! - If the log here is damaged, the replica must contain the intact part of it: the same records
//!   up to the position where that part ends.

use std::{fs::File, time::Instant};

use az::SaturatingAs;
use rackscan_client::{LineEvent, Lines, Retry};
use rackscan_device::Wait;
use rackscan_format::{
    limits::KEPT_BYTES_MAX,
    message::{Answer, CopyHeld, RefusalCode, Target},
};
use rackscan_ramp::{
    limits::LOG_HEADER_BYTES,
    log::{Damage, Follower, Tail},
};

use super::{
    super::{error::os, log_file::LogFile},
    Fault, LogSearch, tag,
};
use crate::{
    copies::tail,
    limits::{LOST_END_ATTEMPTS_MAX, SEEK_PERIOD},
};

impl LogSearch<'_> {
    /// Fetches a replica.
    pub(super) fn fetch(&self, lines: &mut Lines, node: usize, held: CopyHeld) -> Result<(), Fault> {
        let path = self.making.setting.fetched();
        let disk = |action| {
            let fault = os(&path, action);
            move |error| Fault::Disk(fault(error))
        };
        let mut file = File::create(&path).map_err(disk("making it"))?;
        let joint = self.damaged.and_then(|damaged| damaged.joint(&held));
        let (mut at, mut follower) = (0, None::<Follower>);
        while at < held.end.offset_bytes {
            let bytes = self.piece_patiently(lines, node, at, held)?;
            let rest = match follower {
                Some(_) => &bytes[..],
                None => {
                    let start =
                        Tail::from_header(&bytes).map_err(|fault| Fault::Broken(fault.to_string()))?;
                    follower = Some(Follower::after(start));
                    &bytes[LOG_HEADER_BYTES..]
                }
            };
            if let Some(follower) = &mut follower {
                follow(follower, rest, joint)?;
            }
            file.write_at(&bytes, at).map_err(disk("writing it"))?;
            at += bytes.len() as u64;
        }
        let end = follower.map(|follower| follower.tail());
        if end != Some(tail(held.end)) {
            return Err(Fault::Broken(format!("it ends at {end:?}, expected {:?}", held.end)));
        }
        file.sync_all().map_err(disk("the flush"))
    }

    /// The next bytes of a replica. Asks again while its node is busy, so that a long fetch need
    /// not begin anew for that.
    fn piece_patiently(
        &self,
        lines: &mut Lines,
        node: usize,
        from: u64,
        held: CopyHeld,
    ) -> Result<Vec<u8>, Fault> {
        let mut retry = Retry::new(LOST_END_ATTEMPTS_MAX);
        loop {
            match self.piece(lines, node, from, held) {
                Err(Fault::Busy) if retry.again() => self.pause(),
                Err(Fault::Busy) => return Err(Fault::Unavailable),
                outcome => return outcome,
            }
        }
    }

    /// The next bytes of a replica: all, or as many as fit in the connection's memory.
    fn piece(&self, lines: &mut Lines, node: usize, from: u64, held: CopyHeld) -> Result<Vec<u8>, Fault> {
        let Some((region, memory)) = lines.memory(node) else { return Err(Fault::Unavailable) };
        let (region, wanted) = (region.clone(), (held.end.offset_bytes - from).min(KEPT_BYTES_MAX as u64));
        let target = Target { length_bytes: wanted, ..memory };
        lines.send(node, tag(node), self.question(from, Some(target))).map_err(|_| Fault::Unavailable)?;
        let mut events = Vec::new();
        while !self.is_over() {
            lines.poll(Wait::Until(Instant::now() + SEEK_PERIOD), &mut events);
            for event in events.drain(..) {
                match event {
                    LineEvent::Reply { node: from, outcome, .. } if from == node => match outcome {
                        Ok(Answer::CopyOfLog { held: now, written_bytes, .. })
                            if now == Some(held) && (1..=wanted).contains(&written_bytes) =>
                        {
                            let length = written_bytes.saturating_as::<usize>();
                            return region
                                .to_vec(0, length)
                                .map_err(|error| Fault::Broken(error.to_string()));
                        }
                        // Records that this node had sent before it restarted have arrived there
                        // meanwhile.
                        Ok(Answer::CopyOfLog { held: now, .. }) if now != Some(held) => {
                            tracing::debug!(node, ?now, "a copy has changed while it was fetched");
                            std::thread::sleep(SEEK_PERIOD);
                            return Err(Fault::Unavailable);
                        }
                        Ok(other) => {
                            return Err(Fault::Broken(format!(
                                "it answered {other:?}, expected {wanted} bytes"
                            )));
                        }
                        Err(refusal) => {
                            tracing::debug!(node, reason = refusal.text, "a piece of a copy was refused");
                            std::thread::sleep(SEEK_PERIOD);
                            let is_busy = refusal.code == RefusalCode::Busy;
                            return Err(if is_busy { Fault::Busy } else { Fault::Unavailable });
                        }
                    },
                    LineEvent::Lost { node: lost, .. } if lost == node => return Err(Fault::Unavailable),
                    _ => {}
                }
            }
        }
        Err(Fault::Stopping)
    }
}

/// Checks the next bytes of a replica. If `joint`, the end of the intact log, lies in them, it must
/// be the end of one of their records: then all before it equals the intact log.
fn follow(follower: &mut Follower, bytes: &[u8], joint: Option<Tail>) -> Result<(), Fault> {
    let broken = |damage: Damage| Fault::Broken(damage.to_string());
    let place = |joint: Tail| joint.offset_bytes.checked_sub(follower.through_bytes());
    let place = joint.and_then(place).and_then(|place| usize::try_from(place).ok());
    let Some((before, behind)) = place.and_then(|place| bytes.split_at_checked(place)) else {
        return follower.take(bytes).map_err(broken);
    };
    follower.take(before).map_err(broken)?;
    if Some(follower.tail()) != joint {
        let found = follower.tail();
        return Err(Fault::Broken(format!(
            "it has {found:?} where the intact part of the log here ends at {joint:?}: it continues differently"
        )));
    }
    follower.take(behind).map_err(broken)
}

#[cfg(test)]
mod tests {
    use rackscan_ramp::{
        log::{LogWriter, Record},
        timestamp::{ClientId, Timestamp},
    };

    use super::*;

    /// Records of a log, and where it ends behind each.
    fn records(start: Tail, clients: std::ops::Range<u32>) -> (Vec<u8>, Vec<Tail>) {
        let mut writer = LogWriter::after(start);
        let mut ends = vec![start];
        for client in clients {
            writer.append(&Record::Commit(Timestamp { time: 1, client: ClientId(client) }));
            ends.push(writer.tail());
        }
        (writer.take_batch().unwrap().bytes, ends)
    }

    fn followed(start: Tail, bytes: &[u8], piece: usize, joint: Option<Tail>) -> Result<Tail, Fault> {
        let mut follower = Follower::after(start);
        bytes.chunks(piece).try_for_each(|piece| follow(&mut follower, piece, joint))?;
        Ok(follower.tail())
    }

    #[test]
    fn a_copy_goes_on_with_a_log_only_if_it_has_all_of_it_however_it_is_cut_into_pieces() {
        let (_, start) = Tail::header(5, 7);
        let (bytes, ends) = records(start, 1..9);
        let end = ends[8];
        let (other, strangers) = records(start, 11..19);
        assert_eq!(other.len(), bytes.len());
        for piece in 1..=bytes.len() {
            assert_eq!(followed(start, &bytes, piece, None).unwrap(), end);
            for (own, stranger) in ends.iter().zip(&strangers) {
                assert_eq!(followed(start, &bytes, piece, Some(*own)).unwrap(), end);
                // Whole as well, and of the same lengths.
                let outcome = followed(start, &bytes, piece, Some(*stranger));
                let is_refused = matches!(&outcome, Err(Fault::Broken(why)) if why.contains("differently"));
                assert!(is_refused || own == stranger, "{outcome:?}");
            }
            let within = Tail { offset_bytes: ends[3].offset_bytes + 1, ..ends[3] };
            assert!(followed(start, &bytes, piece, Some(within)).is_err(), "no record ends there");
        }
        let mut damaged = bytes;
        damaged[40] ^= 1;
        assert!(followed(start, &damaged, 64, None).is_err());
    }
}
