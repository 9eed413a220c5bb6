//! The table in which one thread counts pre-tokens.

use crate::error::{Error, Result};
use crate::sys::hash::{PACKED_BYTES, Packed, long_hash, pack};
use crate::sys::prefetch::prefetch;
use std::hash::BuildHasher;

/// Counts by pre-token: a hash table with linear probing, at most two thirds full, ordered by the high bits of the hash.
///
/// Hashes depend on a seed, so no text can be crafted whose pre-tokens collide. Tables that are added up or merged must
/// have the same seed.
pub struct PretokenCounts {
    seed: u64,
    entries: Vec<Entry>,
    shift: u32,
    n_used: usize,
    /// The long pre-tokens, each after its length.
    long_bytes: Vec<u8>,
}

/// A pre-token and its count; free if the count is 0.
#[derive(Clone, Copy, Default)]
pub struct Entry {
    /// A pre-token of up to [`PACKED_BYTES`] bytes. For a long one (0.5 % of English pre-tokens, 6 % of multilingual
    /// ones), its offset in `long_bytes`, and [`LONG`] with the high bits of its hash.
    pub key: Packed,
    pub count: u64,
}

/// Highest byte of a long pre-token's key. A packed key has its number of bytes there.
const LONG: u64 = 0xFF << 56;

/// Size of the length before a long pre-token.
const LENGTH_BYTES: usize = size_of::<usize>();

/// Bits of the hash that select the partition.
const PARTITION_BITS: u32 = 6;

/// Number of partitions of all pre-tokens by hash.
pub const N_PARTITIONS: usize = 1 << PARTITION_BITS;

/// Pre-tokens that may be added between two calls of [`PretokenCounts::is_full`].
const PRETOKENS_PER_FULL_CHECK: usize = 1 << 12;

impl Entry {
    #[inline]
    pub fn is_long(&self) -> bool {
        self.key.high >= LONG
    }

    /// The hash, without its lowest byte if the pre-token is long.
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        if self.is_long() { self.key.high << 8 } else { self.key.hash_seeded(seed) }
    }
}

impl PretokenCounts {
    pub fn new(seed: u64) -> Self {
        let entries = vec![Entry::default(); 1 << 12];
        Self { seed, shift: shift_for(entries.len()), entries, n_used: 0, long_bytes: Vec::new() }
    }

    /// Makes room for `n_new` new pre-tokens, of which `n_long` are long and have `n_long_bytes` together. Adding more
    /// than that panics or takes forever.
    ///
    /// # Errors
    /// [`Error::Memory`]; the counts are unchanged.
    pub fn reserve(&mut self, n_new: usize, n_long: usize, n_long_bytes: usize) -> Result<()> {
        if 3 * (self.n_used + n_new) > 2 * self.entries.len() {
            self.grow(self.n_used + n_new)?;
        }
        let n_bytes = n_long_bytes + n_long * LENGTH_BYTES;
        self.long_bytes.try_reserve(n_bytes).map_err(|_| Error::memory::<u8>(self.long_bytes.len() + n_bytes))
    }

    #[cold]
    fn grow(&mut self, n_used: usize) -> Result<()> {
        let n_entries = (3 * n_used).div_ceil(2).next_power_of_two();
        let mut entries = Vec::new();
        entries.try_reserve_exact(n_entries).map_err(|_| Error::memory::<Entry>(n_entries))?;
        entries.resize(n_entries, Entry::default());
        let smaller = std::mem::replace(&mut self.entries, entries);
        self.shift = shift_for(n_entries);
        for entry in smaller.into_iter().filter(|entry| entry.count > 0) {
            // All keys differ.
            let at = self.find(entry.hash(self.seed), |_| false);
            self.entries[at] = entry;
        }
        Ok(())
    }

    #[inline]
    fn first_entry(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Index of the entry of a key, or of the free entry where it belongs.
    #[inline]
    fn find(&self, hash: u64, is_key: impl Fn(&Entry) -> bool) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.first_entry(hash);
        loop {
            let entry = &self.entries[at & mask];
            if is_key(entry) || entry.count == 0 {
                return at & mask;
            }
            at += 1;
        }
    }

    #[inline]
    fn find_short(&self, key: Packed, hash: u64) -> usize {
        self.find(hash, |entry| entry.key == key)
    }

    #[inline]
    fn find_long(&self, pretoken: &[u8], hash: u64) -> usize {
        self.find(hash, |entry| entry.key.high == LONG | hash >> 8 && self.long(entry) == pretoken)
    }

    /// Adds to the count of a short pre-token with its hash, `key.hash_seeded(seed)`.
    #[inline]
    pub fn add_short(&mut self, key: Packed, hash: u64, count: u64) {
        self.add_at(self.find_short(key, hash), key, count);
    }

