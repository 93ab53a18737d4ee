//! Verifies a scan program: version, sizes, positions, and the type of each expression node.

use super::{
    Aggregate, AggregateFunction, Arithmetic, COMPUTED_DIGITS_MAX, Input, Literal, Node, NodeIndex, Output,
    PROGRAM_VERSION, ProgramError, ScanProgram, ValueType, VerifiedProgram,
};
use crate::{
    limits::{
        KEY_FILTER_BYTES_MAX, KEY_FILTERS_MAX, PROGRAM_INPUTS_MAX, PROGRAM_LITERAL_BYTES_MAX,
        PROGRAM_NODES_MAX, PROGRAM_OUTPUTS_MAX, PROGRAM_SET_MAX,
    },
    schema::{ColumnDefinition, TableDefinition},
};

fn fault<T>(
    what: impl Into<String>,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<T, ProgramError> {
    let (what, found) = (what.into(), found.to_string());
    Err(ProgramError { instruction: None, what, found, expected: expected.into() })
}

/// Adds the node to an error.
fn with_node(index: usize, node: &Node) -> impl Fn(ProgramError) -> ProgramError {
    let what = name_of(node);
    move |fault| ProgramError {
        // There are at most PROGRAM_NODES_MAX nodes.
        instruction: NodeIndex::try_from(index).ok(),
        what: format!("{what}: {}", fault.what),
        ..fault
    }
}

/// Describes a node and its operands, without constants.
fn name_of(node: &Node) -> String {
    match node {
        Node::Column(input) => format!("column of input {input}"),
        Node::Literal(literal) => format!("constant of type {}", literal.value_type()),
        Node::Compare { op, left, right } => format!("{op:?} of {left} and {right}"),
        Node::And(items) => format!("AND of {} items", items.len()),
        Node::Or(items) => format!("OR of {} items", items.len()),
        Node::Not(item) => format!("NOT of {item}"),
        Node::IsNull(item) => format!("IS NULL of {item}"),
        Node::InSet { item, set, .. } => format!("IN of {item} and {} constants", set.len()),
        Node::Like { item, .. } => format!("LIKE of {item}"),
        Node::Arithmetic { op, left, right } => format!("{op:?} of {left} and {right}"),
        Node::Negate(item) => format!("negation of {item}"),
        Node::Cast { item, to } => format!("cast of {item} to {to}"),
        Node::Case { branches, .. } => format!("CASE of {} branches", branches.len()),
        Node::DatePart { part, item } => format!("{part:?} of {item}"),
        Node::Substring { item, .. } => format!("substring of {item}"),
        Node::InKeys { item, keys } => format!("search of {item} in key filter {keys}"),
        Node::RowNumber => "the row's number".to_owned(),
    }
}

impl ScanProgram {
    /// Checks version, sizes, positions and types against the table.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn verify(self, table: &TableDefinition) -> Result<VerifiedProgram, ProgramError> {
        if self.table != table.id {
            return fault("its table", self.table, format!("{} ({})", table.id, table.name));
        }
        self.verify_columns(&table.columns)
    }

    /// The same against the columns of a table, without a check of the program's table id: all
    /// versions of a table have the same columns.
    ///
    /// # Errors
    /// As [`ScanProgram::verify`].
    pub fn verify_columns(self, columns: &[ColumnDefinition]) -> Result<VerifiedProgram, ProgramError> {
        if self.version != PROGRAM_VERSION {
            return fault("its version", self.version, PROGRAM_VERSION.to_string());
        }
        self.verify_sizes()?;
        for (index, input) in self.inputs.iter().enumerate() {
            let Some(column) = columns.get(input.column.index()) else {
                return fault("an input column", input.column, format!("below {}", columns.len()));
            };
            if column.column_type != input.column_type {
                return fault(
                    format!("the type of {}", column.name),
                    input.column_type,
                    column.column_type.to_string(),
                );
            }
            if self.inputs[..index].iter().any(|other| other.column == input.column) {
                return fault(
                    "an input column",
                    format!("{}, which is listed twice", column.name),
                    "each column once",
                );
            }
        }
        let mut node_types = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            let typing = Typing { inputs: &self.inputs, below: &node_types };
            node_types.push(typing.of(node).map_err(with_node(index, node))?);
        }
        let typing = Typing { inputs: &self.inputs, below: &node_types };
        for &node in &self.filter {
            let wrong = |fault| match self.nodes.get(usize::from(node)) {
                Some(filter) => with_node(node.into(), filter)(fault),
                None => fault,
            };
            typing.expect(node, ValueType::Boolean).map_err(wrong)?;
        }
        let output_types = self.output_types(&typing)?;
        self.verify_key_filters()?;
        self.verify_row_numbers()?;
        Ok(VerifiedProgram { program: self, node_types, output_types, key_filters: Vec::new() })
    }

    fn verify_sizes(&self) -> Result<(), ProgramError> {
        let outputs = match &self.output {
            Output::Rows(nodes) => nodes.len(),
            Output::Groups { keys, aggregates } => keys.len() + aggregates.len(),
        };
        for (what, found, most) in [
            ("the number of inputs", self.inputs.len(), PROGRAM_INPUTS_MAX),
            ("the number of nodes", self.nodes.len(), PROGRAM_NODES_MAX),
            ("the number of filters", self.filter.len(), PROGRAM_NODES_MAX),
            ("the number of outputs", outputs, PROGRAM_OUTPUTS_MAX),
            ("the number of key filters", self.key_filters.len(), KEY_FILTERS_MAX),
        ] {
            if found > most {
                return fault(what, found, format!("at most {most}"));
            }
        }
        Ok(())
    }

    /// Checks that each [`Node::InKeys`] searches for a column, and that its result is used only as
    /// a conjunct of the filter.
    fn verify_key_filters(&self) -> Result<(), ProgramError> {
        let is_search =
            |node: NodeIndex| matches!(self.nodes.get(usize::from(node)), Some(Node::InKeys { .. }));
        let outputs = match &self.output {
            Output::Rows(nodes) => nodes.clone(),
            Output::Groups { keys, aggregates } => {
                keys.iter().copied().chain(aggregates.iter().filter_map(|one| one.argument)).collect()
            }
        };
        if let Some(&node) = outputs.iter().find(|node| is_search(**node)) {
            return fault("an output", format!("node {node}, a search in a key filter"), "a value");
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let mut operands = Vec::new();
            node.for_each_operand(&mut |operand| operands.push(operand));
            let checked = match node {
                Node::InKeys { item, keys } => self.verify_search(*item, *keys),
                _ => match operands.into_iter().find(|operand| is_search(*operand)) {
                    Some(operand) => {
                        fault("an operand", format!("{operand}, a search in a key filter"), "a value")
                    }
                    None => Ok(()),
                },
            };
            checked.map_err(with_node(index, node))?;
        }
        Ok(())
    }

    /// Checks that [`Node::RowNumber`] is only an output. It cannot be a filter, because filters
    /// are boolean, which was checked before.
    fn verify_row_numbers(&self) -> Result<(), ProgramError> {
        let is_number = |node: NodeIndex| matches!(self.nodes.get(usize::from(node)), Some(Node::RowNumber));
        if let Output::Groups { keys, aggregates } = &self.output {
            let arguments = aggregates.iter().filter_map(|aggregate| aggregate.argument);
            if let Some(node) = keys.iter().copied().chain(arguments).find(|node| is_number(*node)) {
                return fault("a group", format!("node {node}, the row's number"), "a value");
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let mut found = None;
            node.for_each_operand(&mut |operand| found = found.or(is_number(operand).then_some(operand)));
            if let Some(operand) = found {
                let refused = fault("an operand", format!("{operand}, the row's number"), "a value");
                return refused.map_err(with_node(index, node));
            }
        }
        Ok(())
    }

    fn verify_search(&self, item: NodeIndex, keys: u16) -> Result<(), ProgramError> {
        let Some(filter) = self.key_filters.get(usize::from(keys)) else {
            return fault("the position of a key filter", keys, format!("below {}", self.key_filters.len()));
        };
        if filter.length_bytes as usize > KEY_FILTER_BYTES_MAX {
            return fault(
                "the bytes of a key filter",
                filter.length_bytes,
                format!("at most {KEY_FILTER_BYTES_MAX}"),
            );
        }
        match self.nodes.get(usize::from(item)) {
            Some(Node::Column(_)) => Ok(()),
            _ => fault("what is searched for", format!("node {item}"), "a column"),
        }
    }

    fn output_types(&self, typing: &Typing<'_>) -> Result<Vec<ValueType>, ProgramError> {
        match &self.output {
            Output::Rows(nodes) => nodes.iter().map(|&node| typing.at(node)).collect(),
            Output::Groups { keys, aggregates } => {
                if self.limit_rows.is_some() {
                    return fault("the row limit", "a limit on groups", "none");
                }
                let keys = keys.iter().map(|&node| typing.at(node));
                let aggregates = aggregates.iter().map(|aggregate| {
                    let wrong = |fault| match aggregate.argument {
                        Some(node) if usize::from(node) < self.nodes.len() => {
                            with_node(node.into(), &self.nodes[usize::from(node)])(fault)
                        }
                        _ => fault,
                    };
                    typing.aggregate(aggregate).map_err(wrong)
                });
                keys.chain(aggregates).collect()
            }
        }
    }
}

