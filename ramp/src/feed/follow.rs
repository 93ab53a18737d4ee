//! Defines [`Follow`], the trait of types that process the items and then the records of all
//! participants, for example to maintain a copy of them.
//!
//! ```text
//! begin_anew, scanned .. scanned,     first: all items that participants store
//! { record .. record, round_ended }   then rounds: in each, every feed is read up to an end that was observed after the previous round had ended
//! ```
//!
//! Invariant: the position of every feed was recorded before any participant was scanned, and its
//! records are passed on from that position, in order. So no write is missing, and some arrive
//! twice.

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
