//! Tests that expressions on blocks are equal to those of arbitrary precision, at the edges of
//! every width.
//!
//! Method: columns that touch the extremes of 8 to 64 bits, and random expressions over them. Every
//! step of every row is compared with `num-bigint`, for every instruction set of the machine. A
//! step that overflowed anywhere would differ.

use super::*;
use num_bigint::BigInt;
use proptest::{prelude::*, test_runner::Config};
use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, Values},
    ids::{ColumnId, NodeId, PageNumber, SegmentId, TableId},
    page::{CheckedPage, PageIdentity},
    program::{Input, Literal, Output, PROGRAM_VERSION, ScanProgram},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};

const MONEY: ColumnType = ColumnType::Decimal { precision: 18, scale: 2 };
const WHOLE: ColumnType = ColumnType::Decimal { precision: 18, scale: 0 };
const EDGES: [(i64, i64); 9] = [
    (0, 0),
    (0, 10),
    (i8::MIN as i64, i8::MAX as i64),
    (i16::MIN as i64, i16::MAX as i64),
    (i16::MAX as i64 - 3, i16::MAX as i64 + 3),
    (i32::MIN as i64, i32::MAX as i64),
    (0, u32::MAX as i64),
    (-999_999_999_999_999_999, 999_999_999_999_999_999),
    (i64::MIN, i64::MAX),
];

struct Case {
    program: VerifiedProgram,
    pages: Vec<CheckedPage<Vec<u8>>>,
    values: Vec<Vec<i64>>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.program.program())
    }
}

fn page(column: u16, column_type: ColumnType, values: &[i64]) -> CheckedPage<Vec<u8>> {
    let (table, segment, column) = (TableId(1), SegmentId(1), ColumnId(column));
    let values = Values::Integers(values);
    let chunk =
        ChunkInput { table, segment, column, column_type, values, validity: None, page_bytes: 131_072 };
    let mut pages = Vec::new();
    ChunkWriter::new().encode(&chunk, &mut |page| pages.push(page.bytes)).unwrap();
    let identity = PageIdentity { table, segment, column, page: PageNumber(0) };
    CheckedPage::open(pages.swap_remove(0), &identity).unwrap()
}

