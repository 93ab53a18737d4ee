//! Represents the expressions of a case as trees of SQL texts, so that they can be printed, and
//! reduced to smaller ones when a case fails.

use crate::table::Class;
use std::fmt;

/// An expression of SQL.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) class: Class,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Sql(String),
    Operand(Expression),
}

impl Expression {
    /// SQL without operands.
    pub(crate) fn leaf(class: Class, sql: impl Into<String>) -> Self {
        Self { class, pieces: vec![Piece::Sql(sql.into())] }
    }

    /// SQL in which every `{}` is an operand.
    pub(crate) fn of(class: Class, sql: &str, operands: impl IntoIterator<Item = Self>) -> Self {
        let mut operands = operands.into_iter();
        let mut pieces = Vec::new();
        for (position, text) in sql.split("{}").enumerate() {
            if position > 0 {
                pieces.push(Piece::Operand(operands.next().expect("an operand for each {}")));
            }
            pieces.push(Piece::Sql(text.to_owned()));
        }
        assert!(operands.next().is_none(), "more operands than {sql} takes");
        Self { class, pieces }
    }

    /// Itself, and what AND and OR in it connect: DataFusion leaves the second out where the first
    /// decides for a whole batch.
    pub(crate) fn connected(&self) -> Vec<&Self> {
        let connects = |piece: &Piece| matches!(piece, Piece::Sql(sql) if sql == " AND " || sql == " OR ");
        let mut all = vec![self];
        if self.pieces.iter().any(connects) {
            let operands = self.pieces.iter().filter_map(|piece| match piece {
                Piece::Operand(operand) => Some(operand),
                Piece::Sql(_) => None,
            });
            all.extend(operands.flat_map(Self::connected));
        }
        all
    }

    /// Expressions of the same class with less in them: operands in its place, and itself with a
    /// smaller operand.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let operands = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Operand(operand) if operand.class == self.class => Some(operand.clone()),
            _ => None,
        });
        let mut smaller: Vec<Self> = operands.collect();
        for (position, piece) in self.pieces.iter().enumerate() {
            let Piece::Operand(operand) = piece else { continue };
            smaller.extend(operand.smaller().into_iter().map(|operand| {
                let mut copy = self.clone();
                copy.pieces[position] = Piece::Operand(operand);
                copy
            }));
        }
        smaller
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Sql(sql) => f.write_str(sql),
            Piece::Operand(operand) => write!(f, "{operand}"),
        })
    }
}
