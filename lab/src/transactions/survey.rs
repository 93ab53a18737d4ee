//! Reads all keys while nobody writes, to learn or check their current values.
//!
//! Invariants
//! - A survey reads every key or fails, because a check of only some keys proves nothing.

use super::recorder::{Order, Recorder};
use super::store::{Failure, OpenSession, TransactionStore};
use super::workload::Names;
use crate::limits::FAILURE_PAUSE;
use rackscan_ramp::item::Key;
use std::time::{Duration, Instant};

/// Keys per read.
const KEYS_PER_READ: usize = 32;

/// The current values could not be read.
#[derive(Debug, thiserror::Error)]
#[error("keys {first} to {last} could not be read: {failure}")]
pub struct SurveyError {
    /// Number of the first key.
    pub first: u32,
    /// Number of the last key.
    pub last: u32,
    /// The cause.
    pub failure: Failure,
}

/// Reads all keys of numbers below `keys`, by a session of its own.
pub(super) fn survey(
    keys: u32,
    patience: Duration,
    open: &OpenSession<'_>,
    order: &Order,
) -> Result<Recorder, SurveyError> {
    let (mut recorder, mut names) = (Recorder::new(u32::MAX, usize::MAX), Names::new(1));
    let numbers: Vec<u32> = (0..keys).collect();
    let mut session = None;
    for numbers in numbers.chunks(KEYS_PER_READ) {
        let asked: Vec<Key> = numbers.iter().filter_map(|number| names.key(*number)).collect();
        let begun = Instant::now();
        while let Err(failure) = read(&mut session, open, (&asked, numbers), order, &mut recorder) {
            if failure.session_over {
                session = None;
            }
            if begun.elapsed() >= patience {
                let end = |number: Option<&u32>| number.copied().unwrap_or(0);
                return Err(SurveyError { first: end(numbers.first()), last: end(numbers.last()), failure });
            }
            std::thread::sleep(FAILURE_PAUSE * 10);
        }
    }
    Ok(recorder)
}

fn read<'a>(
    session: &mut Option<Box<dyn TransactionStore + 'a>>,
    open: &OpenSession<'a>,
    (keys, numbers): (&[Key], &[u32]),
    order: &Order,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let session = match session {
        Some(session) => session,
        // A number that no thread has.
        none => none.insert(open(u32::MAX)?),
    };
    let from = order.now();
    let done = session.read(keys)?;
    let to = order.now();
    if recorder.read((keys, numbers), &done.items, (from, to)) {
        return Ok(());
    }
    let why = format!(
        "a read of {} keys was answered with {} keys, or with other keys",
        keys.len(),
        done.items.len()
    );
    Err(Failure { kind: "incomplete", why, session_over: true })
}
