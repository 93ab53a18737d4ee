//! Lists the tables that an SQL statement can read, at one point in time.
//!
//! ```text
//! catalog of the cluster -> tables as they were loaded or last flushed -\
//! changed rows           -> a layer over each table ---------------------> a View: all tables at one point in time
//! ```
//!
//! Invariants
//! - A statement uses one [`View`] and sees all its tables as of that point in time, even if tables
//!   are loaded or written meanwhile.
//! - A table that cannot be read (`Broken`) is listed with the reason. Queries of it fail.

use crate::{
    deriving::{BaseName, Sums, View as MaterializedView},
    error::EngineError,
    exec::ScanError,
    indexing::{index_in, indexes_of},
    snapshot::TableSnapshot,
    table::{Table, TableDescription, TableInfo},
};
use async_trait::async_trait;
use datafusion::{
    catalog::{
        CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
        SchemaProvider, TableProvider,
    },
    error::Result,
};
use rackscan_client::{ClientError, ClusterCatalog, ClusterTable};
use rackscan_delta::{
    derived::Derived,
    layer::{Layer, LayerFault},
    replica::Replica,
};
use rackscan_format::{derived::DerivedKind, ids::TableId, schema::TableDefinition};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock},
};

/// All tables at one point in time, by name.
pub(crate) type View = BTreeMap<String, Known>;

/// The tables of the cluster: as they were when the catalog was last read, with the changed rows
/// that are known since then laid over them.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    now: RwLock<Arc<Moment>>,
}

/// All that is known at one point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// Tables as they were loaded, without changed rows.
    stored: View,
    layers: BTreeMap<TableId, Arc<Result<Layer, LayerFault>>>,
    /// Tables as statements see them: with changed rows.
    pub(crate) view: Arc<View>,
    /// Tables that users do not see: the bases of views, and indexes.
    bases: BTreeMap<String, Known>,
    /// The ids of all tables in the catalog, broken ones too, and of the versions before them:
    /// queries that began with those are still running.
    ids: BTreeSet<TableId>,
}

/// A table that a statement may name.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// It is complete.
    Whole(Arc<Table>),
    /// A part of it is missing.
    Broken(ClientError),
    /// Its changed rows cannot be scanned.
    Unreadable(Arc<Table>, ScanError),
    /// It is a materialised view, not a table.
    View(Arc<MaterializedView>),
}

impl Moment {
    /// The definitions of all published tables, including bases and indexes.
    pub(crate) fn definitions(&self) -> Vec<Arc<TableDefinition>> {
        let tables = self.stored.values().chain(self.bases.values()).filter_map(Known::table);
        tables.map(|table| Arc::clone(table.definition())).collect()
    }
}

impl Known {
    /// Its definition, as published by its nodes.
    pub(crate) fn definition(&self) -> Option<&Arc<TableDefinition>> {
        match self {
            Self::View(view) => Some(view.base().definition()),
            _ => self.table().map(|table| table.definition()),
        }
    }

    fn table(&self) -> Option<&Arc<Table>> {
        match self {
            Self::Whole(table) | Self::Unreadable(table, _) => Some(table),
            Self::Broken(_) | Self::View(_) => None,
        }
    }

    /// The table, if it can be read and written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn whole(&self) -> Result<&Arc<Table>, EngineError> {
        match self {
            Self::Whole(table) => Ok(table),
            Self::Broken(error) => Err(EngineError::Catalog(error.clone())),
            Self::Unreadable(_, error) => Err(EngineError::Scan(error.clone())),
            Self::View(view) => {
                let (name, table) = (view.derived().name(), &view.table().name);
                Err(EngineError::Plan(format!(
                    "{name} is a materialized view: it changes with the rows of {table}"
                )))
            }
        }
    }

    pub(crate) fn id(&self) -> Option<TableId> {
        match self {
            Self::View(view) => Some(view.id()),
            _ => self.table().map(|table| table.definition().id),
        }
    }

    /// The same table with changed rows laid over it.
    pub(crate) fn under(&self, layer: Option<&Result<Layer, LayerFault>>) -> Self {
        let (Self::Whole(table), Some(layer)) = (self, layer) else { return self.clone() };
        let over = match layer {
            Ok(layer) => table
                .snapshot
                .under(&layer.view())
                .map(|snapshot| Table::over(snapshot, layer.view()).with_indexes(Arc::clone(table.indexes())))
                .map_err(|source| {
                    format!("a changed row belongs to a segment that the table does not have: {source}")
                }),
            Err(fault) => Err(fault.to_string()),
        };
        match over {
            Ok(over) => Self::Whole(Arc::new(over)),
            Err(why) => {
                let table_name = table.snapshot.definition.name.clone();
                Self::Unreadable(Arc::clone(table), ScanError::Changes { table: table_name, why })
            }
        }
    }
}

