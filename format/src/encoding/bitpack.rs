//! Packs 1,024 small numbers into 128 bytes per bit of width, and unpacks them fast.
//!
//! The layout is that of FastLanes (Afroozeh and Boncz, "The FastLanes Compression Layout", VLDB
//! 2023, section 2). Numbers are packed side by side in *lanes*, integers of the narrowest unsigned
//! type that is wide enough, so that compilers vectorise plain loops over the lanes.
//!
//! Invariants
//! - A block of width `w` takes `128 * w` bytes; a width of 0 takes none and means that all numbers
//!   are 0.
//! - The lane type follows from the width ([`Lane::of`]), so it is not stored.
//! - Unpacking any bytes gives numbers below `2^w`, so the result needs no check.

use crate::{
    limits::BLOCK_ROWS,
    simd::{Kernel, Level},
};
use fastlanes::{BitPacking, FastLanes};

/// Bits needed for every number up to `largest`.
#[must_use]
pub fn width_of(largest: u64) -> u8 {
    match u8::try_from(u64::BITS - largest.leading_zeros()) {
        Ok(width) => width,
        Err(_) => unreachable!("a width is at most 64"),
    }
}

/// The largest number of `width` bits; `width` must be at most 64.
#[must_use]
pub fn largest_of(width: u8) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (u64::BITS - u32::from(width)) }
}

/// Bytes of 1,024 packed numbers.
#[must_use]
pub fn packed_bytes(width: u8) -> usize {
    usize::from(width) * BLOCK_ROWS / 8
}

/// The type in which numbers of a width are packed and unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Widths 1 to 8.
    U8,
    /// Widths 9 to 16.
    U16,
    /// Widths 17 to 32.
    U32,
    /// Widths 33 to 64.
    U64,
}

impl Lane {
    /// The narrowest lane that holds numbers of `width` bits.
    #[must_use]
    pub fn of(width: u8) -> Self {
        match width {
            0..=8 => Self::U8,
            9..=16 => Self::U16,
            17..=32 => Self::U32,
            _ => Self::U64,
        }
    }

    /// The largest number a lane holds.
    #[must_use]
    pub fn largest(self) -> u64 {
        match self {
            Self::U8 => u8::MAX.into(),
            Self::U16 => u16::MAX.into(),
            Self::U32 => u32::MAX.into(),
            Self::U64 => u64::MAX,
        }
    }
}

