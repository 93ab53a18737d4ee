//! Computes the names of the numbered keys.
//!
//! Invariants
//! - Names are those of YCSB: `user` and the absolute value of the number's 64-bit FNV-1a hash
//!   (`CoreWorkload.buildKeyName` with `insertorder=hashed`).
//! - A session caches at most [`NAMES_KEPT_MAX`] names and shares none with other threads, because
//!   threads would contend for the reference counters of shared names.

use crate::limits::NAMES_KEPT_MAX;
use az::SaturatingAs;
use rackscan_ramp::item::Key;
use std::fmt::Write as _;

/// YCSB's `Utils.fnvhash64`: hashes the eight octets, least significant first, and returns the
/// absolute value of the result as a signed number.
#[must_use]
pub(crate) fn fnv64(number: u64) -> u64 {
    let octets = number.to_le_bytes();
    let hash = octets.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(1_099_511_628_211)
    });
    hash.cast_signed().unsigned_abs()
}

/// The name of a key.
#[must_use]
pub fn key_name(number: u32) -> String {
    format!("user{}", fnv64(number.into()))
}

/// The names that a session caches.
#[derive(Debug, Default)]
pub struct Names {
    /// Indexed by the number's remainder; a later name replaces an earlier one.
    kept: Vec<Option<(u32, Key)>>,
    text: String,
}

impl Names {
    /// For a session that uses about `keys` names.
    #[must_use]
    pub fn new(keys: u32) -> Self {
        let places = keys.saturating_as::<usize>().clamp(1, NAMES_KEPT_MAX);
        Self { kept: vec![None; places], text: String::new() }
    }

    /// The key with a number. `None` never happens, because these names are within every limit of
    /// keys.
    pub fn key(&mut self, number: u32) -> Option<Key> {
        let place = number.saturating_as::<usize>() % self.kept.len().max(1);
        if let Some(Some((kept, key))) = self.kept.get(place)
            && *kept == number
        {
            return Some(key.clone());
        }
        self.text.clear();
        write!(self.text, "user{}", fnv64(number.into())).ok()?;
        let key = Key::new(self.text.as_bytes()).ok()?;
        *self.kept.get_mut(place)? = Some((number, key.clone()));
        Some(key)
    }
}
