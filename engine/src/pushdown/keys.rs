//! Turns the keys of a join into conjuncts of a scan program.
//!
//! Keys are stored integers (`i64`), whatever the type of the column; constants of the program have
//! the type of the column.

use super::{ProgramBuilder, Untranslatable, bindings_of};
use rackscan_format::{
    ids::ColumnId,
    key_filter::KeyFilter,
    program::{Comparison, Literal, Node, NodeIndex, Output, ScanProgram, VerifiedProgram},
    schema::{ColumnType, TableDefinition},
};
use std::sync::Arc;

type Added = Result<(), Untranslatable>;

impl<'a> ProgramBuilder<'a> {
    /// Further conjuncts for `program`, over all columns of `table`.
    pub(crate) fn runtime_filter(table: &'a TableDefinition, program: &ScanProgram) -> Self {
        Self {
            table,
            bindings: bindings_of(table),
            inputs: program.inputs.clone(),
            nodes: program.nodes.clone(),
            filter: program.filter.clone(),
            expected: Vec::new(),
            key_filters: Vec::new(),
            is_overfull: false,
        }
    }

    /// Adds a conjunct that no row passes.
    pub(crate) fn keep_nothing(&mut self) -> Added {
        let node = self.node(Node::Literal(Literal::Boolean(false)))?;
        self.filter.push(node);
        Ok(())
    }

    /// Keeps rows whose value is one of `keys`, which are sorted and not empty.
    pub(crate) fn keep_keys(&mut self, column: ColumnId, keys: &[i64]) -> Added {
        let item = self.column(column)?;
        let set = keys.iter().map(|key| self.key(column, *key)).collect::<Result<Vec<_>, _>>()?;
        let node = self.node(Node::InSet { item, set, negated: false })?;
        self.filter.push(node);
        Ok(())
    }

    /// Keeps rows whose value is within the bounds, both included.
    pub(crate) fn keep_between(&mut self, column: ColumnId, low: i64, high: i64) -> Added {
        for (op, bound) in [(Comparison::GreaterOrEqual, low), (Comparison::LessOrEqual, high)] {
            let (left, constant) = (self.column(column)?, self.key(column, bound)?);
            let right = self.node(Node::Literal(constant))?;
            let node = self.node(Node::Compare { op, left, right })?;
            self.filter.push(node);
        }
        Ok(())
    }

    /// Keeps rows whose value may be in a filter.
    pub(crate) fn search(&mut self, column: ColumnId, filter: &Arc<KeyFilter>) -> Added {
        let item = self.column(column)?;
        let Ok(keys) = u16::try_from(self.key_filters.len()) else {
            return Untranslatable::because("too many key filters");
        };
        self.key_filters.push(Arc::clone(filter));
        let node: NodeIndex = self.node(Node::InKeys { item, keys })?;
        self.filter.push(node);
        Ok(())
    }

    /// The finished program with its key filters.
    ///
    /// # Errors
    /// It breaks a limit of programs.
    pub(crate) fn finish_narrowed(self, output: Output) -> Result<VerifiedProgram, Untranslatable> {
        let (table, key_filters) = (self.table, self.key_filters.clone());
        let program = self.finish(output, None)?;
        let verified = program.verify(table).and_then(|program| program.with_key_filters(key_filters));
        verified.map_err(|error| Untranslatable(error.to_string()))
    }

    /// A stored integer as a constant of the column's type.
    fn key(&self, column: ColumnId, key: i64) -> Result<Literal, Untranslatable> {
        let Some(definition) = self.table.columns.get(column.index()) else {
            return Untranslatable::because(format!("column {column} of table {}", self.table.name));
        };
        let narrow = || i32::try_from(key).or_else(|_| Untranslatable::because(format!("the key {key}")));
        Ok(match definition.column_type {
            ColumnType::Int32 => Literal::Int32(narrow()?),
            ColumnType::Date32 => Literal::Date32(narrow()?),
            ColumnType::Int64 => Literal::Int64(key),
            ColumnType::TimestampMicros => Literal::TimestampMicros(key),
            ColumnType::Decimal { precision, scale } => {
                Literal::Decimal { unscaled: key.into(), precision, scale }
            }
            other => return Untranslatable::because(format!("keys of type {other}")),
        })
    }
}
