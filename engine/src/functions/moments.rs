//! Computes variances, covariances, correlations and regressions of doubles, from the sums of a
//! group.
//!
//! The sums are built by the method of Youngs and Cramer, as in PostgreSQL (`float.c`,
//! `float8_regr_accum`), so that both give the same answers for NaN, infinities, and columns of
//! equal values. When a row leaves a moving frame, the sums are computed again. DataFusion's
//! functions subtract the row instead, and their sums stay NaN after a NaN.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array},
        datatypes::{DataType, Field, FieldRef, Float64Type},
    },
    common::{Result, not_impl_err},
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::format_state_name,
    },
    scalar::ScalarValue,
};

use super::filter::is_kept;

/// The statistic that a function computes over the rows of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Statistic {
    VarianceSample,
    VariancePopulation,
    DeviationSample,
    DeviationPopulation,
    CovarianceSample,
    CovariancePopulation,
    Correlation,
    Count,
    AverageX,
    AverageY,
    Slope,
    Intercept,
    Determination,
    SquaresX,
    SquaresY,
    Products,
}

const STATISTICS: [(Statistic, &str, &[&str]); 16] = [
    (Statistic::VarianceSample, "var", &["var_sample", "var_samp"]),
    (Statistic::VariancePopulation, "var_pop", &["var_population"]),
    (Statistic::DeviationSample, "stddev", &["stddev_samp"]),
    (Statistic::DeviationPopulation, "stddev_pop", &[]),
    (Statistic::CovarianceSample, "covar_samp", &["covar"]),
    (Statistic::CovariancePopulation, "covar_pop", &[]),
    (Statistic::Correlation, "corr", &[]),
    (Statistic::Count, "regr_count", &[]),
    (Statistic::AverageX, "regr_avgx", &[]),
    (Statistic::AverageY, "regr_avgy", &[]),
    (Statistic::Slope, "regr_slope", &[]),
    (Statistic::Intercept, "regr_intercept", &[]),
    (Statistic::Determination, "regr_r2", &[]),
    (Statistic::SquaresX, "regr_sxx", &[]),
    (Statistic::SquaresY, "regr_syy", &[]),
    (Statistic::Products, "regr_sxy", &[]),
];

/// All functions, under DataFusion's names.
pub(super) fn statistics() -> impl Iterator<Item = Arc<AggregateUDF>> {
    STATISTICS.into_iter().map(|(statistic, name, aliases)| {
        let arguments = if statistic.has_two_columns() { 2 } else { 1 };
        Arc::new(AggregateUDF::from(StatisticFunction {
            statistic,
            name,
            aliases: aliases.iter().map(ToString::to_string).collect(),
            signature: Signature::exact(vec![DataType::Float64; arguments], Volatility::Immutable),
        }))
    })
}

impl Statistic {
    /// Whether its arguments are pairs (Y, X) rather than single values X.
    fn has_two_columns(self) -> bool {
        use Statistic as S;
        !matches!(
            self,
            S::VarianceSample | S::VariancePopulation | S::DeviationSample | S::DeviationPopulation
        )
    }

    /// How many of the values of [`Sums`] it needs.
    fn state_columns(self) -> usize {
        if self.has_two_columns() { SUMS } else { SUMS_OF_ONE_COLUMN }
    }

    fn return_type(self) -> DataType {
        if self == Self::Count { DataType::Int64 } else { DataType::Float64 }
    }

    /// The statistic of these sums; NULL if there are too few rows.
    fn of(self, sums: &Sums) -> Option<f64> {
        let Sums([n, x, xx, y, yy, xy]) = *sums;
        let (has_one, has_two) = (n >= 1.0, n >= 2.0);
        match self {
            Self::Count => Some(n),
            Self::VarianceSample => has_two.then(|| xx / (n - 1.0)),
            Self::VariancePopulation => has_one.then(|| xx / n),
            Self::DeviationSample => has_two.then(|| (xx / (n - 1.0)).sqrt()),
            Self::DeviationPopulation => has_one.then(|| (xx / n).sqrt()),
            Self::CovarianceSample => has_two.then(|| xy / (n - 1.0)),
            Self::CovariancePopulation => has_one.then(|| xy / n),
            Self::Correlation => (has_one && xx != 0.0 && yy != 0.0).then(|| xy / (xx * yy).sqrt()),
            Self::AverageX => has_one.then(|| x / n),
            Self::AverageY => has_one.then(|| y / n),
            Self::Slope => (has_one && xx != 0.0).then(|| xy / xx),
            Self::Intercept => (has_one && xx != 0.0).then(|| (y - x * xy / xx) / n),
            Self::Determination if has_one && xx != 0.0 => {
                Some(if yy == 0.0 { 1.0 } else { (xy * xy) / (xx * yy) })
            }
            Self::Determination => None,
            Self::SquaresX => has_one.then_some(xx),
            Self::SquaresY => has_one.then_some(yy),
            Self::Products => has_one.then_some(xy),
        }
        .map(|value| if value.is_nan() { f64::NAN } else { value })
    }