/// A block of unpacked numbers, in the narrowest type. Numbers after a short block's last row are
/// meaningless.
#[derive(Clone, Copy, Debug)]
pub enum Narrow<'s> {
    /// All numbers are 0.
    Constant,
    /// Numbers of up to 8 bits.
    U8(&'s [u8; BLOCK_ROWS]),
    /// Numbers of up to 16 bits.
    U16(&'s [u16; BLOCK_ROWS]),
    /// Numbers of up to 32 bits.
    U32(&'s [u32; BLOCK_ROWS]),
    /// Numbers of up to 64 bits.
    U64(&'s [u64; BLOCK_ROWS]),
}

impl Narrow<'_> {
    /// The number of `row`, which must be below `BLOCK_ROWS`.
    #[must_use]
    pub fn get(&self, row: usize) -> u64 {
        match self {
            Self::Constant => 0,
            Self::U8(lanes) => lanes[row].into(),
            Self::U16(lanes) => lanes[row].into(),
            Self::U32(lanes) => lanes[row].into(),
            Self::U64(lanes) => lanes[row],
        }
    }

    /// The largest of the first `rows` numbers.
    #[must_use]
    pub fn max(&self, rows: usize) -> u64 {
        fn of<L: Copy + Ord + Default + Into<u64>>(lanes: &[L]) -> u64 {
            lanes.iter().copied().fold(L::default(), L::max).into()
        }
        match self {
            Self::Constant => 0,
            Self::U8(lanes) => of(&lanes[..rows]),
            Self::U16(lanes) => of(&lanes[..rows]),
            Self::U32(lanes) => of(&lanes[..rows]),
            Self::U64(lanes) => of(&lanes[..rows]),
        }
    }
}

/// Memory for 1,024 lanes of any type.
pub(crate) type Words = [u64; BLOCK_ROWS];

/// Memory for the lanes of one block: packed (when they are not aligned in the page), unpacked, and
/// summed up.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Scratch {
    pub(crate) aligned: Words,
    pub(crate) lanes: Words,
    pub(crate) sums: Words,
    pub(crate) level: Level,
    pub(crate) unpacked: u64,
}

impl Scratch {
    /// Allocates on the heap, for kernels of [`Level::chosen`]; one per thread is enough.
    #[must_use]
    pub fn new() -> Box<Self> {
        Self::at(Level::chosen())
    }

    /// Allocates on the heap, for kernels of `level`.
    #[must_use]
    pub fn at(level: Level) -> Box<Self> {
        let words = [0; BLOCK_ROWS];
        Box::new(Self { aligned: words, lanes: words, sums: words, level, unpacked: 0 })
    }

    /// The level of kernels.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Blocks unpacked so far with this scratch memory, without constant ones.
    #[must_use]
    pub fn unpacked_blocks(&self) -> u64 {
        self.unpacked
    }
}

/// The first 1,024 lanes of type `L` in the memory of 1,024 words.
pub(crate) fn lanes_of<L: bytemuck::Pod>(words: &mut Words) -> &mut [L; BLOCK_ROWS] {
    let lanes: &mut [L] = bytemuck::cast_slice_mut(words.as_mut_slice());
    lanes.first_chunk_mut().expect("a lane is at most as wide as a word")
}

/// As [`lanes_of`], read-only.
pub(crate) fn lanes_in<L: bytemuck::Pod>(words: &Words) -> &[L; BLOCK_ROWS] {
    bytemuck::cast_slice(words.as_slice()).first_chunk().expect("a lane is at most as wide as a word")
}

/// `bytes` as lanes: in place when they are aligned, otherwise copied to `room`.
fn view<'v, L: bytemuck::Pod>(bytes: &'v [u8], room: &'v mut Words) -> &'v [L] {
    if let Ok(lanes) = bytemuck::try_cast_slice(bytes) {
        return lanes;
    }
    let copy = &mut bytemuck::cast_slice_mut::<u64, u8>(room)[..bytes.len()];
    copy.copy_from_slice(bytes);
    bytemuck::cast_slice(copy)
}

macro_rules! kernels {
    ($($lane:ident $pack:ident $unpack:ident [$($width:literal)*])*) => {$(
        /// The kernel that unpacks lanes of one type.
        struct $unpack<'a> {
            packed: &'a [$lane],
            width: u8,
            lanes: &'a mut [$lane; BLOCK_ROWS],
        }

        impl Kernel for $unpack<'_> {
            type Output = ();

            // `BitPacking::unpack` is the same loop, but it is never inlined, so it would use the
            // base instruction set only.
            #[inline(always)]
            fn run(self) {
                let lanes = self.lanes;
                match self.width {
                    $($width => {
                        const B: usize = BLOCK_ROWS * $width / $lane::BITS as usize;
                        let packed: &[$lane; B] = self.packed.first_chunk().expect("packed_bytes(width) bytes");
                        for lane in 0..<$lane as FastLanes>::LANES {
                            fastlanes::unpack!($lane, $width, packed, lane, |$index, $number| {
                                lanes[$index] = $number
                            });
                        }
                    })*
                    width => unreachable!("width {width} is not packed in these lanes"),
                }
            }
        }

        fn $pack(lanes: &[$lane; BLOCK_ROWS], width: u8, page: &mut Vec<u8>) {
            match width {
                $($width => {
                    const B: usize = BLOCK_ROWS * $width / $lane::BITS as usize;
                    let mut packed = [0; B];
                    <$lane as BitPacking>::pack::<$width, B>(lanes, &mut packed);
                    page.extend_from_slice(bytemuck::cast_slice(&packed));
                })*
                _ => unreachable!("width {width} is not packed in these lanes"),
            }
        }
    )*};
}

