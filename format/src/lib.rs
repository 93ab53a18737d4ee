//! Defines the bytes that Rackscan stores on devices and sends between client and node.
//!
//! The crate encodes and decodes these bytes, and checks everything that comes from a device or a
//! peer before the rest of the project sees it. It does no IO, starts no threads and knows no SQL.
//! `docs/formats.md` explains why the formats are as they are.
//!
//! How a table is divided:
//!
//! ```text
//! table       rows are distributed to nodes by a hash of the partition key   (schema, participant)
//!   segment   131,072 rows, all of them on one node, immutable               (segment)
//!     chunk   one column of a segment                                        (chunk)
//!       page  the unit of IO, 128 KiB, with a checksum and a zone map        (page, zone)
//!         block  1,024 rows, the unit of bit-packing and evaluation          (encoding)
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `ids`, `limits` | identifiers of everything that is stored or sent; all sizes and counts |
//! | `codec` | encoding of structures of variable size; the checksummed envelope |
//! | `schema/` | table definitions and their verification |
//! | `derived/` | definitions of what is stored with rows: indexes, foreign keys, sums |
//! | `participant` | the hash that assigns a row to a node |
//! | `segment` | the directory of a segment: where its pages are stored |
//! | `chunk`, `page/`, `encoding/`, `zone` | the writer of pages; pages; how pages store values; bounds of the values of a page |
//! | `withheld` | the rows of a segment that were deleted or updated since it was written |
//! | `row_key`, `row_place` | prefixes of the keys of changed rows; the number of a row in results |
//! | `program/` | the scan program: what a scan computes |
//! | `key_filter` | the set of join keys that a scan program filters by |
//! | `message/` | requests and replies between client and node |
//! | `stripe_set` | what parity is computed over, and the map of a protected table |
//! | `label` | the label in the first sectors of a device |
//! | `simd` | dispatch of kernels to the vector instructions of the processor |
//!
//! An example: a column becomes a page with bounds of its values. A changed byte is detected.
//!
//! ```
//! use rackscan_format::chunk::{ChunkInput, ChunkWriter, Values};
//! use rackscan_format::encoding::bitpack::Scratch;
//! use rackscan_format::ids::{ColumnId, PageNumber, SegmentId, TableId};
//! use rackscan_format::page::{PageFault, PageIdentity, PageView};
//! use rackscan_format::{schema::ColumnType, zone::ZoneValue};
//!
//! let (table, segment, column, page) = (TableId(7), SegmentId(0), ColumnId(2), PageNumber(0));
//! let numbers: Vec<i64> = (0..3000).map(|row| 100 + row % 7).collect();
//! let (column_type, values) = (ColumnType::Int64, Values::Integers(&numbers));
//! let (validity, page_bytes) = (None, 128 << 10);
//! let chunk = ChunkInput { table, segment, column, column_type, values, validity, page_bytes };
//! let mut pages = Vec::new();
//! ChunkWriter::new().encode(&chunk, &mut |page| pages.push(page))?;
//! assert_eq!((pages.len(), pages[0].bytes.len()), (1, 4096));
//! assert_eq!(pages[0].zone.max, Some(ZoneValue::Integer(106)));
//!
//! let (identity, mut found) = (PageIdentity { table, segment, column, page }, Vec::<i64>::new());
//! let integers = PageView::open(&pages[0].bytes, &identity)?.integers()?;
//! integers.decode_into(0..3000, &mut Scratch::new(), &mut found)?;
//! assert_eq!(found, numbers);
//! pages[0].bytes[2000] ^= 1;
//! assert!(matches!(PageView::open(&pages[0].bytes, &identity), Err(PageFault::Checksum { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod chunk;
pub mod codec;
pub mod derived;
pub mod encoding;
pub mod ids;
pub mod key_filter;
pub mod label;
pub mod limits;
pub mod message;
pub mod page;
pub mod participant;
pub mod program;
pub mod row_key;
pub mod row_place;
pub mod schema;
pub mod segment;
pub mod simd;
pub mod stripe_set;
pub mod withheld;
pub mod zone;
