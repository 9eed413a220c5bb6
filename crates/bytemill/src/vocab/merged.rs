//! Vocabularies by an ordered list of merges.

use super::helper::Helper;
use super::merge_list::MergeList;
use super::tokens::{Fault, TokenIndex, TokenList};
use super::whole::{Known, Tables, made_whole, perfect_beside};
use super::{Vocab, invalid, show};
use crate::error::Result;
use crate::pairs::PairTable;
use crate::words::Words;
use std::sync::Arc;

/// No symbol: a token that nothing makes.
const NO_SYMBOL: u32 = u32::MAX;

/// Tokens whose merges are added one by one, in order of rank.
///
/// A token that is neither a byte nor made by a merge is decoded, but no text encodes to it (GPT-2's files have such a
/// one where its end-of-text token is not named as special).
#[derive(Debug)]
pub struct MergedTokens {
    tokens: TokenList,
    index: TokenIndex,
    made: Made,
    /// The bytes of both parts of a merge.
    joined: Vec<u8>,
    /// What encoding asks for, where it has been built on the way, with all tokens for words; and whether each symbol's own
    /// bytes merge to it.
    known: Option<(Tables, bool)>,
}

/// What is made of what.
#[derive(Debug)]
struct Made {
    /// The symbol of each token by its place.
    symbols: Vec<u32>,
    symbol_ids: Vec<u32>,
    merges: Vec<(u32, u32)>,
    /// Where the next result is looked for first: files list tokens in the order of their merges.
    next: usize,
}

impl MergedTokens {
    /// Tokens without merges yet.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a token that is empty or there twice, and where a byte is no token.
    pub fn new(tokens: TokenList) -> Result<Self> {
        let ids = tokens.ids();
        let index = match TokenIndex::new(&tokens) {
            Ok(index) => index,
            Err(Fault::Empty(place)) => return invalid(format!("token {} is empty", ids[place])),
            Err(Fault::Twice(one, other)) => {
                return invalid(format!(
                    "token {} is there twice, with the ids {} and {}",
                    show(tokens.token(one)),
                    ids[one],
                    ids[other]
                ));
            }
        };
        let mut symbols = vec![NO_SYMBOL; tokens.len()];
        let mut symbol_ids = Vec::with_capacity(tokens.len());
        for byte in 0..=255u8 {
            let Some(place) = index.get(&[byte], |place| tokens.token(place as usize)) else {
                return invalid(format!("the byte {} is no token: all 256 bytes must be", show(&[byte])));
            };
            symbols[place as usize] = u32::from(byte);
            symbol_ids.push(ids[place as usize]);
        }
        let made = Made { symbols, symbol_ids, merges: Vec::new(), next: 0 };
        Ok(Self { tokens, index, made, joined: Vec::new(), known: None })
    }

    /// The place of a token.
    #[inline]
    pub(crate) fn place(&self, token: &[u8]) -> Option<usize> {
        place(&self.tokens, &self.index, token)
    }

    /// The tokens.
    pub(crate) fn tokens(&self) -> &TokenList {
        &self.tokens
    }

    /// True where the token at a place is a byte or made by a merge.
    pub(crate) fn is_made(&self, place: usize) -> bool {
        self.made.symbols[place] != NO_SYMBOL
    }

    /// How many merges there are.
    pub(crate) fn n_merges(&self) -> usize {
        self.made.merges.len()
    }

    /// Adds the merge of the next rank.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a merge of unknown parts, whose result is no token, or whose result an earlier one
    /// makes.
    pub fn merge(&mut self, left: &[u8], right: &[u8]) -> Result<()> {
        self.joined.clear();
        self.joined.extend_from_slice(left);
        self.joined.extend_from_slice(right);
        self.known = None;
        self.made.add(&self.tokens, &self.index, &self.joined, left.len()).map(|_| ())
    }

    /// With all merges, of tokens that have none yet, and with what encoding asks for.
    ///
    /// # Errors
    /// As [`MergedTokens::merge`], [`PairTable::insert`] and [`crate::pairs::PerfectPairs::new`].
    pub(crate) fn with_merges(self, merges: &MergeList, helper: &Helper<'_>) -> Result<Self> {
        debug_assert_eq!(self.n_merges(), 0);
        let Self { tokens, index, mut made, joined, .. } = self;
        let tokens = Arc::new(tokens);
        let all = Arc::clone(&tokens);
        let words = helper.ask(move || Words::new(all.iter().map(|(id, token)| (token, id))));
        let mut pairs = PairTable::new(merges.len());
        made.merges.reserve_exact(merges.len());
        for ((joined, n_left), symbol) in merges.iter().zip(256..) {
            let (left, right) = made.add(&tokens, &index, joined, n_left)?;
            pairs.insert(left, right, symbol)?;
        }
        let pairs = Arc::new(pairs);
        let perfect = perfect_beside(helper, &pairs);
        let all_whole = made_whole(&made.merges, &pairs).into_iter().all(|whole| whole);
        let (words, perfect) = (words.wait(), perfect.wait()?);
        let known = Some((Tables { pairs: Arc::unwrap_or_clone(pairs), perfect, words }, all_whole));
        Ok(Self { tokens: Arc::unwrap_or_clone(tokens), index, made, joined, known })
    }

