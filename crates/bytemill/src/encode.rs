//! Encoding: text to ids.

use crate::bpe;
use crate::cache::{Cache, LONG_IDS, LongKey, SHORT_IDS};
use crate::error::{Error, Result};
use crate::hash::{PACKED_BYTES, Packed, pack};
use crate::pairs::PairTable;
use crate::pretokenize::{BLOCK, Pattern};
pub use crate::pulse::{Pulse, no_pulse};
use crate::special::{Segment, SpecialTokens};
use crate::vocab::Vocab;
use crate::words::Words;
use std::sync::Mutex;

/// An id as it is written out: `u16` where all ids of a vocabulary fit, else `u32`.
pub trait Id: Copy + Default + Send + 'static {
    /// The id in this width; the caller has checked that it fits.
    fn narrow(id: u32) -> Self;
}

impl Id for u16 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "used for vocabularies whose ids all fit")]
    fn narrow(id: u32) -> Self {
        id as Self
    }
}

impl Id for u32 {
    #[inline]
    fn narrow(id: u32) -> Self {
        id
    }
}

/// Which special tokens of the vocabulary a text may hold.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'s> {
    /// All of them are recognised.
    All,
    /// None is recognised: they are plain text.
    None,
    /// None may stand in the text: it is an error if one does.
    Refused,
    /// Those of this set are recognised, the others are plain text.
    These(&'s SpecialTokens),
}

/// Pre-tokens of more bytes than this are written out while they are merged.
const HUGE: usize = 1 << 16;

/// Bytes of text between two questions to the caller whether to go on.
const PULSE_BYTES: usize = 1 << 20;

/// A vocabulary ready to encode.
pub struct Encoder {
    vocab: Vocab,
    pattern: Pattern,
    special: SpecialTokens,
    pairs: PairTable,
    words: Words,
    merger: bpe::Merger,
    /// One a thread that encodes at the same time; they stay, with what they have learnt.
    workspaces: Mutex<Vec<Workspace>>,
}

/// What a thread needs to encode, reused from call to call.
struct Workspace {
    cache: Cache,
    ends: Vec<usize>,
    keys: Vec<(Packed, u64)>,
    /// Ids of a block. Entries of the cache are copied whole, so the last of a block may spill over.
    ids: Box<[u32]>,
    symbols: Vec<u32>,
    /// Bytes encoded since the caller was last asked whether to go on.
    since_pulse: usize,
}

impl Encoder {
    /// # Errors
    /// [`Error::Invalid`] where the special tokens contradict each other.
    pub fn new(vocab: Vocab, pattern: Pattern) -> Result<Self> {
        let special = SpecialTokens::new(vocab.special().to_vec())?;
        let mut pairs = PairTable::new(vocab.merges().len() + vocab.other_splits().len());
        for (&(left, right), symbol) in vocab.merges().iter().zip(256..) {
            pairs.insert(left, right, symbol)?;
        }
        for &(left, right, symbol) in vocab.other_splits() {
            pairs.insert(left, right, symbol)?;
        }
        let merger = bpe::Merger::default();
        // Merges given by hand need not lead to every token from its own bytes, so each is tried.
        let mut symbols = Vec::new();
        let mut reachable: Vec<(&[u8], u32)> = Vec::new();
        for (token, id) in vocab.tokens().filter(|(token, _)| token.len() <= PACKED_BYTES) {
            encode_pretoken(&vocab, &pairs, &merger, token, &mut symbols, &no_pulse)?;
            if symbols == [id] {
                reachable.push((token, id));
            }
        }
        let words = Words::new(&reachable);
        let encoder = Self { vocab, pattern, special, pairs, words, merger, workspaces: Mutex::new(Vec::new()) };
        // The first workspace is made here, so that encoding itself needs no memory beyond text and result.
        encoder.put_back(Self::new_workspace());
        Ok(encoder)
    }

    /// The vocabulary.
    #[must_use]
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The pattern.
    #[must_use]
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The special tokens.
    #[must_use]
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// Which symbol a pair of symbols becomes.
    #[must_use]
    pub fn pairs(&self) -> &PairTable {
        &self.pairs
    }

