//! Reads and writes fio's iologs.
//!
//! Versions 2 and 3, as fio's `HOWTO` describes them and its `iolog.c` reads and writes them.

mod read;
mod write;

pub(crate) use read::{FioParser, is_fio};
pub(crate) use write::Iolog;

/// The file name of a node's device in the iologs that this crate writes; the reader recognizes it.
fn file_name(node: u16, device: u16) -> String {
    format!("{NAME}{node}{SEPARATOR}{device}")
}

/// The inverse of [`file_name`].
fn node_and_device(name: &str) -> Option<(u16, u16)> {
    let (node, device) = name.strip_prefix(NAME)?.split_once(SEPARATOR)?;
    let found = (node.parse().ok()?, device.parse().ok()?);
    (file_name(found.0, found.1) == name).then_some(found)
}

const NAME: &str = "/rackscan/node-";
const SEPARATOR: &str = "/device-";

/// The first line of each version.
const VERSION_2: &str = "fio version 2 iolog";
const VERSION_3: &str = "fio version 3 iolog";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_names_are_recognized_and_no_others() {
        assert_eq!(node_and_device(&file_name(3, 65535)), Some((3, 65535)));
        for name in
            ["/rackscan/node-3/device-65536", "/rackscan/node-03/device-1", "/dev/sda", "/rackscan/node-1"]
        {
            assert_eq!(node_and_device(name), None, "{name}");
        }
    }
}