    /// Adds to the count of a long pre-token with its hash, `long_hash(pretoken, seed)`.
    #[inline]
    pub fn add_long(&mut self, pretoken: &[u8], hash: u64, count: u64) {
        let at = self.find_long(pretoken, hash);
        let mut key = self.entries[at].key;
        if self.entries[at].count == 0 {
            key = Packed { low: self.long_bytes.len() as u64, high: LONG | hash >> 8 };
            self.long_bytes.extend_from_slice(&pretoken.len().to_le_bytes());
            self.long_bytes.extend_from_slice(pretoken);
        }
        self.add_at(at, key, count);
    }

    #[inline]
    fn add_at(&mut self, at: usize, key: Packed, count: u64) {
        let entry = &mut self.entries[at];
        self.n_used += usize::from(entry.count == 0);
        *entry = Entry { key, count: entry.count + count };
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
            self.reserve(1, 1, pretoken.len())?;
            self.add_long(pretoken, long_hash(pretoken, self.seed), count);
        }
        Ok(())
    }

    /// The bytes of a long entry.
    #[inline]
    pub fn long(&self, entry: &Entry) -> &[u8] {
        let stored = self.long_bytes[entry.key.low as usize..].split_first_chunk::<LENGTH_BYTES>();
        stored.map_or(&[], |(n_bytes, bytes)| &bytes[..usize::from_le_bytes(*n_bytes)])
    }

    /// The bytes of any entry. Those of a short one are written to `short`.
    #[inline]
    pub fn bytes_of<'e>(&'e self, entry: &Entry, short: &'e mut [u8; 16]) -> &'e [u8] {
        if entry.is_long() {
            return self.long(entry);
        }
        *short = entry.key.bytes();
        &short[..entry.key.n_bytes()]
    }

    /// The count that an entry of another table has in this one, 0 if it is new.
    #[inline]
    pub fn count_of(&self, other: &Self, entry: &Entry) -> u64 {
        let hash = entry.hash(self.seed);
        let at =
            if entry.is_long() { self.find_long(other.long(entry), hash) } else { self.find_short(entry.key, hash) };
        self.entries[at].count
    }

    /// Prefetches the entry of a pre-token.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.entries, self.first_entry(hash));
    }

    /// Part `part` of `n_parts` of the entries.
    pub fn part(&self, part: usize, n_parts: usize) -> impl Iterator<Item = &Entry> {
        let bound = |part| (self.entries.len() as u128 * part as u128 / n_parts as u128) as usize;
        self.entries[bound(part)..bound(part + 1)].iter().filter(|entry| entry.count > 0)
    }

    /// The entries whose hash begins with the bits of `partition`.
    ///
    /// An entry is at its first index or after it, without a free entry in between. So those of a partition lie between
    /// its first index and the first free entry after its last index.
    pub fn partition(&self, partition: usize) -> impl Iterator<Item = &Entry> {
        let n_first = self.entries.len() / N_PARTITIONS;
        let (start, end) = (partition * n_first, (partition + 1) * n_first);
        let (before, behind) = (&self.entries[..start], &self.entries[end..]);
        let overflow = behind.iter().chain(before).take_while(|entry| entry.count > 0);
        let is_inside = move |entry: &&Entry| (entry.hash(self.seed) >> (64 - PARTITION_BITS)) as usize == partition;
        self.entries[start..end].iter().chain(overflow).filter(|entry| entry.count > 0).filter(is_inside)
    }

    /// True if the next pre-tokens might take the table beyond `limit` bytes, including growth.
    pub fn is_full(&self, limit: usize) -> bool {
        let grows = 3 * (self.n_used + PRETOKENS_PER_FULL_CHECK) > 2 * self.entries.len();
        let growth_bytes = if grows { 2 * size_of_val(&*self.entries) } else { 0 };
        self.memory().saturating_add(growth_bytes) > limit
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        // Spare capacity of a vector that was never written takes no memory.
        size_of_val(&*self.entries) + self.long_bytes.len()
    }

    /// Number of different pre-tokens.
    pub fn n_unique(&self) -> usize {
        self.n_used
    }

    /// Upper bound on the bytes of all different pre-tokens.
    pub fn max_pretoken_bytes(&self) -> usize {
        self.n_used * PACKED_BYTES + self.long_bytes.len()
    }

    /// Empties the table, and enlarges it as far as `limit` bytes allow: growing later takes the old table and the new
    /// one at once.
    pub fn clear(&mut self, limit: usize) {
        let mut factor = 1;
        while 2 * factor * self.memory() <= limit {
            factor *= 2;
        }
        let n_entries = factor * self.entries.len();
        // A larger table replaces the old one, which is freed first.
        self.entries.clear();
        if factor > 1 {
            self.entries.shrink_to_fit();
        }
        self.entries.resize(n_entries, Entry::default());
        self.shift = shift_for(n_entries);
        self.n_used = 0;
        self.long_bytes.clear();
    }
}

/// The shift that turns a hash into an index, for a power of two.
fn shift_for(n_entries: usize) -> u32 {
    64 - n_entries.trailing_zeros()
}

/// A seed that the author of a corpus cannot know.
pub fn random_seed() -> u64 {
    std::hash::RandomState::new().hash_one(0)
}

#[cfg(test)]
#[path = "tests/pretoken_counts.rs"]
mod tests;
