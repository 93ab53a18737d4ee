//! Has this program been verified before?
//!
//! A query scans many segments with one program; it is verified for the first and remembered for the others, together with the
//! key filters that it names, which then need not travel again. The key is the whole encoded program, the filters' digests in
//! it, so nothing but the same program is ever taken for it.
//!
//! Invariants
//! - At most `PROGRAMS_KEPT_MAX` programs and `PROGRAM_FILTERS_BYTES_MAX` bytes of filters are kept; the one not used for longest
//!   goes first.
//! - A program is verified against the definition of the table it names, whose id is never reused.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use rackscan_format::{
    codec,
    message::Refusal,
    program::{ScanProgram, VerifiedProgram},
};

use crate::{
    limits::{PROGRAM_FILTERS_BYTES_MAX, PROGRAMS_KEPT_MAX},
    task::malformed,
};

/// A program as its bytes and as what they were found to mean.
type Kept = (Vec<u8>, Arc<VerifiedProgram>);

/// Verified programs, the last used first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    kept: Mutex<VecDeque<Kept>>,
}

impl Programs {
    /// The verified form of a program, if it is known.
    pub(crate) fn known(&self, program: &ScanProgram) -> Result<Option<Arc<VerifiedProgram>>, Refusal> {
        let key = key_of(program)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = kept.iter().position(|(known, _)| *known == key) else { return Ok(None) };
        // Found a moment ago.
        let Some(entry) = kept.remove(index) else { return Ok(None) };
        let found = Arc::clone(&entry.1);
        kept.push_front(entry);
        Ok(Some(found))
    }

    /// Keeps a verified program that has the key filters it names.
    pub(crate) fn keep(&self, verified: VerifiedProgram) -> Result<Arc<VerifiedProgram>, Refusal> {
        let (key, verified) = (key_of(verified.program())?, Arc::new(verified));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((key, Arc::clone(&verified)));
        let mut filter_bytes = 0;
        let within = kept.iter().take(PROGRAMS_KEPT_MAX).take_while(|(_, program)| {
            filter_bytes += bytes_of_filters(program);
            filter_bytes <= PROGRAM_FILTERS_BYTES_MAX
        });
        let within = within.count();
        kept.truncate(within);
        Ok(verified)
    }
}

fn key_of(program: &ScanProgram) -> Result<Vec<u8>, Refusal> {
    codec::encode(program).map_err(|error| malformed(error.to_string()))
}

fn bytes_of_filters(program: &VerifiedProgram) -> usize {
    program.program().key_filters.iter().map(|name| name.length_bytes as usize).sum()
}
