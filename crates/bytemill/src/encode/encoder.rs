//! [`Encoder`]: a vocabulary, a pattern and special tokens, ready to encode.

use super::merge_barriers::MergeBarriers;
use super::workspace_pool::{self, Owner};
use crate::bpe::Merger;
use crate::bpe::live_merges::{live_merges, unreachable_tokens};
use crate::error::{Error, Result};
use crate::pretokenize::Pattern;
use crate::pretokenize::shape::Shape;
use crate::special::{Rules, Segment, SpecialTokens};
use crate::sys::interrupt::no_interrupt;
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
    pub(super) unreachable_tokens: HashMap<Box<[u8]>, u32>,
    pub(super) shape: Shape,
    pub(super) merger: Merger,
    /// Built for the first long pre-token outside ASCII.
    pub(super) merge_barriers: OnceBox<MergeBarriers>,
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
            shape: Shape::default(),
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
        self.special = SpecialTokens::with_rules(tokens, rule_of)?.normalizing(Arc::new(normalizer))?;
        self.none = self.special.subset(|_| false)?;
        self.vocab.decode_as(self.special.normalized_texts());
        Ok(self)
    }

    /// The vocabulary as a block for [`CompiledVocab::read`], with the rest of the file that it was read from and the numbers of
    /// entries and merges there.
    pub fn compiled(&self, rest: &str, n_entries: usize, n_merges: usize) -> Vec<u8> {
        let mut unreachable: Vec<u32> = self.unreachable_tokens.values().copied().collect();
        unreachable.sort_unstable();
        CompiledVocab::write(&self.vocab, &unreachable, rest, n_entries, n_merges)
    }

    /// The vocabulary.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The pattern.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The special tokens.
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// The special tokens that `allowed` recognises.
    pub fn recognized<'a>(&'a self, allowed: Allowed<'a>) -> &'a SpecialTokens {
        match allowed {
            Allowed::All => &self.special,
            Allowed::These(special) => special,
            Allowed::None | Allowed::Refused => &self.none,
        }
    }

    /// The special tokens that a text must not be cut inside: those recognised, or those refused.
    pub fn kept_whole<'a>(&'a self, allowed: Allowed<'a>) -> &'a SpecialTokens {
        if matches!(allowed, Allowed::Refused) { &self.special } else { self.recognized(allowed) }
    }

    /// The ordinary tokens in the order of their bytes.
    pub fn sorted_tokens(&self) -> &SortedTokens {
        self.sorted.get_or_init(|| Box::new(SortedTokens::new(&self.vocab)))
    }

    /// The last pre-token of a text; `None` if the text is empty or ends with a special token.
    ///
    /// # Errors
    /// [`Error::Pattern`] if a custom pattern fails.
    pub fn last_pretoken(&self, text: &str, allowed: Allowed) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.recognized(allowed).segments(text, true, &no_interrupt, |segment| {
            let mut last = None;
            if let Segment::Text(text) = segment {
                self.pattern.for_each(text, |pretoken| last = Some(pretoken))?;
            }
            found = last.map(<[u8]>::to_vec);
            Ok(())
        })?;
        Ok(found)
    }

    /// Appends the symbols of a pre-token to `out`; for one that is looked up whole because no merges lead to it, any single
    /// symbol.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pre-token of 4 GiB, [`Error::Memory`].
    pub fn symbols_of(&self, pretoken: &[u8], out: &mut Vec<u32>) -> Result<()> {
        if self.unreachable_token(pretoken).is_some() {
            out.push(0);
            return Ok(());
        }
        self.merger.merge_into(&self.vocab, pretoken, &mut Vec::new(), out, |symbol| symbol, &no_interrupt)
    }

    /// The id of a pre-token that is looked up whole because no merges lead to it.
    #[inline]
    pub(super) fn unreachable_token(&self, pretoken: &[u8]) -> Option<u32> {
        if self.unreachable_tokens.is_empty() { None } else { self.unreachable_tokens.get(pretoken).copied() }
    }

    /// # Errors
    /// [`Error::SpecialToken`] if `text` contains a special token.
    pub fn refuse_special(&self, text: &str) -> Result<()> {
        let refuse = |text: &str| match self.special.find_special(text) {
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
}

impl Drop for Encoder {
    fn drop(&mut self) {
        workspace_pool::discard(self.owner);
    }
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
