//! Determines the node number and the device number of each row.
//!
//! Invariants
//! - Within one file a column contains either numbers, which are used as they are, or names, which
//!   are numbered in the order in which they appear.

use std::collections::HashSet;

use crate::{NamedDevice, devices::Numbers, error::excerpt, limits::DEVICES_MAX};

/// The content of a column of nodes or devices.
#[derive(Debug, Default)]
enum Column {
    /// No row has been read yet.
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
                number.map_err(|_| format!("the {what} is {}, expected a number below 65536", excerpt(text)))
            }
            Self::Names(numbers) => Ok(numbers.of(text)?.0),
        }
    }

    fn is_names(&self) -> bool {
        matches!(self, Self::Names(_))
    }
}

/// The nodes and devices of one file.
#[derive(Debug, Default)]
pub(super) struct NodeDeviceNumbers {
    node: Column,
    device: Column,
    seen: HashSet<(u16, u16)>,
    pub(super) named: Vec<NamedDevice>,
}

impl NodeDeviceNumbers {
    /// For a file whose columns hold only numbers.
    pub(super) fn of_numbers() -> Self {
        Self { node: Column::Numbers, device: Column::Numbers, ..Self::default() }
    }

    /// The node and device numbers of a row; 0 where the column does not exist.
    pub(super) fn numbers(&mut self, node: Option<&str>, device: Option<&str>) -> Result<(u16, u16), String> {
        let node_number = node.map_or(Ok(0), |text| self.node.number(text, "node"))?;
        let device_number = device.map_or(Ok(0), |text| self.device.number(text, "device"))?;
        let pair = (node_number, device_number);
        if !(self.node.is_names() || self.device.is_names()) || self.seen.contains(&pair) {
            return Ok(pair);
        }
        if self.seen.len() == DEVICES_MAX {
            return Err(format!("the trace names more than {DEVICES_MAX} devices, which is the maximum"));
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
        let mut nodes_and_devices = NodeDeviceNumbers::default();
        assert_eq!(nodes_and_devices.numbers(Some("hm"), Some("1")), Ok((0, 1)));
        assert_eq!(nodes_and_devices.numbers(Some("usr"), Some("0")), Ok((1, 0)));
        assert_eq!(nodes_and_devices.numbers(Some("hm"), Some("1")), Ok((0, 1)));
        let names: Vec<&str> = nodes_and_devices.named.iter().map(|named| named.name.as_str()).collect();
        assert_eq!(names, ["hm 1", "usr 0"]);
    }

    #[test]
    fn a_name_among_numbers_is_refused() {
        let mut nodes_and_devices = NodeDeviceNumbers::default();
        assert_eq!(nodes_and_devices.numbers(None, Some("3")), Ok((0, 3)));
        assert!(nodes_and_devices.numbers(None, Some("sda")).unwrap_err().contains("the device is \"sda\""));
        assert!(NodeDeviceNumbers::of_numbers().numbers(Some("a"), None).is_err());
        assert!(NodeDeviceNumbers::of_numbers().numbers(Some("65536"), None).is_err());
    }
}
