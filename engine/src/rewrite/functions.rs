//! Which functions are operators?

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
};

/// Writes `mod(a, b)` as `a % b`.
pub(super) fn rewrite(expression: &mut Expr) {
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