/// A table as its nodes have loaded it.
fn whole(table: &ClusterTable) -> Known {
    let segments = table.segments.iter().map(|placed| (placed.node, Arc::clone(&placed.directory)));
    let snapshot = TableSnapshot::new(Arc::clone(&table.definition), segments);
    let flushed =
        table.segments.iter().map(|placed| (placed.directory.segment, Arc::clone(&placed.withheld)));
    match snapshot.flushed(flushed.collect()) {
        Ok(snapshot) => Known::Whole(Arc::new(Table::new(snapshot))),
        Err(source) => {
            let (name, why) = (table.definition.name.clone(), source.to_string());
            Known::Unreadable(Arc::new(Table::new(snapshot)), ScanError::Changes { table: name, why })
        }
    }
}

impl Tables {
    /// All tables as of now, as statements see them.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.moment().view)
    }

    /// Everything as of now.
    pub(crate) fn moment(&self) -> Arc<Moment> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change_now(&self, change: impl FnOnce(&mut Moment)) {
        change(Arc::make_mut(&mut self.now.write().unwrap_or_else(PoisonError::into_inner)));
    }

    /// Replaces all tables by those of `catalog`, together with the changed rows of `replica`. Both
    /// change at once, as no statement may see a catalog with rows that do not belong to it. `anew`
    /// drops all earlier layers.
    pub(crate) fn renew(&self, catalog: &ClusterCatalog, replica: &mut Replica, anew: bool) {
        let whole = catalog.tables.iter().map(|table| (table.definition.name.clone(), whole(table)));
        let broken =
            catalog.broken.iter().map(|table| (table.name.clone(), Known::Broken(table.error.clone())));
        let all: View = broken.chain(whole).collect();
        let is_hidden = |name: &str| BaseName::parse(name).is_some() || index_in(name).is_some();
        let (bases, mut stored): (View, View) = all.into_iter().partition(|(name, _)| is_hidden(name));
        find_indexes(&mut stored, &bases);
        for (name, view) in views_of(&stored, &bases) {
            // A loaded table of the same name hides the view.
            stored.entry(name).or_insert(view);
        }
        let broken = catalog.broken.iter().flat_map(|table| table.ids.iter().copied());
        let whole = catalog.tables.iter().map(|table| &table.definition);
        let known =
            whole.flat_map(|table| [Some(table.id), table.succeeds]).flatten().chain(broken).collect();
        self.change_now(|now| {
            (now.bases, now.ids) = (bases, known);
            let ids: BTreeSet<TableId> = stored.values().filter_map(Known::id).collect();
            now.layers.retain(|id, _| ids.contains(id));
            now.stored = stored;
            now.change(replica, anew);
            now.look_again(|_| true);
        });
    }

    /// Takes new changed rows of known tables from `replica`. `anew` drops all earlier layers.
    pub(crate) fn change(&self, replica: &mut Replica, anew: bool) {
        self.change_now(|now| now.change(replica, anew));
    }

    #[cfg(test)]
    pub(crate) fn insert(&self, name: &str, table: Arc<Table>) {
        self.change_now(|now| {
            Arc::make_mut(&mut now.view).insert(name.to_owned(), Known::Whole(table));
        });
    }

    #[cfg(test)]
    pub(crate) fn snapshot(&self, name: &str) -> Option<Arc<TableSnapshot>> {
        self.view().get(name)?.table().map(|table| Arc::clone(&table.snapshot))
    }

    pub(crate) fn infos(&self) -> Vec<TableInfo> {
        let view = self.view();
        let infos = view.iter().map(|(name, known)| match known {
            Known::Whole(table) => table.info(),
            Known::Unreadable(table, error) => TableInfo { broken: Some(error.to_string()), ..table.info() },
            Known::View(view) => view.info(),
            Known::Broken(error) => TableInfo {
                name: name.clone(),
                rows: 0,
                columns: 0,
                segments: 0,
                nodes: 0,
                stored_bytes: 0,
                changed_rows: 0,
                source: String::new(),
                broken: Some(error.to_string()),
            },
        });
        infos.collect()
    }

    /// A table's description, or what is wrong with it; `None` when there is no such table.
    pub(crate) fn description(&self, name: &str) -> Option<Result<TableDescription, ClientError>> {
        match self.view().get(name)? {
            Known::Whole(table) | Known::Unreadable(table, _) => Some(Ok(table.description())),
            Known::Broken(error) => Some(Err(error.clone())),
            Known::View(view) => Some(Ok(view.description())),
        }
    }
}

