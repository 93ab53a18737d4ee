//! Generates the tables that the tests load: three columns, encoded as a loader encodes them.

use std::sync::Arc;

use arrow::{array::RecordBatch, compute::concat_batches};
use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, Values},
    codec::{self, Envelope},
    encoding::text::TextValues,
    ids::{ColumnId, DeviceId, NodeId, PageNumber, SegmentId, TableId},
    message::{Answer, PageWanted, Refusal, Request},
    program::{Comparison, Input, Literal, Node, Output, PROGRAM_VERSION, ScanProgram, VerifiedProgram},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
    withheld::WithheldRows,
};
use rackscan_scan::{ScanLimits, SegmentScan, Step};

use super::client::Client;

/// A segment before it is loaded: its directory without places, and its pages in the directory's
/// order.
pub(crate) struct Segment {
    pub(crate) directory: SegmentDirectory,
    pub(crate) pages: Vec<Vec<u8>>,
}

/// A table before it is loaded.
pub(crate) struct Table {
    pub(crate) definition: TableDefinition,
    pub(crate) segments: Vec<Segment>,
}

fn column(name: &str, column_type: ColumnType) -> ColumnDefinition {
    ColumnDefinition { name: name.to_owned(), column_type, nullable: false }
}

impl Table {
    /// Segments of `rows` rows each: an ascending key, its square modulo 1000, and a text.
    pub(crate) fn new(id: u32, name: &str, segments: u32, rows: u32) -> Self {
        Self::with_pages(id, name, segments, rows, 8192)
    }

    /// The same, with pages of another size.
    pub(crate) fn with_pages(id: u32, name: &str, segments: u32, rows: u32, page_size: u32) -> Self {
        let definition = TableDefinition {
            id: TableId(id),
            name: name.to_owned(),
            columns: vec![
                column("key", ColumnType::Int64),
                column("value", ColumnType::Int64),
                column("text", ColumnType::Text),
            ],
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size,
            segment_rows: rows.next_multiple_of(1024),
            nodes: vec![NodeId(3)],
            rows: u64::from(segments * rows),
            source: "test".to_owned(),
            succeeds: None,
            derived: Vec::new(),
            protection: None,
        };
        let segments = (0..segments).map(|number| segment(&definition, number, rows)).collect();
        Self { definition, segments }
    }

    /// A table that succeeds this one, with new segments of these numbers.
    pub(crate) fn new_version(&self, id: u32, numbers: &[u32], rows: u32) -> Self {
        let succeeds = Some(self.id());
        let definition = TableDefinition { id: TableId(id), succeeds, ..self.definition.clone() };
        let segments = numbers.iter().map(|number| segment(&definition, *number, rows)).collect();
        Self { definition, segments }
    }

    pub(crate) fn id(&self) -> TableId {
        self.definition.id
    }

    /// Appends every segment and publishes the table.
    pub(crate) fn load(&self, client: &mut Client) {
        self.append_all(client);
        self.prepare(client);
        client.done(Request::CommitPublish { load: self.id() });
    }

    pub(crate) fn append_all(&self, client: &mut Client) {
        for segment in &self.segments {
            let stored: u64 = segment.pages.iter().map(|page| page.len() as u64).sum();
            assert_eq!(segment.append(client), Ok(Answer::Appended { stored_bytes: stored }));
        }
    }

    pub(crate) fn prepare(&self, client: &mut Client) {
        let segments = u32::try_from(self.segments.len()).expect("a few");
        client.done(Request::PreparePublish { definition: self.definition.clone(), segments });
    }

    /// `SELECT key, value, text WHERE value < limit`.
    pub(crate) fn program(&self, limit: i64) -> ScanProgram {
        let input = |column| Input {
            column: ColumnId(column),
            column_type: self.definition.columns[usize::from(column)].column_type,
        };
        ScanProgram {
            version: PROGRAM_VERSION,
            table: self.id(),
            inputs: vec![input(0), input(1), input(2)],
            nodes: vec![
                Node::Column(0),
                Node::Column(1),
                Node::Column(2),
                Node::Literal(Literal::Int64(limit)),
                Node::Compare { op: Comparison::Less, left: 1, right: 3 },
            ],
            filter: vec![4],
            output: Output::Rows(vec![0, 1, 2]),
            limit_rows: None,
            key_filters: Vec::new(),
        }
    }

    pub(crate) fn verified(&self, program: &ScanProgram) -> Arc<VerifiedProgram> {
        Arc::new(program.clone().verify(&self.definition).expect("a test's program is right"))
    }

    /// The rows that a local scan yields from a segment.
    pub(crate) fn scan_locally(&self, segment: usize, program: &ScanProgram) -> RecordBatch {
        self.run_locally(segment, self.verified(program))
    }

