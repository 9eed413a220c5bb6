//! The table in which one thread counts pre-tokens.

use crate::error::{Error, Result};
use crate::sys::hash::{PACKED_BYTES, Packed, long_hash, pack};
use crate::sys::prefetch::prefetch;
use std::hash::BuildHasher;
use std::ops::Range;

/// Counts by pre-token: short pre-tokens as packed keys, long ones (0.5 % of English pre-tokens, 6 % of multilingual
/// ones) in a table of their own with their bytes behind each other.
///
/// Hashes depend on a seed, so no text can be crafted whose pre-tokens collide. Tables that are added up or merged must
/// have the same seed.
pub struct PretokenCounts {
    seed: u64,
    short: Table<ShortEntry>,
    long: Table<LongEntry>,
    long_bytes: Vec<u8>,
}

/// A pre-token of up to [`PACKED_BYTES`] bytes.
#[derive(Clone, Copy, Default)]
pub struct ShortEntry {
    pub key: Packed,
    pub count: u64,
}

/// A longer pre-token: `long_bytes[start..start + n_bytes]`.
#[derive(Clone, Copy, Default)]
pub struct LongEntry {
    hash: u64,
    count: u64,
    start: usize,
    n_bytes: usize,
}

/// Bits of the hash that select the partition.
const PARTITION_BITS: u32 = 6;

/// Number of partitions of all pre-tokens by hash.
pub const N_PARTITIONS: usize = 1 << PARTITION_BITS;

/// Pre-tokens that may be added between two calls of [`PretokenCounts::is_full`].
const PRETOKENS_PER_FULL_CHECK: usize = 1 << 12;

impl PretokenCounts {
    pub fn new(seed: u64) -> Self {
        Self { seed, short: Table::new(1 << 12), long: Table::new(1 << 8), long_bytes: Vec::new() }
    }

    /// Makes room for `n_short` new short pre-tokens, and `n_long` long ones of `n_long_bytes` together. Adding more than
    /// that panics or takes forever.
    ///
    /// # Errors
    /// [`Error::Memory`]; the table is unchanged.
    pub fn reserve(&mut self, n_short: usize, n_long: usize, n_long_bytes: usize) -> Result<()> {
        self.short.reserve(n_short, self.seed)?;
        self.long.reserve(n_long, self.seed)?;
        self.long_bytes.try_reserve(n_long_bytes).map_err(|_| Error::memory::<u8>(self.long_bytes.len() + n_long_bytes))
    }

    /// Adds to the count of a short pre-token with its hash, `key.hash_seeded(seed)`.
    #[inline]
    pub fn add_short(&mut self, key: Packed, hash: u64, count: u64) {
        let at = self.short.find(hash, |entry| entry.key == key);
        let entry = &mut self.short.entries[at];
        if entry.count > 0 {
            entry.count += count;
        } else {
            self.short.insert(at, ShortEntry { key, count });
        }
    }

    /// Adds to the count of a long pre-token with its hash, `long_hash(pretoken, seed)`.
    #[inline]
    pub fn add_long(&mut self, pretoken: &[u8], hash: u64, count: u64) {
        let at = self.find_long(pretoken, hash);
        let entry = &mut self.long.entries[at];
        if entry.count > 0 {
            entry.count += count;
        } else {
            let entry = LongEntry { hash, count, start: self.long_bytes.len(), n_bytes: pretoken.len() };
            self.long_bytes.extend_from_slice(pretoken);
            self.long.insert(at, entry);
        }
    }

