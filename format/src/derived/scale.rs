//! Computes how many digits behind the point (the *scale*) the amounts of a sum have, from the
//! columns of the table.

use super::{Factor, SumDefinition};
use crate::schema::{ColumnType, TableDefinition};

impl SumDefinition {
    /// Digits behind the point of the amounts and the sum; `table` is the table whose rows are
    /// summed.
    #[must_use]
    pub fn scale(&self, table: &TableDefinition) -> u32 {
        self.factors.iter().map(|factor| u32::from(factor.scale(table))).sum()
    }
}

impl Factor {
    /// Digits behind the point.
    #[must_use]
    pub fn scale(self, table: &TableDefinition) -> u8 {
        match table.columns.get(self.column().index()).map(|column| column.column_type) {
            Some(ColumnType::Decimal { scale, .. }) => scale,
            _ => 0,
        }
    }
}
