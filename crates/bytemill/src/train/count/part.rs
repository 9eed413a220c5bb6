//! Counted pre-tokens, sorted by count.

use crate::error::{Error, Result};
use std::cmp::Reverse;

/// Adjacent pre-tokens with the same count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    pub count: u64,
    pub n_pretokens: usize,
    pub n_bytes: usize,
}

/// Length byte of pre-tokens whose length is in [`Part::long`].
pub const LONG: u8 = u8::MAX;

/// Pre-tokens with their counts, the most frequent first: their concatenated bytes and one byte for each length.
#[derive(Clone, Default)]
pub struct Part {
    pub bytes: Vec<u8>,
    pub lengths: Vec<u8>,
    /// The lengths that do not fit into a byte, in order.
    pub long: Vec<usize>,
    pub groups: Vec<Group>,
}

impl Part {
    pub fn push(&mut self, pretoken: &[u8], count: u64) {
        self.add_to_groups(Group { count, n_pretokens: 1, n_bytes: pretoken.len() });
        match u8::try_from(pretoken.len()) {
            Ok(n_bytes) if n_bytes < LONG => self.lengths.push(n_bytes),
            _ => {
                self.lengths.push(LONG);
                self.long.push(pretoken.len());
            }
        }
        self.bytes.extend_from_slice(pretoken);
    }

    /// Appends the next pre-tokens of another part; `at` advances behind them.
    pub fn push_group(&mut self, other: &Self, group: Group, at: &mut Offset) {
        let lengths = &other.lengths[at.pretoken..at.pretoken + group.n_pretokens];
        let n_long = n_long(lengths);
        self.lengths.extend_from_slice(lengths);
        self.bytes.extend_from_slice(&other.bytes[at.byte..at.byte + group.n_bytes]);
        self.long.extend_from_slice(&other.long[at.long..at.long + n_long]);
        at.pretoken += group.n_pretokens;
        at.byte += group.n_bytes;
        at.long += n_long;
        self.add_to_groups(group);
    }

    /// Extends the last group if it has the same count.
    #[inline]
    fn add_to_groups(&mut self, group: Group) {
        match self.groups.last_mut() {
            Some(last) if last.count == group.count => {
                last.n_pretokens += group.n_pretokens;
                last.n_bytes += group.n_bytes;
            }
            _ => self.groups.push(group),
        }
    }

    /// Joins parts into one.
    pub fn concat(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.pop().unwrap_or_default();
        }
        let total = |of: fn(&Self) -> usize| parts.iter().map(of).sum();
        let mut all = Self {
            bytes: Vec::with_capacity(total(|part| part.bytes.len())),
            lengths: Vec::with_capacity(total(|part| part.lengths.len())),
            ..Self::default()
        };
        let groups =
            parts.iter().enumerate().flat_map(|(index, part)| part.groups.iter().map(move |&group| (group, index)));
        let mut groups: Vec<(Group, usize)> = groups.collect();
        groups.sort_by_key(|&(group, _)| Reverse(group.count));
        // Within a part, groups stay in order, so one offset per part suffices.
        let mut offsets = vec![Offset::default(); parts.len()];
        for (group, index) in groups {
            all.push_group(&parts[index], group, &mut offsets[index]);
        }
        all
    }

    /// Keeps the first `n_groups` groups.
    pub fn truncate(&mut self, n_groups: usize) {
        self.groups.truncate(n_groups);
        let total = |of: fn(&Group) -> usize| self.groups.iter().map(of).sum::<usize>();
        let (n_pretokens, n_bytes) = (total(|group| group.n_pretokens), total(|group| group.n_bytes));
        self.lengths.truncate(n_pretokens);
        self.bytes.truncate(n_bytes);
        self.long.truncate(n_long(&self.lengths));
        self.shrink();
    }

    /// Frees spare memory.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.lengths.shrink_to_fit();
        self.long.shrink_to_fit();
        self.groups.shrink_to_fit();
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
            + self.lengths.capacity()
            + self.long.capacity() * size_of::<usize>()
            + self.groups.capacity() * size_of::<Group>()
    }

    /// The pre-tokens and their counts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let counts = self.groups.iter().flat_map(|group| std::iter::repeat_n(group.count, group.n_pretokens));
        let (mut at, mut long) = (0, self.long.iter());
        self.lengths.iter().zip(counts).map(move |(&length, count)| {
            let n_bytes = if length == LONG { long.next().copied().unwrap_or(0) } else { usize::from(length) };
            let start = at;
            at += n_bytes;
            (&self.bytes[start..at], count)
        })
    }
}

