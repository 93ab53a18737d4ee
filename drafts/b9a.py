import os
os.chdir('.')
def sub(p,a,b,n=1):
    s=open(p).read()
    assert a in s,(p,a)
    s=s.replace(a,b,n); open(p,'w').write(s)
# 1. space of devices
p='storage-node/src/store/allocate.rs'
sub(p,'''//! - An extent that is given back is in no cache any more: nobody reads there what the next owner has replaced.
''','''//! - An extent that is given back is in no cache any more: nobody reads there what the next owner has replaced.
//! - The filesystem below a device file has the blocks of an extent back before the extent is free: a hole is never made in what the next owner has written.
''')
sub(p,'''    /// Pages in memory, which must not outlive their extents.
    cache: OnceLock<Arc<PageCache>>,
}
''','''    /// Pages in memory, which must not outlive their extents.
    cache: OnceLock<Arc<PageCache>>,
    /// The devices whose blocks go back to the filesystem.
    below: OnceLock<Below>,
}

/// What is below the extents.
#[derive(Debug)]
struct Below {
    devices: Arc<dyn Devices>,
    /// Of each device, whether it takes disk space only as it is written.
    is_sparse: Vec<bool>,
}
''')
sub(p,'''            metrics,
            cache: OnceLock::new(),
        }''','''            metrics,
            cache: OnceLock::new(),
            below: OnceLock::new(),
        }''')
sub(p,'''    /// The bytes of an extent are about to change''','''    /// From now on blocks of extents that are given back go back to the filesystem, where the device takes them as they are written.
    pub(super) fn release_to(&self, devices: Arc<dyn Devices>, is_sparse: Vec<bool>) {
        // A second call would be ignored; there is none.
        let _ = self.below.set(Below { devices, is_sparse });
    }

    /// Gives the filesystem the blocks of extents back that nobody reads or writes any more. Neighbours go together.
    fn release(&self, extents: impl Iterator<Item = Extent>) {
        let Some(Below { devices, is_sparse }) = self.below.get() else { return };
        let is_sparse = |extent: &Extent| is_sparse.get(usize::from(extent.device.0)) == Some(&true);
        let mut extents: Vec<Extent> = extents.filter(is_sparse).collect();
        extents.sort_unstable_by_key(|extent| (extent.device.0, extent.offset_bytes));
        let mut ranges: Vec<(usize, u64, u64)> = Vec::new();
        for Extent { device, offset_bytes, length_bytes } in extents {
            let (device, end) = (usize::from(device.0), offset_bytes + u64::from(length_bytes));
            match ranges.last_mut() {
                Some((before, _, end_before)) if *before == device && *end_before == offset_bytes => {
                    *end_before = end;
                }
                _ => ranges.push((device, offset_bytes, end)),
            }
        }
        for (device, begin, end) in ranges {
            if let Err(error) = devices.discard(device, begin, end - begin) {
                let path = self.rooms[device].path.display();
                tracing::warn!(device = %path, error, "unused blocks stay with the device file until the next start");
            }
        }
    }

    /// The bytes of an extent are about to change''')
sub(p,'''        pages.for_each(|page| self.space.withdraw(&page.extent));
        {''','''        pages.for_each(|page| self.space.withdraw(&page.extent));
        let pages = self.directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        self.space.release(pages.map(|page| page.extent));
        {''')
sub(p,'''use crate::metrics::Metrics;
''','''use super::devices::Devices;
use crate::metrics::Metrics;
''')
p='storage-node/src/store/mod.rs'
sub(p,'''        let scratch = Self::take_scratch(config, &*folder, &recovered)?;
''','''        let scratch = Self::take_scratch(config, &*folder, &recovered)?;
        let is_sparse = config.devices.iter().map(|device| !device.reserve).collect();
        recovered.space.release_to(Arc::clone(&recovered.devices), is_sparse);
''')

open('storage-node/tests/promises/space_returns_at_once.rs','w').write("""//! Promise: what a load took of the filesystem below sparse device files is free again as soon as the load is aborted, its client dies, or its table is dropped.
//!
//! Method: blocks of the device files are counted, without a restart of the node.

use std::{
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use rackscan_format::message::{Answer, Request};

use crate::support::{
    node::{Home, Running},
    table::Table,
};

fn taken_bytes(home: &Home) -> u64 {
    let blocks = |device| std::fs::metadata(home.device(device)).expect("the file is there").blocks();
    (0..2).map(blocks).sum::<u64>() * 512
}

fn start(home: &Home) -> Running {
    let mut config = home.config();
    config.devices.iter_mut().for_each(|device| device.reserve = false);
    home.start_with(config).expect("the node starts")
}

/// Waits until no more is taken than before.
fn comes_back(home: &Home, before: u64, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while taken_bytes(home) > before {
        assert!(Instant::now() < deadline, "{what}: {} bytes, {before} before", taken_bytes(home));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn space_of_loads_and_tables_that_are_gone_is_free_at_once() {
    let home = Home::new();
    let node = start(&home);
    let before = taken_bytes(&home);
    let table = Table::new(1, "t", 2, 60_000);
    let mut client = node.shm();
    table.append_all(&mut client);
    assert!(taken_bytes(&home) > before, "the load took something");
    assert_eq!(client.ask(Request::AbortLoad { load: table.id() }), Ok(Answer::Done));
    comes_back(&home, before, "an aborted load");
    let table = Table::new(2, "t", 2, 60_000);
    table.append_all(&mut client);
    drop(client);
    comes_back(&home, before, "a load whose client died");
    let (mut client, table) = (node.shm(), Table::new(3, "t", 2, 60_000));
    table.load(&mut client);
    assert!(taken_bytes(&home) > before, "the table takes something");
    assert_eq!(client.ask(Request::Drop { table: table.id() }), Ok(Answer::Done));
    comes_back(&home, before, "a dropped table");
    // What takes its place is whole.
    let table = Table::new(4, "t", 2, 60_000);
    table.load(&mut client);
    assert!(taken_bytes(&home) > before);
    node.stop();
}
""")
sub('storage-node/tests/promises/main.rs','mod stale_replicas','mod space_returns_at_once;\nmod stale_replicas')
