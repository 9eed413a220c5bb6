//! The two caches of backtracking, both of fixed size: offsets that lead nowhere, and which symbols can be adjacent.

/// Offsets known to end no symbol of the pre-token.
///
/// The table has a fixed size: blocks of offsets far apart overwrite each other, and backtracking finds a lost offset again.
pub(super) struct DeadEnds {
    /// Block numbers, and a bit for each of a block's 64 offsets.
    blocks: Vec<(usize, u64)>,
    max_blocks: usize,
    n_bytes: usize,
    /// The greatest offset inserted so far.
    furthest: usize,
}

impl DeadEnds {
    /// For a pre-token of `n_bytes`, with at most `max_blocks` blocks, a power of two. Allocates with the first dead end.
    pub(super) fn new(n_bytes: usize, max_blocks: usize) -> Self {
        Self { blocks: Vec::new(), max_blocks, n_bytes, furthest: 0 }
    }

    #[inline]
    pub(super) fn contains(&self, offset: usize) -> bool {
        if offset > self.furthest || self.blocks.is_empty() {
            return false;
        }
        let (block, offsets) = self.blocks[(offset / 64) & (self.blocks.len() - 1)];
        block == offset / 64 && offsets >> (offset % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, offset: usize) {
        if self.blocks.is_empty() {
            let n_blocks = (self.n_bytes / 64 + 1).next_power_of_two().min(self.max_blocks);
            self.blocks.resize(n_blocks, (usize::MAX, 0));
        }
        let mask = self.blocks.len() - 1;
        let block = &mut self.blocks[(offset / 64) & mask];
        if block.0 != offset / 64 {
            *block = (offset / 64, 0);
        }
        block.1 |= 1 << (offset % 64);
        self.furthest = self.furthest.max(offset);
    }
}

/// Direct-mapped cache: whether two symbols can be adjacent.
pub(super) struct AdjacencyCache {
    entries: Vec<u64>,
    shift: u32,
}

impl AdjacencyCache {
    /// Shorter pre-tokens have little repetition, and filling the table would cost more than it saves.
    const MIN_BYTES: usize = 1 << 10;

    /// `n_entries` is a power of two above 1.
    pub(super) fn new(n_bytes: usize, n_entries: usize) -> Self {
        let n_entries = if n_bytes < Self::MIN_BYTES.min(n_entries) { 0 } else { n_entries };
        // No entry has all bits set, since a symbol has 21.
        Self { entries: vec![u64::MAX; n_entries], shift: 64 - n_entries.trailing_zeros() % 64 }
    }

    #[inline]
    pub(super) fn get_or_compute(&mut self, left: u32, right: u32, compute: impl FnOnce() -> bool) -> bool {
        let key = u64::from(left) << 21 | u64::from(right);
        let index = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift.min(63);
        let Some(entry) = self.entries.get_mut(index as usize) else { return compute() };
        if *entry >> 1 != key {
            *entry = key << 1 | u64::from(compute());
        }
        *entry & 1 == 1
    }
}
