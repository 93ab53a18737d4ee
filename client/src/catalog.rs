//! Assembles the catalog of the cluster from the catalogs of its nodes: the published tables, and
//! where their segments are.
//!
//! Invariants
//! - Every definition and directory in a [`ClusterCatalog`] has been verified, and each table is
//!   complete: all its nodes answered for it, no two segments have the same number, and its
//!   segments contain as many rows as its definition says.
//! - A table is in the catalog if some node committed it. At nodes where it is only prepared, the
//!   commit is completed first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::{join_all, try_join_all};
use rackscan_format::{
    codec::{self, Envelope},
    ids::{NodeId, TableId},
    limits::NODE_DEVICES_MAX,
    message::{Answer, NodeCatalog, NodeSegment, NodeTable, Request, Target},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};

use crate::{
    ClientError, Cluster,
    limits::{CATALOG_ATTEMPTS_MAX, CATALOG_BYTES_MAX, CATALOG_TARGET_BYTES},
    message_names::unexpected_answer,
    retry::Retry,
};

const DURING: &str = "catalog";
const LOAD_AGAIN: &str = "drop it or load it again";

/// The tables of a cluster at one point in time.
#[derive(Debug, Clone, Default)]
pub struct ClusterCatalog {
    /// Published tables, by name.
    pub tables: Vec<ClusterTable>,
    /// Published tables that cannot be queried, and why.
    pub broken: Vec<BrokenTable>,
}

/// A published table.
#[derive(Debug, Clone)]
pub struct ClusterTable {
    /// Its definition. Its number of rows is that of all segments, withheld rows included.
    pub definition: Arc<TableDefinition>,
    /// Its segments, by node, then by id.
    pub segments: Vec<PlacedSegment>,
}

/// A segment and the node that holds it.
#[derive(Debug, Clone)]
pub struct PlacedSegment {
    /// The node.
    pub node: NodeId,
    /// The segment. Its table is the one under which it was written: the table itself, or an
    /// earlier version of it. Requests for its pages or for a scan of it name that table.
    pub directory: Arc<SegmentDirectory>,
    /// The rows of the segment that are not part of the table. A scan must name them: nodes do not
    /// add them.
    pub withheld: Arc<WithheldRows>,
}

/// A published table of which a part is missing or wrong.
#[derive(Debug, Clone)]
pub struct BrokenTable {
    /// Its name.
    pub name: String,
    /// The ids of all published tables of that name.
    pub ids: Vec<TableId>,
    /// What is wrong.
    pub error: ClientError,
}

impl ClusterCatalog {
    /// The table named `name`.
    ///
    /// # Errors
    /// That there is none, or why it is broken.
    pub fn table(&self, name: &str) -> Result<&ClusterTable, ClientError> {
        if let Some(table) = self.tables.iter().find(|table| table.definition.name == name) {
            return Ok(table);
        }
        if let Some(broken) = self.broken.iter().find(|broken| broken.name == name) {
            return Err(broken.error.clone());
        }
        let known =
            self.tables.iter().map(|table| table.definition.name.as_str()).collect::<Vec<_>>().join(", ");
        Err(ClientError::UnknownTable {
            name: name.to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known },
        })
    }
}

impl ClusterCatalog {
    /// The tables under which segments of protected tables were written.
    fn written_protected(&self) -> BTreeSet<TableId> {
        let protected = self.tables.iter().filter(|table| table.definition.protection.is_some());
        protected.flat_map(|table| &table.segments).map(|placed| placed.directory.table).collect()
    }
}

impl ClusterTable {
    /// Stored bytes of all pages.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.segments.iter().map(|placed| placed.directory.stored_bytes()).sum()
    }
}

