//! Assigns roles (time, offset, ...) to the columns of a CSV file.
//!
//! Invariants
//! - No column has two roles. Time, offset, length and operation always have a column.

use std::{collections::BTreeMap, path::Path, str::FromStr};

use super::{split::fields, write::HEADER};
use crate::{Operation, TraceError, decimal::Decimal, error::excerpt};

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Time,
    Node,
    Device,
    Offset,
    Length,
    Operation,
    Table,
    Column,
    Thread,
}

/// A role, its name in options, and other names of it in files, in lower case without punctuation.
struct Known {
    role: Role,
    name: &'static str,
    aliases: &'static [&'static str],
}

const KNOWN: [Known; 9] = [
    Known {
        role: Role::Time,
        name: "time",
        aliases: &["timestamp", "ts", "t", "at", "datetime", "issuetime", "arrivaltime", "starttime"],
    },
    Known { role: Role::Node, name: "node", aliases: &["host", "hostname", "server"] },
    Known {
        role: Role::Device,
        name: "device",
        aliases: &["dev", "disk", "disknumber", "diskid", "deviceid", "volume", "lun", "asu"],
    },
    Known {
        role: Role::Offset,
        name: "offset",
        aliases: &["lba", "sector", "startsector", "block", "blkno", "address", "pos", "position"],
    },
    Known {
        role: Role::Length,
        name: "length",
        aliases: &[
            "len", "size", "nbytes", "iosize", "reqsize", "sectors", "nsectors", "blocks", "nblocks", "count",
        ],
    },
    Known {
        role: Role::Operation,
        name: "operation",
        aliases: &["op", "rw", "opcode", "type", "iotype", "optype", "action", "cmd", "rwbs"],
    },
    Known { role: Role::Table, name: "table", aliases: &[] },
    Known { role: Role::Column, name: "column", aliases: &[] },
    Known {
        role: Role::Thread,
        name: "thread",
        aliases: &["tid", "pid", "process", "processid", "threadid"],
    },
];

/// Suffixes of column names that state a unit.
const UNITS: [&str; 17] = [
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "seconds",
    "nsec",
    "usec",
    "msec",
    "nanos",
    "micros",
    "millis",
    "sectors",
    "bytes",
    "sec",
    "ns",
    "us",
    "ms",
    "s",
];

/// The roles of columns of a CSV file, given by the user: `time=ts,offset=lba,length=len,op=rw`. A
/// number means the position of a column, counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnNames {
    names: BTreeMap<Role, String>,
}

impl FromStr for ColumnNames {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |found: &str| TraceError::Option {
            what: "an entry of the list of columns",
            found: found.to_owned(),
            expected: format!("ROLE=NAME,... with the roles {}", role_names()),
        };
        let mut names = BTreeMap::new();
        for part in text.split(',') {
            let (role, name) = part.split_once('=').ok_or_else(|| wrong(part))?;
            let role = role.trim();
            let known = KNOWN
                .iter()
                .find(|known| known.name == role || (role == "op" && known.role == Role::Operation));
            let known = known.ok_or_else(|| wrong(part))?;
            if name.trim().is_empty() || names.insert(known.role, name.trim().to_owned()).is_some() {
                return Err(wrong(part));
            }
        }
        Ok(Self { names })
    }
}

fn role_names() -> String {
    KNOWN.map(|known| known.name).join(", ")
}

/// The positions of the columns of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) delimiter: char,
    pub(super) has_header: bool,
    pub(super) places: BTreeMap<Role, usize>,
    /// The names of the columns in the header, in lower case; empty without a header.
    pub(super) names: BTreeMap<Role, String>,
    /// The number of fields of each row, if the format defines it.
    pub(super) width: Option<usize>,
}

const NEEDED: [Role; 4] = [Role::Time, Role::Offset, Role::Length, Role::Operation];

impl Layout {
    /// The layout of our CSV, from its header.
    pub(super) fn ours(path: &Path, header: &str) -> Result<Self, TraceError> {
        let names = header_of(path, header, ',')?;
        let roles = HEADER.trim_end().split(',').zip([
            Role::Time,
            Role::Node,
            Role::Device,
            Role::Offset,
            Role::Length,
            Role::Operation,
            Role::Table,
            Role::Column,
            Role::Thread,
        ]);
        let places =
            roles.filter_map(|(name, role)| Some((role, names.iter().position(|found| found == name)?)));
        let layout = Self {
            delimiter: ',',
            has_header: true,
            places: places.collect(),
            names: BTreeMap::new(),
            width: Some(names.len()),
        };
        layout.complete(path, &names)
    }