    /// Adds to the count of a pre-token of any length.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn add(&mut self, pretoken: &[u8], count: u64) -> Result<()> {
        if pretoken.len() <= PACKED_BYTES {
            self.reserve(1, 0, 0)?;
            let key = pack(pretoken, 0, pretoken.len());
            self.add_short(key, key.hash_seeded(self.seed), count);
        } else {
            self.reserve(0, 1, pretoken.len())?;
            self.add_long(pretoken, long_hash(pretoken, self.seed), count);
        }
        Ok(())
    }

    #[inline]
    fn find_long(&self, pretoken: &[u8], hash: u64) -> usize {
        self.long.find(hash, |entry| entry.hash == hash && self.bytes_of(entry) == pretoken)
    }

    #[inline]
    fn bytes_of(&self, entry: &LongEntry) -> &[u8] {
        &self.long_bytes[entry.start..entry.start + entry.n_bytes]
    }

    /// The count of a short pre-token, 0 if it is new.
    #[inline]
    pub fn get_short(&self, key: Packed, hash: u64) -> u64 {
        self.short.entries[self.short.find(hash, |entry| entry.key == key)].count
    }

    /// The count of a long pre-token, 0 if it is new.
    pub fn get_long(&self, pretoken: &[u8], hash: u64) -> u64 {
        self.long.entries[self.find_long(pretoken, hash)].count
    }

    /// Prefetches the entry of a short pre-token.
    #[inline]
    pub fn prefetch_short(&self, hash: u64) {
        prefetch(&self.short.entries, self.short.first_entry(hash));
    }

    /// Prefetches the entry of a long pre-token.
    #[inline]
    pub fn prefetch_long(&self, hash: u64) {
        prefetch(&self.long.entries, self.long.first_entry(hash));
    }

    /// Part `part` of `n_parts` of the short pre-tokens, with their hashes.
    pub fn short_part(&self, part: usize, n_parts: usize) -> impl Iterator<Item = (&ShortEntry, u64)> {
        self.short.part(part, n_parts).map(|entry| (entry, entry.hash(self.seed)))
    }

    /// Part `part` of `n_parts` of the long pre-tokens, with their hashes and counts.
    pub fn long_part(&self, part: usize, n_parts: usize) -> impl Iterator<Item = (&[u8], u64, u64)> {
        self.long.part(part, n_parts).map(|entry| (self.bytes_of(entry), entry.hash, entry.count))
    }

    /// The short pre-tokens of a partition.
    pub fn short_in(&self, partition: usize) -> impl Iterator<Item = &ShortEntry> {
        self.short.partition(partition, self.seed)
    }

    /// The long pre-tokens of a partition and their counts.
    pub fn long_in(&self, partition: usize) -> impl Iterator<Item = (&[u8], u64)> {
        self.long.partition(partition, self.seed).map(|entry| (self.bytes_of(entry), entry.count))
    }

    /// True if the next pre-tokens might take the table beyond `limit` bytes, including growth.
    pub fn is_full(&self, limit: usize) -> bool {
        self.memory().saturating_add(self.short.growth_bytes()).saturating_add(self.long.growth_bytes()) > limit
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        // Spare capacity of a vector that was never written takes no memory.
        self.short.memory() + self.long.memory() + self.long_bytes.len()
    }

    /// Number of different pre-tokens.
    pub fn n_unique(&self) -> usize {
        self.short.n_used + self.long.n_used
    }

    /// Upper bound on the bytes of all different pre-tokens.
    pub fn max_pretoken_bytes(&self) -> usize {
        self.short.n_used * PACKED_BYTES + self.long_bytes.len()
    }

    /// Empties the table, and enlarges it as far as `limit` bytes allow: growing later takes the old table and the new
    /// one at once.
    pub fn clear(&mut self, limit: usize) {
        let mut factor = 1;
        while 2 * factor * self.memory() <= limit {
            factor *= 2;
        }
        self.short.clear(factor);
        self.long.clear(factor);
        self.long_bytes.clear();
    }
}

/// An entry of a [`Table`]; free if its count is 0.
trait Entry: Copy + Default {
    fn count(&self) -> u64;
    fn hash(&self, seed: u64) -> u64;
}

impl Entry for ShortEntry {
    #[inline]
    fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        self.key.hash_seeded(seed)
    }
}

impl Entry for LongEntry {
    #[inline]
    fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    fn hash(&self, _seed: u64) -> u64 {
        self.hash
    }
}

/// A hash table with linear probing, at most two thirds full, ordered by the high bits of the hash.
struct Table<E> {
    entries: Vec<E>,
    shift: u32,
    n_used: usize,
}

