//! Encoding: text to ids.

use crate::bpe;
use crate::cache::{Cache, INLINE_IDS};
use crate::error::{Error, Result};
use crate::hash::{PACKED_BYTES, Packed, pack};
use crate::pairs::PairTable;
use crate::pretokenize::{BLOCK, Pattern};
use crate::special::{Segment, SpecialTokens};
use crate::vocab::Vocab;
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

/// Asked about once in every megabyte of text; an error ends the work.
pub type Pulse<'p> = &'p (dyn Fn() -> Result<()> + Sync);

/// A pulse that never ends the work.
///
/// # Errors
/// Never.
pub fn no_pulse() -> Result<()> {
    Ok(())
}

/// Bytes of text between two questions to the caller whether to go on.
const PULSE_BYTES: usize = 1 << 20;

/// A vocabulary ready to encode.
pub struct Encoder {
    vocab: Vocab,
    pattern: Pattern,
    special: SpecialTokens,
    pairs: PairTable,
    /// One a thread that encodes at the same time; they stay, with what they have learnt.
    workspaces: Mutex<Vec<Box<Workspace>>>,
}

/// What a thread needs to encode, reused from call to call.
struct Workspace {
    cache: Cache,
    ends: Vec<usize>,
    keys: Vec<(Packed, u64)>,
    /// Ids of a block. Entries of the cache are copied whole, so the last of a block may spill over.
    ids: Box<[u32]>,
    symbols: Vec<u32>,
}

impl Encoder {
    /// # Errors
    /// [`Error::Invalid`] where the special tokens contradict each other.
    pub fn new(vocab: Vocab, pattern: Pattern) -> Result<Self> {
        let special = SpecialTokens::new(vocab.special().to_vec())?;
        let mut pairs = PairTable::new(vocab.merges().len() + vocab.other_splits().len())?;
        for (&(left, right), symbol) in vocab.merges().iter().zip(256..) {
            pairs.insert(left, right, symbol);
        }
        for &(left, right, symbol) in vocab.other_splits() {
            pairs.insert(left, right, symbol);
        }
        let encoder = Self { vocab, pattern, special, pairs, workspaces: Mutex::new(Vec::new()) };
        // The first workspace is made here, so that encoding itself needs no memory beyond text and result.
        encoder.put_back(encoder.new_workspace());
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

    fn new_workspace(&self) -> Box<Workspace> {
        let mut symbols = Vec::with_capacity(256);
        // Merges given by hand need not lead to every token from its own bytes, so each is tried.
        let reachable = self.vocab.tokens().filter(|(token, id)| {
            token.len() <= PACKED_BYTES && {
                self.encode_pretoken(&mut symbols, token);
                symbols == [*id]
            }
        });
        let cache = Cache::seeded(reachable);
        Box::new(Workspace {
            cache,
            ends: Vec::with_capacity(BLOCK),
            keys: Vec::with_capacity(BLOCK),
            ids: vec![0; (BLOCK + 1) * INLINE_IDS].into_boxed_slice(),
            symbols,
        })
    }

    fn workspace(&self) -> Box<Workspace> {
        let kept = self.workspaces.lock().map(|mut kept| kept.pop()).ok().flatten();
        kept.unwrap_or_else(|| self.new_workspace())
    }

    fn put_back(&self, workspace: Box<Workspace>) {
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
                    Ok(())
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
            Some(found) => Err(Error::SpecialToken {
                token: self.special.tokens()[found.index].0.clone(),
                offset: found.start,
            }),
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
            self.encode_pretoken(&mut workspace.symbols, chunk.invalid());
            out.extend_from_slice(&workspace.symbols);
            Ok(())
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
        let Workspace { cache, ends, keys, ids: block, symbols } = workspace;
        let bytes = text.as_bytes();
        let mut splits = self.pattern.splits(text);
        let (mut at, mut next_pulse) = (0, PULSE_BYTES);
        while splits.fill(ends)? {
            let block_start = at;
            at = ends.last().copied().unwrap_or(at);

            keys.clear();
            let mut start = block_start;
            for &end in ends.iter() {
                // A pre-token too long to pack gets the empty key, which no entry has.
                let key = if end - start <= PACKED_BYTES { pack(bytes, start, end) } else { Packed::default() };
                let hash = key.hash();
                cache.prefetch(hash);
                keys.push((key, hash));
                start = end;
            }

            let mut filled = 0;
            let mut start = block_start;
            for (&end, &(key, hash)) in ends.iter().zip(keys.iter()) {
                let pretoken = start..end;
                start = end;
                if let Some((ids, n_ids)) = cache.get(key, hash) {
                    block[filled..filled + INLINE_IDS].copy_from_slice(ids);
                    filled += n_ids;
                    continue;
                }
                self.encode_pretoken(symbols, &bytes[pretoken]);
                if symbols.len() <= INLINE_IDS {
                    if key != Packed::default() {
                        cache.insert(key, hash, symbols);
                    }
                    block[filled..filled + symbols.len()].copy_from_slice(symbols);
                    filled += symbols.len();
                } else {
                    out.extend(block[..filled].iter().chain(symbols.iter()).map(|&id| T::narrow(id)));
                    filled = 0;
                }
            }
            out.extend(block[..filled].iter().map(|&id| T::narrow(id)));
            if at >= next_pulse {
                pulse()?;
                next_pulse = at + PULSE_BYTES;
            }
        }
        Ok(())
    }

    /// Puts the ids of one pre-token into `ids`.
    fn encode_pretoken(&self, ids: &mut Vec<u32>, pretoken: &[u8]) {
        ids.clear();
        if self.vocab.whole_pretoken_lookup()
            && let Some(id) = self.vocab.id(pretoken)
        {
            ids.push(id);
            return;
        }
        bpe::merge(&self.pairs, pretoken, ids);
        let symbol_ids = self.vocab.symbol_ids();
        for id in ids {
            *id = symbol_ids[*id as usize];
        }
    }
}
