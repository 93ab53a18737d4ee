//! Checks that a catalog fits the changed rows that participants report.
//!
//! A flush moves rows from participants into segments of another table id. A catalog that was read
//! before the flush, used with rows that were read after it, would lack the moved rows. The
//! invariants prevent that.
//!
//! Invariants
//! - The catalog was read after the last scan of participants from the beginning. So it contains
//!   the rows that this scan misses because a flush has moved them.
//! - The catalog contains every table of which participants report rows, except dropped ones. A
//!   table is dropped if a catalog that was read after its rows were reported does not contain it
//!   either.
//! - The catalog contains no table whose rows a flush has moved.
//! - If a table of the catalog accepts no more writes (it is closed), each statement reads the
//!   catalog again, because the table is about to be flushed, replaced or dropped, or already was.
//!   A table is closed before its new version is published. So an engine that has received reports
//!   from all participants knows of every publication before them.

use rackscan_client::ClusterCatalog;
use rackscan_delta::replica::Replica;
use rackscan_format::ids::TableId;
use std::collections::{BTreeMap, BTreeSet};

/// When a read of the catalog began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reading {
    number: u64,
    /// How many full scans of all participants had ended before it.
    scans: u64,
}

/// A catalog that was read.
#[derive(Debug)]
pub(super) struct CatalogRead {
    reading: Reading,
    catalog: ClusterCatalog,
}

impl Reading {
    pub(super) fn ended(self, catalog: ClusterCatalog) -> CatalogRead {
        CatalogRead { reading: self, catalog }
    }
}

/// Which catalog is in use, and how its read relates in time to reads of participants.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    readings: u64,
    scans: u64,
    present: Reading,
    tables: BTreeSet<TableId>,
    /// Tables that participants have rows of and the catalog in use does not have. The value is how
    /// many reads of the catalog had begun when that was noticed.
    unknown: BTreeMap<TableId, u64>,
}

impl Catalogs {
    pub(super) fn begin_reading(&mut self) -> Reading {
        self.readings += 1;
        Reading { number: self.readings, scans: self.scans }
    }

    /// Notes that all participants were scanned from the beginning.
    pub(super) fn participants_were_scanned(&mut self) {
        self.scans += 1;
    }

    pub(super) fn is_newer(&self, read: &CatalogRead) -> bool {
        read.reading.number > self.present.number
    }

    /// Whether the catalog `read`, or else the one in use, fits what participants report.
    pub(super) fn fits(&mut self, replica: &Replica, read: Option<&CatalogRead>) -> bool {
        let ids = read.map(|read| tables_of(&read.catalog));
        let (tables, reading) = match (&ids, read) {
            (Some(ids), Some(read)) => (ids, read.reading),
            _ => (&self.tables, self.present),
        };
        let readings = self.readings;
        let heard = replica.tables().chain(replica.closed_tables());
        let missing: BTreeSet<TableId> = heard.filter(|id| !tables.contains(id)).collect();
        // Every missing table is noted, not only the first one.
        let seen_before = missing.into_iter().map(|id| *self.unknown.entry(id).or_insert(readings));
        let are_known = seen_before.fold(true, |known, seen| known & (seen < reading.number));
        let is_of_before = reading.number == 0 || reading.scans < self.scans;
        are_known && !is_of_before && !tables.iter().any(|id| replica.is_emptied(*id))
    }

    /// Whether a table of the catalog in use takes no more writes: another version may have taken
    /// its place.
    pub(super) fn have_closed(&self, replica: &Replica) -> bool {
        replica.closed_tables().any(|id| self.tables.contains(&id))
    }

    /// Makes this the catalog in use.
    pub(super) fn taken(&mut self, read: CatalogRead) -> ClusterCatalog {
        self.present = read.reading;
        self.tables = tables_of(&read.catalog);
        read.catalog
    }

    /// Tables that participants have rows of, although a later read of the catalog did not find
    /// them: dropped tables.
    pub(super) fn left_behind(&self, replica: &Replica) -> Vec<TableId> {
        let is_left = |id: &TableId| {
            !self.tables.contains(id) && self.unknown.get(id).is_some_and(|seen| *seen < self.present.number)
        };
        let heard: BTreeSet<TableId> = replica.tables().chain(replica.closed_tables()).collect();
        heard.into_iter().filter(is_left).collect()
    }
}

