//! Merges partial groups that appear in several batches, as the engine does.

use super::{
    Datum,
    interpret::{name_of, order},
    rows_of,
};
use rackscan_format::program::{Aggregate, AggregateFunction, Output, VerifiedProgram};
use rackscan_scan::ScanBatch;
use std::collections::BTreeMap;

/// Groups by key, repeated ones merged.
pub(crate) fn merged(program: &VerifiedProgram, batches: &[ScanBatch]) -> Vec<Vec<Datum>> {
    let Output::Groups { keys, aggregates } = &program.program().output else { panic!("groups") };
    let mut groups: BTreeMap<String, Vec<Datum>> = BTreeMap::new();
    for row in rows_of(batches.iter().map(|batch| &batch.batch)) {
        let name = if keys.is_empty() { String::new() } else { name_of(&row[..keys.len()]) };
        let Some(known) = groups.get_mut(&name) else {
            groups.insert(name, row);
            continue;
        };
        for (index, aggregate) in aggregates.iter().enumerate() {
            let at = keys.len() + index;
            let before = std::mem::replace(&mut known[at], Datum::Null);
            known[at] = merge(aggregate, before, row[at].clone());
        }
    }
    groups.into_values().collect()
}

fn merge(aggregate: &Aggregate, one: Datum, two: Datum) -> Datum {
    match (aggregate.function, one, two) {
        (_, Datum::Null, other) | (_, other, Datum::Null) => other,
        (AggregateFunction::Min, one, two) => {
            if order(&one, &two).is_le() {
                one
            } else {
                two
            }
        }
        (AggregateFunction::Max, one, two) => {
            if order(&one, &two).is_ge() {
                one
            } else {
                two
            }
        }
        (_, Datum::Number(one), Datum::Number(two)) => Datum::Number(one + two),
        (_, one, two) => panic!("{one:?} and {two:?} cannot be merged"),
    }
}
