//! Vocabularies by ranks, and the merges behind them.

use super::tokens::{Fault, TokenIndex, TokenList};
use super::whole::stay_apart;
use super::{Vocab, invalid, show};
use crate::error::Result;
use crate::pairs::PairTable;

/// No place, or no symbol yet.
const NONE: u32 = u32::MAX;

/// Merges that encode as ranks do.
struct Recovered {
    merges: Vec<(u32, u32)>,
    pairs: PairTable,
}

impl Vocab {
    /// A vocabulary by ranks: each token's id is its priority, and any two neighbours whose bytes joined are a token
    /// may merge (the rule of tiktoken).
    ///
    /// The merges are recovered by encoding each token with the tokens of lower rank. Where that leaves two parts for
    /// every token, the recovered merges encode exactly as the ranks do. (Say all merges of rank below r are done in
    /// a pre-token and two neighbours x, y join to the token t of rank r. No token crosses the ends of that stretch,
    /// so the merges inside it were those of t alone: the stretch is in the state of t encoded with lower ranks,
    /// which is the recovered pair.) Where a token is left in one part or more than two, it cannot be reached in
    /// that way; then every split of every token into two tokens is kept, and a whole pre-token is looked up first,
    /// which is tiktoken's rule word for word.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] as for [`Vocab::from_merges`].
    pub fn from_ranks(ranks: Vec<(Vec<u8>, u32)>, special: Vec<(String, u32)>) -> Result<Self> {
        Self::from_ranked(TokenList::collect(ranks.iter().map(|(token, rank)| (*rank, &token[..])))?, special)
    }

    /// As [`Vocab::from_ranks`], without a copy of every token.
    ///
    /// # Errors
    /// As [`Vocab::from_ranks`].
    pub fn from_ranked(mut tokens: TokenList, special: Vec<(String, u32)>) -> Result<Self> {
        tokens.sort_by_id();
        let ids = tokens.ids();
        if let Some(place) = ids.windows(2).position(|two| two[0] == two[1]) {
            let (one, other) = (show(tokens.token(place)), show(tokens.token(place + 1)));
            return invalid(format!("rank {} belongs to two tokens, {one} and {other}", ids[place]));
        }
        let index = match TokenIndex::new(&tokens) {
            Ok(index) => index,
            Err(Fault::Empty(place)) => return invalid(format!("the token of rank {} is empty", ids[place])),
            Err(Fault::Twice(one, other)) => {
                return invalid(format!(
                    "token {} is there twice, with the ranks {} and {}",
                    show(tokens.token(one)),
                    ids[one],
                    ids[other]
                ));
            }
        };
        let mut symbol_ids = vec![u32::MAX; 256];
        symbol_ids.reserve(tokens.len());
        let mut seen = [false; 256];
        for (rank, token) in tokens.iter() {
            if let [byte] = token {
                symbol_ids[usize::from(*byte)] = rank;
                seen[usize::from(*byte)] = true;
            } else {
                symbol_ids.push(rank);
            }
        }
        if let Some(byte) = seen.iter().position(|seen| !seen) {
            return invalid(format!("the byte {} is no token: all 256 bytes must be", show(&[byte as u8])));
        }
        if let Some(Recovered { merges, pairs }) = recover(&tokens, &index)? {
            let mut vocab = Self::assemble(&tokens, index, special, merges, symbol_ids)?;
            vocab.recovered_pairs = Some(pairs);
            vocab.all_made_whole = true;
            return Ok(vocab);
        }
        let splits = all_splits(&tokens, &index);
        let mut vocab = Self::assemble(&tokens, index, special, Vec::new(), symbol_ids)?;
        vocab.other_splits = splits;
        vocab.ranked = true;
        Ok(vocab.with_whole_pretoken_lookup(true))
    }
}

/// Tokens of more bytes are merged to find their two parts, since looking for parts asks for each length.
const SEARCHED_BYTES: usize = 64;

