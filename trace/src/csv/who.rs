//! Which node and device does a row mean?
//!
//! Invariants
//! - Within one file a column either holds numbers, which are kept, or names, which are numbered as
//!   they appear.

use std::collections::HashSet;

use crate::{NamedDevice, devices::Numbers, error::shown, limits::DEVICES_MAX};

/// What a column of nodes or devices holds.
#[derive(Debug, Default)]
enum Column {
    /// No row has been read.
    #[default]
    Unknown,
    Numbers,
    Names(Numbers),
}

impl Column {
    fn number(&mut self, text: &str, what: &str) -> Result<u16, String> {
        let number = text.parse::<u16>();
        if let Self::Unknown = self {
            *self = if number.is_ok() { Self::Numbers } else { Self::Names(Numbers::default()) };
        }
        match self {
            Self::Unknown | Self::Numbers => {
                number.map_err(|_| format!("the {what} is {}, expected a number below 65536", shown(text)))
            }
            Self::Names(numbers) => Ok(numbers.of(text)?.0),
        }
    }

    fn is_names(&self) -> bool {
        matches!(self, Self::Names(_))
    }
}

/// The nodes and devices of a file.
#[derive(Debug, Default)]
pub(super) struct Who {
    node: Column,
    device: Column,
    seen: HashSet<(u16, u16)>,
    pub(super) named: Vec<NamedDevice>,
}

impl Who {
    /// A file that holds numbers and nothing else.
    pub(super) fn of_numbers() -> Self {
        Self { node: Column::Numbers, device: Column::Numbers, ..Self::default() }
    }

    /// The numbers of a row's node and device; 0 where there is no such column.
    pub(super) fn numbers(&mut self, node: Option<&str>, device: Option<&str>) -> Result<(u16, u16), String> {
        let node_number = node.map_or(Ok(0), |text| self.node.number(text, "node"))?;
        let device_number = device.map_or(Ok(0), |text| self.device.number(text, "device"))?;
        let pair = (node_number, device_number);
        if !(self.node.is_names() || self.device.is_names()) || self.seen.contains(&pair) {
            return Ok(pair);
        }
        if self.seen.len() == DEVICES_MAX {
            return Err(format!("one more device than the {DEVICES_MAX} that a trace may name"));
        }
        self.seen.insert(pair);
        let name = [node, device].into_iter().flatten().collect::<Vec<_>>().join(" ");
        self.named.push(NamedDevice { node: node_number, device: device_number, name });
        Ok(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_and_numbers_kept() {
        let mut who = Who::default();
        assert_eq!(who.numbers(Some("hm"), Some("1")), Ok((0, 1)));
        assert_eq!(who.numbers(Some("usr"), Some("0")), Ok((1, 0)));
        assert_eq!(who.numbers(Some("hm"), Some("1")), Ok((0, 1)));
        let names: Vec<&str> = who.named.iter().map(|named| named.name.as_str()).collect();
        assert_eq!(names, ["hm 1", "usr 0"]);
    }

    #[test]
    fn a_name_among_numbers_is_refused() {
        let mut who = Who::default();
        assert_eq!(who.numbers(None, Some("3")), Ok((0, 3)));
        assert!(who.numbers(None, Some("sda")).unwrap_err().contains("the device is \"sda\""));
        assert!(Who::of_numbers().numbers(Some("a"), None).is_err());
        assert!(Who::of_numbers().numbers(Some("65536"), None).is_err());
    }
}
