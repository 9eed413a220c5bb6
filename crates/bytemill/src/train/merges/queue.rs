//! Priority queue of pairs.

use std::cmp::Ordering;

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
