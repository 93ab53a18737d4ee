//! Recovers the devices and tables of a node at its start.
//!
//! It reads the catalog, opens the devices and checks each against the other; the first start
//! creates both. Data that was loaded but not prepared before a crash is in no catalog, so its
//! extents are free without further action.
//!
//! Invariants
//! - Nothing is written before everything that exists has been checked.
//! - Every directory is verified. Every extent lies inside its device and belongs to one page only.
//!   A segment that is in several tables is the same in all of them, and is stored once.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use rackscan_format::{
    ids::{DeviceId, SegmentId, TableId},
    label::DeviceLabel,
    message::{NodeCatalog, NodeSegment, NodeTable},
    schema::TableDefinition,
    segment::{Extent, SegmentDirectory},
    stripe_set::{NodeSet, SetId},
};

use super::{
    allocate::{Space, StoredSegment},
    catalog_content::CatalogContent,
    catalog_file::CatalogFile,
    devices::{self, Devices, Labels},
    error::{CatalogFault, LabelFault},
    free_extents::DeviceCapacity,
    held_set::HeldSet,
    protected::{TableMapState, parity_directory},
    table::{Table, Tables},
    table_segment::TableSegment,
};
use crate::{config::Config, error::StartError, metrics::Metrics};

/// A node's devices and tables.
pub(super) struct Recovered {
    pub(super) devices: Arc<dyn Devices>,
    pub(super) labels: Vec<DeviceLabel>,
    pub(super) space: Arc<Space>,
    pub(super) tables: Tables,
    /// Whether the catalog must be written because there is none yet or it misses a device.
    pub(super) is_new: bool,
}

/// Opens everything, and changes nothing except making missing device files. Devices are opened
/// only after the catalog was found to be this node's.
pub(super) fn recover(
    config: &Config,
    file: &CatalogFile,
    open_devices: impl FnOnce() -> Result<Arc<dyn Devices>, StartError>,
    metadata_bytes_max: u64,
    metrics: Arc<Metrics>,
) -> Result<Recovered, StartError> {
    let content = file.read()?;
    if let Some(content) = &content {
        check_owner(config, content).map_err(|fault| StartError::Catalog { file: file.path(), fault })?;
    }
    let devices = open_devices()?;
    let labels = labels_wanted(config, file.path(), content.as_ref(), &*devices)?;
    let is_new = content.as_ref().is_none_or(|content| content.device_labels.len() < labels.len());
    let capacities =
        devices.facts().iter().zip(&labels).enumerate().map(|(number, (device, label))| DeviceCapacity {
            path: device.path.clone(),
            capacity_bytes: label.capacity_bytes,
            is_sparse: config.devices.get(number).is_some_and(|device| !device.reserve),
        });
    let space = Arc::new(Space::new(capacities.collect(), metadata_bytes_max, metrics));
    let tables = match content {
        Some(content) => tables_of(content.catalog, &space)
            .map_err(|fault| StartError::Catalog { file: file.path(), fault })?,
        None => Tables::default(),
    };
    Ok(Recovered { devices, labels, space, tables, is_new })
}

/// Writes the labels that are missing or damaged. The catalog names them already.
pub(super) fn complete_labels(recovered: &Recovered) -> Result<(), StartError> {
    let mut labels = Labels::of(&*recovered.devices)?;
    for (device, label) in recovered.labels.iter().enumerate() {
        if !labels.is_whole(device)? {
            tracing::info!(device = %recovered.devices.facts()[device].path.display(), "writing the device's label");
            labels.write(device, label)?;
        }
    }
    Ok(())
}

/// Returns to the filesystem what dropped tables and failed loads left in sparse device files. This
/// is only safe before anything is served or loaded: then what the catalog does not claim is
/// neither read nor written.
pub(super) fn release_free_space(config: &Config, recovered: &Recovered) {
    if recovered.is_new {
        return;
    }
    for (device, begin, length) in recovered.space.free_ranges() {
        if config.devices.get(device).is_none_or(|device| device.reserve) {
            continue;
        }
        if let Err(error) = recovered.devices.discard(device, begin, length) {
            let path = recovered.devices.facts()[device].path.display();
            tracing::warn!(device = %path, error, "unused blocks of a device file were not returned to the filesystem");
        }
    }
}

