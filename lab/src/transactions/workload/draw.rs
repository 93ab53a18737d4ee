//! Draws the transactions of a session at random: their kind and their keys.
//!
//! Invariants
//! - Drawing takes bounded time: if a key is already in the transaction, another one is drawn, and
//!   after a few attempts the next free neighbour of the key is used.
//! - Nothing is allocated once the caller's list has grown to the largest transaction.

use super::names::fnv64;
use super::{Choice, Inserts, Mix, SCAN_KEYS, Workload, YCSB_SKEW};
use crate::zipf::Zipf;
use az::SaturatingAs;
use fastrand::Rng;

/// The number of ranks from which YCSB draws its scrambled ranks, whatever the number of keys
/// (`ScrambledZipfianGenerator.ITEM_COUNT`).
const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// How often a key that was drawn already is drawn again.
const REDRAWS_MAX: u32 = 16;

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads its keys.
    Read,
    /// Writes its keys.
    Write,
    /// Reads its keys, and then writes them.
    Modify,
    /// Writes new keys: the length of the list is the number of keys to insert; it has no key
    /// numbers yet.
    Insert,
    /// Reads as many keys as the list is long, from its first one on, in the order of their names.
    Scan,
}

#[derive(Debug)]
enum Source {
    Uniform,
    Scrambled(Zipf),
    Latest(Zipf),
}

/// Draws the transactions of one session.
#[derive(Debug)]
pub struct Drawer {
    workload: Workload,
    source: Source,
    random: Rng,
}

impl Drawer {
    /// Requires a checked workload. Sessions take different seeds.
    #[must_use]
    pub fn new(workload: Workload, seed: u64) -> Self {
        let source = match workload.choice {
            Choice::Uniform => Source::Uniform,
            Choice::Zipfian => Source::Scrambled(Zipf::new(SCRAMBLED_RANKS, YCSB_SKEW)),
            Choice::Latest => Source::Latest(Zipf::new(workload.keys.into(), YCSB_SKEW)),
        };
        Self { workload, source, random: Rng::with_seed(seed) }
    }

    /// Draws the next transaction. `keys` becomes the numbers of its keys; see [`Kind`].
    pub fn next(&mut self, inserts: &Inserts, keys: &mut Vec<u32>) -> Kind {
        keys.clear();
        let (first, share, second) = self.workload.mix.shares();
        let kind = if self.random.f64() < share { first } else { second };
        let size = self.workload.size.draw(&mut self.random);
        match kind {
            Kind::Insert => keys.resize(places(size), 0),
            Kind::Scan => {
                let start = self.key(inserts);
                keys.resize(places(self.random.u32(SCAN_KEYS)), start);
            }
            Kind::Read | Kind::Write | Kind::Modify => self.distinct(size, inserts, keys),
        }
        kind
    }

    /// Draws the length of a value.
    pub fn value_bytes(&mut self) -> u32 {
        self.workload.value_bytes.draw(&mut self.random)
    }

    fn distinct(&mut self, size: u32, inserts: &Inserts, keys: &mut Vec<u32>) {
        for _ in 0..size {
            let mut key = self.key(inserts);
            for _ in 0..REDRAWS_MAX {
                if !keys.contains(&key) {
                    break;
                }
                key = self.key(inserts);
            }
            // There are more keys than list entries, so one of these neighbours is free.
            while keys.contains(&key) {
                key = (key + 1) % self.workload.keys.max(1);
            }
            keys.push(key);
        }
    }

    fn key(&mut self, inserts: &Inserts) -> u32 {
        let loaded = self.workload.keys.max(1);
        match &mut self.source {
            Source::Uniform => self.random.u32(..loaded),
            Source::Scrambled(zipf) => below(fnv64(zipf.draw(self.random.f64())), loaded),
            Source::Latest(zipf) => {
                let visible = inserts.visible().max(loaded);
                zipf.grow(visible.into());
                // `visible` may decrease temporarily, and ranks do not.
                let age = below(zipf.draw(self.random.f64()), visible);
                visible - 1 - age
            }
        }
    }
}

/// The remainder, which is below `bound`.
fn below(number: u64, bound: u32) -> u32 {
    (number % u64::from(bound.max(1))).saturating_as::<u32>()
}

fn places(count: u32) -> usize {
    count.saturating_as::<usize>()
}

impl Mix {
    /// Whether it inserts keys.
    #[must_use]
    pub fn inserts(self) -> bool {
        self.shares().2 == Kind::Insert
    }

    /// Whether it scans.
    #[must_use]
    pub fn scans(self) -> bool {
        self.shares().0 == Kind::Scan
    }
}
