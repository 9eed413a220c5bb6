//! What the rules need to know about the characters before a block.

/// Flags are 1 if the last character before the block is of the class, else 0.
#[derive(Clone, Copy, Default)]
pub struct Carry {
    pub letter: u64,
    /// The last letter with case is lower case, and only letters without case and marks follow it.
    pub lower: u64,
    /// A letter without case or a mark.
    pub uncased: u64,
    pub blank: u64,
    pub space: u64,
    /// A line break that others have not absorbed.
    pub newline: u64,
    /// A line break or slash that others have absorbed.
    pub absorbed: u64,
    pub other: u64,
    /// It is the first character of a run of others, a pre-token starts there, and a word may follow in it.
    pub lone_other: u64,
    /// One of the ASCII letters after such a character.
    pub led: u64,
    pub stray: u64,
    pub isolated: u64,
    pub digit: u64,
    /// Digits in the group that reaches up to the block.
    pub n_digits: u32,
    /// Starts that a contraction in the block before removes from this one, and those that it adds.
    pub no_start: u64,
    pub start: u64,
    /// End of the last contraction, 0 before the first.
    pub contraction_end: usize,
}
