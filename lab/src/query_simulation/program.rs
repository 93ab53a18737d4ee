//! Turns a query into the scan program that every placement runs.

use rackscan_format::ids::ColumnId;
use rackscan_format::program::{
    Comparison, Input, Literal, Node, NodeIndex, Output, PROGRAM_VERSION, ScanProgram, VerifiedProgram,
};
use rackscan_format::schema::{ColumnType, TableDefinition};

use super::error::SimulationError;
use super::queries::{Constant, SimulatedQuery};

/// The scan that every placement runs.
pub(super) fn scan_program(
    query: SimulatedQuery,
    table: &TableDefinition,
) -> Result<VerifiedProgram, SimulationError> {
    let mut writer = Writer { table, inputs: Vec::new(), nodes: Vec::new() };
    let mut filter = Vec::new();
    for (column, op, constant) in query.conditions() {
        filter.push(writer.compare(column, op, constant)?);
    }
    let output = query.columns().iter().map(|column| Ok(writer.column(column)?.0));
    let output = Output::Rows(output.collect::<Result<_, SimulationError>>()?);
    let Writer { inputs, nodes, .. } = writer;
    let program = ScanProgram {
        version: PROGRAM_VERSION,
        table: table.id,
        inputs,
        nodes,
        filter,
        output,
        limit_rows: None,
        key_filters: Vec::new(),
    };
    Ok(program.verify(table)?)
}
struct Writer<'t> {
    table: &'t TableDefinition,
    inputs: Vec<Input>,
    nodes: Vec<Node>,
}

impl Writer<'_> {
    /// The node of a column; it is read once, however often the query names it.
    fn column(&mut self, name: &str) -> Result<(NodeIndex, ColumnType), SimulationError> {
        let missing =
            || SimulationError::NoColumn { table: self.table.name.clone(), column: name.to_owned() };
        let position = self.table.columns.iter().position(|column| column.name == name);
        let position = position.ok_or_else(missing)?;
        let column = ColumnId(u16::try_from(position).map_err(|_| missing())?);
        let column_type = self.table.columns[position].column_type;
        let known = self.inputs.iter().position(|input| input.column == column);
        let input = known.unwrap_or(self.inputs.len());
        let input = u16::try_from(input).map_err(|_| missing())?;
        if known.is_none() {
            self.inputs.push(Input { column, column_type });
        }
        let there = self.nodes.iter().position(|node| *node == Node::Column(input));
        match there.and_then(|node| NodeIndex::try_from(node).ok()) {
            Some(node) => Ok((node, column_type)),
            None => Ok((self.push(Node::Column(input)), column_type)),
        }
    }

    fn compare(
        &mut self,
        column: &str,
        op: Comparison,
        constant: Constant,
    ) -> Result<NodeIndex, SimulationError> {
        let (left, column_type) = self.column(column)?;
        let literal = match (constant, column_type) {
            (Constant::Date(days), ColumnType::Date32) => Literal::Date32(days),
            (Constant::Hundredths(unscaled), ColumnType::Decimal { precision, scale: 2 }) => {
                Literal::Decimal { unscaled, precision, scale: 2 }
            }
            (constant, found) => {
                return Err(SimulationError::ColumnType {
                    column: column.to_owned(),
                    found: found.to_string(),
                    expected: match constant {
                        Constant::Date(_) => "date",
                        Constant::Hundredths(_) => "a decimal with two digits after the point",
                    },
                });
            }
        };
        let right = self.push(Node::Literal(literal));
        Ok(self.push(Node::Compare { op, left, right }))
    }

    /// Appends a node. Programs of this file have a few dozen nodes.
    fn push(&mut self, node: Node) -> NodeIndex {
        self.nodes.push(node);
        NodeIndex::try_from(self.nodes.len() - 1).expect("a few dozen nodes")
    }
}

#[cfg(test)]
mod tests {
    use super::super::queries::TABLE;
    use super::*;
    use rackscan_format::ids::{NodeId, TableId};
    use rackscan_format::schema::ColumnDefinition;

    fn table(quantity: ColumnType) -> TableDefinition {
        let money = ColumnType::Decimal { precision: 15, scale: 2 };
        let columns = [
            ("l_suppkey", ColumnType::Int64),
            ("l_quantity", quantity),
            ("l_extendedprice", money),
            ("l_discount", money),
            ("l_tax", money),
            ("l_returnflag", ColumnType::Text),
            ("l_linestatus", ColumnType::Text),
            ("l_shipdate", ColumnType::Date32),
        ];
        let column = |(name, column_type): (&str, ColumnType)| ColumnDefinition {
            name: name.to_owned(),
            column_type,
            nullable: false,
        };
        TableDefinition {
            id: TableId(3),
            name: TABLE.to_owned(),
            columns: columns.map(column).to_vec(),
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(0)],
            rows: 1,
            source: String::new(),
            succeeds: None,
            derived: Vec::new(),
            protection: None,
        }
    }

    #[test]
    fn every_query_is_a_program_that_reads_each_column_once() {
        let table = table(ColumnType::Decimal { precision: 15, scale: 2 });
        for (query, inputs, outputs) in
            [(SimulatedQuery::Q01, 7, 6), (SimulatedQuery::Q06, 4, 2), (SimulatedQuery::Q15, 4, 3)]
        {
            let program = scan_program(query, &table).unwrap();
            assert_eq!(program.program().inputs.len(), inputs, "{query}");
            assert_eq!(program.output_types().len(), outputs, "{query}");
            assert_eq!(query.name().parse(), Ok(query));
        }
        assert!("q02".parse::<SimulatedQuery>().unwrap_err().to_string().contains("q01, q06 or q15"));
    }

    #[test]
    fn a_table_of_another_shape_is_refused_by_the_column() {
        let error = scan_program(SimulatedQuery::Q06, &table(ColumnType::Int64)).unwrap_err().to_string();
        assert!(error.contains("l_quantity") && error.contains("bigint"), "{error}");
        let mut short = table(ColumnType::Int64);
        short.columns.pop();
        let error = scan_program(SimulatedQuery::Q01, &short).unwrap_err().to_string();
        assert!(error.contains("l_shipdate"), "{error}");
    }
}