/// The merges behind tokens in the order of their ranks; None where one is not left in two parts by those before it.
///
/// If a token t is left in two parts l and r, both are tokens of lower rank, and each is what its own bytes are merged
/// to; so [`stay_apart`] decides for every split of t into two such tokens, and is true for one at most. That takes a third
/// of the time of merging each token: most tokens have one to three such splits.
fn recover(tokens: &TokenList, index: &TokenIndex) -> Result<Option<Recovered>> {
    let bytes: Vec<u32> = (0..=255).map(|byte| place(tokens, index, &[byte]).unwrap_or(NONE)).collect();
    let (prefixes, suffixes) = join(
        || {
            longest(tokens, |token, n_bytes| match n_bytes {
                1 => Some(bytes[usize::from(token[0])]),
                _ => place(tokens, index, &token[..n_bytes]),
            })
        },
        || {
            longest(tokens, |token, n_bytes| match n_bytes {
                1 => Some(bytes[usize::from(token[token.len() - 1])]),
                _ => place(tokens, index, &token[token.len() - n_bytes..]),
            })
        },
    );
    let mut pairs = PairTable::new(tokens.len());
    let mut merges: Vec<(u32, u32)> = Vec::with_capacity(tokens.len());
    // The symbol of each token so far, by its place. A byte's is known from the start.
    let mut symbols = vec![NONE; tokens.len()];
    for (byte, &place) in (0..).zip(&bytes).filter(|(_, place)| **place != NONE) {
        symbols[place as usize] = byte;
    }
    let mut parts = Vec::new();
    let mut suffix_symbols = [NONE; SEARCHED_BYTES];
    for (at, (_, token)) in tokens.iter().enumerate().filter(|(_, (_, token))| token.len() > 1) {
        let made = 256 + merges.len() as u32;
        let found = if token.len() <= SEARCHED_BYTES {
            let mut n_bytes_of_suffixes = 0u64;
            let mut suffix = suffixes[at];
            while suffix != NONE {
                let n_bytes = tokens.token(suffix as usize).len();
                suffix_symbols[n_bytes] = symbols[suffix as usize];
                n_bytes_of_suffixes |= 1 << n_bytes;
                suffix = suffixes[suffix as usize];
            }
            let mut found = None;
            let mut prefix = prefixes[at];
            while prefix != NONE && found.is_none() {
                let rest = token.len() - tokens.token(prefix as usize).len();
                if n_bytes_of_suffixes & 1 << rest != 0 {
                    let (left, right) = (symbols[prefix as usize], suffix_symbols[rest]);
                    let both_are_earlier = left != NONE && right != NONE;
                    if both_are_earlier && stay_apart(&merges, &pairs, (left, right), made) {
                        found = Some((left, right));
                    }
                }
                prefix = prefixes[prefix as usize];
            }
            found
        } else {
            parts.clear();
            crate::bpe::merge(&pairs, token, &mut parts, &crate::pulse::no_pulse)?;
            if let [left, right] = parts[..] { Some((left, right)) } else { None }
        };
        let Some((left, right)) = found else { return Ok(None) };
        pairs.insert(left, right, made)?;
        merges.push((left, right));
        symbols[at] = made;
    }
    Ok(Some(Recovered { merges, pairs }))
}

fn place(tokens: &TokenList, index: &TokenIndex, token: &[u8]) -> Option<u32> {
    index.get(token, |place| tokens.token(place as usize))
}

/// For each token the place of the longest shorter token at one of its ends, which `find` looks for by number of bytes;
/// [`NONE`] for tokens of one byte or of very many.
fn longest(tokens: &TokenList, find: impl Fn(&[u8], usize) -> Option<u32>) -> Vec<u32> {
    let of_token = |(_, token): (u32, &[u8])| {
        if token.len() > SEARCHED_BYTES {
            return NONE;
        }
        (1..token.len()).rev().find_map(|n_bytes| find(token, n_bytes)).unwrap_or(NONE)
    };
    tokens.iter().map(of_token).collect()
}

