//! Encoding: text to ids.

mod canonical;
mod exchange;
mod misses;
mod session;
mod spans;
#[cfg(test)]
mod tests;
mod unstable;
mod workspace;

use crate::bpe::Merger;
use crate::error::{Error, Result};
use crate::lazy::Lazy;
use crate::nfc::normalize;
use crate::pairs::{PairTable, PerfectPairs};
use crate::pretokenize::Pattern;
pub use crate::pulse::{Pulse, no_pulse};
use crate::seams::Seams;
use crate::special::{Rules, SpecialTokens};
use crate::vocab::{SortedTokens, Tables, Vocab};
use crate::words::Words;
pub use session::Session;
use std::collections::HashMap;
use std::sync::OnceLock;
pub use unstable::Unstable;
use workspace::{Workspace, Workspaces};

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

/// Ids that wait for those among them that are not known yet.
const MOST_WAITING: usize = 1 << 15;

/// Bytes of text between two questions to the caller whether to go on.
const PULSE_BYTES: usize = 1 << 20;

/// Pre-tokens of more bytes than this are written out while they are merged.
const HUGE: usize = 1 << 16;

/// A vocabulary ready to encode.
pub struct Encoder {
    vocab: Vocab,
    pattern: Pattern,
    special: SpecialTokens,
    /// What is looked for where no special tokens are recognised.
    none: SpecialTokens,
    pairs: PairTable,
    perfect: PerfectPairs,
    words: Words,
    merger: Merger,
    /// Made when the first long pre-token comes that may have some.
    seams: Lazy<Seams>,
    /// Made when tokens are first asked for in the order of their bytes.
    sorted: OnceLock<SortedTokens>,
    workspaces: Workspaces,
}

impl Encoder {
    /// # Errors
    /// [`Error::Invalid`] where the special tokens contradict each other.
    pub fn new(mut vocab: Vocab, pattern: Pattern) -> Result<Self> {
        let special = SpecialTokens::new(vocab.special().to_vec())?;
        let Tables { pairs, perfect, words } = vocab.take_tables()?;
        let encoder = Self {
            vocab,
            pattern,
            special,
            none: SpecialTokens::default(),
            pairs,
            perfect,
            words,
            merger: Merger::default(),
            seams: Lazy::default(),
            sorted: OnceLock::new(),
            workspaces: Workspaces::default(),
        };
        // The first workspace is made here, so that the first text does not wait for it.
        encoder.workspaces.put_back(encoder.workspaces.take());
        Ok(encoder)
    }

