//! JSON lines: one string of each line's object.
//!
//! What a line means is what Python's `json.loads` makes of it: NaN and Infinity are numbers, the last of several
//! fields of one name counts, half a surrogate pair may stand in strings (where it is then malformed text).

use super::clean::append_clean;
use super::field::{Field, Found, RawField};
use super::repair::{without_lone_surrogates, without_special_numbers};
use super::{Broken, Documents, Malformed, Reason};
use serde::de::DeserializeSeed;
use std::borrow::Cow;

/// Which field, and what to do about broken documents.
#[derive(Clone, Debug)]
pub struct JsonLines {
    /// The names that lead to the field, from the outside in; not empty.
    pub path: Vec<String>,
    /// What is done about bytes that are not UTF-8, and about halves of surrogate pairs.
    pub malformed: Malformed,
    /// Whether broken documents are left out; otherwise the first one ends the work.
    pub leaves_out: bool,
}

impl JsonLines {
    /// The documents of a block of whole lines; the last line may lack its end.
    #[must_use]
    pub fn parse(&self, block: &[u8]) -> Documents {
        let mut documents = Documents { consumed: block.len(), ..Documents::default() };
        // Text is no longer than its JSON, but for what is replaced.
        let mut text = String::with_capacity(block.len());
        let valid = simdutf8::basic::from_utf8(block).ok();
        let mut start = 0;
        while start < block.len() {
            let end = memchr::memchr(b'\n', &block[start..]).map_or(block.len(), |place| start + place);
            let before = (text.len(), documents.n_replaced, documents.n_skipped_bytes);
            // A line end is no part of a character.
            let line = match valid.and_then(|valid| valid.get(start..end)) {
                Some(line) => Ok(Cow::Borrowed(line)),
                None => self.clean(&block[start..end], &mut documents).map_err(|at| Reason::NotUtf8(start + at)),
            };
            match line.and_then(|line| self.append_text(&line, &mut text, &mut documents)) {
                Ok(true) => documents.ends.push(text.len() as i64),
                Ok(false) => {}
                Err(reason) => {
                    text.truncate(before.0);
                    (documents.n_replaced, documents.n_skipped_bytes) = (before.1, before.2);
                    documents.n_broken += 1;
                    if !self.leaves_out {
                        documents.broken = Some(Broken { line: documents.n_lines, reason });
                        break;
                    }
                }
            }
            documents.n_lines += u64::from(end < block.len());
            start = end + 1;
        }
        documents.text = Some(text.into_bytes());
        documents
    }

