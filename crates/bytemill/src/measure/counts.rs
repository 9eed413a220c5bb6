//! Counts of what the tokens of a text keep whole.

use super::bits::Bits;
use super::marks::Marks;
use crate::{Error, Result};

/// The longest token that is compared in one step.
const SHORT: usize = size_of::<u128>() - 1;

/// The bytes of a vocabulary's tokens.
#[derive(Debug)]
pub struct Tokens {
    /// All tokens, one after the other, by id.
    bytes: Vec<u8>,
    /// The start of each token in `bytes`, and the end of the last one.
    offsets: Vec<u32>,
    /// The first bytes of each token; the last byte is its length, or more than [`SHORT`] if it is longer than that.
    heads: Vec<[u8; SHORT + 1]>,
    /// The first token of a document may begin with a space that is not part of it.
    adds_space: bool,
}

impl Tokens {
    /// Tokens by id: all their bytes, and the start of each, with the end of the last one.
    ///
    /// # Errors
    ///
    /// The offsets do not divide the bytes, or memory runs out.
    pub fn new(bytes: Vec<u8>, offsets: Vec<u32>) -> Result<Self> {
        if offsets.first() != Some(&0) || offsets.last().is_none_or(|&end| end as usize != bytes.len()) {
            return Err(Error::Invalid("offsets must divide the bytes".into()));
        }
        let n = offsets.len() - 1;
        let mut heads = Vec::new();
        heads.try_reserve_exact(n).map_err(|_| Error::memory::<[u8; SHORT + 1]>(n))?;
        for ends in offsets.windows(2) {
            let token = bytes.get(ends[0] as usize..ends[1] as usize);
            let token = token.ok_or_else(|| Error::Invalid("offsets must increase".into()))?;
            let mut head = [0; SHORT + 1];
            head[SHORT] = token.len().min(SHORT + 1) as u8;
            let kept = token.len().min(SHORT);
            head[..kept].copy_from_slice(&token[..kept]);
            heads.push(head);
        }
        Ok(Self { bytes, offsets, heads, adds_space: false })
    }

    /// The same tokens, where a space is put before each document, as SentencePiece does.
    #[must_use]
    pub fn adding_space(self, adds_space: bool) -> Self {
        Self { adds_space, ..self }
    }

    /// The length of the first token of a document, without an added space, if `text` begins with it.
    fn first_of(&self, id: usize, text: &[u8]) -> Option<usize> {
        let token = self.bytes.get(self.offsets[id] as usize..self.offsets[id + 1] as usize)?;
        let token = token.strip_prefix(b" ").filter(|_| self.adds_space)?;
        text.starts_with(token).then_some(token.len())
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// The length of a token if `text` begins with it.
    #[inline(always)]
    fn prefix_of(&self, id: usize, text: &[u8]) -> Option<usize> {
        let head = self.heads[id];
        let length = head[SHORT] as usize;
        match text.first_chunk() {
            Some(next) if length <= SHORT => {
                let mask = (1u128 << (8 * length)) - 1;
                let differs = (u128::from_le_bytes(*next) ^ u128::from_le_bytes(head)) & mask;
                (differs == 0).then_some(length)
            }
            _ => {
                let token = &self.bytes[self.offsets[id] as usize..self.offsets[id + 1] as usize];
                text.starts_with(token).then_some(token.len())
            }
        }
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
    /// Count the documents of `marks`, and add the uses of each id to `histogram`. Also returns the offsets at which
    /// tokens begin, without those at which documents do; in a document that the tokens do not spell, those before the
    /// first difference.
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
        tokens: &Tokens,
        histogram: &mut [i64],
    ) -> Result<(Self, Bits)> {
        if ends.len() != marks.ends.len()
            || histogram.len() != tokens.len()
            || ends.last().is_some_and(|&n| n != ids.len())
        {
            return Err(Error::Invalid("ids, documents and histogram do not match".into()));
        }
        let mut counts = Self::default();
        let mut boundaries = Bits::new(text.len())?;
        let (mut ids, mut start, mut first_id) = (ids, 0, 0);
        for (document, (&end, &last_id)) in marks.ends.iter().zip(ends).enumerate() {
            let n_tokens = last_id.checked_sub(first_id).ok_or_else(|| Error::Invalid("ends must increase".into()))?;
            let (mut at, mut is_text) = (start, true);
            for (index, id) in ids.by_ref().take(n_tokens).enumerate() {
                let Some(uses) = histogram.get_mut(id) else { return Err(Error::UnknownId(id as i64)) };
                *uses += 1;
                if !is_text {
                    continue;
                }
                let without_space = if index == 0 { tokens.first_of(id, &text[at..]) } else { None };
                if let Some(length) = without_space.or_else(|| tokens.prefix_of(id, &text[at..])) {
                    if at > start && at < end {
                        boundaries.set(at);
                    }
                    at += length;
                } else {
                    is_text = false;
                }
            }
            is_text &= at == end;
            counts.n_tokens.push(n_tokens as i64);
            counts.round_trips.push(i64::from(is_text));
            let cut = |spans: &Bits| spans.n_runs_with(start..end, |index| boundaries.word(index));
            let misplaced = |index: usize| boundaries.word(index) ^ marks.groups_of_three.word(index);
            let or_unknown = |n: i64| if is_text { n } else { -1 };
            let n_whole = |n: &[i64], spans: &Bits| or_unknown(n[document] - cut(spans));
            counts.n_whole_words.push(n_whole(&marks.n_words, &marks.words));
            counts.n_split_characters.push(or_unknown(cut(&marks.characters)));
            counts.n_whole_short_numbers.push(n_whole(&marks.n_short_numbers, &marks.short_numbers));
            let n_other = marks.long_numbers.n_runs_with(start..end, misplaced);
            counts.n_grouped_numbers.push(or_unknown(marks.n_long_numbers[document] - n_other));
            counts.n_whole_indents.push(n_whole(&marks.n_indents, &marks.indents));
            (start, first_id) = (end, last_id);
        }
        Ok((counts, boundaries))
    }
}
