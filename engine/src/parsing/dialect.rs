//! Defines the SQL dialect that is parsed: sqlparser's generic dialect with two changes.
//!
//! First, if a word such as NOT begins an expression that does not parse, sqlparser 0.62 parses it
//! again as a function of that name. With nesting, that doubles the time at each level: 61 levels
//! took minutes. Here such a word is never a function unless the text uses it as a name.
//!
//! Second, `^` is power, as in PostgreSQL: it binds tighter than `*`, and less tight than a sign.
//! `||` binds less tight than `+`.

use std::any::TypeId;

use datafusion::sql::sqlparser::{
    dialect::{Dialect, GenericDialect},
    keywords::Keyword,
    parser::{Parser, ParserError},
    tokenizer::Token,
};

/// The precedence of `*` and the like: a little below a sign, which has 40, to leave room for `^`
/// between them.
const PRODUCT: u8 = 38;
/// The precedence of `^`.
const POWER: u8 = 39;
/// The precedence of `||`: sums have 30, comparisons 20.
const CONCATENATION: u8 = 25;

/// The generic dialect, in which these words are not names.
#[derive(Debug)]
pub(super) struct Sql {
    pub(super) no_names: Vec<Keyword>,
}

/// Methods in which the generic dialect differs from the trait's defaults.
macro_rules! as_generic {
    ($($name:ident),* $(,)?) => {
        $(fn $name(&self) -> bool {
            GenericDialect.$name()
        })*
    };
}

impl Dialect for Sql {
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_reserved_for_identifier(&self, word: Keyword) -> bool {
        self.no_names.contains(&word) || GenericDialect.is_reserved_for_identifier(word)
    }

    fn is_delimited_identifier_start(&self, character: char) -> bool {
        GenericDialect.is_delimited_identifier_start(character)
    }

    fn is_identifier_start(&self, character: char) -> bool {
        GenericDialect.is_identifier_start(character)
    }

    fn is_identifier_part(&self, character: char) -> bool {
        GenericDialect.is_identifier_part(character)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Caret => Some(Ok(POWER)),
            Token::Mul | Token::Div | Token::DuckIntDiv | Token::Mod => Some(Ok(PRODUCT)),
            Token::StringConcat => Some(Ok(CONCATENATION)),
            Token::Word(word) if word.keyword == Keyword::DIV => Some(Ok(PRODUCT)),
            _ => None,
        }
    }

    as_generic! {
        supports_unicode_string_literal, supports_partition_by_after_order_by,
        supports_array_join_syntax, supports_group_by_expr, supports_group_by_with_modifier,
        supports_left_associative_joins_without_parens, supports_connect_by,
        supports_match_recognize, supports_pipe_operator,
        supports_start_transaction_modifier, supports_window_function_null_treatment_arg,
        supports_dictionary_syntax, supports_window_clause_named_window_reference,
        supports_parenthesized_set_variables, supports_select_wildcard_except,
        support_map_literal_syntax, allow_extract_custom, allow_extract_single_quotes,
        supports_extract_comma_syntax, supports_create_view_comment_syntax,
        supports_parens_around_table_factor, supports_values_as_table_factor,
        supports_create_index_with_clause, supports_explain_with_utility_options,
        supports_limit_comma, supports_update_order_by, supports_from_first_select,
        supports_projection_trailing_commas, supports_asc_desc_in_column_definition,
        supports_try_convert, supports_bitwise_shift_operators, supports_comment_on,
        supports_load_extension, supports_named_fn_args_with_assignment_operator,
        supports_struct_literal, supports_empty_projections, supports_nested_comments,
        supports_multiline_comment_hints, supports_user_host_grantee,
        supports_string_escape_constant, supports_array_typedef_with_brackets,
        supports_match_against, supports_set_names,
        supports_comma_separated_set_assignments, supports_filter_during_aggregation,
        supports_select_wildcard_exclude, supports_data_type_signed_suffix,
        supports_interval_options, supports_quote_delimited_string,
        supports_select_wildcard_replace, supports_select_wildcard_ilike,
        supports_select_wildcard_rename, supports_optimize_table, supports_install,
        supports_detach, supports_prewhere, supports_with_fill, supports_limit_by,
        supports_interpolate, supports_settings, supports_select_format,
        supports_comment_optimizer_hint, supports_constraint_keyword_without_name,
        supports_key_column_option, supports_comma_separated_trim, supports_cte_without_as,
        supports_select_item_multi_column_alias, supports_xml_expressions,
    }
}

#[cfg(test)]
mod tests {
    use super::Sql;
    use datafusion::sql::sqlparser::{ast::Expr, parser::Parser};

    fn parsed(text: &str) -> Expr {
        let dialect = Sql { no_names: Vec::new() };
        Parser::new(&dialect).try_with_sql(text).unwrap().parse_expr().unwrap()
    }

    /// The text with parentheses around each operator.
    fn shape(expression: &Expr) -> String {
        match expression {
            Expr::BinaryOp { left, op, right } => format!("({} {op} {})", shape(left), shape(right)),
            Expr::UnaryOp { op, expr } => format!("({op}{})", shape(expr)),
            other => other.to_string(),
        }
    }

    #[test]
    fn power_binds_tighter_than_products_and_less_than_signs() {
        for (text, expected) in [
            ("2 * 3 ^ 2", "(2 * (3 ^ 2))"),
            ("2 ^ 3 * 2", "((2 ^ 3) * 2)"),
            ("2 ^ 3 ^ 2", "((2 ^ 3) ^ 2)"),
            ("-2 ^ 2", "((-2) ^ 2)"),
            ("2 ^ -1 + 1", "((2 ^ (-1)) + 1)"),
            ("-2 * 3 / 4 % 5", "((((-2) * 3) / 4) % 5)"),
            ("1 + 2 ^ 2 < 4", "((1 + (2 ^ 2)) < 4)"),
        ] {
            assert_eq!(shape(&parsed(text)), expected, "{text}");
        }
    }

    #[test]
    fn concatenations_bind_less_than_sums_and_tighter_than_comparisons() {
        for (text, expected) in [
            ("a || 1 + 2", "(a || (1 + 2))"),
            ("a || b || c", "((a || b) || c)"),
            ("a || b = c * 2 || d", "((a || b) = ((c * 2) || d))"),
        ] {
            assert_eq!(shape(&parsed(text)), expected, "{text}");
        }
    }
}
