//! Defines the seeds of random choices, and replays a test with a given seed.
//!
//! Invariants
//! - Parsing a seed's text gives the same seed.
//! - Equal seeds give equal draws, on every machine and in every build.

use std::{fmt, num::ParseIntError, ops::RangeInclusive, str::FromStr, time::Duration};

use az::SaturatingAs;

/// The environment variable that makes a test use one given seed.
pub const SEED_VARIABLE: &str = "RACKSCAN_SEED";

/// The source of all random choices of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(u64);

/// Why a seed could not be chosen.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The environment variable is not a seed.
    #[error(
        "{SEED_VARIABLE} is '{found}' ({source}); expected 0x and 16 hexadecimal digits, or a decimal number"
    )]
    NotASeed {
        /// What was found.
        found: String,
        /// What is wrong with it.
        source: ParseIntError,
    },
    /// The operating system's random source failed.
    #[error("could not draw a random seed: {source}; set {SEED_VARIABLE} instead")]
    NoRandomSource {
        /// Its answer.
        source: std::io::Error,
    },
}

impl Seed {
    /// The seed with this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The seed in `RACKSCAN_SEED`, if it is set.
    ///
    /// # Errors
    /// When it is set to something that is no seed.
    pub fn from_environment() -> Result<Option<Self>, SeedError> {
        let Some(found) = std::env::var_os(SEED_VARIABLE) else { return Ok(None) };
        let found = found.to_string_lossy().into_owned();
        found.parse().map(Some).map_err(|source| SeedError::NotASeed { found, source })
    }

    /// The seed in `RACKSCAN_SEED`, or else a random one.
    ///
    /// # Errors
    /// When `RACKSCAN_SEED` is set to something that is no seed, or the system's random source
    /// fails.
    pub fn choose() -> Result<Self, SeedError> {
        if let Some(seed) = Self::from_environment()? {
            return Ok(seed);
        }
        let drawn = getrandom::u64();
        let source = |e: getrandom::Error| std::io::Error::other(e.to_string());
        drawn.map(Self).map_err(|e| SeedError::NoRandomSource { source: source(e) })
    }

    /// Runs `body` for `count` consecutive seeds from a random one, or only for the seed in
    /// `RACKSCAN_SEED`. When `body` panics, prints the seed and the command that replays it.
    ///
    /// # Errors
    /// As [`Seed::choose`].
    pub fn each(count: u64, mut body: impl FnMut(Self)) -> Result<(), SeedError> {
        let first = Self::choose()?;
        let count = if Self::from_environment()?.is_some() { 1 } else { count };
        for number in 0..count {
            let seed = Self(first.0.wrapping_add(number));
            let _replay = Replay { seed };
            body(seed);
        }
        Ok(())
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// A guard that prints the seed and the command that replays it when it is dropped by a panic.
    pub fn replay_on_panic(self) -> Replay {
        Replay { seed: self }
    }

    /// The command that runs the test of this thread again with this seed.
    pub(super) fn command(self) -> String {
        let package = std::env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        // The test harness names a test's thread after it, unless it runs the tests one by one on
        // its own.
        let thread = std::thread::current();
        let test =
            thread.name().filter(|name| *name != "main").map(|name| format!(" {name}")).unwrap_or_default();
        format!("{SEED_VARIABLE}={self} cargo test{package}{test}")
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl FromStr for Seed {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        }
        .map(Self)
    }
}

/// Prints a seed when it is dropped by a panic; see [`Seed::replay_on_panic`].
#[derive(Debug)]
#[must_use = "it prints when it is dropped by a panic"]
pub struct Replay {
    seed: Seed,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}; to replay: {}", self.seed, self.seed.command());
        }
    }
}

/// A stream of numbers from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: Seed) -> Self {
        Self { state: seed.0 }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the upper half of a u128 fits a u64")
    }

    /// An index below `length`, or 0 if `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("a number that is at most a usize fits one")
    }

    /// True in `per_million` of a million cases.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// Nanoseconds in a range. The two ends are more likely than other values, because protocols
    /// break at ends.
    pub(super) fn nanoseconds(&mut self, range: &RangeInclusive<Duration>) -> u64 {
        let nanoseconds = |time: &Duration| time.as_nanos().saturating_as::<u64>();
        let (least, most) = (nanoseconds(range.start()), nanoseconds(range.end()));
        let width = most.saturating_sub(least);
        match self.below(8) {
            0 => least,
            1 => least + width,
            _ => least + self.below(width.saturating_add(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_its_text() {
        for number in [0, 1, 0xDEAD_BEEF, u64::MAX] {
            assert_eq!(Seed::new(number).to_string().parse::<Seed>().unwrap(), Seed::new(number));
        }
        assert_eq!("42".parse::<Seed>().unwrap(), Seed::new(42));
        assert!("0xfoo".parse::<Seed>().is_err());
    }

    #[test]
    fn draws_are_the_published_ones_and_stay_below_their_bound() {
        // First outputs of SplitMix64 for seed 1234567, from its reference implementation.
        let mut random = Random::new(Seed::new(1_234_567));
        assert_eq!(
            [random.next_u64(), random.next_u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        assert_eq!(random.below(0), 0);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[random.index(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
        let range = Duration::from_nanos(3)..=Duration::from_nanos(5);
        assert!((0..1000).all(|_| (3..=5).contains(&random.nanoseconds(&range))));
    }
}
