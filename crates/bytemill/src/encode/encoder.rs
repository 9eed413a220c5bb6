//! [`Encoder`]: a vocabulary, a pattern and special tokens, ready to encode.

use super::id::{Id, check_width};
use super::merge_barriers::MergeBarriers;
use super::workspace::Workspace;
use super::workspace_pool::{self, Owner};
use crate::bpe::Merger;
use crate::bpe::live_merges::{live_merges, unreachable_tokens};
use crate::error::{Error, Result};
use crate::pretokenize::Pattern;
use crate::special::{Rules, SpecialTokens};
use crate::sys::interrupt::{Interrupt, no_interrupt};
use crate::text::normalize::Normalizer;
use crate::vocab::{CompiledVocab, SortedTokens, Vocab};
use hashbrown::HashMap;
use once_cell::race::OnceBox;
use std::sync::Arc;

/// Which special tokens of the vocabulary are recognised in a text.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'s> {
    /// All of them.
    All,
    /// None: they are plain text.
    None,
    /// None, and a text that contains one is an error.
    Refused,
    /// Those of this set; the others are plain text.
    These(&'s SpecialTokens),
}

/// Buffered ids that are flushed at the latest.
const MAX_BUFFERED_IDS: usize = 1 << 15;

/// Bytes of text between two cancellation checks.
pub(super) const BYTES_PER_CHECK: usize = 1 << 20;

/// A vocabulary ready to encode. Immutable except for lazily built tables, which change nothing but the time.
///
/// Those tables are `OnceBox`es and not `OnceLock`s: a child forked while another thread fills an `OnceLock` would wait for
/// it forever. Of several threads that build a table at the same time, the first wins.
pub struct Encoder {
    vocab: Vocab,
    pattern: Pattern,
    special: SpecialTokens,
    /// Recognised if no special tokens are allowed.
    none: SpecialTokens,
    /// Tokens of more than one byte that no merges lead to, if whole pre-tokens are looked up in the vocabulary; else empty.
    unreachable_tokens: HashMap<Box<[u8]>, u32>,
    merger: Merger,
    /// Built for the first long pre-token outside ASCII.
    merge_barriers: OnceBox<MergeBarriers>,
    sorted: OnceBox<SortedTokens>,
    pub(super) owner: Owner,
}

impl Encoder {
    /// # Errors
    /// [`Error::Invalid`] if the special tokens contradict each other, [`Error::Memory`] if the system refuses memory.
    pub fn new(vocab: Vocab, pattern: Pattern) -> Result<Self> {
        let special = SpecialTokens::new(vocab.special().to_vec())?;
        let unreachable_tokens = if !vocab.ignore_merges() {
            HashMap::new()
        } else if let Some(ids) = vocab.unreachable() {
            ids.iter().filter_map(|&id| Some((vocab.token(id)?.into(), id))).collect()
        } else {
            unreachable_tokens(&vocab, &live_merges(&vocab)).into_iter().map(|(id, token)| (token.into(), id)).collect()
        };
        let encoder = Self {
            vocab,
            pattern,
            special,
            none: SpecialTokens::default(),
            unreachable_tokens,
            merger: Merger::default(),
            merge_barriers: OnceBox::new(),
            sorted: OnceBox::new(),
            owner: Owner::new(),
        };
        // The first text need not allocate a workspace.
        workspace_pool::put_back(encoder.owner, workspace_pool::take(encoder.owner)?);
        Ok(encoder)
    }

    /// The same encoder with special tokens that share the id of another one, which decoding returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the special tokens contradict each other.
    pub fn with_special_aliases(mut self, aliases: Vec<(String, u32)>) -> Result<Self> {
        self.special = SpecialTokens::new([self.vocab.special(), &aliases].concat())?;
        Ok(self)
    }

    /// The same encoder with rules for some special tokens, given by their text, and with a normalizer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a text is not a special token.
    pub fn with_rules(mut self, rules: &[(String, Rules)], normalizer: Normalizer) -> Result<Self> {
        let tokens = self.special.tokens().to_vec();
        let rule_of = rules_in_order(&tokens, rules)?;
        let normalizer = Arc::new(normalizer);
        self.special = SpecialTokens::with_rules(tokens, rule_of)?.normalizing(Arc::clone(&normalizer))?;
        self.none = std::mem::take(&mut self.none).normalizing(normalizer)?;
        self.vocab.decode_as(self.special.normalized_texts());
        Ok(self)
    }

