//! `now()` and its aliases: the start of the transaction, or of the statement if there is none.
//!
//! DataFusion's has nanoseconds, so that a column of microseconds that it is compared with is cast
//! to them: a scan could not compare pages, and the year 9999 does not fit. This one has
//! microseconds, as timestamps of PostgreSQL have, and no time zone: it is in UTC.

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
