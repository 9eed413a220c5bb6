//! What a merge changes at the neighbours of the merged pair.

/// The changes of a merge on one side.
#[derive(Default)]
pub struct Neighbours {
    /// By neighbouring symbol.
    pub changes: Vec<Change>,
    /// The symbols with a change.
    pub changed: Vec<u32>,
    /// (neighbour, position of the new pair), ascending by position.
    pub positions: Vec<(u32, u32)>,
}

/// [`Change::pair`] of a pair that is not tracked.
pub const NOT_TRACKED: u32 = u32::MAX;

/// The change of a merge for one neighbouring symbol.
#[derive(Clone, Copy, Default)]
pub struct Change {
    /// Occurrences in the corpus.
    pub count: u64,
    /// Occurrences in the slots.
    pub n_positions: u32,
    /// The new pair, or [`NOT_TRACKED`].
    pub pair: u32,
}

impl Neighbours {
    pub fn new(n_merges: usize) -> Self {
        let mut changes = Vec::with_capacity(256 + n_merges);
        changes.resize(256, Change::default());
        Self { changes, ..Self::default() }
    }

    /// Adds an occurrence next to `symbol`.
    #[inline]
    pub fn add(&mut self, symbol: u32, position: usize, count: u64) {
        let change = &mut self.changes[symbol as usize];
        if change.n_positions == 0 {
            self.changed.push(symbol);
        }
        change.count += count;
        change.n_positions += 1;
        self.positions.push((symbol, position as u32));
    }
}
