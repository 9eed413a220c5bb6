//! Counted pre-tokens of one part of all, in order.

use crate::error::{Error, Result};
use std::cmp::Reverse;

/// Pre-tokens of one count that lie side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    pub count: u64,
    pub n_words: usize,
    pub n_bytes: usize,
}

/// Bytes of a pre-token that are written as they are in one byte; for more it says [`LONG`].
pub const LONG: u8 = u8::MAX;

/// Pre-tokens with their counts, the most frequent first: their bytes one after the other, and a byte for the length
/// of each.
#[derive(Clone, Default)]
pub struct Part {
    pub bytes: Vec<u8>,
    pub lengths: Vec<u8>,
    /// The lengths that need more than a byte, in order.
    pub long: Vec<usize>,
    pub groups: Vec<Group>,
}

impl Part {
    pub fn push(&mut self, word: &[u8], count: u64) {
        match self.groups.last_mut() {
            Some(group) if group.count == count => {
                group.n_words += 1;
                group.n_bytes += word.len();
            }
            _ => self.groups.push(Group { count, n_words: 1, n_bytes: word.len() }),
        }
        match u8::try_from(word.len()) {
            Ok(n_bytes) if n_bytes < LONG => self.lengths.push(n_bytes),
            _ => {
                self.lengths.push(LONG);
                self.long.push(word.len());
            }
        }
        self.bytes.extend_from_slice(word);
    }

    /// Gives back memory that was taken ahead of time.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.lengths.shrink_to_fit();
        self.long.shrink_to_fit();
        self.groups.shrink_to_fit();
    }

    /// The words and their counts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let counts = self.groups.iter().flat_map(|group| std::iter::repeat_n(group.count, group.n_words));
        let (mut at, mut long) = (0, self.long.iter());
        self.lengths.iter().zip(counts).map(move |(&length, count)| {
            let n_bytes = if length == LONG { long.next().copied().unwrap_or(0) } else { usize::from(length) };
            let start = at;
            at += n_bytes;
            (&self.bytes[start..at], count)
        })
    }
}

/// Words that occur less often than this have a place for each count: nine of ten words are such, and need not be sorted.
const RARE: usize = 16;

/// Takes words in any order.
pub struct PartBuilder {
    order: Order,
    /// By count, where equally frequent words may stand as they come.
    rare: [Part; RARE],
    bytes: Vec<u8>,
    words: Vec<Word>,
}

#[derive(Clone, Copy)]
struct Word {
    count: u64,
    start: usize,
    n_bytes: usize,
}

/// How equally frequent words are ordered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they came.
    Any,
    /// By their bytes.
    Bytes,
}

impl PartBuilder {
    pub fn new(order: Order) -> Self {
        Self { order, rare: Default::default(), bytes: Vec::new(), words: Vec::new() }
    }

    pub fn push(&mut self, word: &[u8], count: u64) {
        if self.order == Order::Any && count < RARE as u64 {
            self.rare[count as usize].push(word, count);
            return;
        }
        self.words.push(Word { count, start: self.bytes.len(), n_bytes: word.len() });
        self.bytes.extend_from_slice(word);
    }

    pub fn finish(mut self) -> Part {
        let bytes = &self.bytes;
        let of = |word: &Word| &bytes[word.start..word.start + word.n_bytes];
        match self.order {
            Order::Any => self.words.sort_unstable_by_key(|word| (Reverse(word.count), word.start)),
            Order::Bytes => {
                self.words
                    .sort_unstable_by(|one, other| other.count.cmp(&one.count).then_with(|| of(one).cmp(of(other))));
            }
        }
        let rare = |of: fn(&Part) -> usize| self.rare.iter().map(of).sum::<usize>();
        let mut part = Part {
            bytes: Vec::with_capacity(bytes.len() + rare(|part| part.bytes.len())),
            lengths: Vec::with_capacity(self.words.len() + rare(|part| part.lengths.len())),
            ..Part::default()
        };
        for word in &self.words {
            part.push(of(word), word.count);
        }
        for rare in self.rare.iter_mut().rev() {
            let rare = std::mem::take(rare);
            part.bytes.extend_from_slice(&rare.bytes);
            part.lengths.extend_from_slice(&rare.lengths);
            part.long.extend_from_slice(&rare.long);
            part.groups.extend_from_slice(&rare.groups);
        }
        part
    }
}

/// The occurrences that groups stand for.
///
/// # Errors
/// [`Error::Invalid`] where the text that they stand for has 2⁶⁴ bytes or more: some pair's count might overflow.
pub fn n_occurrences<'g>(groups: impl Iterator<Item = &'g Group>) -> Result<u64> {
    let (mut n_words, mut n_bytes) = (0u64, 0u64);
    for group in groups {
        let more = u128::from(group.count) * group.n_bytes as u128;
        let sum = u64::try_from(more).ok().and_then(|more| n_bytes.checked_add(more));
        let too_large = || Error::Invalid("the counts are too large: they stand for 2^64 bytes of text".to_owned());
        n_bytes = sum.ok_or_else(too_large)?;
        // No word is empty, so there are no more words than bytes.
        n_words += group.count * group.n_words as u64;
    }
    Ok(n_words)
}
