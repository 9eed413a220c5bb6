//! Pairs waiting for their turn.

use std::cmp::Ordering;

/// A pair waiting, with the count it had when it was queued.
#[derive(Clone, Copy)]
pub struct Waiting {
    pub count: u64,
    pub pair: u32,
}

/// A binary heap with the greatest in front, by an order that is given with every call: it depends on tables that
/// change, which the standard library's heap cannot look into.
#[derive(Default)]
pub struct Queue {
    heap: Vec<Waiting>,
}

impl Queue {
    /// Makes room for as many in all.
    pub fn reserve(&mut self, n_waiting: usize) {
        self.heap.reserve_exact(n_waiting.saturating_sub(self.heap.len()));
    }

    pub fn push(&mut self, waiting: Waiting, compare: impl Fn(Waiting, Waiting) -> Ordering) {
        let mut at = self.heap.len();
        self.heap.push(waiting);
        while at > 0 {
            let parent = (at - 1) / 2;
            if compare(self.heap[parent], waiting) != Ordering::Less {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = waiting;
    }

    pub fn pop(&mut self, compare: impl Fn(Waiting, Waiting) -> Ordering) -> Option<Waiting> {
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
