//! Decides from measured traffic which senders get a private ring.
//!
//! The paper leaves open how rings are assigned (section 6). Here each call of
//! [`Assignment::decide`] adds the messages since the previous call to a weight for each sender.
//! The weight is halved at each call, so it reflects the recent past. The heaviest senders should
//! have the private rings, but a move that the next call would undo is worse than none.
//!
//! Invariants
//! - Decisions depend only on the traffic that the calls were given: no clock, no randomness.
//! - A sender of a shared ring takes over a private ring only if it is `displace_factor` times as
//!   heavy as the sender that has the ring.
//! - Moves are returned in an order in which each finds a free ring.

use std::collections::HashMap;

use super::{
    arrival::{Ring, SenderId},
    statistics::SenderTraffic,
};

/// When a sender is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssignmentConfig {
    /// Private rings of the inbox.
    pub private_rings: u16,
    /// The minimum weight, in messages of the recent past, with which a sender gets a free private
    /// ring.
    pub messages_min: u64,
    /// With less weight than this it goes back to a shared ring.
    pub messages_keep: u64,
    /// How many times as heavy a sender must be to take another's ring.
    pub displace_factor: u64,
}

impl AssignmentConfig {
    /// The default values for so many private rings.
    #[must_use]
    pub fn new(private_rings: u16) -> Self {
        Self { private_rings, messages_min: 16, messages_keep: 4, displace_factor: 2 }
    }
}

/// A change of a sender's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// To a ring of its own: [`super::Inbox::make_private`].
    ToPrivate(SenderId),
    /// To a shared ring: [`super::Inbox::make_shared`].
    ToShared(SenderId),
}

/// A message counts so many units of weight, so that halving keeps fractions.
const UNIT: u64 = 16;

#[derive(Debug, Clone, Copy)]
struct Weight {
    messages_before: u64,
    weight: u64,
}

/// The weights of all senders after the calls so far.
#[derive(Debug)]
pub struct Assignment {
    config: AssignmentConfig,
    weights: HashMap<SenderId, Weight>,
}

impl Assignment {
    /// An assignment that has seen no traffic yet.
    #[must_use]
    pub fn new(config: AssignmentConfig) -> Self {
        Self { config, weights: HashMap::new() }
    }

    /// Takes in the traffic since the last call and returns which senders to move. The caller
    /// carries the moves out; those that it does not are returned again by the next call.
    pub fn decide(&mut self, traffic: &[SenderTraffic]) -> Vec<Move> {
        self.weigh(traffic);
        let weight = |sender: &SenderTraffic| self.weights.get(&sender.sender).map_or(0, |w| w.weight);
        let (mut holders, mut sharers): (Vec<&SenderTraffic>, Vec<&SenderTraffic>) =
            traffic.iter().partition(|sender| matches!(sender.ring, Ring::Private(_)));
        let mut moves = Vec::new();
        holders.retain(|holder| {
            let keeps = weight(holder) >= self.config.messages_keep * UNIT;
            if !keeps {
                moves.push(Move::ToShared(holder.sender));
            }
            keeps
        });
        sharers.retain(|sharer| sharer.can_move && weight(sharer) >= self.config.messages_min * UNIT);
        // Heaviest first. The names only make the order of equal weights deterministic.
        let name = |sender: &SenderTraffic| (sender.sender.index, sender.sender.generation);
        sharers.sort_by_key(|sharer| (std::cmp::Reverse(weight(sharer)), name(sharer)));
        holders.sort_by_key(|holder| (std::cmp::Reverse(weight(holder)), name(holder)));
        let mut free = usize::from(self.config.private_rings).saturating_sub(holders.len());
        for sharer in sharers {
            if free > 0 {
                free -= 1;
            } else {
                let heavy = |holder: &mut &SenderTraffic| {
                    weight(sharer) >= weight(holder).saturating_mul(self.config.displace_factor)
                };
                let Some(lightest) = holders.pop_if(heavy) else { break };
                moves.push(Move::ToShared(lightest.sender));
            }
            moves.push(Move::ToPrivate(sharer.sender));
        }
        moves
    }