/// Adds to tables the indexes that they have.
fn find_indexes(stored: &mut View, hidden: &View) {
    for known in stored.values_mut() {
        let Known::Whole(table) = known else { continue };
        let indexes = indexes_of(table.definition(), |name| match hidden.get(name) {
            Some(Known::Whole(index)) => Some(index),
            _ => None,
        });
        if !indexes.is_empty() {
            *table = Arc::new(Table::clone(table).with_indexes(Arc::new(indexes)));
        }
    }
}

/// The views of tables, by name.
fn views_of(stored: &View, bases: &View) -> View {
    let mut views = View::new();
    let bases: BTreeMap<TableId, &Arc<Table>> =
        bases.values().filter_map(Known::table).map(|base| (base.definition().id, base)).collect();
    for table in stored.values().filter_map(Known::table) {
        for derived in Derived::all_of(table.definition()) {
            let DerivedKind::Sum(sum) = derived.kind() else { continue };
            let name = derived.name().to_owned();
            let Some(base) = sum.base.and_then(|base| bases.get(&base)) else {
                tracing::warn!(
                    view = name,
                    table = table.definition().name,
                    "a materialized view is not readable, because the table with its sums is missing: drop the \
                     view and create it again"
                );
                continue;
            };
            match MaterializedView::of(table.definition(), derived, base) {
                Ok(Some(view)) if !views.contains_key(&name) => {
                    views.insert(name, Known::View(Arc::new(view)));
                }
                Ok(_) => {
                    tracing::warn!(
                        view = name,
                        table = table.definition().name,
                        "a second materialized view has this name and is ignored"
                    )
                }
                Err(error) => {
                    tracing::warn!(
                        view = name,
                        %error,
                        "a materialized view is ignored: this version of rackscan cannot read its definition"
                    )
                }
            }
        }
    }
    views
}

impl Moment {
    /// Bases and indexes that are no longer needed.
    pub(crate) fn abandoned_bases(&self) -> Vec<TableId> {
        let abandoned_bases = self.bases.iter().filter(|(name, _)| self.is_abandoned(name));
        abandoned_bases.filter_map(|(_, known)| known.id()).collect()
    }

    /// A base or index by its name.
    pub(crate) fn hidden(&self, name: &str) -> Option<&Arc<Table>> {
        self.bases.get(name).and_then(Known::table)
    }

    /// Whether this is the name of a base or an index that is no longer needed.
    pub(crate) fn is_abandoned(&self, name: &str) -> bool {
        match (BaseName::parse(name), index_in(name)) {
            (Some(base), _) => base.is_abandoned(&self.ids),
            (_, Some(index)) => !self.may_have_index(index),
            _ => false,
        }
    }

    /// All sums that tables derive, one per view.
    pub(crate) fn sums(&self) -> impl Iterator<Item = Derived> {
        let tables = self.stored.values().filter_map(Known::table);
        let derived = tables.flat_map(|table| Derived::all_of(table.definition()));
        derived.filter(|derived| matches!(derived.kind(), DerivedKind::Sum(_)))
    }

    /// The base with this id, which is the id that a view's table reports.
    pub(crate) fn base(&self, id: TableId) -> Option<&Arc<Table>> {
        self.bases.values().filter_map(Known::table).find(|base| base.definition().id == id)
    }

    /// Whether a table has an index of that name. True also if a table is broken, as its indexes
    /// are not known.
    fn may_have_index(&self, name: &str) -> bool {
        self.stored.values().any(|known| match known {
            Known::Broken(_) => true,
            Known::View(_) => false,
            Known::Whole(table) | Known::Unreadable(table, _) => {
                let mut derived = table.definition().derived.iter();
                derived.any(|one| one.name == name && matches!(one.kind, DerivedKind::Index { .. }))
            }
        })
    }

