//! Summarises the keys on the build side of a join.
//!
//! Each partition of the build side collects its keys without a lock and hands them in when it
//! ends. When the last partition has ended, the keys of each column become a small set, a Bloom
//! filter, or only bounds.
//!
//! Invariants
//! - Nothing is reported before every partition has ended: a filter with only some of the keys
//!   would lose rows.
//! - A sketch holds at most `SKETCH_KEYS_MAX` keys of a column; with more of them it keeps only
//!   their bounds.

use crate::limits::{SKETCH_KEYS_MAX, SKETCH_SET_MAX};
use datafusion::arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray},
    datatypes::{
        ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Int32Type, Int64Type, TimeUnit,
        TimestampMicrosecondType,
    },
};
use rackscan_format::key_filter::KeyFilter;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;

/// The keys of one column of a build side, as scans store them.
#[derive(Clone, Debug)]
pub(crate) enum Keys {
    /// There are no keys: no row of the other side has a partner.
    None,
    /// All keys, ascending.
    Few(Vec<i64>),
    /// The keys of the filter, which are between its bounds.
    Many(Arc<KeyFilter>),
    /// Too many keys for a filter: only the bounds, both included.
    Between(i64, i64),
}

/// The keys that one partition has seen in a column.
#[derive(Debug)]
struct Collected {
    keys: Vec<i64>,
    low: i64,
    high: i64,
    too_many: bool,
}

impl Default for Collected {
    fn default() -> Self {
        Self { keys: Vec::new(), low: i64::MAX, high: i64::MIN, too_many: false }
    }
}

/// The keys of one join, column by column.
#[derive(Debug)]
pub(crate) struct KeySketch {
    state: Mutex<State>,
    keys: OnceLock<Vec<Option<Keys>>>,
    ended: Notify,
}

#[derive(Debug)]
struct State {
    partitions_left: usize,
    columns: Vec<Option<Collected>>,
}

impl KeySketch {
    /// A sketch of columns of these types, from this many partitions. Columns that are not stored
    /// as integers stay unknown.
    pub(crate) fn new(types: &[DataType], partitions: usize) -> Self {
        let columns = types.iter().map(|found| is_integer(found).then(Collected::default)).collect();
        let state = Mutex::new(State { partitions_left: partitions, columns });
        Self { state, keys: OnceLock::new(), ended: Notify::new() }
    }

    /// Waits until all partitions have ended; forever, if one of them was dropped before.
    pub(crate) async fn ended(&self) {
        // Made before the check, so that an end between the two is not missed.
        let ended = self.ended.notified();
        if self.keys.get().is_none() {
            ended.await;
        }
    }

    /// Begins to collect a partition's keys.
    pub(crate) fn collector(self: &Arc<Self>) -> Collector {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let columns = state.columns.iter().map(|column| column.as_ref().map(|_| Collected::default()));
        Collector { columns: columns.collect(), sketch: Arc::clone(self) }
    }

    /// The keys of each column, if all partitions have ended; `None` for a column whose keys are
    /// unknown.
    pub(crate) fn keys(&self) -> Option<&[Option<Keys>]> {
        self.keys.get().map(Vec::as_slice)
    }

    fn hand_in(&self, found: Vec<Option<Collected>>) {
        let columns = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            for (all, found) in state.columns.iter_mut().zip(found) {
                if let (Some(all), Some(found)) = (all, found) {
                    all.merge(found);
                }
            }
            state.partitions_left = state.partitions_left.saturating_sub(1);
            if state.partitions_left > 0 {
                return;
            }
            std::mem::take(&mut state.columns)
        };
        let keys = columns.into_iter().map(|column| column.map(Collected::finish)).collect();
        // Only the last partition sets them, once.
        let _ = self.keys.set(keys);
        self.ended.notify_waiters();
    }
}

impl Collected {
    fn take(&mut self, column: &ArrayRef) {
        match column.data_type() {
            DataType::Int32 => self.extend::<Int32Type>(column.as_primitive()),
            DataType::Int64 => self.extend::<Int64Type>(column.as_primitive()),
            DataType::Date32 => self.extend::<Date32Type>(column.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                self.extend::<TimestampMicrosecondType>(column.as_primitive());
            }
            DataType::Decimal128(..) => self.extend::<Decimal128Type>(column.as_primitive()),
            _ => {}
        }
    }

    /// A key beyond 64 bits equals no stored value.
    fn extend<T: ArrowPrimitiveType<Native: TryInto<i64>>>(&mut self, column: &PrimitiveArray<T>) {
        let before = self.keys.len();
        if column.null_count() == 0 {
            self.keys.extend(column.values().iter().filter_map(|key| (*key).try_into().ok()));
        } else {
            self.keys.extend(column.iter().flatten().filter_map(|key| key.try_into().ok()));
        }
        for &key in &self.keys[before..] {
            self.low = self.low.min(key);
            self.high = self.high.max(key);
        }
        self.bound();
    }

