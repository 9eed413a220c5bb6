use super::*;
use crate::encode::{Allowed, Encoder, no_interrupt};
use crate::pretokenize::Pattern;
use crate::vocab::TokenList;
use proptest::prelude::*;

type Parts = Vec<(Vec<u8>, Vec<u8>)>;

/// Byte tokens, a few merges, a token that no merge makes, and special tokens.
fn vocab(merges: &[(&str, &str)], ignore_merges: bool) -> Vocab {
    let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255u8).map(|byte| (u32::from(byte ^ 0x55), vec![byte])).collect();
    let joined = merges.iter().map(|(left, right)| [left.as_bytes(), right.as_bytes()].concat());
    tokens.extend((300..).zip(joined));
    tokens.push((290, b" odd".to_vec()));
    let merges: Parts =
        merges.iter().map(|(left, right)| (left.as_bytes().to_vec(), right.as_bytes().to_vec())).collect();
    let special = vec![("<end>".to_owned(), 1000), (" odd".to_owned(), 290)];
    Vocab::from_merges(tokens, &merges, special).unwrap().with_ignore_merges(ignore_merges)
}

const MERGES: [(&str, &str); 6] = [("l", "o"), ("lo", "w"), (" ", "low"), ("e", "r"), ("l", "w"), (" low", "er")];

fn block(vocab: &Vocab, rest: &str) -> Vec<u8> {
    Encoder::new(vocab.clone(), Pattern::GPT2).unwrap().compiled(rest, 17, 18)
}

fn ids(vocab: &Vocab, text: &str) -> Vec<u32> {
    let encoder = Encoder::new(vocab.clone(), Pattern::GPT2).unwrap();
    let mut ids = Vec::new();
    encoder.encode(text, Allowed::All, &mut ids, &no_interrupt).unwrap();
    ids
}

fn same(one: &Vocab, other: &Vocab) {
    assert_eq!(one.bytes, other.bytes);
    assert_eq!(one.starts, other.starts);
    assert_eq!(one.special, other.special);
    assert_eq!(one.merges, other.merges);
    assert_eq!(one.symbol_ids, other.symbol_ids);
    assert_eq!(one.offset_from, other.offset_from);
    assert_eq!((one.ranked, one.ignore_merges), (other.ranked, other.ignore_merges));
    for (token, id) in one.tokens() {
        assert_eq!(other.id(token), one.id(token), "{id}");
    }
    for left in 0..one.symbol_ids.len() as u32 {
        for right in 0..one.symbol_ids.len() as u32 {
            assert_eq!(one.pairs().get(left, right), other.pairs().get(left, right));
        }
    }
}

#[test]
fn a_vocabulary_is_read_back_as_it_was() {
    let bytes: Vec<u8> = (0..=255).collect();
    let longer = [(256, "ab"), (257, "bc"), (258, "abc"), (259, "zzz")];
    let tokens = (0..).zip(bytes.chunks(1)).chain(longer.map(|(id, token)| (id, token.as_bytes())));
    let tokens = TokenList::collect(tokens).unwrap();
    let ranked = Vocab::from_ranked(tokens, vec![("<end>".to_owned(), 500)]).unwrap();
    for vocab in [vocab(&MERGES, false), vocab(&MERGES, true), ranked] {
        let block = block(&vocab, "{\"a\": 1}");
        let read = CompiledVocab::read(&block).unwrap();
        assert_eq!((read.rest.as_str(), read.n_entries, read.n_merges), ("{\"a\": 1}", 17, 18));
        same(&vocab, &read.vocab);
        let text = " lower low odd abc zzz<end> lowlow\n";
        assert_eq!(ids(&read.vocab, text), ids(&vocab, text));
        // Writing what was read gives the same block but for the order of the index.
        assert_eq!(self::block(&read.vocab, "{\"a\": 1}").len(), block.len());
    }
}

/// Characters that are tokens, one that is not but begins like one, and what stands for unknown characters.
fn of_characters(fallback: Fallback) -> Vocab {
    let pieces = [" ", "a", "語", "日", "é", "語日", " a"];
    let mut tokens = TokenList::default();
    for (piece, id) in pieces.iter().zip(300..) {
        tokens.push(id, piece.as_bytes()).unwrap();
    }
    let mut aliases = Vec::new();
    if fallback == Fallback::Bytes {
        for byte in 0..=255_u8 {
            let is_character = b" a".contains(&byte);
            if is_character {
                aliases.push((u32::from(byte), vec![byte]));
            } else {
                tokens.push(u32::from(byte), &[byte]).unwrap();
            }
        }
    }
    let merges: [(&[u8], &[u8]); 2] = [("語".as_bytes(), "日".as_bytes()), (b" ", b"a")];
    Vocab::from_characters(&tokens, aliases, &merges, None, vec![("<s>".to_owned(), 400)], fallback).unwrap()
}

#[test]
fn a_vocabulary_of_characters_is_read_back_as_it_was() {
    for fallback in
        [Fallback::Bytes, Fallback::Unknown { id: 400, fused: false }, Fallback::Unknown { id: 400, fused: true }]
    {
        let vocab = of_characters(fallback);
        let block = block(&vocab, "{}");
        let read = CompiledVocab::read(&block).unwrap();
        same(&vocab, &read.vocab);
        assert_eq!(read.vocab.leftovers().unwrap().fallback(), fallback);
        let text = "語日 a日語誠é<s>èè😀 aa";
        assert_eq!(ids(&read.vocab, text), ids(&vocab, text));
        for end in 0..block.len() {
            assert!(CompiledVocab::read(&block[..end]).is_none(), "{end}");
        }
    }
}

/// A block with this word at `at` and the checksum that belongs to it.
fn with_word(mut block: Vec<u8>, at: prop::sample::Index, word: u32) -> Vec<u8> {
    let n_bytes = block.len() - 8;
    let at = MAGIC.len() + at.index(n_bytes - MAGIC.len() - 4);
    block[at..at + 4].copy_from_slice(&word.to_le_bytes());
    let checksum = xxh3_64(&block[..n_bytes]);
    block[n_bytes..].copy_from_slice(&checksum.to_le_bytes());
    block
}

proptest! {
    #[test]
    fn damaged_blocks_are_refused(at in any::<prop::sample::Index>(), change in 1u8..=255, end in any::<prop::sample::Index>()) {
        let block = self::block(&vocab(&MERGES, true), "{}");
        let mut changed = block.clone();
        changed[at.index(block.len())] ^= change;
        prop_assert!(CompiledVocab::read(&changed).is_none());
        prop_assert!(CompiledVocab::read(&block[..end.index(block.len())]).is_none());
    }

    /// A block with a right checksum and wrong content.
    #[test]
    fn indices_out_of_range_are_refused_or_harmless(
        at in any::<prop::sample::Index>(),
        word in prop_oneof![any::<u32>(), 0_u32..600, FIRST_LEFTOVER..FIRST_LEFTOVER + 300],
        is_of_characters in any::<bool>(),
    ) {
        let vocab = if is_of_characters { of_characters(Fallback::Bytes) } else { vocab(&MERGES, true) };
        if let Some(read) = CompiledVocab::read(&with_word(block(&vocab, "{}"), at, word)) {
            ids(&read.vocab, " lower low odd abc<end> lowlow 語日 a日語誠é<s>èè😀\n");
        }
    }
}