impl Cluster {
    /// Reads the cluster's tables.
    ///
    /// Nodes answer one after the other: a table version that is published meanwhile may be missing
    /// in the first answers and present in the last ones. So a table counts as broken only if two
    /// reads have found the same.
    ///
    /// # Errors
    /// A node that is lost, refuses or sends a catalog that does not verify.
    pub async fn catalog(&self) -> Result<ClusterCatalog, ClientError> {
        let (mut catalog, mut found, mut are_lost) = self.read_catalogs(false).await?;
        let mut retry = Retry::new(CATALOG_ATTEMPTS_MAX);
        while !catalog.broken.is_empty() && retry.again() {
            let (again, after, lost) = self.read_catalogs(false).await?;
            let is_the_same = after == found;
            (catalog, found, are_lost) = (again, after, lost);
            if is_the_same {
                break;
            }
        }
        if !catalog.broken.is_empty() && are_lost {
            // It is not being published or dropped: a node may have lost its part.
            let (again, after, _) = self.read_catalogs(true).await?;
            if after == found {
                catalog = again;
            }
        }
        self.shared.maps.note_protected(catalog.written_protected());
        Ok(catalog)
    }

    /// Reads the catalogs of all nodes once, and completes interrupted commits. Returns the
    /// assembled catalog; the published tables of each node; and whether an available node has
    /// nothing of a protected table. If `also_lost`, such parts come from maps, too.
    async fn read_catalogs(
        &self,
        also_lost: bool,
    ) -> Result<(ClusterCatalog, Vec<Vec<TableId>>, bool), ClientError> {
        let (mut catalogs, mut unavailable) = self.available_catalogs().await?;
        let unfinished = half_committed(&catalogs);
        if !unfinished.is_empty() {
            for (node, load) in unfinished {
                match self.complete_commit(node, load).await {
                    // The next read leaves the node out, or fails.
                    Err(error) if self.shared.unavailable_max > 0 && error.is_node_lost() => {}
                    done => done?,
                }
            }
            (catalogs, unavailable) = self.available_catalogs().await?;
        }
        let committed = |catalog: &NodeCatalog| {
            let tables = catalog.tables.iter().filter(|table| table.committed);
            tables.map(|table| table.definition.id).collect()
        };
        let found = catalogs.iter().map(committed).collect();
        let are_lost = has_lost_parts(&catalogs);
        let mut missing = self.add_unavailable_parts(&mut catalogs, &unavailable, also_lost).await?;
        let devices = self.statuses().iter().map(|status| (status.node, status.devices.len())).collect();
        let mut catalog = assemble(catalogs, &devices);
        for broken in &mut catalog.broken {
            if let Some(error) = broken.ids.iter().find_map(|id| missing.remove(id)) {
                broken.error = error;
            }
        }
        Ok((catalog, found, are_lost))
    }

    /// The catalogs of the available nodes, and the unavailable nodes, at most as many as may be.
    pub(crate) async fn available_catalogs(&self) -> Result<(Vec<NodeCatalog>, Vec<NodeId>), ClientError> {
        if self.shared.unavailable_max == 0 {
            return Ok((self.node_catalogs().await?, Vec::new()));
        }
        let (mut catalogs, mut unavailable) = (Vec::new(), Vec::new());
        let asked = self.nodes().map(|node| async move { (node, self.node_catalog(node).await) });
        for (node, outcome) in join_all(asked).await {
            match outcome {
                Ok(catalog) => catalogs.push(catalog),
                Err(error) if error.is_node_lost() && unavailable.len() < self.shared.unavailable_max => {
                    unavailable.push(node)
                }
                Err(error) => return Err(error),
            }
        }
        Ok((catalogs, unavailable))
    }

    /// The catalog of each node.
    pub(crate) async fn node_catalogs(&self) -> Result<Vec<NodeCatalog>, ClientError> {
        try_join_all(self.nodes().map(|node| self.node_catalog(node))).await
    }

    async fn node_catalog(&self, node: NodeId) -> Result<NodeCatalog, ClientError> {
        let mut retry = Retry::new(CATALOG_ATTEMPTS_MAX);
        let bytes = loop {
            let wanted = |from_bytes, target| Request::Catalog { from_bytes, target };
            match self.encoded_bytes(node, DURING, wanted).await? {
                Some(bytes) => break bytes,
                None if retry.again() => {}
                None => return Err(ClientError::CatalogUnstable { node, attempts: retry.attempts() }),
            }
        };
        let what = "catalog";
        let catalog: NodeCatalog = codec::decode_envelope(Envelope::CatalogReply, what, &bytes)
            .map_err(|source| ClientError::Codec { node, during: DURING, source })?;
        if catalog.node != node {
            let found = format!("the catalog of node {}", catalog.node);
            return Err(bad_answer(node, found, "its own catalog".to_owned()));
        }
        Ok(catalog)
    }