    /// The layout of the MSR Cambridge traces:
    /// Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime, without a header.
    pub(super) fn msr() -> Self {
        let roles = [Role::Time, Role::Node, Role::Device, Role::Operation, Role::Offset, Role::Length];
        let places = roles.into_iter().enumerate().map(|(place, role)| (role, place)).collect();
        Self { delimiter: ',', has_header: false, places, names: BTreeMap::new(), width: Some(7) }
    }

    /// The layout of the traces of the Storage Performance Council ("SPC Trace File Format
    /// Specification", revision 1.0.1): ASU,LBA,Size,Opcode,Timestamp and optional fields, without
    /// a header.
    pub(super) fn spc() -> Self {
        let roles = [Role::Device, Role::Offset, Role::Length, Role::Operation, Role::Time];
        let places = roles.into_iter().enumerate().map(|(place, role)| (role, place)).collect();
        Self { delimiter: ',', has_header: false, places, names: BTreeMap::new(), width: None }
    }

    /// The layout of any other CSV, from the first line and the names that the user gives.
    pub(super) fn generic(path: &Path, first: &str, named: Option<&ColumnNames>) -> Result<Self, TraceError> {
        let delimiter = delimiter_of(first);
        let names = header_of(path, first, delimiter)?;
        let mut places = BTreeMap::new();
        for (role, name) in named.iter().flat_map(|named| &named.names) {
            let wrong = |what: &str| TraceError::Columns {
                path: path.to_owned(),
                reason: format!("{what} {}; the first line is {}", excerpt(name), excerpt(first)),
            };
            // A number is a position even if a field of the first line happens to be that number.
            let by_place = name.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            let by_place = by_place.filter(|&place| place < names.len());
            let by_name = || names.iter().position(|found| found.eq_ignore_ascii_case(name));
            let place = by_place.or_else(by_name).ok_or_else(|| wrong("there is no column"))?;
            if places.values().any(|&taken| taken == place) {
                return Err(wrong("two roles are given to the column"));
            }
            places.insert(*role, place);
        }
        for (place, name) in names.iter().enumerate() {
            let role = known_role(name);
            if let Some(role) = role
                && !places.values().any(|&taken| taken == place)
            {
                places.entry(role).or_insert(place);
            }
        }
        // If the first field of the time column is a number, the first line is a row and not a
        // header.
        let is_row = |place: &usize| Decimal::parse(&names[*place]).is_ok();
        let has_header = !places.get(&Role::Time).is_some_and(is_row);
        let names_of = |(&role, &place): (&Role, &usize)| (role, names[place].to_ascii_lowercase());
        let layout = Self {
            delimiter,
            has_header,
            names: if has_header { places.iter().map(names_of).collect() } else { BTreeMap::new() },
            places,
            width: None,
        };
        layout.complete(path, &names)
    }

    fn complete(self, path: &Path, names: &[String]) -> Result<Self, TraceError> {
        let missing = NEEDED.iter().find(|role| !self.places.contains_key(role));
        let Some(missing) = missing.and_then(|role| KNOWN.iter().find(|known| known.role == *role)) else {
            return Ok(self);
        };
        let reason = format!(
            "no column is known to be the {}; the columns are {}: name them (time=NAME,offset=NAME,length=NAME,op=NAME)",
            missing.name,
            excerpt(&names.join(", ")),
        );
        Err(TraceError::Columns { path: path.to_owned(), reason })
    }