kernels! {
    u8 pack_u8 UnpackU8 [1 2 3 4 5 6 7 8]
    u16 pack_u16 UnpackU16 [9 10 11 12 13 14 15 16]
    u32 pack_u32 UnpackU32 [17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32]
    u64 pack_u64 UnpackU64 [33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48
        49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64]
}

/// Unpacks `packed_bytes(width)` bytes into `lanes`; `width` must be at most 64.
pub(crate) fn unpack<'s>(
    level: Level,
    packed: &[u8],
    width: u8,
    aligned: &mut Words,
    lanes: &'s mut Words,
) -> Narrow<'s> {
    if width == 0 {
        return Narrow::Constant;
    }
    match Lane::of(width) {
        Lane::U8 => level.run(UnpackU8 { packed, width, lanes: lanes_of(lanes) }),
        Lane::U16 => level.run(UnpackU16 { packed: view(packed, aligned), width, lanes: lanes_of(lanes) }),
        Lane::U32 => level.run(UnpackU32 { packed: view(packed, aligned), width, lanes: lanes_of(lanes) }),
        Lane::U64 => level.run(UnpackU64 { packed: view(packed, aligned), width, lanes }),
    }
    narrow(Lane::of(width), lanes)
}

/// Views memory that holds lanes of the given type.
pub(crate) fn narrow(lane: Lane, words: &Words) -> Narrow<'_> {
    match lane {
        Lane::U8 => Narrow::U8(lanes_in(words)),
        Lane::U16 => Narrow::U16(lanes_in(words)),
        Lane::U32 => Narrow::U32(lanes_in(words)),
        Lane::U64 => Narrow::U64(words),
    }
}

/// Appends 1,024 numbers of at most `width` bits.
#[expect(clippy::cast_possible_truncation, reason = "a lane holds numbers of its width: Lane::of")]
pub(crate) fn pack(numbers: &Words, width: u8, page: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    match Lane::of(width) {
        Lane::U8 => pack_u8(&numbers.map(|number| number as u8), width, page),
        Lane::U16 => pack_u16(&numbers.map(|number| number as u16), width, page),
        Lane::U32 => pack_u32(&numbers.map(|number| number as u32), width, page),
        Lane::U64 => pack_u64(numbers, width, page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(width: u8) -> Words {
        let mut state = 0x1234_5678_9abc_def1_u64;
        std::array::from_fn(|row| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(row as u64);
            if row == 7 { largest_of(width) } else { state.rotate_left(17) & largest_of(width) }
        })
    }

    #[test]
    fn numbers_of_every_width_come_back_from_128_bytes_per_bit() {
        let mut scratch = Scratch::new();
        for width in 0..=64 {
            let numbers = numbers(width);
            let mut page = Vec::new();
            pack(&numbers, width, &mut page);
            assert_eq!(page.len(), packed_bytes(width));
            for level in Level::available() {
                let narrow = unpack(level, &page, width, &mut scratch.aligned, &mut scratch.lanes);
                assert!((0..BLOCK_ROWS).all(|row| narrow.get(row) == numbers[row]), "width {width}, {level}");
                assert_eq!(narrow.max(BLOCK_ROWS), largest_of(width));
            }
        }
    }

    #[test]
    fn lanes_at_an_odd_address_unpack_as_well() {
        let mut scratch = Scratch::new();
        for width in [9, 17, 33] {
            let numbers = numbers(width);
            let mut page = vec![0];
            pack(&numbers, width, &mut page);
            let narrow = unpack(Level::chosen(), &page[1..], width, &mut scratch.aligned, &mut scratch.lanes);
            assert!((0..BLOCK_ROWS).all(|row| narrow.get(row) == numbers[row]), "width {width}");
        }
    }

    #[test]
    fn a_width_is_the_bits_of_the_largest_number() {
        for (largest, width) in [(0, 0), (1, 1), (255, 8), (256, 9), (u64::MAX, 64)] {
            assert_eq!(width_of(largest), width);
            assert!(largest_of(width) >= largest);
        }
    }
}
