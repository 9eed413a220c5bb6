//! The counts of pre-tokens, by slot.

use std::ops::Range;

/// Equally frequent pre-tokens form a group of adjacent slots, the most frequent first.
#[derive(Default)]
pub struct Groups {
    /// First slot of each group, ascending. The number of slots fits into 32 bits.
    starts: Vec<u32>,
    /// Count of each group, descending.
    counts: Vec<u64>,
}

/// Bytes per group.
pub const GROUP_BYTES: u64 = 12;

impl Groups {
    pub fn with_capacity(n_groups: usize) -> Self {
        Self { starts: Vec::with_capacity(n_groups), counts: Vec::with_capacity(n_groups) }
    }

    pub fn n_groups(&self) -> usize {
        self.starts.len()
    }

    /// Adds a group, unless the last group has the same count.
    pub fn push(&mut self, start: usize, count: u64) {
        if self.counts.last() != Some(&count) {
            self.starts.push(start as u32);
            self.counts.push(count);
        }
    }

    /// First slots and counts.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.starts.iter().map(|&start| start as usize).zip(self.counts.iter().copied())
    }

    /// The count of the pre-token at a slot, and the slot where the next group begins.
    #[inline]
    pub fn at(&self, slot: usize) -> (u64, usize) {
        let next = self.starts.partition_point(|&start| start as usize <= slot);
        (self.counts[next - 1], self.starts.get(next).map_or(usize::MAX, |&start| start as usize))
    }

    /// The groups in a range of slots, clipped to the range, with their counts.
    pub fn within(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, u64)> {
        let first = self.starts.partition_point(|&start| start as usize <= range.start).saturating_sub(1);
        (first..self.starts.len())
            .map(move |group| {
                let end = self.starts.get(group + 1).map_or(range.end, |&next| (next as usize).min(range.end));
                ((self.starts[group] as usize).max(range.start)..end, self.counts[group])
            })
            .take_while(|(slots, _)| !slots.is_empty())
    }
}
