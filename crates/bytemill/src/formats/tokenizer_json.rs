//! Hugging Face's `tokenizer.json`: `model.vocab` and `model.merges` are read here, the rest is returned as JSON.
//!
//! First the parser, a set of `serde` visitors from the document down to the single merge; then what it reads into:
//! [`TokenizerJson`], the tokens and merges of a file of byte-level BPE, and [`CharacterJson`], those of a file of BPE over
//! characters, as SentencePiece makes it.

use crate::bpe::live_merges::last_merge;
use crate::formats::StringArray;
use crate::formats::needed_merges::{NeededMerges, needed_merges};
use crate::pretokenize::shape::END;
use crate::text::byte_characters::append_bytes;
use crate::vocab::{Fallback, MergedTokens, TokenIndex, TokenList, Vocab};
use hashbrown::HashSet;
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
    /// parts. `suffix` is what keys end with that end a word; it may be empty. `None` if they contradict each other.
    fn new<'m>(
        tokens: TokenList,
        foreign: HashMap<String, u32>,
        suffix: &str,
        merges: impl ExactSizeIterator<Item = (&'m str, &'m str)> + Clone,
    ) -> Option<Self>;
}

/// The tokens and merges of a `tokenizer.json`, and the document as JSON with an empty `model.vocab` and an empty
/// `model.merges`.
///
/// Returns `None` if the data are not UTF-8 JSON, if the two fields are missing or not in the usual form, if they
/// contradict each other, and where JSON readers differ: repeated keys or ids, integers written as floats, lone
/// surrogates.
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
pub(super) fn read_fields<'de, A: MapAccess<'de>>(
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
        let (mut entries, mut merges, mut suffix) = (None, None, None);
        let rest = read_fields(map, |key, map| {
            let (is_repeated, empty) = match key {
                "vocab" => (entries.replace(map.next_value_seed(Vocabulary(PhantomData::<C>))?).is_some(), "{}"),
                "merges" => (merges.replace(map.next_value::<Vec<Merge>>()?).is_some(), "[]"),
                "end_of_word_suffix" => {
                    suffix = map.next_value::<Option<Text>>()?;
                    let written = suffix.as_ref().map(|Text(suffix)| suffix);
                    return serde_json::to_string(&written).map(Some).map_err(A::Error::custom);
                }
                _ => return Ok(None),
            };
            if is_repeated { Err(unusual()) } else { Ok(Some(empty.to_owned())) }
        })?;
        let (Some((tokens, foreign)), Some(merges)) = (entries, merges) else { return Err(unusual()) };
        let suffix = suffix.map_or_else(String::new, |Text(suffix)| suffix.into_owned());
        let model = C::new(tokens, foreign, &suffix, merges.iter().map(|Merge(left, right)| (&**left, &**right)));
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
            add_entry::<C>(&mut tokens, &mut foreign, &key, map.next_value()?).ok_or_else(unusual)?;
        }
        Ok((tokens, foreign))
    }
}

/// Adds an entry of a vocabulary. `None` if it is there already, without standing for bytes.
fn add_entry<C: Contents>(
    tokens: &mut TokenList,
    foreign: &mut HashMap<String, u32>,
    key: &str,
    id: u32,
) -> Option<()> {
    let mut is_valid = true;
    tokens.push_with(id, |bytes| is_valid = C::append_token(key, bytes)).ok()?;
    if is_valid {
        return Some(());
    }
    tokens.pop();
    foreign.insert(key.to_owned(), id).is_none().then_some(())
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

// The tokens and merges of a `tokenizer.json` of byte-level BPE.

/// Tokens with the merges of a file in its order, or those that are needed if it `lists_more`. `None` if they contradict the tokens.
fn with_merges<'m>(
    tokens: TokenList,
    merges: impl ExactSizeIterator<Item = (&'m str, &'m str)>,
    lists_more: bool,
    suffix: &str,
) -> Option<MergedTokens> {
    let mut needed = lists_more.then(NeededMerges::default);
    let mut merged = MergedTokens::with_any_bytes(tokens, "id").ok()?;
    if !suffix.is_empty() {
        merged.add_ends(suffix.as_bytes(), END).ok()?;
    }
    let mut joined = Vec::new();
    for (left, right) in merges {
        let n_left = join(left, right, &mut joined)?;
        match &mut needed {
            Some(needed) => needed.add(&mut merged, &joined, n_left)?,
            None => merged.add(&joined, n_left).ok()?,
        }
    }
    if let Some(needed) = &mut needed {
        needed.end_of_token(&merged)?;
    }
    Some(merged)
}

