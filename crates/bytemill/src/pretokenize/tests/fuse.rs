use super::super::steps::{Steps, THEN};
use super::super::tests::{character, pretokens};
use super::super::{NAMED, Pattern};
use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// Steps that become one expression.
fn fused_steps() -> Vec<Vec<&'static str>> {
    let mut all = vec![
        DEEPSEEK.to_vec(),
        vec![r"\p{N}", r"(?i:'s|k1)|a.|[^\s1]+|\S|b\s*"],
        vec![r"[ab]+", r"\p{N}{1,2}", r"a|[^b\p{N}]c|(b|c)+|\s+(?!\S)|[kx]"],
        vec![r"[ab]+", r"[^\p{N}b]+|a|ab"],
        vec![r"[\p{Han}あ]+", r"[a-c]", r"[b中]+|b*[あa]"],
    ];
    all.extend(
        NAMED.iter().filter(|named| !named.expression.contains("++")).map(|named| vec![r"\p{N}", named.expression]),
    );
    all
}

/// The steps as one expression, and one after the other. Building the automata takes longer than the tests.
static PATTERNS: LazyLock<Vec<(Pattern, Pattern)>> =
    LazyLock::new(|| fused_steps().iter().map(|steps| both(steps)).collect());

fn both(steps: &[&str]) -> (Pattern, Pattern) {
    let expression = steps.join(THEN);
    let fused = Steps::new(&expression).unwrap();
    assert_eq!(fused.fewer().len(), 1, "{steps:?}");
    let plain = Steps::new(&expression).unwrap().unfused();
    (Pattern::Steps(Box::new(fused)), Pattern::Steps(Box::new(plain)))
}

proptest! {
    #[test]
    fn one_expression_splits_as_several_steps(
        text in prop::collection::vec(
            prop_oneof![character(), prop::sample::select("abc1２٣ 中ひ\u{3099}゛ー'k.\n".chars().collect::<Vec<_>>())],
            0..40,
        ).prop_map(String::from_iter)
    ) {
        for (fused, plain) in &*PATTERNS {
            prop_assert_eq!(pretokens(fused, &text), pretokens(plain, &text), "{:?}", plain.expression());
        }
    }
}

#[test]
fn steps_that_isolate_classes_become_one() {
    for steps in fused_steps() {
        assert_eq!(fuse(&steps).unwrap().n_steps, steps.len(), "{steps:?}");
    }
    for (fused, plain) in &*PATTERNS {
        assert_eq!(fused.expression(), plain.expression());
    }
}

#[test]
fn steps_that_are_no_class_stay() {
    for steps in [
        vec![r"\s?\p{L}+", r"\p{N}"],
        vec![r"\p{N}*", r"a"],
        vec![r"\p{N}+?", r"a"],
        vec![r"\p{N}{2}", r"a"],
        vec![r"\p{N}", r"a$"],
        vec![r"\p{N}", r"a(?:b++)?c"],
        vec![r"\p{N}{1,3}", r"[^a]+"],
        vec![r"[ab]", r"[bc]", r"x"],
        vec![r"[\r\n]", r"a|\s+(?!\S)"],
        vec![r"\p{N}", r"a(?!b)"],
    ] {
        assert!(fuse(&steps).is_none(), "{steps:?}");
    }
    assert_eq!(fuse(&["[12]", "[ab]+", "b1|c1?", "y"]).unwrap().n_steps, 3);
    assert_eq!(fuse(&["[12]", "[ab]+"]).unwrap().n_steps, 2);
}
