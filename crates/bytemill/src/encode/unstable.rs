//! Ids that more text may change, and what may become of them: tiktoken's `encode_with_unstable`.
//!
//! When text goes on, the ids of its last pre-token may be others. A *completion* is a shortest list of ids in their place
//! whose bytes begin with theirs, the *unstable* ones. One token may go beyond the end of the text, and this one is tried
//! at every place at which it may begin: each token that begins with the rest of the unstable bytes is put there, all is
//! encoded anew, and what comes out is cut off behind the end of the text.
//!
//! Only the last `longest` places have tokens to be tried, so the number of lists does not grow with the text. Each of them
//! begins at the first unstable byte; so all together may be long where the last pre-token is, and there is a limit.

use super::{Allowed, Encoder, Pulse, Workspace, tick};
use crate::error::{Error, Result};
use crate::special::Segment;
use std::collections::HashSet;

/// Bytes that are encoded in search of completions, at most: some seconds. The last pre-token of a text in any language
/// takes some megabytes at most, 2,000 blanks 100 MB with cl100k.
const MOST_BYTES: usize = if cfg!(test) { 1 << 20 } else { 1 << 29 };

/// Ids of all completions together, at most.
const MOST_IDS: usize = 1 << 26;

/// A text as ids, as far as no more text can change them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unstable {
    /// The ids that stay.
    pub stable: Vec<u32>,
    /// What may follow them, each once, in order.
    pub completions: Vec<Vec<u32>>,
}

impl Encoder {
    /// The ids of `text` but for those of its last pre-token, and what those may be when text goes on.
    ///
    /// White space at the end counts as one pre-token: more of it, or a letter, may divide it otherwise. After a special
    /// token nothing is unstable.
    ///
    /// # Errors
    /// As [`Encoder::encode`], and [`Error::Invalid`] where the last pre-token is too long for all its completions.
    pub fn encode_with_unstable(&self, text: &str, allowed: Allowed, pulse: Pulse) -> Result<Unstable> {
        let mut stable: Vec<u32> = Vec::new();
        self.encode(text, allowed, &mut stable, pulse)?;
        let n_stable = stable.len() - self.n_unstable(&stable, text, allowed, pulse)?;
        let unstable: Vec<u8> =
            stable.drain(n_stable..).flat_map(|id| self.vocab.token(id).unwrap_or_default()).copied().collect();
        let completions = self.with_workspace(0, |workspace| self.completions(workspace, &unstable, pulse))?;
        Ok(Unstable { stable, completions })
    }

    /// How many of the `ids` of `text` more text may change.
    fn n_unstable(&self, ids: &[u32], text: &str, allowed: Allowed, pulse: Pulse) -> Result<usize> {
        let special = match allowed {
            Allowed::All => &self.special,
            Allowed::These(special) => special,
            Allowed::None | Allowed::Refused => &self.none,
        };
        let mut tail = None;
        special.segments(text, pulse, |segment| {
            tail = if let Segment::Text(text) = segment { Some(text.to_owned()) } else { None };
            Ok(())
        })?;
        let mut last = None;
        if let Some(tail) = &tail {
            self.pattern.for_each(tail, |pretoken| last = Some(pretoken))?;
        }
        let Some(last) = last else { return Ok(0) };
        let mut of_last: Vec<u32> = Vec::new();
        self.encode_pretoken(last.as_bytes(), &mut Vec::new(), &mut of_last, pulse)?;
        let mut n_unstable = of_last.len();
        if of_last.first().is_some_and(|&id| self.is_blank(id)) {
            n_unstable += ids[..ids.len() - n_unstable].iter().rev().take_while(|&&id| self.is_blank(id)).count();
        }
        Ok(n_unstable)
    }

    /// True for an ordinary token of nothing but blanks, tabs and line feeds.
    fn is_blank(&self, id: u32) -> bool {
        let token = self.vocab.token(id).unwrap_or_default();
        token.iter().all(|byte| b" \n\t".contains(byte)) && self.vocab.id(token) == Some(id)
    }

