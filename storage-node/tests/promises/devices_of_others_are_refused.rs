//! Promise: a node uses only devices that are its own or blank; for any other device it reports
//! what is wrong and does not change it.

use std::{fs, os::unix::fs::FileExt};

use rackscan_format::{
    ids::{DeviceId, NodeId},
    label::DeviceLabel,
};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig};

use crate::support::{
    node::{DEVICE_BYTES, NodeFolder},
    table::Table,
};

fn start_error(node_folder: &NodeFolder, config: Config) -> String {
    node_folder.start_with(config).err().expect("the node must not start").to_string()
}

#[test]
fn a_device_carries_the_label_that_its_node_reports() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let status = node.shm().status();
    assert_eq!((status.node, status.cluster, status.devices.len()), (NodeId(3), 99, 2));
    for (number, device) in status.devices.iter().enumerate() {
        assert_eq!(
            fs::canonicalize(&device.path).unwrap(),
            fs::canonicalize(node_folder.device(number)).unwrap()
        );
        let bytes = fs::read(&device.path).unwrap();
        for sector in [0, 4096] {
            let label = DeviceLabel::from_sector(&bytes[sector..][..4096]).unwrap();
            assert_eq!(label.label, device.label);
            assert_eq!((label.device, label.capacity_bytes), (device.device, DEVICE_BYTES));
        }
    }
    node.stop();
}

#[test]
fn a_damaged_copy_of_the_label_is_repaired_from_the_other() {
    let node_folder = NodeFolder::new();
    node_folder.start().stop();
    for sector in [0_u64, 4096] {
        let device = fs::OpenOptions::new().write(true).open(node_folder.device(0)).unwrap();
        device.write_all_at(&[0xff; 4096], sector).unwrap();
        device.sync_all().unwrap();
        node_folder.start().stop();
        let bytes = fs::read(node_folder.device(0)).unwrap();
        assert_eq!(bytes[..4096], bytes[4096..8192], "sector at {sector}");
    }
}

#[test]
fn other_nodes_other_clusters_and_other_places_are_refused() {
    let node_folder = NodeFolder::new();
    node_folder.start().stop();
    let before = fs::read(node_folder.device(0)).unwrap();
    let other_data = |config: &mut Config| config.data_dir = node_folder.path("elsewhere");
    type Change = fn(&mut Config);
    let changes: [(&str, Change); 3] = [
        ("node 3", |config| config.node = NodeId(4)),
        ("cluster 99", |config| config.cluster = ClusterId(98)),
        ("device 0", |config| config.devices.swap(0, 1)),
    ];
    for (named, change) in changes {
        for with_catalog in [true, false] {
            let mut config = node_folder.config();
            change(&mut config);
            if !with_catalog {
                other_data(&mut config);
            }
            let error = start_error(&node_folder, config);
            assert!(error.contains(named), "{named}: {error}");
        }
    }
    assert!(fs::read(node_folder.device(0)).unwrap() == before, "a refused device was changed");
    node_folder.start().stop();
}

#[test]
fn a_file_of_something_else_is_refused_and_not_changed() {
    let node_folder = NodeFolder::new();
    let content = b"precious ".repeat(2 << 20);
    fs::write(node_folder.device(0), &content[..16 << 20]).unwrap();
    let error = start_error(&node_folder, node_folder.config());
    assert!(error.contains("device0") && error.contains("not ours"), "{error}");
    assert!(fs::read(node_folder.device(0)).unwrap() == content[..16 << 20]);
}

#[test]
fn a_lost_device_or_catalog_is_noticed_before_anything_is_written() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    Table::new(1, "t", 2, 3000).load(&mut node.shm());
    node.stop();
    fs::rename(node_folder.device(1), node_folder.path("kept")).unwrap();
    let error = start_error(&node_folder, node_folder.config());
    assert!(error.contains("device1") && error.contains("blank"), "{error}");
    fs::rename(node_folder.path("kept"), node_folder.device(1)).unwrap();
    fs::rename(node_folder.path("data"), node_folder.path("kept")).unwrap();
    let error = start_error(&node_folder, node_folder.config());
    assert!(error.contains("catalog") && error.contains("gone"), "{error}");
    fs::remove_dir_all(node_folder.path("data")).unwrap();
    fs::rename(node_folder.path("kept"), node_folder.path("data")).unwrap();
    let mut fewer = node_folder.config();
    fewer.devices.pop();
    let error = start_error(&node_folder, fewer);
    assert!(error.contains("1 devices") && error.contains("2"), "{error}");
    node_folder.start().stop();
}

