//! Recognises the statements that create or drop indexes, foreign keys and materialised views.
//!
//! Invariants
//! - Nothing is looked up and nothing is changed here: the result contains names, normalised for
//!   lookups.
//! - No clause of a statement is ignored: each statement is compared with a plain one, or
//!   destructured with all its fields written out. A clause that a later parser version adds does
//!   not compile here until a developer handles it. The exception is words that the parser itself
//!   drops (`TEMPORARY` before `INDEX`).

use crate::{
    deriving::{
        aggregate::Aggregate,
        clause::{last, normal, only, refused},
    },
    error::EngineError,
};
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, CreateIndex, CreateTableOptions, CreateView, Expr, ForeignKeyConstraint,
    Ident, IndexColumn, ObjectType, OrderByExpr, OrderByOptions, Statement as SqlStatement, TableConstraint,
    ViewColumnDef,
};

/// Why UNIQUE is refused.
const NOT_UNIQUE: &str = "uniqueness cannot be kept, because transactions that insert the same value do not \
                          conflict: create a plain index";
/// Why actions of foreign keys are refused.
const NO_ACTIONS: &str =
    "it keeps both sides visible together, it does not check or cascade: leave the actions out";

/// A statement that creates or drops an index, a foreign key or a view.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DerivationStatement {
    /// `CREATE INDEX name ON table (column)`
    CreateIndex { name: String, table: String, column: String, if_not_exists: bool },
    /// `DROP INDEX name`
    DropIndex { name: String, if_exists: bool },
    /// `ALTER TABLE child ADD CONSTRAINT name FOREIGN KEY (key) REFERENCES parent (parent_key)`
    AddForeignKey { name: String, child: String, key: String, parent: String, parent_key: String },
    /// `ALTER TABLE table DROP CONSTRAINT name`
    DropConstraint { name: String, table: String, if_exists: bool },
    /// `CREATE MATERIALIZED VIEW name AS SELECT ...`
    CreateView { name: String, aggregate: Box<Aggregate>, if_not_exists: bool },
    /// `DROP MATERIALIZED VIEW name`
    DropView { name: String, if_exists: bool },
}

impl DerivationStatement {
    /// The statement, if it is of this kind; `None` for another one.
    ///
    /// # Errors
    /// A clause or an operation that is not supported.
    pub(crate) fn of(statement: &SqlStatement) -> Result<Option<Self>, EngineError> {
        match statement {
            SqlStatement::CreateIndex(index) => create_index(index).map(Some),
            SqlStatement::CreateView(view) => create_view(view).map(Some),
            SqlStatement::AlterTable(alter) => alter_table(alter).map(Some),
            SqlStatement::AlterIndex { .. } => {
                Err(refused("ALTER INDEX", "drop it by DROP INDEX, and create another one"))
            }
            SqlStatement::AlterView { .. } => {
                Err(refused("ALTER VIEW", "drop it by DROP MATERIALIZED VIEW, and create another one"))
            }
            SqlStatement::Drop { .. } => dropped(statement),
            _ => Ok(None),
        }
    }
}

fn create_index(index: &CreateIndex) -> Result<DerivationStatement, EngineError> {
    if index.unique {
        return Err(refused("CREATE UNIQUE INDEX", NOT_UNIQUE));
    }
    let Some(name) = &index.name else {
        let way_out = "give it one, by which it can be dropped: CREATE INDEX name ON table (column)";
        return Err(refused("CREATE INDEX without a name", way_out));
    };
    let [IndexColumn { column: OrderByExpr { expr: Expr::Identifier(column), .. }, .. }] =
        index.columns.as_slice()
    else {
        let way_out = "name one column; several columns have an index each";
        return Err(refused("CREATE INDEX on something else than one column", way_out));
    };
    let by = OrderByExpr {
        expr: Expr::Identifier(column.clone()),
        options: OrderByOptions { asc: None, nulls_first: None },
        with_fill: None,
    };
    let plain = CreateIndex {
        name: Some(name.clone()),
        table_name: index.table_name.clone(),
        using: None,
        columns: vec![IndexColumn { column: by, operator_class: None }],
        unique: false,
        concurrently: false,
        if_not_exists: index.if_not_exists,
        include: Vec::new(),
        nulls_distinct: None,
        with: Vec::new(),
        predicate: None,
        index_options: Vec::new(),
        alter_options: Vec::new(),
    };
    only(plain == *index, "CREATE INDEX with other clauses than IF NOT EXISTS, ON and a column")?;
    Ok(DerivationStatement::CreateIndex {
        name: last(name)?,
        table: last(&index.table_name)?,
        column: normal(column),
        if_not_exists: index.if_not_exists,
    })
}

