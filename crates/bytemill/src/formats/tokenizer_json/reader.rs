//! Parser of `tokenizer.json`.

use super::model::TokenizerJson;
use crate::formats::byte_characters::append_bytes;
use crate::vocab::TokenList;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// The tokens and merges of a `tokenizer.json`, and the document as JSON with an empty `model.vocab` and an empty
/// `model.merges`.
///
/// Returns `None` if the data are not UTF-8 JSON, if the two fields are missing or not in the usual form, if they
/// contradict each other, and where JSON readers differ: repeated keys or ids, integers written as floats, lone
/// surrogates.
#[must_use]
pub fn read_tokenizer_json(data: &[u8]) -> Option<(TokenizerJson, String)> {
    let text = simdutf8::basic::from_utf8(data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data)).ok()?;
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    let rest = reader.deserialize_map(Document { found: &mut found }).ok()?;
    reader.end().ok()?;
    Some((found?, rest))
}

/// Implement `DeserializeSeed` for a visitor by the method that asks the deserializer for it.
macro_rules! seed {
    ($visitor:ty => $value:ty, $method:ident) => {
        impl<'de> DeserializeSeed<'de> for $visitor {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.$method(self)
            }
        }
    };
}

/// The method that `serde` requires for its error messages, which no caller shows.
macro_rules! expecting {
    ($what:literal) => {
        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str($what)
        }
    };
}

/// Refuse the file, so that the caller reads it the slow way.
fn unusual<E: serde::de::Error>() -> E {
    E::custom("unusual")
}

/// The whole document. Returns the rest of it as JSON.
struct Document<'f> {
    found: &'f mut Option<TokenizerJson>,
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = String;

    expecting!("an object");

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut rest = Rest::default();
        while let Some(key) = map.next_key_seed(Text)? {
            if key == "model" {
                if self.found.is_some() {
                    return Err(unusual());
                }
                let (model, model_rest) = map.next_value_seed(Model)?;
                *self.found = Some(model);
                rest.add(&key, &model_rest)?;
            } else {
                rest.add(&key, map.next_value::<&RawValue>()?.get())?;
            }
        }
        Ok(rest.finish())
    }
}

/// Fields of an object as JSON text.
#[derive(Default)]
struct Rest(String);

impl Rest {
    fn add<E: serde::de::Error>(&mut self, key: &str, value: &str) -> Result<(), E> {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&serde_json::to_string(key).map_err(E::custom)?);
        self.0.push(':');
        self.0.push_str(value);
        Ok(())
    }

    fn finish(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

/// The `model` object: its tokens and merges, and the rest of it as JSON.
struct Model;

seed!(Model => (TokenizerJson, String), deserialize_map);

impl<'de> Visitor<'de> for Model {
    type Value = (TokenizerJson, String);

    expecting!("an object");

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut rest, mut entries, mut merges) = (Rest::default(), None, None);
        while let Some(key) = map.next_key_seed(Text)? {
            match &*key {
                "vocab" if entries.is_none() => {
                    rest.add(&key, "{}")?;
                    entries = Some(map.next_value_seed(Vocabulary)?);
                }
                "merges" if merges.is_none() => {
                    rest.add(&key, "[]")?;
                    merges = Some(map.next_value::<Vec<Merge>>()?);
                }
                "vocab" | "merges" => return Err(unusual()),
                _ => rest.add(&key, map.next_value::<&RawValue>()?.get())?,
            }
        }
        let (Some((tokens, foreign)), Some(merges)) = (entries, merges) else { return Err(unusual()) };
        let model = TokenizerJson::new(tokens, foreign, merges.iter().map(|Merge(left, right)| (&**left, &**right)));
        Ok((model.ok_or_else(unusual)?, rest.finish()))
    }
}

/// The `vocab` object, token -> id: the tokens, and the entries with characters that stand for no byte.
struct Vocabulary;

seed!(Vocabulary => (TokenList, HashMap<String, u32>), deserialize_map);

impl<'de> Visitor<'de> for Vocabulary {
    type Value = (TokenList, HashMap<String, u32>);

    expecting!("an object");

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut tokens, mut foreign) = (TokenList::default(), HashMap::new());
        while let Some(key) = map.next_key_seed(Text)? {
            let id: u32 = map.next_value()?;
            let mut is_valid = true;
            tokens.push_with(id, |bytes| is_valid = append_bytes(&key, bytes)).map_err(A::Error::custom)?;
            if !is_valid {
                tokens.pop();
                if foreign.insert(key.into_owned(), id).is_some() {
                    return Err(unusual());
                }
            }
        }
        Ok((tokens, foreign))
    }
}

/// An item of the `merges` array: a pair of tokens, or a string of two tokens.
struct Merge<'de>(Cow<'de, str>, Cow<'de, str>);

impl<'de> Deserialize<'de> for Merge<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = Merge<'de>;

    expecting!("a pair of tokens");

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Merge<'de>, E> {
        // A second space is refused later: it stands for no byte.
        let (left, right) = text.split_once(' ').ok_or_else(unusual)?;
        Ok(Merge(Cow::Borrowed(left), Cow::Borrowed(right)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge<'de>, E> {
        let (left, right) = text.split_once(' ').ok_or_else(unusual)?;
        Ok(Merge(Cow::Owned(left.to_owned()), Cow::Owned(right.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Merge<'de>, A::Error> {
        let left = pair.next_element_seed(Text)?.ok_or_else(unusual)?;
        let right = pair.next_element_seed(Text)?.ok_or_else(unusual)?;
        if pair.next_element::<IgnoredAny>()?.is_some() {
            return Err(unusual());
        }
        Ok(Merge(left, right))
    }
}

/// A string, borrowed from the file unless it has escapes.
struct Text;

seed!(Text => Cow<'de, str>, deserialize_str);

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    expecting!("a string");

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
