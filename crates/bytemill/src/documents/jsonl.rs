//! JSON lines: one string field of each line's object.
//!
//! Lines are read as by Python's `json.loads`: NaN and Infinity are numbers, the last field of a name counts, and strings
//! may hold half of a surrogate pair (which is malformed text here).

use super::block::{Broken, Documents, Reason, append_clean, cleared, end_of};
use crate::error::Error;
use crate::text::utf8::Malformed;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Length of a surrogate's escape, such as `\ud800`.
const ESCAPE_BYTES: u64 = 6;

/// The field to read, and how broken documents are handled.
#[derive(Clone, Debug)]
pub struct JsonLines {
    /// The names that lead to the field, outermost first; not empty.
    pub path: Vec<String>,
    /// How malformed UTF-8 and halves of surrogate pairs are handled.
    pub malformed: Malformed,
    /// Skip broken documents; otherwise stop at the first one.
    pub skip_broken: bool,
}

impl JsonLines {
    /// The documents of a block of whole lines. The last line may lack its end. The text is written to `buffer`.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn parse(&self, block: &[u8], buffer: Vec<u8>) -> Result<Documents, Error> {
        let mut documents = Documents { consumed: block.len(), ..Documents::default() };
        // Unless malformed bytes are replaced, text is no longer than its JSON.
        let mut text = cleared(buffer, block.len())?;
        let valid = simdutf8::basic::from_utf8(block).ok();
        let mut start = 0;
        while start < block.len() {
            let end = memchr::memchr(b'\n', &block[start..]).map_or(block.len(), |at| start + at);
            let line = &block[start..end];
            if !line.iter().all(|byte| b" \t\r".contains(byte)) {
                let counts = (documents.n_replaced, documents.n_skipped_bytes);
                let line = match valid {
                    Some(valid) => Ok(Cow::Borrowed(&valid[start..end])),
                    None => self.clean(line, &mut documents).map_err(|at| Reason::NotUtf8(start + at)),
                };
                match line.and_then(|line| self.append_text(&line, &mut text, &mut documents)) {
                    Ok(()) => documents.ends.push(end_of(&text)),
                    Err(reason) => {
                        (documents.n_replaced, documents.n_skipped_bytes) = counts;
                        let line = documents.n_lines;
                        if documents.reject(self.skip_broken, || Broken { line, reason }).is_break() {
                            break;
                        }
                    }
                }
            }
            documents.n_lines += u64::from(end < block.len());
            start = end + 1;
        }
        documents.text = Some(text.into_bytes());
        Ok(documents)
    }

    fn clean(&self, line: &[u8], documents: &mut Documents) -> Result<Cow<'static, str>, usize> {
        let mut text = String::with_capacity(line.len());
        append_clean(line, self.malformed, &mut text, documents)?;
        Ok(Cow::Owned(text))
    }

    /// Append the text of a line, or nothing if it is broken.
    fn append_text(&self, line: &str, text: &mut String, documents: &mut Documents) -> Result<(), Reason> {
        let repaired;
        let found = match find(line, &self.path) {
            Ok(found) => found,
            Err(error) => {
                repaired = without_special_numbers(line).ok_or_else(|| invalid_json(&error))?;
                find(&repaired, &self.path).map_err(|_| invalid_json(&error))?
            }
        };
        let name = || self.path.join(".");
        let message = match found {
            Found::Value(json) if json.starts_with('"') => {
                text.push_str(&self.string(json, documents)?);
                return Ok(());
            }
            Found::Value(json) => format!("field '{}' is {}, not a string", name(), kind(json)),
            Found::Missing => format!("field '{}' is missing", name()),
            Found::NotAnObject(kind) => format!("the line is {kind}, not an object"),
        };
        Err(Reason::Other(message))
    }

    /// Parse the JSON of a string.
    fn string(&self, json: &str, documents: &mut Documents) -> Result<String, Reason> {
        if let Ok(string) = serde_json::from_str(json) {
            return Ok(string);
        }
        let replacement = if self.malformed == Malformed::Replace { "\\ufffd" } else { "" };
        let (repaired, n_lone) = without_lone_surrogates(json, replacement);
        match self.malformed {
            Malformed::Refuse if n_lone > 0 => {
                let name = self.path.join(".");
                let message = format!("field '{name}' holds half of a surrogate pair, which is not valid text");
                return Err(Reason::Other(message));
            }
            Malformed::Replace => documents.n_replaced += n_lone,
            _ => documents.n_skipped_bytes += n_lone * ESCAPE_BYTES,
        }
        serde_json::from_str(&repaired).map_err(|error| invalid_json(&error))
    }
}

