//! A table of counts that one thread keeps.

use crate::hash::{PACKED_BYTES, Packed};
use crate::prefetch::prefetch;
use std::hash::BuildHasher;
use std::ops::Range;

#[derive(Clone, Copy, Default)]
pub struct Slot {
    pub key: Packed,
    pub count: u64,
}

/// Counts of the pre-tokens one thread has seen: short ones by their packed bytes with linear probing, long ones in a
/// table of their own (0.5 % of English pre-tokens, 6 % of multilingual ones).
pub struct Table {
    slots: Vec<Slot>,
    shift: u32,
    n_used: usize,
    pub long: LongTable,
}

impl Table {
    pub fn new() -> Self {
        Self { slots: vec![Slot::default(); 1 << 12], shift: 64 - 12, n_used: 0, long: LongTable::new() }
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Where a key is, or the free slot where it would go.
    #[inline]
    fn find(&self, key: Packed, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.place(hash);
        loop {
            let slot = &self.slots[at & mask];
            if slot.key == key || slot.count == 0 {
                return at & mask;
            }
            at += 1;
        }
    }

    #[inline]
    pub fn add(&mut self, key: Packed, hash: u64, count: u64) {
        let at = self.find(key, hash);
        let slot = &mut self.slots[at];
        if slot.count == 0 {
            slot.key = key;
            slot.count = count;
            self.n_used += 1;
            if 3 * self.n_used > 2 * self.slots.len() {
                self.grow();
            }
        } else {
            slot.count += count;
        }
    }

    /// The count of a key, 0 where it has not been seen.
    #[inline]
    pub fn get(&self, key: Packed, hash: u64) -> u64 {
        self.slots[self.find(key, hash)].count
    }

    #[cold]
    fn grow(&mut self) {
        let n_slots = 2 * self.slots.len();
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); n_slots]);
        self.shift -= 1;
        for slot in old.into_iter().filter(|slot| slot.count > 0) {
            let at = self.find(slot.key, slot.key.hash());
            self.slots[at] = slot;
        }
    }

    /// Asks for the slot of a hash ahead of time.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.slots, self.place(hash));
    }

    /// True where the next pre-tokens might take the table beyond `limit` bytes, also while it grows.
    pub fn is_full(&self, limit: usize) -> bool {
        let growth = growth::<Slot>(self.n_used, self.slots.len())
            .saturating_add(growth::<LongSlot>(self.long.n_used, self.long.slots.len()));
        self.memory().saturating_add(growth) > limit
    }

    /// Bytes that the table takes.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.slots) + self.long.memory()
    }

    /// Number of different pre-tokens.
    pub fn n_unique(&self) -> usize {
        self.n_used + self.long.n_used
    }

    /// Most bytes that all different pre-tokens have together.
    pub fn n_bytes_at_most(&self) -> usize {
        self.n_used * PACKED_BYTES + self.long.bytes.len()
    }

    /// Begins afresh with an empty table that holds as much, or more where that fits into `limit` bytes.
    pub fn clear(&mut self, limit: usize) {
        let (mut n_short, mut n_long) = (self.slots.len(), self.long.slots.len());
        // To grow takes the old table beside the new one; to begin with a larger one does not.
        let (mut short, mut long) = (size_of_val(&*self.slots), self.long.memory());
        while 2 * (short + long) <= limit {
            (n_short, n_long, short, long) = (2 * n_short, 2 * n_long, 2 * short, 2 * long);
        }
        if n_short == self.slots.len() {
            self.slots.fill(Slot::default());
            self.long.slots.fill(LongSlot::default());
        } else {
            self.slots = Vec::new();
            self.slots = vec![Slot::default(); n_short];
            self.long.slots = Vec::new();
            self.long.slots = vec![LongSlot::default(); n_long];
        }
        self.shift = 64 - n_short.trailing_zeros();
        self.long.shift = 64 - n_long.trailing_zeros();
        self.long.bytes.clear();
        (self.n_used, self.long.n_used) = (0, 0);
    }

    /// The short pre-tokens whose hash begins with the bits of `partition`.
    ///
    /// A key stands at its place or behind it, with no free slot between. So all of a partition stand from its first place
    /// on, up to the first free slot at or behind its last.
    pub fn short_of(&self, partition: usize) -> impl Iterator<Item = &Slot> {
        stretch(&self.slots, partition, |slot| slot.count == 0)
            .filter(move |slot| slot.count > 0 && partition_of(slot.key.hash()) == partition)
    }

    /// One of `n_parts` parts of the short pre-tokens.
    pub fn short(&self, part: usize, n_parts: usize) -> impl Iterator<Item = &Slot> {
        self.slots[part_of(self.slots.len(), part, n_parts)].iter().filter(|slot| slot.count > 0)
    }
}

