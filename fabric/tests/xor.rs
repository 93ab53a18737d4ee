//! Tests that XOR over memory that peers may write gives the result of its definition. Method: byte
//! by byte, for every length up to 300 bytes and some around tiles, any alignment of each range, up
//! to nine sources. The bytes before and after the target are checked, too.

use rackscan_fabric::Region;

const REGION_BYTES: usize = 32 << 10;
/// The maximum offset of a range in its region.
const OFFSETS: u64 = 72;

/// A small generator with the same numbers everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit).expect("small")
    }

    fn region(&mut self) -> (Region, Vec<u8>) {
        let bytes: Vec<u8> =
            (0..REGION_BYTES).map(|_| u8::try_from(self.below(256)).expect("small")).collect();
        let region = Region::allocate(REGION_BYTES).expect("small");
        region.copy_in(0, &bytes).expect("small");
        (region, bytes)
    }
}

fn lengths() -> impl Iterator<Item = usize> {
    let near = [4096_usize, 8192, 12288];
    (0..=300)
        .chain(near.into_iter().flat_map(|tile| [tile - 65, tile - 1, tile, tile + 1, tile + 64, tile + 77]))
}

#[test]
fn the_sum_is_that_of_the_definition_and_nothing_else_changes() {
    let mut random = Random(0x57_0036);
    let sources: Vec<(Region, Vec<u8>)> = (0..9).map(|_| random.region()).collect();
    for length in lengths() {
        for count in [0, 1, 2, 3, 4, 5, 8, 9] {
            let (target, before) = random.region();
            let at = random.below(OFFSETS);
            let places: Vec<(&Region, usize)> =
                sources[..count].iter().map(|(region, _)| (region, random.below(OFFSETS))).collect();
            let mut expected = before;
            for byte in 0..length {
                let of =
                    |((_, bytes), (_, place)): (&(Region, Vec<u8>), &(&Region, usize))| bytes[place + byte];
                expected[at + byte] = sources.iter().zip(&places).map(of).fold(0, |sum, byte| sum ^ byte);
            }
            target.xor_from(at, &places, length).unwrap();
            assert!(target.to_vec(0, REGION_BYTES).unwrap() == expected, "{length} bytes of {count}");
        }
    }
}

#[test]
fn a_sum_may_go_onto_one_of_its_sources() {
    let mut random = Random(0x57_0037);
    let (one, bytes) = random.region();
    let (other, others) = random.region();
    one.xor_from(100, &[(&one, 100), (&other, 3)], 9000).unwrap();
    let expected: Vec<u8> = bytes[100..9100].iter().zip(&others[3..9003]).map(|(a, b)| a ^ b).collect();
    assert_eq!(one.to_vec(100, 9000).unwrap(), expected);
}

#[test]
fn places_that_do_not_fit_are_refused_and_nothing_is_written() {
    let mut random = Random(0x57_0038);
    let (target, before) = random.region();
    let (source, _) = random.region();
    let beyond = REGION_BYTES - 99;
    assert!(target.xor_from(0, &[(&source, 0), (&source, beyond)], 100).is_err());
    // The fifth source is summed after the first four. If it is refused, nothing must have been
    // written.
    let last = [(&source, 0), (&source, 1), (&source, 2), (&source, 3), (&source, beyond)];
    assert!(target.xor_from(0, &last, 100).is_err());
    assert!(target.xor_from(beyond, &[(&source, 0)], 100).is_err());
    assert!(target.xor_from(usize::MAX, &[(&source, 0)], 100).is_err());
    assert_eq!(target.to_vec(0, REGION_BYTES).unwrap(), before);
}