    /// The new weight is half of the old weight plus the new messages.
    fn weigh(&mut self, traffic: &[SenderTraffic]) {
        let mut weights = HashMap::with_capacity(traffic.len());
        for sender in traffic {
            let old = self.weights.get(&sender.sender).copied();
            let old = old.unwrap_or(Weight { messages_before: 0, weight: 0 });
            let new = sender.messages.saturating_sub(old.messages_before);
            let weight = (old.weight / 2).saturating_add(new.saturating_mul(UNIT));
            weights.insert(sender.sender, Weight { messages_before: sender.messages, weight });
        }
        // Senders that have left are dropped.
        self.weights = weights;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Move::{ToPrivate, ToShared};

    fn id(index: u16) -> SenderId {
        SenderId { index, generation: 1 }
    }

    /// Calls `decide` once per entry of `looks`, carries out every move, and returns the moves of
    /// each call. `looks[i][s]`: messages of sender `s` between call `i - 1` and call `i`.
    fn play(private_rings: u16, looks: &[&[u64]]) -> Vec<Vec<Move>> {
        let mut assignment = Assignment::new(AssignmentConfig::new(private_rings));
        let mut rings: Vec<Option<u16>> = vec![None; looks[0].len()];
        let mut totals = vec![0; looks[0].len()];
        let mut moved = Vec::new();
        for look in looks {
            let mut traffic = Vec::new();
            for (index, new) in look.iter().enumerate() {
                totals[index] += new;
                let ring = rings[index].map_or(Ring::Shared(0), Ring::Private);
                let (sender, messages) = (id(u16::try_from(index).unwrap()), totals[index]);
                let (bytes, packets, can_move) = (0, messages, true);
                traffic.push(SenderTraffic { sender, ring, messages, bytes, packets, can_move });
            }
            let moves = assignment.decide(&traffic);
            for step in &moves {
                match step {
                    ToShared(sender) => {
                        assert!(rings[usize::from(sender.index)].take().is_some(), "{step:?} has no ring");
                    }
                    ToPrivate(sender) => {
                        let free = (0..private_rings).find(|ring| !rings.contains(&Some(*ring)));
                        rings[usize::from(sender.index)] = Some(free.expect("no ring is free"));
                    }
                }
            }
            moved.push(moves);
        }
        moved
    }

    #[test]
    fn the_frequent_get_the_rings_and_the_rare_share() {
        let moved = play(2, &[&[100, 3, 50, 0], &[100, 3, 50, 0]]);
        assert_eq!(moved, [vec![ToPrivate(id(0)), ToPrivate(id(2))], vec![]]);
    }

    #[test]
    fn a_sender_that_becomes_frequent_takes_the_ring_of_one_that_is_half_as_frequent() {
        let moved = play(1, &[&[40, 0], &[40, 40], &[40, 150], &[40, 150]]);
        assert_eq!(moved, [vec![ToPrivate(id(0))], vec![], vec![ToShared(id(0)), ToPrivate(id(1))], vec![]]);
    }

    #[test]
    fn equals_do_not_take_turns() {
        let swing: [&[u64]; 6] = [&[60, 50], &[50, 60], &[60, 50], &[50, 60], &[60, 50], &[50, 60]];
        let moved = play(1, &swing);
        assert_eq!(moved[0], [ToPrivate(id(0))]);
        assert!(moved[1..].iter().all(Vec::is_empty), "{moved:?}");
    }

    #[test]
    fn a_pause_is_forgiven_and_silence_is_not() {
        let moved = play(1, &[&[64], &[0], &[64], &[0], &[0], &[0], &[0], &[0], &[0]]);
        let back = moved.iter().position(|moves| moves.contains(&ToShared(id(0))));
        assert_eq!(moved[0], [ToPrivate(id(0))]);
        // 64 + 16 messages are halved until fewer than 4 are left.
        assert_eq!(back, Some(7));
    }

    #[test]
    fn a_few_messages_are_not_worth_a_ring() {
        assert_eq!(play(4, &[&[15, 3], &[0, 3], &[0, 3]]), vec![Vec::new(); 3]);
        assert_eq!(play(4, &[&[15, 0], &[9, 0]]), [vec![], vec![ToPrivate(id(0))]]);
    }

    #[test]
    fn a_new_holder_of_an_old_index_starts_without_weight() {
        let mut assignment = Assignment::new(AssignmentConfig::new(1));
        let ring = Ring::Shared(0);
        let sender = |generation, messages| SenderTraffic {
            sender: SenderId { index: 0, generation },
            ring,
            messages,
            bytes: 0,
            packets: messages,
            can_move: true,
        };
        assert_eq!(assignment.decide(&[sender(1, 100)]).len(), 1);
        assert_eq!(assignment.decide(&[sender(2, 3)]), []);
        assert_eq!(assignment.decide(&[]), []);
        assert!(assignment.weights.is_empty());
    }

    #[test]
    fn a_sender_that_cannot_move_is_never_moved() {
        let mut assignment = Assignment::new(AssignmentConfig::new(1));
        let traffic = |index, can_move| SenderTraffic {
            sender: id(index),
            ring: Ring::Shared(index),
            messages: 1000 - u64::from(index),
            bytes: 0,
            packets: 0,
            can_move,
        };
        assert_eq!(assignment.decide(&[traffic(0, false), traffic(1, true)]), [ToPrivate(id(1))]);
        assert_eq!(assignment.decide(&[traffic(0, false)]), []);
    }

    #[test]
    fn without_private_rings_nobody_moves() {
        assert_eq!(play(0, &[&[100, 100], &[100, 0]]), vec![Vec::new(); 2]);
    }
}
