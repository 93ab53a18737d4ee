//! Limits the memory of all queries, and shares it between the operators that can spill.
//!
//! An operator that can spill may hold an equal share of the memory that the operators that cannot
//! spill leave. Only operators that hold memory are counted. DataFusion's `FairSpillPool` also
//! counts operators that hold nothing: a plan of many joins has hundreds, and each share would be
//! tiny.
//!
//! Invariants
//! - All operators together hold at most the pool, apart from memory that they use without a
//!   reservation.
//! - A quarter of the pool is reserved for two kinds of operators: those that hold less than half
//!   of their share, so that each gets its first rows, and those whose reservation was refused,
//!   because spilling needs some memory.

use std::{collections::HashMap, fmt, sync::Mutex, sync::PoisonError};

use datafusion::{
    common::resources_datafusion_err,
    error::Result,
    execution::memory_pool::{
        MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
    },
};

/// The divisor of the pool for the reserve of operators that hold little.
const KEPT_PART: usize = 4;
/// The divisor of the pool up to which an operator holds little.
const LITTLE_PART: usize = 32;
/// An operator that was refused gets in addition what it held, divided by this, until it has given
/// back half of that.
const ON_TOP_PART: usize = 2;

/// A pool of this many bytes.
#[derive(Debug)]
pub(super) struct SharedPool {
    bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that are held.
    held: usize,
    /// The part of it that is held by operators that cannot write to disk.
    bound: usize,
    /// The operators that can write to disk and hold memory.
    spilling: HashMap<usize, Spilling>,
}

/// An operator that can write to disk.
#[derive(Debug, Default)]
struct Spilling {
    held: usize,
    /// What it held when it was refused more; `None` again once it has given back half of that.
    refused_at: Option<usize>,
}

impl State {
    fn grow(&mut self, consumer: &MemoryConsumer, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.held += bytes;
        if consumer.can_spill() {
            self.spilling.entry(consumer.id()).or_default().held += bytes;
        } else {
            self.bound += bytes;
        }
    }

    fn shrink(&mut self, consumer: &MemoryConsumer, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.held -= bytes;
        if !consumer.can_spill() {
            self.bound -= bytes;
            return;
        }
        let spilling = self.spilling.get_mut(&consumer.id()).expect("who gives back holds something");
        spilling.held -= bytes;
        if spilling.refused_at.is_some_and(|refused_at| spilling.held <= refused_at / 2) {
            spilling.refused_at = None;
        }
        if spilling.held == 0 {
            self.spilling.remove(&consumer.id());
        }
    }
}

impl SharedPool {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much an operator that holds `held` bytes may hold.
    fn most(&self, state: &State, consumer: &MemoryConsumer, held: usize) -> usize {
        let free = self.bytes.saturating_sub(state.held);
        let little = (self.bytes / LITTLE_PART).min(held + free);
        let free_for_all = (self.bytes - self.bytes / KEPT_PART).saturating_sub(state.held);
        if !consumer.can_spill() {
            // The memory that sorts merge with is also of this kind.
            return (held + free_for_all).max((self.bytes / KEPT_PART).min(held + free));
        }
        let known = state.spilling.get(&consumer.id());
        let others = state.spilling.len() - usize::from(known.is_some());
        let share = self.bytes.saturating_sub(state.bound) / (others + 1);
        let little = little.max((share / 2).min(held + free));
        let refused_at = known.and_then(|known| known.refused_at);
        let on_top =
            refused_at.map_or(0, |refused_at| (refused_at + refused_at / ON_TOP_PART).min(held + free));
        (held + free_for_all).min(share).max(little).max(on_top)
    }
}

impl MemoryPool for SharedPool {
    fn name(&self) -> &'static str {
        "shared"
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.state().grow(reservation.consumer(), additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.state().shrink(reservation.consumer(), shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.state();
        let consumer = reservation.consumer();
        // One operator may have several reservations.
        let held = match state.spilling.get(&consumer.id()) {
            Some(spilling) => spilling.held,
            None => reservation.size(),
        };
        let most = self.most(&state, consumer, held);
        if held + additional > most {
            if let Some(spilling) = state.spilling.get_mut(&consumer.id()) {
                spilling.refused_at.get_or_insert(held);
            }
            return Err(resources_datafusion_err!(
                "{} holds {} and requests {} more, but may hold {}; all operators together hold {} of {}",
                consumer.name(),
                human_readable_size(held),
                human_readable_size(additional),
                human_readable_size(most),
                human_readable_size(state.held),
                human_readable_size(self.bytes)
            ));
        }
        state.grow(consumer, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.state().held
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

impl fmt::Display for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a pool of {}", human_readable_size(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const MIB: usize = 1 << 20;

    fn pool() -> Arc<dyn MemoryPool> {
        Arc::new(SharedPool::new(64 * MIB))
    }

    fn consumer(pool: &Arc<dyn MemoryPool>, name: &str, can_spill: bool) -> MemoryReservation {
        MemoryConsumer::new(name).with_can_spill(can_spill).register(pool)
    }

    #[test]
    fn one_that_holds_something_gets_all_but_what_is_kept_however_many_hold_nothing() {
        let pool = pool();
        let idle: Vec<MemoryReservation> = (0..500).map(|_| consumer(&pool, "idle", true)).collect();
        let sort = consumer(&pool, "sort", true);
        sort.try_grow(48 * MIB).unwrap();
        let error = sort.try_grow(13 * MIB).unwrap_err().to_string();
        assert!(error.contains("sort holds 48.0 MB and requests 13.0 MB more"), "{error}");
        // The reserve lets other operators get their first rows.
        idle[0].try_grow(8 * MIB).unwrap();
        idle[1].try_grow(8 * MIB).unwrap();
        assert!(idle[2].try_grow(1).is_err());
    }

    #[test]
    fn those_that_hold_something_get_the_same_of_what_others_leave() {
        let pool = pool();
        let join = consumer(&pool, "join", false);
        join.try_grow(32 * MIB).unwrap();
        let sorts = [consumer(&pool, "one", true), consumer(&pool, "two", true)];
        sorts[0].try_grow(MIB).unwrap();
        sorts[1].try_grow(MIB).unwrap();
        assert!(sorts[0].try_grow(15 * MIB + 1).is_err(), "half of what the join leaves");
        sorts[0].try_grow(9 * MIB).unwrap();
        sorts[0].free();
        sorts[1].try_grow(15 * MIB).unwrap();
    }

    #[test]
    fn one_that_was_refused_gets_some_more_until_it_has_given_back_half() {
        let pool = pool();
        let sort = consumer(&pool, "sort", true);
        sort.try_grow(32 * MIB).unwrap();
        assert!(sort.try_grow(33 * MIB).is_err());
        sort.try_grow(16 * MIB).unwrap();
        assert!(sort.try_grow(1).is_err());
        sort.shrink(32 * MIB);
        sort.try_grow(32 * MIB).unwrap();
        assert!(sort.try_grow(9 * MIB).is_err(), "as one that was not refused");
    }

    #[test]
    fn reservations_of_one_operator_count_together_and_all_is_given_back() {
        let pool = pool();
        let sort = consumer(&pool, "sort", true);
        sort.try_grow(40 * MIB).unwrap();
        let part = sort.split(20 * MIB);
        assert!(part.try_grow(21 * MIB).is_err());
        drop(part);
        assert_eq!(pool.reserved(), 20 * MIB);
        drop(sort);
        assert_eq!(pool.reserved(), 0);
        let join = consumer(&pool, "join", false);
        join.try_grow(48 * MIB).unwrap();
        assert!(join.try_grow(1).is_err());
    }
}