/// Counts of byte strings of any length, which are kept one after the other.
pub struct LongTable {
    slots: Vec<LongSlot>,
    shift: u32,
    n_used: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct LongSlot {
    hash: u64,
    count: u64,
    start: usize,
    n_bytes: usize,
}

impl LongTable {
    fn new() -> Self {
        Self { slots: vec![LongSlot::default(); 1 << 8], shift: 64 - 8, n_used: 0, bytes: Vec::new() }
    }

    #[inline]
    fn find(&self, pretoken: &[u8], hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = &self.slots[at & mask];
            if slot.count == 0 || slot.hash == hash && self.bytes_of(slot) == pretoken {
                return at & mask;
            }
            at += 1;
        }
    }

    #[inline]
    fn bytes_of(&self, slot: &LongSlot) -> &[u8] {
        &self.bytes[slot.start..slot.start + slot.n_bytes]
    }

    pub fn add(&mut self, pretoken: &[u8], hash: u64, count: u64) {
        let at = self.find(pretoken, hash);
        if self.slots[at].count > 0 {
            self.slots[at].count += count;
            return;
        }
        self.slots[at] = LongSlot { hash, count, start: self.bytes.len(), n_bytes: pretoken.len() };
        self.bytes.extend_from_slice(pretoken);
        self.n_used += 1;
        if 3 * self.n_used > 2 * self.slots.len() {
            self.grow();
        }
    }

    /// The count of a pre-token, 0 where it has not been seen.
    pub fn get(&self, pretoken: &[u8], hash: u64) -> u64 {
        self.slots[self.find(pretoken, hash)].count
    }

    #[cold]
    fn grow(&mut self) {
        let n_slots = 2 * self.slots.len();
        let old = std::mem::replace(&mut self.slots, vec![LongSlot::default(); n_slots]);
        self.shift -= 1;
        for slot in old.into_iter().filter(|slot| slot.count > 0) {
            // All are different, so the first free slot is the one.
            let mut at = (slot.hash >> self.shift) as usize;
            while self.slots[at & (n_slots - 1)].count > 0 {
                at += 1;
            }
            self.slots[at & (n_slots - 1)] = slot;
        }
    }

    fn memory(&self) -> usize {
        // What a growing vector has and does not use takes no memory yet.
        size_of_val(&*self.slots) + self.bytes.len()
    }

    /// The pre-tokens whose hash begins with the bits of `partition`, with their counts; see [`Table::short_of`].
    pub fn of(&self, partition: usize) -> impl Iterator<Item = (&[u8], u64)> {
        stretch(&self.slots, partition, |slot| slot.count == 0)
            .filter(move |slot| slot.count > 0 && partition_of(slot.hash) == partition)
            .map(|slot| (self.bytes_of(slot), slot.count))
    }

    /// Asks for the slot of a hash ahead of time.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.slots, (hash >> self.shift) as usize);
    }

    /// One of `n_parts` parts of the pre-tokens, with their hashes and counts.
    pub fn part(&self, part: usize, n_parts: usize) -> impl Iterator<Item = (&[u8], u64, u64)> {
        let slots = &self.slots[part_of(self.slots.len(), part, n_parts)];
        slots.iter().filter(|slot| slot.count > 0).map(|slot| (self.bytes_of(slot), slot.hash, slot.count))
    }
}

/// Bits of the hash that tell partitions apart.
const PARTITION_BITS: u32 = 6;

/// Number of partitions of all pre-tokens, by their hash.
pub const N_PARTITIONS: usize = 1 << PARTITION_BITS;

/// Pre-tokens that may come between two questions whether a table is full.
const ROOM: usize = 1 << 12;

fn partition_of(hash: u64) -> usize {
    (hash >> (64 - PARTITION_BITS)) as usize
}

/// Bytes that a table takes while it grows, if it has to grow soon.
fn growth<S>(n_used: usize, n_slots: usize) -> usize {
    if 3 * (n_used + ROOM) > 2 * n_slots { 2 * n_slots * size_of::<S>() } else { 0 }
}

/// The slots in which all of a partition are: those of its places, and those behind them up to the first free one.
fn stretch<S>(slots: &[S], partition: usize, is_free: fn(&S) -> bool) -> impl Iterator<Item = &S> {
    let n_places = slots.len() / N_PARTITIONS;
    let (start, end) = (partition * n_places, (partition + 1) * n_places);
    let (before, behind) = (&slots[..start], &slots[end..]);
    slots[start..end].iter().chain(behind.iter().chain(before).take_while(move |slot| !is_free(slot)))
}

fn part_of(n: usize, part: usize, n_parts: usize) -> Range<usize> {
    let at = |part| (n as u128 * part as u128 / n_parts as u128) as usize;
    at(part)..at(part + 1)
}

/// A seed that nobody who writes a corpus knows.
pub fn random_seed() -> u64 {
    std::hash::RandomState::new().hash_one(0)
}