fn n_long(lengths: &[u8]) -> usize {
    lengths.iter().filter(|&&length| length == LONG).count()
}

/// An offset in each list of a [`Part`].
#[derive(Clone, Copy, Default)]
pub struct Offset {
    pretoken: usize,
    byte: usize,
    long: usize,
}

/// Pre-tokens with a smaller count are put into one list per count and need no sorting; these are nine of ten.
const N_BUCKETS: usize = 16;

/// Builds a [`Part`] from pre-tokens in any order. Equally frequent ones keep their order.
#[derive(Default)]
pub struct PartBuilder {
    /// One list per small count.
    buckets: [Part; N_BUCKETS],
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    count: u64,
    start: usize,
    n_bytes: usize,
}

impl PartBuilder {
    pub fn push(&mut self, pretoken: &[u8], count: u64) {
        if count < N_BUCKETS as u64 {
            self.buckets[count as usize].push(pretoken, count);
            return;
        }
        self.entries.push(Entry { count, start: self.bytes.len(), n_bytes: pretoken.len() });
        self.bytes.extend_from_slice(pretoken);
    }

    pub fn finish(mut self) -> Part {
        let bytes = &self.bytes;
        let bytes_of = |entry: &Entry| &bytes[entry.start..entry.start + entry.n_bytes];
        self.entries.sort_unstable_by_key(|entry| (Reverse(entry.count), entry.start));
        let bucketed = |of: fn(&Part) -> usize| self.buckets.iter().map(of).sum::<usize>();
        let mut part = Part {
            bytes: Vec::with_capacity(bytes.len() + bucketed(|part| part.bytes.len())),
            lengths: Vec::with_capacity(self.entries.len() + bucketed(|part| part.lengths.len())),
            ..Part::default()
        };
        for entry in &self.entries {
            part.push(bytes_of(entry), entry.count);
        }
        for bucket in self.buckets.iter_mut().rev() {
            // Taken, so that each is freed once it is copied.
            let bucket = std::mem::take(bucket);
            for &group in &bucket.groups {
                part.push_group(&bucket, group, &mut Offset::default());
            }
        }
        part
    }
}

/// Number of pre-token occurrences that groups stand for.
///
/// # Errors
/// [`Error::Invalid`] if their text has 2⁶⁴ bytes or more, because pair counts might overflow.
pub fn n_occurrences<'g>(groups: impl Iterator<Item = &'g Group>) -> Result<u64> {
    let (mut n_pretokens, mut n_bytes) = (0u64, 0u64);
    for group in groups {
        let more = u128::from(group.count) * group.n_bytes as u128;
        let total = u64::try_from(more).ok().and_then(|more| n_bytes.checked_add(more));
        n_bytes = total.ok_or_else(text_too_large)?;
        // No pre-token is empty, so there are at most as many as bytes.
        n_pretokens += group.count * group.n_pretokens as u64;
    }
    Ok(n_pretokens)
}

/// The error for counts whose text has 2⁶⁴ bytes or more.
pub fn text_too_large() -> Error {
    Error::Invalid("the counts are too large: they stand for at least 2^64 bytes of text".to_owned())
}

/// The error for weighted counts that add up to 2⁶⁴ or more.
pub fn sum_too_large() -> Error {
    Error::Invalid("the counts are too large: with their weights they add up to at least 2^64".to_owned())
}
