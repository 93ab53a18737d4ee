//! Assigns numbers to the devices that a trace identifies by name.
//!
//! Invariants
//! - A name always has the same number; numbers are assigned in the order in which names appear.

use std::collections::HashMap;

use crate::limits::DEVICES_MAX;

/// A device that a trace identifies by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDevice {
    /// Its node's number in the records.
    pub node: u16,
    /// Its number in the records.
    pub device: u16,
    /// Its name in the trace: a path, `8,0`, `host disk` ...
    pub name: String,
}

/// The numbers of all names so far.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    by_name: HashMap<String, u16>,
}

impl Numbers {
    /// The name's number, and whether it is new.
    ///
    /// # Errors
    /// When there are too many names.
    pub(crate) fn of(&mut self, name: &str) -> Result<(u16, bool), String> {
        if let Some(&number) = self.by_name.get(name) {
            return Ok((number, false));
        }
        let next = self.by_name.len();
        match u16::try_from(next) {
            Ok(number) if next < DEVICES_MAX => {
                self.by_name.insert(name.to_owned(), number);
                Ok((number, true))
            }
            _ => Err(format!("the trace names more than {DEVICES_MAX} devices, which is the maximum")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_the_order_of_their_appearance() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.of("sdb"), Ok((0, true)));
        assert_eq!(numbers.of("sda"), Ok((1, true)));
        assert_eq!(numbers.of("sdb"), Ok((0, false)));
    }

    #[test]
    fn names_are_bounded() {
        let mut numbers = Numbers::default();
        for name in 0..DEVICES_MAX {
            assert!(numbers.of(&name.to_string()).is_ok());
        }
        assert!(numbers.of("one more").is_err());
        assert!(numbers.of("7").is_ok());
    }
}
