//! Counted pre-tokens in memory.

use super::part::{Group, LONG, Order, Part, PartBuilder, n_occurrences};
use super::scale::Scale;
use crate::error::{Error, Result};
use crate::hash::long_hash;
use crate::hash::{PACKED_BYTES, pack};
use crate::parallel;
use crate::pulse::{Pulse, no_pulse};
use crate::tally::{Table, random_seed};
use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

/// Words from one mark to the next.
const WORDS_A_MARK: usize = 1 << 10;

/// Unique pre-tokens with their counts, the most frequent first.
///
/// They take their bytes and one byte each: what is equal to the word before, the count, is kept once for many.
#[derive(Clone, Default)]
pub struct Counts {
    part: Part,
    /// Where every 1,024th word is.
    marks: Vec<Mark>,
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

/// A place among the words.
#[derive(Clone, Copy, Default)]
struct Mark {
    byte: usize,
    /// Number of words before it whose length needs more than a byte.
    long: usize,
    group: usize,
    /// Words of the group before it.
    in_group: usize,
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
            table.add_bytes(&pretoken, count, seed);
        }
        let mut counts = Self::add_up(&[table], Scale::ONE, 1, &no_pulse)?;
        counts.n_pretokens = n_pretokens;
        counts.n_bytes = n_bytes;
        Ok(counts)
    }

    /// The tables of all threads in one.
    ///
    /// # Errors
    /// What `pulse` gives.
    pub(super) fn add_up(tables: &[Table], scale: Scale, n_threads: usize, pulse: Pulse) -> Result<Self> {
        // Every thread takes stretches of the tables; an entry is added up where the first table has it. All tables
        // are in the order of the hash, so what is looked up in the others lies side by side too.
        let n_parts = if n_threads > 1 { 8 * n_threads } else { 1 };
        let parts = parallel::map(n_parts, n_threads, pulse, |part, _| {
            let mut counts = PartBuilder::new(Order::Any);
            for (index, table) in tables.iter().enumerate() {
                let (earlier, later) = (&tables[..index], &tables[index + 1..]);
                for slot in table.short(part, n_parts) {
                    let hash = slot.key.hash();
                    if !earlier.iter().any(|table| table.get(slot.key, hash) > 0) {
                        let more: u64 = later.iter().map(|table| table.get(slot.key, hash)).sum();
                        counts.push(&slot.key.bytes()[..slot.key.n_bytes()], scale.round(slot.count + more));
                    }
                }
                for (pretoken, hash, count) in table.long.part(part, n_parts) {
                    if !earlier.iter().any(|table| table.long.get(pretoken, hash) > 0) {
                        let more: u64 = later.iter().map(|table| table.long.get(pretoken, hash)).sum();
                        counts.push(pretoken, scale.round(count + more));
                    }
                }
            }
            Ok(counts.finish())
        })?;
        Ok(Self::from_parts(parts))
    }

    /// The words of all parts in one.
    pub(super) fn from_parts(mut parts: Vec<Part>) -> Self {
        if parts.len() == 1 {
            return Self::from_part(parts.pop().unwrap_or_default());
        }
        let sum = |of: fn(&Part) -> usize| parts.iter().map(of).sum();
        let mut all = Part {
            bytes: Vec::with_capacity(sum(|part| part.bytes.len())),
            lengths: Vec::with_capacity(sum(|part| part.lengths.len())),
            ..Part::default()
        };
        // The groups of all parts, those of a count side by side, and where in its part each begins.
        let mut groups: Vec<(Group, usize, usize, usize, usize)> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let (mut word, mut byte, mut long) = (0, 0, 0);
            for group in &part.groups {
                groups.push((*group, index, word, byte, long));
                long += part.lengths[word..word + group.n_words].iter().filter(|&&length| length == LONG).count();
                word += group.n_words;
                byte += group.n_bytes;
            }
        }
        groups.sort_unstable_by_key(|&(group, index, ..)| (Reverse(group.count), index));
        for (group, index, word, byte, long) in groups {
            let part = &parts[index];
            let lengths = &part.lengths[word..word + group.n_words];
            let n_long = lengths.iter().filter(|&&length| length == LONG).count();
            all.lengths.extend_from_slice(lengths);
            all.bytes.extend_from_slice(&part.bytes[byte..byte + group.n_bytes]);
            all.long.extend_from_slice(&part.long[long..long + n_long]);
            match all.groups.last_mut() {
                Some(last) if last.count == group.count => {
                    last.n_words += group.n_words;
                    last.n_bytes += group.n_bytes;
                }
                _ => all.groups.push(group),
            }
        }
        Self::from_part(all)
    }

    pub(super) fn from_part(part: Part) -> Self {
        let mut marks = Vec::with_capacity(part.lengths.len() / WORDS_A_MARK + 1);
        let mut at = Mark::default();
        for (index, &length) in part.lengths.iter().enumerate() {
            while at.group < part.groups.len() && at.in_group == part.groups[at.group].n_words {
                (at.group, at.in_group) = (at.group + 1, 0);
            }
            if index % WORDS_A_MARK == 0 {
                marks.push(at);
            }
            at.in_group += 1;
            at.byte += if length == LONG { part.long[at.long] } else { usize::from(length) };
            at.long += usize::from(length == LONG);
        }
        Self { part, marks, ..Self::default() }
    }

    /// The same, when it is known that they stand for a text that can be; knows then for how many pre-tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the text would have 2⁶⁴ bytes or more.
    pub(super) fn checked(mut self) -> Result<Self> {
        self.n_pretokens = n_occurrences(self.part.groups.iter())?;
        Ok(self)
    }

    /// Number of unique pre-tokens.
    #[must_use]
    pub fn n_unique(&self) -> usize {
        self.part.lengths.len()
    }

    /// Bytes of all unique pre-tokens.
    #[must_use]
    pub fn n_unique_bytes(&self) -> usize {
        self.part.bytes.len()
    }

    /// Bytes of memory that the counts take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.part.bytes.capacity()
            + self.part.lengths.capacity()
            + self.part.long.capacity() * size_of::<usize>()
            + self.part.groups.capacity() * size_of::<Group>()
            + self.marks.capacity() * size_of::<Mark>()
    }

    /// The counts that occur, falling, and the number of pre-tokens of each.
    pub(super) fn groups(&self) -> &[Group] {
        &self.part.groups
    }

    /// Leaves out the pre-tokens that occur less than `least` times; says how many that were, and how often they occurred.
    pub fn drop_below(&mut self, least: u64) -> (u64, u64) {
        let kept = self.part.groups.partition_point(|group| group.count >= least);
        let sum = |of: fn(&Group) -> usize| self.part.groups[..kept].iter().map(of).sum::<usize>();
        let (n_words, n_bytes) = (sum(|group| group.n_words), sum(|group| group.n_bytes));
        let dropped = self.part.groups[kept..].iter().map(|group| group.count * group.n_words as u64).sum();
        let n_dropped = self.n_unique() - n_words;
        self.part.lengths.truncate(n_words);
        let n_long = self.part.lengths.iter().filter(|&&length| length == LONG).count();
        self.part.long.truncate(n_long);
        self.part.bytes.truncate(n_bytes);
        self.part.groups.truncate(kept);
        self.part.bytes.shrink_to_fit();
        self.part.lengths.shrink_to_fit();
        self.marks.truncate(n_words.div_ceil(WORDS_A_MARK));
        self.n_pretokens = self.n_pretokens.saturating_sub(dropped);
        (n_dropped as u64, dropped)
    }

    /// The pre-tokens and their counts, the most frequent first; of equally frequent ones the order is arbitrary.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.range(0..self.n_unique())
    }

    /// Some of the pre-tokens, by their places in [`Counts::iter`].
    pub(crate) fn range(&self, range: Range<usize>) -> impl Iterator<Item = (&[u8], u64)> {
        let mark = range.start / WORDS_A_MARK;
        let mut words =
            Words { part: &self.part, at: self.marks.get(mark).copied().unwrap_or_default(), word: 0, end: 0 };
        (words.word, words.end) = (mark * WORDS_A_MARK, range.end);
        for _ in words.word..range.start {
            words.next();
        }
        words
    }
}

