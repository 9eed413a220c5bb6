//! Parser of `tokenizer.json`.

use crate::vocab::TokenList;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

/// What the tokens and merges of a `tokenizer.json` are read into.
pub trait Contents: Sized {
    /// Appends the bytes that a key of the vocabulary stands for; false if it stands for none.
    fn append_token(key: &str, bytes: &mut Vec<u8>) -> bool;

    /// The contents of a file: its tokens, the entries of the vocabulary that stand for no bytes, and the merges by the keys of their
    /// parts. `None` if they contradict each other.
    fn new<'m>(
        tokens: TokenList,
        foreign: HashMap<String, u32>,
        merges: impl ExactSizeIterator<Item = (&'m str, &'m str)> + Clone,
    ) -> Option<Self>;
}

/// The tokens and merges of a `tokenizer.json`, and the document as JSON with an empty `model.vocab` and an empty
/// `model.merges`.
///
/// Returns `None` if the data are not UTF-8 JSON, if the two fields are missing or not in the usual form, if they
/// contradict each other, and where JSON readers differ: repeated keys or ids, integers written as floats, lone
/// surrogates.
#[must_use]
pub fn read_tokenizer_json<C: Contents>(data: &[u8]) -> Option<(C, String)> {
    let text = simdutf8::basic::from_utf8(data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data)).ok()?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = reader.deserialize_map(Document(PhantomData)).ok()?;
    reader.end().ok()?;
    Some(read)
}

/// Implements `DeserializeSeed` for the visitor of an object.
macro_rules! seed {
    ($visitor:ident => $value:ty) => {
        impl<'de, C: Contents> DeserializeSeed<'de> for $visitor<C> {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.deserialize_map(self)
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

/// Reads the fields of an object, and returns them as JSON. If `special` reads a field, it returns the JSON in its place.
fn read_fields<'de, A: MapAccess<'de>>(
    mut map: A,
    mut special: impl FnMut(&str, &mut A) -> Result<Option<String>, A::Error>,
) -> Result<String, A::Error> {
    let mut fields = Vec::new();
    while let Some(Text(key)) = map.next_key()? {
        let value = match special(&key, &mut map)? {
            Some(value) => Cow::Owned(value),
            None => Cow::Borrowed(map.next_value::<&RawValue>()?.get()),
        };
        fields.push(format!("{}:{value}", serde_json::to_string(&key).map_err(A::Error::custom)?));
    }
    Ok(format!("{{{}}}", fields.join(",")))
}

/// The whole document: its model, and the rest of it as JSON.
struct Document<C>(PhantomData<C>);

impl<'de, C: Contents> Visitor<'de> for Document<C> {
    type Value = (C, String);

    expecting!("an object");

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let mut model = None;
        let rest = read_fields(map, |key, map| {
            if key != "model" {
                return Ok(None);
            }
            let (read, rest) = map.next_value_seed(Model(PhantomData))?;
            if model.replace(read).is_some() { Err(unusual()) } else { Ok(Some(rest)) }
        })?;
        Ok((model.ok_or_else(unusual)?, rest))
    }
}

/// The `model` object: its tokens and merges, and the rest of it as JSON.
struct Model<C>(PhantomData<C>);

seed!(Model => (C, String));

impl<'de, C: Contents> Visitor<'de> for Model<C> {
    type Value = (C, String);

    expecting!("an object");

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut merges) = (None, None);
        let rest = read_fields(map, |key, map| {
            let (is_repeated, empty) = match key {
                "vocab" => (entries.replace(map.next_value_seed(Vocabulary(PhantomData::<C>))?).is_some(), "{}"),
                "merges" => (merges.replace(map.next_value::<Vec<Merge>>()?).is_some(), "[]"),
                _ => return Ok(None),
            };
            if is_repeated { Err(unusual()) } else { Ok(Some(empty.to_owned())) }
        })?;
        let (Some((tokens, foreign)), Some(merges)) = (entries, merges) else { return Err(unusual()) };
        let model = C::new(tokens, foreign, merges.iter().map(|Merge(left, right)| (&**left, &**right)));
        Ok((model.ok_or_else(unusual)?, rest))
    }
}

/// The `vocab` object, token -> id: the tokens, and the entries that stand for no bytes.
struct Vocabulary<C>(PhantomData<C>);

seed!(Vocabulary => (TokenList, HashMap<String, u32>));

impl<'de, C: Contents> Visitor<'de> for Vocabulary<C> {
    type Value = (TokenList, HashMap<String, u32>);

    expecting!("an object");

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut tokens, mut foreign) = (TokenList::default(), HashMap::new());
        while let Some(Text(key)) = map.next_key()? {
            let id: u32 = map.next_value()?;
            let mut is_valid = true;
            tokens.push_with(id, |bytes| is_valid = C::append_token(&key, bytes)).map_err(A::Error::custom)?;
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
        let Text(left) = pair.next_element()?.ok_or_else(unusual)?;
        let Text(right) = pair.next_element()?.ok_or_else(unusual)?;
        if pair.next_element::<IgnoredAny>()?.is_some() {
            return Err(unusual());
        }
        Ok(Merge(left, right))
    }
}

/// A string, borrowed from the file unless it has escapes.
#[derive(Deserialize)]
struct Text<'f>(#[serde(borrow)] Cow<'f, str>);