    fn new_workspace() -> Workspace {
        Workspace {
            cache: Cache::default(),
            ends: Vec::with_capacity(BLOCK),
            keys: Vec::with_capacity(BLOCK),
            ids: vec![0; (BLOCK + 1) * SHORT_IDS].into_boxed_slice(),
            symbols: Vec::with_capacity(256),
            since_pulse: 0,
        }
    }

    fn workspace(&self) -> Workspace {
        let kept = self.workspaces.lock().map(|mut kept| kept.pop()).ok().flatten();
        kept.unwrap_or_else(Self::new_workspace)
    }

    fn put_back(&self, workspace: Workspace) {
        if let Ok(mut kept) = self.workspaces.lock() {
            kept.push(workspace);
        }
    }

    /// Appends the ids of `text` to `out`.
    ///
    /// # Errors
    /// [`Error::SpecialToken`] with [`Allowed::Refused`], [`Error::Pattern`] where a custom pattern fails, and what
    /// `pulse` gives. What `out` holds then is undefined.
    pub fn encode<T: Id>(&self, text: &str, allowed: Allowed, out: &mut Vec<T>, pulse: Pulse) -> Result<()> {
        let recognised = match allowed {
            Allowed::All => Some(&self.special),
            Allowed::These(special) => Some(special),
            Allowed::None => None,
            Allowed::Refused => {
                self.refuse_special(text)?;
                None
            }
        };
        let mut workspace = self.workspace();
        let result = match recognised {
            Some(special) if !special.is_empty() => special.segments(text, |segment| match segment {
                Segment::Text(text) => self.encode_segment(&mut workspace, text, out, pulse),
                Segment::Special(id) => {
                    out.push(T::narrow(id));
                    tick(&mut workspace.since_pulse, 1, pulse)
                }
            }),
            _ => self.encode_segment(&mut workspace, text, out, pulse),
        };
        self.put_back(workspace);
        result
    }

    /// # Errors
    /// [`Error::SpecialToken`] where a special token stands in `text`.
    pub fn refuse_special(&self, text: &str) -> Result<()> {
        match self.special.find(text).next() {
            Some(found) => {
                Err(Error::SpecialToken { token: self.special.tokens()[found.index].0.clone(), offset: found.start })
            }
            None => Ok(()),
        }
    }

