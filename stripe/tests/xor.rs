//! Tests the XOR kernels. Method: results are compared with a byte-by-byte XOR, for every length up
//! to 300 bytes, some lengths around those of tiles, any alignment of each buffer, and any number
//! of sources. The bytes before and after the result are checked, too.

use rackscan_stripe::xor::{LengthError, xor_all, xor_into};

/// Slices begin so far into a buffer, at most.
const OFFSETS: usize = 72;

fn random_bytes(random: &mut fastrand::Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.u8(..)).collect()
}

/// A slice of random bytes, with others before and behind it.
struct Placed {
    buffer: Vec<u8>,
    offset: usize,
    length: usize,
}

impl Placed {
    fn new(random: &mut fastrand::Rng, length: usize) -> Self {
        let offset = random.usize(..OFFSETS);
        let behind = random.usize(..OFFSETS);
        Self { buffer: random_bytes(random, offset + length + behind), offset, length }
    }

    fn slice(&self) -> &[u8] {
        &self.buffer[self.offset..self.offset + self.length]
    }

    fn slice_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.offset..self.offset + self.length]
    }

    /// The whole buffer, as it should be if the slice holds these bytes.
    fn with(&self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.buffer.clone();
        buffer[self.offset..self.offset + self.length].copy_from_slice(bytes);
        buffer
    }
}

/// All lengths up to 300, and those near whole tiles.
fn lengths() -> impl Iterator<Item = usize> {
    let near = [4096_usize, 8192, 12288];
    (0..=300)
        .chain(near.into_iter().flat_map(|tile| [tile - 65, tile - 1, tile, tile + 1, tile + 64, tile + 77]))
}

#[test]
fn a_source_is_xored_into_the_target_and_nothing_else_changes() {
    let mut random = fastrand::Rng::with_seed(0x57_0030);
    for length in lengths() {
        let mut target = Placed::new(&mut random, length);
        let source = Placed::new(&mut random, length);
        let sums: Vec<u8> =
            target.slice().iter().zip(source.slice()).map(|(one, other)| one ^ other).collect();
        let expected = target.with(&sums);
        assert_eq!(xor_into(target.slice_mut(), source.slice()), Ok(()));
        assert!(target.buffer == expected, "{length} bytes");
    }
}

#[test]
fn any_number_of_sources_is_summed_whatever_the_target_was() {
    let mut random = fastrand::Rng::with_seed(0x57_0031);
    for length in lengths() {
        for count in (0..=9).chain([random.usize(10..=64)]) {
            let mut target = Placed::new(&mut random, length);
            let placed: Vec<Placed> = (0..count).map(|_| Placed::new(&mut random, length)).collect();
            let sources: Vec<&[u8]> = placed.iter().map(Placed::slice).collect();
            let sums: Vec<u8> =
                (0..length).map(|at| sources.iter().fold(0, |sum, source| sum ^ source[at])).collect();
            let expected = target.with(&sums);
            assert_eq!(xor_all(target.slice_mut(), &sources), Ok(()));
            assert!(target.buffer == expected, "{count} sources of {length} bytes");
        }
    }
}

#[test]
fn a_source_of_another_length_is_named_and_the_target_stays_as_it_was() {
    let mut target = [7; 130];
    let (same, shorter, longer) = ([1; 130], [1; 129], [1; 131]);
    let error = LengthError { source_index: 0, found: 129, expected: 130 };
    assert_eq!(xor_into(&mut target, &shorter), Err(error));
    let error = LengthError { source_index: 2, found: 131, expected: 130 };
    assert_eq!(xor_all(&mut target, &[&same, &same, &longer, &shorter]), Err(error));
    assert_eq!(
        xor_all(&mut target, &[&shorter]),
        Err(LengthError { source_index: 0, found: 129, expected: 130 })
    );
    assert_eq!(target, [7; 130]);
    assert!(error.to_string().contains("source 2 of an XOR has 131 bytes, but the target has 130"));
}