fn check_owner(config: &Config, content: &CatalogContent) -> Result<(), CatalogFault> {
    let (found_cluster, found_node) = (content.cluster, content.catalog.node);
    let (cluster, node) = (config.cluster.0, config.node);
    if (found_cluster, found_node) == (cluster, node) {
        return Ok(());
    }
    Err(CatalogFault::Foreign { found_cluster, found_node, cluster, node })
}

/// The label that each device has, or will get.
fn labels_wanted(
    config: &Config,
    catalog: PathBuf,
    content: Option<&CatalogContent>,
    devices: &dyn Devices,
) -> Result<Vec<DeviceLabel>, StartError> {
    let listed = content.map_or(&[][..], |content| &content.device_labels);
    let count = devices.facts().len();
    let mut labels = Labels::of(devices)?;
    let found = (0..count).map(|device| labels.read(device)).collect::<Result<Vec<_>, _>>()?;
    if count < listed.len() {
        let (found, expected) = (count, listed.len());
        return Err(LabelFault::Missing { catalog, found, expected }.into());
    }
    let used: BTreeSet<DeviceId> =
        content.into_iter().flat_map(|content| devices_used(&content.catalog)).collect();
    let mut wanted = Vec::with_capacity(count);
    for (index, (facts, found)) in devices.facts().iter().zip(found).enumerate() {
        let device = DeviceId(u8::try_from(index).expect("at most NODE_DEVICES_MAX devices"));
        let path = &facts.path;
        let label = match listed.get(index) {
            Some(label) => *label,
            None => devices.new_label()?,
        };
        let (cluster, node) = (config.cluster.0, config.node);
        let capacity_bytes = found.map_or(facts.bytes, |label| label.capacity_bytes);
        let want = DeviceLabel { cluster, node, device, label, capacity_bytes };
        match &found {
            Some(found) => {
                // The owner is checked first; only then does the catalog's label matter.
                let expected = DeviceLabel { label: found.label, ..want };
                devices::check(path, &catalog, found, &expected)?;
                if listed.get(index).is_none() {
                    return Err(LabelFault::NoCatalog { path: path.clone(), catalog }.into());
                }
                devices::check(path, &catalog, found, &want)?;
            }
            None if used.contains(&device) => {
                return Err(LabelFault::Lost { path: path.clone(), catalog }.into());
            }
            None => {}
        }
        wanted.push(want);
    }
    Ok(wanted)
}

fn devices_used(catalog: &NodeCatalog) -> impl Iterator<Item = DeviceId> {
    let segments = catalog.tables.iter().flat_map(|table| &table.segments);
    let sets = || catalog.tables.iter().flat_map(|table| &table.sets);
    let directories = segments.map(|segment| &segment.directory).chain(sets().flat_map(|set| &set.beside));
    let pages = directories.flat_map(|directory| &directory.chunks).flat_map(|chunk| &chunk.pages);
    let parity = sets().flat_map(|set| &set.parity).map(|cell| cell.extent);
    pages.map(|page| page.extent).chain(parity).map(|extent| extent.device)
}

fn tables_of(catalog: NodeCatalog, space: &Arc<Space>) -> Result<Tables, CatalogFault> {
    let mut tables = Tables::default();
    let (mut names, mut claimed) = (BTreeSet::new(), Claimed::default());
    for table in catalog.tables {
        let name = table.definition.name.clone();
        if table.committed && !names.insert(name.clone()) {
            return Err(CatalogFault::Twice { what: format!("a published table {name:?}") });
        }
        let id = table.definition.id;
        if tables.insert(id, Arc::new(table_of(table, space, &mut claimed)?)).is_some() {
            return Err(CatalogFault::Twice { what: format!("table {id}") });
        }
    }
    Ok(tables)
}

/// The segments and sets that were found so far, in any table.
#[derive(Default)]
struct Claimed {
    segments: BTreeMap<(TableId, SegmentId), Arc<StoredSegment>>,
    sets: BTreeMap<SetId, Arc<HeldSet>>,
}

