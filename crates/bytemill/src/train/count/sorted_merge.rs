//! K-way merge of sorted inputs.

use super::PRETOKENS_PER_CHECK;
use crate::error::Result;
use crate::sys::interrupt::Interrupt;
use crate::train::interrupt_period::InterruptPeriod;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// A sorted sequence that is read entry by entry.
pub trait SortedInput {
    /// Moves to the next entry; false at the end.
    fn advance(&mut self) -> Result<bool>;

    /// Compares the current entries. The lesser one comes first.
    fn compare(&self, other: &Self) -> Ordering;
}

/// Orders inputs for a max-heap with the least entry on top.
struct Head<I>(I);

impl<I: SortedInput> Ord for Head<I> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.compare(&self.0)
    }
}

impl<I: SortedInput> PartialOrd for Head<I> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<I: SortedInput> PartialEq for Head<I> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<I: SortedInput> Eq for Head<I> {}

/// Calls `each` with the input of every entry, in order. `each` may take the entry's contents, but not more.
pub fn merge_sorted<I: SortedInput>(
    inputs: impl Iterator<Item = Result<I>>,
    interrupt: Interrupt,
    mut each: impl FnMut(&mut I) -> Result<()>,
) -> Result<()> {
    let mut heap = BinaryHeap::new();
    for input in inputs {
        let mut input = input?;
        if input.advance()? {
            heap.push(Head(input));
        }
    }
    let mut checks = InterruptPeriod::new(interrupt, PRETOKENS_PER_CHECK);
    while let Some(mut head) = heap.peek_mut() {
        each(&mut head.0)?;
        if !head.0.advance()? {
            PeekMut::pop(head);
        }
        checks.advance(1)?;
    }
    Ok(())
}
