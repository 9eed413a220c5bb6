//! A table of counts that one thread keeps.

use crate::hash::Packed;
use crate::prefetch::prefetch;
use std::collections::HashMap;

#[derive(Clone, Copy, Default)]
pub struct Slot {
    pub key: Packed,
    pub count: u64,
}

/// Counts of the pre-tokens one thread has seen: short ones by their packed bytes with linear probing, long ones in a
/// map of their own (0.5 % of English pre-tokens, 6 % of multilingual ones).
pub struct Table {
    slots: Vec<Slot>,
    shift: u32,
    n_used: usize,
    pub long: HashMap<Box<[u8]>, u64>,
}

impl Table {
    pub fn new() -> Self {
        Self::with_slots(1 << 12)
    }

    fn with_slots(n_slots: usize) -> Self {
        let shift = 64 - n_slots.trailing_zeros();
        Self { slots: vec![Slot::default(); n_slots], shift, n_used: 0, long: HashMap::new() }
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    pub fn add(&mut self, key: Packed, hash: u64, count: u64) {
        let mask = self.slots.len() - 1;
        let mut at = self.place(hash);
        loop {
            let slot = &mut self.slots[at & mask];
            if slot.key == key {
                slot.count += count;
                return;
            }
            if slot.count == 0 {
                *slot = Slot { key, count };
                self.n_used += 1;
                if 3 * self.n_used > 2 * self.slots.len() {
                    self.grow();
                }
                return;
            }
            at += 1;
        }
    }

    pub fn add_long(&mut self, pretoken: &[u8], count: u64) {
        if let Some(known) = self.long.get_mut(pretoken) {
            *known += count;
        } else {
            self.long.insert(pretoken.into(), count);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_slots(2 * self.slots.len());
        for slot in self.slots.drain(..).filter(|slot| slot.count > 0) {
            larger.add(slot.key, slot.key.hash(), slot.count);
        }
        larger.long = std::mem::take(&mut self.long);
        *self = larger;
    }

    /// Asks for the slot of a hash ahead of time.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.slots, self.place(hash));
    }

    /// Number of different short pre-tokens.
    pub fn n_short(&self) -> usize {
        self.n_used
    }

    /// The short pre-tokens.
    pub fn short(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.count > 0)
    }
}
