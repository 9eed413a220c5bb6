//! Which tokens their own bytes encode to.

use super::Vocab;
use super::helper::{Asked, Helper, with_helper};
use crate::error::Result;
use crate::pairs::{NONE, PairTable, PerfectPairs};
use crate::words::Words;
use std::sync::Arc;

/// What encoding asks for.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Which symbol a pair of symbols becomes, for one pre-token at a time, where it is waited for.
    pub pairs: PairTable,
    /// The same for many pre-tokens at a time, where memory is.
    pub perfect: PerfectPairs,
    /// Which short tokens their own bytes encode to.
    pub words: Words,
}

/// Tables that are known already.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub pairs: Option<PairTable>,
    pub perfect: Option<PerfectPairs>,
    /// Of all tokens, whether their own bytes encode to them or not.
    pub words: Option<Words>,
}

/// Has the table for many pre-tokens at a time made by a helper.
pub(super) fn perfect_beside(helper: &Helper<'_>, pairs: &Arc<PairTable>) -> Asked<Result<PerfectPairs>> {
    let pairs = Arc::clone(pairs);
    helper.ask(move || PerfectPairs::new(&pairs))
}

impl Vocab {
    /// The tables. What reading a file has built on the way is handed on; so the second call takes longer than the first.
    ///
    /// # Errors
    /// As [`PairTable::insert`] and [`PerfectPairs::new`].
    pub fn take_tables(&mut self) -> Result<Tables> {
        let Known { pairs, perfect, words } = std::mem::take(&mut self.known);
        let pairs = Arc::new(pairs.map_or_else(|| self.pairs(), Ok)?);
        let words = words.filter(|_| self.takes_all_tokens());
        let words = || words.unwrap_or_else(|| self.words(&pairs));
        let (perfect, words) = match perfect {
            Some(perfect) => (perfect, words()),
            None => with_helper(|helper| {
                let perfect = perfect_beside(helper, &pairs);
                let words = words();
                perfect.wait().map(|perfect| (perfect, words))
            })?,
        };
        Ok(Tables { pairs: Arc::unwrap_or_clone(pairs), perfect, words })
    }

    /// Whether all tokens are what their own bytes encode to.
    fn takes_all_tokens(&self) -> bool {
        self.whole_pretoken_lookup || self.all_made_whole
    }

    fn words(&self, pairs: &PairTable) -> Words {
        let tokens: Vec<_> = if self.takes_all_tokens() {
            self.tokens().collect()
        } else {
            let whole = (0..).zip(made_whole(&self.merges, pairs)).filter(|(_, whole)| *whole);
            whole.map(|(symbol, _)| (self.symbol(symbol), self.symbol_ids[symbol as usize])).collect()
        };
        Words::new(tokens.into_iter())
    }

    /// The merges that some text needs, in the order of their ranks: left symbol, right symbol, and what they become.
    ///
    /// A merge is needed if and only if the bytes of its result, alone, merge to it. For nothing crosses the ends of a
    /// stretch that becomes a token in some text, so what happens inside it happens to its bytes alone as well; which
    /// also means that a token comes of the same two parts wherever it does. `pairs` is the table of
    /// [`Vocab::take_tables`].
    #[must_use]
    pub fn live_merges(&self, pairs: &PairTable) -> Vec<(u32, u32, u32)> {
        if self.ranked {
            let symbols = 256..self.symbol_ids.len() as u32;
            return symbols.filter_map(|symbol| last_merge(pairs, self.symbol(symbol))).collect();
        }
        let made = self.merges.iter().zip(256..).map(|(&(left, right), symbol)| (left, right, symbol));
        if self.all_made_whole {
            return made.collect();
        }
        let whole = made_whole(&self.merges, pairs);
        made.filter(|(_, _, symbol)| whole[*symbol as usize]).collect()
    }

    /// The two symbols of which a symbol is made; None for a byte, and for a token that nothing makes. `pairs` is the
    /// table of [`Vocab::take_tables`].
    #[must_use]
    pub fn parts(&self, pairs: &PairTable, symbol: u32) -> Option<(u32, u32)> {
        if self.ranked {
            return last_merge(pairs, self.symbol(symbol)).map(|(left, right, _)| (left, right));
        }
        self.merges.get(symbol.checked_sub(256)? as usize).copied()
    }

    /// The tokens with their ids that only a look-up of whole pre-tokens finds: neither bytes nor results of the merges
    /// `live`.
    #[must_use]
    pub fn only_looked_up(&self, live: &[(u32, u32, u32)]) -> Vec<(u32, &[u8])> {
        let mut is_merged = vec![false; self.n_ids()];
        for &symbol in live.iter().map(|(_, _, made)| made) {
            is_merged[self.symbol_ids[symbol as usize] as usize] = true;
        }
        let others = self.tokens().filter(|(token, id)| token.len() > 1 && !is_merged[*id as usize]);
        others.map(|(token, id)| (id, token)).collect()
    }

