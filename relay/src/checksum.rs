//! Computes the checksum of a sum (the XOR of slices) from the checksums of its inputs, without
//! reading a byte.
//!
//! CRC-32C is affine: for bytes of equal length, crc(a ^ b) = crc(a) ^ crc(b) ^ crc(zeros). A node
//! that stores a sum also computes the checksum of the bytes that it has written. If both checksums
//! are equal, it has written the XOR of what the client sent.
//!
//! Invariant: all functions are pure.

/// The CRC-32C of `bytes` zeros.
pub(crate) fn of_zeros(bytes: usize) -> u32 {
    append_zeros(0, bytes)
}

/// The CRC-32C of data with the CRC-32C `before`, followed by `bytes` zeros.
pub(crate) fn append_zeros(before: u32, bytes: usize) -> u32 {
    const ZEROS: [u8; 4096] = [0; 4096];
    let whole = (0..bytes / ZEROS.len()).fold(before, |checksum, _| crc32c::crc32c_append(checksum, &ZEROS));
    crc32c::crc32c_append(whole, &ZEROS[..bytes % ZEROS.len()])
}

/// The CRC-32C of the XOR of buffers of equal length, given their CRC-32Cs and that of as many
/// zeros.
pub(crate) fn of_sum(of_zeros: u32, checksums: impl Iterator<Item = u32>) -> u32 {
    let (count, sum) = checksums.fold((0_usize, 0), |(count, sum), checksum| (count + 1, sum ^ checksum));
    if count.is_multiple_of(2) { sum ^ of_zeros } else { sum }
}

/// The CRC-32C of data with the CRC-32C `before`, followed by `bytes` bytes with the CRC-32C
/// `next`.
pub(crate) fn append(before: u32, next: u32, bytes: usize) -> u32 {
    crc32c::crc32c_combine(before, next, bytes)
}

/// As [`append`], for a fixed length. The effect of appended bytes on the checksum before them is
/// linear, so it is tabulated for single bits.
#[derive(Clone, Debug)]
pub(crate) struct AppendTable {
    of_bits: [u32; 32],
}

impl AppendTable {
    /// The table for appending `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { of_bits: std::array::from_fn(|bit| append(1 << bit, 0, bytes)) }
    }

    /// As [`append`].
    pub(crate) fn append(&self, before: u32, next: u32) -> u32 {
        let bit = |(bit, of): (usize, &u32)| if before >> bit & 1 == 1 { *of } else { 0 };
        self.of_bits.iter().enumerate().map(bit).fold(next, |sum, of| sum ^ of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_sum_follows_from_those_of_its_inputs() {
        let mut random = fastrand::Rng::with_seed(0x36);
        for bytes in [0, 1, 63, 4096, 5000, 65536] {
            for count in 0..7 {
                let inputs: Vec<Vec<u8>> =
                    (0..count).map(|_| (0..bytes).map(|_| random.u8(..)).collect()).collect();
                let mut sum = vec![0; bytes];
                for input in &inputs {
                    sum.iter_mut().zip(input).for_each(|(sum, byte)| *sum ^= byte);
                }
                let checksums = inputs.iter().map(|input| crc32c::crc32c(input));
                assert_eq!(of_sum(of_zeros(bytes), checksums), crc32c::crc32c(&sum), "{count} of {bytes}");
            }
        }
    }

    #[test]
    fn the_checksum_of_bytes_behind_others_follows_from_both() {
        let all: Vec<u8> = (0..20_000_u32).map(|at| u8::try_from(at * at % 253).unwrap()).collect();
        for cut in [0, 1, 4096, 10_000, 20_000] {
            let (one, other) = all.split_at(cut);
            let (before, next) = (crc32c::crc32c(one), crc32c::crc32c(other));
            assert_eq!(append(before, next, other.len()), crc32c::crc32c(&all));
            assert_eq!(AppendTable::new(other.len()).append(before, next), crc32c::crc32c(&all));
        }
    }

    #[test]
    fn zeros_behind_bytes_are_counted() {
        let padded: Vec<u8> = b"data".iter().copied().chain([0; 9000]).collect();
        assert_eq!(append_zeros(crc32c::crc32c(b"data"), 9000), crc32c::crc32c(&padded));
    }
}
