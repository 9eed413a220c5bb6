use super::*;
use crate::encode::cutter::Cutter;
use crate::pretokenize::Pattern;
use crate::special::{Segment, SpecialTokens};
use crate::sys::interrupt::no_interrupt;
use crate::text::normalize::{Normalizer, Step};
use proptest::prelude::*;
use std::sync::Arc;
use unicode_normalization_alignments::UnicodeNormalization;

const TOKENS: [&str; 8] = ["<m>", "ab", " b", "\n", "b<", "é", "<m><m>", "_"];
const PIECES: &[&str] = &[
    "<m>", "ab", " b", "\n", "b<", "é", "_", " ", "\u{3000}", "a", "x1", "e", "\u{301}", "<", "m>", "q z", "\u{212B}",
    "\u{338}",
];

/// Reference for one round of the search, after Hugging Face's `added_vocabulary.rs`.
fn reference_round(text: &str, tokens: &[(String, u32)], rules: &[Rules], late: bool) -> Vec<(String, Option<u32>)> {
    let mut parts = Vec::new();
    let (mut done, mut at) = (0, 0);
    while at < text.len() {
        let here = (0..tokens.len()).filter(|&i| rules[i].late == late && text[at..].starts_with(&tokens[i].0));
        let Some(index) = here.max_by_key(|&i| tokens[i].0.len()) else {
            at += text[at..].chars().next().unwrap().len_utf8();
            continue;
        };
        let (mut start, mut end) = (at, at + tokens[index].0.len());
        at = end;
        let (before, behind) = (text[..start].chars().next_back(), text[end..].chars().next());
        if rules[index].single_word && (before.is_some_and(is_word_character) || behind.is_some_and(is_word_character))
        {
            continue;
        }
        if rules[index].lstrip {
            start = done.max(text[..start].trim_end().len());
        }
        if rules[index].rstrip {
            end = text.len() - text[end..].trim_start().len();
        }
        if done < start {
            parts.push((text[done..start].to_owned(), None));
        }
        if start < end {
            parts.push((String::new(), Some(tokens[index].1)));
            done = end;
        }
    }
    if done < text.len() {
        parts.push((text[done..].to_owned(), None));
    }
    parts
}

fn reference(text: &str, tokens: &[(String, u32)], rules: &[Rules], nfc: bool) -> Vec<(String, Option<u32>)> {
    let first = reference_round(text, tokens, rules, false);
    let second = |(text, id): (String, Option<u32>)| match id {
        Some(_) => vec![(text, id)],
        None if nfc => reference_round(&text.nfc().map(|(c, _)| c).collect::<String>(), tokens, rules, true),
        None => reference_round(&text, tokens, rules, true),
    };
    first.into_iter().flat_map(second).collect()
}

fn found(special: &SpecialTokens, text: &str) -> Vec<(String, Option<u32>)> {
    let mut parts = Vec::new();
    special
        .segments(text, true, &no_interrupt, |segment| {
            parts.push(match segment {
                Segment::Text(text) => (text.to_owned(), None),
                Segment::Special(id) => (String::new(), Some(id)),
            });
            Ok(())
        })
        .unwrap();
    parts
}

/// Join adjacent texts.
fn joined(parts: Vec<(String, Option<u32>)>) -> Vec<(String, Option<u32>)> {
    let mut all: Vec<(String, Option<u32>)> = Vec::new();
    for part in parts {
        match all.last_mut() {
            Some((text, None)) if part.1.is_none() => text.push_str(&part.0),
            _ => all.push(part),
        }
    }
    all
}

