use super::*;
use crate::sys::interrupt::no_interrupt;

fn special(tokens: &[&str]) -> SpecialTokens {
    SpecialTokens::new(tokens.iter().zip(0..).map(|(token, id)| ((*token).to_owned(), id)).collect()).unwrap()
}

fn segments<'t>(special: &SpecialTokens, text: &'t str) -> Vec<Segment<'t>> {
    let mut all = Vec::new();
    special
        .segments(text, true, &no_interrupt, |segment| {
            all.push(match segment {
                Segment::Text(part) => Segment::Text(&text[text.find(part).unwrap()..][..part.len()]),
                Segment::Special(id) => Segment::Special(id),
            });
            Ok(())
        })
        .unwrap();
    all
}

#[test]
fn the_longer_of_two_that_start_together_wins() {
    let special = special(&["<a>", "<a><a>"]);
    assert_eq!(
        segments(&special, "x<a><a><a>y"),
        [Segment::Text("x"), Segment::Special(1), Segment::Special(0), Segment::Text("y")]
    );
}

#[test]
fn the_leftmost_wins_over_a_longer_one_to_its_right() {
    assert_eq!(segments(&special(&["ab", "bcd"]), "abcd"), [Segment::Special(0), Segment::Text("cd")]);
}

#[test]
fn overlapping_occurrences_cross_a_cut_too() {
    let special = special(&["ab", "bcd"]);
    let crossed: Vec<bool> = (0..=5).map(|at| special.any_crosses("abcdx", at)).collect();
    assert_eq!(crossed, [false, true, true, true, false, false]);
}

#[test]
fn empty_and_repeated_tokens_are_refused() {
    assert!(SpecialTokens::new(vec![(String::new(), 0)]).is_err());
    assert!(SpecialTokens::new(vec![("a".into(), 0), ("a".into(), 1)]).is_err());
}

#[test]
fn without_special_tokens_the_text_is_one_segment() {
    assert_eq!(segments(&special(&[]), "ab"), [Segment::Text("ab")]);
    assert_eq!(segments(&special(&["x"]), ""), []);
}
