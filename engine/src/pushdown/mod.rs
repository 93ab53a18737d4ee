//! Finds the part of a query that can run inside a scan.
//!
//! DataFusion's physical expressions are translated into nodes of a [`ScanProgram`]. An expression
//! without an exact counterpart is computed above the scan; nothing is approximated.
//!
//! Invariants
//! - A translated node has exactly the type that DataFusion gave the expression, or the expression
//!   is refused.
//! - A refused expression leaves the program unchanged.
//! - Equal expressions become one node.

mod expression;
mod keys;
mod literal;

use datafusion::physical_expr::PhysicalExpr;
use rackscan_format::{
    ids::ColumnId,
    key_filter::KeyFilter,
    limits::PROGRAM_NODES_MAX,
    program::{Aggregate, Input, Node, NodeIndex, Output, PROGRAM_VERSION, ScanProgram, ValueType},
    schema::TableDefinition,
};
use std::{collections::BTreeMap, sync::Arc};

pub(crate) use expression::type_of;
pub(crate) use literal::{arrow_type, value_type};

/// Why an expression stays above the scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Untranslatable(pub(crate) String);

impl Untranslatable {
    fn because<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self(reason.into()))
    }
}

/// What a column of the expressions' input stands for.
#[derive(Clone, Debug)]
enum Binding {
    /// A column of the table.
    Column(ColumnId),
    /// A value that is already computed.
    Node(NodeIndex),
    /// An expression that could not be translated.
    Nothing(Untranslatable),
}

/// Collects expressions over one table into a program.
#[derive(Clone, Debug)]
pub(crate) struct ProgramBuilder<'a> {
    table: &'a TableDefinition,
    bindings: Vec<Binding>,
    inputs: Vec<Input>,
    nodes: Vec<Node>,
    filter: Vec<NodeIndex>,
    /// The types that DataFusion gave to nodes. They are checked against the program's own types at
    /// the end of each translation.
    expected: Vec<(NodeIndex, ValueType)>,
    key_filters: Vec<Arc<KeyFilter>>,
    /// Whether a node was refused because the program has the maximum number of nodes.
    is_overfull: bool,
}

impl<'a> ProgramBuilder<'a> {
    /// A builder for expressions over all columns of `table`, in the table's order.
    pub(crate) fn over_table(table: &'a TableDefinition) -> Self {
        Self {
            table,
            bindings: bindings_of(table),
            inputs: Vec::new(),
            nodes: Vec::new(),
            filter: Vec::new(),
            expected: Vec::new(),
            key_filters: Vec::new(),
            is_overfull: false,
        }
    }

    /// A builder for expressions over the rows that `program` returns; `None` when it returns
    /// groups or a limited number of rows.
    pub(crate) fn over_output(table: &'a TableDefinition, program: &ScanProgram) -> Option<Self> {
        let Output::Rows(outputs) = &program.output else { return None };
        if program.limit_rows.is_some() {
            return None;
        }
        Some(Self {
            table,
            bindings: outputs.iter().map(|&node| Binding::Node(node)).collect(),
            inputs: program.inputs.clone(),
            nodes: program.nodes.clone(),
            filter: program.filter.clone(),
            expected: Vec::new(),
            key_filters: Vec::new(),
            is_overfull: false,
        })
    }

    /// From here on, columns refer to the results of `expressions`, in their order.
    pub(crate) fn project(
        &mut self,
        expressions: impl IntoIterator<Item = (Arc<dyn PhysicalExpr>, Result<ValueType, Untranslatable>)>,
    ) {
        let bindings = expressions.into_iter().map(|(expression, wanted)| {
            let translated = wanted.and_then(|wanted| self.translate(&expression, wanted));
            translated.map_or_else(Binding::Nothing, Binding::Node)
        });
        let bindings = bindings.collect();
        self.bindings = bindings;
    }

    /// Adds an expression of DataFusion type `wanted` and returns its node.
    ///
    /// # Errors
    /// Why it cannot be translated; the program is unchanged then.
    pub(crate) fn translate(
        &mut self,
        expression: &Arc<dyn PhysicalExpr>,
        wanted: ValueType,
    ) -> Result<NodeIndex, Untranslatable> {
        let (inputs, nodes) = (self.inputs.len(), self.nodes.len());
        self.expected.clear();
        let translated = self.expression(expression).and_then(|node| {
            self.expected.push((node, wanted));
            self.check_types().map(|()| node)
        });
        if translated.is_err() {
            self.inputs.truncate(inputs);
            self.nodes.truncate(nodes);
        }
        translated
    }

