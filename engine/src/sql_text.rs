//! Writes a scan program as SQL, for EXPLAIN and logs. The text is never parsed.

use az::SaturatingAs;
use datafusion::arrow::{
    datatypes::{DECIMAL128_MAX_PRECISION, Decimal128Type, DecimalType},
    temporal_conversions::{date32_to_datetime, timestamp_us_to_datetime},
};
use rackscan_format::{
    program::{
        Aggregate, AggregateFunction, Arithmetic, Comparison, Literal, Node, NodeIndex, Output, ScanProgram,
    },
    schema::TableDefinition,
};

/// How many values of an IN set are shown.
const SET_SHOWN_MAX: usize = 12;

/// Writes a program's expressions with the table's column names.
pub(crate) struct SqlText<'a> {
    program: &'a ScanProgram,
    table: &'a TableDefinition,
}

impl<'a> SqlText<'a> {
    pub(crate) fn new(program: &'a ScanProgram, table: &'a TableDefinition) -> Self {
        Self { program, table }
    }

    /// The filter's conjuncts; empty when every row passes.
    pub(crate) fn filter(&self) -> Vec<String> {
        self.program.filter.iter().map(|&node| self.node(node)).collect()
    }

    /// The columns the scan may read, in the order the program names them.
    pub(crate) fn columns(&self) -> Vec<String> {
        let columns = self.program.inputs.iter();
        columns
            .filter_map(|input| self.table.columns.get(input.column.index()))
            .map(|c| c.name.clone())
            .collect()
    }

    /// The aggregates and then the keys, for a scan that returns groups.
    pub(crate) fn groups(&self) -> Option<(Vec<String>, Vec<String>)> {
        let Output::Groups { keys, aggregates } = &self.program.output else { return None };
        let aggregates = aggregates.iter().map(|aggregate| self.aggregate(aggregate)).collect();
        Some((aggregates, keys.iter().map(|&key| self.node(key)).collect()))
    }

    fn aggregate(&self, aggregate: &Aggregate) -> String {
        let name = match aggregate.function {
            AggregateFunction::CountRows => return "count(*)".to_owned(),
            AggregateFunction::Count => "count",
            AggregateFunction::Sum => "sum",
            AggregateFunction::Min => "min",
            AggregateFunction::Max => "max",
        };
        format!("{name}({})", aggregate.argument.map_or_else(String::new, |node| self.node(node)))
    }

    /// One expression.
    pub(crate) fn node(&self, node: NodeIndex) -> String {
        let Some(node) = self.program.nodes.get(usize::from(node)) else { return "?".to_owned() };
        match node {
            Node::Column(input) => self.column(*input),
            Node::Literal(value) => literal(value),
            Node::Compare { op, left, right } => {
                format!("{} {} {}", self.tight(*left), comparison(*op), self.tight(*right))
            }
            Node::And(items) => self.joined(items, " AND "),
            Node::Or(items) => self.joined(items, " OR "),
            Node::Not(item) => self.not(*item),
            Node::IsNull(item) => format!("{} IS NULL", self.tight(*item)),
            Node::InSet { item, set, negated } => {
                let shown: Vec<String> = set.iter().take(SET_SHOWN_MAX).map(literal).collect();
                let more = match set.len().checked_sub(SET_SHOWN_MAX) {
                    Some(more) if more > 0 => format!(", {more} more"),
                    _ => String::new(),
                };
                format!("{} {}IN ({}{more})", self.tight(*item), prefix(*negated), shown.join(", "))
            }
            Node::Like { item, pattern, negated, case_insensitive } => {
                let like = if *case_insensitive { "ILIKE" } else { "LIKE" };
                format!("{} {}{like} {}", self.tight(*item), prefix(*negated), quoted(pattern))
            }
            Node::Arithmetic { op, left, right } => {
                format!("{} {} {}", self.tight(*left), arithmetic(*op), self.tight(*right))
            }
            Node::Negate(item) => format!("-{}", self.tight(*item)),
            Node::Cast { item, to } => format!("CAST({} AS {to})", self.node(*item)),
            Node::Case { branches, otherwise } => self.case(branches, *otherwise),
            Node::DatePart { part, item } => {
                format!("EXTRACT({} FROM {})", format!("{part:?}").to_uppercase(), self.node(*item))
            }
            Node::Substring { item, start, length } => {
                let length = length.map_or_else(String::new, |length| format!(" FOR {length}"));
                format!("SUBSTRING({} FROM {start}{length})", self.node(*item))
            }
            Node::InKeys { item, keys } => {
                let name = self.program.key_filters.get(usize::from(*keys));
                let keys = name.map_or(0, |name| name.keys);
                format!("{} IN ({keys} keys)", self.tight(*item))
            }
            Node::RowNumber => "ROW NUMBER".to_owned(),
        }
    }

