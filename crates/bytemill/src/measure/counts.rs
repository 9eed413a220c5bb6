//! Counts of what the tokens of a text keep whole.

use super::marks::{Marks, Span};
use crate::{Error, Result};

/// The bytes of a vocabulary's tokens.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// All tokens, one after the other, by id.
    pub bytes: &'a [u8],
    /// The start of each token in `bytes`, and the end of the last one.
    pub offsets: &'a [u32],
}

impl<'a> Tokens<'a> {
    /// The number of ids.
    #[must_use]
    pub fn len(self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    fn get(self, id: usize) -> Option<&'a [u8]> {
        self.bytes.get(*self.offsets.get(id)? as usize..*self.offsets.get(id + 1)? as usize)
    }
}

/// Counts by document. In a document whose tokens are not its text, all but `n_tokens` and `round_trips` are -1.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens.
    pub n_tokens: Vec<i64>,
    /// 1 if the tokens are the text, else 0.
    pub round_trips: Vec<i64>,
    /// Words without a boundary inside.
    pub n_whole_words: Vec<i64>,
    /// Characters with a boundary inside.
    pub n_split_characters: Vec<i64>,
    /// Runs of one to three digits without a boundary inside.
    pub n_whole_short_numbers: Vec<i64>,
    /// Longer runs of digits that are cut into groups of three from the right, and nowhere else.
    pub n_grouped_numbers: Vec<i64>,
    /// Indents without a boundary inside; the last space may belong to what follows.
    pub n_whole_indents: Vec<i64>,
}

impl Counts {
    /// Count the documents of `marks`, and add the uses of each id to `histogram`.
    ///
    /// # Arguments
    ///
    /// - `text`: the text that `marks` was made of
    /// - `ids`: the ids of all documents
    /// - `ends`: the offset in `ids` at which each document's ids end
    ///
    /// # Errors
    ///
    /// An id has no token, or the lengths do not match.
    pub fn new(
        marks: &Marks,
        text: &[u8],
        ids: impl ExactSizeIterator<Item = usize>,
        ends: &[usize],
        tokens: Tokens<'_>,
        histogram: &mut [i64],
    ) -> Result<Self> {
        if ends.len() != marks.ends.len()
            || histogram.len() != tokens.len()
            || ends.last().is_some_and(|&n| n != ids.len())
        {
            return Err(Error::Invalid("ids, documents and histogram do not match".into()));
        }
        let mut counts = Self::default();
        let mut boundaries = Boundaries::new(text.len())?;
        let (mut ids, mut start, mut first_id) = (ids, 0, 0);
        for (document, (&end, &last_id)) in marks.ends.iter().zip(ends).enumerate() {
            let n_tokens = last_id.checked_sub(first_id).ok_or_else(|| Error::Invalid("ends must increase".into()))?;
            let (mut at, mut is_text) = (start, true);
            let mut split = SplitCharacters::default();
            for id in ids.by_ref().take(n_tokens) {
                let token = tokens.get(id).ok_or(Error::UnknownId(id as i64))?;
                histogram[id] += 1;
                is_text &= text[..end].get(at..at + token.len()) == Some(token);
                if is_text {
                    if at > start {
                        boundaries.set(at);
                        split.add(text, at);
                    }
                    at += token.len();
                }
            }
            is_text &= at == end;
            counts.n_tokens.push(n_tokens as i64);
            counts.round_trips.push(i64::from(is_text));
            let count = |spans: &[Span], is_counted: &dyn Fn(usize, usize) -> bool| {
                if is_text {
                    spans.iter().filter(|&&(from, to)| is_counted(from as usize, to as usize)).count() as i64
                } else {
                    -1
                }
            };
            let is_whole = |from: usize, to: usize| !boundaries.any(from + 1, to);
            counts.n_whole_words.push(count(marks.words.of(document), &is_whole));
            counts.n_whole_indents.push(count(marks.indents.of(document), &|from, to| is_whole(from, to - 1)));
            let numbers = marks.numbers.of(document);
            counts.n_whole_short_numbers.push(count(numbers, &|from, to| to - from <= 3 && is_whole(from, to)));
            let is_grouped = |from: usize, to: usize| {
                to - from > 3 && (from + 1..to).all(|at| boundaries.get(at) == (to - at).is_multiple_of(3))
            };
            counts.n_grouped_numbers.push(count(numbers, &is_grouped));
            counts.n_split_characters.push(if is_text { split.n } else { -1 });
            (start, first_id) = (end, last_id);
        }
        Ok(counts)
    }
}

/// A bit for each byte at which a token starts.
struct Boundaries(Vec<u64>);

impl Boundaries {
    fn new(n_bytes: usize) -> Result<Self> {
        let n_words = n_bytes / 64 + 1;
        let mut bits = Vec::new();
        bits.try_reserve_exact(n_words).map_err(|_| Error::memory::<u64>(n_words))?;
        bits.resize(n_words, 0);
        Ok(Self(bits))
    }

    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn get(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    /// Whether there is a boundary at `from` or after it, and before `to`.
    fn any(&self, from: usize, to: usize) -> bool {
        if from >= to {
            return false;
        }
        let (first, last) = (from / 64, (to - 1) / 64);
        let head = u64::MAX << (from % 64);
        let tail = u64::MAX >> (63 - (to - 1) % 64);
        if first == last {
            return self.0[first] & head & tail != 0;
        }
        self.0[first] & head != 0 || self.0[last] & tail != 0 || self.0[first + 1..last].iter().any(|&bits| bits != 0)
    }
}

/// Counts characters with boundaries inside, given in order.
#[derive(Default)]
struct SplitCharacters {
    n: i64,
    /// The start of the last one, plus 1.
    last: usize,
}

impl SplitCharacters {
    fn add(&mut self, text: &[u8], at: usize) {
        let is_inside = |at: usize| text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
        if is_inside(at) {
            let start = (0..at).rev().find(|&before| !is_inside(before)).map_or(0, |start| start + 1);
            self.n += i64::from(start != self.last);
            self.last = start;
        }
    }
}
