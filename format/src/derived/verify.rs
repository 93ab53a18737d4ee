//! Checks the derivations (indexes, foreign keys, sums) of a table against the invariants of
//! [`crate::derived`].

use super::{DerivedKind, SumDefinition};
use crate::{
    ids::ColumnId,
    limits::{DECIMAL_DIGITS_MAX, DERIVED_MAX, FACTORS_MAX, NAME_BYTES_MAX},
    schema::{ColumnType, DefinitionError, TableDefinition},
};

/// Checks all derivations of a table.
pub(crate) fn verify(table: &TableDefinition) -> Result<(), DefinitionError> {
    let count = table.derived.len();
    if count > DERIVED_MAX {
        let what = "the number of its derivations";
        let (table, found, expected) =
            (table.name.clone(), count.to_string(), format!("at most {DERIVED_MAX}"));
        return Err(DefinitionError { table, what, found, expected });
    }
    for (number, derived) in table.derived.iter().enumerate() {
        let of = DerivationCheck { table, name: &derived.name };
        of.name("a derivation's name", &derived.name)?;
        if table.derived.iter().take(number).any(|other| other.name == derived.name) {
            return of.fault(
                "a derivation's name",
                "that of an earlier derivation".to_owned(),
                "unique names".to_owned(),
            );
        }
        match &derived.kind {
            DerivedKind::Index { column } => of.column("the indexed column", *column).map(drop)?,
            DerivedKind::Parent { key, child: other } | DerivedKind::Child { key, parent: other } => {
                of.column("the key's column", *key)?;
                of.other(other)?;
            }
            DerivedKind::Sum(sum) => of.sum(sum)?,
        }
    }
    Ok(())
}

/// The derivation that is being verified, with its table.
#[derive(Clone, Copy)]
struct DerivationCheck<'d> {
    table: &'d TableDefinition,
    name: &'d str,
}

