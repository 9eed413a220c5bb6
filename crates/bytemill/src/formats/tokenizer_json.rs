//! Hugging Face's `tokenizer.json`: `model.vocab` and `model.merges` are read here, the rest is handed on.

use super::spelling::append_spelled;
use crate::vocab::{Helper, MergeList, MergedTokens, TokenList, Vocab, with_helper};
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
/// None where the data are no JSON in UTF-8, the two are not there or not as such files have them, or they contradict themselves;
/// and where JSON readers differ: a key or an id twice, a number that is not written as a whole one, lone surrogates.
#[must_use]
pub fn read_tokenizer_json(data: &[u8]) -> Option<(TokenizerJson, String)> {
    with_helper(|helper| {
        // Here, so that the helper is awake by the time there is something to do.
        let text = simdutf8::basic::from_utf8(data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data)).ok()?;
        let mut found = None;
        let mut reader = serde_json::Deserializer::from_str(text);
        let rest = reader.deserialize_map(Document { helper, found: &mut found }).ok()?;
        reader.end().ok()?;
        Some((found?, rest))
    })
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
struct Document<'f, 'de> {
    helper: &'f Helper<'de>,
    found: &'f mut Option<TokenizerJson>,
}

impl<'de> Visitor<'de> for Document<'_, 'de> {
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
                let (model, model_rest) = map.next_value_seed(Model { helper: self.helper })?;
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
struct Model<'f, 'de> {
    helper: &'f Helper<'de>,
}

impl<'de> DeserializeSeed<'de> for Model<'_, 'de> {
    type Value = (TokenizerJson, String);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Model<'_, 'de> {
    type Value = (TokenizerJson, String);

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        let vocab = fields.up_to_vocab(&mut map)?.ok_or_else(unusual)?;
        // The vocabulary is read beside the merges, which as a rule come after it.
        let vocabulary = self.helper.ask(|| read_vocabulary(vocab.get()));
        if fields.up_to_vocab(&mut map)?.is_some() {
            return Err(unusual());
        }
        let (Some((merged, foreign)), Some(merges)) = (vocabulary.wait(), fields.merges) else { return Err(unusual()) };
        let merged = merged.with_merges(&merges, self.helper).map_err(A::Error::custom)?;
        Ok((TokenizerJson { merged, foreign }, fields.rest.finish()))
    }
}

/// What has been read of the model.
#[derive(Default)]
struct Fields {
    rest: Rest,
    merges: Option<MergeList>,
}

impl Fields {
    /// Reads until a vocabulary comes, which itself is not read; None where none does.
    fn up_to_vocab<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> Result<Option<&'de RawValue>, A::Error> {
        while let Some(key) = map.next_key_seed(Text)? {
            match &*key {
                "vocab" => {
                    self.rest.add(&key, "{}")?;
                    return map.next_value().map(Some);
                }
                "merges" if self.merges.is_none() => {
                    self.rest.add(&key, "[]")?;
                    self.merges = Some(map.next_value_seed(Merges)?);
                }
                "merges" => return Err(unusual()),
                _ => self.rest.add(&key, map.next_value::<&RawValue>()?.get())?,
            }
        }
        Ok(None)
    }
}

/// The tokens of a `vocab` object, and its entries that spell no bytes.
fn read_vocabulary(json: &str) -> Option<(MergedTokens, HashMap<String, u32>)> {
    let (tokens, foreign) = serde_json::Deserializer::from_str(json).deserialize_map(Vocabulary).ok()?;
    let is_ascending = foreign.is_empty() && tokens.ids().is_sorted_by(|one, other| one < other);
    if !is_ascending {
        let mut ids: Vec<u32> = tokens.ids().iter().chain(foreign.values()).copied().collect();
        ids.sort_unstable();
        if ids.windows(2).any(|two| two[0] == two[1]) {
            return None;
        }
    }
    Some((MergedTokens::new(tokens).ok()?, foreign))
}

/// The `vocab` object: spelling -> id.
struct Vocabulary;

impl<'de> Visitor<'de> for Vocabulary {
    type Value = (TokenList, HashMap<String, u32>);

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
        Ok((tokens, foreign))
    }
}

/// The `merges` array: pairs of spellings, or strings with both.
struct Merges;

impl<'de> DeserializeSeed<'de> for Merges {
    type Value = MergeList;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<MergeList, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Merges {
    type Value = MergeList;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<MergeList, A::Error> {
        let mut merges = MergeList::default();
        while array.next_element_seed(Merge(&mut merges))?.is_some() {}
        Ok(merges)
    }
}

/// One merge, which goes to the end of the list.
struct Merge<'m>(&'m mut MergeList);

impl Merge<'_> {
    fn add<E: serde::de::Error>(self, left: &str, right: &str) -> Result<(), E> {
        let known = self.0.push_with(|bytes| append_spelled(left, bytes), |bytes| append_spelled(right, bytes));
        if known { Ok(()) } else { Err(unusual()) }
    }
}

impl<'de> DeserializeSeed<'de> for Merge<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Merge<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a pair of tokens")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        // A second space is a character that spells nothing.
        let (left, right) = text.split_once(' ').ok_or_else(unusual)?;
        self.add(left, right)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<(), A::Error> {
        let left = pair.next_element_seed(Text)?.ok_or_else(unusual)?;
        let right = pair.next_element_seed(Text)?.ok_or_else(unusual)?;
        if pair.next_element::<IgnoredAny>()?.is_some() {
            return Err(unusual());
        }
        self.add(&left, &right)
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
