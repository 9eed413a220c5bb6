//! JSON lines: one string field of each line's object.
//!
//! Lines are read as by Python's `json.loads`: NaN and Infinity are numbers, the last field of a name counts, and strings
//! may hold half of a surrogate pair (which is malformed text here).

use super::block::{Broken, Documents, Reason, cleared, end_of};
use super::clean::append_clean;
use super::field::{Found, find, kind};
use super::repair::{without_lone_surrogates, without_special_numbers};
use crate::error::Error;
use crate::text::utf8::Malformed;
use std::borrow::Cow;

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

#[cfg(test)]
#[path = "tests/jsonl.rs"]
mod tests;