    fn clean(&self, line: &[u8], documents: &mut Documents) -> Result<Cow<'static, str>, usize> {
        let mut text = Vec::with_capacity(line.len());
        append_clean(line, self.malformed, &mut text, documents)?;
        Ok(Cow::Owned(String::from_utf8(text).unwrap_or_default()))
    }

    /// Appends the text of a line; false where the line is blank.
    fn append_text(&self, line: &str, text: &mut String, documents: &mut Documents) -> Result<bool, Reason> {
        if line.bytes().all(|byte| b" \t\r".contains(&byte)) {
            return Ok(false);
        }
        let found = match self.find(line, text) {
            Ok(found) => found,
            Err(error) => self.find_unusual(line, text, documents, &error)?,
        };
        let name = || self.path.join(".");
        match found {
            Found::Text => Ok(true),
            Found::Missing => Err(Reason::Other(format!("field '{}' is missing", name()))),
            Found::Other(what) => Err(Reason::Other(format!("field '{}' is {what}, not a string", name()))),
            Found::NoObject(what) => Err(Reason::Other(format!("the line is {what}, not an object"))),
        }
    }

    fn find(&self, line: &str, text: &mut String) -> serde_json::Result<Found> {
        let before = text.len();
        let mut reader = serde_json::Deserializer::from_str(line);
        let found = Field { path: &self.path, out: text, is_outermost: true }.deserialize(&mut reader);
        found.and_then(|found| reader.end().map(|()| found)).inspect_err(|_| text.truncate(before))
    }

    /// As [`JsonLines::find`], for a line at which it failed with `error`.
    #[cold]
    fn find_unusual(
        &self,
        line: &str,
        text: &mut String,
        documents: &mut Documents,
        error: &serde_json::Error,
    ) -> Result<Found, Reason> {
        let mut line = Cow::Borrowed(line);
        if let Some(repaired) = without_special_numbers(&line) {
            if let Ok(found) = self.find(&repaired, text) {
                return Ok(found);
            }
            line = Cow::Owned(repaired);
        }
        let mut reader = serde_json::Deserializer::from_str(&line);
        let raw = RawField(&self.path).deserialize(&mut reader).and_then(|raw| reader.end().map(|()| raw));
        let string = match raw {
            Err(_) => return Err(no_json(error)),
            Ok(None) => return Ok(Found::Missing),
            Ok(Some(value)) => value.get(),
        };
        if !string.starts_with('"') {
            return Ok(Found::Other("a number"));
        }
        let replacement = if self.malformed == Malformed::Replace { "\\ufffd" } else { "" };
        let (repaired, n_lone) = without_lone_surrogates(string, replacement);
        let value: String = serde_json::from_str(&repaired).map_err(|_| no_json(error))?;
        match self.malformed {
            Malformed::Refuse if n_lone > 0 => {
                let name = self.path.join(".");
                return Err(Reason::Other(format!("field '{name}' holds half of a surrogate pair, which no text can")));
            }
            Malformed::Replace => documents.n_replaced += n_lone,
            // As many as an escape has.
            _ => documents.n_skipped_bytes += n_lone * 6,
        }
        text.push_str(&value);
        Ok(Found::Text)
    }
}

/// What `serde_json` says, without the line, which is always the first.
fn no_json(error: &serde_json::Error) -> Reason {
    let message = error.to_string();
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    let what = what.replace("EOF while", "the line ends while");
    Reason::Other(format!("no JSON: {what} at column {}", error.column()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &str, malformed: Malformed) -> Documents {
        JsonLines { path: vec!["meta".into(), "text".into()], malformed, leaves_out: true }.parse(lines.as_bytes())
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
    fn the_last_of_several_fields_counts() {
        let lines = r#"{"meta": {"text": "a", "text": "b"}}
{"meta": {"text": "a"}, "meta": 5}
{"meta": 5, "meta": {"text": "c\u00e9\ud83d\ude00"}, "text": "d"}"#;
        let documents = parse(lines, Malformed::Refuse);
        assert_eq!(texts(&documents), ["b", "cé😀"]);
        assert_eq!((documents.n_broken, documents.n_lines), (1, 2));
    }

    #[test]
    fn what_python_reads_beyond_json_is_read() {
        let lines = "{\"a\": [NaN, -Infinity,Infinity], \"meta\": {\"text\": \"NaN\\ud800Infinity\"}}\r\n \t\r\n{\"\\udc00\": 1, \"meta\": {\"text\": \"x\"}}\n";
        let documents = parse(lines, Malformed::Replace);
        assert_eq!(texts(&documents), ["NaN\u{FFFD}Infinity", "x"]);
        assert_eq!(documents.n_replaced, 1);
        assert_eq!(texts(&parse(lines, Malformed::Skip)), ["NaNInfinity", "x"]);
        assert_eq!(texts(&parse(lines, Malformed::Refuse)), ["x"]);
    }

    #[test]
    fn what_is_no_json_is_none() {
        for line in ["{", "{}x", "{\"meta\": 1NaN}", "{\"meta\": {\"text\": \"a\tb\"}}", "[]", "\"text\"", "{'a': 1}"] {
            assert_eq!(parse(line, Malformed::Replace).n_broken, 1, "{line}");
        }
    }
}