fn tables_of(catalog: &ClusterCatalog) -> BTreeSet<TableId> {
    let broken = catalog.broken.iter().flat_map(|table| table.ids.iter().copied());
    catalog.tables.iter().map(|table| table.definition.id).chain(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_client::{BrokenTable, ClientError};
    use rackscan_delta::identity::{RowIdentity, table_prefix};
    use rackscan_ramp::{
        closing::Closing,
        item::{Key, Metadata, Value},
        log::Record,
        message::{Guard, Part, ParticipantId},
        timestamp::{ClientId, Timestamp},
    };

    fn catalog(ids: &[u32]) -> ClusterCatalog {
        let broken = ids.iter().map(|id| BrokenTable {
            name: format!("t{id}"),
            ids: vec![TableId(*id)],
            error: ClientError::Closed,
        });
        ClusterCatalog { tables: Vec::new(), broken: broken.collect() }
    }

    fn told(replica: &mut Replica, time: u64, items: Vec<(Key, Value)>) {
        let timestamp = Timestamp { time, client: ClientId(1) };
        let metadata = Metadata::Timestamp;
        let part = Part { timestamp, participants: Vec::new(), guard: Guard::Open, metadata, items };
        replica.record(ParticipantId(0), Record::Put(part)).unwrap();
    }

    fn row_of(table: u32) -> Vec<(Key, Value)> {
        let row = RowIdentity::Inserted { by: Timestamp::FIRST, number: 0 };
        vec![(row.key(TableId(table)).unwrap(), Value::new(b"row").unwrap())]
    }

    #[test]
    fn a_catalog_that_was_read_before_participants_were_scanned_is_read_again() {
        let (mut catalogs, replica) = (Catalogs::default(), Replica::new());
        assert!(!catalogs.fits(&replica, None), "there is none");
        let before = catalogs.begin_reading();
        catalogs.participants_were_scanned();
        assert!(!catalogs.fits(&replica, Some(&before.ended(catalog(&[1])))));
        let after = catalogs.begin_reading().ended(catalog(&[1]));
        assert!(catalogs.fits(&replica, Some(&after)));
        catalogs.taken(after);
        assert!(catalogs.fits(&replica, None));
        catalogs.participants_were_scanned();
        assert!(!catalogs.fits(&replica, None));
    }

    #[test]
    fn rows_of_a_table_that_nobody_knows_need_one_look_after_they_were_seen() {
        let (mut catalogs, mut replica) = (Catalogs::default(), Replica::new());
        let first = catalogs.begin_reading().ended(catalog(&[1]));
        let second = catalogs.begin_reading();
        told(&mut replica, 1, row_of(2));
        assert!(!catalogs.fits(&replica, Some(&first)), "it may be a new version");
        assert!(!catalogs.fits(&replica, Some(&second.ended(catalog(&[1])))), "this began before, too");
        let third = catalogs.begin_reading().ended(catalog(&[1]));
        assert!(catalogs.fits(&replica, Some(&third)), "it is gone");
        catalogs.taken(third);
        assert!(catalogs.fits(&replica, None));
        assert_eq!(catalogs.left_behind(&replica), [TableId(2)]);
        told(&mut replica, 2, row_of(1));
        assert!(catalogs.fits(&replica, None), "a table that is broken is known");
        assert_eq!(catalogs.left_behind(&replica), [TableId(2)]);
        told(&mut replica, 3, row_of(3));
        assert!(!catalogs.fits(&replica, None));
    }

    #[test]
    fn a_catalog_with_a_table_whose_rows_have_moved_away_fits_nothing() {
        let (mut catalogs, mut replica) = (Catalogs::default(), Replica::new());
        let first = catalogs.begin_reading().ended(catalog(&[1]));
        assert!(catalogs.fits(&replica, Some(&first)));
        catalogs.taken(first);
        told(&mut replica, 1, row_of(1));
        let participants = [ParticipantId(0)];
        told(&mut replica, 2, Closing::Closed.items(&table_prefix(TableId(1)), &participants).unwrap());
        assert!(catalogs.fits(&replica, None), "closed, but still there");
        assert!(catalogs.have_closed(&replica), "each statement looks whether it still is");
        told(&mut replica, 3, Closing::Emptied.items(&table_prefix(TableId(1)), &participants).unwrap());
        assert!(!catalogs.fits(&replica, None));
        assert!(replica.table(TableId(1)).is_none());
        let new_version = catalogs.begin_reading().ended(catalog(&[5]));
        assert!(catalogs.fits(&replica, Some(&new_version)));
    }

    #[test]
    fn a_table_that_was_closed_without_rows_is_left_behind_once_a_later_catalog_lacks_it() {
        let (mut catalogs, mut replica) = (Catalogs::default(), Replica::new());
        let first = catalogs.begin_reading().ended(catalog(&[1]));
        assert!(catalogs.fits(&replica, Some(&first)));
        catalogs.taken(first);
        let participants = [ParticipantId(0)];
        told(&mut replica, 1, Closing::Closed.items(&table_prefix(TableId(2)), &participants).unwrap());
        assert!(!catalogs.fits(&replica, None), "it may be a table that was published since");
        assert!(catalogs.left_behind(&replica).is_empty());
        let second = catalogs.begin_reading().ended(catalog(&[1]));
        assert!(catalogs.fits(&replica, Some(&second)) && !catalogs.have_closed(&replica));
        catalogs.taken(second);
        assert_eq!(catalogs.left_behind(&replica), [TableId(2)]);
        told(&mut replica, 2, Closing::Emptied.items(&table_prefix(TableId(2)), &participants).unwrap());
        assert!(catalogs.left_behind(&replica).is_empty());
    }
}