/// Computes the type of a node from the types of the nodes below it.
struct Typing<'a> {
    inputs: &'a [Input],
    below: &'a [ValueType],
}

impl Typing<'_> {
    fn at(&self, node: NodeIndex) -> Result<ValueType, ProgramError> {
        match self.below.get(usize::from(node)) {
            Some(value_type) => Ok(*value_type),
            None => fault("the position of a node", node, format!("below {}", self.below.len())),
        }
    }

    fn expect(&self, node: NodeIndex, wanted: ValueType) -> Result<(), ProgramError> {
        let found = self.at(node)?;
        if found == wanted {
            Ok(())
        } else {
            fault(format!("the type of node {node}"), found, wanted.to_string())
        }
    }

    fn of(&self, node: &Node) -> Result<ValueType, ProgramError> {
        match node {
            Node::Column(input) => match self.inputs.get(usize::from(*input)) {
                Some(input) => Ok(input.column_type.into()),
                None => fault("the position of an input", input, format!("below {}", self.inputs.len())),
            },
            Node::Literal(literal) => literal_type(literal),
            Node::Compare { left, right, .. } => {
                self.expect(*right, self.at(*left)?).map(|()| ValueType::Boolean)
            }
            Node::And(items) | Node::Or(items) => {
                if items.is_empty() || items.len() > PROGRAM_NODES_MAX {
                    return fault("the items of AND/OR", items.len(), format!("1 to {PROGRAM_NODES_MAX}"));
                }
                items.iter().try_for_each(|&item| self.expect(item, ValueType::Boolean))?;
                Ok(ValueType::Boolean)
            }
            Node::Not(item) => self.expect(*item, ValueType::Boolean).map(|()| ValueType::Boolean),
            Node::IsNull(item) => self.at(*item).map(|_| ValueType::Boolean),
            Node::InSet { item, set, .. } => self.in_set(*item, set),
            Node::Like { item, pattern, .. } => {
                if pattern.len() > PROGRAM_LITERAL_BYTES_MAX {
                    return fault(
                        "the bytes of a pattern",
                        pattern.len(),
                        format!("<= {PROGRAM_LITERAL_BYTES_MAX}"),
                    );
                }
                self.expect(*item, ValueType::Text).map(|()| ValueType::Boolean)
            }
            Node::Arithmetic { op, left, right } => arithmetic_type(*op, self.at(*left)?, self.at(*right)?),
            Node::Negate(item) => self.number(*item),
            Node::Cast { item, to } => self.cast(*item, *to),
            Node::Case { branches, otherwise } => self.case(branches, *otherwise),
            Node::DatePart { item, .. } => match self.at(*item)? {
                ValueType::Date32 | ValueType::TimestampMicros => Ok(ValueType::Int32),
                found => fault("the argument of EXTRACT", found, "a date or a timestamp"),
            },
            Node::Substring { item, start, .. } => {
                if *start == 0 {
                    return fault("the first character of a substring", 0, "1 or more");
                }
                self.expect(*item, ValueType::Text).map(|()| ValueType::Text)
            }
            Node::InKeys { item, .. } => match self.at(*item)? {
                found @ (ValueType::Float64 | ValueType::Text) => {
                    fault(format!("the type of node {item}"), found, "one that is stored as integers")
                }
                _ => Ok(ValueType::Boolean),
            },
            Node::RowNumber => Ok(ValueType::Int64),
        }
    }

    fn in_set(&self, item: NodeIndex, set: &[Literal]) -> Result<ValueType, ProgramError> {
        if set.is_empty() || set.len() > PROGRAM_SET_MAX {
            return fault("the size of an IN set", set.len(), format!("1 to {PROGRAM_SET_MAX}"));
        }
        let wanted = self.at(item)?;
        for literal in set {
            let found = literal_type(literal)?;
            if found != wanted || matches!(literal, Literal::Null(_)) {
                return fault("a value of an IN set", format!("{literal:?}"), format!("a {wanted}"));
            }
        }
        Ok(ValueType::Boolean)
    }

    fn number(&self, item: NodeIndex) -> Result<ValueType, ProgramError> {
        match self.at(item)? {
            number @ (ValueType::Int32
            | ValueType::Int64
            | ValueType::Float64
            | ValueType::Decimal { .. }) => Ok(number),
            found => fault(format!("the type of node {item}"), found, "a number"),
        }
    }

    fn cast(&self, item: NodeIndex, to: ValueType) -> Result<ValueType, ProgramError> {
        use ValueType::{Date32, Decimal, Float64, Int32, Int64, TimestampMicros};
        check_digits(to)?;
        match (self.at(item)?, to) {
            (from, to) if from == to => Ok(to),
            (Int32 | Int64 | Decimal { .. } | Float64, Int32 | Int64 | Decimal { .. } | Float64)
            | (Date32, TimestampMicros)
            | (TimestampMicros, Date32) => Ok(to),
            (from, to) => {
                fault("a cast", format!("{from} to {to}"), "a cast between numbers, or dates and timestamps")
            }
        }
    }

    fn case(
        &self,
        branches: &[(NodeIndex, NodeIndex)],
        otherwise: Option<NodeIndex>,
    ) -> Result<ValueType, ProgramError> {
        let Some((_, first)) = branches.first() else {
            return fault("the branches of CASE", 0, "one or more");
        };
        if branches.len() > PROGRAM_NODES_MAX {
            return fault("the branches of CASE", branches.len(), format!("at most {PROGRAM_NODES_MAX}"));
        }
        let wanted = self.at(*first)?;
        for (condition, value) in branches {
            self.expect(*condition, ValueType::Boolean)?;
            self.expect(*value, wanted)?;
        }
        otherwise.map_or(Ok(()), |node| self.expect(node, wanted))?;
        Ok(wanted)
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Result<ValueType, ProgramError> {
        match (aggregate.function, aggregate.argument) {
            (AggregateFunction::CountRows, None) => Ok(ValueType::Int64),
            (AggregateFunction::Count, Some(argument)) => self.at(argument).map(|_| ValueType::Int64),
            (AggregateFunction::Min | AggregateFunction::Max, Some(argument)) => self.at(argument),
            (AggregateFunction::Sum, Some(argument)) => match self.at(argument)? {
                ValueType::Int64 => Ok(ValueType::Decimal { precision: COMPUTED_DIGITS_MAX, scale: 0 }),
                ValueType::Float64 => Ok(ValueType::Float64),
                ValueType::Decimal { precision, scale } => {
                    Ok(ValueType::Decimal { precision: (precision + 10).min(COMPUTED_DIGITS_MAX), scale })
                }
                found => fault("the argument of a sum", found, "a bigint, a double or a decimal"),
            },
            (function, argument) => fault(
                "an aggregate",
                format!("{function:?} of {argument:?}"),
                "an argument, but none for CountRows",
            ),
        }
    }
}

