//! Reads and replaces the catalog's file (the list of all tables of the node), so that it survives
//! a crash at any point.
//!
//! ```text
//! write catalog.new, fsync it, rename it to catalog, fsync the folder
//! ```
//!
//! Invariants
//! - `catalog` is always complete: the version before a change or after it. `catalog.new` is never
//!   read.
//! - The content is made durable before it is used, also after a restart: a process that was killed
//!   before it synced the folder may have left a catalog that a crash of the host would undo.
//! - The file lists the labels of the node's devices, so that a lost or swapped device is detected
//!   before it is read.
//! - A file that does not parse stops the start; it is never treated as empty. A file of an earlier
//!   layout is read, and the next change replaces it.

mod earlier;

use std::{io, path::PathBuf, sync::Arc};

use rackscan_format::codec::{self, CodecError, Envelope};

use super::{
    catalog_content::{CatalogContent, CatalogContentRef},
    error::CatalogFileError,
    folder::{Folder, ITSELF},
};

const NAME: &str = "catalog";
const NAME_NEW: &str = "catalog.new";

/// The catalog's file.
#[derive(Debug)]
pub(crate) struct CatalogFile {
    folder: Arc<dyn Folder>,
}

impl CatalogFile {
    /// The catalog in a node's folder.
    pub(super) fn in_folder(folder: Arc<dyn Folder>) -> Self {
        Self { folder }
    }

    /// Its path.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path(NAME)
    }

    /// Its content; `None` if there is no catalog yet.
    pub(crate) fn read(&self) -> Result<Option<CatalogContent>, CatalogFileError> {
        let file = self.path();
        let synced = self.folder.open(ITSELF).and_then(|mut folder| folder.sync());
        let bytes = match synced.and_then(|()| self.folder.read(NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CatalogFileError::Os { file, action: "reading it", source }),
        };
        let what = "the catalog";
        let content = codec::decode_envelope(Envelope::Catalog, what, &bytes).or_else(|error| {
            match earlier::read(what, &bytes) {
                // The file has no known layout: the error for the present layout says more.
                Err(CodecError::Foreign { .. }) => Err(error),
                earlier => earlier,
            }
        });
        content.map(Some).map_err(|source| CatalogFileError::Damaged { file, source })
    }

    /// Replaces the content; it is durable when this returns. On failure the old content stands,
    /// except for [`CatalogFileError::InDoubt`].
    pub(crate) fn replace(&self, content: &CatalogContentRef<'_>) -> Result<(), CatalogFileError> {
        let new = self.folder.path(NAME_NEW);
        let damaged = |source| CatalogFileError::Damaged { file: new.clone(), source };
        let bytes = codec::encode_envelope(Envelope::Catalog, content).map_err(damaged)?;
        write_new(&*self.folder, NAME_NEW, &bytes)?;
        let opened = self.folder.open(ITSELF);
        let mut folder = opened.map_err(|source| CatalogFileError::Os {
            file: new.clone(),
            action: "opening its folder",
            source,
        })?;
        let in_doubt = |action| {
            let file = self.path();
            move |source| CatalogFileError::InDoubt { file, action, source }
        };
        self.folder.rename(NAME_NEW, NAME).map_err(in_doubt("putting it in place"))?;
        folder.sync().map_err(in_doubt("syncing its folder"))
    }
}

