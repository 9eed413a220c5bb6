//! Which class each of 64 bytes belongs to, as bit masks: bit k speaks of byte k.
//!
//! One implementation for each instruction set, chosen once at run time, and a plain one that they are all tested
//! against. The loop over a text is compiled anew for each of them ([`InstructionSet::run`]), so that nothing is called
//! through a pointer and the arithmetic on masks has the processor's bit instructions too.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod eight;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;
mod wide;

use crate::unicode::BitPlanes;
pub use eight::{BLOCKS, EIGHT, Mask, WideWindow, are_ascii};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
pub use wide::{Wide, wide};

/// Bytes that are classified at once.
pub const LANES: usize = 64;

/// Places that are written at once, wanted or not. Most blocks of text have 8 to 16 starts, and to write that many is
/// quicker than a loop whose end the processor cannot foresee.
pub const AT_ONCE: usize = 16;

/// Those bytes and what the last character among them may have behind them.
pub type Window = [u8; LANES + 3];

/// The ASCII classes of 64 bytes, or with another mask than `u64` of more.
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
    /// 0x80 to 0xBF: in UTF-8, all bytes of a character but the first.
    pub continuation: M,
}

/// The first character of those that [`Classify::alike`] is asked for.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Where it starts in the window.
    pub place: usize,
    /// Its bytes, and what follows them.
    pub bytes: [u8; 4],
    /// How many of them are its own, 2 to 4.
    pub n_bytes: usize,
}

/// What makes a contraction of two bytes.
pub const CONTRACTED: [u8; 4] = *b"dmst";

/// What an instruction set does with 64 bytes. The default implementations are the slow twins.
pub trait Classify: Copy {
    /// The masks of eight blocks.
    type Mask: Mask;

    /// Masks of eight blocks from their words.
    fn mask(self, words: [u64; BLOCKS]) -> Self::Mask;

    fn ascii(self, window: &Window) -> Ascii;

    /// [`Classify::ascii`] of eight blocks in which there is nothing but ASCII.
    #[inline(always)]
    fn ascii_of_eight(self, window: &WideWindow) -> Ascii<Self::Mask> {
        eight::ascii_by_blocks(self, window)
    }

    /// Where in the window there are characters of three bytes in the ranges of [`wide::PLAIN`], all of them letters
    /// without case. Bits that are not on a first byte have no meaning.
    #[inline(always)]
    fn plain_letters(self, window: &Window) -> u64 {
        (0..LANES).filter(|&k| wide::is_plain(window[k], window[k + 1])).fold(0, |mask, k| mask | 1 << k)
    }

    /// Where in the window there is a letter that makes a contraction with an apostrophe before it: d, m, s or t, in upper case too
    /// if `any_case`.
    #[inline(always)]
    fn contracted(self, window: &Window, any_case: bool) -> u64 {
        let care = if any_case { !0x20 } else { !0 };
        (0..LANES)
            .filter(|&k| CONTRACTED.iter().any(|letter| (letter ^ window[k]) & care == 0))
            .fold(0, |mask, k| mask | 1 << k)
    }

    /// Where in the window there are characters that differ from the sample in the last seven bits of their code points
    /// at most, or some of them, the sample included; and with the three planes of classes of those 128 code points, the
    /// three bits of their classes. Bits that are not on a first byte have no meaning.
    #[inline(always)]
    fn alike(self, _window: &Window, sample: Sample, planes: &BitPlanes) -> (u64, [u64; 3]) {
        let low_bits = sample.bytes[sample.n_bytes - 2] << 6 & 0x40 | sample.bytes[sample.n_bytes - 1] & 0x3F;
        let bit = |plane: [u8; 16]| u64::from(plane[usize::from(low_bits >> 3)] >> (low_bits & 7) & 1) << sample.place;
        (1 << sample.place, planes.map(bit))
    }

    /// Writes the places of the bits of `mask`, counted from `at`, to the front of `room`, and overwrites no more than
    /// [`AT_ONCE`] numbers behind them. `room` is for 64 and those.
    #[inline(always)]
    fn write_places(self, at: usize, mut mask: u64, room: &mut [MaybeUninit<usize>]) {
        for some in room.chunks_exact_mut(AT_ONCE) {
            for place in some {
                // As a vector the sixteen sums are slower: the numbers come one by one.
                place.write(at + opaque(mask.trailing_zeros().into()) as usize);
                mask &= mask.wrapping_sub(1);
            }
            if mask == 0 {
                break;
            }
        }
    }
}

/// The same number, of which the compiler does not know where it comes from.
///
/// Else it takes the rules' arithmetic for arithmetic on vectors of 64 Booleans, and with AVX2, which has none, takes
/// these apart byte by byte: splitting is then half as slow again.
#[inline(always)]
pub fn opaque(number: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut number = number;
        // SAFETY: there is no instruction in it.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
        number
    }
    #[cfg(not(target_arch = "x86_64"))]
    number
}

/// Something to be done with 64 bytes at a time.
pub trait Work {
    type Output;

    /// To be marked `#[inline(always)]`, so that it is compiled for the instruction set in question.
    fn run(self, classify: impl Classify) -> Self::Output;
}

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug)]
pub enum InstructionSet {
    Portable(portable::Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
}

impl InstructionSet {
    /// The quickest on this processor.
    pub fn best() -> Self {
        static BEST: OnceLock<InstructionSet> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().copied().unwrap_or(Self::Portable(portable::Portable)))
    }

    /// All that this processor has, the slowest first.
    pub fn available() -> Vec<Self> {
        let all = [
            Some(Self::Portable(portable::Portable)),
            #[cfg(target_arch = "x86_64")]
            avx2::Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            avx512::Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "aarch64")]
            Some(Self::Neon(neon::Neon)),
        ];
        all.into_iter().flatten().collect()
    }

    /// Whether it has registers for eight blocks at once. Without, the same arithmetic in plain ones takes a tenth longer than one
    /// block after the other.
    pub fn is_wide(self) -> bool {
        match self {
            Self::Portable(_) => false,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) | Self::Avx512(_) => true,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => false,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Portable(_) => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "NEON",
        }
    }

    /// Does the work with the instructions of this set.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Portable(portable) => work.run(portable),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.run(work),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(neon) => work.run(neon),
        }
    }
}