    /// Appends the ids of bytes that may not be UTF-8, without special tokens: what is malformed is a pre-token.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_bytes(&self, bytes: &[u8], out: &mut Vec<u32>, pulse: Pulse) -> Result<()> {
        let mut workspace = self.workspace();
        let result = bytes.utf8_chunks().try_for_each(|chunk| {
            self.encode_segment(&mut workspace, chunk.valid(), out, pulse)?;
            encode_pretoken(&self.vocab, &self.pairs, &self.merger, chunk.invalid(), &mut workspace.symbols, pulse)?;
            out.extend_from_slice(&workspace.symbols);
            tick(&mut workspace.since_pulse, 1, pulse)
        });
        self.put_back(workspace);
        result
    }

    /// Appends the ids of a text without special tokens.
    ///
    /// In blocks of pre-tokens: split, then hash and prefetch, then look up, so that the table's answers are on
    /// their way while there is other work.
    fn encode_segment<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &str,
        out: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        let Workspace { cache, ends, keys, ids: block, symbols, since_pulse } = workspace;
        let bytes = text.as_bytes();
        let mut splits = self.pattern.splits(text);
        let mut at = 0;
        while splits.fill(ends)? {
            let block_start = at;
            at = ends.last().copied().unwrap_or(at);

            keys.clear();
            let mut start = block_start;
            for &end in ends.iter() {
                let key = if end - start <= PACKED_BYTES { pack(bytes, start, end) } else { Packed::NO_KEY };
                let hash = key.hash();
                cache.prefetch(hash);
                keys.push((key, hash));
                start = end;
            }

            for &(key, hash) in keys.iter() {
                if cache.get(key, hash).is_none() {
                    self.words.prefetch(hash);
                }
            }

            let mut filled = 0;
            let mut start = block_start;
            for (&end, &(key, hash)) in ends.iter().zip(keys.iter()) {
                let pretoken = start..end;
                start = end;
                if let Some((ids, n_ids)) = cache.get(key, hash) {
                    block[filled..filled + SHORT_IDS].copy_from_slice(ids);
                    filled += n_ids;
                    continue;
                }
                if pretoken.len() > HUGE {
                    out.extend(block[..filled].iter().map(|&id| T::narrow(id)));
                    filled = 0;
                    self.encode_huge(&bytes[pretoken], symbols, out, pulse)?;
                    continue;
                }
                self.encode_new(&bytes[pretoken], key, hash, cache, symbols, pulse)?;
                if symbols.len() <= SHORT_IDS {
                    block[filled..filled + symbols.len()].copy_from_slice(symbols);
                    filled += symbols.len();
                } else {
                    out.extend(block[..filled].iter().chain(symbols.iter()).map(|&id| T::narrow(id)));
                    filled = 0;
                }
            }
            out.extend(block[..filled].iter().map(|&id| T::narrow(id)));
            tick(since_pulse, at - block_start, pulse)?;
        }
        Ok(())
    }

    /// Appends the ids of a pre-token that is too long to be kept beside them.
    #[cold]
    fn encode_huge<T: Id>(
        &self,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        out: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        if self.vocab.whole_pretoken_lookup()
            && let Some(id) = self.vocab.id(pretoken)
        {
            out.push(T::narrow(id));
            return Ok(());
        }
        let ids = self.vocab.symbol_ids();
        let id = |symbol: u32| T::narrow(ids[symbol as usize]);
        self.merger.merge_into(&self.vocab, &self.pairs, pretoken, symbols, out, id, pulse)
    }

    /// Puts the ids of a pre-token that the table of short ones does not know into `ids`, and remembers them.
    #[inline(never)]
    fn encode_new(
        &self,
        pretoken: &[u8],
        key: Packed,
        hash: u64,
        cache: &mut Cache,
        ids: &mut Vec<u32>,
        pulse: Pulse,
    ) -> Result<()> {
        let is_short = key != Packed::NO_KEY;
        if is_short && let Some(id) = self.words.get(key, hash) {
            ids.clear();
            ids.push(id);
            cache.insert(key, hash, ids);
            return Ok(());
        }
        let long_key = LongKey::new(pretoken);
        if let Some(known) = long_key.as_ref().and_then(|key| cache.get_long(key)) {
            ids.clear();
            ids.extend_from_slice(known);
            return Ok(());
        }
        encode_pretoken(&self.vocab, &self.pairs, &self.merger, pretoken, ids, pulse)?;
        if is_short && ids.len() <= SHORT_IDS {
            cache.insert(key, hash, ids);
        } else if let Some(key) = long_key
            && ids.len() <= LONG_IDS
        {
            cache.insert_long(key, ids);
        }
        Ok(())
    }
}

/// Puts the ids of one pre-token into `ids`.
fn encode_pretoken(
    vocab: &Vocab,
    pairs: &PairTable,
    merger: &bpe::Merger,
    pretoken: &[u8],
    ids: &mut Vec<u32>,
    pulse: Pulse,
) -> Result<()> {
    ids.clear();
    if vocab.whole_pretoken_lookup()
        && let Some(id) = vocab.id(pretoken)
    {
        ids.push(id);
        return Ok(());
    }
    merger.merge(vocab, pairs, pretoken, ids, pulse)?;
    let symbol_ids = vocab.symbol_ids();
    for id in ids {
        *id = symbol_ids[*id as usize];
    }
    Ok(())
}

