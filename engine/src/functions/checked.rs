//! Implements `+`, `-`, `*` and negation of integers. A result that its type cannot hold is an
//! error.
//!
//! DataFusion's operators wrap. Scans can compute these functions ([`crate::pushdown`]).

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, Datum},
        compute::kernels::numeric::{add, mul, neg, sub},
        datatypes::DataType,
        error::ArrowError,
    },
    common::{Result, exec_err, plan_err},
    error::DataFusionError,
    logical_expr::{
        ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        type_coercion::binary::BinaryTypeCoercer,
    },
    physical_expr_common::datum::apply,
};
use rackscan_format::program::Arithmetic;

/// A checked operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Checked {
    /// An operation of two integers.
    Of(Arithmetic),
    /// The negation of one.
    Negative,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    checked: Checked,
    signature: Signature,
}

impl Checked {
    const ALL: [Self; 4] = [
        Self::Of(Arithmetic::Add),
        Self::Of(Arithmetic::Subtract),
        Self::Of(Arithmetic::Multiply),
        Self::Negative,
    ];

    /// The operation that replaces an operator of DataFusion.
    pub(crate) fn of(operator: Operator) -> Option<Self> {
        Some(Self::Of(match operator {
            Operator::Plus => Arithmetic::Add,
            Operator::Minus => Arithmetic::Subtract,
            Operator::Multiply => Arithmetic::Multiply,
            _ => return None,
        }))
    }

    /// The operation of the function with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|checked| checked.name() == name)
    }

    pub(crate) fn function(self) -> ScalarUDF {
        ScalarUDF::new_from_impl(Function {
            checked: self,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Of(Arithmetic::Add) => "checked_add",
            Self::Of(Arithmetic::Subtract) => "checked_subtract",
            Self::Of(Arithmetic::Multiply) => "checked_multiply",
            Self::Negative => "checked_negative",
        }
    }

    fn operator(self) -> Operator {
        match self {
            Self::Of(Arithmetic::Add) => Operator::Plus,
            Self::Of(Arithmetic::Multiply) => Operator::Multiply,
            Self::Of(Arithmetic::Subtract) | Self::Negative => Operator::Minus,
        }
    }

    fn text(self, arguments: &[String]) -> String {
        match arguments {
            [left, right] => format!("{left} {} {right}", self.operator()),
            arguments => format!("(- {})", arguments.join(", ")),
        }
    }

    fn compute(self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        let computed = match self {
            Self::Of(Arithmetic::Add) => add(left, right),
            Self::Of(Arithmetic::Multiply) => mul(left, right),
            Self::Of(Arithmetic::Subtract) | Self::Negative => sub(left, right),
        };
        computed.map_err(|error| out_of_range(error, left.get().0.data_type()))
    }
}

/// The overflow error, in SQL's words.
fn out_of_range(error: ArrowError, of: &DataType) -> ArrowError {
    match error {
        ArrowError::ArithmeticOverflow(what) => {
            let what = what.trim_start_matches("Overflow happened on: ");
            ArrowError::ArithmeticOverflow(format!("{} out of range: {what}", sql_name(of)))
        }
        other => other,
    }
}

/// SQL's name of an integer type.
pub(super) fn sql_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => "smallint",
        DataType::Int32 | DataType::UInt32 => "integer",
        DataType::Int64 | DataType::UInt64 => "bigint",
        _ => "number",
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &'static str {
        self.checked.name()
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Ok(self.checked.text(&arguments))
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let arguments: Vec<String> = arguments.iter().map(|one| one.schema_name().to_string()).collect();
        Ok(self.checked.text(&arguments))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [left, right] => {
                let (left, right) =
                    BinaryTypeCoercer::new(left, &self.checked.operator(), right).get_input_types()?;
                Ok(vec![left, right])
            }
            [one] => Ok(vec![one.clone()]),
            others => plan_err!("{} of {} values, expected two", self.name(), others.len()),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(first) if first.is_integer() => Ok(first.clone()),
            first => plan_err!("{} of {first:?}, expected integers", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [left, right] => apply(left, right, |left, right| self.checked.compute(left, right)),
            [ColumnarValue::Scalar(one)] => {
                let negative = one.arithmetic_negate().map_err(|error| match error {
                    DataFusionError::ArrowError(error, backtrace) => {
                        let error = out_of_range(*error, &one.data_type());
                        DataFusionError::ArrowError(Box::new(error), backtrace)
                    }
                    other => other,
                });
                negative.map(ColumnarValue::Scalar)
            }
            [ColumnarValue::Array(array)] => {
                let negative = neg(array).map_err(|error| out_of_range(error, array.data_type()))?;
                Ok(ColumnarValue::Array(negative))
            }
            others => exec_err!("{} of {} values, expected one or two", self.name(), others.len()),
        }
    }
}

/// All functions, for the rule that replaces operators by them.
pub(crate) fn checked_functions() -> [(Checked, Arc<ScalarUDF>); 4] {
    Checked::ALL.map(|checked| (checked, Arc::new(checked.function())))
}