/// The message of `serde_json` without its line number, which is always 1.
fn invalid_json(error: &serde_json::Error) -> Reason {
    let message = error.to_string();
    let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
    let what = what.replace("EOF while", "the line ends while");
    Reason::Other(format!("invalid JSON: {what} at column {}", error.column()))
}

// Find one value in a JSON object without parsing the others.

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found<'j> {
    /// The JSON of a value.
    Value(&'j str),
    /// Nothing.
    Missing,
    /// The line is not an object but of this type.
    NotAnObject(&'static str),
}

/// The value in `line` that `path` leads to. If a name occurs several times, the last one counts.
pub(super) fn find<'j>(line: &'j str, path: &[String]) -> serde_json::Result<Found<'j>> {
    let start = line.trim_start_matches([' ', '\t', '\r']);
    if !start.starts_with('{') {
        serde_json::from_str::<IgnoredAny>(line)?;
        return Ok(Found::NotAnObject(kind(start)));
    }
    let mut json = line;
    for (depth, name) in path.iter().enumerate() {
        if depth > 0 && !json.starts_with('{') {
            return Ok(Found::Missing);
        }
        let mut reader = serde_json::Deserializer::from_str(json);
        let member = reader.deserialize_map(Member(name))?;
        reader.end()?;
        let Some(value) = member else { return Ok(Found::Missing) };
        json = value.get();
    }
    Ok(Found::Value(json))
}

/// The type of a JSON value, for messages.
pub(super) fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'n') => "null",
        Some(b't') => "true",
        Some(b'f') => "false",
        _ => "a number",
    }
}

/// The value of a name in an object; the last one if there are several.
struct Member<'n>(&'n str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_member) = map.next_key_seed(Key(self.0))? {
            if is_member {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Compares a key with a name.
///
/// Reads the key as bytes, so that half of a surrogate pair in a key is not an error.
struct Key<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E>(self, key: &[u8]) -> Result<bool, E> {
        Ok(key == self.0.as_bytes())
    }
}

// Rewrite what Python's `json` accepts and `serde_json` does not: NaN, Infinity, and halves of surrogate pairs.

/// Replace each NaN and Infinity outside strings by `0`. Returns `None` if there is none.
pub(super) fn without_special_numbers(line: &str) -> Option<String> {
    let mut bytes = line.as_bytes().to_vec();
    let (mut at, mut in_string, mut is_changed) = (0, false, false);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => in_string = !in_string,
            b'\\' if in_string => at += 1,
            b'N' | b'I' if !in_string => {
                let word: &[u8] = if bytes[at] == b'N' { b"NaN" } else { b"Infinity" };
                let before = &bytes[..at];
                let before = if word == b"Infinity" { before.strip_suffix(b"-").unwrap_or(before) } else { before };
                let begins = before.last().is_none_or(|byte| b" \t:,[".contains(byte));
                let ends = bytes.get(at + word.len()).is_none_or(|byte| b" \t\r,]}".contains(byte));
                if begins && ends && bytes[at..].starts_with(word) {
                    bytes[at..at + word.len()].fill(b' ');
                    bytes[at] = b'0';
                    at += word.len() - 1;
                    is_changed = true;
                }
            }
            _ => {}
        }
        at += 1;
    }
    // Valid UTF-8: only whole ASCII words were overwritten, by ASCII.
    is_changed.then(|| String::from_utf8(bytes).ok()).flatten()
}

/// Substitute `replacement` for each half of a surrogate pair that stands alone in the JSON of a string. Returns the JSON
/// and the number of substitutions.
pub(super) fn without_lone_surrogates(string: &str, replacement: &str) -> (String, u64) {
    let mut repaired = String::with_capacity(string.len());
    let (mut rest, mut n_lone) = (string, 0);
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (before, escape) = rest.split_at(at);
        repaired.push_str(before);
        let n_bytes = match (surrogate(escape), escape.get(6..).and_then(surrogate)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (Some(_), _) => {
                n_lone += 1;
                repaired.push_str(replacement);
                rest = &escape[6..];
                continue;
            }
            // A backslash and the character that it escapes, which may be another backslash.
            (None, _) => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        let (kept, after) = escape.split_at(n_bytes);
        repaired.push_str(kept);
        rest = after;
    }
    repaired.push_str(rest);
    (repaired, n_lone)
}

/// The surrogate whose escape `text` starts with.
fn surrogate(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok().filter(|code| (0xD800..=0xDFFF).contains(code))
}

#[cfg(test)]
#[path = "tests/jsonl.rs"]
mod tests;
