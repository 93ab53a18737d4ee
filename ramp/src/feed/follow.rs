//! Defines the trait of those that process what all participants have and write, in the order of
//! feeds.
//!
//! ```text
//! begin_anew, scanned .. scanned,     what participants have
//! { record .. record, round_ended }   rounds: every feed is read to an end that was read after the previous round had ended
//! ```
//!
//! Invariant: every feed was marked before anything was scanned, and its records are passed on from
//! the mark on, in order. So nothing is missing, and some of it comes twice.

use crate::{
    item::Key,
    log::Record,
    message::{Found, ParticipantId},
};

/// Processes what participants have and write, and knows neither connections nor feeds.
pub trait Follow {
    /// An item or record that it does not understand.
    type Fault: std::error::Error;

    /// Forgets everything: what follows begins anew.
    fn begin_anew(&mut self);

    /// Takes a part of what a participant has, from a scan that began after its feed was marked.
    ///
    /// # Errors
    /// An item or record that it does not understand.
    fn scanned(&mut self, participant: ParticipantId, items: Vec<(Key, Found)>) -> Result<(), Self::Fault>;

    /// Takes the next record of a participant's feed.
    ///
    /// # Errors
    /// An item or record that it does not understand.
    fn record(&mut self, participant: ParticipantId, record: Record) -> Result<(), Self::Fault>;

    /// All feeds were read to their ends. Returns whether that is enough; if not, another round
    /// follows.
    ///
    /// # Errors
    /// An item or record that it does not understand.
    fn round_ended(&mut self) -> Result<bool, Self::Fault>;
}