/// Writes a new file that will replace another one. The file is durable when this returns, and
/// removed if it fails, so that it takes no space of a full disk.
pub(super) fn write_new(folder: &dyn Folder, name: &str, bytes: &[u8]) -> Result<(), CatalogFileError> {
    let write = || {
        let mut file = folder.create(name).map_err(|source| ("making it", source))?;
        file.write_all(bytes).map_err(|source| ("writing it", source))?;
        file.sync().map_err(|source| ("syncing it", source))
    };
    write().map_err(|(action, source)| {
        // A file that stays is never read, and the next one replaces it: it only takes space.
        let _ = folder.remove(name);
        CatalogFileError::Os { file: folder.path(name), action, source }
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{catalog_content::NodeCatalogRef, folder::HostFolder},
        *,
    };
    use rackscan_format::{
        ids::{ColumnId, NodeId, SegmentId, TableId},
        message::NodeSegment,
        schema::{ColumnDefinition, ColumnType, TableDefinition},
        segment::SegmentDirectory,
        withheld::WithheldRows,
    };
    use std::fs;

    /// Beside the test's own program: /tmp may be a tmpfs.
    fn folder() -> tempfile::TempDir {
        let program = std::env::current_exe().unwrap();
        tempfile::TempDir::new_in(program.parent().unwrap()).unwrap()
    }

    fn content(labels: &[u64]) -> CatalogContentRef<'_> {
        let catalog = NodeCatalogRef { node: NodeId(7), tables: vec![] };
        CatalogContentRef { device_labels: labels, cluster: 9, catalog }
    }

    #[test]
    fn a_replaced_catalog_comes_back_and_a_half_written_new_version_is_ignored() {
        let folder = folder();
        let file = CatalogFile::in_folder(Arc::new(HostFolder::at(folder.path()).unwrap()));
        assert!(file.read().unwrap().is_none());
        file.replace(&content(&[1, 2])).unwrap();
        let whole = fs::read(file.path()).unwrap();
        fs::write(folder.path().join(NAME_NEW), &whole[..whole.len() / 2]).unwrap();
        let found = file.read().unwrap().unwrap();
        assert_eq!((found.device_labels, found.cluster, found.catalog.node), (vec![1, 2], 9, NodeId(7)));
        file.replace(&content(&[3])).unwrap();
        assert_eq!(file.read().unwrap().unwrap().device_labels, [3]);
    }

    #[test]
    fn a_damaged_catalog_is_an_error_that_names_the_file_and_not_an_empty_catalog() {
        let folder = folder();
        let file = CatalogFile::in_folder(Arc::new(HostFolder::at(folder.path()).unwrap()));
        file.replace(&content(&[1])).unwrap();
        let mut bytes = fs::read(file.path()).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(file.path(), &bytes).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("catalog") && error.contains("checksum"), "{error}");
        fs::write(file.path(), b"").unwrap();
        assert!(matches!(file.read(), Err(CatalogFileError::Damaged { .. })));
    }

    #[test]
    fn a_catalog_of_before_tables_succeeded_one_another_is_read_and_says_what_it_said() {
        let folder = folder();
        let file = CatalogFile::in_folder(Arc::new(HostFolder::at(folder.path()).unwrap()));
        let definition = earlier::Definition {
            id: TableId(8),
            name: "t".to_owned(),
            columns: Vec::new(),
            partition_key: ColumnId(1),
            sorted_by: Some(ColumnId(2)),
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(7), NodeId(9)],
            rows: 77,
            source: "a test".to_owned(),
        };
        let segment = SegmentDirectory { table: TableId(8), segment: SegmentId(3), rows: 77, chunks: vec![] };
        let table = earlier::Loaded { definition, committed: true, segments: vec![segment.clone()] };
        let content =
            earlier::Content { device_labels: vec![1, 2], cluster: 9, node: NodeId(7), tables: vec![table] };
        fs::write(file.path(), codec::encode_envelope(Envelope::EarlierCatalog, &content).unwrap()).unwrap();
        let found = file.read().unwrap().unwrap();
        assert_eq!((found.device_labels, found.cluster, found.catalog.node), (vec![1, 2], 9, NodeId(7)));
        let [table] = &found.catalog.tables[..] else { panic!("{:?}", found.catalog) };
        let TableDefinition { id, name, sorted_by, nodes, rows, succeeds, derived, .. } = &table.definition;
        assert_eq!((id, name.as_str(), sorted_by), (&TableId(8), "t", &Some(ColumnId(2))));
        assert_eq!((&nodes[..], rows, succeeds), (&[NodeId(7), NodeId(9)][..], &77, &None));
        assert!(derived.is_empty());
        assert!(table.committed && table.segments.len() == 1);
        assert_eq!(table.segments[0].directory, segment);
        assert!(table.segments[0].withheld.is_empty());
        fs::write(file.path(), codec::encode_envelope(Envelope::Scratch, &content).unwrap()).unwrap();
        assert!(matches!(file.read(), Err(CatalogFileError::Damaged { .. })));
    }

    /// A catalog as the release wrote it that knew new versions, and no derivations.
    const SUCCEEDING: [&str; 5] = [
        "524b5301060000003b000000ae988eb6",
        "02010209070108017402016b02000164",
        "050f0201000101802080080207094d06",
        "6120746573740105010105034d000cc7",
        "2f391c0000020001004600",
    ];

    #[test]
    fn a_catalog_of_before_tables_derived_anything_is_read_and_says_what_it_said() {
        let folder = folder();
        let file = CatalogFile::in_folder(Arc::new(HostFolder::at(folder.path()).unwrap()));
        let hex = SUCCEEDING.concat();
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        fs::write(file.path(), bytes.collect::<Vec<u8>>()).unwrap();
        let found = file.read().unwrap().unwrap();
        assert_eq!((found.device_labels, found.cluster, found.catalog.node), (vec![1, 2], 9, NodeId(7)));
        let [table] = &found.catalog.tables[..] else { panic!("{:?}", found.catalog) };
        let column = |name: &str, column_type, nullable| {
            let name = name.to_owned();
            ColumnDefinition { name, column_type, nullable }
        };
        let money = ColumnType::Decimal { precision: 15, scale: 2 };
        let expected = TableDefinition {
            id: TableId(8),
            name: "t".to_owned(),
            columns: vec![column("k", ColumnType::Int64, false), column("d", money, true)],
            partition_key: ColumnId(0),
            sorted_by: Some(ColumnId(1)),
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(7), NodeId(9)],
            rows: 77,
            source: "a test".to_owned(),
            succeeds: Some(TableId(5)),
            derived: Vec::new(),
            protection: None,
        };
        assert!(table.committed);
        assert_eq!(table.definition, expected);
        let directory =
            SegmentDirectory { table: TableId(5), segment: SegmentId(3), rows: 77, chunks: vec![] };
        let withheld = WithheldRows::of([1, 70]).unwrap();
        assert_eq!(table.segments, [NodeSegment { directory, withheld }]);
    }
}
