//! Checks a table definition against the invariants of [`crate::schema`].

use super::{ColumnType, DefinitionError, TableDefinition};
use crate::{
    derived,
    ids::NodeId,
    limits::{
        BLOCK_ROWS, CLUSTER_NODES_MAX, COLUMNS_MAX, DECIMAL_DIGITS_MAX, NAME_BYTES_MAX, PAGE_SIZE_MAX,
        PAGE_SIZE_MIN, PROTECTED_NODES_MAX, SECTOR_BYTES, SEGMENT_ROWS_MAX,
    },
};
use std::collections::BTreeSet;

impl TableDefinition {
    /// Checks every bound the rest of the code relies on.
    ///
    /// # Errors
    /// The first field that breaks an invariant.
    pub fn verify(&self) -> Result<(), DefinitionError> {
        let fault = |what: &'static str, found: String, expected: String| {
            Err(DefinitionError { table: self.name.clone(), what, found, expected })
        };
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return fault(
                "the name",
                format!("{} bytes long", self.name.len()),
                format!("1 to {NAME_BYTES_MAX} bytes"),
            );
        }
        if self.columns.is_empty() || self.columns.len() > COLUMNS_MAX {
            return fault(
                "the number of columns",
                self.columns.len().to_string(),
                format!("1 to {COLUMNS_MAX}"),
            );
        }
        for (index, column) in self.columns.iter().enumerate() {
            if column.name.is_empty() || column.name.len() > NAME_BYTES_MAX {
                let found = format!("{} bytes long (column {index})", column.name.len());
                return fault("a column's name", found, format!("1 to {NAME_BYTES_MAX} bytes"));
            }
            if self.columns[..index].iter().any(|other| other.name == column.name) {
                return fault(
                    "a column's name",
                    format!("{:?} in two columns", column.name),
                    "unique names".into(),
                );
            }
            if let ColumnType::Decimal { precision, scale } = column.column_type
                && (precision == 0 || precision > DECIMAL_DIGITS_MAX || scale > precision)
            {
                let expected = format!("1 to {DECIMAL_DIGITS_MAX} digits with scale <= precision");
                return fault("a column's type", format!("decimal({precision},{scale})"), expected);
            }
        }
        if self.partition_key.index() >= self.columns.len() {
            let expected = format!("a column below {}", self.columns.len());
            return fault("the partition key", self.partition_key.to_string(), expected);
        }
        if let Some(column) = self.sorted_by
            && column.index() >= self.columns.len()
        {
            return fault(
                "the sort column",
                column.to_string(),
                format!("a column below {}", self.columns.len()),
            );
        }
        if self.succeeds == Some(self.id) {
            return fault(
                "the table that it replaces",
                self.id.to_string(),
                "the id of another table".into(),
            );
        }
        self.verify_sizes()?;
        self.verify_protection()?;
        derived::verify(self)
    }

    fn verify_protection(&self) -> Result<(), DefinitionError> {
        let Some(protection) = self.protection else { return Ok(()) };
        let (what, table) = ("the nodes of a protected table", || self.name.clone());
        let (fewest, found) = (protection.nodes_min(), self.nodes.len());
        if !(fewest..=PROTECTED_NODES_MAX).contains(&found) {
            let expected = format!("{fewest} to {PROTECTED_NODES_MAX} with parity {protection}");
            return Err(DefinitionError { table: table(), what, found: found.to_string(), expected });
        }
        let different: BTreeSet<NodeId> = self.nodes.iter().copied().collect();
        if different.len() != found {
            let (found, expected) = (format!("{:?}", self.nodes), "each node once".to_owned());
            return Err(DefinitionError { table: table(), what, found, expected });
        }
        Ok(())
    }

    fn verify_sizes(&self) -> Result<(), DefinitionError> {
        let fault = |what: &'static str, found: String, expected: String| {
            Err(DefinitionError { table: self.name.clone(), what, found, expected })
        };
        if !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&self.page_size)
            || !self.page_size.is_multiple_of(SECTOR_BYTES)
        {
            let expected = format!("a multiple of {SECTOR_BYTES} from {PAGE_SIZE_MIN} to {PAGE_SIZE_MAX}");
            return fault("the page size", format!("{} bytes", self.page_size), expected);
        }
        if self.segment_rows == 0
            || self.segment_rows > SEGMENT_ROWS_MAX
            || !(self.segment_rows as usize).is_multiple_of(BLOCK_ROWS)
        {
            let expected = format!("a multiple of {BLOCK_ROWS} up to {SEGMENT_ROWS_MAX}");
            return fault("the number of rows of a segment", self.segment_rows.to_string(), expected);
        }
        if self.nodes.is_empty() || self.nodes.len() > CLUSTER_NODES_MAX {
            return fault(
                "the number of nodes",
                self.nodes.len().to_string(),
                format!("1 to {CLUSTER_NODES_MAX}"),
            );
        }
        Ok(())
    }
}