fn case(types: &[ColumnType], values: Vec<Vec<i64>>, nodes: Vec<Node>) -> Option<Case> {
    let columns = types.iter().map(|column_type| ColumnDefinition {
        name: "c".into(),
        column_type: *column_type,
        nullable: false,
    });
    let table = TableDefinition {
        id: TableId(1),
        name: "t".into(),
        columns: columns.collect(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 131_072,
        segment_rows: 131_072,
        nodes: vec![NodeId(0)],
        rows: 1024,
        source: "test".into(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    };
    let inputs = (0_u16..).zip(types);
    let inputs =
        inputs.map(|(index, column_type)| Input { column: ColumnId(index), column_type: *column_type });
    let program = ScanProgram {
        version: PROGRAM_VERSION,
        table: TableId(1),
        inputs: inputs.collect(),
        nodes,
        filter: Vec::new(),
        output: Output::Rows(Vec::new()),
        limit_rows: None,
        key_filters: Vec::new(),
    };
    let program = program.verify(&table).ok()?;
    let pages = (0_u16..).zip(types).zip(&values);
    let pages = pages.map(|((index, column_type), values)| page(index, *column_type, values)).collect();
    Some(Case { program, pages, values })
}

fn scale(program: &VerifiedProgram, node: NodeIndex) -> u32 {
    u32::from(scale_of(program.node_types()[usize::from(node)]))
}

/// A node's unscaled value in arbitrary precision.
fn exact(case: &Case, node: NodeIndex, row: usize) -> BigInt {
    let rescaled = |from: NodeIndex| {
        let digits = scale(&case.program, node) - scale(&case.program, from);
        exact(case, from, row) * BigInt::from(10).pow(digits)
    };
    match &case.program.program().nodes[usize::from(node)] {
        Node::Column(input) => BigInt::from(case.values[usize::from(*input)][row]),
        Node::Literal(literal) => BigInt::from(unscaled(literal).unwrap()),
        Node::Arithmetic { op: Arithmetic::Add, left, right } => rescaled(*left) + rescaled(*right),
        Node::Arithmetic { op: Arithmetic::Subtract, left, right } => rescaled(*left) - rescaled(*right),
        Node::Arithmetic { op: Arithmetic::Multiply, left, right } => {
            exact(case, *left, row) * exact(case, *right, row)
        }
        Node::Negate(item) => -exact(case, *item, row),
        Node::Cast { item, .. } => rescaled(*item),
        other => panic!("{other:?} is not drawn"),
    }
}

/// Holds every step of every row against arbitrary precision; says how wide the last step was.
fn check(case: &Case) -> Option<Width> {
    let last = NodeIndex::try_from(case.program.node_types().len() - 1).unwrap();
    let mut steps = NarrowProgram::new(&case.program);
    let root = steps.operand(&case.program, last)?;
    let views: Vec<_> = case.pages.iter().map(|page| page.view().integers().unwrap()).collect();
    let blocks: Vec<_> = views.iter().map(|page| page.block(0).unwrap()).collect();
    let step_bounds = steps.step_bounds(|input| crate::narrow::bounds_of(&blocks[input]))?;
    for level in Level::available() {
        let (mut scratch, mut buffers) = (Scratch::at(level), StepBuffers::default());
        buffers.make(steps.steps());
        for (step, input) in steps.columns() {
            NarrowProgram::fill(&step_bounds, step, &blocks[input], None, &mut scratch, &mut buffers);
        }
        steps.compute(level, &step_bounds, &mut buffers, BLOCK_ROWS);
        for (node, operand) in (0..=last).zip(&steps.step_of_node) {
            let Some(Operand::Step(step)) = *operand else { continue };
            let (low, high) = step_bounds.of(Operand::Step(step));
            for row in 0..BLOCK_ROWS {
                let found =
                    at_width!(step_bounds.width(step), T => buffers.step(step).get::<T>()[row].wide());
                let wanted = exact(case, node, row);
                assert_eq!(
                    BigInt::from(found),
                    wanted,
                    "{level}, node {node}, row {row}: {:?}",
                    case.program.program()
                );
                assert!((low..=high).contains(&found), "{found} is not within {low} to {high}");
            }
        }
    }
    let Operand::Step(root) = root else { return None };
    Some(step_bounds.width(root))
}

fn values() -> impl Strategy<Value = Vec<i64>> {
    (0..EDGES.len(), any::<u64>(), 1..4_u64).prop_map(|(edge, seed, step)| {
        let (low, high) = EDGES[edge];
        let mut state = seed;
        let drawn = (0..BLOCK_ROWS).map(|row| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let extent = u128::from(high.abs_diff(low)) + 1;
            let number = u128::from(state.rotate_left(23)) % extent / u128::from(step) * u128::from(step);
            match row {
                3 => low,
                700 => high,
                _ => i64::try_from(i128::from(low) + i128::try_from(number).unwrap()).unwrap(),
            }
        });
        drawn.collect()
    })
}

/// A node over those before it: columns, constants and what was drawn.
fn node(family: u8, before: u16) -> impl Strategy<Value = Node> {
    let (op, constant) =
        (0..3_u8, prop_oneof![Just(1_i64), Just(100), Just(-7), any::<i64>(), -1000..1000_i64]);
    (0..8_u8, op, 0..before, 0..before, constant).prop_map(move |(kind, op, left, right, constant)| {
        let op = [Arithmetic::Add, Arithmetic::Subtract, Arithmetic::Multiply][usize::from(op)];
        match (kind, family) {
            (0, 0) => Node::Literal(Literal::Int64(constant)),
            (0, _) => Node::Literal(Literal::Decimal { unscaled: constant.into(), precision: 20, scale: 0 }),
            (1, _) => Node::Negate(left),
            (2, 1) => Node::Cast { item: left, to: ValueType::Decimal { precision: 38, scale: 6 } },
            _ => Node::Arithmetic { op, left, right },
        }
    })
}

fn cases() -> impl Strategy<Value = Option<Case>> {
    (0..2_u8, values(), values(), values()).prop_flat_map(|(family, one, two, three)| {
        let nodes = (node(family, 3), node(family, 4), node(family, 5), node(family, 6));
        nodes.prop_map(move |(a, b, c, d)| {
            let types = if family == 0 { [ColumnType::Int64; 3] } else { [MONEY, WHOLE, MONEY] };
            let nodes = vec![Node::Column(0), Node::Column(1), Node::Column(2), a, b, c, d];
            case(&types, vec![one.clone(), two.clone(), three.clone()], nodes)
        })
    })
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_step_of_a_random_expression_equals_arbitrary_precision(case in cases()) {
        if let Some(case) = case {
            check(&case);
        }
    }
}

/// One operation over two columns of 1,024 values each that touch these extremes.
fn of_two_columns(op: Arithmetic, left: (i64, i64), right: (i64, i64)) -> Option<Width> {
    let ends = |(low, high): (i64, i64), every: usize| -> Vec<i64> {
        (0..BLOCK_ROWS).map(|row| if (row / every).is_multiple_of(2) { low } else { high }).collect()
    };
    let nodes = vec![Node::Column(0), Node::Column(1), Node::Arithmetic { op, left: 0, right: 1 }];
    check(&case(&[WHOLE, WHOLE], vec![ends(left, 1), ends(right, 2)], nodes).unwrap())
}

#[test]
fn the_extremes_of_each_width_are_computed_in_it_and_one_more_is_wider() {
    use Arithmetic::{Add, Multiply, Subtract};
    let (byte, short) = (i64::from(i8::MAX), i64::from(i16::MAX));
    let (int, long) = (i64::from(i32::MAX), i64::MAX);
    assert_eq!(of_two_columns(Add, (-byte, byte - 1), (-1, 1)), Some(Width::W8));
    assert_eq!(of_two_columns(Add, (-byte, byte), (-1, 1)), Some(Width::W16));
    assert_eq!(of_two_columns(Subtract, (-short, short - 1), (-1, 1)), Some(Width::W16));
    assert_eq!(of_two_columns(Subtract, (-short, short), (-1, 1)), Some(Width::W32));
    assert_eq!(of_two_columns(Multiply, (-46_340, 46_340), (-46_340, 46_340)), Some(Width::W32));
    assert_eq!(of_two_columns(Multiply, (-46_341, 46_341), (-46_341, 46_341)), Some(Width::W64));
    assert_eq!(of_two_columns(Add, (-int, int - 1), (-1, 1)), Some(Width::W32));
    assert_eq!(of_two_columns(Add, (-int, int), (-1, 1)), Some(Width::W64));
    assert_eq!(of_two_columns(Multiply, (-int, int), (-int, int)), Some(Width::W64));
    assert_eq!(of_two_columns(Add, (-long, long), (-1, 1)), Some(Width::W128));
    assert_eq!(of_two_columns(Multiply, (i64::MIN, long), (i64::MIN, long)), Some(Width::W128));
}

#[test]
fn what_128_bits_do_not_hold_is_left_to_the_general_path() {
    let product = |left, right| Node::Arithmetic { op: Arithmetic::Multiply, left, right };
    let extremes: Vec<i64> =
        (0..BLOCK_ROWS).map(|row| if row % 2 == 0 { i64::MIN } else { i64::MAX }).collect();
    let nodes = vec![Node::Column(0), product(0, 0), product(1, 0)];
    assert_eq!(check(&case(&[WHOLE], vec![extremes.clone()], nodes).unwrap()), None);
    // Int64 wraps in arrow, so what may leave 64 bits is not computed here either.
    let sum = Node::Arithmetic { op: Arithmetic::Add, left: 0, right: 0 };
    assert_eq!(check(&case(&[ColumnType::Int64], vec![extremes], vec![Node::Column(0), sum]).unwrap()), None);
}