    /// The vocabulary as a block for [`CompiledVocab::read`], with the rest of the file that it was read from and the numbers of
    /// entries and merges there.
    #[must_use]
    pub fn compiled(&self, rest: &str, n_entries: usize, n_merges: usize) -> Vec<u8> {
        let mut unreachable: Vec<u32> = self.unreachable_tokens.values().copied().collect();
        unreachable.sort_unstable();
        CompiledVocab::write(&self.vocab, &unreachable, rest, n_entries, n_merges)
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

    /// The special tokens that `allowed` recognises.
    #[must_use]
    pub fn recognized<'a>(&'a self, allowed: Allowed<'a>) -> &'a SpecialTokens {
        match allowed {
            Allowed::All => &self.special,
            Allowed::These(special) => special,
            Allowed::None | Allowed::Refused => &self.none,
        }
    }

    /// The special tokens that a text must not be cut inside: those recognised, or those refused.
    #[must_use]
    pub fn kept_whole<'a>(&'a self, allowed: Allowed<'a>) -> &'a SpecialTokens {
        if matches!(allowed, Allowed::Refused) { &self.special } else { self.recognized(allowed) }
    }

    /// The ordinary tokens in the order of their bytes.
    #[must_use]
    pub fn sorted_tokens(&self) -> &SortedTokens {
        self.sorted.get_or_init(|| Box::new(SortedTokens::new(&self.vocab)))
    }

    /// The id of a pre-token that is looked up whole because no merges lead to it.
    #[inline]
    pub(super) fn unreachable_token(&self, pretoken: &[u8]) -> Option<u32> {
        if self.unreachable_tokens.is_empty() { None } else { self.unreachable_tokens.get(pretoken).copied() }
    }

    /// Appends the ids of `text` to `out`.
    ///
    /// # Errors
    /// [`Error::SpecialToken`] with [`Allowed::Refused`]; [`Error::Pattern`] if a custom pattern fails; [`Error::Invalid`] if
    /// an id does not fit `T` or a pre-token has 4 GiB or more; [`Error::Memory`]; the error of `interrupt`. The content of
    /// `out` is unspecified then.
    pub fn encode<T: Id>(&self, text: &str, allowed: Allowed, out: &mut Vec<T>, interrupt: Interrupt) -> Result<()> {
        self.session(|session| session.encode(text, 0, allowed, out, interrupt))
    }

    /// # Errors
    /// [`Error::SpecialToken`] if `text` contains a special token.
    pub fn refuse_special(&self, text: &str) -> Result<()> {
        let refuse = |text: &str| match self.special.find(text).next() {
            Some(found) => {
                Err(Error::SpecialToken { token: self.special.tokens()[found.index].0.clone(), offset: found.start })
            }
            None => Ok(()),
        };
        refuse(text)?;
        // Normalization may produce another one.
        let normalizer = self.special.normalizer();
        if normalizer.is_identity() { Ok(()) } else { refuse(&normalizer.normalize(text, true, &no_interrupt)?) }
    }

    /// Appends the ids of bytes that may not be UTF-8, without special tokens. A malformed sequence is a pre-token.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_bytes<T: Id>(&self, bytes: &[u8], out: &mut Vec<T>, interrupt: Interrupt) -> Result<()> {
        check_width::<T>(self.vocab.n_ids())?;
        self.with_workspace(|workspace| {
            bytes.utf8_chunks().try_for_each(|chunk| {
                self.encode_segment(workspace, chunk.valid(), out, interrupt)?;
                self.encode_pretoken(chunk.invalid(), &mut workspace.symbols, out, interrupt)?;
                check_every(&mut workspace.since_check, 1, interrupt)
            })
        })
    }