    /// Adds a conjunct of the filter.
    ///
    /// # Errors
    /// Why it cannot be translated.
    pub(crate) fn filter(&mut self, condition: &Arc<dyn PhysicalExpr>) -> Result<(), Untranslatable> {
        let node = self.translate(condition, ValueType::Boolean)?;
        self.filter.push(node);
        Ok(())
    }

    /// Adds a conjunct of the filter if that leaves room for this many nodes. Returns whether it
    /// was added.
    ///
    /// # Errors
    /// Why it cannot be translated, regardless of the room.
    pub(crate) fn filter_within(
        &mut self,
        condition: &Arc<dyn PhysicalExpr>,
        room: usize,
    ) -> Result<bool, Untranslatable> {
        let (inputs, nodes) = (self.inputs.len(), self.nodes.len());
        self.is_overfull = false;
        if nodes + room >= PROGRAM_NODES_MAX {
            return Ok(false);
        }
        let node = match self.translate(condition, ValueType::Boolean) {
            Err(_) if self.is_overfull => return Ok(false),
            translated => translated?,
        };
        let fits = self.nodes.len() + room <= PROGRAM_NODES_MAX;
        if fits {
            self.filter.push(node);
        } else {
            self.inputs.truncate(inputs);
            self.nodes.truncate(nodes);
        }
        Ok(fits)
    }

    /// A column of the table as a node.
    ///
    /// # Errors
    /// The table has no such column.
    pub(crate) fn column(&mut self, column: ColumnId) -> Result<NodeIndex, Untranslatable> {
        let Some(definition) = self.table.columns.get(column.index()) else {
            return Untranslatable::because(format!("column {column} of table {}", self.table.name));
        };
        let known = self.inputs.iter().position(|input| input.column == column);
        let position = known.unwrap_or_else(|| {
            self.inputs.push(Input { column, column_type: definition.column_type });
            self.inputs.len() - 1
        });
        let Ok(position) = u16::try_from(position) else {
            return Untranslatable::because("too many columns");
        };
        self.node(Node::Column(position))
    }

    /// The number of a row in its segment, which may only be an output.
    ///
    /// # Errors
    /// There are too many nodes.
    pub(crate) fn row_number(&mut self) -> Result<NodeIndex, Untranslatable> {
        self.node(Node::RowNumber)
    }

