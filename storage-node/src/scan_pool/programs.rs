//! Has this program been verified before?
//!
//! A query scans many segments with one program; it is verified for the first and remembered for
//! the others, together with the key filters that it names, which then need not travel again. The
//! key is the whole encoded program, the filters' digests in it, and the columns that it was held
//! against, so nothing but the same program is ever taken for it.
//!
//! Invariants
//! - At most `PROGRAMS_KEPT_MAX` programs and `PROGRAM_FILTERS_BYTES_MAX` bytes of filters are
//!   kept; the one not used for longest goes first.
//! - A program is known only for the columns against which it was verified: the table that it names
//!   may be any.

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
    task::malformed,
};

/// A program as its bytes and as what they were found to mean.
#[derive(Debug)]
struct Kept {
    key: Vec<u8>,
    /// Whose columns it was held against.
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

/// Verified programs, the last used first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    kept: Mutex<VecDeque<Kept>>,
}

impl Programs {
    /// The verified form of a program for a table with the columns of this one, if it is known.
    pub(crate) fn known(
        &self,
        program: &ScanProgram,
        definition: &Arc<TableDefinition>,
    ) -> Result<Option<Arc<VerifiedProgram>>, Refusal> {
        let key = key_of(program)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(index) = kept.iter().position(|known| known.is(&key, definition)) else { return Ok(None) };
        // Found a moment ago.
        let Some(entry) = kept.remove(index) else { return Ok(None) };
        let found = Arc::clone(&entry.program);
        kept.push_front(entry);
        Ok(Some(found))
    }

    /// Keeps a program that has the key filters it names and was verified against the columns of
    /// this table.
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
