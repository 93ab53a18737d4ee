//! Starts nodes with TPC-H's lineitem to measure automatic placement on. Their processor time and
//! wire can be limited.
//!
//! Invariants
//! - All files are in one folder, which this command creates, and removes when it ends, unless it
//!   is killed.
//! - Unless the caller asks for attached devices, the engine cannot open the device files, as if
//!   the nodes were on another machine: when the nodes have opened the files, the files are moved
//!   to a path that the engine does not know.

use super::{Member, Shape, create, own_folder, shaping::Quota};
use crate::{
    args::Global,
    failure::{Failure, at_path},
    progress,
    session::Session,
};
use rackscan_datasets::{LoadOptions, tpch};
use rackscan_fabric::{Address, Wire};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Name of the table.
const TABLE: &str = "lineitem";
/// Extra device space for labels, the catalog, and pages that are padded to whole sectors.
const MARGIN_BYTES: u64 = 256 << 20;
/// Upper estimate of lineitem's page bytes per unit of scale, and the extra memory of caches.
const TABLE_BYTES: f64 = 240e6;
const CACHE_MARGIN_BYTES: u64 = 16 << 20;
/// How often a load checks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What to load, and where.
pub(crate) struct PlacementNodesOptions {
    /// Folder for the devices; created if necessary.
    pub(crate) folder: PathBuf,
    /// The scale factor.
    pub(crate) scale: f64,
    /// Rows of a segment.
    pub(crate) segment_rows: u32,
    /// Storage nodes.
    pub(crate) nodes: u16,
    /// Page cache of each node in bytes; `None` for enough for all pages.
    pub(crate) cache_bytes: Option<u64>,
    /// Whether the engine may read the devices itself.
    pub(crate) attached: bool,
    /// Set when the user interrupts the command.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Nodes of this command, and an engine over them.
pub(crate) struct PlacementNodes {
    session: Option<Session>,
    root: PathBuf,
    /// Folder of the sockets if their paths below the root would be too long.
    sockets: Option<PathBuf>,
}

impl PlacementNodes {
    /// Starts the nodes, puts them under the quota and loads the table.
    pub(crate) fn create(
        global: &Global,
        options: &PlacementNodesOptions,
        quota: Option<&Quota>,
    ) -> Result<Self, Failure> {
        let PlacementNodesOptions { folder, scale, nodes, attached, .. } = options;
        let folder = own_folder(folder)?;
        let needed = device_bytes(*scale);
        let free = rackscan_lab::free_bytes(&folder).map_err(at_path(&folder))?;
        if free < needed {
            return Err(Failure::Runtime(format!(
                "{}: {free} bytes are free, {needed} are needed for lineitem at scale factor {scale}; give a smaller --scale or \
                 another --folder",
                folder.display()
            )));
        }
        let root = folder.join(format!("rackscan-placement-{}", std::process::id()));
        fs::create_dir(&root).map_err(at_path(&root))?;
        // From here on, dropping this value removes the folder.
        let mut created = Self { session: None, root, sockets: None };
        let shape = Shape { nodes: *nodes, devices: 1, device_size: format!("{needed}B") };
        let file = create(&created.root, &shape)?;
        created.sockets = file.members.first().and_then(|member| sockets_outside(member, &created.root));
        let global = Global {
            data: created.root.clone(),
            cluster: None,
            wire: Some(Wire::Tcp),
            engine_cache: 0,
            ..global.clone()
        };
        let cache = options.cache_bytes.unwrap_or_else(|| cache_bytes(*scale, *nodes));
        let session = created.session.insert(Session::open_with_cache(&global, Some(cache))?);
        if let Some(quota) = quota {
            quota.hold(&session.pids()).map_err(Failure::Runtime)?;
        }
        fill(session, &created.root, options)?;
        if !attached {
            for device in file.members.iter().flat_map(|member| &member.config.devices) {
                fs::rename(&device.path, device.path.with_extension("away"))
                    .map_err(at_path(&device.path))?;
            }
            session.reconnect(&global)?;
        }
        Ok(created)
    }

    /// The engine over the nodes.
    pub(crate) fn session(&self) -> Result<&Session, Failure> {
        self.session
            .as_ref()
            .ok_or_else(|| Failure::Runtime("the nodes of this command have ended".to_owned()))
    }
}

impl Drop for PlacementNodes {
    fn drop(&mut self) {
        self.session = None;
        for folder in self.sockets.iter().chain([&self.root]) {
            if let Err(error) = fs::remove_dir_all(folder) {
                tracing::warn!("{}: cannot be removed: {error}", folder.display());
            }
        }
    }
}

/// The folder of a node's socket, if it is not below the root.
fn sockets_outside(member: &Member, root: &Path) -> Option<PathBuf> {
    let folder = member.config.listen.iter().find_map(|address| match address {
        Address::Shm { path } => path.parent(),
        _ => None,
    })?;
    (!folder.starts_with(root)).then(|| folder.to_owned())
}

/// Loads the table; stops early when the user interrupts it.
fn fill(session: &Session, spill_folder: &Path, options: &PlacementNodesOptions) -> Result<(), Failure> {
    let spinner = progress::steps();
    spinner.set_message(format!("loading {TABLE} at scale factor {}", options.scale));
    let load = LoadOptions {
        segment_rows: options.segment_rows,
        spill_folder: spill_folder.to_owned(),
        ..LoadOptions::default()
    };
    let loaded = session.block_on(async {
        let loading = tpch::load_some(session.cluster(), options.scale, &[TABLE], &[], &load, &|_| ());
        tokio::select! {
            loaded = loading => loaded.map(drop).map_err(Failure::from),
            () = stopped(&options.stop) => Err(Failure::Runtime("stopped while the table was loaded".to_owned())),
        }?;
        session.engine().refresh().await.map_err(Failure::from)
    });
    spinner.finish_and_clear();
    loaded
}

/// Completes when the flag is set.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Each device has space for the whole table, because hash partitioning may be uneven.
fn device_bytes(scale: f64) -> u64 {
    // Devices are whole mebibytes.
    (tpch::raw_bytes(scale) + MARGIN_BYTES).next_multiple_of(1 << 20)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate: rounding is fine")]
fn cache_bytes(scale: f64, nodes: u16) -> u64 {
    (TABLE_BYTES * scale / f64::from(nodes)) as u64 + CACHE_MARGIN_BYTES
}
