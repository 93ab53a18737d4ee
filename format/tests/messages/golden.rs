//! Compares samples with the lines of golden files, in both directions.

use std::{
    collections::BTreeMap,
    env,
    fmt::{Debug, Display},
    fs::{self, OpenOptions},
    io::Write,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use rackscan_format::codec::{self, Envelope};
use serde::{Serialize, de::DeserializeOwned};

/// Panics unless the bytes are decoded to the sample.
type Check = Box<dyn Fn(&[u8])>;

/// A value with its bytes.
pub(crate) struct Sample {
    name: String,
    bytes: Vec<u8>,
    /// Fails unless the bytes are decoded to the value.
    check: Check,
}

impl Sample {
    /// A sample of what has functions of its own to encode and decode it.
    pub(crate) fn of<T, E>(
        name: &str,
        value: T,
        encode: impl Fn(&T) -> Result<Vec<u8>, E>,
        decode: impl Fn(&[u8]) -> Result<T, E> + 'static,
    ) -> Self
    where
        T: Debug + PartialEq + 'static,
        E: Display,
    {
        let name = name.to_owned();
        let bytes = encode(&value).unwrap_or_else(|error| panic!("{name}: {error}"));
        let of = name.clone();
        let check = move |bytes: &[u8]| match decode(bytes) {
            Ok(decoded) => assert_eq!(decoded, value, "{of}"),
            Err(error) => panic!("{of}: {error}"),
        };
        Self { name, bytes, check: Box::new(check) }
    }

    /// A sample of a part of other structures.
    pub(crate) fn part<T>((name, value): (&'static str, T)) -> Self
    where
        T: Debug + PartialEq + Serialize + DeserializeOwned + 'static,
    {
        Self::of(name, value, codec::encode, move |bytes| codec::decode(name, bytes))
    }

    /// A sample of a structure in an envelope. Its name has the number of the kind of envelope.
    pub(crate) fn in_envelope<T>(kind: Envelope, value: T) -> Self
    where
        T: Debug + PartialEq + Serialize + DeserializeOwned + 'static,
    {
        let name = format!("{kind:?}.{}", kind as u32);
        let encode = |value: &T| codec::encode_envelope(kind, value);
        Self::of(&name, value, encode, move |bytes| codec::decode_envelope_all(kind, "a sample", bytes))
    }
}

/// Fails unless the samples are encoded as the golden file says, and it has no other lines.
pub(crate) fn assert_bytes(file: &str, samples: &[Sample]) {
    let mut golden = lines(file, samples);
    let mut differences = Vec::new();
    for Sample { name, bytes, .. } in samples {
        match golden.remove(name) {
            Some(line) if line == *bytes => {}
            line => {
                let (line, now) = (line.as_deref().map_or("none".to_owned(), hex), hex(bytes));
                differences.push(format!("{name}\n    golden line: {line}\n    encoded now: {now}"));
            }
        }
    }
    differences.extend(golden.into_keys().map(|name| format!("{name}\n    has no sample")));
    let count = differences.len();
    assert!(
        differences.is_empty(),
        "{file}, lines that differ: {count}; format/tests/messages/main.rs says what a change needs\n{}",
        differences.join("\n")
    );
}

/// Fails unless the lines of the golden file are decoded to the values of the samples.
pub(crate) fn assert_values(file: &str, samples: &[Sample]) {
    let golden = lines(file, samples);
    for Sample { name, check, .. } in samples {
        check(golden.get(name).unwrap_or_else(|| panic!("{file}: it has no line of {name}")));
    }
}

/// The bytes of each line of a golden file. Lines that are missing are written if that is wanted.
fn lines(file: &str, samples: &[Sample]) -> BTreeMap<String, Vec<u8>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    let absent = |error| panic!("{}: {error}; RACKSCAN_WRITE_GOLDEN=1 writes it", path.display());
    let read = || fs::read_to_string(&path).unwrap_or_else(absent);
    let is_wanted = env::var_os("RACKSCAN_WRITE_GOLDEN").is_some();
    let mut lines = if is_wanted && !path.exists() { BTreeMap::new() } else { parse(file, &read()) };
    if is_wanted {
        let missing = samples.iter().filter(|sample| !lines.contains_key(&sample.name));
        let missing: String =
            missing.map(|Sample { name, bytes, .. }| format!("{name} {}\n", hex(bytes))).collect();
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.and_then(|mut file| file.write_all(missing.as_bytes())).expect("the golden file is written");
        lines = parse(file, &read());
    }
    lines
}

fn parse(file: &str, text: &str) -> BTreeMap<String, Vec<u8>> {
    let mut lines = BTreeMap::new();
    for line in text.lines() {
        let (name, hex) =
            line.split_once(' ').unwrap_or_else(|| panic!("{file}: {line:?} is no name and hex"));
        let byte = |at: usize| hex.get(at..at + 2).and_then(|byte| u8::from_str_radix(byte, 16).ok());
        let bytes = (0..hex.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>();
        let bytes = bytes.unwrap_or_else(|| panic!("{file}: {name} is followed by no hex: {hex:?}"));
        assert!(lines.insert(name.to_owned(), bytes).is_none(), "{file}: {name} has two lines");
    }
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