    pub(super) fn field<'f>(&self, fields: &'f [std::borrow::Cow<'_, str>], role: Role) -> Option<&'f str> {
        fields.get(*self.places.get(&role)?).map(AsRef::as_ref)
    }
}

fn header_of(path: &Path, line: &str, delimiter: char) -> Result<Vec<String>, TraceError> {
    let fields = fields(line, delimiter);
    let fields = fields.map_err(|reason| TraceError::Columns {
        path: path.to_owned(),
        reason: format!("line 1: {reason}"),
    })?;
    Ok(fields.into_iter().map(|field| field.into_owned()).collect())
}

/// The delimiter that occurs most often in the line.
fn delimiter_of(line: &str) -> char {
    let count = |delimiter: char| line.matches(delimiter).count();
    [',', ';', '\t', ' '].into_iter().rev().max_by_key(|&delimiter| count(delimiter)).unwrap_or(',')
}

/// The role of a column with a well-known name.
fn known_role(name: &str) -> Option<Role> {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let find = |plain: &str| {
        let known = KNOWN.iter().find(|known| known.name == plain || known.aliases.contains(&plain))?;
        Some(known.role)
    };
    find(&plain).or_else(|| UNITS.iter().find_map(|unit| find(plain.strip_suffix(unit)?)))
}

/// Whether this is the header of our CSV: it has all required names.
pub(crate) fn is_ours(line: &str) -> bool {
    let names: Vec<&str> = line.split(',').map(str::trim).collect();
    ["time_ns", "offset_bytes", "length_bytes", "operation"].iter().all(|name| names.contains(name))
}

/// Whether this is a row of an MSR Cambridge trace.
pub(crate) fn is_msr(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    fields.len() == 7
        && fields[0].len() >= 17
        && [0, 2, 4, 5, 6].iter().all(|&place| fields[place].parse::<u64>().is_ok())
        && Operation::parse(fields[3]).is_some()
}

/// Whether this is a row of an SPC trace: its time has digits behind a point.
pub(crate) fn is_spc(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    fields.len() >= 5
        && fields[..3].iter().all(|field| field.parse::<u64>().is_ok())
        && matches!(Operation::parse(fields[3]), Some(Operation::Read | Operation::Write))
        && Decimal::parse(fields[4]).is_ok_and(|time| time.has_fraction())
}

/// Whether this is a header that names all required columns.
pub(crate) fn is_generic(line: &str) -> bool {
    Layout::generic(Path::new(""), line, None).is_ok_and(|layout| layout.has_header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(layout: &Layout) -> Vec<(Role, usize)> {
        layout.places.iter().map(|(&role, &place)| (role, place)).collect()
    }

    fn generic(line: &str, named: &str) -> Result<Layout, TraceError> {
        let named: Option<ColumnNames> = (!named.is_empty()).then(|| named.parse().unwrap());
        Layout::generic(Path::new("t.csv"), line, named.as_ref())
    }

    #[test]
    fn columns_are_told_by_usual_names_and_units() {
        let layout = generic("Timestamp(us);Disk;LBA;Size_bytes;R/W", "").unwrap();
        assert_eq!(layout.delimiter, ';');
        assert_eq!(
            places(&layout),
            [(Role::Time, 0), (Role::Device, 1), (Role::Offset, 2), (Role::Length, 3), (Role::Operation, 4)]
        );
        assert_eq!(layout.names[&Role::Time], "timestamp(us)");
    }

    #[test]
    fn named_columns_go_before_usual_names() {
        let layout = generic("time,ts,lba,len,rw", "time=ts").unwrap();
        assert_eq!(layout.places[&Role::Time], 1);
        let layout = generic("1.5,4096,512,R", "time=1,offset=2,length=3,op=4").unwrap();
        assert!(!layout.has_header);
        assert_eq!(
            places(&layout),
            [(Role::Time, 0), (Role::Offset, 1), (Role::Length, 2), (Role::Operation, 3)]
        );
    }

    #[test]
    fn a_missing_column_is_named_with_those_there_are() {
        let error = generic("when,lba,len,rw", "").unwrap_err().to_string();
        assert!(error.contains("the time") && error.contains("when, lba"), "{error}");
        let error = generic("ts,lba,len,rw", "time=ts,offset=ts").unwrap_err().to_string();
        assert!(error.contains("two roles"), "{error}");
        let error = generic("ts,lba,len,rw", "time=when").unwrap_err().to_string();
        assert!(error.contains("\"when\""), "{error}");
    }

    #[test]
    fn an_option_that_names_no_role_is_refused() {
        for text in ["", "time", "time=", "when=ts", "time=a,time=b"] {
            assert!(text.parse::<ColumnNames>().unwrap_err().to_string().contains("time, node"), "{text}");
        }
    }

    #[test]
    fn formats_are_told_apart_by_their_first_line() {
        let msr = "128166372003061629,hm,0,Read,383496192,32768,31954";
        assert!(is_msr(msr) && !is_ours(msr) && !is_generic(msr));
        assert!(is_ours(HEADER.trim_end()) && !is_msr(HEADER));
        assert!(is_generic("ts,lba,len,rw") && !is_generic("hello world"));
    }
}