    fn completions(&self, workspace: &mut Workspace, unstable: &[u8], pulse: Pulse) -> Result<Vec<Vec<u32>>> {
        if unstable.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = self.sorted_tokens();
        let places = unstable.len().saturating_sub(tokens.longest()).max(1)..unstable.len();
        let n_bytes = places.clone().fold(0_usize, |n_bytes, place| {
            let n_tokens = tokens.beginning_with(&self.vocab, &unstable[place..]).len();
            n_bytes.saturating_add(n_tokens.saturating_mul(place + tokens.longest()))
        });
        if n_bytes > MOST_BYTES {
            return too_long(unstable);
        }
        let mut found = Completions::default();
        for &id in tokens.beginning_with(&self.vocab, unstable) {
            found.add(&[id]);
        }
        let (mut possible, mut ids) = (Vec::new(), Vec::new());
        for place in places {
            let (before, rest) = unstable.split_at(place);
            for &id in tokens.beginning_with(&self.vocab, rest) {
                possible.clear();
                possible.extend_from_slice(before);
                possible.extend_from_slice(self.vocab.token(id).unwrap_or_default());
                ids.clear();
                if let Ok(text) = std::str::from_utf8(&possible) {
                    self.encode_segment(workspace, text, &mut ids, pulse)?;
                } else {
                    // No text that a pattern could be applied to: merged as if it were one pre-token.
                    self.merge_alone(&possible, &mut workspace.symbols, &mut ids, pulse)?;
                    tick(&mut workspace.since_pulse, possible.len(), pulse)?;
                }
                let mut n_bytes = 0;
                let enough = ids.iter().position(|&id| {
                    n_bytes += self.vocab.token(id).map_or(0, <[u8]>::len);
                    n_bytes >= unstable.len()
                });
                ids.truncate(enough.map_or(ids.len(), |last| last + 1));
                found.add(&ids);
                if found.n_ids > MOST_IDS {
                    return too_long(unstable);
                }
            }
        }
        // `\s+(?!\S)` gives the last blank back where text follows.
        let last = unstable.utf8_chunks().last().filter(|chunk| chunk.invalid().is_empty());
        if let Some(last) = last.and_then(|chunk| chunk.valid().chars().next_back())
            && last.is_whitespace()
            && last.len_utf8() < unstable.len()
        {
            ids.clear();
            let (before, blank) = unstable.split_at(unstable.len() - last.len_utf8());
            self.merge_alone(before, &mut workspace.symbols, &mut ids, pulse)?;
            self.merge_alone(blank, &mut workspace.symbols, &mut ids, pulse)?;
            found.add(&ids);
        }
        Ok(found.sorted())
    }

    /// Appends the ids that merges alone make of some bytes.
    fn merge_alone(&self, bytes: &[u8], symbols: &mut Vec<u32>, out: &mut Vec<u32>, pulse: Pulse) -> Result<()> {
        let ids = self.vocab.symbol_ids();
        let id = |symbol: u32| ids[symbol as usize];
        self.merger.merge_into(&self.vocab, &self.pairs, bytes, symbols, out, id, pulse)
    }
}

fn too_long<T>(unstable: &[u8]) -> Result<T> {
    let n_bytes = unstable.len();
    Err(Error::Invalid(format!(
        "the text ends with {n_bytes} bytes in one pre-token, too many for all its completions"
    )))
}

/// Lists of ids, each once.
#[derive(Default)]
struct Completions {
    lists: HashSet<Vec<u32>>,
    n_ids: usize,
}

impl Completions {
    fn add(&mut self, ids: &[u32]) {
        if !self.lists.contains(ids) {
            self.lists.insert(ids.to_vec());
            self.n_ids += ids.len();
        }
    }