    /// A table as it was loaded.
    pub(crate) fn stored(&self, name: &str) -> Option<&Known> {
        self.stored.get(name)
    }

    /// The id of a table.
    pub(crate) fn id(&self, name: &str) -> Option<TableId> {
        self.stored.get(name).and_then(Known::id)
    }

    /// The name of a table.
    pub(crate) fn name(&self, id: TableId) -> Option<&str> {
        self.stored.iter().find(|(_, known)| known.id() == Some(id)).map(|(name, _)| name.as_str())
    }

    /// The layer of changed rows over a table, if there is one and it can be scanned.
    pub(crate) fn layer(&self, table: TableId) -> Option<&Layer> {
        self.layers.get(&table)?.as_ref().as_ref().ok()
    }

    fn change(&mut self, replica: &mut Replica, anew: bool) {
        if anew {
            self.layers.clear();
        }
        let mut touched = BTreeSet::new();
        for id in replica.tables().collect::<Vec<_>>() {
            let Some(table) = self.table(id) else { continue };
            let changed = replica.take_changed(id);
            let Some(rows) = replica.table(id).filter(|_| !changed.is_empty()) else { continue };
            let layer = self.layers.entry(id).or_insert_with(|| Arc::new(Ok(table.layer())));
            let layer = Arc::make_mut(layer);
            if let Ok(applied) = layer
                && let Err(fault) = applied.apply(rows, changed)
            {
                tracing::error!(table = id.0, %fault, "changed rows of a table cannot be scanned");
                *layer = Err(fault);
            }
            touched.insert(id);
        }
        if anew || !touched.is_empty() {
            self.look_again(|id| anew || touched.contains(&id));
        }
    }

    fn table(&self, id: TableId) -> Option<Arc<Table>> {
        let mut tables = self.stored.values().filter_map(Known::table);
        tables.find(|table| table.definition().id == id).map(Arc::clone)
    }

    /// Builds the view anew. Tables that are not `touched` are taken over from the view before, if
    /// they were in it.
    fn look_again(&mut self, touched: impl Fn(TableId) -> bool) {
        let tables = self.stored.iter().map(|(name, known)| {
            let id = known.id();
            let before = self.view.get(name).filter(|_| id.is_some_and(|id| !touched(id)));
            let layer = id.and_then(|id| self.layers.get(&id)).map(Arc::as_ref);
            (name.clone(), before.cloned().unwrap_or_else(|| known.under(layer)))
        });
        self.view = Arc::new(tables.collect());
    }
}

/// The tables of one statement, for DataFusion.
#[derive(Debug)]
pub(crate) struct StatementTables {
    view: Arc<View>,
    /// The table to which a column with the places of its rows is added.
    placed: Option<String>,
    /// For views that the statement reads: what changed rows add to them.
    sums: Arc<Sums>,
}

impl StatementTables {
    /// A catalog of one schema with these tables.
    pub(crate) fn catalog(
        view: Arc<View>,
        placed: Option<String>,
        sums: Arc<Sums>,
        (catalog, schema): (&str, &str),
    ) -> Result<Arc<dyn CatalogProviderList>> {
        let list = MemoryCatalogProviderList::new();
        let provider = MemoryCatalogProvider::new();
        provider.register_schema(schema, Arc::new(Self { view, placed, sums }))?;
        list.register_catalog(catalog.to_owned(), Arc::new(provider));
        Ok(Arc::new(list))
    }
}

#[async_trait]
impl SchemaProvider for StatementTables {
    fn table_names(&self) -> Vec<String> {
        let whole = self.view.iter().filter(|(_, known)| matches!(known, Known::Whole(_) | Known::View(_)));
        whole.map(|(name, _)| name.clone()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.view.get(name) {
            Some(Known::Whole(table)) if self.placed.as_deref() == Some(name) => {
                Ok(Some(Arc::new(table.with_places())))
            }
            Some(Known::Whole(table)) => Ok(Some(Arc::clone(table) as Arc<dyn TableProvider>)),
            Some(Known::Unreadable(_, error)) => Err(error.clone().into()),
            Some(Known::Broken(error)) => Err(ScanError::Client(error.clone()).into()),
            Some(Known::View(view)) => view.provider(&self.sums).map(Some),
            None => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.view.contains_key(name)
    }
}
