//! Runs kernels (loops over arrays) with the best vector instructions of the processor that the
//! binary runs on.
//!
//! The compiler vectorises these loops. Each kernel is compiled once for every [`Level`] of
//! instructions; the process chooses one level when it begins to scan. `RACKSCAN_SIMD=plain` (or
//! `v2`, `v3`, `v4`) forces a level; an unknown name, or a level that the machine lacks, is
//! ignored. Levels of x86-64 are those of its psABI; on aarch64 NEON is part of the base
//! instruction set, so `plain` is NEON code there.
//!
//! Invariants
//! - A level changes speed, never a bit of any result: kernels compute with integers, and the order
//!   of their operations does not matter.
//! - If a level is requested that the machine lacks, the plain code runs: the dispatcher detects
//!   the processor's features itself.
//! - Functions that [`Kernel::run`] calls must be `#[inline(always)]`; otherwise they are compiled
//!   for the base instruction set only.

use multiversion::multiversion;
use std::{fmt, sync::OnceLock};

/// The environment variable that forces a level.
pub const SIMD_VARIABLE: &str = "RACKSCAN_SIMD";

/// A loop over the values of a block, with its inputs and outputs.
pub trait Kernel {
    /// The result.
    type Output;

    /// Runs the loop; implementations are `#[inline(always)]`.
    fn run(self) -> Self::Output;
}

/// Which instructions kernels may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The base instruction set of the architecture: SSE2, or NEON.
    Plain,
    /// x86-64-v2: up to SSE4.2.
    V2,
    /// x86-64-v3: up to AVX2.
    V3,
    /// x86-64-v4: AVX-512, in processors from Ice Lake on, where it does not slow down the rest.
    V4,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::V2 => "v2",
            Self::V3 => "v3",
            Self::V4 => "v4",
        })
    }
}

impl Level {
    const ALL: [Self; 4] = [Self::Plain, Self::V2, Self::V3, Self::V4];

    /// The levels this machine has, [`Level::Plain`] first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|level| detected(*level)).collect()
    }

    /// The level of that name, if this machine has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|level| level.to_string() == name)
    }

    /// The level that `RACKSCAN_SIMD` forces, else the best of this machine; decided once per
    /// process.
    #[must_use]
    pub fn chosen() -> Self {
        static CHOSEN: OnceLock<Level> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let forced = std::env::var(SIMD_VARIABLE).ok().and_then(|name| Self::named(&name));
            forced.or_else(|| Self::available().pop()).unwrap_or(Self::Plain)
        })
    }

    /// Runs a kernel as it was compiled for this level.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Plain => kernel.run(),
            Self::V2 => v2(kernel),
            Self::V3 => v3(kernel),
            Self::V4 => v4(kernel),
        }
    }
}

#[multiversion(targets("x86_64+cmpxchg16b+popcnt+sse3+sse4.1+sse4.2+ssse3"), dispatcher = "direct")]
fn v2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[multiversion(
    targets("x86_64+avx+avx2+bmi1+bmi2+cmpxchg16b+f16c+fma+lzcnt+movbe+popcnt+sse3+sse4.1+sse4.2+ssse3"),
    dispatcher = "direct"
)]
fn v3<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[multiversion(
    targets(
        "x86_64+avx+avx2+avx512bw+avx512cd+avx512dq+avx512f+avx512vl+bmi1+bmi2+cmpxchg16b+f16c+fma+lzcnt+movbe+popcnt+sse3+sse4.1+sse4.2+ssse3"
    ),
    dispatcher = "direct"
)]
fn v4<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
fn detected(level: Level) -> bool {
    use std::arch::is_x86_feature_detected as has;
    let second = || has!("cmpxchg16b") && has!("popcnt") && has!("sse4.2") && has!("ssse3");
    let third = || {
        let vectors = has!("avx2") && has!("f16c") && has!("fma");
        vectors && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("movbe")
    };
    let fourth = || {
        let base = has!("avx512f") && has!("avx512vl");
        let base = base && has!("avx512bw") && has!("avx512cd") && has!("avx512dq");
        // `multiversion` requires the features of Ice Lake: on earlier processors AVX-512 slows the
        // whole processor down.
        let vectors = has!("avx512bitalg") && has!("avx512ifma") && has!("avx512vbmi") && has!("avx512vbmi2");
        let more = has!("avx512vnni") && has!("avx512vpopcntdq") && has!("gfni");
        base && vectors && more && has!("vaes") && has!("vpclmulqdq")
    };
    match level {
        Level::Plain => true,
        Level::V2 => second(),
        Level::V3 => second() && third(),
        Level::V4 => second() && third() && fourth(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detected(level: Level) -> bool {
    level == Level::Plain
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Add<'a>(&'a [u32; 64], &'a mut [u32; 64]);

    impl Kernel for Add<'_> {
        type Output = u32;

        #[inline(always)]
        fn run(self) -> u32 {
            self.1.iter_mut().zip(self.0).for_each(|(to, from)| *to = to.wrapping_add(*from));
            self.1.iter().fold(0, |sum, value| sum ^ *value)
        }
    }

    #[test]
    fn every_level_is_found_by_its_name_and_computes_the_same() {
        let values = std::array::from_fn(|index| u32::try_from(index * index).unwrap());
        let wanted = Add(&values, &mut [7; 64]).run();
        for level in Level::available() {
            assert_eq!(Level::named(&level.to_string()), Some(level));
            assert_eq!(level.run(Add(&values, &mut [7; 64])), wanted, "{level}");
        }
        assert_eq!(Level::available()[0], Level::Plain);
        assert_eq!(Level::named("v5"), None);
    }

    #[test]
    fn a_level_that_the_machine_lacks_runs_all_the_same() {
        let values = [3; 64];
        let all: Vec<u32> = Level::ALL.iter().map(|level| level.run(Add(&values, &mut [1; 64]))).collect();
        assert!(all.iter().all(|one| *one == all[0]));
    }
}