impl<E: Entry> Table<E> {
    fn new(n_entries: usize) -> Self {
        Self { entries: vec![E::default(); n_entries], shift: 64 - n_entries.trailing_zeros(), n_used: 0 }
    }

    #[inline]
    fn first_entry(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Index of the entry of a key, or of the free entry where it belongs.
    #[inline]
    fn find(&self, hash: u64, is_key: impl Fn(&E) -> bool) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.first_entry(hash);
        loop {
            let entry = &self.entries[at & mask];
            if is_key(entry) || entry.count() == 0 {
                return at & mask;
            }
            at += 1;
        }
    }

    /// Fills a free entry.
    #[inline]
    fn insert(&mut self, at: usize, entry: E) {
        self.entries[at] = entry;
        self.n_used += 1;
    }

    /// Makes room for `n` more entries.
    #[inline]
    fn reserve(&mut self, n: usize, seed: u64) -> Result<()> {
        if 3 * (self.n_used + n) > 2 * self.entries.len() { self.grow(self.n_used + n, seed) } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self, n_used: usize, seed: u64) -> Result<()> {
        let mut n_entries = 2 * self.entries.len();
        while 3 * n_used > 2 * n_entries {
            n_entries *= 2;
        }
        let mut entries = Vec::new();
        entries.try_reserve_exact(n_entries).map_err(|_| Error::memory::<E>(n_entries))?;
        entries.resize(n_entries, E::default());
        let mut larger = Self { entries, shift: 64 - n_entries.trailing_zeros(), n_used: self.n_used };
        for entry in self.entries.iter().filter(|entry| entry.count() > 0) {
            // All keys differ.
            let at = larger.find(entry.hash(seed), |_| false);
            larger.entries[at] = *entry;
        }
        *self = larger;
        Ok(())
    }

    /// Empties the table and multiplies its size.
    fn clear(&mut self, factor: usize) {
        if factor == 1 {
            self.entries.fill(E::default());
            self.n_used = 0;
        } else {
            let n_entries = factor * self.entries.len();
            // Free the old entries first.
            self.entries = Vec::new();
            *self = Self::new(n_entries);
        }
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// Bytes of the larger table if the table might have to grow soon.
    fn growth_bytes(&self) -> usize {
        let grows = 3 * (self.n_used + PRETOKENS_PER_FULL_CHECK) > 2 * self.entries.len();
        if grows { 2 * self.memory() } else { 0 }
    }

    fn part(&self, part: usize, n_parts: usize) -> impl Iterator<Item = &E> {
        self.entries[part_of(self.entries.len(), part, n_parts)].iter().filter(|entry| entry.count() > 0)
    }

    /// The entries whose hash begins with the bits of `partition`.
    ///
    /// An entry is at its first index or after it, without a free entry in between. So those of a partition lie between
    /// its first index and the first free entry after its last index.
    fn partition(&self, partition: usize, seed: u64) -> impl Iterator<Item = &E> {
        let n_first = self.entries.len() / N_PARTITIONS;
        let (start, end) = (partition * n_first, (partition + 1) * n_first);
        let (before, behind) = (&self.entries[..start], &self.entries[end..]);
        let overflow = behind.iter().chain(before).take_while(|entry| entry.count() > 0);
        let is_inside = move |entry: &&E| (entry.hash(seed) >> (64 - PARTITION_BITS)) as usize == partition;
        self.entries[start..end].iter().chain(overflow).filter(|entry| entry.count() > 0).filter(is_inside)
    }
}

fn part_of(n: usize, part: usize, n_parts: usize) -> Range<usize> {
    let bound = |part| (n as u128 * part as u128 / n_parts as u128) as usize;
    bound(part)..bound(part + 1)
}

/// A seed that the author of a corpus cannot know.
pub fn random_seed() -> u64 {
    std::hash::RandomState::new().hash_one(0)
}

#[cfg(test)]
#[path = "tests/pretoken_counts.rs"]
mod tests;