    fn array(self, sums: &[Sums]) -> ArrayRef {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "a number of rows")]
            Self::Count => Arc::new(sums.iter().map(|Sums([n, ..])| *n as i64).collect::<Int64Array>()),
            _ => Arc::new(sums.iter().map(|sums| self.of(sums)).collect::<Float64Array>()),
        }
    }
}

/// The rows of a group: their number, the sums of X and Y, and the sums of squares and products of
/// their distances from the averages: N, Sx, Sxx, Sy, Syy, Sxy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums([f64; SUMS]);

const SUMS: usize = 6;
const SUMS_OF_ONE_COLUMN: usize = 3;
const SUM_NAMES: [&str; SUMS] = ["n", "sx", "sxx", "sy", "syy", "sxy"];

impl Sums {
    fn add(&mut self, (new_y, new_x): (f64, f64)) {
        let Self([n, x, xx, y, yy, xy]) = self;
        *n += 1.0;
        *x += new_x;
        *y += new_y;
        if *n > 1.0 {
            let (far_x, far_y) = (new_x * *n - *x, new_y * *n - *y);
            let scale = 1.0 / (*n * (*n - 1.0));
            *xx += far_x * far_x * scale;
            *yy += far_y * far_y * scale;
            *xy += far_x * far_y * scale;
            return;
        }
        // NaN and infinities have no distance from an average.
        let of = |values: &[f64]| if values.iter().all(|value| value.is_finite()) { 0.0 } else { f64::NAN };
        (*xx, *yy, *xy) = (of(&[new_x]), of(&[new_y]), of(&[new_x, new_y]));
    }

    fn merge(&mut self, other: &Self) {
        let (Self([n, x, xx, y, yy, xy]), Self([of_n, of_x, of_xx, of_y, of_yy, of_xy])) =
            (&mut *self, other);
        if *of_n == 0.0 {
            return;
        }
        if *n == 0.0 {
            *self = *other;
            return;
        }
        let all = *n + of_n;
        let (far_x, far_y) = (*x / *n - of_x / of_n, *y / *n - of_y / of_n);
        let scale = *n * of_n / all;
        *xx += of_xx + scale * far_x * far_x;
        *yy += of_yy + scale * far_y * far_y;
        *xy += of_xy + scale * far_x * far_y;
        (*n, *x, *y) = (all, *x + of_x, *y + of_y);
    }

    /// The sums in one row of states.
    fn of_states(states: &[ArrayRef], row: usize) -> Self {
        let mut sums = Self::default();
        for (sum, state) in sums.0.iter_mut().zip(states) {
            *sum = state.as_primitive::<Float64Type>().value(row);
        }
        sums
    }
}

/// The rows in which no value is NULL, and their pairs.
fn pairs(values: &[ArrayRef]) -> impl Iterator<Item = (usize, (f64, f64))> {
    let x = values[values.len() - 1].as_primitive::<Float64Type>();
    let y = (values.len() > 1).then(|| values[0].as_primitive::<Float64Type>());
    (0..x.len()).filter_map(move |row| {
        let y = match y {
            None => 0.0,
            Some(y) if y.is_valid(row) => y.value(row),
            Some(_) => return None,
        };
        x.is_valid(row).then(|| (row, (y, x.value(row))))
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct StatisticFunction {
    statistic: Statistic,
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
}

impl AggregateUDFImpl for StatisticFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.statistic.return_type())
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        match self.statistic {
            Statistic::Count => Ok(ScalarValue::Int64(Some(0))),
            _ => ScalarValue::try_from(data_type),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(match arguments.is_distinct {
            true => Box::new(Distinct { statistic: self.statistic, pairs: BTreeSet::new() }),
            false => Box::new(OneGroup { statistic: self.statistic, sums: Sums::default(), frame: None }),
        })
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return self.accumulator(arguments);
        }
        let frame = Some(Frame::default());
        Ok(Box::new(OneGroup { statistic: self.statistic, sums: Sums::default(), frame }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if arguments.is_distinct {
            let list = DataType::new_list(DataType::Float64, true);
            let field = |name| Field::new(format_state_name(arguments.name, name), list.clone(), true);
            return Ok(["distinct_y", "distinct_x"].into_iter().map(|name| Arc::new(field(name))).collect());
        }
        let field = |name| Field::new(format_state_name(arguments.name, name), DataType::Float64, true);
        let fields = SUM_NAMES.into_iter().take(self.statistic.state_columns());
        Ok(fields.map(|name| Arc::new(field(name))).collect())
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups { statistic: self.statistic, sums: Vec::new() }))
    }
}

/// The rows of a moving frame.
#[derive(Debug, Default)]
struct Frame {
    pairs: VecDeque<(f64, f64)>,
    /// Whether a row has left since the sums were computed.
    has_shrunk: bool,
}

