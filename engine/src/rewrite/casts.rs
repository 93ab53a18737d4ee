//! Rewrites casts that DataFusion computes incompletely.
//!
//! A text that is cast to a type with a length is cut to that length. DataFusion ignores the
//! length, or refuses the type. A text that is cast to `bytea` is parsed as in PostgreSQL.

use datafusion::sql::sqlparser::ast::{CastKind, CharacterLength, DataType, Expr, TypedString, Value};

use super::{
    refusal::refuse,
    syntax::{call, number},
};
use crate::{error::EngineError, functions::BYTEA};

/// Converts what is cast to `bytea`, and cuts what is cast to `VARCHAR(n)` or `CHAR(n)` to n
/// characters.
pub(super) fn rewrite(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    if let Expr::Cast { expr, data_type, kind, .. } = expression
        && is_of_bytes(data_type)
    {
        if matches!(kind, CastKind::TryCast | CastKind::SafeCast) {
            return Err(refuse("TRY_CAST to bytea", "write CAST"));
        }
        *expression = call(BYTEA, vec![std::mem::replace(expr, Expr::value(Value::Null))]);
        return Ok(());
    }
    if let Expr::TypedString(TypedString { data_type, value, .. }) = expression
        && is_of_bytes(data_type)
    {
        *expression = call(BYTEA, vec![Expr::Value(value.clone())]);
        return Ok(());
    }
    let Expr::Cast { data_type, array: false, .. } = expression else { return Ok(()) };
    let (name, length) = match data_type {
        DataType::Varchar(length) | DataType::CharacterVarying(length) | DataType::CharVarying(length) => {
            ("varchar", *length)
        }
        // Without a length, CHAR has one character.
        DataType::Char(length) | DataType::Character(length) => {
            let one = CharacterLength::IntegerLength { length: 1, unit: None };
            ("char", Some(length.unwrap_or(one)))
        }
        _ => return Ok(()),
    };
    *data_type = DataType::Varchar(None);
    let Some(CharacterLength::IntegerLength { length, .. }) = length else { return Ok(()) };
    if length == 0 {
        let message = format!("length for type {name} must be at least 1");
        return Err(Box::new(EngineError::invalid("22023", message)));
    }
    *expression = call("left", vec![expression.clone(), number(&length.to_string())]);
    Ok(())
}

fn is_of_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Bytea | DataType::Blob(_) | DataType::Binary(_) | DataType::Varbinary(_))
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn texts_are_cut_to_the_length_of_their_type() {
        for (cast, expected) in [
            ("CAST(x AS VARCHAR(3))", "left(CAST(x AS VARCHAR), 3)"),
            ("x::character varying(3)", "left(x::VARCHAR, 3)"),
            ("TRY_CAST(x AS CHAR(2))", "left(TRY_CAST(x AS VARCHAR), 2)"),
            ("x::char", "left(x::VARCHAR, 1)"),
            ("x::varchar", "x::VARCHAR"),
            ("x::varchar(2)::varchar(1)", "left(left(x::VARCHAR, 2)::VARCHAR, 1)"),
            ("CAST(x AS TEXT)", "CAST(x AS TEXT)"),
            ("x::bytea", "bytea(x)"),
            ("CAST(x AS BYTEA)::TEXT", "bytea(x)::TEXT"),
            ("BYTEA 'x'", "bytea('x')"),
        ] {
            let sql = format!("SELECT a FROM t WHERE b = {cast}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT a FROM t WHERE b = {expected}"));
        }
    }

    #[test]
    fn a_text_without_characters_is_no_type() {
        let refused = rewritten("SELECT x::varchar(0)").unwrap_err();
        assert!(refused.contains("length for type varchar must be at least 1"), "{refused}");
    }
}