    /// Reads a whole encoded catalog or map; `None` if it changed while it was read.
    pub(crate) async fn encoded_bytes(
        &self,
        node: NodeId,
        during: &'static str,
        wanted: impl Fn(u64, Target) -> Request,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut first = None;
        loop {
            let span = self.shared.memory.take(CATALOG_TARGET_BYTES, "a catalog").await?;
            let request = wanted(bytes.len() as u64, span.as_target());
            let mut reply = self.ask(node, request, Some(span)).await?;
            let (written, total, generation) = match reply.take_answer(node, during)? {
                Answer::Catalog { written_bytes, total_bytes, generation } => {
                    (written_bytes, total_bytes, generation)
                }
                other => return Err(unexpected_answer(node, during, &other, "a part of a catalog or map")),
            };
            if *first.get_or_insert((total, generation)) != (total, generation) {
                return Ok(None);
            }
            let span = reply.span.ok_or(ClientError::Closed)?;
            let part_bytes = part_bytes(node, bytes.len() as u64, written, total, span.length_bytes())?;
            let from = bytes.len();
            bytes.resize(from + part_bytes, 0);
            let copied = span.copy_out(0, &mut bytes[from..]);
            copied.map_err(|error| {
                bad_answer(node, error.to_string(), "a part that fits into the memory for it".to_owned())
            })?;
            if bytes.len() as u64 == total {
                return Ok(Some(bytes));
            }
        }
    }
}

/// Checks the numbers of a part of a catalog: it fits the target, and makes progress.
fn part_bytes(
    node: NodeId,
    from: u64,
    written: u64,
    total: u64,
    target_bytes: usize,
) -> Result<usize, ClientError> {
    if total > CATALOG_BYTES_MAX {
        let found = format!("a catalog of {total} bytes");
        return Err(bad_answer(node, found, format!("at most {CATALOG_BYTES_MAX}")));
    }
    let left = total.saturating_sub(from);
    let most = left.min(target_bytes as u64);
    match usize::try_from(written) {
        Ok(bytes) if written <= most && (written > 0 || left == 0) => Ok(bytes),
        _ => Err(bad_answer(
            node,
            format!("{written} bytes of a catalog of which {left} bytes remain"),
            format!("1 to {most}"),
        )),
    }
}

fn bad_answer(node: NodeId, found: String, expected: String) -> ClientError {
    ClientError::BadAnswer { node, during: DURING, found, expected }
}

/// Whether a node has nothing, not even prepared, of a protected table that another node has
/// committed.
fn has_lost_parts(catalogs: &[NodeCatalog]) -> bool {
    let committed = catalogs.iter().flat_map(|catalog| &catalog.tables).filter(|table| table.committed);
    let mut protected = committed.map(|table| &table.definition).filter(|table| table.protection.is_some());
    let has_nothing =
        |node: &NodeCatalog, id: TableId| node.tables.iter().all(|table| table.definition.id != id);
    protected.any(|table| {
        let mut theirs = catalogs.iter().filter(|catalog| table.nodes.contains(&catalog.node));
        theirs.any(|catalog| has_nothing(catalog, table.id))
    })
}

/// The nodes that have only prepared a table that another node has committed.
pub(crate) fn half_committed(catalogs: &[NodeCatalog]) -> Vec<(NodeId, TableId)> {
    let tables =
        || catalogs.iter().flat_map(|catalog| catalog.tables.iter().map(|table| (catalog.node, table)));
    let committed: BTreeSet<TableId> =
        tables().filter(|(_, table)| table.committed).map(|(_, table)| table.definition.id).collect();
    let prepared = tables().filter(|(_, table)| !table.committed && committed.contains(&table.definition.id));
    prepared.map(|(node, table)| (node, table.definition.id)).collect()
}

