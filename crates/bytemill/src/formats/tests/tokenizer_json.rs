use super::TokenizerJson;
use crate::text::byte_characters::append_bytes;
use crate::vocab::Vocab;
use proptest::prelude::*;
use serde_json::value::RawValue;

fn read_tokenizer_json(data: &[u8]) -> Option<(TokenizerJson, String)> {
    super::read_tokenizer_json(data)
}

/// A `tokenizer.json` with all bytes, written as escapes, and the entries `more`.
fn file(more: &str, merges: &str) -> String {
    let alphabet = (0..0x144).filter_map(char::from_u32).filter_map(|character| {
        let mut byte = Vec::new();
        append_bytes(&character.to_string(), &mut byte).then(|| format!("\"\\u{:04x}\": {}", character as u32, byte[0]))
    });
    let vocab: Vec<String> = alphabet.chain((!more.is_empty()).then(|| more.to_owned())).collect();
    format!(r#"{{"model": {{"x": [1], "vocab": {{{}}}, "merges": {merges}}}, "y": "\ud800"}}"#, vocab.join(","))
}

fn vocab(more: &str, merges: &str, special: &[(&str, u32)]) -> Option<Vocab> {
    let special = special.iter().map(|(text, id)| ((*text).to_owned(), *id)).collect();
    read_tokenizer_json(file(more, merges).as_bytes())?.0.into_vocab(special, false)
}

#[test]
fn tokens_and_merges_are_read_and_the_rest_is_returned() {
    let (read, rest) =
        read_tokenizer_json(file(r#""ab": 300, "Ġab": 299"#, r#"[["a", "b"], "Ġ ab"]"#).as_bytes()).unwrap();
    assert_eq!(rest, r#"{"model":{"x":[1],"vocab":{},"merges":[]},"y":"\ud800"}"#);
    assert_eq!((read.n_entries(), read.n_merges()), (258, 2));
    assert_eq!((read.id("Ġab"), read.id(" ab"), read.id("c")), (Some(299), None, Some(99)));
    let vocab = read.into_vocab(vec![], false).unwrap();
    assert_eq!(vocab.symbol_ids()[256..], [300, 299]);
    assert_eq!(vocab.merges(), [(97, 98), (32, 256)]);
    assert_eq!(vocab.id(b" ab"), Some(299));
}

#[test]
fn merges_may_come_before_the_vocabulary() {
    let text = file(r#""ab": 300"#, "[]");
    let (start, vocab) = text.split_once(r#""vocab""#).unwrap();
    let vocab = vocab.split_once(r#", "merges""#).unwrap().0;
    let text = format!(r#"{start}"merges": [["a", "b"]], "vocab"{vocab}}}}}"#);
    let (read, rest) = read_tokenizer_json(text.as_bytes()).unwrap();
    assert_eq!(rest, r#"{"model":{"x":[1],"merges":[],"vocab":{}}}"#);
    assert_eq!(read.into_vocab(vec![], false).unwrap().merges(), [(97, 98)]);
}

#[test]
fn a_special_token_is_an_ordinary_one_only_if_a_merge_makes_it() {
    let made = vocab(r#""ab": 300"#, r#"["a b"]"#, &[("ab", 300)]).unwrap();
    assert_eq!(made.id(b"ab"), Some(300));
    let alone = vocab(r#""ab": 300"#, "[]", &[("ab", 300)]).unwrap();
    assert_eq!((alone.id(b"ab"), alone.token(300)), (None, Some(&b"ab"[..])));
    let foreign = vocab(r#""<日>": 300"#, "[]", &[("<日>", 300)]).unwrap();
    assert_eq!((foreign.id("<日>".as_bytes()), foreign.token(300)), (None, Some("<日>".as_bytes())));
    let elsewhere = vocab("", "[]", &[("<s>", 300)]).unwrap();
    assert_eq!(elsewhere.token(300), Some(&b"<s>"[..]));
}

#[test]
fn contradictions_are_refused() {
    let no_special: &[(&str, u32)] = &[];
    for (more, merges, special) in [
        (r#""ab": 300, "ab": 301"#, "[]", no_special),
        (r#""ab": 300, "bc": 300"#, "[]", no_special),
        (r#""日": 300, "日": 301"#, "[]", &[("日", 301)]),
        // The same bytes under one id, as byte characters and as they are.
        (r#""æĹ¥": 300, "日": 300"#, "[]", &[("日", 300)]),
        (r#""日": 300"#, "[]", no_special),
        (r#""": 300"#, "[]", no_special),
        (r#""ab": 97"#, "[]", no_special),
        (r#""ab": 300"#, r#"["a b", "a b"]"#, no_special),
        (r#""ab": 300"#, r#"["a c"]"#, no_special),
        (r#""ab": 300"#, r#"["ab"]"#, no_special),
        (r#""ab": 300"#, r#"[["ab"]]"#, no_special),
        (r#""ab": 300"#, r#"[["", "ab"]]"#, no_special),
        (r#""ab": 300"#, "[null]", no_special),
        (r#""ab": 300"#, "null", no_special),
        ("", "[]", &[("é", 233)]),
        ("", "[]", &[("<s>", 97)]),
        ("", "[]", &[("<s>", u32::MAX)]),
    ] {
        assert!(vocab(more, merges, special).is_none(), "{more} {merges} {special:?}");
    }
    for text in ["", "{}", "[]", "{\"model\": {}}", "{\"model\": {\"vocab\": {}, \"merges\": []}}"] {
        assert!(read_tokenizer_json(text.as_bytes()).is_none(), "{text}");
    }
    assert!(read_tokenizer_json((file("", "[]") + "x").as_bytes()).is_none());
    assert!(read_tokenizer_json(file("", &"[".repeat(100_000)).as_bytes()).is_none());
}

proptest! {
    #[test]
    fn no_input_panics(
        at in any::<prop::sample::Index>(),
        n_removed in 0usize..30,
        put in prop::sample::select(vec!["", "\"", "{", "}", "[", "]", ",", ":", "\\u", "\\ud800", "0", "-", "日", "\0", " "]),
    ) {
        let text = file(r#""ab": 300, "<日>": 301"#, r#"[["a", "b"]]"#);
        let mut characters: Vec<char> = text.chars().collect();
        let at = at.index(characters.len());
        let end = (at + n_removed).min(characters.len());
        characters.splice(at..end, put.chars());
        let changed: String = characters.into_iter().collect();
        if let Some((read, rest)) = read_tokenizer_json(changed.as_bytes()) {
            prop_assert!(serde_json::from_str::<&RawValue>(&rest).is_ok());
            let _ = read.into_vocab(vec![("<日>".to_owned(), 301)], false);
        }
    }
}
