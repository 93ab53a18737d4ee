//! Answers the statements of a session, and runs those that change rows, alone or in a transaction.
//!
//! ```text
//! BEGIN                   fixes the point in time that the transaction sees
//! INSERT, UPDATE, DELETE  adds rows with their new values to the transaction, or to one of its own if none is open
//! COMMIT                  writes all of them, or none
//! ```
//!
//! Invariants
//! - A failed statement has changed nothing, also within a transaction.
//! - An UPDATE or DELETE changes each row once. A statement that joins a row with several others is
//!   refused.

use super::{
    Engine, QueryOutcome, Seen,
    answers::{counted, formatted, lines, said},
    committing::pause_after,
    holding::held,
    reading::{holding, query_attempts},
    sql_session::{OneStatement, SqlSession},
    statement::{Parsed, classify},
};
use crate::{
    catalog::Known,
    changes::{
        Care, ChangeStatement, FoundRow, Isolation, Row, RowWriter, Transaction, Verb, encoded, has_sums,
        old_columns, quoted,
    },
    error::EngineError,
    limits::{CONFLICT_ATTEMPTS_MAX, FLUSHED_ATTEMPTS_MAX, HOLD_ATTEMPTS_MAX},
    parsing::parse,
    report::QueryReport,
    table::{PLACE_COLUMN, Table},
};
use datafusion::arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{DataType, Int64Type},
};
use futures::future::BoxFuture;
use rackscan_client::Retry;
use rackscan_format::row_place::RowPlace;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

impl Engine {
    /// A transaction that begins now. Its tables are held, so that flushes do not take away what it
    /// may read. If the tables are replaced all the time, it goes on without a hold.
    async fn begin(&self, isolation: Isolation) -> Result<Transaction, EngineError> {
        self.now().await?;
        let mut retry = Retry::new(HOLD_ATTEMPTS_MAX);
        loop {
            let care = Care { isolation, outlives_flushes: true, guards: self.changes.guards() };
            let (moment, sums) = self.changes.sums(&self.tables, None).await?;
            let hold = held(&self.cluster, &moment.definitions()).await;
            if hold.is_some() || !retry.again() {
                return Ok(Transaction::at(moment, sums, care).holding(hold));
            }
            self.refresh().await?;
        }
    }

    /// The statements of a text, in order. None of them has been run.
    ///
    /// # Errors
    /// The text is not SQL.
    pub fn statements(&self, text: &str) -> Result<Vec<OneStatement>, EngineError> {
        let parsed = parse(text)?;
        if parsed.is_empty() {
            return Err(EngineError::Syntax("the text is empty, expected a statement".to_owned()));
        }
        Ok(parsed.into_iter().map(OneStatement).collect())
    }

    /// Whether a text is one statement that only reads, so that it may be run again.
    ///
    /// # Errors
    /// It is not a supported statement.
    pub fn only_reads(&self, sql: &str) -> Result<bool, EngineError> {
        Ok(matches!(self.statement(sql)?, Parsed::Query(_) | Parsed::Explain(..)))
    }

