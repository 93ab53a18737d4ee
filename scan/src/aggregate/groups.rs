//! Stores the groups that a scan has found so far, and the value of each aggregate for each group.

use super::{accumulate::Accumulator, keys::Keys, partial::PartialGroups};
use crate::narrow::int::Int;
use arrow::{array::ArrayRef, error::ArrowError};
use rackscan_format::program::{Aggregate, NodeIndex, Output, ValueType, VerifiedProgram};

/// What a program groups by and aggregates.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    pub(crate) keys: Vec<NodeIndex>,
    pub(crate) aggregates: Vec<Aggregate>,
}

impl Grouping {
    /// The grouping of a program; `None` if it yields rows.
    pub(crate) fn of(program: &VerifiedProgram) -> Option<Self> {
        match &program.program().output {
            Output::Rows(_) => None,
            Output::Groups { keys, aggregates } => {
                Some(Self { keys: keys.clone(), aggregates: aggregates.clone() })
            }
        }
    }
}

/// The groups so far.
pub(crate) struct Groups {
    keys: Keys,
    accumulators: Vec<Accumulator>,
    /// The group of each row that is being added.
    group_of_row: Vec<u32>,
}

impl Groups {
    pub(crate) fn new(program: &VerifiedProgram, grouping: &Grouping) -> Result<Self, ArrowError> {
        let type_of = |node: NodeIndex| program.node_types()[usize::from(node)];
        let key_types: Vec<ValueType> = grouping.keys.iter().map(|key| type_of(*key)).collect();
        let accumulators = grouping
            .aggregates
            .iter()
            .map(|aggregate| Accumulator::new(aggregate.function, aggregate.argument.map(type_of)));
        Ok(Self {
            keys: Keys::new(&key_types)?,
            accumulators: accumulators.collect::<Result<_, _>>()?,
            group_of_row: Vec::new(),
        })
    }

    /// Adds rows: one array per key, and for each aggregate the array of its argument, if it has
    /// one.
    pub(crate) fn add_rows(
        &mut self,
        keys: &[ArrayRef],
        arguments: &[Option<ArrayRef>],
        rows: usize,
    ) -> Result<(), ArrowError> {
        self.group_of_row.clear();
        self.keys.assign(keys, rows, &mut self.group_of_row)?;
        for (accumulator, argument) in self.accumulators.iter_mut().zip(arguments) {
            accumulator.grow(self.keys.groups());
            accumulator.add(&self.group_of_row, argument.as_ref())?;
        }
        Ok(())
    }

    /// Adds partial groups.
    pub(crate) fn add_partial(&mut self, partial: &PartialGroups) -> Result<(), ArrowError> {
        self.group_of_row.clear();
        self.keys.assign(&partial.keys, partial.rows, &mut self.group_of_row)?;
        for (accumulator, values) in self.accumulators.iter_mut().zip(&partial.values) {
            accumulator.grow(self.keys.groups());
            accumulator.add_partial(&self.group_of_row, values)?;
        }
        Ok(())
    }

    /// Finds the groups of rows by their only key, an integer, for [`Self::add_values`]. Returns
    /// false if the keys are of another kind.
    pub(crate) fn assign_integers(&mut self, keys: &[i64], is_null: impl Fn(usize) -> bool) -> bool {
        self.group_of_row.clear();
        let known = self.keys.assign_integers(keys, is_null, &mut self.group_of_row);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(self.keys.groups()));
        known
    }

    /// Folds values of an aggregate. Each has the position of its row among the rows whose groups
    /// were found last.
    pub(crate) fn add_values<T: Int>(
        &mut self,
        aggregate: usize,
        values: impl Iterator<Item = (usize, T)>,
    ) -> Result<(), ArrowError> {
        let Self { accumulators, group_of_row, .. } = self;
        accumulators[aggregate].add_values(values.map(|(row, value)| (group_of_row[row] as usize, value)))
    }

    /// The number of groups. Without keys there is always one.
    pub(crate) fn groups(&self) -> usize {
        self.keys.groups()
    }

    /// An estimate of the bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let groups = self.keys.groups();
        self.keys.memory_bytes() + self.accumulators.iter().map(|one| one.memory_bytes(groups)).sum::<usize>()
    }

    /// The groups as arrays: keys, then aggregates.
    pub(crate) fn finish(mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let groups = self.keys.groups();
        let mut arrays = self.keys.finish()?;
        for mut accumulator in self.accumulators.drain(..) {
            accumulator.grow(groups);
            arrays.push(accumulator.finish()?);
        }
        Ok(arrays)
    }
}
