//! Tests that every invalid program is refused, and that every valid one gets the types that arrow
//! gives.

use super::*;
use crate::{
    ids::NodeId,
    limits::{PROGRAM_LITERAL_BYTES_MAX, PROGRAM_NODES_MAX},
    schema::{ColumnDefinition, TableDefinition},
};

fn table() -> TableDefinition {
    let column =
        |name: &str, column_type| ColumnDefinition { name: name.into(), column_type, nullable: false };
    TableDefinition {
        id: TableId(9),
        name: "t".into(),
        columns: vec![
            column("price", ColumnType::Decimal { precision: 15, scale: 2 }),
            column("name", ColumnType::Text),
            column("day", ColumnType::Date32),
        ],
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 131_072,
        segment_rows: 131_072,
        nodes: vec![NodeId(0)],
        rows: 1,
        source: "test".into(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    }
}

fn program(nodes: Vec<Node>, filter: Vec<NodeIndex>, output: Output) -> ScanProgram {
    let inputs = (0..3_u16)
        .map(|index| Input {
            column: ColumnId(index),
            column_type: table().columns[usize::from(index)].column_type,
        })
        .collect();
    ScanProgram {
        version: PROGRAM_VERSION,
        table: TableId(9),
        inputs,
        nodes,
        filter,
        output,
        limit_rows: None,
        key_filters: Vec::new(),
    }
}

fn refused(program: ScanProgram) -> String {
    program.verify(&table()).expect_err("the program should be refused").to_string()
}

#[test]
fn q1s_discounted_price_has_arrows_type() {
    let one = Literal::Decimal { unscaled: 1, precision: 20, scale: 0 };
    let nodes = vec![
        Node::Column(0),
        Node::Literal(one),
        Node::Arithmetic { op: Arithmetic::Subtract, left: 1, right: 0 },
        Node::Arithmetic { op: Arithmetic::Multiply, left: 0, right: 2 },
    ];
    let sum = Aggregate { function: AggregateFunction::Sum, argument: Some(3) };
    let verified = program(nodes, vec![], Output::Groups { keys: vec![], aggregates: vec![sum] });
    let verified = verified.verify(&table()).unwrap();
    assert_eq!(verified.node_types()[2], ValueType::Decimal { precision: 23, scale: 2 });
    assert_eq!(verified.node_types()[3], ValueType::Decimal { precision: 38, scale: 4 });
    assert_eq!(verified.output_types(), [ValueType::Decimal { precision: 38, scale: 4 }]);
}

#[test]
fn a_node_that_names_itself_or_a_later_one_is_refused() {
    assert!(
        refused(program(vec![Node::Not(0)], vec![], Output::Rows(vec![]))).contains("position of a node")
    );
    let nodes = vec![Node::Column(0), Node::IsNull(2), Node::Column(1)];
    assert!(refused(program(nodes, vec![], Output::Rows(vec![]))).contains("position of a node"));
}

#[test]
fn comparing_two_types_is_refused() {
    let nodes =
        vec![Node::Column(0), Node::Column(1), Node::Compare { op: Comparison::Equal, left: 0, right: 1 }];
    assert!(refused(program(nodes, vec![2], Output::Rows(vec![]))).contains("decimal(15,2)"));
}

#[test]
fn a_filter_that_is_not_boolean_is_refused() {
    assert!(refused(program(vec![Node::Column(1)], vec![0], Output::Rows(vec![]))).contains("boolean"));
}

#[test]
fn columns_the_table_does_not_have_are_refused() {
    let mut foreign = program(vec![], vec![], Output::Rows(vec![]));
    foreign.inputs[0].column = ColumnId(77);
    assert!(refused(foreign).contains("input column"));
    let mut mistyped = program(vec![], vec![], Output::Rows(vec![]));
    mistyped.inputs[0].column_type = ColumnType::Int64;
    assert!(refused(mistyped).contains("price"));
}

#[test]
fn another_version_another_table_and_oversized_parts_are_refused() {
    let mut versioned = program(vec![], vec![], Output::Rows(vec![]));
    versioned.version = 1;
    assert!(refused(versioned).contains("version"));
    let mut misdirected = program(vec![], vec![], Output::Rows(vec![]));
    misdirected.table = TableId(10);
    assert!(refused(misdirected).contains("table"));
    let nodes = vec![Node::Column(0); PROGRAM_NODES_MAX + 1];
    assert!(refused(program(nodes, vec![], Output::Rows(vec![]))).contains("number of nodes"));
    let pattern = "%".repeat(PROGRAM_LITERAL_BYTES_MAX + 1);
    let like = Node::Like { item: 0, pattern, negated: false, case_insensitive: false };
    assert!(refused(program(vec![Node::Column(1), like], vec![], Output::Rows(vec![]))).contains("pattern"));
}

#[test]
fn a_sum_of_text_and_a_count_without_argument_are_refused() {
    for aggregate in [
        Aggregate { function: AggregateFunction::Sum, argument: Some(0) },
        Aggregate { function: AggregateFunction::Count, argument: None },
        Aggregate { function: AggregateFunction::CountRows, argument: Some(0) },
    ] {
        let output = Output::Groups { keys: vec![], aggregates: vec![aggregate] };
        refused(program(vec![Node::Column(1)], vec![], output));
    }
}

#[test]
fn a_refusal_names_the_offending_instruction_and_what_it_does() {
    let nodes = vec![
        Node::Column(0),
        Node::Column(1),
        Node::Literal(Literal::Int32(4)),
        Node::Compare { op: Comparison::Less, left: 1, right: 2 },
    ];
    let error = program(nodes, vec![], Output::Rows(vec![])).verify(&table()).unwrap_err();
    assert_eq!(error.instruction, Some(3));
    let text = error.to_string();
    assert!(
        text.contains("instruction 3, Less of 1 and 2: the type of node 2: found int32, expected text"),
        "{text}"
    );

    let not_boolean = program(vec![Node::Column(2)], vec![0], Output::Rows(vec![])).verify(&table());
    assert_eq!(not_boolean.unwrap_err().instruction, Some(0));
    let sum = Aggregate { function: AggregateFunction::Sum, argument: Some(1) };
    let output = Output::Groups { keys: vec![], aggregates: vec![sum] };
    let of_text = program(vec![Node::Column(0), Node::Column(1)], vec![], output).verify(&table());
    assert_eq!(of_text.unwrap_err().instruction, Some(1));

    let mut foreign = program(vec![], vec![], Output::Rows(vec![]));
    foreign.version = 9;
    assert_eq!(foreign.verify(&table()).unwrap_err().instruction, None);
}

#[test]
fn a_search_in_keys_is_a_conjunct_about_a_column_of_integers_and_nothing_else() {
    let filter = KeyFilter::of(&[3, 9]);
    let search = |item| Node::InKeys { item, keys: 0 };
    let with = |nodes: Vec<Node>, filters: Vec<NodeIndex>, output: Vec<NodeIndex>| {
        let key_filters = vec![filter.name()];
        ScanProgram { key_filters, ..program(nodes, filters, Output::Rows(output)) }
    };
    let good = with(vec![Node::Column(2), search(0)], vec![1], vec![0]).verify(&table()).unwrap();
    assert!(good.clone().with_key_filters(vec![Arc::new(KeyFilter::of(&[4]))]).is_err());
    let bound = good.with_key_filters(vec![Arc::new(filter.clone())]).unwrap();
    assert_eq!(bound.key_filters()[0].name(), filter.name());

    assert!(refused(with(vec![Node::Column(1), search(0)], vec![1], vec![])).contains("found text"));
    let negated = with(vec![Node::Column(2), search(0), Node::Not(1)], vec![2], vec![]);
    assert!(
        refused(negated).contains("instruction 2, NOT of 1: an operand: found 1, a search in a key filter")
    );
    assert!(refused(with(vec![Node::Column(2), search(0)], vec![], vec![1])).contains("an output"));
    let computed = with(vec![Node::Column(0), Node::Negate(0), search(1)], vec![2], vec![]);
    assert!(refused(computed).contains("expected a column"));
    let unnamed = program(vec![Node::Column(2), search(0)], vec![1], Output::Rows(vec![]));
    assert!(refused(unnamed).contains("the position of a key filter: found 0, expected below 0"));
}

#[test]
fn arithmetic_and_casts_can_fail_but_not_arithmetic_on_doubles() {
    let types = [ValueType::Float64, ValueType::Int64, ValueType::Decimal { precision: 9, scale: 2 }];
    let sum = |item| Node::Arithmetic { op: Arithmetic::Add, left: item, right: item };
    for (item, can_fail) in [(0, false), (1, true), (2, true)] {
        assert_eq!(sum(item).can_fail(&types), can_fail, "{:?}", types[usize::from(item)]);
        assert_eq!(Node::Negate(item).can_fail(&types), can_fail, "{:?}", types[usize::from(item)]);
        assert!(Node::Cast { item, to: ValueType::Float64 }.can_fail(&types));
        assert!(!Node::IsNull(item).can_fail(&types) && !Node::Column(item).can_fail(&types));
    }
}

#[test]
fn a_rows_number_comes_out_of_rows_and_is_used_for_nothing_else() {
    let number = |more: &[Node]| [&[Node::Column(0), Node::RowNumber], more].concat();
    let good = program(number(&[]), vec![], Output::Rows(vec![1, 0, 1])).verify(&table()).unwrap();
    assert_eq!(good.output_types()[0], ValueType::Int64);
    let rows = || Output::Rows(vec![0]);
    assert!(refused(program(number(&[]), vec![1], rows())).contains("expected boolean"));
    let is_null = program(number(&[Node::IsNull(1)]), vec![2], rows());
    assert!(refused(is_null).contains("instruction 2, IS NULL of 1: an operand: found 1, the row's number"));
    assert!(refused(program(number(&[Node::Negate(1)]), vec![], rows())).contains("an operand"));
    let sum = Aggregate { function: AggregateFunction::Sum, argument: Some(1) };
    let count = Aggregate { function: AggregateFunction::CountRows, argument: None };
    for (keys, aggregates) in [(vec![1], vec![count]), (vec![0], vec![count, sum])] {
        let output = Output::Groups { keys, aggregates };
        assert!(refused(program(number(&[]), vec![], output)).contains("a group: found node 1"));
    }
}
