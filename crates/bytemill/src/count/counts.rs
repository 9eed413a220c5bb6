//! What counting gives.

use crate::error::{Error, Result};
use crate::hash::long_hash;
use crate::hash::{PACKED_BYTES, pack};
use crate::parallel;
use crate::pulse::{Pulse, no_pulse};
use crate::tally::{Table, random_seed};
use std::ops::Range;
use std::time::Duration;

/// Unique pre-tokens with their counts, the most frequent first.
#[derive(Default)]
pub struct Counts {
    /// The pre-tokens' bytes.
    bytes: Vec<u8>,
    words: Vec<Word>,
    /// Bytes of text counted.
    pub n_bytes: u64,
    /// Pre-tokens counted.
    pub n_pretokens: u64,
    /// Special tokens met with.
    pub n_special: u64,
    /// Malformed sequences replaced by U+FFFD.
    pub n_replaced: u64,
    /// Time spent reading and in checking UTF-8, while others counted.
    pub reading: Duration,
}

#[derive(Clone, Copy)]
struct Word {
    count: u64,
    start: usize,
    n_bytes: usize,
}

impl Counts {
    /// Counts given by the caller; equal pre-tokens are added up, empty ones and counts of zero left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the text that they stand for has 2⁶⁴ bytes or more: some pair's count might overflow.
    pub fn from_items(items: impl Iterator<Item = (Vec<u8>, u64)>) -> Result<Self> {
        let seed = random_seed();
        let mut table = Table::new();
        let (mut n_pretokens, mut n_bytes) = (0u64, 0u64);
        for (pretoken, count) in items.filter(|(pretoken, count)| !pretoken.is_empty() && *count > 0) {
            let text_bytes = count.checked_mul(pretoken.len() as u64).and_then(|more| n_bytes.checked_add(more));
            let Some(text_bytes) = text_bytes else {
                return Err(Error::Invalid("the counts are too large: they stand for 2^64 bytes of text".to_owned()));
            };
            n_bytes = text_bytes;
            n_pretokens += count;
            if pretoken.len() <= PACKED_BYTES {
                let key = pack(&pretoken, 0, pretoken.len());
                table.add(key, key.hash(), count);
            } else {
                let hash = long_hash(&pretoken, seed);
                table.long.add(&pretoken, hash, count);
            }
        }
        let mut counts = Self::add_up(&[table], 1, &no_pulse)?;
        counts.n_pretokens = n_pretokens;
        counts.n_bytes = n_bytes;
        Ok(counts)
    }

    /// The tables of all threads in one.
    ///
    /// # Errors
    /// What `pulse` gives.
    pub(super) fn add_up(tables: &[Table], n_threads: usize, pulse: Pulse) -> Result<Self> {
        // Every thread takes stretches of the tables; an entry is added up where the first table has it. All tables
        // are in the order of the hash, so what is looked up in the others lies side by side too.
        let n_parts = if n_threads > 1 { 8 * n_threads } else { 1 };
        let parts = parallel::map(n_parts, n_threads, pulse, |part, _| {
            let mut counts = Self::default();
            for (index, table) in tables.iter().enumerate() {
                let (earlier, later) = (&tables[..index], &tables[index + 1..]);
                for slot in table.short(part, n_parts) {
                    let hash = slot.key.hash();
                    if !earlier.iter().any(|table| table.get(slot.key, hash) > 0) {
                        let more: u64 = later.iter().map(|table| table.get(slot.key, hash)).sum();
                        counts.push(&slot.key.bytes()[..slot.key.n_bytes()], slot.count + more);
                    }
                }
                for (pretoken, hash, count) in table.long.part(part, n_parts) {
                    if !earlier.iter().any(|table| table.long.get(pretoken, hash) > 0) {
                        let more: u64 = later.iter().map(|table| table.long.get(pretoken, hash)).sum();
                        counts.push(pretoken, count + more);
                    }
                }
            }
            Ok(counts)
        })?;
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            let before = all.bytes.len();
            all.bytes.extend_from_slice(&part.bytes);
            all.words.extend(part.words.iter().map(|word| Word { start: before + word.start, ..*word }));
        }
        all.words.sort_unstable_by_key(|word| std::cmp::Reverse(word.count));
        Ok(all)
    }

    fn push(&mut self, pretoken: &[u8], count: u64) {
        self.words.push(Word { count, start: self.bytes.len(), n_bytes: pretoken.len() });
        self.bytes.extend_from_slice(pretoken);
    }

    /// Number of unique pre-tokens.
    #[must_use]
    pub fn n_unique(&self) -> usize {
        self.words.len()
    }

    /// Bytes of all unique pre-tokens.
    #[must_use]
    pub fn n_unique_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The pre-tokens and their counts, the most frequent first; of equally frequent ones the order is arbitrary.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.range(0..self.words.len())
    }

    /// Some of the pre-tokens, by their places in [`Counts::iter`].
    pub(crate) fn range(&self, range: Range<usize>) -> impl Iterator<Item = (&[u8], u64)> {
        self.words[range].iter().map(|word| (&self.bytes[word.start..word.start + word.n_bytes], word.count))
    }
}