    /// As [`Engine::answer`], from a text.
    ///
    /// # Errors
    /// The same, and if the text is not one statement.
    pub fn sql_in<'a>(
        &'a self,
        session: &'a mut SqlSession,
        sql: &'a str,
    ) -> BoxFuture<'a, Result<QueryOutcome, EngineError>> {
        Box::pin(async move { self.answer(session, OneStatement(Self::parse(sql)?)).await })
    }

    /// Answers one statement of a session.
    ///
    /// An INSERT, UPDATE or DELETE is answered by one row with the number of rows; COMMIT by one
    /// with the transaction's timestamp.
    ///
    /// # Errors
    /// As [`Engine::sql`]. An open transaction stays open, without the changes of the failed
    /// statement. After a COMMIT that failed there is no transaction, and the error says what
    /// became of it.
    pub fn answer<'a>(
        &'a self,
        session: &'a mut SqlSession,
        statement: OneStatement,
    ) -> BoxFuture<'a, Result<QueryOutcome, EngineError>> {
        Box::pin(async move {
            let started = Instant::now();
            match classify(statement.0)? {
                Parsed::Query(statement) => self.query(session, *statement, started).await,
                Parsed::Explain(statement, mode, format) => {
                    let explanation = self.explained(session, *statement, mode).await?;
                    Ok(lines(&formatted(&explanation, &format)?, started))
                }
                Parsed::Change(change) => match &mut session.open {
                    Some(open) => self.change(open, &change, started).await,
                    None => self.change_alone(&change, session.isolation, started).await,
                },
                Parsed::Begin if session.is_open() => Err(EngineError::InTransaction),
                Parsed::Derive(_) if session.is_open() => Err(EngineError::Statement {
                    found: "a statement that creates or drops an index, a foreign key or a view, within a transaction,"
                        .to_owned(),
                    way_out: "end the transaction with COMMIT first",
                }),
                Parsed::Derive(statement) => self.derive(&statement, started).await,
                Parsed::Begin => {
                    session.open = Some(self.begin(session.isolation).await?);
                    Ok(said("begun", started))
                }
                Parsed::Commit => {
                    let open = session.open.take().ok_or(EngineError::NoTransaction)?;
                    Ok(said(&self.commit_through_flushes(open).await?, started))
                }
                Parsed::Rollback => {
                    session.open.take().ok_or(EngineError::NoTransaction)?;
                    Ok(said("rolled back", started))
                }
            }
        })
    }

    /// The rows of a table that have one of these keys in an integer column, by key.
    ///
    /// # Errors
    /// As [`Engine::sql`].
    pub fn rows_with_keys<'a>(
        &'a self,
        table: &'a str,
        column: &'a str,
        keys: &'a [i64],
    ) -> BoxFuture<'a, Result<BTreeMap<i64, Vec<FoundRow>>, EngineError>> {
        Box::pin(async move {
            if keys.is_empty() {
                return Ok(BTreeMap::new());
            }
            let mut retry = query_attempts();
            loop {
                let seen = holding(&retry, self.now().await?);
                let view = Arc::clone(&seen.view);
                match self.rows_with_keys_in(seen, table, column, keys).await {
                    Err(error) if self.begins_again(&error, &view, &mut retry).await => {}
                    found => return found,
                }
            }
        })
    }

    async fn rows_with_keys_in(
        &self,
        mut seen: Seen,
        table: &str,
        column: &str,
        keys: &[i64],
    ) -> Result<BTreeMap<i64, Vec<FoundRow>>, EngineError> {
        let mut found: BTreeMap<i64, Vec<FoundRow>> = BTreeMap::new();
        seen.placed = Some(table.to_owned());
        let Some(Known::Whole(known)) = seen.view.get(table).cloned() else {
            return Err(self.unknown_table(table));
        };
        let (first, last) = (keys.iter().min(), keys.iter().max());
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let (name, column) = (quoted(table), quoted(column));
        let mut text = format!(
            "SELECT {}, CAST({column} AS BIGINT) AS \"key\"{} FROM {name} WHERE {column} IN ({})",
            quoted(PLACE_COLUMN),
            old_columns(known.definition(), &name, has_sums(known.definition())),
            keys.join(", ")
        );
        if let (Some(first), Some(last)) = (first, last) {
            // Zone maps can use bounds.
            text.push_str(&format!(" AND {column} BETWEEN {first} AND {last}"));
        }
        let outcome = self.collect(Self::parse(&text)?, Instant::now(), seen).await?;
        for batch in &outcome.batches {
            let numbers = |column: usize| batch.column(column).as_primitive::<Int64Type>().values();
            let stored = values_of(&known, batch, 2, has_sums(known.definition()))?;
            for ((place, key), stored) in numbers(0).iter().zip(numbers(1)).zip(stored) {
                let place = RowPlace::of_number(*place);
                let stored = stored.filter(|_| known.is_in_segment(place));
                let row = known.version(place).map(|(identity, _)| FoundRow { identity, stored });
                found.entry(*key).or_default().extend(row);
            }
        }
        Ok(found)
    }

    /// A writer of rows of the present tables, with connections of its own.
    ///
    /// # Errors
    /// A failure of the operating system.
    pub fn row_writer<'a>(&'a self) -> BoxFuture<'a, Result<RowWriter, EngineError>> {
        Box::pin(async move {
            self.flush_what_is_due();
            let view = self.now().await?.view;
            RowWriter::open(&self.changes, view)
        })
    }

    /// Lets a writer go on after [`EngineError::Flushed`]: waits for the new versions of its
    /// tables.
    ///
    /// # Errors
    /// As [`Engine::flush`].
    pub fn renew_writer<'a>(&'a self, writer: &'a mut RowWriter) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(async move {
            self.now().await?;
            for (name, id) in writer.tables() {
                if self.changes.is_closed(id) && self.tables.moment().id(&name) == Some(id) {
                    self.flusher.wait_for_new_version(&name, Some(id)).await?;
                }
            }
            writer.look_at(self.now().await?.view);
            Ok(())
        })
    }

    /// The tables that the next statement sees.
    pub(super) async fn seen(&self, session: &mut SqlSession) -> Result<Seen, EngineError> {
        match &mut session.open {
            Some(open) => Ok(seen_by(open)),
            None => self.now().await,
        }
    }

    /// Runs a change in a transaction of its own.
    async fn change_alone(
        &self,
        change: &ChangeStatement,
        isolation: Isolation,
        started: Instant,
    ) -> Result<QueryOutcome, EngineError> {
        let (mut flushes, mut conflicts) =
            (Retry::new(FLUSHED_ATTEMPTS_MAX), Retry::new(CONFLICT_ATTEMPTS_MAX));
        loop {
            if !self.now().await?.view.contains_key(&change.table) {
                // The table may have been loaded since the catalog was read.
                self.refresh().await?;
            }
            // Only the sums of views that it refers to are computed.
            let relations = change.relations();
            let guards = if change.inserts_what_it_reads() { self.changes.guards() } else { BTreeMap::new() };
            let care = Care { isolation, outlives_flushes: false, guards };
            let (moment, sums) = self.changes.sums(&self.tables, Some(relations)).await?;
            // Holds tables from the second attempt on, as queries do.
            let hold =
                if flushes.attempts() > 1 { held(&self.cluster, &moment.definitions()).await } else { None };
            let mut alone = Transaction::at(Arc::clone(&moment), sums, care).holding(hold);
            let outcome = match self.change(&mut alone, change, started).await {
                Err(error) if error.may_be_of_another_time() && self.has_moved(&moment.view).await => {
                    if flushes.again() {
                        continue;
                    }
                    return Err(EngineError::Flushed);
                }
                outcome => outcome?,
            };
            match self.commit(&Arc::new(alone)).await {
                // The statement runs again over the new version, in which its rows have other
                // identities.
                Err(EngineError::Flushed) if flushes.again() => {
                    self.flusher.wait_for_new_version(&change.table, moment.id(&change.table)).await?;
                }
                // The statement runs again over the present rows.
                Err(EngineError::Conflict { .. }) if conflicts.again() => {
                    pause_after(conflicts.attempts() - 1).await;
                }
                Err(EngineError::Conflict { .. }) => {
                    return Err(EngineError::Conflict { table: change.table.clone() });
                }
                done => return done.map(|_| outcome),
            }
        }
    }

    /// Runs a change in an open transaction.
    async fn change(
        &self,
        transaction: &mut Transaction,
        change: &ChangeStatement,
        started: Instant,
    ) -> Result<QueryOutcome, EngineError> {
        let mut seen = seen_by(transaction);
        let table = match seen.view.get(&change.table) {
            Some(known) => Arc::clone(known.whole()?),
            None => return Err(self.unknown_table(&change.table)),
        };
        let with_old = transaction.needs_old(table.definition());
        let statement = match change.insert() {
            Some(insert) => insert.clone(),
            None => Self::parse(&change.select(table.definition(), with_old)?)?,
        };
        if change.inserts_what_it_reads() {
            transaction.guard(&table);
        }
        seen.placed = change.insert().is_none().then(|| change.table.clone());
        let outcome = self.collect(statement, started, seen).await?;
        let rows = rows_of(change.verb(), &table, with_old, &outcome.batches)?;
        let count = rows.len() as u64;
        transaction.write(&table, rows)?;
        let elapsed = started.elapsed();
        Ok(QueryOutcome {
            report: QueryReport { elapsed, ..outcome.report },
            ..counted(change.verb(), count, started)
        })
    }
}