    fn pairs(&self) -> Result<PairTable> {
        let mut pairs = PairTable::new(self.merges.len() + self.other_splits.len());
        for (&(left, right), symbol) in self.merges.iter().zip(256..) {
            pairs.insert(left, right, symbol)?;
        }
        for &(left, right, symbol) in &self.other_splits {
            pairs.insert(left, right, symbol)?;
        }
        Ok(pairs)
    }
}

/// The last merge of a token's own bytes; None where they do not merge to one symbol.
fn last_merge(pairs: &PairTable, token: &[u8]) -> Option<(u32, u32, u32)> {
    let steps = crate::bpe::steps(pairs, token);
    let last = steps.last().filter(|_| steps.len() + 1 == token.len())?;
    Some((last.left, last.right, last.symbol))
}

/// For each symbol whether its own bytes merge to it.
///
/// Bytes do. A symbol t can only come from the one merge that makes it, of l and r. Before that merge no other has
/// crossed the ends of l and r, so each came about as if it stood alone; hence t is made whole if and only if l and r
/// are and nothing crosses the boundary between them before t does: see [`stay_apart`].
pub(super) fn made_whole(merges: &[(u32, u32)], pairs: &PairTable) -> Vec<bool> {
    let mut whole = vec![true; 256];
    whole.reserve(merges.len());
    for &(left, right) in merges {
        let is_whole = whole[left as usize]
            && whole[right as usize]
            && stay_apart(merges, pairs, (left, right), whole.len() as u32);
        whole.push(is_whole);
    }
    whole
}

/// Whether the bytes of two symbols, each made whole, become these two where they are next to each other, with no merge
/// across the boundary before the one that makes `joined` of them. `pairs` has all merges of lower rank than that one.
///
/// Merges happen in the order of their symbols, since a merge's parts are smaller than its result; equal ones from left
/// to right. While nothing crosses, the symbol left of the boundary goes through a chain a₀ < a₁ < … < l, in which each
/// is the right part of the next, and the one right of it through b₀ < b₁ < … < r, each the left part of the next. When
/// aᵢ and bⱼ are neighbours, their merge c (which is greater than both) happens if its turn comes before aᵢ or bⱼ is gone:
/// before aᵢ₊₁, and not after bⱼ₊₁. (If aᵢ₊₁ is c too, its merge lies further to the left and comes first; if bⱼ₊₁ is, the
/// one across the boundary does.) So it is enough to walk through these neighbours, here backwards in time: of aᵢ and bⱼ
/// the greater came later, and of equals the right one.
fn stay_apart(merges: &[(u32, u32)], pairs: &PairTable, (left, right): (u32, u32), joined: u32) -> bool {
    let (mut a, mut b) = (left, right);
    // What ends the two at the top of the chains is the merge that joins them.
    let (mut a_next, mut b_next) = (joined, joined);
    loop {
        let crossing = pairs.get(a, b);
        if crossing != NONE && crossing < a_next && crossing <= b_next {
            return false;
        }
        if a < 256 && b < 256 {
            return true;
        }
        if a > b {
            (a_next, a) = (a, merges[a as usize - 256].1);
        } else {
            (b_next, b) = (b, merges[b as usize - 256].0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn made_whole_equals_merging_each_symbol_from_its_bytes(
            choices in prop::collection::vec((any::<u32>(), any::<u32>()), 0..80),
            n_letters in 1u32..4,
        ) {
            let mut bytes: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
            let mut known: Vec<u32> = (97..97 + n_letters).collect();
            let mut seen: HashSet<Vec<u8>> = HashSet::new();
            let mut merges = Vec::new();
            let mut pairs = PairTable::new(choices.len());
            for (left, right) in choices {
                let (left, right) = (known[left as usize % known.len()], known[right as usize % known.len()]);
                let token = [&bytes[left as usize][..], &bytes[right as usize][..]].concat();
                if token.len() <= 64 && seen.insert(token.clone()) {
                    let symbol = bytes.len() as u32;
                    pairs.insert(left, right, symbol).unwrap();
                    merges.push((left, right));
                    known.push(symbol);
                    bytes.push(token);
                }
            }
            for (symbol, whole) in made_whole(&merges, &pairs).into_iter().enumerate() {
                let mut symbols = Vec::new();
                crate::bpe::merge(&pairs, &bytes[symbol], &mut symbols, &crate::pulse::no_pulse).unwrap();
                prop_assert_eq!(whole, symbols == [symbol as u32], "{:?}", bytes[symbol]);
            }
        }
    }
}
