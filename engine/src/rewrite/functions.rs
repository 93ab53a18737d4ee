//! Replaces functions that DataFusion supports only as operators or under another name.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, ObjectName,
};

use super::syntax::{call, text, text_of};
use crate::error::EngineError;

/// Names in PostgreSQL and in DataFusion.
const NAMES: [(&str, &str); 4] =
    [("every", "bool_and"), ("gen_random_uuid", "uuid"), ("sign", "signum"), ("variance", "var_samp")];

/// The same for functions without parentheses.
const TIMES: [(&str, &str); 2] = [("localtime", "current_time"), ("localtimestamp", "now")];

/// Writes `mod(a, b)` as `a % b`, and gives functions the names that DataFusion has for them.
///
/// # Errors
/// DISTINCT of whole rows: DataFusion would count a constant.
pub(super) fn rewrite(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    let known = |names: &[(&str, &'static str)], name: &str| {
        names.iter().find(|(ours, _)| name.eq_ignore_ascii_case(ours)).map(|(_, theirs)| *theirs)
    };
    if let Expr::Function(function) = expression {
        let name = function.name.to_string();
        if let Some(name) = known(&NAMES, &name) {
            function.name = ObjectName::from(vec![Ident::new(name)]);
        } else if let Some(name) = known(&TIMES, &name).filter(|_| function.args == FunctionArguments::None) {
            *expression = call(name, Vec::new());
        }
    }
    modulo(expression);
    base64(expression);
    if let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = &*expression
        && list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
        && list.args == [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]
    {
        let message = format!("{name}(DISTINCT *), expected columns: count rows of SELECT DISTINCT");
        return Err(Box::new(EngineError::Syntax(message)));
    }
    Ok(())
}

/// PostgreSQL's base64 has padding, DataFusion's has none.
fn base64(expression: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = expression else {
        return;
    };
    if let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(format))] = list.args.as_mut_slice()
        && name.to_string().eq_ignore_ascii_case("encode")
        && text_of(format).is_some_and(|format| format.eq_ignore_ascii_case("base64"))
    {
        *format = text("base64pad".to_owned());
    }
}

fn modulo(expression: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = &*expression else {
        return;
    };
    if !name.to_string().eq_ignore_ascii_case("mod") {
        return;
    }
    if let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
    ] = list.args.as_slice()
    {
        let nested = |operand: &Expr| Box::new(Expr::Nested(Box::new(operand.clone())));
        let (left, op, right) = (nested(left), BinaryOperator::Modulo, nested(right));
        *expression = Expr::Nested(Box::new(Expr::BinaryOp { left, op, right }));
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn functions_have_the_names_that_they_are_planned_by() {
        for (written, expected) in [
            ("Every(a)", "bool_and(a)"),
            ("variance(DISTINCT a) FILTER (WHERE b)", "var_samp(DISTINCT a) FILTER (WHERE b)"),
            ("localtimestamp", "now()"),
            ("mod(a, b)", "((a) % (b))"),
            ("length(encode(a, 'Base64'))", "length(encode(a, 'base64pad'))"),
        ] {
            let within = |text: &str| format!("SELECT x FROM t HAVING {text} > 1");
            assert_eq!(rewritten(&within(written)).unwrap(), within(expected));
        }
        let quoted = "SELECT \"localtime\" FROM t";
        assert_eq!(rewritten(quoted).unwrap(), quoted);
    }
}
