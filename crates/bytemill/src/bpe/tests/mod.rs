use super::backtrack::{Backtracker, Budget};
use super::heap::{lookup, merge_with_heap};
use super::lockstep::{GROUP, merge_group, merge_in_rounds};
use super::merger::Merger;
use super::{merge, steps};
use crate::error::{Error, Result};
use crate::formats::needed_merges;
use crate::sys::interrupt::{Interrupt, no_interrupt};
use crate::vocab::pair_table::{NONE, PairTable};
use crate::vocab::{MergedTokens, TokenList, Vocab};
use proptest::prelude::*;

/// Every step looks at every pair and rebuilds the sequence.
fn merge_plainly(table: &PairTable, pretoken: &[u8]) -> Vec<u32> {
    let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
    loop {
        let lowest = symbols.windows(2).enumerate().map(|(at, pair)| (table.get(pair[0], pair[1]), at)).min();
        match lowest {
            Some((symbol, at)) if symbol != NONE => drop(symbols.splice(at..at + 2, [symbol])),
            _ => return symbols,
        }
    }
}

/// Merges over a small alphabet: each joins two symbols that exist by then.
fn table() -> impl Strategy<Value = PairTable> {
    prop::collection::vec((any::<u32>(), any::<u32>()), 0..60).prop_map(|choices| {
        let mut table = PairTable::new(choices.len());
        let mut made = 256;
        let mut known: Vec<u32> = (97..101).collect();
        for (left, right) in choices {
            let (left, right) = (known[left as usize % known.len()], known[right as usize % known.len()]);
            if table.get(left, right) == NONE {
                table.insert(left, right, made).unwrap();
                known.push(made);
                made += 1;
            }
        }
        table
    })
}

