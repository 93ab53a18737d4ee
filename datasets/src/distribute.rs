//! Assigns rows to nodes by the hash of their partition key.

use arrow::{
    array::{Array, ArrayAccessor, ArrayRef, cast::AsArray},
    datatypes::{DataType, Float64Type, Int64Type},
};
use rackscan_format::participant::KeyHash;

/// For each of `nodes` nodes the rows, ascending, whose key belongs there. `keys` is a column in
/// its stored form.
pub(crate) fn distribute(keys: &ArrayRef, nodes: usize) -> Vec<Vec<u32>> {
    let mut rows_of = vec![Vec::with_capacity(keys.len() / nodes + keys.len() / 8); nodes];
    match keys.data_type() {
        DataType::Int64 => {
            distribute_by(keys.as_primitive::<Int64Type>(), KeyHash::of_integer, &mut rows_of);
        }
        DataType::Float64 => {
            distribute_by(keys.as_primitive::<Float64Type>(), KeyHash::of_float, &mut rows_of);
        }
        DataType::Utf8View => {
            distribute_by(keys.as_string_view(), |key| KeyHash::of_text(key.as_bytes()), &mut rows_of);
        }
        DataType::LargeUtf8 => {
            distribute_by(keys.as_string::<i64>(), |key| KeyHash::of_text(key.as_bytes()), &mut rows_of);
        }
        _ => distribute_by(keys.as_string::<i32>(), |key| KeyHash::of_text(key.as_bytes()), &mut rows_of),
    }
    rows_of
}

fn distribute_by<A: ArrayAccessor>(keys: A, hash: impl Fn(A::Item) -> KeyHash, rows_of: &mut [Vec<u32>]) {
    let nodes = rows_of.len();
    for (row, number) in (0..keys.len()).zip(0_u32..) {
        let hash = if keys.is_valid(row) { hash(keys.value(row)) } else { KeyHash::NULL };
        rows_of[hash.position(nodes)].push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, LargeStringArray, StringArray, StringViewArray};
    use std::sync::Arc;

    fn rows_once(keys: ArrayRef, nodes: usize) -> Vec<Vec<u32>> {
        let distributed = distribute(&keys, nodes);
        let mut all: Vec<u32> = distributed.concat();
        all.sort_unstable();
        assert_eq!(all, (0..u32::try_from(keys.len()).unwrap()).collect::<Vec<_>>());
        assert!(distributed.iter().all(|rows| rows.is_sorted()));
        distributed
    }

    #[test]
    fn every_row_has_one_participant_and_equal_keys_have_the_same() {
        let keys: Vec<Option<i64>> = (0..5000).map(|row| (row % 7 != 0).then_some(row % 100)).collect();
        for nodes in [1, 3, 4] {
            let distributed = rows_once(Arc::new(Int64Array::from(keys.clone())), nodes);
            for key in keys.iter().take(200) {
                let participants =
                    distributed.iter().filter(|rows| rows.iter().any(|row| keys[*row as usize] == *key));
                assert_eq!(participants.count(), 1, "key {key:?}");
            }
        }
    }

    #[test]
    fn texts_have_the_same_participant_in_every_layout() {
        let texts: Vec<Option<String>> =
            (0..500).map(|row| (row % 9 != 0).then(|| format!("key {row}"))).collect();
        let plain = rows_once(Arc::new(StringArray::from(texts.clone())), 4);
        assert_eq!(rows_once(Arc::new(LargeStringArray::from(texts.clone())), 4), plain);
        assert_eq!(rows_once(Arc::new(StringViewArray::from(texts)), 4), plain);
        rows_once(Arc::new(Float64Array::from(vec![Some(0.5), None, Some(-0.0)])), 4);
    }
}
