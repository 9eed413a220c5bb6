//! Find one value in a JSON object without parsing the others.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

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
