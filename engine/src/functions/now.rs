//! Implements `now()` and its aliases, which return the start of the transaction, or of the
//! statement if no transaction is open.
//!
//! DataFusion's version has nanoseconds. A column of microseconds that is compared with it would be
//! cast to nanoseconds: a scan could not compare pages, and the year 9999 does not fit. This
//! version has microseconds, like timestamps of PostgreSQL, and no time zone: it is in UTC.

use datafusion::{
    arrow::datatypes::{DataType, TimeUnit},
    common::{Result, internal_err},
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
        simplify::{ExprSimplifyResult, SimplifyContext},
    },
    scalar::ScalarValue,
};

const TYPE: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Now {
    signature: Signature,
    aliases: Vec<String>,
}

impl Default for Now {
    fn default() -> Self {
        let aliases = ["current_timestamp", "localtimestamp", "transaction_timestamp", "statement_timestamp"];
        Self {
            signature: Signature::nullary(Volatility::Stable),
            aliases: aliases.map(str::to_owned).to_vec(),
        }
    }
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &'static str {
        "now"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(TYPE)
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match context.query_execution_start_time() {
            Some(time) => {
                let micros = ScalarValue::TimestampMicrosecond(Some(time.timestamp_micros()), None);
                ExprSimplifyResult::Simplified(Expr::Literal(micros, None))
            }
            None => ExprSimplifyResult::Original(arguments),
        })
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("the time of a statement is put in its place when it is planned")
    }
}