/// Counts `n_bytes` of work done, and asks the caller whether to go on when there is enough of it. What is counted goes on
/// from text to text: one of many short segments must be interruptible too.
#[inline]
fn tick(since_pulse: &mut usize, n_bytes: usize, pulse: Pulse) -> Result<()> {
    *since_pulse += n_bytes;
    if *since_pulse >= PULSE_BYTES {
        *since_pulse = 0;
        pulse()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Counts;
    use crate::merges::{Ties, learn};
    use proptest::prelude::*;

    /// A tokenizer with some dozens of merges, learnt from the words themselves.
    fn encoder(words: &[&str], n_merges: usize, pattern: &str) -> Encoder {
        let counts = Counts::from_items(words.iter().map(|word| (word.as_bytes().to_vec(), 1))).unwrap();
        let learnt = learn(&counts, n_merges, Ties::Bytes, 1, |_| Ok(())).unwrap();
        let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
        let mut merges = Vec::new();
        for (merge, id) in learnt.iter().zip(256..) {
            let part = |symbol: u32| tokens[symbol as usize].1.clone();
            let (left, right) = (part(merge.left), part(merge.right));
            tokens.push((id, [left.clone(), right.clone()].concat()));
            merges.push((left, right));
        }
        let special = vec![("<s>".to_owned(), 1000), ("<s><e>".to_owned(), 1001)];
        Encoder::new(Vocab::from_merges(tokens, &merges, special).unwrap(), Pattern::new(Some(pattern)).unwrap())
            .unwrap()
    }

    /// Pre-token by pre-token, each merged afresh: no blocks, no tables of what was seen.
    fn encode_plainly(encoder: &Encoder, text: &str, special: &SpecialTokens) -> Vec<u32> {
        let mut ids = Vec::new();
        special
            .segments(text, |segment| match segment {
                Segment::Special(id) => {
                    ids.push(id);
                    Ok(())
                }
                Segment::Text(text) => encoder.pattern.for_each(text, |pretoken| {
                    let mut symbols = Vec::new();
                    bpe::merge(&encoder.pairs, pretoken.as_bytes(), &mut symbols, &no_pulse).unwrap();
                    ids.extend(symbols.iter().map(|&symbol| encoder.vocab.symbol_ids()[symbol as usize]));
                }),
            })
            .unwrap();
        ids
    }

    const PIECES: [&str; 12] =
        ["low", " lower", " newest", " widest", "s", "<s>", "<s><e>", "\n\n", " 123", "é一ü", "zzzzzzzz", "'s"];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn encoding_equals_merging_each_pretoken_afresh(
            texts in prop::collection::vec(
                prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..80).prop_map(|pieces| pieces.concat()),
                1..6,
            ),
            n_merges in 0usize..60,
            pattern in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\S+"]),
            n_threads in 1usize..4,
        ) {
            let encoder = encoder(&PIECES, n_merges, pattern);
            // Twice, so that the second time finds what the first has left behind.
            for _ in 0..2 {
                for text in &texts {
                    let expected = encode_plainly(&encoder, text, encoder.special());
                    let ids: Vec<u16> = encoder.encode_parallel(text, Allowed::All, n_threads, &no_pulse).unwrap();
                    prop_assert_eq!(ids.iter().map(|&id| u32::from(id)).collect::<Vec<_>>(), expected);
                    let mut plain: Vec<u32> = Vec::new();
                    encoder.encode(text, Allowed::None, &mut plain, &no_pulse).unwrap();
                    prop_assert_eq!(plain, encode_plainly(&encoder, text, &SpecialTokens::default()));
                }
            }
        }

        #[test]
        fn words_of_every_length_keep_all_their_bytes(letters in prop::collection::vec(0usize..4, 1..200)) {
            let encoder = encoder(&["abab", "bcbc", "abcabc"], 5, "gpt2");
            let word: String = letters.iter().map(|&letter| ['a', 'b', 'c', 'z'][letter]).collect();
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&word, Allowed::None, &mut ids, &no_pulse).unwrap();
            let mut bytes = Vec::new();
            encoder.vocab().decode(ids, &mut bytes).unwrap();
            prop_assert_eq!(bytes, word.into_bytes());
        }
    }

    #[test]
    fn a_special_token_that_is_refused_is_named_with_its_place() {
        let encoder = encoder(&PIECES, 10, "gpt2");
        let error = encoder.encode::<u32>("low<s>", Allowed::Refused, &mut Vec::new(), &no_pulse).unwrap_err();
        assert_eq!(error.to_string(), "special token \"<s>\" at byte 3");
    }

    #[test]
    fn bytes_that_are_no_text_are_encoded_too() {
        let encoder = encoder(&PIECES, 10, "gpt2");
        let mut ids = Vec::new();
        encoder.encode_bytes(b"low\xFF\xFElow", &mut ids, &no_pulse).unwrap();
        let mut bytes = Vec::new();
        encoder.vocab().decode(ids.iter().copied(), &mut bytes).unwrap();
        assert_eq!(bytes, b"low\xFF\xFElow");
    }
}
