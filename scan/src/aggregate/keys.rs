//! Finds the group that a row belongs to, by the row's key columns.
//!
//! Groups are numbered in order of first appearance. A single integer key is hashed directly. Other
//! keys are first encoded in arrow's row format: keys are equal if these bytes are equal, and NULL
//! is a key like any other.

use super::integers::{integers_of, integers_to};
use crate::types::arrow_type;
use arrow::{
    array::{Array, ArrayRef},
    buffer::NullBuffer,
    error::ArrowError,
    row::{RowConverter, Rows, SortField},
};
use foldhash::fast::FixedState;
use hashbrown::{HashTable, hash_table::Entry};
use rackscan_format::program::ValueType;
use std::hash::BuildHasher;

/// The table of keys.
pub(super) enum Keys {
    /// No keys: one group, which always exists.
    None,
    /// One key of a type that is stored in 64 bits.
    Integer { value_type: ValueType, values: Vec<i64>, null_group: Option<u32>, table: HashTable<u32> },
    /// Any other keys.
    Rows { converter: RowConverter, rows: Rows, table: HashTable<u32> },
}

impl Keys {
    pub(super) fn new(types: &[ValueType]) -> Result<Self, ArrowError> {
        match types {
            [] => Ok(Self::None),
            [
                value_type @ (ValueType::Int32
                | ValueType::Int64
                | ValueType::Date32
                | ValueType::TimestampMicros
                | ValueType::Boolean),
            ] => Ok(Self::Integer {
                value_type: *value_type,
                values: Vec::new(),
                null_group: None,
                table: HashTable::new(),
            }),
            types => {
                let fields = types.iter().map(|value_type| SortField::new(arrow_type(*value_type)));
                let converter = RowConverter::new(fields.collect())?;
                let rows = converter.empty_rows(0, 0);
                Ok(Self::Rows { converter, rows, table: HashTable::new() })
            }
        }
    }

    pub(super) fn groups(&self) -> usize {
        match self {
            Self::None => 1,
            Self::Integer { values, .. } => values.len(),
            Self::Rows { rows, .. } => rows.num_rows(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const SLOT_BYTES: usize = 8;
        match self {
            Self::None => 0,
            Self::Integer { values, .. } => values.len() * (size_of::<i64>() + SLOT_BYTES),
            Self::Rows { rows, .. } => rows.size() + rows.num_rows() * SLOT_BYTES,
        }
    }

    /// Appends the group of each row.
    pub(super) fn assign(
        &mut self,
        keys: &[ArrayRef],
        rows: usize,
        groups: &mut Vec<u32>,
    ) -> Result<(), ArrowError> {
        let state = FixedState::default();
        match self {
            Self::None => groups.resize(groups.len() + rows, 0),
            Self::Integer { .. } => {
                let key = keys.first().ok_or_else(|| missing(0))?;
                let integers = integers_of(key).ok_or_else(|| missing(0))?;
                self.assign_integers(&integers, |row| key.is_null(row), groups);
            }
            Self::Rows { converter, rows: known, table } => {
                let candidates = converter.convert_columns(keys)?;
                for candidate in &candidates {
                    let bytes: &[u8] = candidate.as_ref();
                    let hash = state.hash_one(bytes);
                    let same = |group: &u32| known.row(*group as usize).as_ref() == bytes;
                    let rehash = |group: &u32| state.hash_one(known.row(*group as usize).as_ref());
                    match table.entry(hash, same, rehash) {
                        Entry::Occupied(entry) => groups.push(*entry.get()),
                        Entry::Vacant(entry) => {
                            let group = number(known.num_rows());
                            entry.insert(group);
                            known.push(candidate);
                            groups.push(group);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends the group of each row by its only key. Returns false if the keys are not of that
    /// kind.
    pub(super) fn assign_integers(
        &mut self,
        integers: &[i64],
        is_null: impl Fn(usize) -> bool,
        groups: &mut Vec<u32>,
    ) -> bool {
        let Self::Integer { values, null_group, table, .. } = self else { return false };
        let state = FixedState::default();
        let mut before: Option<(i64, u32)> = None;
        groups.reserve(integers.len());
        for (row, value) in integers.iter().copied().enumerate() {
            if is_null(row) {
                let group = *null_group.get_or_insert_with(|| {
                    values.push(0);
                    number(values.len() - 1)
                });
                groups.push(group);
                continue;
            }
            // Clustered keys: most rows belong to the group of the row before.
            let group = match before {
                Some((known, group)) if known == value => group,
                _ => {
                    let hash = state.hash_one(value);
                    // The group of NULL is not in the table.
                    let same = |group: &u32| values[*group as usize] == value;
                    let group = match table.find(hash, same) {
                        Some(group) => *group,
                        None => {
                            let group = number(values.len());
                            values.push(value);
                            table.insert_unique(hash, group, |group| state.hash_one(values[*group as usize]));
                            group
                        }
                    };
                    before = Some((value, group));
                    group
                }
            };
            groups.push(group);
        }
        true
    }

    /// The keys of all groups, in the order of the groups.
    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Integer { value_type, values, null_group, .. } => {
                let values = std::mem::take(values);
                let nulls = null_group
                    .map(|null| NullBuffer::from_iter((0..values.len()).map(|group| group != null as usize)));
                Ok(vec![integers_to(*value_type, values, nulls)?])
            }
            Self::Rows { converter, rows, .. } => converter.convert_rows(rows.iter()),
        }
    }
}

fn number(group: usize) -> u32 {
    u32::try_from(group)
        .expect("the number of a group: each has a row of a segment, which are counted in 32 bits")
}

fn missing(key: usize) -> ArrowError {
    ArrowError::ComputeError(format!("key {key} of a group is not of the type the program states"))
}