fn create_view(view: &CreateView) -> Result<DerivationStatement, EngineError> {
    if !view.materialized {
        let way_out = "say CREATE MATERIALIZED VIEW for sums that are kept, or begin the query with WITH";
        return Err(refused("CREATE VIEW", way_out));
    }
    let names: Vec<Ident> = view.columns.iter().map(|column| column.name.clone()).collect();
    let column = |name: &Ident| ViewColumnDef { name: name.clone(), data_type: None, options: None };
    let plain = CreateView {
        or_alter: false,
        or_replace: false,
        materialized: true,
        secure: false,
        name: view.name.clone(),
        name_before_not_exists: false,
        columns: names.iter().map(column).collect(),
        query: view.query.clone(),
        options: CreateTableOptions::None,
        cluster_by: Vec::new(),
        comment: None,
        with_no_schema_binding: false,
        if_not_exists: view.if_not_exists,
        temporary: false,
        copy_grants: false,
        to: None,
        params: None,
    };
    only(
        plain == *view,
        "CREATE MATERIALIZED VIEW with other clauses than IF NOT EXISTS, names of columns and AS",
    )?;
    Ok(DerivationStatement::CreateView {
        name: last(&view.name)?,
        aggregate: Box::new(Aggregate::of(&view.query, &names)?),
        if_not_exists: view.if_not_exists,
    })
}

fn alter_table(alter: &AlterTable) -> Result<DerivationStatement, EngineError> {
    let [operation] = alter.operations.as_slice() else {
        let way_out = "write a statement for each; each is a step of its own";
        return Err(refused("ALTER TABLE with several operations", way_out));
    };
    let plain = AlterTable {
        name: alter.name.clone(),
        if_exists: false,
        only: false,
        operations: vec![operation.clone()],
        location: None,
        on_cluster: None,
        table_type: None,
        end_token: alter.end_token.clone(),
    };
    only(plain == *alter, "ALTER TABLE with other clauses than its operation")?;
    let table = last(&alter.name)?;
    match operation {
        AlterTableOperation::AddConstraint { constraint, not_valid } => {
            only(!not_valid, "a constraint that is NOT VALID")?;
            add_constraint(table, constraint)
        }
        AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
            only(drop_behavior.is_none(), "DROP CONSTRAINT with CASCADE or RESTRICT")?;
            Ok(DerivationStatement::DropConstraint { name: normal(name), table, if_exists: *if_exists })
        }
        AlterTableOperation::DropForeignKey { .. } => {
            Err(refused("ALTER TABLE with DROP FOREIGN KEY", "say DROP CONSTRAINT and its name"))
        }
        _ => Err(refused(
            "ALTER TABLE with another operation than ADD CONSTRAINT and DROP CONSTRAINT",
            "to change anything else, load the table anew with `rackscan load`",
        )),
    }
}

fn add_constraint(child: String, constraint: &TableConstraint) -> Result<DerivationStatement, EngineError> {
    match constraint {
        TableConstraint::ForeignKey(key) => foreign_key(child, key),
        TableConstraint::Unique(_)
        | TableConstraint::PrimaryKey(_)
        | TableConstraint::UniqueUsingIndex(_)
        | TableConstraint::PrimaryKeyUsingIndex(_) => {
            Err(refused("a unique or primary key of a table", NOT_UNIQUE))
        }
        TableConstraint::Check(_) => {
            Err(refused("a CHECK of a table", "nothing checks rows: write those that are right"))
        }
        TableConstraint::Index(_) | TableConstraint::FulltextOrSpatial(_) => {
            Err(refused("an index as a constraint", "say CREATE INDEX name ON table (column)"))
        }
    }
}