/// Assembles the committed tables from their parts.
fn assemble(catalogs: Vec<NodeCatalog>, devices: &BTreeMap<NodeId, usize>) -> ClusterCatalog {
    let mut parts: BTreeMap<TableId, Vec<(NodeId, NodeTable)>> = BTreeMap::new();
    for NodeCatalog { node, tables } in catalogs {
        for table in tables.into_iter().filter(|table| table.committed) {
            parts.entry(table.definition.id).or_default().push((node, table));
        }
    }
    let mut ids: BTreeMap<String, Vec<TableId>> = BTreeMap::new();
    for (_, table) in parts.values().filter_map(|parts| parts.first()) {
        ids.entry(table.definition.name.clone()).or_default().push(table.definition.id);
    }
    let mut catalog = ClusterCatalog::default();
    for parts in parts.into_values() {
        let Some(name) = parts.first().map(|(_, table)| table.definition.name.clone()) else { continue };
        match assemble_table(parts, devices) {
            Ok(table) => catalog.tables.push(table),
            Err(error) => {
                let ids = ids.get(&name).cloned().unwrap_or_default();
                catalog.broken.push(BrokenTable { name, ids, error });
            }
        }
    }
    catalog.tables.sort_by(|left, right| left.definition.name.cmp(&right.definition.name));
    move_namesakes_to_broken(&mut catalog);
    catalog
}

/// If several published tables have the same name, all of them are broken.
fn move_namesakes_to_broken(catalog: &mut ClusterCatalog) {
    let mut names: BTreeMap<String, Vec<TableId>> = BTreeMap::new();
    for table in &catalog.tables {
        names.entry(table.definition.name.clone()).or_default().push(table.definition.id);
    }
    for (name, ids) in names.into_iter().filter(|(_, ids)| ids.len() > 1) {
        catalog.tables.retain(|table| table.definition.name != name);
        let problem = format!("{} tables of this name are published", ids.len());
        let error = ClientError::IncompleteTable { table: name.clone(), problem, advice: LOAD_AGAIN };
        catalog.broken.push(BrokenTable { name, ids, error });
    }
}