    fn merge(&mut self, other: Self) {
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
        self.too_many |= other.too_many;
        self.keys.extend(other.keys);
        self.bound();
    }

    fn bound(&mut self) {
        if self.too_many || self.keys.len() > SKETCH_KEYS_MAX {
            self.too_many = true;
            self.keys.clear();
        }
    }

    fn finish(mut self) -> Keys {
        if self.low > self.high {
            return Keys::None;
        }
        if self.too_many {
            return Keys::Between(self.low, self.high);
        }
        // Most keys are consecutive numbers, for which a bitmap needs no sort.
        if let Some(bitmap) = KeyFilter::bitmap_of(&self.keys) {
            let few = bitmap.name().keys as usize <= SKETCH_SET_MAX;
            let keys = bitmap.keys().filter(|_| few).map(Iterator::collect);
            return keys.map_or_else(|| Keys::Many(Arc::new(bitmap)), Keys::Few);
        }
        self.keys.sort_unstable();
        self.keys.dedup();
        if self.keys.len() <= SKETCH_SET_MAX {
            return Keys::Few(self.keys);
        }
        Keys::Many(Arc::new(KeyFilter::of(&self.keys)))
    }
}

/// Collects the keys of one partition. One that is dropped before its end hands in nothing.
#[derive(Debug)]
pub(crate) struct Collector {
    columns: Vec<Option<Collected>>,
    sketch: Arc<KeySketch>,
}

impl Collector {
    /// Adds the keys of a batch, one array for each column.
    pub(crate) fn take(&mut self, keys: &[ArrayRef]) {
        for (column, keys) in self.columns.iter_mut().zip(keys) {
            if let Some(column) = column {
                column.take(keys);
            }
        }
    }

    /// Hands in the keys at the end of the partition.
    pub(crate) fn finish(self) {
        self.sketch.hand_in(self.columns);
    }
}

/// Whether scans store columns of this type as integers that compare as their values do.
fn is_integer(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Microsecond, None)
            | DataType::Decimal128(..)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Int64Array, StringArray};

    fn sketch(partitions: usize) -> Arc<KeySketch> {
        Arc::new(KeySketch::new(&[DataType::Int64, DataType::Utf8], partitions))
    }

    fn arrays(keys: impl IntoIterator<Item = Option<i64>>) -> [ArrayRef; 2] {
        let keys: Int64Array = keys.into_iter().collect();
        let texts = StringArray::from(vec!["x"; keys.len()]);
        [Arc::new(keys), Arc::new(texts)]
    }

    #[test]
    fn nothing_is_known_before_the_last_partition_has_ended() {
        let sketch = sketch(2);
        let (mut one, mut two) = (sketch.collector(), sketch.collector());
        one.take(&arrays([Some(4), None, Some(1)]));
        two.take(&arrays([Some(4)]));
        one.finish();
        assert!(sketch.keys().is_none());
        two.finish();
        let keys = sketch.keys().expect("both have ended");
        assert!(matches!(&keys[0], Some(Keys::Few(found)) if found == &[1, 4]), "{keys:?}");
        assert!(keys[1].is_none(), "texts are not stored as integers");
    }

    #[test]
    fn a_partition_that_is_dropped_leaves_the_sketch_unknown() {
        let sketch = sketch(2);
        sketch.collector().finish();
        drop(sketch.collector());
        assert!(sketch.keys().is_none());
    }

    #[test]
    fn no_keys_some_keys_and_too_many_keys_are_told_apart() {
        let none = sketch(1);
        let mut collector = none.collector();
        collector.take(&arrays([None, None]));
        collector.finish();
        assert!(matches!(none.keys().expect("it ended")[0], Some(Keys::None)));

        let many = sketch(1);
        let mut collector = many.collector();
        collector.take(&arrays((0..5000).map(|key| Some(key * 7))));
        collector.finish();
        let Some(Keys::Many(filter)) = &many.keys().expect("it ended")[0] else { panic!("not a filter") };
        assert!((0..5000).all(|key| filter.contains(key * 7)));

        let too_many = sketch(2);
        let (mut one, mut two) = (too_many.collector(), too_many.collector());
        let half = i64::try_from(SKETCH_KEYS_MAX / 2 + 1).expect("it is small");
        one.take(&arrays((0..half).map(Some)));
        two.take(&arrays((half..2 * half).map(Some)));
        one.finish();
        two.finish();
        let found = &too_many.keys().expect("both have ended")[0];
        assert!(matches!(found, Some(Keys::Between(0, high)) if *high == 2 * half - 1), "{found:?}");
    }
}
