//! Tests that claims are disjoint, without gaps and within the ring, however the senders' accesses
//! interleave, and wherever one of them stops for ever. Method: each access of a sender to the
//! memory is one step, and all orders of steps are explored.
//!
//! A sender runs the real code on words that replay what it has read so far, perform one further
//! access, and then stop it (by unwinding). A state is the memory and what each sender has read, so
//! equal states are explored once.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
};

use super::{
    claim::{ClaimRing, Cursor, Word},
    layout::Claim,
};

const SLOTS: usize = 4;
const HEAD: usize = SLOTS;
const HINT: usize = SLOTS + 1;

/// Slots, head and hint.
type Memory = [u64; SLOTS + 2];

/// Thrown by an access that must not happen yet.
struct Paused;

/// One run of a sender's code.
struct Run<'a> {
    memory: &'a [AtomicU64; SLOTS + 2],
    seen: RefCell<Vec<u64>>,
    at: Cell<usize>,
    may_step: Cell<bool>,
}

struct Stepped<'a> {
    run: &'a Run<'a>,
    place: usize,
}

impl Run<'_> {
    fn access(&self, perform: impl FnOnce(&[AtomicU64; SLOTS + 2]) -> u64) -> u64 {
        let at = self.at.replace(self.at.get() + 1);
        if let Some(seen) = self.seen.borrow().get(at) {
            return *seen;
        }
        if !self.may_step.replace(false) {
            resume_unwind(Box::new(Paused));
        }
        let found = perform(self.memory);
        self.seen.borrow_mut().push(found);
        found
    }
}

impl Word for Stepped<'_> {
    fn get(&self) -> u64 {
        self.run.access(|memory| memory[self.place].load(SeqCst))
    }

    fn set(&self, value: u64) {
        self.run.access(|memory| {
            memory[self.place].store(value, SeqCst);
            0
        });
    }

    fn replace(&self, found: u64, value: u64) -> bool {
        let replaced = |memory: &[AtomicU64; SLOTS + 2]| {
            memory[self.place].compare_exchange(found, value, SeqCst, SeqCst).is_ok()
        };
        self.run.access(|memory| u64::from(replaced(memory))) == 1
    }
}

/// Positions and counts; nothing when the ring was full.
type Claims = Vec<Option<(u64, u64)>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    memory: Memory,
    /// What each sender has seen.
    seen: Vec<Vec<u64>>,
    /// The claims of each sender; `None` while its code runs.
    outcome: Vec<Option<Claims>>,
    /// How often the receiver has given back the claim at the head.
    given_back: u32,
}

/// Takes one step of a sender. Returns the state afterwards.
fn step(state: &State, who: usize, wants: &[u64]) -> State {
    let memory = state.memory.map(AtomicU64::new);
    let run = Run {
        memory: &memory,
        seen: RefCell::new(state.seen[who].clone()),
        at: Cell::new(0),
        may_step: Cell::new(true),
    };
    let words: Vec<_> = (0..SLOTS + 2).map(|place| Stepped { run: &run, place }).collect();
    let ring = ClaimRing { claims: &words[..SLOTS], head: &words[HEAD], hint: &words[HINT] };
    let sender = u16::try_from(who).unwrap();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut cursor = Cursor::default();
        let claim = |count: &u64| {
            let claimed = ring.claim(&mut cursor, *count, sender).expect("the memory is not damaged");
            claimed.map(|position| (position, *count))
        };
        wants.iter().map(claim).collect::<Vec<_>>()
    }));
    let mut next = state.clone();
    match ended {
        Ok(claims) => next.outcome[who] = Some(claims),
        Err(thrown) if thrown.is::<Paused>() => {}
        Err(thrown) => resume_unwind(thrown),
    }
    next.seen[who] = run.seen.into_inner();
    next.memory = memory.each_ref().map(|word| word.load(SeqCst));
    next
}

/// The claims from the head to the end, as the receiver finds them.
fn claims(memory: &Memory) -> Vec<(u64, Claim)> {
    let words = memory.map(AtomicU64::new);
    let ring = ClaimRing { claims: &words[..SLOTS], head: &words[HEAD], hint: &words[HINT] };
    ring.claims_from(memory[HEAD]).collect()
}

/// What must hold in every state.
fn check(state: &State) {
    let claims = claims(&state.memory);
    let end = claims.last().map_or(state.memory[HEAD], |(at, claim)| at + u64::from(claim.count));
    assert!(end <= state.memory[HEAD] + SLOTS as u64, "claimed beyond the room: {state:?}");
    let mut got: Vec<_> = state.outcome.iter().flatten().flatten().flatten().copied().collect();
    got.sort_unstable();
    assert!(got.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "claimed twice: {state:?}");
    for (who, outcome) in state.outcome.iter().enumerate() {
        for (position, count) in outcome.iter().flatten().flatten() {
            assert!(position % SLOTS as u64 + count <= SLOTS as u64, "not contiguous: {state:?}");
            let known = claims.iter().any(|(at, claim)| {
                at == position && u64::from(claim.count) == *count && usize::from(claim.sender) == who
            });
            assert!(known || *position < state.memory[HEAD], "a claim nobody would find: {state:?}");
        }
    }
}

/// Explores all states that can be reached. Returns their number.
fn explore(wants: &[&[u64]], start: u64, give_back_max: u32) -> usize {
    let mut memory = [0; SLOTS + 2];
    (memory[HEAD], memory[HINT]) = (start, start);
    let mut states = vec![State {
        memory,
        seen: vec![Vec::new(); wants.len()],
        outcome: vec![None; wants.len()],
        given_back: 0,
    }];
    let mut known = HashSet::new();
    while let Some(state) = states.pop() {
        if !known.insert(state.clone()) {
            continue;
        }
        check(&state);
        for (who, wants) in wants.iter().enumerate() {
            if state.outcome[who].is_none() {
                states.push(step(&state, who, wants));
                // Even if all others have stopped for ever, this one finishes alone.
                finishes_alone(&state, who, wants);
            }
        }
        // The receiver gives back the first claim (its sender is done with it, or gone).
        if state.given_back < give_back_max
            && let Some((at, claim)) = claims(&state.memory).first()
        {
            let mut next = state.clone();
            next.memory[HEAD] = at + u64::from(claim.count);
            next.given_back += 1;
            states.push(next);
        }
    }
    known.len()
}

fn finishes_alone(state: &State, who: usize, wants: &[u64]) {
    let mut state = state.clone();
    for _ in 0..100 {
        if state.outcome[who].is_some() {
            return check(&state);
        }
        state = step(&state, who, wants);
    }
    panic!("sender {who} does not get on: {state:?}");
}

#[test]
fn two_senders_claim_in_every_order_of_their_steps() {
    // From the ring's start, and from where each packet meets its end.
    for start in [4, 5, 6, 7] {
        let states = explore(&[&[1, 2], &[2, 1]], start, 2);
        assert!(states > 1000, "{states} states");
    }
}

#[test]
fn three_senders_claim_in_every_order_of_their_steps() {
    let states = explore(&[&[1], &[2], &[1]], 6, 1);
    assert!(states > 1000, "{states} states");
}

#[test]
fn a_sender_that_was_lapped_while_it_looked_claims_nothing_twice() {
    // One sender goes around the ring while the other is between two of its steps.
    let states = explore(&[&[2, 2, 2, 2], &[1]], 4, 4);
    assert!(states > 1000, "{states} states");
}
