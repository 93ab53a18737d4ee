//! Builds the refusals that many kinds of requests share.

use rackscan_format::message::{Refusal, RefusalCode};

/// The refusal of a request that breaks a rule.
pub(crate) fn malformed(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Malformed, text)
}

/// The refusal of a request whose memory cannot be used.
pub(crate) fn bad_memory(text: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Memory, text)
}
