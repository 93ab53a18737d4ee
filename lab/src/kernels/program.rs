//! Builds the scan programs that are measured.
//!
//! Invariants
//! - A scan program does only one thing besides reading, so that its time is that of one kernel.
//!   Exceptions are the programs of TPC-H's queries 1 and 6, which do everything that these queries
//!   need.

use std::sync::Arc;

use rackscan_format::ids::ColumnId;
use rackscan_format::program::{
    Aggregate, AggregateFunction, Arithmetic, Comparison, Input, Literal, Node, NodeIndex, Output,
    PROGRAM_VERSION, ScanProgram, VerifiedProgram,
};
use rackscan_format::schema::TableDefinition;

use super::error::KernelError;
use super::lineitem::{COLUMNS, TABLE};

/// Builds a program over lineitem: each call appends nodes and returns the index of its last one.
#[derive(Default)]
struct Writer {
    nodes: Vec<Node>,
    filter: Vec<NodeIndex>,
}

const fn aggregate(function: AggregateFunction, argument: NodeIndex) -> Aggregate {
    Aggregate { function, argument: Some(argument) }
}

const COUNT: Aggregate = Aggregate { function: AggregateFunction::CountRows, argument: None };

const fn hundredths(unscaled: i128) -> Literal {
    Literal::Decimal { unscaled, precision: 15, scale: 2 }
}

impl Writer {
    /// Programs of this file have a few dozen nodes.
    fn push(&mut self, node: Node) -> NodeIndex {
        self.nodes.push(node);
        NodeIndex::try_from(self.nodes.len() - 1).expect("a few dozen nodes")
    }

    fn column(&mut self, name: &str) -> Result<NodeIndex, KernelError> {
        let position = COLUMNS.iter().position(|(column, _)| *column == name);
        let position = position.ok_or_else(|| KernelError::NoColumn { column: name.to_owned() })?;
        Ok(self.push(Node::Column(u16::try_from(position)?)))
    }

    fn columns(&mut self, names: &[&str]) -> Result<Vec<NodeIndex>, KernelError> {
        names.iter().map(|name| self.column(name)).collect()
    }

    /// Keeps only rows whose column compares with the literal as `op` says.
    fn keep(&mut self, name: &str, op: Comparison, literal: Literal) -> Result<(), KernelError> {
        let left = self.column(name)?;
        let right = self.push(Node::Literal(literal));
        let node = self.push(Node::Compare { op, left, right });
        self.filter.push(node);
        Ok(())
    }

    /// Keeps only rows whose text matches the pattern.
    fn keep_like(&mut self, name: &str, pattern: &str) -> Result<(), KernelError> {
        let item = self.column(name)?;
        let pattern = pattern.to_owned();
        let node = self.push(Node::Like { item, pattern, negated: false, case_insensitive: false });
        self.filter.push(node);
        Ok(())
    }

    /// 1 - column, or 1 + column.
    fn one_and(&mut self, op: Arithmetic, name: &str) -> Result<NodeIndex, KernelError> {
        let one = Literal::Decimal { unscaled: 1, precision: 20, scale: 0 };
        let left = self.push(Node::Literal(one));
        let right = self.column(name)?;
        Ok(self.push(Node::Arithmetic { op, left, right }))
    }

    fn product(&mut self, left: NodeIndex, right: NodeIndex) -> NodeIndex {
        self.push(Node::Arithmetic { op: Arithmetic::Multiply, left, right })
    }

    /// `l_extendedprice * (1 - l_discount)`.
    fn discounted(&mut self) -> Result<NodeIndex, KernelError> {
        let price = self.column("l_extendedprice")?;
        let rest = self.one_and(Arithmetic::Subtract, "l_discount")?;
        Ok(self.product(price, rest))
    }

    fn end(self, table: &TableDefinition, output: Output) -> Result<Arc<VerifiedProgram>, KernelError> {
        let inputs = (0_u16..).zip(COLUMNS);
        let inputs = inputs.map(|(index, (_, column_type))| Input { column: ColumnId(index), column_type });
        let program = ScanProgram {
            version: PROGRAM_VERSION,
            table: TABLE,
            inputs: inputs.collect(),
            nodes: self.nodes,
            filter: self.filter,
            output,
            limit_rows: None,
            key_filters: Vec::new(),
        };
        Ok(Arc::new(program.verify(table)?))
    }
}

