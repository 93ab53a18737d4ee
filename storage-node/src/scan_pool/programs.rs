//! Remembers scan programs that were verified, so that a program is verified once and not for every
//! segment of a query.
//!
//! The program's key filters (sets of join keys) are remembered with it, and need not be sent
//! again. The lookup key is the whole encoded program, including the digests of its filters, and
//! the columns against which it was verified, so only the same program can match.
//!
//! Invariants
//! - At most `PROGRAMS_KEPT_MAX` programs and `PROGRAM_FILTERS_BYTES_MAX` bytes of filters are
//!   remembered; the least recently used program is dropped first.
//! - A program matches only for the columns against which it was verified; the table that it names
//!   does not matter.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use rackscan_format::{
    codec,
    message::Refusal,
    program::{ScanProgram, VerifiedProgram},
    schema::TableDefinition,
};

use crate::{
    limits::{PROGRAM_FILTERS_BYTES_MAX, PROGRAMS_KEPT_MAX},
    refusals::malformed,
};

/// A program in encoded and in verified form.
#[derive(Debug)]
struct Kept {
    key: Vec<u8>,
    /// The definition whose columns it was verified against.
    definition: Arc<TableDefinition>,
    program: Arc<VerifiedProgram>,
}

impl Kept {
    fn is(&self, key: &[u8], definition: &Arc<TableDefinition>) -> bool {
        let same =
            || Arc::ptr_eq(&self.definition, definition) || self.definition.columns == definition.columns;
        self.key == key && same()
    }
}

/// Verified programs, the most recently used first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    kept: Mutex<VecDeque<Kept>>,
}

impl Programs {
    /// The verified form of a program, if it is known for the columns of this table.
    pub(crate) fn known(
        &self,
        program: &ScanProgram,
        definition: &Arc<TableDefinition>,
    ) -> Result<Option<Arc<VerifiedProgram>>, Refusal> {
        let key = key_of(program)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = kept.iter().position(|known| known.is(&key, definition)) else { return Ok(None) };
        // The index was found above.
        let Some(entry) = kept.remove(index) else { return Ok(None) };
        let found = Arc::clone(&entry.program);
        kept.push_front(entry);
        Ok(Some(found))
    }

    /// Remembers a program with all its key filters, verified against the columns of this table.
    pub(crate) fn keep(
        &self,
        verified: VerifiedProgram,
        definition: &Arc<TableDefinition>,
    ) -> Result<Arc<VerifiedProgram>, Refusal> {
        let (key, verified) = (key_of(verified.program())?, Arc::new(verified));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front(Kept { key, definition: Arc::clone(definition), program: Arc::clone(&verified) });
        let mut filter_bytes = 0;
        let within = kept.iter().take(PROGRAMS_KEPT_MAX).take_while(|known| {
            filter_bytes += bytes_of_filters(&known.program);
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