#[derive(Debug)]
struct OneGroup {
    statistic: Statistic,
    sums: Sums,
    frame: Option<Frame>,
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for (_, pair) in pairs(values) {
            self.sums.add(pair);
            if let Some(frame) = &mut self.frame {
                frame.pairs.push_back(pair);
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(frame) = &mut self.frame else { return not_impl_err!("rows that leave a group") };
        for _ in pairs(values) {
            frame.pairs.pop_front();
            frame.has_shrunk = true;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.frame.is_some()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if let Some(frame) = &mut self.frame
            && std::mem::take(&mut frame.has_shrunk)
        {
            self.sums = Sums::default();
            frame.pairs.iter().for_each(|pair| self.sums.add(*pair));
        }
        ScalarValue::try_from_array(&self.statistic.array(&[self.sums]), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sums = self.sums.0.iter().take(self.statistic.state_columns());
        Ok(sums.map(|sum| ScalarValue::Float64(Some(*sum))).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        (0..states[0].len()).for_each(|row| self.sums.merge(&Sums::of_states(states, row)));
        Ok(())
    }

    fn size(&self) -> usize {
        let pairs = self.frame.as_ref().map_or(0, |frame| frame.pairs.capacity());
        size_of_val(self) + pairs * size_of::<(f64, f64)>()
    }
}

/// The distinct pairs of a group, by their bits.
#[derive(Debug)]
struct Distinct {
    statistic: Statistic,
    pairs: BTreeSet<(u64, u64)>,
}

impl Distinct {
    fn values(&self) -> impl Iterator<Item = (f64, f64)> {
        self.pairs.iter().map(|(y, x)| (f64::from_bits(*y), f64::from_bits(*x)))
    }

    fn list(values: impl Iterator<Item = f64>) -> ScalarValue {
        let values: Vec<ScalarValue> = values.map(ScalarValue::from).collect();
        ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64))
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        // All NaN are equal, and so are both zeros.
        let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { (value + 0.0).to_bits() };
        self.pairs.extend(pairs(values).map(|(_, (y, x))| (bits(y), bits(x))));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sums = Sums::default();
        self.values().for_each(|pair| sums.add(pair));
        ScalarValue::try_from_array(&self.statistic.array(&[sums]), 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![Self::list(self.values().map(|(y, _)| y)), Self::list(self.values().map(|(_, x)| x))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [y, x] = [0, 1].map(|column| states[column].as_list::<i32>());
        (0..x.len()).try_for_each(|row| self.update_batch(&[y.value(row), x.value(row)]))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.pairs.len() * 2 * size_of::<(u64, u64)>()
    }
}

/// The sums of all groups.
#[derive(Debug)]
struct Groups {
    statistic: Statistic,
    sums: Vec<Sums>,
}

impl Groups {
    fn states(&self, sums: &[Sums]) -> Vec<ArrayRef> {
        let column = |at: usize| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(sums.iter().map(|sums| sums.0[at])))
        };
        (0..self.statistic.state_columns()).map(column).collect()
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_groups, Sums::default());
        for (row, pair) in pairs(values).filter(|(row, _)| is_kept(filter, *row)) {
            self.sums[groups[row]].add(pair);
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total_groups: usize) -> Result<()> {
        self.sums.resize(total_groups, Sums::default());
        for (row, group) in groups.iter().enumerate() {
            self.sums[*group].merge(&Sums::of_states(states, row));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.statistic.array(&emit_to.take_needed(&mut self.sums)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        Ok(self.states(&sums))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut sums = vec![Sums::default(); values[0].len()];
        for (row, pair) in pairs(values).filter(|(row, _)| is_kept(filter, *row)) {
            sums[row].add(pair);
        }
        Ok(self.states(&sums))
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Sums>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(pairs: &[(f64, f64)]) -> Sums {
        pairs.iter().fold(Sums::default(), |mut sums, pair| {
            sums.add(*pair);
            sums
        })
    }

    #[test]
    fn sums_of_parts_are_those_of_all_rows() {
        let pairs = [(2.0, 1.0), (3.5, -4.0), (8.0, 2.0), (1e3, 0.25)];
        let all = sums(&pairs);
        for at in 0..=pairs.len() {
            let mut merged = sums(&pairs[..at]);
            merged.merge(&sums(&pairs[at..]));
            for (merged, all) in merged.0.iter().zip(all.0) {
                assert!((merged - all).abs() <= all.abs() * 1e-12, "{merged} is not {all}");
            }
        }
    }

    #[test]
    fn what_has_left_a_frame_leaves_nothing_in_its_variance() {
        for large in [1e300, f64::NAN, f64::INFINITY] {
            let array = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![Some(value), None])) };
            let statistic = Statistic::VariancePopulation;
            let mut group = OneGroup { statistic, sums: Sums::default(), frame: Some(Frame::default()) };
            group.update_batch(&[array(large)]).unwrap();
            group.update_batch(&[array(1.0)]).unwrap();
            group.retract_batch(&[array(large)]).unwrap();
            group.update_batch(&[array(2.0)]).unwrap();
            assert_eq!(group.evaluate().unwrap(), ScalarValue::Float64(Some(0.25)));
        }
    }
}
