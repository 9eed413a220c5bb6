//! How often each word occurs.

use std::ops::Range;

/// Where the words of each count begin.
#[derive(Default)]
pub struct Groups {
    /// First slot of the words of each count, ascending.
    starts: Vec<u32>,
    /// The counts, falling.
    counts: Vec<u64>,
    /// For each run of 256 slots, the place in `starts` of its first slot.
    hints: Vec<u32>,
}

/// Bytes of a group, beside its hints.
pub const GROUP_BYTES: u64 = 12;
/// Bytes of hints for as many slots.
pub const HINT_BYTES: u64 = 4;
pub const SLOTS_A_HINT: usize = 256;

impl Groups {
    pub fn with_capacity(n_groups: usize) -> Self {
        Self { starts: Vec::with_capacity(n_groups), counts: Vec::with_capacity(n_groups), hints: Vec::new() }
    }

    pub fn n_groups(&self) -> usize {
        self.starts.len()
    }

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

    pub fn set_hints(&mut self, n_slots: usize) {
        let hinted = (0..n_slots + SLOTS_A_HINT).step_by(SLOTS_A_HINT);
        self.hints = Vec::with_capacity(hinted.len());
        let mut hint = 0;
        for start in hinted {
            while hint + 1 < self.starts.len() && self.starts[hint + 1] as usize <= start {
                hint += 1;
            }
            self.hints.push(hint as u32);
        }
    }

    /// How often the word at a place occurs, and the place where words that occur less often begin.
    #[inline]
    pub fn at(&self, place: usize) -> (u64, usize) {
        let hint = place / SLOTS_A_HINT;
        let (first, last) = (self.hints[hint] as usize, self.hints[hint + 1] as usize);
        let group = first + self.starts[first + 1..=last].partition_point(|&start| start as usize <= place);
        (self.counts[group], self.starts.get(group + 1).map_or(usize::MAX, |&start| start as usize))
    }

    /// The groups that lie in a range of slots, cut to the range, with their counts.
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
