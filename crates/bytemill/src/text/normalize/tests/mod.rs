use super::aligned::{plain, unchanged};
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn step() -> impl Strategy<Value = Step> {
    let replace = |(from, to): (&str, &str)| Step::Replace { from: from.to_owned(), to: to.to_owned() };
    prop_oneof![
        select(vec![Step::Nfc, Step::Nfd, Step::Nfkc, Step::Nfkd, Step::Lowercase, Step::StripAccents]),
        select(vec![("▁", " "), (" ", "▁"), ("ab", "x"), ("aa", ""), ("é", "e\u{301}")]).prop_map(replace),
        select(vec![Step::Prepend(" ".to_owned()), Step::Prepend("▁é".to_owned()), Step::JoinSpaces]),
        any::<bool>().prop_map(|left| Step::TrimSpaces { left }),
        (any::<bool>(), any::<bool>()).prop_map(|(left, right)| Step::Strip { left, right }),
    ]
}

fn normalizer() -> impl Strategy<Value = Normalizer> {
    let prefix = select(vec![None, Some(Prefix::Always), Some(Prefix::First)]);
    (vec(step(), 0..4), prefix).prop_map(|(steps, prefix)| Normalizer::new(steps, prefix))
}

fn text() -> impl Strategy<Value = String> {
    let frequent = select("abAB  ▁\né\u{301}\u{323}ﬁÅ①が한\u{1161}İßΣ\u{3000}".chars().collect::<Vec<_>>());
    vec(prop_oneof![8 => frequent, 1 => any::<char>()], 0..24).prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn aligned_text_has_the_characters_of_plain_text(normalizer in normalizer(), text in text(), is_start: bool) {
        let expected = normalizer.normalize(&text, is_start, &no_interrupt).unwrap();
        let aligned = normalizer.normalize_aligned(unchanged(&text, 7), is_start);
        prop_assert_eq!(plain(&aligned), expected.as_ref());
        for both in aligned.windows(2) {
            prop_assert!(both[0].origin.start <= both[1].origin.start);
        }
        for aligned in &aligned {
            prop_assert!(text.is_char_boundary(aligned.origin.start - 7) && text.is_char_boundary(aligned.origin.end - 7));
        }
        let prefixed = normalizer.prefixed(&expected, is_start, is_start);
        prop_assert_eq!(plain(&normalizer.prefixed_aligned(aligned, is_start, is_start)), prefixed.as_ref());
    }

    #[test]
    fn halves_at_a_stable_cut_normalize_to_the_whole(normalizer in normalizer(), text in text(), reach in 0..6_usize) {
        let whole = normalizer.normalize(&text, true, &no_interrupt).unwrap();
        for at in (1..text.len()).filter(|&at| text.is_char_boundary(at)) {
            if normalizer.is_stable_about(&text, at, reach) {
                let left = normalizer.normalize(&text[..at], true, &no_interrupt).unwrap();
                let right = normalizer.normalize(&text[at..], false, &no_interrupt).unwrap();
                prop_assert_eq!(format!("{left}{right}"), whole.as_ref(), "cut at {}", at);
            }
        }
    }
}

#[test]
fn origins_are_those_of_the_characters_replaced() {
    let origins = |step: Step, text: &str| -> Vec<(char, usize, usize)> {
        let aligned = step.apply_aligned(unchanged(text, 0), true);
        aligned.into_iter().map(|each| (each.character, each.origin.start, each.origin.end)).collect()
    };
    assert_eq!(origins(Step::Nfc, "ae\u{301}b"), [('a', 0, 1), ('é', 1, 2), ('b', 4, 5)]);
    assert_eq!(origins(Step::Nfd, "é!"), [('e', 0, 2), ('\u{301}', 0, 2), ('!', 2, 3)]);
    assert_eq!(origins(Step::Nfkc, "ﬁx"), [('f', 0, 3), ('i', 0, 3), ('x', 3, 4)]);
    assert_eq!(origins(Step::StripAccents, "e\u{301}b"), [('e', 0, 1), ('b', 3, 4)]);
    assert_eq!(origins(Step::Prepend("▁".to_owned()), "b"), [('▁', 0, 1), ('b', 0, 1)]);
    let replace = Step::Replace { from: "ab".to_owned(), to: "xyz".to_owned() };
    assert_eq!(origins(replace, "cab"), [('c', 0, 1), ('x', 2, 3), ('y', 2, 3), ('z', 2, 3)]);
    let strip = Step::Strip { left: true, right: false };
    assert_eq!(origins(strip, "  b "), [('b', 2, 3), (' ', 3, 4)]);
}
