//! Stores the maps of protected tables in files. The map of a table lists its segments and stripe
//! sets on all nodes.
//!
//! ```text
//! write maps/TABLE.new, flush it, rename it to maps/TABLE, flush the folder
//! ```
//!
//! Invariants
//! - A map is complete or counts as lost. A lost map (missing, damaged, or not of this table) is
//!   reported and not used; the node still serves its part of the table.
//! - Maps of tables that are neither in the catalog nor being loaded are removed.

use std::{io, sync::Arc};

use rackscan_format::{
    ids::{NodeId, TableId},
    stripe_set::TableMap,
};

use super::{
    allocate::Space,
    catalog_file::write_new,
    error::CatalogFileError,
    folder::{Folder, ITSELF},
    protected::{KeptMap, TableMapState, check_beside, check_part},
    table::{Table, Tables},
};

const FOLDER: &str = "maps";

/// The folder of all maps.
#[derive(Debug)]
pub(crate) struct MapFolder {
    folder: Arc<dyn Folder>,
}

fn name(table: TableId) -> String {
    format!("{FOLDER}/{:08x}", table.0)
}

impl MapFolder {
    /// The folder of maps in a node's folder.
    pub(super) fn in_folder(folder: Arc<dyn Folder>) -> Self {
        Self { folder }
    }

    /// Writes a map; it is durable when this returns.
    pub(crate) fn write(&self, table: TableId, bytes: &[u8]) -> Result<(), CatalogFileError> {
        let name = name(table);
        let new = format!("{name}.new");
        let os = |action| {
            let file = self.folder.path(&new);
            move |source| CatalogFileError::Os { file, action, source }
        };
        self.folder.make(FOLDER).map_err(os("making its folder"))?;
        write_new(&*self.folder, &new, bytes)?;
        self.folder.rename(&new, &name).map_err(os("putting it in place"))?;
        for folder in [FOLDER, ITSELF] {
            self.folder
                .open(folder)
                .and_then(|mut folder| folder.sync())
                .map_err(os("syncing its folder"))?;
        }
        Ok(())
    }

    /// The names of the files in the folder; none if it cannot be read, which is logged.
    fn names(&self) -> Vec<String> {
        self.folder.names(FOLDER).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                let folder = self.folder.path(FOLDER);
                tracing::warn!(folder = %folder.display(), %error, "the folder of maps could not be read: maps that nobody needs stay there");
            }
            Vec::new()
        })
    }

    /// Removes all maps except those of wanted tables. Logs those that cannot be removed.
    pub(crate) fn retain(&self, is_wanted: impl Fn(TableId) -> bool) {
        for name in self.names() {
            let table = u32::from_str_radix(&name, 16).ok().filter(|_| name.len() == 8);
            if table.is_some_and(|table| is_wanted(TableId(table))) {
                continue;
            }
            let name = format!("{FOLDER}/{name}");
            let file = self.folder.path(&name);
            match self.folder.remove(&name) {
                Ok(()) => {
                    tracing::debug!(file = %file.display(), "removed the map of a table that is neither in the catalog nor being loaded")
                }
                Err(error) => {
                    tracing::warn!(file = %file.display(), %error, "the map of a table that is neither in the catalog nor being loaded could not be removed")
                }
            }
        }
    }

    /// Reads the map of a table, if it is complete and matches what is here.
    fn read(&self, table: &Table, node: NodeId) -> Result<Vec<u8>, String> {
        let name = name(table.definition.id);
        let path = self.folder.path(&name);
        let read = self.folder.read(&name);
        let bytes = read.map_err(|error: io::Error| format!("{}: {error}", path.display()))?;
        let map =
            TableMap::decode_envelope(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        is_map_of(&map, table, node).map_err(|reason| format!("{}: {reason}", path.display()))?;
        Ok(bytes)
    }

    /// Attaches its map to each protected table. Reports damaged ones.
    pub(super) fn attach(&self, tables: &mut Tables, node: NodeId, space: &Arc<Space>) {
        for table in tables.values_mut().filter(|table| table.definition.protection.is_some()) {
            let map = self.read(table, node).and_then(|bytes| {
                let memory = space.share(bytes.len() as u64).map_err(|full| full.to_string())?;
                Ok(Arc::new(KeptMap { bytes: Arc::new(bytes), _memory: memory }))
            });
            if let Err(reason) = &map {
                let (table, name) = (table.definition.id, &table.definition.name);
                tracing::error!(%table, name, reason, "the map of a protected table is lost here; other nodes have it");
            }
            Arc::make_mut(table).map = map.map_or_else(TableMapState::Lost, TableMapState::Kept);
        }
    }
}

/// Checks that a map belongs to this table and matches what this node has.
pub(super) fn is_map_of(map: &TableMap, table: &Table, node: NodeId) -> Result<(), String> {
    if map.definition != *table.definition {
        return Err("it is the map of another table".to_owned());
    }
    check_part(map, node, &table.segments)?;
    let held = |(set, stream)| table.sets.iter().any(|known| known.is(set, stream));
    if map.streams(node).count() != table.sets.len() || !map.streams(node).all(held) {
        return Err("it names other stripes than are here".to_owned());
    }
    check_beside(map, node, &table.sets)
}