    /// The same with rules for some special tokens, by their text, and with texts brought into NFC or not.
    ///
    /// # Errors
    /// [`Error::Invalid`] where one is no special token.
    pub fn with_rules(mut self, rules: &[(String, Rules)], nfc: bool) -> Result<Self> {
        let tokens = self.special.tokens().to_vec();
        let mut rule_of = vec![Rules::default(); tokens.len()];
        let place_of: HashMap<&str, usize> = tokens.iter().map(|(token, _)| token.as_str()).zip(0..).collect();
        for (text, rule) in rules {
            let place = place_of.get(text.as_str()).copied();
            let place = place.ok_or_else(|| Error::Invalid(format!("{text:?} has rules but is no special token")))?;
            rule_of[place] = *rule;
        }
        self.special = SpecialTokens::with_rules(tokens, rule_of)?.with_nfc(nfc);
        self.none = self.none.with_nfc(nfc);
        Ok(self)
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

    /// No special tokens, for where none is recognised.
    #[must_use]
    pub fn none(&self) -> &SpecialTokens {
        &self.none
    }

    /// Which symbol a pair of symbols becomes.
    #[must_use]
    pub fn pairs(&self) -> &PairTable {
        &self.pairs
    }

    /// The ordinary tokens in the order of their bytes.
    #[must_use]
    pub fn sorted_tokens(&self) -> &SortedTokens {
        self.sorted.get_or_init(|| SortedTokens::new(&self.vocab))
    }

    /// Appends the ids of `text` to `out`.
    ///
    /// # Errors
    /// [`Error::SpecialToken`] with [`Allowed::Refused`], [`Error::Pattern`] where a custom pattern fails, and what
    /// `pulse` gives. What `out` holds then is undefined.
    pub fn encode<T: Id>(&self, text: &str, allowed: Allowed, out: &mut Vec<T>, pulse: Pulse) -> Result<()> {
        self.session(text.len(), |session| session.encode(text, allowed, out, pulse))
    }

    /// Whether memory for results may take large pages beside the tables of what was seen.
    pub(crate) fn tables_have_grown(&self) -> bool {
        self.workspaces.have_grown()
    }

    /// # Errors
    /// [`Error::SpecialToken`] where a special token stands in `text`.
    pub fn refuse_special(&self, text: &str) -> Result<()> {
        let found = |text: &str| match self.special.find(text).next() {
            Some(found) => {
                Err(Error::SpecialToken { token: self.special.tokens()[found.index].0.clone(), offset: found.start })
            }
            None => Ok(()),
        };
        found(text)?;
        // A token may also stand there only once the text is normalized.
        if self.special.nfc() { found(&normalize(text, &no_pulse)?) } else { Ok(()) }
    }

    /// Appends the ids of bytes that may not be UTF-8, without special tokens: what is malformed is a pre-token.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_bytes(&self, bytes: &[u8], out: &mut Vec<u32>, pulse: Pulse) -> Result<()> {
        self.with_workspace(bytes.len(), |workspace| {
            bytes.utf8_chunks().try_for_each(|chunk| {
                self.encode_segment(workspace, chunk.valid(), out, pulse)?;
                self.encode_pretoken(chunk.invalid(), &mut workspace.symbols, out, pulse)?;
                tick(&mut workspace.since_pulse, 1, pulse)
            })
        })
    }

    /// Appends the ids of a text without special tokens.
    ///
    /// In blocks of pre-tokens: split, then hash and ask for the entries of the cache, then look up, so that the answers
    /// are on their way while there is other work. What the cache does not know waits until there is enough of it to be
    /// found out together.
    fn encode_segment<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &str,
        out: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        let bytes = text.as_bytes();
        workspace.n_before = out.len();
        let mut splits = self.pattern.splits(text);
        let mut at = 0;
        while splits.fill(&mut workspace.ends)? {
            let done = at;
            let start = splits.block_start(at);
            at = workspace.ends.last().copied().unwrap_or(start);
            workspace.hash(bytes, start, |pretoken, cut| self.cut(pretoken, cut));
            while let Some(huge) = workspace.look_up(bytes) {
                self.resolve(workspace, bytes, out, pulse)?;
                if out.is_empty() && out.capacity() < huge.len() {
                    // It may be one that has an id for each byte. To move a result that has outgrown its place takes as long as
                    // to write it; room that stays empty takes nothing.
                    *out = Vec::with_capacity(huge.len());
                }
                self.encode_pretoken(&bytes[huge], &mut workspace.symbols, out, pulse)?;
            }
            if workspace.misses.are_many() || workspace.ids.len() > MOST_WAITING {
                self.resolve(workspace, bytes, out, pulse)?;
            }
            tick(&mut workspace.since_pulse, at - done, pulse)?;
        }
        self.resolve(workspace, bytes, out, pulse)
    }

    /// Calls `cut` with every place at which a long pre-token may be cut: see [`Seams`].
    fn cut(&self, pretoken: &[u8], cut: &mut dyn FnMut(usize)) {
        // A token that no merges make, but that is looked up as a whole pre-token, must not be found in a piece of one.
        if self.vocab.whole_pretoken_lookup() || pretoken.is_ascii() {
            return;
        }
        if let Some(seams) = self.seams.get_or_make(|| Seams::new(self.vocab.tokens().map(|(token, _)| token))) {
            seams.for_each(pretoken, cut);
        }
    }

    /// Appends the ids of one pre-token, with no table asked for it. What was in `symbols` is lost.
    fn encode_pretoken<T: Id>(
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
        let id = |symbol: u32| T::narrow(self.vocab.symbol_id(symbol));
        self.merger.merge_into(&self.vocab, &self.pairs, pretoken, symbols, out, id, pulse)
    }
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