    /// The finished program, without anything that neither the filter nor the output needs.
    ///
    /// # Errors
    /// It breaks a limit of programs.
    pub(crate) fn finish(
        self,
        output: Output,
        limit_rows: Option<u32>,
    ) -> Result<ScanProgram, Untranslatable> {
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: self.table.id,
            inputs: self.inputs,
            nodes: self.nodes,
            filter: self.filter,
            output,
            limit_rows,
            key_filters: self.key_filters.iter().map(|filter| filter.name()).collect(),
        };
        let program = without_dead_nodes(program);
        match program.clone().verify(self.table) {
            Ok(_) => Ok(program),
            Err(error) => Err(Untranslatable(error.to_string())),
        }
    }

    /// The index of a node equal to `node`, which is added if there is none.
    fn node(&mut self, node: Node) -> Result<NodeIndex, Untranslatable> {
        let known = self.nodes.iter().position(|other| *other == node);
        if known.is_none() && self.nodes.len() >= PROGRAM_NODES_MAX {
            self.is_overfull = true;
            return Untranslatable::because(format!("more than {PROGRAM_NODES_MAX} expressions"));
        }
        let position = known.unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        NodeIndex::try_from(position).or_else(|_| Untranslatable::because("too many expressions"))
    }

    /// The type of each node so far.
    fn types(&self) -> Result<Vec<ValueType>, Untranslatable> {
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: self.table.id,
            inputs: self.inputs.clone(),
            nodes: self.nodes.clone(),
            filter: Vec::new(),
            output: Output::Rows(Vec::new()),
            limit_rows: None,
            key_filters: Vec::new(),
        };
        let verified = program.verify(self.table).map_err(|error| Untranslatable(error.to_string()))?;
        Ok(verified.node_types().to_vec())
    }

    fn check_types(&self) -> Result<(), Untranslatable> {
        let types = self.types()?;
        for &(node, wanted) in &self.expected {
            match types.get(usize::from(node)) {
                Some(found) if *found == wanted => {}
                found => {
                    return Untranslatable::because(format!(
                        "the scan computes {found:?}, wanted is {wanted}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Every column of a table, in its order.
fn bindings_of(table: &TableDefinition) -> Vec<Binding> {
    let columns = (0..table.columns.len()).filter_map(|index| u16::try_from(index).ok());
    columns.map(|index| Binding::Column(ColumnId(index))).collect()
}

fn operands_mut(node: &mut Node) -> Vec<&mut NodeIndex> {
    match node {
        Node::Column(_) | Node::Literal(_) | Node::RowNumber => Vec::new(),
        Node::Compare { left, right, .. } | Node::Arithmetic { left, right, .. } => vec![left, right],
        Node::And(items) | Node::Or(items) => items.iter_mut().collect(),
        Node::Not(item) | Node::IsNull(item) | Node::Negate(item) => vec![item],
        Node::InSet { item, .. }
        | Node::Like { item, .. }
        | Node::Cast { item, .. }
        | Node::DatePart { item, .. }
        | Node::Substring { item, .. }
        | Node::InKeys { item, .. } => vec![item],
        Node::Case { branches, otherwise } => branches
            .iter_mut()
            .flat_map(|(condition, value)| [condition, value])
            .chain(otherwise.as_mut())
            .collect(),
    }
}

/// The nodes that an output names.
pub(crate) fn output_nodes(output: &Output) -> Vec<NodeIndex> {
    match output {
        Output::Rows(nodes) => nodes.clone(),
        Output::Groups { keys, aggregates } => {
            keys.iter().copied().chain(aggregates.iter().filter_map(|aggregate| aggregate.argument)).collect()
        }
    }
}

/// Which nodes must be computed for `roots`, themselves included.
pub(crate) fn reachable(nodes: &[Node], roots: impl IntoIterator<Item = NodeIndex>) -> Vec<bool> {
    let mut needed = vec![false; nodes.len()];
    let mut open: Vec<NodeIndex> = roots.into_iter().collect();
    while let Some(node) = open.pop() {
        let index = usize::from(node);
        if let Some(mark) = needed.get_mut(index)
            && !*mark
        {
            *mark = true;
            nodes[index].for_each_operand(&mut |operand| open.push(operand));
        }
    }
    needed
}

/// The same program without nodes and inputs that are not needed: an unused input would still be
/// read.
fn without_dead_nodes(mut program: ScanProgram) -> ScanProgram {
    let roots = program.filter.iter().copied().chain(output_nodes(&program.output));
    let needed = reachable(&program.nodes, roots);
    let mut new_inputs = Vec::new();
    let mut input_positions = BTreeMap::new();
    let mut nodes = Vec::new();
    let mut positions = BTreeMap::new();
    for (old, mut node) in std::mem::take(&mut program.nodes).into_iter().enumerate() {
        if !needed[old] {
            continue;
        }
        if let Node::Column(input) = &mut node {
            let position = *input_positions.entry(*input).or_insert_with(|| {
                new_inputs.push(program.inputs[usize::from(*input)]);
                new_inputs.len() - 1
            });
            *input = u16::try_from(position).expect("no more inputs than before");
        }
        for operand in operands_mut(&mut node) {
            *operand = positions[operand];
        }
        positions.insert(
            NodeIndex::try_from(old).expect("a verified program's node"),
            NodeIndex::try_from(nodes.len()).expect("no more nodes than before"),
        );
        nodes.push(node);
    }
    for node in &mut program.filter {
        *node = positions[node];
    }
    match &mut program.output {
        Output::Rows(outputs) => outputs.iter_mut().for_each(|node| *node = positions[node]),
        Output::Groups { keys, aggregates } => {
            keys.iter_mut().for_each(|node| *node = positions[node]);
            for Aggregate { argument, .. } in aggregates {
                *argument = argument.map(|node| positions[&node]);
            }
        }
    }
    ScanProgram { inputs: new_inputs, nodes, ..program }
}

#[cfg(test)]
mod tests;
