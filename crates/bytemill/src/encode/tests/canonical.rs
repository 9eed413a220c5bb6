use super::*;
use crate::bpe;
use crate::encode::no_interrupt;
use crate::pretokenize::Pattern;
use crate::vocab::Vocab;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

type Token = Vec<u8>;
type Merge = (Token, Token);

fn encoder(vocab: Vocab) -> Encoder {
    Encoder::new(vocab, Pattern::new(None).unwrap()).unwrap()
}

fn single_bytes() -> impl Iterator<Item = Token> {
    (0..=255u8).map(|byte| vec![byte])
}

/// A list of merges over few letters, with many that no text needs.
fn merges() -> impl Strategy<Value = Vec<Merge>> {
    let choices = prop::collection::vec((any::<u32>(), any::<u32>()), 0..30);
    (choices, 1u8..4).prop_map(|(choices, n_letters)| {
        let mut known: Vec<Token> = (b'a'..b'a' + n_letters).map(|letter| vec![letter]).collect();
        let mut seen = HashSet::new();
        let mut merges = Vec::new();
        for (left, right) in choices {
            let (left, right) = (&known[left as usize % known.len()], &known[right as usize % known.len()]);
            let (merge, token) = ((left.clone(), right.clone()), [&left[..], &right[..]].concat());
            if token.len() <= 12 && seen.insert(token.clone()) {
                merges.push(merge);
                known.push(token);
            }
        }
        merges
    })
}

/// An encoder by merges, in which each token has its id from `id`.
fn by_merges(merges: &[Merge], more: &[Token], lookup: bool, id: impl Fn(&Token) -> u32) -> Encoder {
    let made = merges.iter().map(|(left, right)| [&left[..], &right[..]].concat());
    let tokens = single_bytes().chain(made).chain(more.iter().cloned()).map(|token| (id(&token), token)).collect();
    encoder(Vocab::from_merges(tokens, merges, Vec::new()).unwrap().with_ignore_merges(lookup))
}

/// An id for each token, the same in every list of merges.
fn ids(merges: &[Merge], more: &[Token]) -> HashMap<Token, u32> {
    let made = merges.iter().map(|(left, right)| [&left[..], &right[..]].concat());
    single_bytes().chain(made).chain(more.iter().cloned()).zip(0..).collect()
}