fn group_equals_each_alone<const LANES: usize>(
    table: &PairTable,
    pretokens: &[Vec<u8>],
) -> std::result::Result<(), TestCaseError> {
    let expected: Vec<Vec<u32>> = pretokens.iter().map(|pretoken| merge_plainly(table, pretoken)).collect();
    let expected: Vec<(usize, Vec<u32>)> = expected.into_iter().enumerate().collect();
    let bytes = |index: usize, lanes: &mut [u8; LANES]| {
        // What is behind the pre-token must not matter.
        lanes.fill(98);
        lanes[..pretokens[index].len()].copy_from_slice(&pretokens[index]);
        pretokens[index].len()
    };
    let n = pretokens.len();
    let (mut best, mut portable) = (Vec::new(), Vec::new());
    merge_group::<LANES, GROUP>(table, n, bytes, |index, symbols, n| best.push((index, symbols[..n].to_vec())));
    merge_in_rounds::<LANES, GROUP>(table, n, bytes, |index, symbols, n| portable.push((index, symbols[..n].to_vec())));
    best.sort_unstable();
    portable.sort_unstable();
    prop_assert_eq!(&best, &expected);
    prop_assert_eq!(&portable, &expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_strategy_equals_the_reference(
        table in table(),
        pretoken in prop::collection::vec(97u8..101, 0..64),
    ) {
        let expected = merge_plainly(&table, &pretoken);
        let (mut merged, mut by_heap) = (Vec::new(), Vec::new());
        merge(&table, &pretoken, &mut merged, &no_interrupt).unwrap();
        merge_with_heap(&pretoken, lookup(&table), &mut by_heap, |_| true, &no_interrupt).unwrap();
        prop_assert_eq!(&merged, &expected);
        prop_assert_eq!(&by_heap, &expected);
    }

    #[test]
    fn a_group_merged_in_lockstep_equals_each_merged_alone(
        table in table(),
        pretokens in prop::collection::vec(prop::collection::vec(97u8..101, 1..32), 0..=3 * GROUP),
    ) {
        group_equals_each_alone::<32>(&table, &pretokens)?;
        let short: Vec<Vec<u8>> = pretokens.into_iter().filter(|pretoken| pretoken.len() < 16).collect();
        group_equals_each_alone::<16>(&table, &short)?;
    }

    #[test]
    fn long_pretokens_equal_the_reference(table in table(), pretoken in prop::collection::vec(97u8..101, 65..300)) {
        let mut merged = Vec::new();
        merge(&table, &pretoken, &mut merged, &no_interrupt).unwrap();
        prop_assert_eq!(merged, merge_plainly(&table, &pretoken));
    }

    #[test]
    fn replayed_steps_give_the_symbols(table in table(), pretoken in prop::collection::vec(97u8..101, 0..80)) {
        let mut parts: Vec<(usize, u32)> = pretoken.iter().map(|&byte| u32::from(byte)).enumerate().collect();
        for step in steps(&table, &pretoken) {
            let at = parts.iter().position(|&(offset, _)| offset == step.offset).unwrap();
            prop_assert_eq!((parts[at].1, parts[at + 1].1), (step.left, step.right));
            parts.splice(at..at + 2, [(step.offset, step.symbol)]);
        }
        let mut merged = Vec::new();
        merge(&table, &pretoken, &mut merged, &no_interrupt).unwrap();
        prop_assert_eq!(parts.into_iter().map(|(_, symbol)| symbol).collect::<Vec<_>>(), merged);
    }
}

/// Merges over a small alphabet, no two with one result.
fn vocab() -> impl Strategy<Value = Vocab> {
    (1u8..5, prop::collection::vec((any::<u32>(), any::<u32>()), 0..60)).prop_map(|(n_letters, choices)| {
        let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
        let mut known: Vec<Vec<u8>> = (97..97 + n_letters).map(|letter| vec![letter]).collect();
        let mut merges = Vec::new();
        for (left, right) in choices {
            let (left, right) = (&known[left as usize % known.len()], &known[right as usize % known.len()]);
            let made = [&left[..], right].concat();
            if made.len() < 40 && !known.contains(&made) {
                merges.push((left.clone(), right.clone()));
                tokens.push((tokens.len() as u32, made.clone()));
                known.push(made);
            }
        }
        Vocab::from_merges(tokens, &merges, vec![]).unwrap()
    })
}

/// The bytes of two parts.
type Parts = (Vec<u8>, Vec<u8>);

/// Merges over a small alphabet in any order, several of them with one result: all of them, and the vocabulary of those that are
/// needed.
fn vocab_in_any_order() -> impl Strategy<Value = (Vec<Parts>, Vocab)> {
    let choices = prop::collection::vec((any::<u32>(), any::<u32>()), 0..40);
    let merges = (1u8..4, choices).prop_map(|(n_letters, choices)| {
        let mut known: Vec<Vec<u8>> = (97..97 + n_letters).map(|letter| vec![letter]).collect();
        let mut merges = Vec::new();
        for (left, right) in choices {
            let (left, right) = (&known[left as usize % known.len()], &known[right as usize % known.len()]);
            let (merge, made) = ((left.clone(), right.clone()), [&left[..], right].concat());
            if made.len() < 24 && !merges.contains(&merge) {
                merges.push(merge);
                known.push(made);
            }
        }
        merges
    });
    merges.prop_flat_map(|merges| Just(merges).prop_shuffle()).prop_map(|merges| {
        let borrowed: Vec<(&[u8], &[u8])> = merges.iter().map(|(left, right)| (&left[..], &right[..])).collect();
        let needed: Vec<_> = needed_merges(&borrowed).unwrap().into_iter().map(|index| borrowed[index]).collect();
        let mut tokens = TokenList::default();
        for byte in 0..=255 {
            tokens.push(u32::from(byte), &[byte]).unwrap();
        }
        for ((left, right), id) in needed.iter().zip(256..) {
            tokens.push(id, &[*left, *right].concat()).unwrap();
        }
        let mut merged = MergedTokens::new(tokens, "id").unwrap();
        merged.add_in_any_order(&needed).unwrap();
        let vocab = merged.finish(&[], vec![]).unwrap();
        (merges, vocab)
    })
}

/// The tokens that all `merges` make of a text, by their bytes.
fn tokens_of(merges: &[Parts], text: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = text.iter().map(|&byte| vec![byte]).collect();
    loop {
        let rank = |pair: &[Vec<u8>]| merges.iter().position(|(left, right)| [left, right] == [&pair[0], &pair[1]]);
        let lowest = parts.windows(2).enumerate().filter_map(|(at, pair)| Some((rank(pair)?, at))).min();
        let Some((_, at)) = lowest else { return parts };
        let right = parts.remove(at + 1);
        parts[at].extend(right);
    }
}

/// Ranks of strings over a small alphabet: most stand for no list of merges.
fn ranked_vocab() -> impl Strategy<Value = Vocab> {
    prop::collection::vec(prop::collection::vec(97u8..100, 2..6), 0..12).prop_map(|strings| {
        let mut ranks: Vec<(Vec<u8>, u32)> = (0..=255).map(|byte| (vec![byte], u32::from(byte))).collect();
        for string in strings {
            if ranks.iter().all(|(known, _)| *known != string) {
                ranks.push((string, ranks.len() as u32));
            }
        }
        Vocab::from_ranks(ranks, vec![]).unwrap()
    })
}

fn merged(merger: &Merger, vocab: &Vocab, text: &[u8], interrupt: Interrupt) -> Result<Vec<u32>> {
    let (mut scratch, mut out) = (vec![7], vec![1, 2]);
    merger.merge_into(vocab, text, &mut scratch, &mut out, |symbol| symbol, interrupt)?;
    assert_eq!(out[..2], [1, 2]);
    Ok(out.split_off(2))
}

/// A text of pieces, each repeated: letters at random, or a token of the vocabulary.
fn text_of(vocab: &Vocab, pieces: &[(Vec<u8>, Option<u32>, usize)]) -> Vec<u8> {
    let n_symbols = vocab.symbol_ids().len() as u32;
    let piece = |(letters, symbol, n_times): &(Vec<u8>, Option<u32>, usize)| match symbol {
        Some(symbol) if n_symbols > 256 => vocab.symbol(256 + symbol % (n_symbols - 256)).repeat(*n_times),
        _ => letters.repeat(*n_times),
    };
    pieces.iter().flat_map(piece).collect()
}

fn pieces() -> impl Strategy<Value = Vec<(Vec<u8>, Option<u32>, usize)>> {
    let letters = prop::collection::vec(97u8..101, 1..6);
    prop::collection::vec((letters, any::<Option<u32>>(), 1usize..12), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn backtracking_equals_the_reference(
        vocab in vocab(),
        pieces in pieces(),
        n_kept in prop::sample::select(vec![1, 2, 7, usize::MAX]),
        n_blocks in prop::sample::select(vec![1, 2, 8]),
        n_adjacent in prop::sample::select(vec![2, 64]),
    ) {
        let text = text_of(&vocab, &pieces);
        let expected = merge_plainly(vocab.pairs(), &text);
        let mut backtracker = Backtracker::new(&vocab).unwrap();
        backtracker.budget = Budget { n_kept, n_blocks, n_adjacent };
        let (mut scratch, mut out) = (vec![7], vec![1u32, 2]);
        let make = |symbol| symbol;
        backtracker.merge_into(vocab.pairs(), &text, &mut scratch, &mut out, make, &no_interrupt).unwrap();
        prop_assert_eq!(&out[2..], &expected);
    }

    #[test]
    fn merges_in_any_order_equal_the_reference((merges, vocab) in vocab_in_any_order(), pieces in pieces()) {
        let text: Vec<u8> = text_of(&vocab, &pieces).into_iter().take(200).collect();
        let expected = tokens_of(&merges, &text);
        for merger in [Merger::default(), Merger::with_tables()] {
            let symbols = merged(&merger, &vocab, &text, &no_interrupt).unwrap();
            let tokens: Vec<Vec<u8>> = symbols.iter().map(|&symbol| vocab.symbol(symbol).to_vec()).collect();
            prop_assert_eq!(&tokens, &expected);
        }
    }

    #[test]
    fn ranks_without_merges_are_merged_too(vocab in ranked_vocab(), pieces in pieces()) {
        let text = text_of(&vocab, &pieces);
        let symbols = merged(&Merger::with_tables(), &vocab, &text, &no_interrupt).unwrap();
        prop_assert_eq!(symbols, merge_plainly(vocab.pairs(), &text));
    }
}

/// Words of two letters and all that a trainer would make of them: pairs by count.
#[test]
fn tables_built_between_long_pretokens_change_no_ids() {
    let merges: Vec<(Vec<u8>, Vec<u8>)> =
        [("a", "b"), ("b", "a"), ("ab", "ab"), ("ba", "b"), ("abab", "a"), ("a", "abab"), ("b", "b"), ("bb", "a")]
            .map(|(left, right)| (left.as_bytes().to_vec(), right.as_bytes().to_vec()))
            .to_vec();
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
    tokens.extend(merges.iter().zip(256..).map(|((left, right), id)| (id, [&left[..], right].concat())));
    let vocab = Vocab::from_merges(tokens, &merges, vec![]).unwrap();
    let merger = Merger::default();
    // Thue-Morse: no run of anything is longer than two.
    let text: Vec<u8> = (0..3000u32).map(|place| b'a' + (place.count_ones() & 1) as u8).collect();
    let expected = merge_plainly(vocab.pairs(), &text);
    for _ in 0..60 {
        assert_eq!(merged(&merger, &vocab, &text, &no_interrupt).unwrap(), expected);
    }
}

#[test]
fn an_interrupt_ends_the_merging_of_a_long_pretoken() {
    let vocab = Vocab::from_merges((0..=255).map(|byte| (u32::from(byte), vec![byte])).collect(), &[], vec![]).unwrap();
    let end = || Err(Error::Invalid("enough".to_owned()));
    let text: Vec<u8> = (0..1_000_000u32).map(|place| place as u8).collect();
    for text in [text, vec![b'a'; 1_000_000]] {
        for merger in [Merger::default(), Merger::with_tables()] {
            let error = merged(&merger, &vocab, &text, &end).unwrap_err();
            assert_eq!(error.to_string(), "enough");
        }
    }
}

#[test]
fn a_pretoken_too_long_for_32_bits_is_refused() {
    use super::heap::check_length;
    use super::limits::MAX_PRETOKEN_BYTES;
    assert_eq!(check_length(MAX_PRETOKEN_BYTES).unwrap(), u32::MAX - 1);
    for n_bytes in [MAX_PRETOKEN_BYTES + 1, 1 << 32, usize::MAX] {
        let error = check_length(n_bytes).unwrap_err().to_string();
        assert!(error.contains(&n_bytes.to_string()) && error.contains("too long"), "{error}");
    }
}
