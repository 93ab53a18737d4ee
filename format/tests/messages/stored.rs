//! Tests the bytes of structures that nodes store: catalogs, maps of tables, withheld rows,
//! generations of logs, and everything that they consist of.

use rackscan_format::{
    codec::{self, Envelope},
    message::NodeCatalog,
    schema::{ColumnType, Protection},
    stripe_set::TableMap,
    withheld::WithheldRows,
    zone::ZoneValue,
};

use crate::{
    golden::{Sample, assert_bytes, assert_values},
    one_of_each, requests, tables,
};

/// Version 1 of the envelope.
const FILE: &str = "stored_v1.txt";

one_of_each! {
    fn column_types() -> ColumnType {
        Boolean,
        Int32,
        Int64,
        Date32,
        TimestampMicros,
        Decimal { precision: 200, scale: 9 },
        Float64,
        Text,
    }
}

one_of_each! {
    fn protections() -> Protection {
        Xor,
        TwoD,
    }
}

one_of_each! {
    fn bounds() -> ZoneValue {
        Integer(-300),
        Float(-0.75),
        Text(vec![1, 2]),
    }
}

one_of_each! {
    fn envelopes() -> Envelope {
        EarlierCatalog,
        CatalogReply,
        Segment,
        Scratch,
        ParticipantLife,
        SucceedingCatalog,
        DerivingCatalog,
        Catalog,
        Map,
        LoadHeld,
        LogGeneration,
    }
}

/// The file of a node's catalog, without the node's own structure around it.
fn catalog_file() -> (Vec<u64>, u64, NodeCatalog) {
    let (device_labels, cluster) = (vec![2, u64::MAX], 9);
    (device_labels, cluster, tables::catalog())
}

/// A set of rows with each of the ways to write those of a block: as numbers, as bits, as a whole.
fn withheld() -> WithheldRows {
    let rows = [1, 1023].into_iter().chain((1024..2048).step_by(16)).chain(3072..4096);
    WithheldRows::of(rows).expect("rows of a segment")
}

fn samples() -> Vec<Sample> {
    let mut samples = vec![
        Sample::in_envelope(Envelope::Catalog, catalog_file()),
        Sample::of("Map.9", tables::map(), TableMap::encode_envelope, TableMap::decode_envelope),
        Sample::in_envelope(Envelope::LogGeneration, requests::generation()),
        Sample::of("WithheldRows", withheld(), |rows| Ok(rows.as_bytes().to_vec()), WithheldRows::from_bytes),
    ];
    samples.extend(column_types().into_iter().map(Sample::part));
    samples.extend(protections().into_iter().map(Sample::part));
    samples.extend(tables::kinds().into_iter().map(Sample::part));
    samples.extend(tables::factors().into_iter().map(Sample::part));
    samples.extend(envelopes().into_iter().map(|(name, kind)| {
        let decode = move |bytes: &[u8]| codec::decode_envelope_all(kind, "a sample", bytes);
        Sample::of(name, 7_u8, |value| codec::encode_envelope(kind, value), decode)
    }));
    samples.extend(bounds().into_iter().map(Sample::part));
    samples
}

#[test]
fn every_stored_structure_is_encoded_in_the_bytes_of_its_golden_line() {
    assert_bytes(FILE, &samples());
}

#[test]
fn every_golden_line_of_a_stored_structure_is_decoded_to_what_it_was_made_of() {
    assert_values(FILE, &samples());
}
