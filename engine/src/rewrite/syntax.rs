//! Provides functions that read and build parts of a syntax tree.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    Value,
};

/// The expression without the parentheses around it.
pub(super) fn bare(mut expression: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expression {
        expression = inner;
    }
    expression
}

/// The name in the form in which it is looked up: lower case unless it is quoted.
pub(super) fn normal(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// The text of a text constant.
pub(super) fn text_of(expression: &Expr) -> Option<&str> {
    let Expr::Value(value) = bare(expression) else { return None };
    match &value.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
        Value::DollarQuotedString(text) => Some(&text.value),
        _ => None,
    }
}

/// Whether the expression is NULL.
pub(super) fn is_null(expression: &Expr) -> bool {
    matches!(bare(expression), Expr::Value(value) if value.value == Value::Null)
}

/// A text constant.
pub(super) fn text(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

/// A number with these digits.
pub(super) fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

/// A call of a function.
pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let argument = |argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