fn encoded(encoder: &Encoder, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    encoder.encode(text, super::super::Allowed::None, &mut ids, &no_interrupt).unwrap();
    ids
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-c]{0,24}", 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn merges_are_live_if_and_only_if_their_own_bytes_merge_to_them(merges in merges()) {
        let ids = ids(&merges, &[]);
        let encoder = by_merges(&merges, &[], false, |token| ids[token]);
        let vocab = encoder.vocab();
        let live = live_merges(vocab);
        for (&(left, right), symbol) in vocab.merges().iter().zip(256..) {
            let mut symbols = Vec::new();
            bpe::merge(encoder.vocab().pairs(), vocab.symbol(symbol), &mut symbols, &no_interrupt).unwrap();
            prop_assert_eq!(live.contains(&(left, right, symbol)), symbols == [symbol]);
        }
    }

    #[test]
    fn unused_merges_change_neither_form_nor_ids(merges in merges(), texts in texts()) {
        let ids = ids(&merges, &[]);
        let all = by_merges(&merges, &[], false, |token| ids[token]);
        let vocab = all.vocab();
        let needed: Vec<Merge> = live_merges(vocab)
            .iter()
            .map(|&(left, right, _)| (vocab.symbol(left).to_vec(), vocab.symbol(right).to_vec()))
            .collect();
        let fewer = by_merges(&needed, &[], false, |token| ids[token]);
        prop_assert_eq!(fewer.vocab().merges().len(), needed.len());
        prop_assert_eq!(all.canonical_form(), fewer.canonical_form());
        for text in &texts {
            prop_assert_eq!(encoded(&all, text), encoded(&fewer, text));
        }
    }

    #[test]
    fn equal_forms_mean_equal_ids(
        merges in merges(),
        change in 0usize..6,
        at in any::<prop::sample::Index>(),
        texts in texts(),
    ) {
        let more = [b"abcabc".to_vec(), b"cc".to_vec()];
        let made: HashSet<Token> = merges.iter().map(|(left, right)| [&left[..], &right[..]].concat()).collect();
        let more: Vec<Token> = more.into_iter().filter(|token| !made.contains(token)).collect();
        let ids = ids(&merges, &more);
        let one = by_merges(&merges, &more, change == 5, |token| ids[token]);
        let mut other = merges.clone();
        match change {
            0 if other.len() > 1 => {
                let at = at.index(other.len() - 1);
                other.swap(at, at + 1);
            }
            1 => drop(other.pop()),
            2 => other.reverse(),
            _ => {}
        }
        let tokens = single_bytes().chain(ids.keys().filter(|token| token.len() > 1).cloned());
        let tokens = tokens.map(|token| (ids[&token], token)).collect();
        // An order in which a part comes after its result is refused.
        if let Ok(vocab) = Vocab::from_merges(tokens, &other, Vec::new()) {
            let other = encoder(vocab.with_ignore_merges(change >= 4));
            if one.canonical_form() == other.canonical_form() {
                for text in &texts {
                    prop_assert_eq!(encoded(&one, text), encoded(&other, text));
                }
            }
        }
    }

    #[test]
    fn ranks_have_the_form_of_the_merges_behind_them(
        tokens in prop::collection::hash_set("[a-c]{2,6}", 0..14),
        texts in texts(),
    ) {
        let tokens: Vec<Token> = tokens.into_iter().map(String::into_bytes).collect();
        let ranks: Vec<(Token, u32)> = single_bytes().chain(tokens.iter().cloned()).zip(0..).collect();
        let ranked = encoder(Vocab::from_ranks(ranks.clone(), Vec::new()).unwrap());
        let (vocab, pairs) = (ranked.vocab(), ranked.vocab().pairs());
        let live = live_merges(vocab);
        // All of the tokens that merging alone makes, and each of the parts that its own bytes were in at last.
        for (&id, symbol) in vocab.symbol_ids()[256..].iter().zip(256..) {
            let token = vocab.token(id).unwrap();
            let mut symbols = Vec::new();
            bpe::merge(pairs, token, &mut symbols, &no_interrupt).unwrap();
            let found = live.iter().find(|(_, _, made)| *made == symbol);
            prop_assert_eq!(found.is_some(), symbols == [symbol]);
            if let Some(&(left, right, _)) = found {
                prop_assert_eq!([vocab.symbol(left), vocab.symbol(right)].concat(), token);
            }
        }
        // Merges that name their parts, in the order of the ranks, are the same tokenizer; where the parts of one come
        // after it they cannot be given as a list.
        let merges: Vec<Merge> = live
            .iter()
            .map(|&(left, right, _)| (vocab.symbol(left).to_vec(), vocab.symbol(right).to_vec()))
            .collect();
        let all = ranks.into_iter().map(|(token, id)| (id, token)).collect();
        if let Ok(vocab) = Vocab::from_merges(all, &merges, Vec::new()) {
            let merged = encoder(vocab.with_ignore_merges(true));
            prop_assert_eq!(ranked.canonical_form(), merged.canonical_form());
            for text in &texts {
                prop_assert_eq!(encoded(&ranked, text), encoded(&merged, text));
            }
        }
    }
}

#[test]
fn the_fields_of_the_form_are_length_prefixed() {
    let form = |pattern: Option<&str>, special: &[(&str, u32)]| {
        let special = special.iter().map(|(token, id)| ((*token).to_owned(), *id)).collect();
        let vocab = Vocab::from_ranks(single_bytes().zip(0..).collect(), special).unwrap();
        Encoder::new(vocab, Pattern::new(pattern).unwrap()).unwrap().canonical_form()
    };
    let forms = [
        form(None, &[]),
        form(Some("a"), &[]),
        form(Some("aa"), &[]),
        form(Some("gpt2"), &[]),
        form(None, &[("a", 300)]),
        form(None, &[("a", 301)]),
        form(None, &[("a", 300), ("b", 301)]),
        form(None, &[("a", 301), ("b", 300)]),
        form(None, &[("ab", 300)]),
    ];
    assert_eq!(forms.iter().collect::<HashSet<_>>().len(), forms.len());
    assert_eq!(form(None, &[("a", 300), ("b", 301)]), form(None, &[("b", 301), ("a", 300)]));
    let plain = &forms[0];
    assert_eq!(plain.len(), FORMAT.len() + 4 * (1 + 1 + 256 + 1 + 1));
    assert!(plain.starts_with(FORMAT));
}