#[test]
fn a_device_may_be_added_at_the_end() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let first = Table::new(1, "a", 1, 3000);
    first.load(&mut node.shm());
    node.stop();
    let mut config = node_folder.config();
    config.devices.push(DeviceConfig {
        path: node_folder.device(2),
        size: Some(ByteSize(DEVICE_BYTES)),
        reserve: false,
    });
    let node = node_folder.start_with(config.clone()).unwrap();
    let mut client = node.shm();
    Table::new(2, "b", 1, 5000).load(&mut client);
    let used: Vec<u64> = client.status().devices.iter().map(|device| device.used_bytes).collect();
    assert!(used.len() == 3 && used[2] > 65_536, "{used:?}");
    let segment = &client.catalog(1 << 20).tables[1].segments[0].directory;
    let mut pages = segment.chunks.iter().flat_map(|chunk| &chunk.pages);
    assert!(pages.any(|page| page.extent.device == DeviceId(2)));
    drop(client);
    node.stop();
    node_folder.start_with(config).unwrap().stop();
}

#[test]
fn two_nodes_share_neither_a_data_folder_nor_a_device() {
    let (node_folder, other) = (NodeFolder::new(), NodeFolder::new());
    let node = node_folder.start();
    let mut config = node_folder.config();
    config.listen.truncate(0);
    config.listen.push("tcp:127.0.0.1:0".parse().unwrap());
    let error = start_error(&node_folder, config.clone());
    assert!(error.contains("a data folder has one node"), "{error}");
    config.data_dir = other.config().data_dir;
    let error = start_error(&node_folder, config);
    assert!(error.contains("in use"), "{error}");
    node.stop();
}

#[test]
fn a_start_that_fails_late_leaves_no_thread_and_no_lock_behind() {
    let (node_folder, other) = (NodeFolder::new(), NodeFolder::new());
    let node = node_folder.start();
    let mut config = other.config();
    config.node = NodeId(99);
    let right = config.clone();
    config.listen = node_folder.config().listen;
    let error = start_error(&other, config);
    assert!(error.contains("in use"), "{error}");
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let name = fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default();
        assert!(!name.starts_with("n99-"), "{name}");
    }
    other.start_with(right).unwrap().stop();
    node.stop();
}

#[test]
fn data_in_memory_is_refused_with_the_way_out() {
    let node_folder = NodeFolder::new();
    let memory = tempfile::TempDir::new_in("/dev/shm").unwrap();
    let mut config = node_folder.config();
    config.data_dir = memory.path().join("data");
    let error = start_error(&node_folder, config);
    assert!(error.contains("tmpfs") && error.contains("--data"), "{error}");
    let mut config = node_folder.config();
    config.devices[0].path = memory.path().join("device");
    let error = start_error(&node_folder, config);
    assert!(error.contains("tmpfs") && error.contains("ext4"), "{error}");
}

#[test]
fn a_configuration_that_cannot_work_says_what_is_missing() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config();
    config.devices[0].size = None;
    assert!(start_error(&node_folder, config).contains("size"));
    let mut config = node_folder.config();
    config.key_file = node_folder.path("no.key");
    assert!(start_error(&node_folder, config).contains("no.key"));
    let mut config = node_folder.config();
    config.pin_cores = vec![100_000];
    assert!(start_error(&node_folder, config).contains("100000"));
    fs::write(node_folder.path("cluster.key"), "short").unwrap();
    assert!(start_error(&node_folder, node_folder.config()).contains("64 hexadecimal digits"));
}
