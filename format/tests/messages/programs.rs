//! Tests the bytes of scan programs and of everything that they consist of.

use rackscan_format::{
    ids::{ColumnId, TableId},
    key_filter::{KeyFilterForm, KeyFilterName},
    message::PROTOCOL_VERSION,
    program::{
        Aggregate, AggregateFunction, Arithmetic, Comparison, DatePart, Input, Literal, Node, Output,
        PROGRAM_VERSION, ScanProgram, ValueType,
    },
    schema::ColumnType,
};

use crate::{
    golden::{Sample, assert_bytes, assert_values},
    one_of_each,
};

one_of_each! {
    fn nodes() -> Node {
        Column(1),
        Literal(Literal::Int32(-2)),
        Compare { op: Comparison::Less, left: 3, right: 4 },
        And(vec![5, 6]),
        Or(vec![7, 8, 9]),
        Not(10),
        IsNull(11),
        InSet { item: 12, set: vec![Literal::Date32(13), Literal::Text("in".to_owned())], negated: true },
        Like { item: 14, pattern: "%a_".to_owned(), negated: true, case_insensitive: false },
        Arithmetic { op: Arithmetic::Multiply, left: 15, right: 16 },
        Negate(17),
        Cast { item: 18, to: ValueType::Decimal { precision: 38, scale: 9 } },
        Case { branches: vec![(19, 20), (21, 22)], otherwise: Some(23) },
        DatePart { part: DatePart::Day, item: 24 },
        Substring { item: 25, start: 26, length: Some(27) },
        InKeys { item: 28, keys: 29 },
        RowNumber,
    }
}

one_of_each! {
    fn literals() -> Literal {
        Null(ValueType::Text),
        Boolean(true),
        Int32(-300),
        Int64(i64::MIN),
        Date32(-5),
        TimestampMicros(-6),
        Decimal { unscaled: i128::MIN, precision: 37, scale: 38 },
        Float64(-0.75),
        Text("text".to_owned()),
    }
}

one_of_each! {
    fn value_types() -> ValueType {
        Boolean,
        Int32,
        Int64,
        Date32,
        TimestampMicros,
        Decimal { precision: 200, scale: 9 },
        Float64,
        Text,
    }
}

one_of_each! {
    fn comparisons() -> Comparison {
        Equal,
        NotEqual,
        Less,
        LessOrEqual,
        Greater,
        GreaterOrEqual,
    }
}

one_of_each! {
    fn arithmetics() -> Arithmetic {
        Add,
        Subtract,
        Multiply,
    }
}

one_of_each! {
    fn date_parts() -> DatePart {
        Year,
        Month,
        Day,
    }
}

one_of_each! {
    fn functions() -> AggregateFunction {
        CountRows,
        Count,
        Sum,
        Min,
        Max,
    }
}

one_of_each! {
    fn outputs() -> Output {
        Rows(vec![1, 2]),
        Groups {
            keys: vec![3, 4],
            aggregates: vec![Aggregate { function: AggregateFunction::Max, argument: Some(5) }],
        },
    }
}

one_of_each! {
    fn forms() -> KeyFilterForm {
        Bitmap,
        Blocks,
    }
}

/// A program with every field. It is not one that makes sense.
pub(crate) fn program() -> ScanProgram {
    ScanProgram {
        version: PROGRAM_VERSION,
        table: TableId(40),
        inputs: vec![
            Input { column: ColumnId(41), column_type: ColumnType::Text },
            Input { column: ColumnId(42), column_type: ColumnType::Decimal { precision: 15, scale: 2 } },
        ],
        nodes: vec![Node::Column(43), Node::IsNull(44), Node::RowNumber],
        filter: vec![45, 46],
        output: Output::Rows(vec![47]),
        limit_rows: Some(48),
        key_filters: vec![KeyFilterName {
            form: KeyFilterForm::Blocks,
            digest: u64::MAX,
            length_bytes: 49,
            keys: 50,
            low: -51,
            high: 52,
        }],
    }
}

fn file() -> String {
    format!("programs_v{PROTOCOL_VERSION}.txt")
}

fn samples() -> Vec<Sample> {
    let mut samples = vec![Sample::part(("ScanProgram", program()))];
    samples.extend(nodes().into_iter().map(Sample::part));
    samples.extend(literals().into_iter().map(Sample::part));
    samples.extend(value_types().into_iter().map(Sample::part));
    samples.extend(comparisons().into_iter().map(Sample::part));
    samples.extend(arithmetics().into_iter().map(Sample::part));
    samples.extend(date_parts().into_iter().map(Sample::part));
    samples.extend(functions().into_iter().map(Sample::part));
    samples.extend(outputs().into_iter().map(Sample::part));
    samples.extend(forms().into_iter().map(Sample::part));
    samples
}

#[test]
fn every_part_of_a_scan_program_is_encoded_in_the_bytes_of_its_golden_line() {
    assert_bytes(&file(), &samples());
}

#[test]
fn every_golden_line_of_a_scan_program_is_decoded_to_the_part_it_was_made_of() {
    assert_values(&file(), &samples());
}
