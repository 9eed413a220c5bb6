//! A vocabulary as one block of bytes, from which it is read back without computing anything again but the index of its tokens.
//!
//! The block is for a cache, not for exchange: its format changes with the tables. It ends with a checksum, and what indexes into a
//! table is checked, so that damaged blocks are refused.

use super::leftovers::{FIRST_LEFTOVER, Fallback, Leftover, Leftovers};
use super::merged::NO_ID;
use super::pair_table::PairTable;
use super::tokens::TokenIndex;
use super::vocabulary::{Vocab, offset_from};
use crate::text::byte_characters::append_bytes;
use std::collections::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// The format; goes up with every change of it or of the tables.
const MAGIC: &[u8; 16] = b"bytemill vocab 2";

/// A vocabulary, and the rest of the file that it was read from.
#[derive(Clone, Debug)]
pub struct CompiledVocab {
    /// The vocabulary.
    pub vocab: Vocab,
    /// The file as JSON without tokens and merges.
    pub rest: String,
    /// How many tokens the file lists.
    pub n_entries: usize,
    /// How many merges it lists.
    pub n_merges: usize,
}

impl CompiledVocab {
    /// The id of an entry of the vocabulary, by its key in the file.
    pub fn id(&self, key: &str) -> Option<u32> {
        let mut token = Vec::new();
        let id = if append_bytes(key, &mut token) { self.vocab.id(&token) } else { None };
        id.or_else(|| self.vocab.special().iter().find(|(text, _)| text == key).map(|(_, id)| *id))
    }

    /// The block. `unreachable` are the ids of the tokens of several bytes that no merges lead to, where whole pre-tokens are looked
    /// up.
    pub(crate) fn write(vocab: &Vocab, unreachable: &[u32], rest: &str, n_entries: usize, n_merges: usize) -> Vec<u8> {
        let (grid, slots) = vocab.pairs.tables();
        let mut writer = Writer(MAGIC.to_vec());
        writer.number(n_entries);
        writer.number(n_merges);
        writer.number(usize::from(vocab.ranked) | usize::from(vocab.ignore_merges) << 1);
        writer.bytes(rest.as_bytes());
        writer.number(vocab.special.len());
        for (text, id) in &vocab.special {
            writer.bytes(text.as_bytes());
            writer.number(*id as usize);
        }
        writer.bytes(&vocab.bytes);
        writer.words(&vocab.starts);
        writer.words(&vocab.index.numbers().collect::<Vec<u32>>());
        writer.words(&vocab.merges.iter().flat_map(|&(left, right)| [left, right]).collect::<Vec<u32>>());
        writer.words(&vocab.symbol_ids);
        writer.words(unreachable);
        writer.words(grid);
        writer.words(&slots.iter().flat_map(|&slot| [slot as u32, (slot >> 32) as u32]).collect::<Vec<u32>>());
        writer.leftovers(vocab.leftovers());
        let checksum = xxh3_64(&writer.0);
        writer.0.extend_from_slice(&checksum.to_le_bytes());
        writer.0
    }

