use super::super::named::{CL100K, GPT2, LLAMA3, O200K, QWEN2, TEKKEN};
use super::super::tests::{CONTRACTIONS, ENDS};
use super::super::{Matcher, NAMED, NamedPattern, Pattern, THEN};
use super::*;

#[test]
fn expressions_are_recognized_however_they_are_spelled() {
    let listed = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|'ſ)";
    let word = r"[^\r\n\p{L}\p{N}]?\p{L}+";
    for (spec, expression) in [
        (GPT2, r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+".to_owned()),
        (GPT2, r"'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+".to_owned()),
        (GPT2, r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s".to_owned()),
        (
            LLAMA3,
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+".to_owned(),
        ),
        (LLAMA3, format!(r"{listed}|{word}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{ENDS}")),
        (
            QWEN2,
            format!("{CONTRACTIONS}|{word}|\\p{{N}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
        ),
        (
            QWEN2,
            format!(r"{listed}|[^\n\p{{N}}\r\p{{L}}]?\p{{L}}{{1,}}|[\p{{N}}]| ?[^\s\p{{N}}\p{{L}}]+[\n\r]*|{ENDS}"),
        ),
    ] {
        let found = rules(&[&expression]).unwrap_or_else(|| panic!("{expression}"));
        assert_eq!(found.spec, spec, "{expression}");
        assert!(matches!(Pattern::new(Some(&expression)).unwrap(), Pattern::Named(_)), "{expression}");
    }
    let specs = [GPT2, CL100K, LLAMA3, O200K, QWEN2, TEKKEN];
    assert_eq!(NAMED.len(), specs.len(), "a named pattern lacks its rules here");
    for (named, spec) in NAMED.iter().zip(specs) {
        assert_eq!(rules(&[named.expression]).unwrap().spec, spec, "{}", named.name);
        assert_eq!(NamedPattern::find(named.expression).unwrap().name, named.name);
    }
}

#[test]
fn other_expressions_have_no_rules() {
    let llama3 = NamedPattern::find("llama3").unwrap().expression;
    let o200k = NamedPattern::find("o200k").unwrap().expression;
    let changed = |from: &str, to: &str| {
        assert!(llama3.contains(from), "{from}");
        llama3.replacen(from, to, 1)
    };
    for expression in [
        String::new(),
        "a".to_owned(),
        r"\s+(?!\S)|\s+".to_owned(),
        changed("'d", "'x"),
        changed("'d", ""),
        changed(r"\p{L}+", r"\p{L}+?"),
        changed(r"\p{L}+", r"\p{L}*"),
        changed(r"\p{L}+", r"[\p{L}\p{M}]+"),
        changed(r"\p{N}{1,3}", r"\p{N}{2,3}"),
        changed(r"\p{N}{1,3}", r"\p{N}{1,32}"),
        changed(r"\p{N}{1,3}", r"\p{Nd}{1,3}"),
        changed(r"|\p{N}{1,3}", ""),
        changed(r"[\r\n]*", r"[\r\n]+"),
        changed(r"\s+(?!\S)", r"\s+(?!\p{L})"),
        changed(r"\s*[\r\n]+|", r"\s*\n+|"),
        [llama3, "|x"].concat(),
        // A possessive run of upper-case letters gives nothing back.
        o200k.replace(r"\p{M}]*[", r"\p{M}]*+["),
        o200k.replacen("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "", 1),
    ] {
        assert!(rules(&[&expression]).is_none(), "{expression}");
    }
    let gpt2 = NamedPattern::find("gpt2").unwrap().expression;
    let cl100k = NamedPattern::find("cl100k").unwrap().expression;
    for steps in [
        vec![],
        vec![r"\p{N}+", gpt2],
        vec![r"\p{N}{2}", gpt2],
        vec![r"\p{N}{1,3}", r"\p{N}{1,3}", gpt2],
        vec![r"\p{N}{1,4}", llama3],
        vec![r"\p{N}", cl100k],
        vec!["[一-龥]+", o200k],
        vec!["[一-龥]", llama3],
        vec!["[一-龥a]+", llama3],
        vec!["[ſ]+", llama3],
        vec!["[一-龥〇]+", llama3],
        vec!["[一-龥\u{3000}]+", llama3],
        vec![r"\s?\p{L}+", llama3],
        vec![llama3, r"\p{N}"],
    ] {
        assert!(rules(&steps).is_none(), "{steps:?}");
    }
}

#[test]
fn several_steps_with_rules_keep_their_expressions() {
    let steps = [r"\p{N}", NamedPattern::find("gpt2").unwrap().expression].join(THEN);
    let pattern = Pattern::new(Some(&steps)).unwrap();
    assert!(matches!(pattern, Pattern::Ruled(_)) && pattern.matcher() == Matcher::Masks);
    assert_eq!(pattern.expression(), Some(steps.as_str()));
    let by_name = [r"\p{N}", "gpt2"].join(THEN);
    assert_eq!(Pattern::new(Some(&by_name)).unwrap().expression(), Some(steps.as_str()));
}