/// The same for merges in any order. `None` if one that is needed comes before those of its parts.
fn with_needed_merges<'m>(
    tokens: TokenList,
    merges: impl ExactSizeIterator<Item = (&'m str, &'m str)>,
) -> Option<MergedTokens> {
    let (mut joined, mut list) = (Vec::new(), TokenList::default());
    for (left, right) in merges {
        let n_left = join(left, right, &mut joined)?;
        list.push(n_left as u32, &joined).ok()?;
    }
    let merges: Vec<(&[u8], &[u8])> = list.iter().map(|(n_left, joined)| joined.split_at(n_left as usize)).collect();
    let mut merged = MergedTokens::new(tokens, "id").ok()?;
    for index in needed_merges(&merges).ok()? {
        let (left, right) = merges[index];
        merged.add(&[left, right].concat(), left.len()).ok()?;
    }
    Some(merged)
}

/// Tokens whose merges are all ways to split each of them into two, in the order of their ids.
struct AllSplits {
    /// Any two neighbours merge whose bytes together are a token.
    merged: MergedTokens,
    /// A merge that texts need has a part whose own merges come later, so that the needed merges have no order.
    needs_later_part: bool,
}

/// Tokens in the order of their ids, if the merges are all ways to split each of them into two, in that order. Only one split of a
/// token ever happens (`formats::ranks`), so merging by ids is the same, also where a part comes after the token.
fn with_all_splits<'m>(
    mut tokens: TokenList,
    mut merges: impl ExactSizeIterator<Item = (&'m str, &'m str)>,
) -> Option<AllSplits> {
    tokens.sort_by_id();
    let mut merged = MergedTokens::new(tokens, "id").ok()?;
    let splits = merged.merge_all_splits().ok()?;
    if splits.len() != merges.len() {
        return None;
    }
    let positions = merged.positions_of_symbols();
    let token = |symbol: u32| merged.tokens().token(positions[symbol as usize]);
    let (mut joined, mut lengths, mut needs_later_part) = (Vec::new(), Vec::new(), false);
    for splits in splits.chunk_by(|one, next| one.2 == next.2) {
        let made = splits[0].2;
        lengths.clear();
        for _ in splits {
            let (left, right) = merges.next()?;
            lengths.push(join(left, right, &mut joined)?);
            if joined != token(made) {
                return None;
            }
        }
        lengths.sort_unstable();
        if !splits.iter().map(|split| token(split.0).len()).eq(lengths.iter().copied()) {
            return None;
        }
        if !needs_later_part && splits.iter().any(|&(left, right, _)| left.max(right) > made) {
            let last = last_merge(merged.pairs(), token(made));
            needs_later_part = last.is_some_and(|(left, right, _)| left.max(right) > made);
        }
    }
    Some(AllSplits { merged, needs_later_part })
}

/// Sets `joined` to the bytes of two keys and returns how many are the first one's.
fn join(left: &str, right: &str, joined: &mut Vec<u8>) -> Option<usize> {
    joined.clear();
    let is_left_valid = append_bytes(left, joined);
    let n_left = joined.len();
    (is_left_valid && append_bytes(right, joined)).then_some(n_left)
}

/// The tokens and merges of a `tokenizer.json` of byte-level BPE.
#[derive(Debug)]
pub struct TokenizerJson {
    merged: MergedTokens,
    /// The merges are all splits of all tokens in the order of their ids, so that the ids are ranks.
    is_ranked: bool,
    n_merges: usize,
    /// Entries of the vocabulary with characters that stand for no byte.
    foreign: HashMap<String, u32>,
}

impl Contents for TokenizerJson {
    fn append_token(key: &str, bytes: &mut Vec<u8>) -> bool {
        append_bytes(key, bytes)
    }

    fn new<'m>(
        tokens: TokenList,
        foreign: HashMap<String, u32>,
        suffix: &str,
        merges: impl ExactSizeIterator<Item = (&'m str, &'m str)> + Clone,
    ) -> Option<Self> {
        let mut ids: Vec<u32> = tokens.ids().iter().chain(foreign.values()).copied().collect();
        ids.sort_unstable();
        if ids.is_empty() || !ids.is_sorted_by(|one, next| one < next) {
            return None;
        }
        let n_merges = merges.len();
        let n_bytes = tokens.iter().filter(|(_, token)| token.len() == 1).count();
        if !suffix.is_empty() || n_merges + n_bytes <= tokens.len() {
            let merged = with_merges(tokens, merges, false, suffix)?;
            return Some(Self { merged, is_ranked: false, n_merges, foreign });
        }
        if let Some(merged) = with_merges(tokens.clone(), merges.clone(), true, suffix) {
            return Some(Self { n_merges: merged.n_merges(), merged, is_ranked: false, foreign });
        }
        let all = with_all_splits(tokens.clone(), merges.clone());
        if all.as_ref().is_none_or(|all| !all.needs_later_part)
            && let Some(merged) = with_needed_merges(tokens, merges)
        {
            return Some(Self { n_merges: merged.n_merges(), merged, is_ranked: false, foreign });
        }
        Some(Self { merged: all?.merged, is_ranked: true, n_merges, foreign })
    }
}