/// Every way to split every token into two, by symbols.
///
/// Only where both parts have as many bytes as some token does is the index asked. Tokens of B bytes together have at
/// most √2B different lengths, so that a long token costs that many look-ups and not one for each of its bytes.
fn all_splits(tokens: &TokenList, index: &TokenIndex) -> Vec<(u32, u32, u32)> {
    let mut symbols = Vec::with_capacity(tokens.len());
    let mut next = 256;
    for (_, token) in tokens.iter() {
        symbols.push(if let [byte] = token {
            u32::from(*byte)
        } else {
            next += 1;
            next - 1
        });
    }
    let mut lengths: Vec<usize> = tokens.iter().map(|(_, token)| token.len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let is_length = |n_bytes: usize| lengths.binary_search(&n_bytes).is_ok();
    let symbol = |part: &[u8]| Some(symbols[place(tokens, index, part)? as usize]);
    let mut splits = Vec::new();
    for (made, (_, token)) in symbols.iter().zip(tokens.iter()) {
        for &at in lengths.iter().take_while(|&&at| at < token.len()).filter(|&&at| is_length(token.len() - at)) {
            if let (Some(left), Some(right)) = (symbol(&token[..at]), symbol(&token[at..])) {
                splits.push((left, right, *made));
            }
        }
    }
    splits
}

/// Does both, on two threads where there are two.
fn join<A: Send, B>(one: impl FnOnce() -> A + Send + Clone, other: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let helper = std::thread::Builder::new().spawn_scoped(scope, one.clone());
        let done = other();
        match helper.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(one)) => (one, done),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => (one(), done),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As [`recover`], each token merged by those before it.
    fn recover_plainly(tokens: &TokenList) -> Option<Vec<(u32, u32)>> {
        let mut pairs = PairTable::new(tokens.len());
        let mut merges = Vec::new();
        for (_, token) in tokens.iter().filter(|(_, token)| token.len() > 1) {
            let mut parts = Vec::new();
            crate::bpe::merge(&pairs, token, &mut parts, &crate::pulse::no_pulse).unwrap();
            let [left, right] = parts[..] else { return None };
            pairs.insert(left, right, 256 + merges.len() as u32).unwrap();
            merges.push((left, right));
        }
        Some(merges)
    }

    /// All bytes, somewhere among these tokens without those that are there already.
    fn list(more: impl IntoIterator<Item = Vec<u8>>, bytes_at: usize) -> TokenList {
        let mut all: Vec<Vec<u8>> = Vec::new();
        for token in more {
            if token.len() > 1 && !all.contains(&token) {
                all.push(token);
            }
        }
        let bytes_at = bytes_at.min(all.len());
        all.splice(bytes_at..bytes_at, (0..=255).map(|byte| vec![byte]));
        TokenList::collect((0..).zip(all.iter().map(|token| &token[..]))).unwrap()
    }

    fn assert_recovered_as_plainly(tokens: &TokenList) {
        let index = TokenIndex::new(tokens).unwrap();
        let recovered = recover(tokens, &index).unwrap().map(|recovered| recovered.merges);
        assert_eq!(recovered, recover_plainly(tokens));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn merges_of_any_ranks_equal_those_of_merging(
            tokens in prop::collection::vec(prop::collection::vec(97u8..100, 2..6), 0..12),
            bytes_at in 0usize..12,
        ) {
            assert_recovered_as_plainly(&list(tokens, bytes_at));
        }

        // Tokens of two earlier ones are often reached, and grow beyond what is searched.
        #[test]
        fn merges_of_ranks_that_grow_from_each_other_equal_those_of_merging(
            choices in prop::collection::vec((any::<u16>(), any::<u16>()), 0..40),
            n_letters in 1u8..4,
        ) {
            let mut known: Vec<Vec<u8>> = (97..97 + n_letters).map(|letter| vec![letter]).collect();
            let mut reached = list([], 0);
            for (left, right) in choices {
                let token = [&known[usize::from(left) % known.len()][..], &known[usize::from(right) % known.len()]].concat();
                let mut tokens = reached.clone();
                tokens.push(tokens.len() as u32, &token).unwrap();
                let is_new = token.len() < 200 && !known.contains(&token);
                if is_new && recover_plainly(&tokens).is_some() {
                    known.push(token);
                    reached = tokens;
                }
            }
            assert_recovered_as_plainly(&reached);
        }
    }

    #[test]
    fn splits_of_long_tokens_are_all_there() {
        let runs = (2..=300).map(|n| vec![b'a'; n]);
        let tokens = list(runs.chain([b"xyz".to_vec()]), 0);
        let index = TokenIndex::new(&tokens).unwrap();
        let mut splits = all_splits(&tokens, &index);
        splits.sort_unstable();
        let symbol = |n: u32| if n == 1 { 97 } else { 254 + n };
        let mut expected: Vec<(u32, u32, u32)> =
            (2..=300).flat_map(|n| (1..n).map(move |at| (symbol(at), symbol(n - at), symbol(n)))).collect();
        expected.sort_unstable();
        assert_eq!(splits, expected);
    }
}
