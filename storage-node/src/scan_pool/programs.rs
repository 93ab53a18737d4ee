//! Has this program been verified before?
//!
//! A query scans many segments with one program; it is verified for the first and remembered for the others. The key is
//! the whole encoded program, so nothing but the same program is ever taken for it.
//!
//! Invariants
//! - At most `PROGRAMS_KEPT_MAX` programs are kept; the one not used for longest goes first.
//! - A program is verified against the definition of the table it names, whose id is never reused.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use rackscan_format::{
    codec,
    message::{Refusal, RefusalCode},
    program::{ScanProgram, VerifiedProgram},
    schema::TableDefinition,
};

use crate::limits::PROGRAMS_KEPT_MAX;

/// Verified programs, the last used first.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    kept: Mutex<VecDeque<(Vec<u8>, Arc<VerifiedProgram>)>>,
}

impl Programs {
    /// The verified form of a program for `table`.
    pub(crate) fn verified(
        &self,
        program: &ScanProgram,
        table: &TableDefinition,
    ) -> Result<Arc<VerifiedProgram>, Refusal> {
        let malformed = |text: String| Refusal::new(RefusalCode::Malformed, text);
        let key = codec::encode(program).map_err(|error| malformed(error.to_string()))?;
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let verified = Arc::new(program.clone().verify(table).map_err(|error| malformed(error.to_string()))?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((key, Arc::clone(&verified)));
        kept.truncate(PROGRAMS_KEPT_MAX);
        Ok(verified)
    }

    fn find(&self, key: &[u8]) -> Option<Arc<VerifiedProgram>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.iter().position(|(known, _)| known == key)?;
        let entry = kept.remove(index)?;
        let found = Arc::clone(&entry.1);
        kept.push_front(entry);
        Some(found)
    }
}