fn foreign_key(child: String, key: &ForeignKeyConstraint) -> Result<DerivationStatement, EngineError> {
    let Some(name) = &key.name else {
        let way_out = "give it one, which both tables know it by: ADD CONSTRAINT name FOREIGN KEY ...";
        return Err(refused("a foreign key without a name", way_out));
    };
    if key.on_delete.is_some() || key.on_update.is_some() {
        return Err(refused("a foreign key with ON DELETE or ON UPDATE", NO_ACTIONS));
    }
    let ([column], [parent_column]) = (key.columns.as_slice(), key.referred_columns.as_slice()) else {
        let way_out = "name one column of each table: FOREIGN KEY (column) REFERENCES parent (column)";
        return Err(refused("a foreign key of other than one column and one column", way_out));
    };
    let plain = ForeignKeyConstraint {
        name: Some(name.clone()),
        index_name: None,
        columns: vec![column.clone()],
        foreign_table: key.foreign_table.clone(),
        referred_columns: vec![parent_column.clone()],
        on_delete: None,
        on_update: None,
        match_kind: None,
        characteristics: None,
    };
    only(plain == *key, "a foreign key with other clauses than its columns and REFERENCES")?;
    Ok(DerivationStatement::AddForeignKey {
        name: normal(name),
        child,
        key: normal(column),
        parent: last(&key.foreign_table)?,
        parent_key: normal(parent_column),
    })
}