/// A scan with its name and its description.
pub(super) struct ScanOf {
    pub(super) kernel: &'static str,
    pub(super) detail: &'static str,
    write: fn(&mut Writer) -> Result<Output, KernelError>,
}

impl ScanOf {
    pub(super) fn program(&self, table: &TableDefinition) -> Result<Arc<VerifiedProgram>, KernelError> {
        let mut writer = Writer::default();
        let output = (self.write)(&mut writer)?;
        writer.end(table, output)
    }
}

fn grouped(keys: Vec<NodeIndex>, aggregates: Vec<Aggregate>) -> Output {
    Output::Groups { keys, aggregates }
}

fn counted() -> Output {
    grouped(Vec::new(), vec![COUNT])
}

/// Days from 1970-01-01 to 1994-01-01, 1995-01-01 and 1998-09-02.
const YEAR_1994: Literal = Literal::Date32(8_766);
const YEAR_1995: Literal = Literal::Date32(9_131);
const LAST_SHIPPED: Literal = Literal::Date32(10_471);

/// All scans, the simplest first.
pub(super) const SCANS: [ScanOf; 20] = [
    ScanOf {
        kernel: "compare",
        detail: "l_shipdate < constant",
        write: |to| to.keep("l_shipdate", Comparison::Less, YEAR_1995).map(|()| counted()),
    },
    ScanOf {
        kernel: "equal",
        detail: "l_discount = constant",
        write: |to| to.keep("l_discount", Comparison::Equal, hundredths(5)).map(|()| counted()),
    },
    ScanOf {
        kernel: "compare-columns",
        detail: "l_commitdate < l_receiptdate",
        write: |to| {
            let (left, right) = (to.column("l_commitdate")?, to.column("l_receiptdate")?);
            let node = to.push(Node::Compare { op: Comparison::Less, left, right });
            to.filter.push(node);
            Ok(counted())
        },
    },
    ScanOf {
        kernel: "compare-expression",
        detail: "l_extendedprice * (1 - l_discount) < constant",
        write: |to| {
            let left = to.discounted()?;
            let constant = Literal::Decimal { unscaled: 300_000_000, precision: 38, scale: 4 };
            let right = to.push(Node::Literal(constant));
            let node = to.push(Node::Compare { op: Comparison::Less, left, right });
            to.filter.push(node);
            Ok(counted())
        },
    },
    ScanOf {
        kernel: "codes",
        detail: "l_shipmode = constant, on codes of a dictionary",
        write: |to| {
            let mode = Literal::Text("MAIL".to_owned());
            to.keep("l_shipmode", Comparison::Equal, mode).map(|()| counted())
        },
    },
    ScanOf {
        kernel: "like-dictionary",
        detail: "l_shipmode LIKE '%AI%', once per entry",
        write: |to| to.keep_like("l_shipmode", "%AI%").map(|()| counted()),
    },
    ScanOf {
        kernel: "like-text",
        detail: "l_comment LIKE '%special%requests%', row by row",
        write: |to| to.keep_like("l_comment", "%special%requests%").map(|()| counted()),
    },
    ScanOf {
        kernel: "sum",
        detail: "sum(l_quantity)",
        write: |to| {
            let quantity = to.column("l_quantity")?;
            Ok(grouped(Vec::new(), vec![aggregate(AggregateFunction::Sum, quantity)]))
        },
    },
    ScanOf {
        kernel: "sum-expression",
        detail: "sum(l_extendedprice * (1 - l_discount))",
        write: |to| {
            let discounted = to.discounted()?;
            Ok(grouped(Vec::new(), vec![aggregate(AggregateFunction::Sum, discounted)]))
        },
    },
    ScanOf {
        kernel: "group-direct",
        detail: "sum(l_quantity) by l_shipmode, addressed by code",
        write: |to| {
            let (key, quantity) = (to.column("l_shipmode")?, to.column("l_quantity")?);
            Ok(grouped(vec![key], vec![aggregate(AggregateFunction::Sum, quantity)]))
        },
    },
    ScanOf {
        kernel: "group-hash",
        detail: "sum(l_quantity) by l_orderkey, hashed",
        write: |to| {
            let (key, quantity) = (to.column("l_orderkey")?, to.column("l_quantity")?);
            Ok(grouped(vec![key], vec![aggregate(AggregateFunction::Sum, quantity)]))
        },
    },
    ScanOf {
        kernel: "group-hash-many",
        detail: "sum(l_quantity) by l_extendedprice, hashed; nearly as many groups as rows",
        write: |to| {
            let (key, quantity) = (to.column("l_extendedprice")?, to.column("l_quantity")?);
            Ok(grouped(vec![key], vec![aggregate(AggregateFunction::Sum, quantity)]))
        },
    },
    ScanOf {
        kernel: "min-text",
        detail: "min and max of l_shipinstruct by l_returnflag, on codes",
        write: |to| {
            let (key, text) = (to.column("l_returnflag")?, to.column("l_shipinstruct")?);
            let extremes = [AggregateFunction::Min, AggregateFunction::Max];
            Ok(grouped(vec![key], extremes.map(|function| aggregate(function, text)).to_vec()))
        },
    },
    ScanOf {
        kernel: "rows",
        detail: "l_orderkey, l_extendedprice, l_discount",
        write: |to| Ok(Output::Rows(to.columns(&["l_orderkey", "l_extendedprice", "l_discount"])?)),
    },
    ScanOf {
        kernel: "rows-half",
        detail: "the same where l_quantity < 26: half of the rows",
        write: |to| {
            to.keep("l_quantity", Comparison::Less, hundredths(2600))?;
            Ok(Output::Rows(to.columns(&["l_orderkey", "l_extendedprice", "l_discount"])?))
        },
    },
    ScanOf {
        kernel: "rows-text",
        detail: "l_shipinstruct, l_shipmode: texts of dictionaries",
        write: |to| Ok(Output::Rows(to.columns(&["l_shipinstruct", "l_shipmode"])?)),
    },
    ScanOf {
        kernel: "rows-comment",
        detail: "l_comment where l_quantity < 26: compressed text",
        write: |to| {
            to.keep("l_quantity", Comparison::Less, hundredths(2600))?;
            Ok(Output::Rows(to.columns(&["l_comment"])?))
        },
    },
    ScanOf {
        kernel: "rows-few",
        detail: "l_extendedprice * (1 - l_discount), l_orderkey where l_quantity < 2: a fiftieth",
        write: |to| {
            to.keep("l_quantity", Comparison::Less, hundredths(200))?;
            let discounted = to.discounted()?;
            Ok(Output::Rows(vec![discounted, to.column("l_orderkey")?]))
        },
    },
    ScanOf { kernel: "q1", detail: "TPC-H query 1 without its order", write: q1 },
    ScanOf { kernel: "q6", detail: "TPC-H query 6", write: q6 },
];

