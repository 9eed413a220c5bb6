use super::super::Pattern;
use super::super::custom::CustomPattern;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn pretokens<'t>(pattern: &Pattern, text: &'t str) -> Vec<&'t str> {
    let mut all = Vec::new();
    pattern.for_each(text, |pretoken| all.push(std::str::from_utf8(pretoken).unwrap())).unwrap();
    all
}

proptest! {
    #[test]
    fn splits_are_those_of_the_expression(text in vec(select(vec!['a', 'é', ' ', ' ', '\n', '\t', '語']), 0..40)) {
        let text = String::from_iter(text);
        for spaces in Spaces::ALL {
            let pattern = Pattern::new(Some(spaces.expression())).unwrap();
            prop_assert!(matches!(pattern, Pattern::Spaces(_)));
            let engine = Pattern::Custom(Box::new(CustomPattern::backtracking(spaces.expression()).unwrap()));
            let whole = pretokens(&pattern, &text);
            prop_assert_eq!(&whole, &pretokens(&engine, &text));
            let cut = pattern.last_cut(&text, 0, text.len(), |_| true);
            let possible = (1..text.len()).rev().find(|&at| Spaces::cuts_at(text.as_bytes(), at));
            prop_assert_eq!(cut, possible);
            if let Some(cut) = cut {
                let parts = [pretokens(&pattern, &text[..cut]), pretokens(&pattern, &text[cut..])].concat();
                prop_assert_eq!(parts, whole);
            }
        }
    }
}

#[test]
fn tokens_decide_where_texts_are_split() {
    let of = |tokens: &[&str]| Spaces::of_tokens(tokens.iter().map(|token| token.as_bytes()));
    assert_eq!(of(&[" a", "   ", "a", "\n\n"]), Some(Spaces::RunsAndLines));
    assert_eq!(of(&[" a", ".\n"]), Some(Spaces::Runs));
    assert_eq!(of(&[" a", "a b"]), None);
    assert_eq!(of(&["a "]), None);
}