/// Takes over a table whose extents are free. Takes nothing on failure.
pub(super) fn table_anew(table: NodeTable, space: &Arc<Space>) -> Result<Table, CatalogFault> {
    table_of(table, space, &mut Claimed::default())
}

fn table_of(table: NodeTable, space: &Arc<Space>, claimed: &mut Claimed) -> Result<Table, CatalogFault> {
    let NodeTable { definition, committed, segments, sets } = table;
    definition.verify()?;
    let (id, mut found) = (definition.id, BTreeMap::new());
    for NodeSegment { directory, withheld } in segments {
        let (segment, written) = (directory.segment, directory.table);
        if written != id && definition.succeeds.is_none() {
            return Err(CatalogFault::Stray { table: id, found: written });
        }
        withheld.verify(directory.rows).map_err(|source| CatalogFault::Withheld {
            table: id,
            segment,
            source,
        })?;
        let stored = stored_once(directory, &definition, space, claimed)?;
        let kept = if written == id && withheld.is_empty() {
            TableSegment::written(stored)
        } else {
            TableSegment::kept(stored, withheld)?
        };
        if found.insert(segment, kept).is_some() {
            return Err(CatalogFault::Twice { what: format!("segment {segment} of table {id}") });
        }
    }
    let sets =
        sets.into_iter().map(|set| set_of(set, &definition, space, claimed)).collect::<Result<_, _>>()?;
    let definition = Arc::new(definition);
    Ok(Table { definition, committed, segments: found, sets, map: TableMapState::NotProtected })
}

/// Claims a stripe set with its segments and the extents of its parity, or returns the same set of
/// another table.
fn set_of(
    set: NodeSet,
    definition: &TableDefinition,
    space: &Arc<Space>,
    claimed: &mut Claimed,
) -> Result<Arc<HeldSet>, CatalogFault> {
    let NodeSet { id, segments, beside, parity } = set;
    let table = definition.id;
    for directory in beside {
        stored_once(directory, definition, space, claimed)?;
    }
    if let Some(known) = claimed.sets.get(&id) {
        let (names, cells) = known.content();
        if names.eq(segments) && cells == parity {
            return Ok(Arc::clone(known));
        }
        return Err(CatalogFault::Set {
            table,
            set: id,
            what: "with other content than under another table",
        });
    }
    let named = segments.iter().map(|name| claimed.segments.get(name).map(Arc::clone));
    let Some(stored) = named.collect::<Option<Vec<_>>>() else {
        return Err(CatalogFault::Set { table, set: id, what: "with a segment that it does not have" });
    };
    let extents: Vec<Extent> = parity.iter().map(|cell| cell.extent).collect();
    if !space.claim_all(&extents) {
        let what = "with parity outside of its device or where something else lies";
        return Err(CatalogFault::Set { table, set: id, what });
    }
    let taken = StoredSegment::recovered(parity_directory(id.load, 0, &extents), space)?;
    let held = Arc::new(HeldSet::new(id, stored, parity, vec![Arc::new(taken)]));
    claimed.sets.insert(id, Arc::clone(&held));
    Ok(held)
}

/// Claims a segment with its extents, or returns the same segment of another table.
fn stored_once(
    directory: SegmentDirectory,
    definition: &TableDefinition,
    space: &Arc<Space>,
    claimed: &mut Claimed,
) -> Result<Arc<StoredSegment>, CatalogFault> {
    let (table, segment, written) = (definition.id, directory.segment, directory.table);
    directory.verify(definition.columns.len(), space.devices())?;
    if let Some(stored) = claimed.segments.get(&(written, segment)) {
        if **stored.directory() == directory {
            return Ok(Arc::clone(stored));
        }
        return Err(CatalogFault::Differs { written, segment, table });
    }
    let pages = directory.chunks.iter().flat_map(|chunk| &chunk.pages);
    let extents: Vec<Extent> = pages.map(|page| page.extent).collect();
    if !space.claim_all(&extents) {
        return Err(CatalogFault::Extent { table, segment });
    }
    let stored = Arc::new(StoredSegment::recovered(directory, space)?);
    claimed.segments.insert((written, segment), Arc::clone(&stored));
    Ok(stored)
}