fn q1(to: &mut Writer) -> Result<Output, KernelError> {
    use AggregateFunction::{Count, Sum};
    to.keep("l_shipdate", Comparison::LessOrEqual, LAST_SHIPPED)?;
    let keys = to.columns(&["l_returnflag", "l_linestatus"])?;
    let (quantity, price) = (to.column("l_quantity")?, to.column("l_extendedprice")?);
    let discount = to.column("l_discount")?;
    let discounted = to.discounted()?;
    let taxed = to.one_and(Arithmetic::Add, "l_tax")?;
    let charge = to.product(discounted, taxed);
    let sums = [quantity, price, discounted, charge, discount].map(|argument| aggregate(Sum, argument));
    let counts = [quantity, price, discount].map(|argument| aggregate(Count, argument));
    Ok(grouped(keys, sums.into_iter().chain(counts).chain([COUNT]).collect()))
}

fn q6(to: &mut Writer) -> Result<Output, KernelError> {
    to.keep("l_shipdate", Comparison::GreaterOrEqual, YEAR_1994)?;
    to.keep("l_shipdate", Comparison::Less, YEAR_1995)?;
    to.keep("l_discount", Comparison::GreaterOrEqual, hundredths(5))?;
    to.keep("l_discount", Comparison::LessOrEqual, hundredths(7))?;
    to.keep("l_quantity", Comparison::Less, hundredths(2400))?;
    let (price, discount) = (to.column("l_extendedprice")?, to.column("l_discount")?);
    let revenue = to.product(price, discount);
    Ok(grouped(Vec::new(), vec![aggregate(AggregateFunction::Sum, revenue)]))
}