fn assemble_table(
    parts: Vec<(NodeId, NodeTable)>,
    devices: &BTreeMap<NodeId, usize>,
) -> Result<ClusterTable, ClientError> {
    let Some((first_node, definition)) = parts.first().map(|(node, table)| (*node, table.definition.clone()))
    else {
        return Err(ClientError::Closed);
    };
    definition.verify().map_err(|source| ClientError::Definition { node: first_node, source })?;
    let incomplete = |problem: String| {
        let table = definition.name.clone();
        Err(ClientError::IncompleteTable { table, problem, advice: LOAD_AGAIN })
    };
    if let Some((node, _)) = parts.iter().find(|(_, table)| table.definition != definition) {
        return incomplete(format!("nodes {first_node} and {node} define it differently"));
    }
    if let Some(missing) =
        definition.nodes.iter().find(|wanted| !parts.iter().any(|(node, _)| node == *wanted))
    {
        return incomplete(format!("node {missing} does not have its part"));
    }
    let mut segments = Vec::new();
    let mut ids = BTreeSet::new();
    let mut rows_by_node: Vec<(NodeId, u64)> = Vec::new();
    for (node, table) in parts {
        // The number of devices is not known of a node that was unavailable.
        let devices = devices.get(&node).copied().unwrap_or(NODE_DEVICES_MAX);
        let mut found = table.segments;
        found.sort_by_key(|found| found.directory.segment);
        rows_by_node.push((node, found.iter().map(|found| u64::from(found.directory.rows)).sum()));
        for NodeSegment { directory, withheld } in found {
            let verified = directory.verify(definition.columns.len(), devices);
            verified.map_err(|source| ClientError::Directory { node, source })?;
            let segment = directory.segment;
            let is_stray = directory.table != definition.id && definition.succeeds.is_none();
            if is_stray || !ids.insert(segment) {
                return incomplete(format!("node {node} has segment {segment} of another table or node"));
            }
            if let Err(error) = withheld.verify(directory.rows) {
                return incomplete(format!("segment {segment} at node {node}: {error}"));
            }
            let (directory, withheld) = (Arc::new(directory), Arc::new(withheld));
            segments.push(PlacedSegment { node, directory, withheld });
        }
    }
    let rows: u64 = rows_by_node.iter().map(|(_, rows)| rows).sum();
    if rows != definition.rows {
        let nodes: Vec<String> =
            rows_by_node.iter().map(|(node, rows)| format!("node {node}: {rows}")).collect();
        return incomplete(format!(
            "its segments hold {rows} rows ({}), expected {}",
            nodes.join(", "),
            definition.rows
        ));
    }
    Ok(ClusterTable { definition: Arc::new(definition), segments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::{
        ids::{ColumnId, DeviceId, SegmentId},
        schema::{ColumnDefinition, ColumnType},
        segment::{ChunkDirectory, Extent, PageEntry},
        zone::Zone,
    };

    fn definition(id: u32, rows: u64) -> TableDefinition {
        TableDefinition {
            id: TableId(id),
            name: "t".to_owned(),
            columns: vec![ColumnDefinition {
                name: "a".to_owned(),
                column_type: ColumnType::Int64,
                nullable: false,
            }],
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(1), NodeId(2)],
            rows,
            source: "a test".to_owned(),
            succeeds: None,
            derived: Vec::new(),
            protection: None,
        }
    }

    fn segment(table: u32, segment: u32, rows: u32) -> SegmentDirectory {
        let extent = Extent { device: DeviceId(0), offset_bytes: 4096, length_bytes: 4096 };
        let page = PageEntry { extent, first_row: 0, rows, zone: Zone::default() };
        let chunks = vec![ChunkDirectory { pages: vec![page] }];
        SegmentDirectory { table: TableId(table), segment: SegmentId(segment), rows, chunks }
    }

    fn part(id: u32, rows: u64, committed: bool, segments: Vec<SegmentDirectory>) -> NodeTable {
        let segments =
            segments.into_iter().map(|directory| NodeSegment { directory, withheld: WithheldRows::NONE });
        NodeTable {
            definition: definition(id, rows),
            committed,
            segments: segments.collect(),
            sets: Vec::new(),
        }
    }

    fn catalogs(one: Vec<NodeTable>, two: Vec<NodeTable>) -> Vec<NodeCatalog> {
        vec![NodeCatalog { node: NodeId(1), tables: one }, NodeCatalog { node: NodeId(2), tables: two }]
    }

    fn assembled(catalogs: Vec<NodeCatalog>) -> ClusterCatalog {
        assemble(catalogs, &[(NodeId(1), 1), (NodeId(2), 1)].into())
    }

    #[test]
    fn a_whole_table_is_put_together_from_its_nodes() {
        let one = vec![part(7, 50, true, vec![segment(7, 2, 20), segment(7, 0, 10)])];
        let catalog = assembled(catalogs(one, vec![part(7, 50, true, vec![segment(7, 1, 20)])]));
        let table = catalog.table("t").unwrap();
        let places: Vec<_> = table.segments.iter().map(|s| (s.node.0, s.directory.segment.0)).collect();
        assert_eq!(places, [(1, 0), (1, 2), (2, 1)]);
        let missing = catalog.table("u").unwrap_err().to_string();
        assert!(missing.contains("\"u\"") && missing.contains("tables: t"), "{missing}");
    }

    #[test]
    fn a_table_of_which_a_part_is_missing_is_named_with_the_node() {
        let whole = || vec![part(7, 50, true, vec![segment(7, 0, 30)])];
        let wrong_total = catalogs(whole(), vec![part(7, 50, true, vec![segment(7, 1, 19)])]);
        let no_part = catalogs(whole(), vec![]);
        let same_segment = catalogs(whole(), vec![part(7, 50, true, vec![segment(7, 0, 20)])]);
        let other_table = catalogs(whole(), vec![part(7, 50, true, vec![segment(8, 1, 20)])]);
        let other_rows = catalogs(whole(), vec![part(7, 51, true, vec![segment(7, 1, 20)])]);
        for broken in [wrong_total, no_part, same_segment, other_table, other_rows] {
            let error = assembled(broken).table("t").unwrap_err().to_string();
            assert!(error.contains("\"t\"") && error.contains("node") && error.contains('2'), "{error}");
        }
    }

    /// The first table with another one before it, and what it withholds of its segments.
    fn succeeding(mut table: NodeTable, withheld: &WithheldRows) -> NodeTable {
        table.definition.succeeds = Some(TableId(5));
        table.segments.iter_mut().for_each(|segment| segment.withheld = withheld.clone());
        table
    }

    #[test]
    fn a_table_has_segments_of_those_that_it_succeeds_with_the_rows_that_are_gone() {
        let gone = WithheldRows::of([1, 19]).unwrap();
        let one = succeeding(part(7, 50, true, vec![segment(3, 2, 20), segment(7, 0, 10)]), &gone);
        let two = |number| succeeding(part(7, 50, true, vec![segment(5, number, 20)]), &WithheldRows::NONE);
        let error = assembled(catalogs(vec![one.clone()], vec![two(1)])).table("t").unwrap_err().to_string();
        assert!(error.contains("segment 0 at node 1") && error.contains("below 10"), "{error}");
        let one = succeeding(part(7, 50, true, vec![segment(3, 2, 20), segment(7, 0, 20)]), &gone);
        let two = |number| succeeding(part(7, 50, true, vec![segment(5, number, 10)]), &WithheldRows::NONE);
        let catalog = assembled(catalogs(vec![one.clone()], vec![two(1)]));
        let table = catalog.table("t").unwrap();
        let found =
            table.segments.iter().map(|s| (s.directory.table.0, s.directory.segment.0, s.withheld.count()));
        assert_eq!(found.collect::<Vec<_>>(), [(7, 0, 2), (3, 2, 2), (5, 1, 0)]);
        let error = assembled(catalogs(vec![one], vec![two(2)])).table("t").unwrap_err().to_string();
        assert!(error.contains("node 2 has segment 2 of another"), "one number twice: {error}");
    }

    #[test]
    fn tables_of_one_name_are_named_with_all_their_ids() {
        let both = |rows| {
            let table = |id| part(id, rows, true, vec![segment(id, id, 10)]);
            vec![table(7), table(8)]
        };
        let other =
            || vec![part(7, 20, true, vec![segment(7, 1, 10)]), part(8, 20, true, vec![segment(8, 2, 10)])];
        for rows in [20, 21] {
            let catalog = assembled(catalogs(both(rows), other()));
            assert!(catalog.table("t").is_err());
            assert!(catalog.broken.iter().all(|broken| broken.ids == [TableId(7), TableId(8)]));
        }
    }

    #[test]
    fn a_prepared_table_is_absent_until_some_node_has_committed_it() {
        let prepared = || part(7, 0, false, vec![]);
        let absent = catalogs(vec![prepared()], vec![prepared()]);
        assert!(half_committed(&absent).is_empty());
        assert!(matches!(assembled(absent).table("t"), Err(ClientError::UnknownTable { .. })));
        let half = catalogs(vec![prepared()], vec![part(7, 0, true, vec![])]);
        assert_eq!(half_committed(&half), [(NodeId(1), TableId(7))]);
    }

    #[test]
    fn parts_of_a_catalog_fit_and_get_on() {
        assert_eq!(part_bytes(NodeId(1), 10, 20, 30, 4096).unwrap(), 20);
        assert_eq!(part_bytes(NodeId(1), 10, 5, 30, 4096).unwrap(), 5);
        for (from, written, total) in
            [(10, 21, 30), (10, 0, 30), (0, 5000, 9000), (40, 1, 30), (0, 1, CATALOG_BYTES_MAX + 1)]
        {
            assert!(part_bytes(NodeId(1), from, written, total, 4096).is_err(), "{from} {written} {total}");
        }
    }
}
