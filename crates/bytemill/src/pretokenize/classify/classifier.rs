//! What each instruction set implements: [`Classify`], with the reference implementation as its default methods.

use super::mask::Mask;
use super::{BLOCK_BYTES, WIDE_BLOCKS};
use crate::text::unicode::BitPlanes;
use std::mem::MaybeUninit;

/// A block and the bytes that its last character may extend over.
pub type Window = [u8; BLOCK_BYTES + 3];

/// Eight blocks and the bytes that their last character may extend over.
pub type WideWindow = [u8; WIDE_BLOCKS * BLOCK_BYTES + 3];

/// Positions that are written at once, needed or not. Most blocks of text have 8 to 16 starts, and writing that many is faster than
/// a loop with an unpredictable end.
pub const WRITE_WIDTH: usize = 16;

/// ASCII classes of the bytes of one block, or of eight with a wider mask.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ascii<M = u64> {
    /// `A-Z` and `a-z`.
    pub letter: M,
    /// `A-Z`.
    pub upper: M,
    /// `0-9`.
    pub digit: M,
    /// The blank, `' '`.
    pub blank: M,
    /// Tab, vertical tab, form feed.
    pub tab: M,
    /// Carriage return and line feed.
    pub newline: M,
    /// `'`
    pub apostrophe: M,
    /// `/`
    pub slash: M,
    /// 0x80 and above.
    pub high: M,
    /// 0x80 to 0xBF: in UTF-8, every byte of a character but the first.
    pub continuation: M,
}

/// A character outside ASCII whose page is looked up. A page is 128 consecutive code points.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Offset in the window.
    pub offset: usize,
    /// Its bytes and those that follow.
    pub bytes: [u8; 4],
    /// How many of the bytes are its own, 2 to 4.
    pub n_bytes: usize,
}

/// The operations on a block that depend on the instruction set.
pub trait Classify: Copy {
    /// Masks of eight blocks.
    type Mask: Mask<Words = [u64; WIDE_BLOCKS]>;

    /// Builds a mask of eight blocks.
    fn mask(self, words: [u64; WIDE_BLOCKS]) -> Self::Mask;

    /// Classifies the bytes of a block.
    fn ascii(self, window: &Window) -> Ascii;

    /// Classifies the bytes of eight blocks that are all ASCII.
    #[inline(always)]
    fn wide_ascii(self, window: &WideWindow) -> Ascii<Self::Mask> {
        let blocks: [Ascii; WIDE_BLOCKS] = std::array::from_fn(|k| {
            let window = window[BLOCK_BYTES * k..].first_chunk();
            window.map_or_else(Ascii::default, |window| self.ascii(window))
        });
        let mask = |class: fn(&Ascii) -> u64| self.mask(blocks.each_ref().map(class));
        Ascii {
            letter: mask(|block| block.letter),
            upper: mask(|block| block.upper),
            digit: mask(|block| block.digit),
            blank: mask(|block| block.blank),
            tab: mask(|block| block.tab),
            newline: mask(|block| block.newline),
            apostrophe: mask(|block| block.apostrophe),
            slash: mask(|block| block.slash),
            high: mask(|block| block.high),
            continuation: mask(|block| block.continuation),
        }
    }

    /// Finds the characters in the [`CJK`] ranges. Only bits of first bytes are meaningful.
    #[inline(always)]
    fn cjk(self, window: &Window) -> u64 {
        u64::MAX.filter(|k| is_cjk(window[k], window[k + 1]))
    }

    /// Finds characters on the page of `sample`, at least the sample itself, and looks up the three bits of their classes in the
    /// page's bit planes. Only bits of first bytes are meaningful.
    #[inline(always)]
    fn page(self, _window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
        let low_bits = sample.bytes[sample.n_bytes - 2] << 6 & 0x40 | sample.bytes[sample.n_bytes - 1] & 0x3F;
        let bit = |plane: [u8; 16]| u64::from(plane[usize::from(low_bits >> 3)] >> (low_bits & 7) & 1) << sample.offset;
        (1 << sample.offset, planes.map(bit))
    }

    /// Writes the positions of the bits of `mask`, plus `offset`, to the front of `room`. May overwrite up to [`WRITE_WIDTH`]
    /// entries after them; `room` has at least 64 entries more than that.
    #[inline(always)]
    fn write_positions(self, offset: usize, mut mask: u64, room: &mut [MaybeUninit<usize>]) {
        for entries in room.chunks_exact_mut(WRITE_WIDTH) {
            for entry in entries {
                // Opaque, since sixteen sums as a vector are slower.
                entry.write(offset + opaque(mask.trailing_zeros().into()) as usize);
                mask &= mask.wrapping_sub(1);
            }
            if mask == 0 {
                break;
            }
        }
    }
}

/// Whether all eight blocks are ASCII.
#[inline(always)]
pub fn are_ascii(window: &WideWindow) -> bool {
    window[..WIDE_BLOCKS * BLOCK_BYTES].iter().fold(0, |any, byte| any | byte) < 0x80
}

/// Returns its argument and hides from the compiler how it was computed.
///
/// Otherwise LLVM turns the rules' arithmetic on masks into operations on vectors of 64 booleans. AVX2 has none, so it takes them
/// apart byte by byte, and splitting takes half as long again.
#[inline(always)]
pub fn opaque(number: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut number = number;
        // SAFETY: the assembly contains no instruction.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
        number
    }
    #[cfg(not(target_arch = "x86_64"))]
    number
}

/// Implements the methods of a trait by functions or closures compiled for CPU features.
///
/// The inner function has the features that the type proves, and a closure inherits them. So the compiler checks that what is called
/// is safe and enables no others.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! implement {
    ($features:literal, $trait:ident for $type:ident {
        $(type $associated:ident = $value:ty;)?
        $(fn $method:ident(self $(, $argument:ident: $of:ty)*) -> $output:ty = $function:expr;)+
    }) => {
        impl $trait for $type {
            $(type $associated = $value;)?
            $(
                #[inline(always)]
                fn $method(self $(, $argument: $of)*) -> $output {
                    #[inline]
                    #[target_feature(enable = $features)]
                    fn compiled(this: $type $(, $argument: $of)*) -> $output {
                        ($function)(this $(, $argument)*)
                    }
                    // SAFETY: the type is a token or contains one, and a token exists only if `detect` has found these features.
                    unsafe { compiled(self $(, $argument)*) }
                }
            )+
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use implement;

// CJK ideographs and Hangul syllables: large ranges of letters without case, known by their first two bytes.

/// For each lead byte E0 to EF, the first and last second byte of a range in which every character is a letter without case. The
/// range is empty where there is none.
pub struct Ranges {
    pub first: [u8; 16],
    pub last: [u8; 16],
}

/// Leaves out the ideographs that share a lead byte with the hexagrams (E4), and the last 36 Hangul syllables.
pub static CJK: Ranges = Ranges {
    first: *b"\xFF\xFF\xFF\x90\xB8\x80\x80\x80\x80\x80\xB0\x80\x80\x80\xFF\xFF",
    last: *b"\x00\x00\x00\xBF\xBF\xBF\xBF\xBF\xBF\xBF\xBF\xBF\xBF\x9D\x00\x00",
};

/// Whether a character with these first two bytes is in [`CJK`].
#[inline(always)]
pub fn is_cjk(lead: u8, second: u8) -> bool {
    let k = usize::from(lead & 0x0F);
    lead & 0xF0 == 0xE0 && second >= CJK.first[k] && second <= CJK.last[k]
}