    /// The same of a program with its key filters.
    pub(crate) fn run_locally(&self, segment: usize, program: Arc<VerifiedProgram>) -> RecordBatch {
        self.run_locally_without(segment, program, Arc::default())
    }

    /// The same of the rows that are not withheld.
    pub(crate) fn run_locally_without(
        &self,
        segment: usize,
        program: Arc<VerifiedProgram>,
        withheld: Arc<WithheldRows>,
    ) -> RecordBatch {
        let segment = &self.segments[segment];
        let directory = Arc::new(segment.directory.clone());
        let mut scan = SegmentScan::new(Arc::clone(&program), directory, 0, ScanLimits::default())
            .expect("program and segment belong together")
            .withholding(withheld);
        let mut batches = Vec::new();
        loop {
            match scan.step().expect("the scan goes on") {
                Step::Read(pages) => {
                    for page in pages {
                        let bytes = segment.page(page.column, page.page).to_vec();
                        scan.supply(page.column, page.page, bytes).expect("the page is right");
                    }
                }
                Step::Batch(batch) => batches.push(batch.batch),
                Step::Done => break,
            }
        }
        concat_batches(&rackscan_scan::output_schema(&program), &batches).expect("one schema")
    }
}

impl Segment {
    /// All pages with their columns and numbers.
    pub(crate) fn names(&self) -> Vec<(ColumnId, PageNumber)> {
        let mut names = Vec::new();
        for (column, chunk) in (0..).zip(&self.directory.chunks) {
            names.extend((0..).zip(&chunk.pages).map(|(page, _)| (ColumnId(column), PageNumber(page))));
        }
        names
    }

    pub(crate) fn page(&self, column: ColumnId, page: PageNumber) -> &[u8] {
        let index =
            self.names().iter().position(|name| *name == (column, page)).expect("there is such a page");
        &self.pages[index]
    }

    /// Every page wanted, one behind the other in the target.
    pub(crate) fn wanted(&self) -> Vec<PageWanted> {
        let mut target_offset_bytes = 0;
        let mut wanted = Vec::new();
        for ((column, page), bytes) in self.names().into_iter().zip(&self.pages) {
            wanted.push(PageWanted { column, page, target_offset_bytes });
            target_offset_bytes += bytes.len() as u64;
        }
        wanted
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.pages.iter().map(|page| page.len() as u64).sum()
    }

    /// Puts the segment into the client's region and returns the request that appends it.
    pub(crate) fn stage(&self, client: &Client) -> Request {
        let encoded =
            codec::encode_envelope(Envelope::Segment, &self.directory).expect("a directory can be encoded");
        client.region.copy_in(0, &encoded).expect("it fits");
        let mut offset = encoded.len().next_multiple_of(4096);
        for page in &self.pages {
            client.region.copy_in(offset, page).expect("it fits");
            offset += page.len();
        }
        Request::Append {
            load: self.directory.table,
            directory_bytes: u32::try_from(encoded.len()).expect("small"),
            source: client.target(0, offset as u64),
        }
    }

    pub(crate) fn append(&self, client: &mut Client) -> Result<Answer, Refusal> {
        let request = self.stage(client);
        client.ask(request)
    }
}

fn segment(definition: &TableDefinition, number: u32, rows: u32) -> Segment {
    let keys: Vec<i64> = (0..rows).map(|row| i64::from(number * rows + row)).collect();
    let values: Vec<i64> = keys.iter().map(|key| key * key % 1000).collect();
    let mut bytes = Vec::new();
    let mut offsets = vec![0];
    for key in &keys {
        bytes.extend_from_slice(
            format!("row {key} of table {}, {:x}", definition.name, key * 7_919_101).as_bytes(),
        );
        offsets.push(u32::try_from(bytes.len()).expect("small"));
    }
    let columns = [
        Values::Integers(&keys),
        Values::Integers(&values),
        Values::Text(TextValues { bytes: &bytes, offsets: &offsets }),
    ];
    let mut writer = ChunkWriter::new();
    let mut chunks = Vec::new();
    let mut pages = Vec::new();
    for (column, values) in (0_u16..).zip(columns) {
        let mut entries = Vec::new();
        let input = ChunkInput {
            table: definition.id,
            segment: SegmentId(number),
            column: ColumnId(column),
            column_type: definition.columns[usize::from(column)].column_type,
            values,
            validity: None,
            page_bytes: definition.page_size,
        };
        let mut keep = |page: rackscan_format::chunk::EncodedPage| {
            let length_bytes = u32::try_from(page.bytes.len()).expect("small");
            let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
            entries.push(PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone });
            pages.push(page.bytes);
        };
        writer.encode(&input, &mut keep).expect("a test's values can be encoded");
        chunks.push(ChunkDirectory { pages: entries });
    }
    let directory = SegmentDirectory { table: definition.id, segment: SegmentId(number), rows, chunks };
    Segment { directory, pages }
}