fn rules() -> impl Strategy<Value = Rules> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(single_word, lstrip, rstrip, late)| Rules {
        single_word,
        lstrip,
        rstrip,
        late,
        verbatim: false,
        ordinary: false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn search_matches_the_reference_and_cuts_change_nothing(
        rules in prop::collection::vec(rules(), TOKENS.len()),
        n_tokens in 1usize..=TOKENS.len(),
        text in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..30).prop_map(|pieces| pieces.concat()),
        pattern in prop::sample::select(vec![Some("gpt2"), None]),
        nfc in any::<bool>(),
    ) {
        let tokens: Vec<(String, u32)> = TOKENS[..n_tokens].iter().zip(0..).map(|(t, id)| ((*t).to_owned(), id)).collect();
        let rules = rules[..n_tokens].to_vec();
        let normalizer = Normalizer::new(if nfc { vec![Step::Nfc] } else { Vec::new() }, None);
        let special = SpecialTokens::with_rules(tokens.clone(), rules.clone()).unwrap();
        let special = special.normalizing(Arc::new(normalizer)).unwrap();
        let expected = reference(&text, &tokens, &rules, nfc);
        prop_assert_eq!(&found(&special, &text), &expected);

        let pattern = Pattern::new(pattern).unwrap();
        let cutter = Cutter { pattern: &pattern, special: &special };
        for seen in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
            if let Some(cut) = cutter.cut_stream(&text[..seen]) {
                let mut parts = found(&special, &text[..cut]);
                parts.extend(found(&special, &text[cut..]));
                prop_assert_eq!(joined(parts), joined(expected.clone()), "{} of {:?}", cut, &text[..seen]);
            }
        }
        let mut parts = Vec::new();
        let mut start = 0;
        for end in cutter.cut_whole(&text, 3) {
            parts.extend(found(&special, &text[start..end]));
            start = end;
        }
        prop_assert_eq!(joined(parts), joined(expected));
    }

    #[test]
    fn a_cut_in_a_window_changes_nothing_in_the_text(
        rules in prop::collection::vec(rules(), TOKENS.len()),
        n_tokens in 1usize..=TOKENS.len(),
        text in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 60..200).prop_map(|pieces| pieces.concat()),
        (start, end) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        nfc in any::<bool>(),
    ) {
        let tokens = TOKENS[..n_tokens].iter().zip(0..).map(|(token, id)| ((*token).to_owned(), id)).collect();
        let normalizer = Normalizer::new(if nfc { vec![Step::Nfc] } else { Vec::new() }, None);
        let special = SpecialTokens::with_rules(tokens, rules[..n_tokens].to_vec()).unwrap();
        let special = special.normalizing(Arc::new(normalizer)).unwrap();
        let cutter = Cutter { pattern: &Pattern::GPT2, special: &special };
        let ends: Vec<usize> = (0..=text.len()).filter(|&at| text.is_char_boundary(at)).collect();
        let (start, end) = (ends[start.index(ends.len())], ends[end.index(ends.len())]);
        let (start, end) = (start.min(end), start.max(end));
        if let Some(cut) = cutter.cut_within(&text[start..end]) {
            let mut parts = found(&special, &text[..start + cut]);
            parts.extend(found(&special, &text[start + cut..]));
            prop_assert_eq!(joined(parts), joined(found(&special, &text)));
        }
    }
}

#[test]
fn white_space_beside_a_token_is_measured_once() {
    let rule = Rules { lstrip: true, rstrip: true, ..Rules::default() };
    let special = SpecialTokens::with_rules(vec![("\n".to_owned(), 0)], vec![rule]).unwrap();
    let text = "\n".repeat(1 << 20);
    assert_eq!(special.find(&text).count(), 1);
}

#[test]
fn default_rules_count_as_none() {
    let tokens = [("a".to_owned(), 0), ("b".to_owned(), 1)];
    let late = Rules { late: true, ..Rules::default() };
    assert!(!Search::new(tokens.iter().map(|(token, _)| token.as_str()), vec![Rules::default(); 2]).unwrap().has_rules);
    assert!(
        Search::new(tokens.iter().map(|(token, _)| token.as_str()), vec![late, Rules::default()]).unwrap().has_rules
    );
}

#[test]
fn a_long_token_that_repeats_itself_is_found_like_a_short_one() {
    // A deterministic automaton of this one would take minutes to make.
    let n = 100_000;
    let tokens = ["a".repeat(n), "a".repeat(n - 1) + "b", "ab".to_owned()];
    assert!(is_slow_as_dfa(tokens.iter()));
    let search = Search::new(tokens.iter().map(String::as_str), vec![Rules::default(); 3]).unwrap();
    let text = "a".repeat(n) + "b" + &"a".repeat(n - 2) + "b";
    let found: Vec<_> = search.find(&text).map(|found| (found.start, found.end, found.index)).collect();
    assert_eq!(found, [(0, n, 0), (2 * n - 2, 2 * n, 2)]);
}