    /// The vocabulary of a block; `None` if the block is of another format or damaged.
    pub fn read(block: &[u8]) -> Option<Self> {
        let (content, checksum) = block.split_last_chunk()?;
        if !content.starts_with(MAGIC) || xxh3_64(content) != u64::from_le_bytes(*checksum) {
            return None;
        }
        let mut reader = Reader(&content[MAGIC.len()..]);
        let (n_entries, n_merges, flags) = (reader.number()?, reader.number()?, reader.number()?);
        let rest = reader.text()?;
        let n_special = reader.number()?;
        let special: Vec<(String, u32)> = (0..n_special)
            .map(|_| Some((reader.text()?, u32::try_from(reader.number()?).ok()?)))
            .collect::<Option<_>>()?;
        let bytes = reader.bytes()?.to_vec();
        let [starts, ids, merges, symbol_ids, unreachable, grid, slots] = [(); 7].map(|()| reader.words());
        let (starts, ids, symbol_ids, unreachable) = (starts?, ids?, symbol_ids?, unreachable?);
        let merges: Vec<(u32, u32)> = merges?.as_chunks().0.iter().map(|&[left, right]| (left, right)).collect();
        let slots = slots?.as_chunks().0.iter().map(|&[low, high]| u64::from(high) << 32 | u64::from(low)).collect();

        let n_ids = starts.len().checked_sub(1)?;
        let leftovers = reader.leftovers()?;
        let n_leftovers = leftovers.as_ref().map_or(0, |leftovers| leftovers.symbols.len());
        let is_id = |id: u32| (id as usize) < n_ids;
        let are_ids = |ids: &[u32]| ids.iter().all(|&id| is_id(id));
        let is_symbol_id = |id: u32| match id.checked_sub(FIRST_LEFTOVER) {
            _ if id == NO_ID => true,
            Some(index) if leftovers.is_some() => (index as usize) < n_leftovers,
            _ => is_id(id),
        };
        let are_leftovers = leftovers.iter().all(|leftovers| {
            let is_known = !matches!(leftovers.fallback, Fallback::Unknown { id, .. } if !is_id(id));
            is_known && leftovers.symbols.iter().all(|symbol| are_ids(&symbol.ids))
        });
        let n_symbols = symbol_ids.len();
        let are_symbols = merges.iter().all(|&(left, right)| (left.max(right) as usize) < n_symbols);
        let is_whole = reader.0.is_empty()
            && starts.is_sorted()
            && starts.last().is_some_and(|&end| end as usize == bytes.len())
            && [&ids, &unreachable].into_iter().all(|ids| are_ids(ids))
            && symbol_ids.iter().all(|&id| is_symbol_id(id))
            && are_leftovers
            && n_symbols >= 256
            && are_symbols;
        if !is_whole {
            return None;
        }
        let pairs = PairTable::of_tables(grid?, slots, n_symbols)?;
        let token = |id: u32| &bytes[starts[id as usize] as usize..starts[id as usize + 1] as usize];
        let index = TokenIndex::of_numbers(&ids, token);
        let vocab = Vocab {
            index,
            bytes,
            starts,
            special,
            normalized: HashMap::new(),
            merges,
            offset_from: offset_from(&symbol_ids),
            symbol_ids,
            pairs,
            ranked: flags & 1 == 1,
            ignore_merges: flags & 2 == 2,
            leftovers: leftovers.map(Arc::new),
            unreachable: (flags & 2 == 2).then(|| unreachable.into()),
        };
        Some(Self { vocab, rest, n_entries, n_merges })
    }
}

/// Numbers are little-endian; anything of variable length is preceded by its length.
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: usize) {
        self.0.extend_from_slice(&(number as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn words(&mut self, words: &[u32]) {
        self.number(words.len());
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    /// What unknown characters become: 0 if tokens are bytes, 1 for [`Fallback::Bytes`], 2 and 3 for [`Fallback::Unknown`],
    /// 4 for [`Fallback::Nothing`]. The
    /// symbols follow.
    fn leftovers(&mut self, leftovers: Option<&Leftovers>) {
        let Some(Leftovers { fallback, symbols }) = leftovers else { return self.number(0) };
        match fallback {
            Fallback::Bytes => self.number(1),
            Fallback::Nothing => self.number(4),
            Fallback::Unknown { id, fused } => {
                self.number(2 + usize::from(*fused));
                self.number(*id as usize);
            }
        }
        self.number(symbols.len());
        for symbol in symbols {
            self.bytes(&symbol.bytes);
            self.words(&symbol.ids);
        }
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, n_bytes: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(n_bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.take(8)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let n_bytes = self.number()?;
        self.take(n_bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn words(&mut self) -> Option<Vec<u32>> {
        let n_words = self.number()?;
        let bytes = self.take(n_words.checked_mul(4)?)?;
        Some(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
    }

    /// See [`Writer::leftovers`]; the outer `None` for a block that ends inside.
    fn leftovers(&mut self) -> Option<Option<Leftovers>> {
        let fallback = match self.number()? {
            0 => return Some(None),
            1 => Fallback::Bytes,
            4 => Fallback::Nothing,
            kind @ (2 | 3) => Fallback::Unknown { id: u32::try_from(self.number()?).ok()?, fused: kind == 3 },
            _ => return None,
        };
        let n_symbols = self.number()?;
        let symbols = (0..n_symbols).map(|_| {
            let (bytes, ids) = (self.bytes()?.into(), self.words()?.into());
            Some(Leftover { bytes, ids })
        });
        let symbols = symbols.collect::<Option<_>>()?;
        Some(Some(Leftovers { fallback, symbols }))
    }
}

#[cfg(test)]
#[path = "tests/compiled.rs"]
mod tests;
