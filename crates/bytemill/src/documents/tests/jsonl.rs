use super::*;

fn parse(lines: &str, malformed: Malformed) -> Documents {
    JsonLines { path: vec!["meta".into(), "text".into()], malformed, skip_broken: true }
        .parse(lines.as_bytes(), Vec::new())
        .unwrap()
}

fn texts(documents: &Documents) -> Vec<&str> {
    let text = std::str::from_utf8(documents.text.as_deref().unwrap()).unwrap();
    let mut start = 0;
    documents
        .ends
        .iter()
        .map(|&end| {
            let document = &text[start..end as usize];
            start = end as usize;
            document
        })
        .collect()
}

#[test]
fn the_last_of_repeated_fields_is_used() {
    let lines = r#"{"meta": {"text": "a", "text": "b"}}
{"meta": {"text": "a"}, "meta": 5}
{"meta": 5, "meta": {"text": "c\u00e9\ud83d\ude00"}, "text": "d"}"#;
    let documents = parse(lines, Malformed::Refuse);
    assert_eq!(texts(&documents), ["b", "cé😀"]);
    assert_eq!((documents.n_broken, documents.n_lines), (1, 2));
}

#[test]
fn extensions_of_pythons_json_are_accepted() {
    let lines = "{\"a\": [NaN, -Infinity,Infinity], \"meta\": {\"text\": \"NaN\\ud800Infinity\"}}\r\n \t\r\n{\"\\udc00\": 1, \"meta\": {\"text\": \"x\"}}\n";
    let documents = parse(lines, Malformed::Replace);
    assert_eq!(texts(&documents), ["NaN\u{FFFD}Infinity", "x"]);
    assert_eq!(documents.n_replaced, 1);
    assert_eq!(texts(&parse(lines, Malformed::Skip)), ["NaNInfinity", "x"]);
    assert_eq!(texts(&parse(lines, Malformed::Refuse)), ["x"]);
}

#[test]
fn malformed_json_is_reported_as_broken() {
    for line in ["{", "{}x", "{\"meta\": 1NaN}", "{\"meta\": {\"text\": \"a\tb\"}}", "[]", "\"text\"", "{'a': 1}"] {
        assert_eq!(parse(line, Malformed::Replace).n_broken, 1, "{line}");
    }
}