    fn column(&self, input: u16) -> String {
        let column = self.program.inputs.get(usize::from(input)).map(|input| input.column.index());
        let definition = column.and_then(|index| self.table.columns.get(index));
        definition.map_or_else(|| "?".to_owned(), |column| column.name.clone())
    }

    fn not(&self, item: NodeIndex) -> String {
        match self.program.nodes.get(usize::from(item)) {
            Some(Node::IsNull(inner)) => format!("{} IS NOT NULL", self.tight(*inner)),
            _ => format!("NOT {}", self.tight(item)),
        }
    }

    fn case(&self, branches: &[(NodeIndex, NodeIndex)], otherwise: Option<NodeIndex>) -> String {
        let branches: Vec<String> = branches
            .iter()
            .map(|(condition, value)| format!(" WHEN {} THEN {}", self.node(*condition), self.node(*value)))
            .collect();
        let otherwise = otherwise.map_or_else(String::new, |value| format!(" ELSE {}", self.node(value)));
        format!("CASE{}{otherwise} END", branches.concat())
    }

    fn joined(&self, items: &[NodeIndex], with: &str) -> String {
        items.iter().map(|&item| self.tight(item)).collect::<Vec<_>>().join(with)
    }

    /// The expression, in parentheses unless it binds tighter than any operator.
    fn tight(&self, node: NodeIndex) -> String {
        let text = self.node(node);
        match self.program.nodes.get(usize::from(node)) {
            Some(
                Node::Compare { .. }
                | Node::And(_)
                | Node::Or(_)
                | Node::Not(_)
                | Node::IsNull(_)
                | Node::InSet { .. }
                | Node::Like { .. }
                | Node::Arithmetic { .. },
            ) => format!("({text})"),
            _ => text,
        }
    }
}

fn prefix(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn comparison(op: Comparison) -> &'static str {
    match op {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

fn arithmetic(op: Arithmetic) -> &'static str {
    match op {
        Arithmetic::Add => "+",
        Arithmetic::Subtract => "-",
        Arithmetic::Multiply => "*",
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn literal(literal: &Literal) -> String {
    match literal {
        Literal::Null(_) => "NULL".to_owned(),
        Literal::Boolean(value) => value.to_string().to_uppercase(),
        Literal::Int32(value) => value.to_string(),
        Literal::Int64(value) => value.to_string(),
        Literal::Date32(days) => match date32_to_datetime(*days) {
            Some(date) => format!("DATE '{}'", date.date()),
            None => format!("DATE {days} days"),
        },
        Literal::TimestampMicros(micros) => match timestamp_us_to_datetime(*micros) {
            Some(time) => format!("TIMESTAMP '{time}'"),
            None => format!("TIMESTAMP {micros} us"),
        },
        Literal::Decimal { unscaled, scale, .. } => {
            let scale = (*scale).saturating_as::<i8>();
            Decimal128Type::format_decimal(*unscaled, DECIMAL128_MAX_PRECISION, scale)
        }
        Literal::Float64(value) => value.to_string(),
        Literal::Text(text) => quoted(text),
    }
}