impl TokenizerJson {
    /// The same of an array of tokens by id and one of merges, as GGUF files have them. Empty tokens and those that are `left_out` are no
    /// entries.
    pub fn of_strings(tokens: &StringArray, merges: &StringArray, left_out: &HashSet<u32>) -> Option<Self> {
        let (mut entries, mut foreign) = (TokenList::default(), HashMap::new());
        for (id, key) in (0..).zip(tokens.iter()).filter(|(id, key)| !key.is_empty() && !left_out.contains(id)) {
            add_entry::<Self>(&mut entries, &mut foreign, key, id)?;
        }
        let merges: Vec<_> = merges.iter().map(|merge| merge.split_once(' ')).collect::<Option<_>>()?;
        Self::new(entries, foreign, "", merges.into_iter())
    }

    /// Number of entries of the vocabulary.
    pub fn n_entries(&self) -> usize {
        self.merged.tokens().len() + self.foreign.len()
    }

    /// Number of merges.
    pub fn n_merges(&self) -> usize {
        self.n_merges
    }

    /// The first byte that UTF-8 uses and that is no token.
    pub fn missing_byte(&self) -> Option<u8> {
        self.merged.missing_byte()
    }

    /// The id of an entry of the vocabulary, by its key in the file.
    pub fn id(&self, key: &str) -> Option<u32> {
        match self.index(key) {
            Some(index) => Some(self.merged.tokens().ids()[index]),
            None => self.foreign.get(key).copied(),
        }
    }

    fn index(&self, key: &str) -> Option<usize> {
        let mut token = Vec::new();
        if append_bytes(key, &mut token) { self.merged.position(&token) } else { None }
    }

    /// The vocabulary with these special tokens and [`Vocab::ignore_merges`].
    ///
    /// A special token that the file lists among its tokens is not an ordinary token, unless it is a single byte of UTF-8 or the
    /// result of a merge. Returns `None` if tokens, merges and special tokens contradict each other, if the key of a
    /// special token stands for other bytes that are a merged token, or if the vocabulary has an entry that neither
    /// stands for bytes nor is a special token.
    pub fn into_vocab(self, special: Vec<(String, u32)>, ignore_merges: bool) -> Option<Vocab> {
        if self.is_ranked {
            // Ranks look up whole pre-tokens first.
            let is_listed = special.iter().any(|(text, _)| self.index(text).is_some());
            let is_ranked = ignore_merges && !is_listed && self.foreign.is_empty();
            return if is_ranked { self.merged.finish_all_splits(special).ok() } else { None };
        }
        let mut special_alone = Vec::new();
        let mut n_foreign = 0;
        for (text, _) in &special {
            if let Some(index) = self.index(text) {
                if !self.merged.is_made(index) || self.merged.is_in_no_text(index) {
                    special_alone.push(index);
                } else if self.merged.tokens().token(index) != text.as_bytes() {
                    return None;
                }
            } else if self.foreign.contains_key(text) {
                n_foreign += 1;
            }
        }
        if n_foreign != self.foreign.len() {
            return None;
        }
        Some(self.merged.finish(&special_alone, special).ok()?.with_ignore_merges(ignore_merges))
    }
}

// The tokens and merges of a `tokenizer.json` of BPE over characters.

/// U+2581, which stands for a space in most such files.
const META: &str = "\u{2581}";

/// The tokens and merges of a `tokenizer.json` of BPE over characters.
#[derive(Debug)]
pub struct CharacterJson {
    /// The entries of the vocabulary, as the file writes them.
    entries: TokenList,
    index: TokenIndex,
    /// The positions of the two parts of each merge, and that of its result.
    merges: Vec<[u32; 3]>,
}

impl Contents for CharacterJson {
    fn append_token(key: &str, bytes: &mut Vec<u8>) -> bool {
        bytes.extend_from_slice(key.as_bytes());
        true
    }