    /// Appends the ids of a text without special tokens.
    ///
    /// Block by block: split into pre-tokens, hash them and prefetch their cache entries, look them up. Pre-tokens that the
    /// cache does not hold are pending until there are enough of them to be resolved together.
    pub(super) fn encode_segment<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &str,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let bytes = text.as_bytes();
        let n_before = out.len();
        let mut splits = self.pattern.splits(text);
        let mut done = 0;
        while splits.fill(&mut workspace.ends)? {
            let start = splits.block_start(done);
            let end = workspace.ends.last().copied().unwrap_or(start);
            workspace.hash(bytes, start, |pretoken, cut| self.cut_at_barriers(pretoken, cut));
            while let Some(too_long) = workspace.look_up(bytes) {
                self.resolve(workspace, bytes, out, interrupt)?;
                self.encode_pretoken(&bytes[too_long], &mut workspace.symbols, out, interrupt)?;
            }
            if workspace.pending.are_many() || workspace.ids.len() > MAX_BUFFERED_IDS {
                self.resolve(workspace, bytes, out, interrupt)?;
            }
            check_every(&mut workspace.since_check, end - done, interrupt)?;
            done = end;
        }
        self.resolve(workspace, bytes, out, interrupt)?;
        if let Some(unknown) = self.vocab.fused_id() {
            T::fuse(out, n_before, unknown);
        }
        Ok(())
    }

    /// Calls `cut` with every offset at which a long pre-token may be cut: see [`MergeBarriers`].
    fn cut_at_barriers(&self, pretoken: &[u8], cut: &mut dyn FnMut(usize)) {
        // An unreachable token must not be found in a part of a pre-token.
        if pretoken.is_ascii() || !self.unreachable_tokens.is_empty() {
            return;
        }
        let new = || Box::new(MergeBarriers::new(self.vocab.tokens().map(|(token, _)| token)));
        self.merge_barriers.get_or_init(new).for_each(pretoken, cut);
    }

    /// Appends the ids of one pre-token without using the cache. `symbols` is scratch space.
    pub(super) fn encode_pretoken<T: Id>(
        &self,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        if let Some(id) = self.unreachable_token(pretoken) {
            out.push(T::narrow(id));
            return Ok(());
        }
        self.merge_pretoken(pretoken, symbols, out, interrupt)
    }

    /// Appends the ids that merging alone makes of some bytes. `symbols` is scratch space.
    pub(super) fn merge_pretoken<T: Id>(
        &self,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        out: &mut Vec<T>,
        interrupt: Interrupt,
    ) -> Result<()> {
        let Some(leftovers) = self.vocab.leftovers() else {
            let id = |symbol: u32| T::narrow(self.vocab.symbol_id(symbol));
            return self.merger.merge_into(&self.vocab, pretoken, symbols, out, id, interrupt);
        };
        let mut ids = Vec::new();
        self.merger.merge_into(&self.vocab, pretoken, symbols, &mut ids, |s| self.vocab.symbol_id(s), interrupt)?;
        leftovers.expand(&mut ids, 0);
        out.try_reserve(ids.len()).map_err(|_| Error::memory::<T>(out.len() + ids.len()))?;
        out.extend(ids.into_iter().map(T::narrow));
        Ok(())
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        workspace_pool::discard(self.owner);
    }
}

/// Counts `n_bytes` of work and checks for cancellation when there is enough of it. The count carries over from text to text:
/// many short ones must be interruptible too.
#[inline]
pub(super) fn check_every(since_check: &mut usize, n_bytes: usize, interrupt: Interrupt) -> Result<()> {
    *since_check += n_bytes;
    if *since_check >= BYTES_PER_CHECK {
        *since_check = 0;
        interrupt()?;
    }
    Ok(())
}

/// The rules of each token, of which `rules` names some.
fn rules_in_order(tokens: &[(String, u32)], rules: &[(String, Rules)]) -> Result<Vec<Rules>> {
    let index_of: HashMap<&str, usize> =
        tokens.iter().zip(0..).map(|((token, _), index)| (token.as_str(), index)).collect();
    let mut in_order = vec![Rules::default(); tokens.len()];
    for (text, rule) in rules {
        let index = index_of.get(text.as_str());
        let index = index.ok_or_else(|| Error::Invalid(format!("{text:?} has rules but is no special token")))?;
        in_order[*index] = *rule;
    }
    Ok(in_order)
}