/// A DROP; `None` if it drops something that is not derived.
fn dropped(statement: &SqlStatement) -> Result<Option<DerivationStatement>, EngineError> {
    let SqlStatement::Drop { object_type, if_exists, names, cascade, restrict, purge, temporary, table } =
        statement
    else {
        return Ok(None);
    };
    let is_index = match object_type {
        ObjectType::Index => true,
        ObjectType::MaterializedView => false,
        ObjectType::View => {
            return Err(refused("DROP VIEW", "say DROP MATERIALIZED VIEW: there are no others"));
        }
        _ => return Ok(None),
    };
    let [name] = names.as_slice() else {
        return Err(refused("DROP of several things", "drop one after the other"));
    };
    let is_plain = !cascade && !restrict && !purge && !temporary && table.is_none();
    only(is_plain, "DROP with other clauses than IF EXISTS and a name")?;
    let (name, if_exists) = (last(name)?, *if_exists);
    Ok(Some(if is_index {
        DerivationStatement::DropIndex { name, if_exists }
    } else {
        DerivationStatement::DropView { name, if_exists }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser};

    fn of(text: &str) -> Result<Option<DerivationStatement>, String> {
        let statements = Parser::parse_sql(&GenericDialect {}, text).unwrap();
        let [statement] = statements.as_slice() else { panic!("{text}") };
        DerivationStatement::of(statement).map_err(|error| error.to_string())
    }

    fn error(text: &str) -> String {
        of(text).map(|_| text.to_owned()).unwrap_err()
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn statements_that_create_and_drop_come_out_with_names_as_they_are_looked_up() {
        let index = |if_not_exists| DerivationStatement::CreateIndex {
            name: text("by_day"),
            table: text("lines"),
            column: text("day"),
            if_not_exists,
        };
        let key = DerivationStatement::AddForeignKey {
            name: text("lines_of"),
            child: text("lines"),
            key: text("order_no"),
            parent: text("orders"),
            parent_key: text("no"),
        };
        let drop_index = |if_exists| DerivationStatement::DropIndex { name: text("by_day"), if_exists };
        let drop_view = |if_exists| DerivationStatement::DropView { name: text("v"), if_exists };
        let drop_key = |if_exists| DerivationStatement::DropConstraint {
            name: text("lines_of"),
            table: text("lines"),
            if_exists,
        };
        for (statement, expected) in [
            ("CREATE INDEX by_day ON lines (day)", index(false)),
            ("CREATE INDEX IF NOT EXISTS By_Day ON public.Lines (DAY)", index(true)),
            ("DROP INDEX public.by_day", drop_index(false)),
            ("DROP INDEX IF EXISTS BY_DAY", drop_index(true)),
            (
                "ALTER TABLE public.Lines ADD CONSTRAINT Lines_Of FOREIGN KEY (Order_No) REFERENCES public.Orders (No)",
                key,
            ),
            ("ALTER TABLE lines DROP CONSTRAINT lines_of", drop_key(false)),
            ("ALTER TABLE Lines DROP CONSTRAINT IF EXISTS Lines_Of", drop_key(true)),
            ("DROP MATERIALIZED VIEW v", drop_view(false)),
            ("DROP MATERIALIZED VIEW IF EXISTS public.V", drop_view(true)),
        ] {
            assert_eq!(of(statement), Ok(Some(expected)), "{statement}");
        }
        for (if_not_exists, words) in [(false, ""), (true, "IF NOT EXISTS")] {
            let query = "SELECT a, count(*) FROM t GROUP BY a";
            let found = of(&format!("CREATE MATERIALIZED VIEW {words} public.V (x, y) AS {query}"));
            let Ok(Some(DerivationStatement::CreateView { name, aggregate, if_not_exists: is_so })) = found
            else {
                panic!("{found:?}")
            };
            assert_eq!((name.as_str(), is_so), ("v", if_not_exists));
            let names: Vec<&str> = aggregate.outputs.iter().map(|output| output.name.as_str()).collect();
            assert_eq!(names, ["x", "y"]);
        }
    }

    #[test]
    fn quoted_names_keep_their_case() {
        let index = DerivationStatement::CreateIndex {
            name: text("By Day"),
            table: text("Lines"),
            column: text("Day"),
            if_not_exists: false,
        };
        assert_eq!(of("CREATE INDEX \"By Day\" ON \"Lines\" (\"Day\")"), Ok(Some(index)));
        let key = DerivationStatement::AddForeignKey {
            name: text("K"),
            child: text("C"),
            key: text("A"),
            parent: text("P"),
            parent_key: text("B"),
        };
        let statement = "ALTER TABLE \"C\" ADD CONSTRAINT \"K\" FOREIGN KEY (\"A\") REFERENCES \"P\" (\"B\")";
        assert_eq!(of(statement), Ok(Some(key)));
        let dropped =
            DerivationStatement::DropConstraint { name: text("K"), table: text("C"), if_exists: false };
        assert_eq!(of("ALTER TABLE \"C\" DROP CONSTRAINT \"K\""), Ok(Some(dropped)));
    }

    #[test]
    fn statements_of_another_kind_are_left_to_others() {
        for statement in [
            "SELECT 1",
            "DELETE FROM t",
            "CREATE TABLE t (a int)",
            "DROP TABLE t",
            "DROP TABLE IF EXISTS t, u CASCADE",
            "DROP SCHEMA s",
            "BEGIN",
        ] {
            assert_eq!(of(statement), Ok(None), "{statement}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_with_a_way_out() {
        let unique =
            "uniqueness cannot be kept, because transactions that insert the same value do not conflict";
        let actions = "it keeps both sides visible together, it does not check or cascade";
        for (statement, found, way_out) in [
            ("CREATE UNIQUE INDEX i ON t (c)", "CREATE UNIQUE INDEX", unique),
            ("CREATE INDEX ON t (c)", "CREATE INDEX without a name", "give it one"),
            ("CREATE INDEX i ON t (c, d)", "CREATE INDEX on something else than one column", "name one"),
            ("CREATE INDEX i ON t (c + 1)", "CREATE INDEX on something else than one column", "name one"),
            ("CREATE INDEX i ON t (t.c)", "CREATE INDEX on something else than one column", "name one"),
            ("CREATE VIEW v AS SELECT 1", "CREATE VIEW", "say CREATE MATERIALIZED VIEW"),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", "CREATE VIEW", "say CREATE MATERIALIZED VIEW"),
            ("ALTER INDEX i RENAME TO j", "ALTER INDEX", "drop it by DROP INDEX"),
            ("ALTER VIEW v AS SELECT 1", "ALTER VIEW", "drop it by DROP MATERIALIZED VIEW"),
            ("DROP VIEW v", "DROP VIEW", "say DROP MATERIALIZED VIEW"),
            ("DROP INDEX i, j", "DROP of several things", "drop one after the other"),
            ("DROP MATERIALIZED VIEW v, w", "DROP of several things", "drop one after the other"),
            (
                "ALTER TABLE t ADD COLUMN c int",
                "ALTER TABLE with another operation",
                "to change anything else",
            ),
            ("ALTER TABLE t RENAME TO u", "ALTER TABLE with another operation", "to change anything else"),
            ("ALTER TABLE t DROP COLUMN c", "ALTER TABLE with another operation", "to change anything else"),
            ("ALTER TABLE t DROP FOREIGN KEY k", "ALTER TABLE with DROP FOREIGN KEY", "say DROP CONSTRAINT"),
            (
                "ALTER TABLE t DROP CONSTRAINT k, DROP CONSTRAINT l",
                "ALTER TABLE with several operations",
                "write a statement for each",
            ),
            ("ALTER TABLE t ADD CONSTRAINT k UNIQUE (c)", "a unique or primary key", unique),
            ("ALTER TABLE t ADD PRIMARY KEY (c)", "a unique or primary key", unique),
            ("ALTER TABLE t ADD CONSTRAINT k UNIQUE USING INDEX i", "a unique or primary key", unique),
            ("ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY USING INDEX i", "a unique or primary key", unique),
            ("ALTER TABLE t ADD CONSTRAINT k CHECK (c > 1)", "a CHECK of a table", "nothing checks rows"),
            ("ALTER TABLE t ADD FOREIGN KEY (c) REFERENCES p (c)", "a foreign key without a name", "give it"),
            (
                "ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (c) REFERENCES p (c) ON DELETE CASCADE",
                "a foreign key with ON DELETE or ON UPDATE",
                actions,
            ),
            (
                "ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (c) REFERENCES p (c) ON UPDATE NO ACTION",
                "a foreign key with ON DELETE or ON UPDATE",
                actions,
            ),
            (
                "ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (c, d) REFERENCES p (c, d)",
                "a foreign key of other than one column and one column",
                "name one column of each table",
            ),
            (
                "ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (c) REFERENCES p",
                "a foreign key of other than one column and one column",
                "name one column of each table",
            ),
        ] {
            let error = error(statement);
            assert!(
                error.starts_with(found) && error.contains(&format!("; {way_out}")),
                "{statement}: {error}"
            );
        }
    }

    #[test]
    fn no_clause_is_passed_over() {
        let index = "CREATE INDEX i ON t (c)";
        let key = "ALTER TABLE t ADD CONSTRAINT k FOREIGN KEY (c) REFERENCES p (d)";
        let no_key = "ALTER TABLE t DROP CONSTRAINT k";
        let view = "CREATE MATERIALIZED VIEW v (a, b) AS SELECT c, count(*) FROM t GROUP BY c";
        for (plain, at, clause) in [
            (index, "INDEX", "INDEX CONCURRENTLY"),
            (index, "ON t", "ON t USING btree"),
            (index, "(c)", "(c ASC)"),
            (index, "(c)", "(c DESC)"),
            (index, "(c)", "(c NULLS FIRST)"),
            (index, "(c)", "(c text_pattern_ops)"),
            (index, "(c)", "(c) INCLUDE (d)"),
            (index, "(c)", "(c) NULLS NOT DISTINCT"),
            (index, "(c)", "(c) WITH (fillfactor = 70)"),
            (index, "(c)", "(c) WHERE c > 1"),
            (index, "(c)", "(c) USING hash"),
            (index, "(c)", "(c) COMMENT 'x'"),
            (index, "(c)", "(c) LOCK = NONE"),
            (key, "TABLE", "TABLE IF EXISTS"),
            (key, "TABLE", "TABLE ONLY"),
            (key, "TABLE t", "TABLE t ON CLUSTER x"),
            (key, "KEY (c)", "KEY i (c)"),
            (key, "(d)", "(d) MATCH FULL"),
            (key, "(d)", "(d) DEFERRABLE"),
            (key, "(d)", "(d) NOT ENFORCED"),
            (key, "(d)", "(d) NOT VALID"),
            (no_key, "TABLE", "TABLE IF EXISTS"),
            (no_key, "CONSTRAINT k", "CONSTRAINT k CASCADE"),
            (no_key, "CONSTRAINT k", "CONSTRAINT k RESTRICT"),
            (view, "CREATE", "CREATE OR REPLACE"),
            (view, "CREATE", "CREATE OR ALTER"),
            (view, "CREATE", "CREATE TEMPORARY"),
            (view, "CREATE", "CREATE SECURE"),
            (view, "CREATE", "CREATE ALGORITHM = MERGE"),
            (view, "v (", "v IF NOT EXISTS ("),
            (view, "v (", "v COPY GRANTS ("),
            (view, "(a,", "(a COMMENT 'x',"),
            (view, "AS", "WITH (x = 1) AS"),
            (view, "AS", "OPTIONS (x = 1) AS"),
            (view, "AS", "CLUSTER BY (a) AS"),
            (view, "AS", "COMMENT = 'x' AS"),
            (view, "AS", "TO u AS"),
            ("DROP INDEX i", "i", "i CASCADE"),
            ("DROP INDEX i", "i", "i RESTRICT"),
            ("DROP INDEX i", "i", "i PURGE"),
            ("DROP INDEX i", " i", " i ON t"),
            ("DROP INDEX i", "DROP", "DROP TEMPORARY"),
            ("DROP MATERIALIZED VIEW v", "v", "v CASCADE"),
        ] {
            assert!(matches!(of(plain), Ok(Some(_))), "{plain}");
            let text = plain.replacen(at, clause, 1);
            let found = error(&text);
            assert!(found.ends_with("leave them out"), "{text}: {found}");
        }
    }
}