    fn sorted(self) -> Vec<Vec<u32>> {
        let mut lists: Vec<_> = self.lists.into_iter().collect();
        lists.sort_unstable();
        lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::no_pulse;
    use crate::pretokenize::Pattern;
    use crate::vocab::Vocab;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const TOKENS: [&[u8]; 16] = [
        b"ab",
        b"abc",
        b" a",
        b" ab",
        b"  ",
        b"   ",
        b"\n\n",
        b"\n ",
        b"bc",
        b"\xC3\xA9",
        b"a\xC3",
        b"\xA9b",
        b"cab",
        b" abcab",
        b"aaaa",
        b"aa",
    ];

    fn encoder(pattern: Option<&str>, drops_unmatched: bool) -> Encoder {
        let tokens = (0..=255).map(|byte| vec![byte]).chain(TOKENS.map(<[u8]>::to_vec));
        let vocab = Vocab::from_ranks(tokens.zip(0..).collect(), vec![("<s>".to_owned(), 999)]).unwrap();
        Encoder::new(vocab, Pattern::new(pattern).unwrap().dropping_unmatched(drops_unmatched)).unwrap()
    }

    fn bytes_of(encoder: &Encoder, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| encoder.vocab.token(id).unwrap()).copied().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn every_encoding_of_a_longer_text_in_one_pretoken_begins_with_a_completion(
            text in "[abcé]{1,8}",
            more in "[abcé]{0,4}",
        ) {
            let encoder = encoder(Some(r"(?s).+"), false);
            let found = encoder.encode_with_unstable(&text, Allowed::All, &no_pulse).unwrap();
            prop_assert!(found.stable.is_empty());
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&format!("{text}{more}"), Allowed::All, &mut ids, &no_pulse).unwrap();
            // The first ids that reach the end of the text: if they go beyond it by bytes that are no text, by a token that was tried.
            let reach = (0..=ids.len()).find(|&n| bytes_of(&encoder, &ids[..n]).len() >= text.len()).unwrap();
            if bytes_of(&encoder, &ids[..reach]) == text.as_bytes() {
                prop_assert!(found.completions.contains(&ids[..reach].to_vec()), "{:?} in {:?}", ids, found);
            }
        }

        #[test]
        fn completions_are_sorted_and_begin_with_the_rest_of_the_text(
            text in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", " ", "\n", "é", "<s>", "!"]), 0..10),
            pattern in prop::sample::select(vec![Some("gpt2"), Some("cl100k"), Some("o200k"), Some(r"\S+|\s+"), None]),
        ) {
            let (encoder, text) = (encoder(pattern, false), text.concat());
            let found = encoder.encode_with_unstable(&text, Allowed::All, &no_pulse).unwrap();
            let stable = bytes_of(&encoder, &found.stable);
            let rest = text.as_bytes().strip_prefix(&stable[..]).unwrap();
            prop_assert_eq!(found.completions.is_empty(), rest.is_empty());
            for ids in &found.completions {
                prop_assert!(bytes_of(&encoder, ids).starts_with(rest));
                prop_assert!(bytes_of(&encoder, &ids[..ids.len() - 1]).len() < rest.len());
            }
            let unique: BTreeSet<_> = found.completions.iter().cloned().collect();
            prop_assert_eq!(unique.into_iter().collect::<Vec<_>>(), found.completions);
        }
    }

    #[test]
    fn nothing_is_unstable_after_a_special_token_or_where_nothing_matches() {
        let plain = encoder(Some("gpt2"), false);
        let found = plain.encode_with_unstable("ab<s>", Allowed::All, &no_pulse).unwrap();
        assert_eq!(found, Unstable { stable: vec![256, 999], completions: vec![] });
        let dropping = encoder(Some(r"\w+"), true);
        let found = dropping.encode_with_unstable("ab<s>!!", Allowed::All, &no_pulse).unwrap();
        assert_eq!(found, Unstable { stable: vec![256, 999], completions: vec![] });
        // What is dropped leaves the last pre-token before it the last one.
        let found = dropping.encode_with_unstable("ab!!", Allowed::All, &no_pulse).unwrap();
        assert_eq!((found.stable.len(), found.completions), (0, vec![vec![256], vec![257]]));
    }

    #[test]
    fn a_last_pretoken_that_would_take_too_long_is_refused() {
        let encoder = encoder(None, false);
        let error = encoder.encode_with_unstable(&"a".repeat(1 << 18), Allowed::None, &no_pulse).unwrap_err();
        assert!(error.to_string().contains("too many for all its completions"));
    }
}
