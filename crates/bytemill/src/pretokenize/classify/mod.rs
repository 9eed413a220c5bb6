//! Classifies the bytes of a block: one bit mask per class, in which bit k stands for byte k.
//!
//! Read `mask` (the masks), `classifier` (the operations of an instruction set), `non_ascii` (characters outside ASCII), one
//! implementation (`portable` is the simplest) and `instruction_set` (which one runs).

/// Bytes in a block.
pub const BLOCK_BYTES: usize = 64;

/// Blocks that are classified at once if all of them are ASCII.
pub const WIDE_BLOCKS: usize = 8;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod classifier;
mod instruction_set;
mod mask;
#[cfg(target_arch = "aarch64")]
mod neon;
mod non_ascii;
mod portable;

pub use classifier::{Ascii, Classify, WRITE_WIDTH, WideWindow, Window, are_ascii};
pub use instruction_set::{InstructionSet, Work};
pub use mask::Mask;
pub use non_ascii::{NonAscii, non_ascii};

#[cfg(test)]
mod tests;
