//! What is told to whom, by someone who reads the feeds of all homes?
//!
//! ```text
//! begin_anew, scanned .. scanned,     what homes have
//! { record .. record, round_ended }   rounds: every feed read to an end that was looked at after the round before had ended
//! ```
//!
//! Invariants
//! - Every feed was marked before anything was scanned, and is told from its mark on, in order:
//!   nothing is left out, some of it is told twice.

use crate::{
    item::Key,
    log::Record,
    message::{Found, HomeId},
};

/// What makes something of what homes say, and knows neither wires nor feeds.
pub trait Follow {
    /// What homes say makes no sense.
    type Fault: std::error::Error;

    /// All that was told is void: it begins anew.
    fn begin_anew(&mut self);

    /// A part of what a home has, found by a scan that began after its feed was marked.
    ///
    /// # Errors
    /// What it makes no sense of.
    fn scanned(&mut self, home: HomeId, items: Vec<(Key, Found)>) -> Result<(), Self::Fault>;

    /// The next record of a home's feed.
    ///
    /// # Errors
    /// What it makes no sense of.
    fn record(&mut self, home: HomeId, record: Record) -> Result<(), Self::Fault>;

    /// All feeds were read to their ends. Whether that is enough; if not, another round follows.
    ///
    /// # Errors
    /// What it makes no sense of.
    fn round_ended(&mut self) -> Result<bool, Self::Fault>;
}
