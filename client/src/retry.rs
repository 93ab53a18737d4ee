//! Bounds how often an operation is attempted that other clients can disturb, and until when. The
//! caller decides which outcomes are worth another attempt.

use std::time::Instant;

use crate::{ClientError, limits::REPLACE_ATTEMPTS_MAX};

/// How many attempts have begun, and whether there may be one more.
///
/// ```
/// use rackscan_client::Retry;
///
/// let mut retry = Retry::new(3);
/// let answer = loop {
///     match [Err("busy"), Ok(42)][retry.attempts() as usize - 1] {
///         Err("busy") if retry.again() => {}
///         outcome => break outcome,
///     }
/// };
/// assert_eq!((answer, retry.attempts()), (Ok(42), 2));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    attempts: u32,
    attempts_max: u32,
    deadline: Option<Instant>,
}

impl Retry {
    /// At most `attempts_max` attempts. The first one begins now.
    ///
    /// # Panics
    /// If `attempts_max` is zero.
    #[must_use]
    pub const fn new(attempts_max: u32) -> Self {
        assert!(attempts_max > 0, "an operation is attempted at least once");
        Self { attempts: 1, attempts_max, deadline: None }
    }

    /// The same, and none begins after `deadline`.
    #[must_use]
    pub const fn until(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// For operations that wait until no other client replaces the same table.
    pub(crate) const fn of_replacement() -> Self {
        Self::new(REPLACE_ATTEMPTS_MAX)
    }

    /// Attempts that have begun.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether this is the last attempt.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.attempts == self.attempts_max || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Begins another attempt, unless this is the last one. Returns whether it has begun.
    #[must_use]
    pub fn again(&mut self) -> bool {
        let begins = !self.is_last();
        self.attempts += u32::from(begins);
        begins
    }

    /// Begins another attempt because another client replaced the table meanwhile.
    ///
    /// # Errors
    /// [`ClientError::AlwaysReplaced`] if this is the last one.
    pub(crate) fn after_replacement(&mut self, table: &str) -> Result<(), ClientError> {
        if self.again() {
            return Ok(());
        }
        Err(ClientError::AlwaysReplaced { table: table.to_owned(), attempts: self.attempts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn there_are_as_many_attempts_as_were_allowed_and_none_after_the_deadline() {
        let mut retry = Retry::new(3);
        let begun = std::iter::from_fn(|| retry.again().then(|| retry.attempts())).collect::<Vec<_>>();
        assert_eq!(begun, [2, 3], "the first attempt needs no permission");
        assert!(retry.is_last() && retry.attempts() == 3);

        let now = Instant::now();
        assert!(!Retry::new(3).until(now).again(), "the deadline is over");
        assert!(Retry::new(3).until(now + Duration::from_secs(3600)).again());
    }

    #[test]
    fn the_error_behind_the_last_attempt_names_the_table_and_the_number_of_attempts() {
        let mut retry = Retry::of_replacement();
        let error = loop {
            if let Err(error) = retry.after_replacement("orders") {
                break error.to_string();
            }
        };
        assert!(error.contains("\"orders\"") && error.contains(&REPLACE_ATTEMPTS_MAX.to_string()), "{error}");
    }
}
