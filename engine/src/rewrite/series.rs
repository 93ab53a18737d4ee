//! Names the column of `generate_series()` in FROM after the function, or after its alias, as in
//! PostgreSQL. DataFusion 55.2 calls it `value`.

use datafusion::sql::sqlparser::ast::{TableAlias, TableAliasColumnDef, TableFactor};

use super::syntax::normal;

/// Functions with one column.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// Names the column.
pub(super) fn rewrite(factor: &mut TableFactor) {
    let TableFactor::Table { name, alias, args: Some(_), .. } = factor else { return };
    let function = name.0.last().and_then(|part| part.as_ident());
    let Some(function) = function.filter(|name| SERIES.contains(&normal(name).as_str())) else { return };
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: function.clone(),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        let column = TableAliasColumnDef { name: alias.name.clone(), data_type: None };
        alias.columns.push(column);
    }
}
