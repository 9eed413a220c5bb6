//! A hash table from pairs of symbols to values, and a priority queue of pairs.

use crate::sys::hash::hash_pair;
use crate::sys::prefetch::prefetch;
use std::cmp::Ordering;

/// Key of a free entry. No symbol has this number.
const EMPTY: (u32, u32) = (u32::MAX, u32::MAX);

/// A hash table with linear probing, at most half full. Unlike the table of the standard library, it can prefetch an
/// entry into the cache.
pub struct PairMap<V> {
    entries: Vec<((u32, u32), V)>,
    shift: u32,
    n_used: usize,
}

impl<V: Copy + Default> PairMap<V> {
    pub fn with_capacity(n_pairs: usize) -> Self {
        let n_entries = (2 * n_pairs).next_power_of_two().max(1 << 8);
        let shift = 64 - n_entries.trailing_zeros();
        Self { entries: vec![(EMPTY, V::default()); n_entries], shift, n_used: 0 }
    }

    pub fn n_pairs(&self) -> usize {
        self.n_used
    }

    #[inline]
    fn first_entry(&self, left: u32, right: u32) -> usize {
        (hash_pair(left, right) >> self.shift) as usize
    }

    /// Index of the pair's entry, or of the free entry where it belongs.
    #[inline]
    fn find(&self, left: u32, right: u32) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.first_entry(left, right);
        loop {
            let key = self.entries[at & mask].0;
            if key == (left, right) || key == EMPTY {
                return at & mask;
            }
            at += 1;
        }
    }

    #[inline]
    pub fn get(&self, left: u32, right: u32) -> Option<V> {
        let (key, value) = self.entries[self.find(left, right)];
        (key != EMPTY).then_some(value)
    }

    /// The value of a pair, inserting the default if the pair is new.
    #[inline]
    pub fn entry(&mut self, left: u32, right: u32) -> &mut V {
        self.entry_or(left, right, V::default())
    }

    /// The value of a pair, inserting `new` if the pair is new.
    #[inline]
    pub fn entry_or(&mut self, left: u32, right: u32, new: V) -> &mut V {
        let mut at = self.find(left, right);
        if self.entries[at].0 == EMPTY {
            if 2 * self.n_used >= self.entries.len() {
                self.grow();
                at = self.find(left, right);
            }
            self.entries[at] = ((left, right), new);
            self.n_used += 1;
        }
        &mut self.entries[at].1
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_capacity(self.entries.len());
        for ((left, right), value) in self.iter() {
            *larger.entry(left, right) = value;
        }
        *self = larger;
    }

    /// Prefetches the entry of a pair.
    #[inline]
    pub fn prefetch(&self, left: u32, right: u32) {
        prefetch(&self.entries, self.first_entry(left, right));
    }

    pub fn iter(&self) -> impl Iterator<Item = ((u32, u32), V)> {
        self.entries.iter().copied().filter(|(key, _)| *key != EMPTY)
    }
}

/// A pair with the count that it had when it was queued.
#[derive(Clone, Copy)]
pub struct QueuedPair {
    pub count: u64,
    pub pair: u32,
}

/// A binary max-heap whose order is passed with every call. The order depends on tables that change between calls, so
/// the heap of the standard library does not fit.
#[derive(Default)]
pub struct Queue {
    heap: Vec<QueuedPair>,
}

impl Queue {
    /// Reserves memory for `n_pairs` in total.
    pub fn reserve(&mut self, n_pairs: usize) {
        self.heap.reserve_exact(n_pairs.saturating_sub(self.heap.len()));
    }

    pub fn push(&mut self, queued: QueuedPair, compare: impl Fn(QueuedPair, QueuedPair) -> Ordering) {
        let mut at = self.heap.len();
        self.heap.push(queued);
        while at > 0 {
            let parent = (at - 1) / 2;
            if compare(self.heap[parent], queued) != Ordering::Less {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = queued;
    }

    pub fn pop(&mut self, compare: impl Fn(QueuedPair, QueuedPair) -> Ordering) -> Option<QueuedPair> {
        let last = self.heap.pop()?;
        let Some(&first) = self.heap.first() else { return Some(last) };
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && compare(self.heap[child + 1], self.heap[child]) == Ordering::Greater {
                child += 1;
            }
            if compare(last, self.heap[child]) != Ordering::Less {
                break;
            }
            self.heap[at] = self.heap[child];
            at = child;
        }
        self.heap[at] = last;
        Some(first)
    }
}

#[cfg(test)]
#[path = "tests/pair_map.rs"]
mod tests;