    fn new<'m>(
        entries: TokenList,
        _: HashMap<String, u32>,
        suffix: &str,
        merges: impl ExactSizeIterator<Item = (&'m str, &'m str)> + Clone,
    ) -> Option<Self> {
        let mut ids = entries.ids().to_vec();
        ids.sort_unstable();
        if !ids.is_sorted_by(|one, next| one < next) || !suffix.is_empty() {
            return None;
        }
        let index = TokenIndex::new(&entries, "id").ok()?;
        let position = |key: &[u8]| index.get(key, |position| entries.token(position as usize));
        let mut joined = Vec::new();
        let merges = merges.map(|(left, right)| {
            joined.clear();
            joined.extend_from_slice(left.as_bytes());
            joined.extend_from_slice(right.as_bytes());
            Some([position(left.as_bytes())?, position(right.as_bytes())?, position(&joined)?])
        });
        let merges = merges.collect::<Option<_>>()?;
        Some(Self { entries, index, merges })
    }
}

impl CharacterJson {
    /// Number of entries of the vocabulary.
    pub fn n_entries(&self) -> usize {
        self.entries.len()
    }

    /// Number of merges.
    pub fn n_merges(&self) -> usize {
        self.merges.len()
    }

    /// The id of an entry of the vocabulary, by its key in the file.
    pub fn id(&self, key: &str) -> Option<u32> {
        Some(self.entries.ids()[self.position(key)?])
    }

    fn position(&self, key: &str) -> Option<usize> {
        let position = self.index.get(key.as_bytes(), |position| self.entries.token(position as usize));
        position.map(|position| position as usize)
    }

    /// The vocabulary with these special tokens and [`Vocab::ignore_merges`]; `has_meta` says that `▁` stands for a space.
    ///
    /// A special token of several characters that the file lists is not an ordinary token, unless it is the result of a merge.
    /// Returns `None` if tokens, merges and special tokens contradict each other.
    pub fn into_vocab(
        self,
        special: Vec<(String, u32)>,
        ignore_merges: bool,
        has_meta: bool,
        fallback: Fallback,
    ) -> Option<Vocab> {
        let products: HashSet<u32> = self.merges.iter().map(|merge| merge[2]).collect();
        let mut left_out = vec![false; self.entries.len()];
        for (text, _) in &special {
            if let Some(position) = self.position(text).filter(|_| text.chars().nth(1).is_some()) {
                left_out[position] = !products.contains(&(position as u32));
            }
        }
        let mut byte_ids = Vec::new();
        match fallback {
            Fallback::Bytes => {
                for byte in 0..=255_u8 {
                    if let Some(position) = self.position(&format!("<0x{byte:02X}>")) {
                        left_out[position] = true;
                        byte_ids.push((self.entries.ids()[position], [byte]));
                        continue;
                    }
                    // A character that is a token needs no byte.
                    let own = [byte];
                    let character = if byte == b' ' && has_meta { META } else { std::str::from_utf8(&own).ok()? };
                    self.position(character)?;
                }
            }
            Fallback::Nothing => {}
            Fallback::Unknown { id, .. } => {
                // In Hugging Face's library, merges apply to the unknown token too.
                let unknown = self.entries.ids().iter().position(|&other| other == id)? as u32;
                if self.merges.iter().any(|merge| merge.contains(&unknown)) {
                    return None;
                }
            }
        }

        let mut spelled = TokenList::default();
        for (id, key) in self.entries.iter() {
            let key = std::str::from_utf8(key).ok()?;
            let replaced = if has_meta { key.replace(META, " ") } else { key.to_owned() };
            spelled.push(id, replaced.as_bytes()).ok()?;
        }
        let mut merges = Vec::with_capacity(self.merges.len());
        for &merge in &self.merges {
            let [left, right, _] = merge.map(|position| position as usize);
            if merge.iter().any(|&position| left_out[position as usize]) {
                return None;
            }
            merges.push((spelled.token(left), spelled.token(right)));
        }
        let mut tokens = TokenList::default();
        let mut has_character = [false; 256];
        for (_, (id, token)) in left_out.iter().zip(spelled.iter()).filter(|(is_left_out, _)| !**is_left_out) {
            tokens.push(id, token).ok()?;
            if let [byte] = token {
                has_character[usize::from(*byte)] = true;
            }
        }
        // A byte that is also a character has two tokens; texts are encoded with that of the character. Spaces are `▁` in the
        // text, so no text encodes to the byte.
        let mut aliases = Vec::new();
        for (id, byte) in &byte_ids {
            if has_character[usize::from(byte[0])] || has_meta && byte == b" " {
                aliases.push((*id, byte.to_vec()));
            } else {
                tokens.push(*id, byte).ok()?;
            }
        }
        let vocab = Vocab::from_characters(&tokens, aliases, &merges, None, special, fallback).ok()?;
        Some(vocab.with_ignore_merges(ignore_merges))
    }
}

#[cfg(test)]
#[path = "tests/tokenizer_json.rs"]
mod tests;