impl DerivationCheck<'_> {
    fn sum(self, sum: &SumDefinition) -> Result<(), DefinitionError> {
        self.column("the group's column", sum.group)?;
        if sum.factors.len() > FACTORS_MAX {
            let found = sum.factors.len().to_string();
            return self.fault(
                "the number of factors of the amount",
                found,
                format!("at most {FACTORS_MAX}"),
            );
        }
        for factor in &sum.factors {
            let found = self.column("a factor", factor.column())?;
            if !matches!(found, ColumnType::Int32 | ColumnType::Int64 | ColumnType::Decimal { .. }) {
                let expected = "an int, a bigint or a decimal: sums are exact".to_owned();
                return self.fault("a factor", format!("a {found}"), expected);
            }
        }
        let scale = sum.scale(self.table);
        if scale > DECIMAL_DIGITS_MAX.into() {
            let found = format!("{scale} digits behind the point");
            return self.fault("the scale of the amount", found, format!("at most {DECIMAL_DIGITS_MAX}"));
        }
        if let Some(within) = &sum.within {
            let found = self.column("the range's column", within.column)?;
            if !found.is_integer() {
                let expected = "a column of a type that is stored as integers".to_owned();
                return self.fault("the range's column", format!("a {found}"), expected);
            }
        }
        if sum.base == Some(self.table.id) {
            let found = format!("table {}, which is the table itself", self.table.id);
            return self.fault("the table of the sums over segments", found, "another table".to_owned());
        }
        Ok(())
    }

    /// Checks the name of the table on the other side of a foreign key.
    fn other(self, other: &str) -> Result<(), DefinitionError> {
        self.name("the name of the other side's table", other)?;
        if other == self.table.name {
            let found = format!("{other:?}, which is the table itself");
            return self.fault("the name of the other side's table", found, "another table".to_owned());
        }
        Ok(())
    }

    fn name(self, what: &'static str, name: &str) -> Result<(), DefinitionError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let expected = format!("1 to {NAME_BYTES_MAX} bytes");
            return self.fault(what, format!("{} bytes long", name.len()), expected);
        }
        Ok(())
    }

    fn column(self, what: &'static str, column: ColumnId) -> Result<ColumnType, DefinitionError> {
        let found = self.table.columns.get(column.index()).map(|column| column.column_type);
        found.map_or_else(
            || {
                let expected = format!("a column below {}", self.table.columns.len());
                self.fault(what, format!("column {column}"), expected)
            },
            Ok,
        )
    }

    fn fault<T>(self, what: &'static str, found: String, expected: String) -> Result<T, DefinitionError> {
        // A name may be too long: only its beginning is shown.
        let name: String = self.name.chars().take(NAME_BYTES_MAX).collect();
        let found = format!("{found} (derivation {name:?})");
        Err(DefinitionError { table: self.table.name.clone(), what, found, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        codec,
        derived::{DerivedDefinition, Factor, Within},
        ids::{NodeId, TableId},
        schema::ColumnDefinition,
    };

    /// Price, discount, day, comment, weight.
    fn table(derived: Vec<DerivedDefinition>) -> TableDefinition {
        let money = ColumnType::Decimal { precision: 15, scale: 2 };
        let fine = ColumnType::Decimal { precision: 18, scale: 9 };
        let types = [money, fine, ColumnType::Date32, ColumnType::Text, ColumnType::Float64];
        let column = |(index, column_type): (usize, ColumnType)| ColumnDefinition {
            name: format!("c{index}"),
            column_type,
            nullable: true,
        };
        TableDefinition {
            id: TableId(7),
            name: "lines".to_owned(),
            columns: types.into_iter().enumerate().map(column).collect(),
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(1)],
            rows: 0,
            source: "a test".to_owned(),
            succeeds: None,
            derived,
            protection: None,
        }
    }

    fn named(name: &str, kind: DerivedKind) -> DerivedDefinition {
        DerivedDefinition { name: name.to_owned(), kind }
    }

    fn sum() -> SumDefinition {
        let factors = vec![Factor::Column(ColumnId(0)), Factor::OneMinus(ColumnId(1))];
        let within = Some(Within { column: ColumnId(2), from: 100, until: 190 });
        SumDefinition { group: ColumnId(3), factors, within, base: Some(TableId(8)) }
    }

    fn all() -> Vec<DerivedDefinition> {
        vec![
            named("by day", DerivedKind::Index { column: ColumnId(2) }),
            named("lines of orders", DerivedKind::Child { key: ColumnId(0), parent: "orders".to_owned() }),
            named("parts of lines", DerivedKind::Parent { key: ColumnId(1), child: "parts".to_owned() }),
            named("revenue", DerivedKind::Sum(sum())),
        ]
    }

    #[test]
    fn a_table_with_all_kinds_of_derivations_is_verified_and_survives_its_encoding() {
        let table = table(all());
        assert_eq!(table.verify(), Ok(()));
        assert_eq!(codec::decode("a table", &codec::encode(&table).unwrap()), Ok(table.clone()));
        assert_eq!(sum().scale(&table), 11, "two and nine digits");
        let count = SumDefinition { factors: Vec::new(), within: None, base: None, ..sum() };
        assert_eq!(count.scale(&table), 0);
        let most = |count: usize| {
            let index = |number| named(&format!("i{number}"), DerivedKind::Index { column: ColumnId(0) });
            self::table((0..count).map(index).collect()).verify()
        };
        assert_eq!(most(DERIVED_MAX), Ok(()));
        let error = most(DERIVED_MAX + 1).unwrap_err().to_string();
        assert!(error.contains("the number of its derivations is 17, expected at most 16"), "{error}");
    }

    #[test]
    fn whatever_is_wrong_with_a_derivation_is_named() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let index = |column| DerivedKind::Index { column: ColumnId(column) };
        let parent = |key, child: &str| DerivedKind::Parent { key: ColumnId(key), child: child.to_owned() };
        let child = |key, parent: &str| DerivedKind::Child { key: ColumnId(key), parent: parent.to_owned() };
        let of = |change: &dyn Fn(&mut SumDefinition)| {
            let mut sum = sum();
            change(&mut sum);
            DerivedKind::Sum(sum)
        };
        let within = |column| Some(Within { column: ColumnId(column), from: 0, until: 1 });
        let column = |column| Factor::Column(ColumnId(column));
        for (name, kind, expected) in [
            ("", index(0), "a derivation's name is 0 bytes long"),
            (&long, index(0), "a derivation's name is 129 bytes long"),
            (
                "by day",
                index(0),
                "name is that of an earlier derivation (derivation \"by day\"), expected unique",
            ),
            (
                "new",
                index(5),
                "the indexed column is column 5 (derivation \"new\"), expected a column below 5",
            ),
            ("new", parent(5, "t"), "the key's column is column 5 (derivation \"new\")"),
            ("new", child(6, "t"), "the key's column is column 6 (derivation \"new\")"),
            ("new", parent(0, ""), "the name of the other side's table is 0 bytes long"),
            ("new", child(0, &long), "the name of the other side's table is 129 bytes long"),
            (
                "new",
                parent(0, "lines"),
                "the name of the other side's table is \"lines\", which is the table itself",
            ),
            ("new", of(&|sum| sum.group = ColumnId(9)), "the group's column is column 9"),
            (
                "new",
                of(&|sum| sum.factors = vec![column(0); 5]),
                "the number of factors of the amount is 5 (derivation \"new\"), expected at most 4",
            ),
            ("new", of(&|sum| sum.factors = vec![column(5)]), "a factor is column 5"),
            ("new", of(&|sum| sum.factors = vec![column(2)]), "a factor is a date"),
            ("new", of(&|sum| sum.factors = vec![column(4)]), "a factor is a double"),
            (
                "new",
                of(&|sum| sum.factors = vec![column(1), column(0), column(1)]),
                "the scale of the amount is 20 digits behind the point (derivation \"new\"), expected at most 18",
            ),
            ("new", of(&|sum| sum.within = within(5)), "the range's column is column 5"),
            ("new", of(&|sum| sum.within = within(3)), "the range's column is a text"),
            (
                "new",
                of(&|sum| sum.base = Some(TableId(7))),
                "the sums over segments is table 7, which is the table itself",
            ),
        ] {
            let mut derived = all();
            derived.push(named(name, kind));
            let error = table(derived).verify().unwrap_err().to_string();
            assert!(
                error.starts_with("the definition of table \"lines\" is invalid: ")
                    && error.contains(expected),
                "{error}"
            );
        }
    }
}
