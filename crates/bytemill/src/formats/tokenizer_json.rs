//! Hugging Face's `tokenizer.json`: `model.vocab` and `model.merges` are read here, the rest is handed on.

use super::spelling::append_spelled;
use crate::vocab::{MergedTokens, TokenList, Vocab};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// The tokens and merges of a `tokenizer.json`.
#[derive(Debug)]
pub struct TokenizerJson {
    merged: MergedTokens,
    /// Entries of the vocabulary that spell no bytes.
    foreign: HashMap<String, u32>,
}

/// The tokens and merges of a `tokenizer.json`, and the document as JSON with an empty `model.vocab` and an empty
/// `model.merges`.
///
/// None where the text is no JSON, the two are not there or not as such files have them, or they contradict themselves;
/// and where JSON readers differ: a key or an id twice, a number that is not written as a whole one, lone surrogates.
#[must_use]
pub fn read_tokenizer_json(text: &str) -> Option<(TokenizerJson, String)> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_str(text);
    let rest = reader.deserialize_map(Document { found: &mut found }).ok()?;
    reader.end().ok()?;
    Some((found?, rest))
}

impl TokenizerJson {
    /// How many entries the vocabulary has.
    #[must_use]
    pub fn n_entries(&self) -> usize {
        self.merged.tokens().len() + self.foreign.len()
    }

    /// How many merges there are.
    #[must_use]
    pub fn n_merges(&self) -> usize {
        self.merged.n_merges()
    }

    /// The id of an entry of the vocabulary, by its spelling.
    #[must_use]
    pub fn id(&self, spelling: &str) -> Option<u32> {
        match self.place(spelling) {
            Some(place) => Some(self.merged.tokens().ids()[place]),
            None => self.foreign.get(spelling).copied(),
        }
    }

    fn place(&self, spelling: &str) -> Option<usize> {
        let mut token = Vec::new();
        if append_spelled(spelling, &mut token) { self.merged.place(&token) } else { None }
    }

    /// The vocabulary, with these special tokens.
    ///
    /// A special token that is in the file's vocabulary is not an ordinary one, unless it is a byte or made by a merge.
    /// None where the parts contradict each other, where a special token is spelled like other bytes that are a token,
    /// and where the vocabulary has a spelling that spells nothing and is no special token.
    #[must_use]
    pub fn into_vocab(self, special: Vec<(String, u32)>) -> Option<Vocab> {
        let mut special_alone = Vec::new();
        let mut n_foreign = 0;
        for (text, _) in &special {
            if let Some(place) = self.place(text) {
                if !self.merged.is_made(place) {
                    special_alone.push(place);
                } else if self.merged.tokens().token(place) != text.as_bytes() {
                    return None;
                }
            } else if self.foreign.contains_key(text) {
                n_foreign += 1;
            }
        }
        if n_foreign != self.foreign.len() {
            return None;
        }
        self.merged.finish_without(&special_alone, special).ok()
    }
}

/// Fails, which makes the caller read the file the slow way.
fn unusual<E: serde::de::Error>() -> E {
    E::custom("unusual")
}

/// The whole file: gives the rest of it as JSON.
struct Document<'f> {
    found: &'f mut Option<TokenizerJson>,
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

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

/// Fields of an object, as JSON.
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

/// The `model` object, and the rest of it as JSON.
struct Model;

impl<'de> DeserializeSeed<'de> for Model {
    type Value = (TokenizerJson, String);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Model {
    type Value = (TokenizerJson, String);

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut rest = Rest::default();
        let mut vocabulary = None;
        let mut n_merges = 0;
        // Merges that come before the vocabulary wait for it.
        let mut waiting: Option<&'de RawValue> = None;
        while let Some(key) = map.next_key_seed(Text)? {
            match &*key {
                "vocab" if vocabulary.is_none() => {
                    vocabulary = Some(map.next_value_seed(Vocabulary)?);
                    rest.add(&key, "{}")?;
                }
                "merges" if n_merges == 0 => {
                    n_merges += 1;
                    match &mut vocabulary {
                        Some(vocabulary) => map.next_value_seed(Merges(&mut vocabulary.merged))?,
                        None => waiting = Some(map.next_value()?),
                    }
                    rest.add(&key, "[]")?;
                }
                "vocab" | "merges" => return Err(unusual()),
                _ => rest.add(&key, map.next_value::<&RawValue>()?.get())?,
            }
        }
        let mut vocabulary = vocabulary.ok_or_else(unusual)?;
        if n_merges == 0 {
            return Err(unusual());
        }
        if let Some(merges) = waiting {
            Merges(&mut vocabulary.merged)
                .deserialize(&mut serde_json::Deserializer::from_str(merges.get()))
                .map_err(A::Error::custom)?;
        }
        Ok((vocabulary, rest.finish()))
    }
}

/// The `vocab` object: spelling -> id.
struct Vocabulary;

impl<'de> DeserializeSeed<'de> for Vocabulary {
    type Value = TokenizerJson;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Vocabulary {
    type Value = TokenizerJson;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tokens = TokenList::default();
        let mut foreign = HashMap::new();
        while let Some(key) = map.next_key_seed(Text)? {
            let id: u32 = map.next_value()?;
            let mut is_known = true;
            tokens.push_with(id, |bytes| is_known = append_spelled(&key, bytes)).map_err(A::Error::custom)?;
            if !is_known {
                tokens.pop();
                if foreign.insert(key.into_owned(), id).is_some() {
                    return Err(unusual());
                }
            }
        }
        let mut ids: Vec<u32> = tokens.ids().iter().chain(foreign.values()).copied().collect();
        ids.sort_unstable();
        if ids.windows(2).any(|two| two[0] == two[1]) {
            return Err(unusual());
        }
        Ok(TokenizerJson { merged: MergedTokens::new(tokens).map_err(A::Error::custom)?, foreign })
    }
}

/// The `merges` array: pairs of spellings, or strings with both.
struct Merges<'m>(&'m mut MergedTokens);

impl<'de> DeserializeSeed<'de> for Merges<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Merges<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let mut joined = Vec::new();
        loop {
            joined.clear();
            let Some(n_left) = array.next_element_seed(Merge(&mut joined))? else { return Ok(()) };
            self.0.merge_joined(&joined, n_left).map_err(A::Error::custom)?;
        }
    }
}

/// One merge: its bytes go to the end of the vector, and the number of those of the left part comes out.
struct Merge<'b>(&'b mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Merge<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Merge<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a pair of tokens")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<usize, E> {
        let (left, right) = text.split_once(' ').ok_or_else(unusual)?;
        let known = append_spelled(left, self.0);
        let n_left = self.0.len();
        // A second space is a character that spells nothing.
        if known && append_spelled(right, self.0) { Ok(n_left) } else { Err(unusual()) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<usize, A::Error> {
        let left = pair.next_element_seed(Text)?.ok_or_else(unusual)?;
        let known = append_spelled(&left, self.0);
        let n_left = self.0.len();
        let right = pair.next_element_seed(Text)?.ok_or_else(unusual)?;
        if !(known && append_spelled(&right, self.0)) || pair.next_element::<IgnoredAny>()?.is_some() {
            return Err(unusual());
        }
        Ok(n_left)
    }
}

/// A string, borrowed from the file where it has no escapes.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests;
