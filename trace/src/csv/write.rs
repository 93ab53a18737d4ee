//! Writes records as rows of our CSV.

use std::io::Write;

use super::split::quoted;
use crate::Record;

/// The first line of our CSV.
pub(crate) const HEADER: &str =
    "time_ns,node,device,offset_bytes,length_bytes,operation,table,column,thread\n";

/// Appends the record's row.
pub(crate) fn append(record: &Record, rows: &mut Vec<u8>) {
    let Record { at, node, device, offset_bytes, length_bytes, operation, table, column, thread } = record;
    let (table, column) = (quoted(table.as_deref().unwrap_or("")), quoted(column.as_deref().unwrap_or("")));
    // Writing to memory cannot fail.
    let _ = write!(
        rows,
        "{},{node},{device},{offset_bytes},{length_bytes},{operation},{table},{column},",
        at.as_nanos()
    );
    if let Some(thread) = thread {
        let _ = write!(rows, "{thread}");
    }
    rows.push(b'\n');
}