/// Goes through some words.
struct Words<'c> {
    part: &'c Part,
    at: Mark,
    word: usize,
    end: usize,
}

impl<'c> Iterator for Words<'c> {
    type Item = (&'c [u8], u64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.word >= self.end {
            return None;
        }
        let mut n_bytes = usize::from(self.part.lengths[self.word]);
        self.word += 1;
        if n_bytes == usize::from(LONG) {
            n_bytes = self.part.long[self.at.long];
            self.at.long += 1;
        }
        if self.at.in_group == self.part.groups[self.at.group].n_words {
            (self.at.group, self.at.in_group) = (self.at.group + 1, 0);
        }
        self.at.in_group += 1;
        let start = self.at.byte;
        self.at.byte += n_bytes;
        Some((&self.part.bytes[start..self.at.byte], self.part.groups[self.at.group].count))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.end.saturating_sub(self.word);
        (n, Some(n))
    }
}

impl Table {
    /// Counts a pre-token of any length.
    pub(super) fn add_bytes(&mut self, pretoken: &[u8], count: u64, seed: u64) {
        if pretoken.len() <= PACKED_BYTES {
            let key = pack(pretoken, 0, pretoken.len());
            self.add(key, key.hash(), count);
        } else {
            self.long.add(pretoken, long_hash(pretoken, seed), count);
        }
    }
}
