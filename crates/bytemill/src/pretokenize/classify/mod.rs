//! Classifies the bytes of a block: one bit mask per class, in which bit k stands for byte k.
//!
//! Read `classifier` (the operations of an instruction set), `non_ascii` (characters outside ASCII), one
//! implementation (`portable` is the simplest) and `instruction_set` (which one runs).

/// Bytes in a block.
pub const BLOCK_BYTES: usize = 64;

/// The bits of a mask whose positions `holds` accepts, asked from the lowest on.
#[inline(always)]
pub fn filter(mask: u64, mut holds: impl FnMut(usize) -> bool) -> u64 {
    let (mut left, mut found) = (mask, 0);
    while left != 0 {
        let position = left.trailing_zeros();
        left &= left - 1;
        found |= u64::from(holds(position as usize)) << position;
    }
    found
}

#[cfg(target_arch = "x86_64")]
mod avx2;
mod cjk;
mod classifier;
mod instruction_set;
#[cfg(target_arch = "aarch64")]
mod neon;
mod non_ascii;
mod portable;

pub use classifier::{Ascii, Classify, WRITE_WIDTH, Window};
pub use instruction_set::{InstructionSet, Work};
pub use non_ascii::{NonAscii, non_ascii};

#[cfg(test)]
mod tests;