fn literal_type(literal: &Literal) -> Result<ValueType, ProgramError> {
    if let Literal::Text(text) = literal
        && text.len() > PROGRAM_LITERAL_BYTES_MAX
    {
        return fault(
            "the bytes of a text constant",
            text.len(),
            format!("at most {PROGRAM_LITERAL_BYTES_MAX}"),
        );
    }
    check_digits(literal.value_type())
}

fn check_digits(value_type: ValueType) -> Result<ValueType, ProgramError> {
    match value_type {
        ValueType::Decimal { precision, scale }
            if precision == 0 || precision > COMPUTED_DIGITS_MAX || scale > precision =>
        {
            fault("a type", value_type, format!("1 to {COMPUTED_DIGITS_MAX} digits with scale <= precision"))
        }
        fine => Ok(fine),
    }
}

/// The result types of arrow (`arrow-arith`, `numeric.rs`), so that the engine's plan and the scan
/// agree.
fn arithmetic_type(op: Arithmetic, left: ValueType, right: ValueType) -> Result<ValueType, ProgramError> {
    use ValueType::{Decimal, Float64, Int32, Int64};
    match (left, right) {
        (Int32, Int32) => Ok(Int32),
        (Int64, Int64) => Ok(Int64),
        (Float64, Float64) => Ok(Float64),
        (Decimal { precision: p1, scale: s1 }, Decimal { precision: p2, scale: s2 }) => {
            let (precision, scale) = match op {
                Arithmetic::Multiply => (p1 + p2 + 1, s1 + s2),
                Arithmetic::Add | Arithmetic::Subtract => {
                    let scale = s1.max(s2);
                    ((p1 - s1).max(p2 - s2) + scale + 1, scale)
                }
            };
            if scale > COMPUTED_DIGITS_MAX {
                return fault("the scale of a product", scale, format!("at most {COMPUTED_DIGITS_MAX}"));
            }
            Ok(Decimal { precision: precision.min(COMPUTED_DIGITS_MAX), scale })
        }
        (left, right) => fault("arithmetic", format!("{left} and {right}"), "two numbers of one type"),
    }
}