/// The tables that a statement of a transaction sees.
fn seen_by(transaction: &mut Transaction) -> Seen {
    let (sums, written) = (Some(Arc::clone(transaction.sums())), transaction.tables());
    Seen { is_fixed: true, time: transaction.time(), sums, written, ..Seen::of(transaction.view()) }
}

/// The changes of the rows that a statement's query has found.
fn rows_of(
    verb: Verb,
    table: &Table,
    with_old: bool,
    batches: &[RecordBatch],
) -> Result<Vec<Row>, EngineError> {
    let definition = table.definition();
    let width = definition.columns.len();
    let (mut rows, mut places) = (Vec::new(), BTreeSet::new());
    for batch in batches {
        let placed = (verb != Verb::Insert).then(|| batch.column(0).as_primitive::<Int64Type>());
        let first = usize::from(placed.is_some());
        let (new, old) = match verb {
            Verb::Delete => (0, first),
            Verb::Insert | Verb::Update => (width, first + width),
        };
        let values = values_of(table, batch, first, new > 0)?;
        let olds = values_of(table, batch, old, placed.is_some() && with_old)?;
        for (row, (value, old)) in values.into_iter().zip(olds).enumerate() {
            let place = placed.map(|places| places.value(row));
            if place.is_some_and(|place| !places.insert(place)) {
                if verb == Verb::Update {
                    let name = &definition.name;
                    return Err(EngineError::Execution(format!(
                        "a row of {name} would be updated twice by one statement: join it with one row of each other table"
                    )));
                }
                // The row is deleted once, with however many rows of other tables it was joined.
                continue;
            }
            let version = place.and_then(|place| table.version(RowPlace::of_number(place)));
            rows.extend(Row::of(verb, version, value, old));
        }
    }
    Ok(rows)
}

/// The encoded rows of a batch, in which the columns of the table begin at `first`; `None` for each
/// row if the columns are not there.
fn values_of(
    table: &Table,
    batch: &RecordBatch,
    first: usize,
    are_there: bool,
) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
    if !are_there {
        return Ok(vec![None; batch.num_rows()]);
    }
    let definition = table.definition();
    let columns: Vec<usize> = (first..first + definition.columns.len()).collect();
    let batch = batch.project(&columns).map_err(|error| EngineError::Execution(error.to_string()))?;
    let types: Vec<DataType> =
        table.columns().fields().iter().map(|field| field.data_type().clone()).collect();
    Ok(encoded(definition, &types, &batch)?.into_iter().map(Some).collect())
}