    /// The vocabulary.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for an id of two tokens, and for one out of all proportion.
    pub fn finish(self, special: Vec<(String, u32)>) -> Result<Vocab> {
        self.finish_without(&[], special)
    }

    /// The vocabulary, of which the tokens at the places `left_out`, which nothing makes, are no part.
    ///
    /// # Errors
    /// As [`MergedTokens::finish`].
    pub(crate) fn finish_without(self, left_out: &[usize], special: Vec<(String, u32)>) -> Result<Vocab> {
        let Self { mut tokens, mut index, made, mut known, .. } = self;
        for &place in left_out {
            index.remove(tokens.token(place), |place| tokens.token(place as usize));
            if let Some((tables, _)) = &mut known {
                tables.words.forget(tokens.token(place));
            }
        }
        for &place in left_out {
            tokens.clear(place);
        }
        let n_tokens = tokens.len() - left_out.len();
        let all_made = made.symbol_ids.len() == n_tokens;
        let mut vocab = Vocab::assemble(&tokens, index, special, made.merges, made.symbol_ids)?;
        if let Some((Tables { pairs, perfect, words }, all_whole)) = known {
            vocab.known = Known { pairs: Some(pairs), perfect: Some(perfect), words: Some(words) };
            vocab.all_made_whole = all_made && all_whole;
        }
        Ok(vocab)
    }
}

impl Made {
    /// Adds a merge, of `joined` cut in two after `n_left` bytes, and gives the symbols of its parts.
    fn add(&mut self, tokens: &TokenList, index: &TokenIndex, joined: &[u8], n_left: usize) -> Result<(u32, u32)> {
        let (left, right) = joined.split_at(n_left);
        let name = || format!("merge {} ({} {})", self.merges.len(), show(left), show(right));
        let symbol = |token| self.symbol(tokens, index, token);
        let (left_symbol, right_symbol) = (symbol(left), symbol(right));
        let (Some(left_symbol), Some(right_symbol)) = (left_symbol, right_symbol) else {
            let unknown = if left_symbol.is_some() { right } else { left };
            return invalid(format!(
                "{}: {} is neither a byte nor the result of an earlier merge",
                name(),
                show(unknown)
            ));
        };
        let place = if self.next < tokens.len() && tokens.token(self.next) == joined {
            self.next
        } else if let Some(place) = place(tokens, index, joined) {
            place
        } else {
            return invalid(format!("{}: the vocabulary has no token {}", name(), show(joined)));
        };
        if self.symbols[place] != NO_SYMBOL {
            return invalid(format!("{}: an earlier merge makes {} already", name(), show(joined)));
        }
        self.next = place + 1;
        self.symbols[place] = self.symbol_ids.len() as u32;
        self.symbol_ids.push(tokens.ids()[place]);
        self.merges.push((left_symbol, right_symbol));
        Ok((left_symbol, right_symbol))
    }

    /// The symbol of a byte or of a merge's result.
    #[inline]
    fn symbol(&self, tokens: &TokenList, index: &TokenIndex, token: &[u8]) -> Option<u32> {
        if let [byte] = token {
            return Some(u32::from(*byte));
        }
        let symbol = self.symbols[place(tokens, index, token)?];
        (symbol != NO_SYMBOL).then_some(symbol)
    }
}

/// The place of a token.
#[inline]
fn place(tokens: &TokenList, index: &TokenIndex, token: &[u8]) -> Option<usize> {
    Some(index.get(token, |place| tokens.token(place as usize))? as usize)
}

impl Vocab {
    /// A vocabulary by an ordered list of merges, each given by the bytes of its two parts.
    ///
    /// `tokens` may hold the special tokens too.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`], naming the first contradiction: an id or a token that is there twice, a byte that is
    /// no token, a merge of unknown parts or whose result is no token, two merges with one result.
    pub fn from_merges(
        tokens: Vec<(u32, Vec<u8>)>,
        merges: &[(Vec<u8>, Vec<u8>)],
        special: Vec<(String, u32)>,
    ) -> Result<Self> {
        let tokens = TokenList::collect(tokens.iter().map(|(id, token)| (*id, &token[..])))?;
        Self::from_merged(tokens, merges.iter().map(|(left, right)| (&left[..], &right[..])), special)
    }

    /// As [`Vocab::from_merges`], without a copy of every token and merge.
    ///
    /// # Errors
    /// As [`Vocab::from_merges`].
    pub fn from_merged<'m>(
        tokens: TokenList,
        merges: impl IntoIterator<Item = (&'m [u8], &'m [u8])>,
        special: Vec<(String, u32)>,
    ) -> Result<Self> {
        let mut merged = MergedTokens::new(tokens)?;
        for (left, right) in merges {
            merged.merge(left, right)?;
        }
        merged.finish(special)
    }
}
