//! Encoding: text to ids.

mod canonical;
mod exchange;
mod misses;
mod session;
mod spans;
mod unstable;
mod workspace;

use crate::bpe::Merger;
use crate::error::{Error, Result};
use crate::lazy::Lazy;
use crate::nfc::normalize;
use crate::pairs::{PairTable, PerfectPairs};
use crate::pretokenize::Pattern;
pub use crate::pulse::{Pulse, no_pulse};
use crate::seams::Seams;
use crate::special::{Rules, SpecialTokens};
use crate::vocab::{SortedTokens, Tables, Vocab};
use crate::words::Words;
pub use session::Session;
use std::collections::HashMap;
use std::sync::OnceLock;
pub use unstable::Unstable;
use workspace::{Workspace, Workspaces};

/// An id as it is written out: `u16` where all ids of a vocabulary fit, else `u32`.
pub trait Id: Copy + Default + Send + 'static {
    /// The id in this width; the caller has checked that it fits.
    fn narrow(id: u32) -> Self;
}

impl Id for u16 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "used for vocabularies whose ids all fit")]
    fn narrow(id: u32) -> Self {
        id as Self
    }
}

impl Id for u32 {
    #[inline]
    fn narrow(id: u32) -> Self {
        id
    }
}

/// Which special tokens of the vocabulary a text may hold.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'s> {
    /// All of them are recognised.
    All,
    /// None is recognised: they are plain text.
    None,
    /// None may stand in the text: it is an error if one does.
    Refused,
    /// Those of this set are recognised, the others are plain text.
    These(&'s SpecialTokens),
}

/// Ids that wait for those among them that are not known yet.
const MOST_WAITING: usize = 1 << 15;

/// Bytes of text between two questions to the caller whether to go on.
const PULSE_BYTES: usize = 1 << 20;

/// Pre-tokens of more bytes than this are written out while they are merged.
const HUGE: usize = 1 << 16;

/// A vocabulary ready to encode.
pub struct Encoder {
    vocab: Vocab,
    pattern: Pattern,
    special: SpecialTokens,
    /// What is looked for where no special tokens are recognised.
    none: SpecialTokens,
    pairs: PairTable,
    perfect: PerfectPairs,
    words: Words,
    merger: Merger,
    /// Made when the first long pre-token comes that may have some.
    seams: Lazy<Seams>,
    /// Made when tokens are first asked for in the order of their bytes.
    sorted: OnceLock<SortedTokens>,
    workspaces: Workspaces,
}

impl Encoder {
    /// # Errors
    /// [`Error::Invalid`] where the special tokens contradict each other.
    pub fn new(mut vocab: Vocab, pattern: Pattern) -> Result<Self> {
        let special = SpecialTokens::new(vocab.special().to_vec())?;
        let Tables { pairs, perfect, words } = vocab.take_tables()?;
        let encoder = Self {
            vocab,
            pattern,
            special,
            none: SpecialTokens::default(),
            pairs,
            perfect,
            words,
            merger: Merger::default(),
            seams: Lazy::default(),
            sorted: OnceLock::new(),
            workspaces: Workspaces::default(),
        };
        // The first workspace is made here, so that the first text does not wait for it.
        encoder.workspaces.put_back(encoder.workspaces.take());
        Ok(encoder)
    }

    /// The same with rules for some special tokens, by their text, and with texts brought into NFC or not.
    ///
    /// # Errors
    /// [`Error::Invalid`] where one is no special token.
    pub fn with_rules(mut self, rules: &[(String, Rules)], nfc: bool) -> Result<Self> {
        let tokens = self.special.tokens().to_vec();
        let mut rule_of = vec![Rules::default(); tokens.len()];
        let place_of: HashMap<&str, usize> = tokens.iter().map(|(token, _)| token.as_str()).zip(0..).collect();
        for (text, rule) in rules {
            let place = place_of.get(text.as_str()).copied();
            let place = place.ok_or_else(|| Error::Invalid(format!("{text:?} has rules but is no special token")))?;
            rule_of[place] = *rule;
        }
        self.special = SpecialTokens::with_rules(tokens, rule_of)?.with_nfc(nfc);
        self.none = self.none.with_nfc(nfc);
        Ok(self)
    }

    /// The vocabulary.
    #[must_use]
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The pattern.
    #[must_use]
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The special tokens.
    #[must_use]
    pub fn special(&self) -> &SpecialTokens {
        &self.special
    }

    /// No special tokens, for where none is recognised.
    #[must_use]
    pub fn none(&self) -> &SpecialTokens {
        &self.none
    }

    /// Which symbol a pair of symbols becomes.
    #[must_use]
    pub fn pairs(&self) -> &PairTable {
        &self.pairs
    }

    /// The ordinary tokens in the order of their bytes.
    #[must_use]
    pub fn sorted_tokens(&self) -> &SortedTokens {
        self.sorted.get_or_init(|| SortedTokens::new(&self.vocab))
    }

    /// Appends the ids of `text` to `out`.
    ///
    /// # Errors
    /// [`Error::SpecialToken`] with [`Allowed::Refused`], [`Error::Pattern`] where a custom pattern fails, and what
    /// `pulse` gives. What `out` holds then is undefined.
    pub fn encode<T: Id>(&self, text: &str, allowed: Allowed, out: &mut Vec<T>, pulse: Pulse) -> Result<()> {
        self.session(|session| session.encode(text, allowed, out, pulse))
    }

    /// Whether memory for results may take large pages beside the tables of what was seen.
    pub(crate) fn tables_have_grown(&self) -> bool {
        self.workspaces.have_grown()
    }

    /// # Errors
    /// [`Error::SpecialToken`] where a special token stands in `text`.
    pub fn refuse_special(&self, text: &str) -> Result<()> {
        let found = |text: &str| match self.special.find(text).next() {
            Some(found) => {
                Err(Error::SpecialToken { token: self.special.tokens()[found.index].0.clone(), offset: found.start })
            }
            None => Ok(()),
        };
        found(text)?;
        // A token may also stand there only once the text is normalized.
        if self.special.nfc() { found(&normalize(text, &no_pulse)?) } else { Ok(()) }
    }

    /// Appends the ids of bytes that may not be UTF-8, without special tokens: what is malformed is a pre-token.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_bytes(&self, bytes: &[u8], out: &mut Vec<u32>, pulse: Pulse) -> Result<()> {
        self.with_workspace(|workspace| {
            bytes.utf8_chunks().try_for_each(|chunk| {
                self.encode_segment(workspace, chunk.valid(), out, pulse)?;
                self.encode_pretoken(chunk.invalid(), &mut workspace.symbols, out, pulse)?;
                tick(&mut workspace.since_pulse, 1, pulse)
            })
        })
    }

    /// Appends the ids of a text without special tokens.
    ///
    /// In blocks of pre-tokens: split, then hash and ask for the entries of the cache, then look up, so that the answers
    /// are on their way while there is other work. What the cache does not know waits until there is enough of it to be
    /// found out together.
    fn encode_segment<T: Id>(
        &self,
        workspace: &mut Workspace,
        text: &str,
        out: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        let bytes = text.as_bytes();
        workspace.n_before = out.len();
        let mut splits = self.pattern.splits(text);
        let mut at = 0;
        while splits.fill(&mut workspace.ends)? {
            let done = at;
            let start = splits.block_start(at);
            at = workspace.ends.last().copied().unwrap_or(start);
            workspace.hash(bytes, start, |pretoken, cut| self.cut(pretoken, cut));
            while let Some(huge) = workspace.look_up(bytes) {
                self.resolve(workspace, bytes, out, pulse)?;
                if out.is_empty() && out.capacity() < huge.len() {
                    // It may be one that has an id for each byte. To move a result that has outgrown its place takes as long as
                    // to write it; room that stays empty takes nothing.
                    *out = Vec::with_capacity(huge.len());
                }
                self.encode_pretoken(&bytes[huge], &mut workspace.symbols, out, pulse)?;
            }
            if workspace.misses.are_many() || workspace.ids.len() > MOST_WAITING {
                self.resolve(workspace, bytes, out, pulse)?;
            }
            tick(&mut workspace.since_pulse, at - done, pulse)?;
        }
        self.resolve(workspace, bytes, out, pulse)
    }

    /// Calls `cut` with every place at which a long pre-token may be cut: see [`Seams`].
    fn cut(&self, pretoken: &[u8], cut: &mut dyn FnMut(usize)) {
        // A token that no merges make, but that is looked up as a whole pre-token, must not be found in a piece of one.
        if self.vocab.whole_pretoken_lookup() || pretoken.is_ascii() {
            return;
        }
        if let Some(seams) = self.seams.get_or_make(|| Seams::new(self.vocab.tokens().map(|(token, _)| token))) {
            seams.for_each(pretoken, cut);
        }
    }

    /// Appends the ids of one pre-token, with no table asked for it. What was in `symbols` is lost.
    fn encode_pretoken<T: Id>(
        &self,
        pretoken: &[u8],
        symbols: &mut Vec<u32>,
        out: &mut Vec<T>,
        pulse: Pulse,
    ) -> Result<()> {
        if self.vocab.whole_pretoken_lookup()
            && let Some(id) = self.vocab.id(pretoken)
        {
            out.push(T::narrow(id));
            return Ok(());
        }
        let id = |symbol: u32| T::narrow(self.vocab.symbol_id(symbol));
        self.merger.merge_into(&self.vocab, &self.pairs, pretoken, symbols, out, id, pulse)
    }
}

/// Counts `n_bytes` of work done, and asks the caller whether to go on when there is enough of it. What is counted goes on
/// from text to text: one of many short segments must be interruptible too.
#[inline]
fn tick(since_pulse: &mut usize, n_bytes: usize, pulse: Pulse) -> Result<()> {
    *since_pulse += n_bytes;
    if *since_pulse >= PULSE_BYTES {
        *since_pulse = 0;
        pulse()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpe;
    use crate::count::Counts;
    use crate::merges::{Ties, learn};
    use crate::special::Segment;
    use proptest::prelude::*;

    /// A tokenizer with some dozens of merges, learnt from the words themselves.
    fn encoder(words: &[&str], n_merges: usize, pattern: &str) -> Encoder {
        let counts = Counts::from_items(words.iter().map(|word| (word.as_bytes().to_vec(), 1))).unwrap();
        let learnt = learn(&counts, n_merges, Ties::Bytes, 1, 1, |_| Ok(())).unwrap();
        let mut tokens: Vec<(u32, Vec<u8>)> = (0..=255).map(|byte| (u32::from(byte), vec![byte])).collect();
        let mut merges = Vec::new();
        for (merge, id) in learnt.iter().zip(256..) {
            let part = |symbol: u32| tokens[symbol as usize].1.clone();
            let (left, right) = (part(merge.left), part(merge.right));
            tokens.push((id, [left.clone(), right.clone()].concat()));
            merges.push((left, right));
        }
        let special = vec![("<s>".to_owned(), 1000), ("<s><e>".to_owned(), 1001)];
        Encoder::new(Vocab::from_merges(tokens, &merges, special).unwrap(), Pattern::new(Some(pattern)).unwrap())
            .unwrap()
    }

    /// Pre-token by pre-token, each merged afresh: no blocks, no tables of what was seen.
    fn encode_plainly(encoder: &Encoder, text: &str, special: &SpecialTokens) -> Vec<u32> {
        let mut ids = Vec::new();
        special
            .segments(text, &no_pulse, |segment| match segment {
                Segment::Special(id) => {
                    ids.push(id);
                    Ok(())
                }
                Segment::Text(text) => encoder.pattern.for_each(text, |pretoken| {
                    let mut symbols = Vec::new();
                    bpe::merge(&encoder.pairs, pretoken.as_bytes(), &mut symbols, &no_pulse).unwrap();
                    ids.extend(symbols.iter().map(|&symbol| encoder.vocab.symbol_ids()[symbol as usize]));
                }),
            })
            .unwrap();
        ids
    }

    #[test]
    fn it_is_known_when_the_tables_have_grown() {
        let encoder = encoder(&PIECES, 20, "gpt2");
        // Four bytes are four ids at most, which the table of short pre-tokens takes.
        let letters: Vec<char> = ('a'..='z').chain('A'..='Z').collect();
        let word = |number: usize| [' ', letters[number % 52], letters[number / 52 % 52], letters[number / 2_704 % 52]];
        let encode = |n_words: usize| {
            let text: String = (0..n_words).flat_map(word).collect();
            encoder.encode::<u32>(&text, Allowed::None, &mut Vec::new(), &no_pulse).unwrap();
        };
        encode(1_000);
        assert!(!encoder.tables_have_grown());
        encode(140_000);
        assert!(encoder.tables_have_grown());
    }

    const PIECES: [&str; 12] =
        ["low", " lower", " newest", " widest", "s", "<s>", "<s><e>", "\n\n", " 123", "é一ü", "zzzzzzzz", "'s"];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn encoding_equals_merging_each_pretoken_afresh(
            texts in prop::collection::vec(
                prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..80).prop_map(|pieces| pieces.concat()),
                1..6,
            ),
            n_merges in 0usize..60,
            pattern in prop::sample::select(vec!["gpt2", "cl100k", "o200k", r"\S+"]),
            n_threads in 1usize..4,
        ) {
            let encoder = encoder(&PIECES, n_merges, pattern);
            // Twice, so that the second time finds what the first has left behind.
            for _ in 0..2 {
                for text in &texts {
                    let expected = encode_plainly(&encoder, text, encoder.special());
                    let ids: Vec<u16> = encoder.encode_parallel(text, Allowed::All, n_threads, &no_pulse).unwrap();
                    prop_assert_eq!(ids.iter().map(|&id| u32::from(id)).collect::<Vec<_>>(), expected);
                    let mut plain: Vec<u32> = Vec::new();
                    encoder.encode(text, Allowed::None, &mut plain, &no_pulse).unwrap();
                    prop_assert_eq!(plain, encode_plainly(&encoder, text, &SpecialTokens::default()));
                }
            }
        }

        /// Questions come in greater numbers than are asked at once, again before they are answered, and more than a line of the
        /// cache holds.
        #[test]
        fn many_new_words_that_come_again_equal_each_merged_afresh(
            seed in any::<u64>(),
            n_words in 1u64..4_000,
            n_different in 1u64..2_000,
            n_merges in 0usize..60,
        ) {
            let encoder = encoder(&PIECES, n_merges, "gpt2");
            let text = words(seed, n_words, n_different);
            let expected = encode_plainly(&encoder, &text, &SpecialTokens::default());
            for _ in 0..2 {
                let mut ids: Vec<u16> = Vec::new();
                encoder.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
                prop_assert!(ids.into_iter().map(u32::from).eq(expected.iter().copied()));
            }
        }

        #[test]
        fn threads_that_tell_each_other_what_is_new_find_the_same(
            seed in any::<u64>(),
            n_words in 1u64..10_000,
            n_different in 1u64..8_000,
            n_threads in 2usize..5,
        ) {
            let encoder = encoder(&PIECES, 30, "gpt2");
            let text = words(seed, n_words, n_different);
            let texts: Vec<&str> = text.split_inclusive("we").collect();
            let expected: Vec<Vec<u32>> =
                texts.iter().map(|text| encode_plainly(&encoder, text, &SpecialTokens::default())).collect();
            for _ in 0..2 {
                let all = encoder.encode_pieces::<u32>(&texts, Allowed::None, n_threads, 4_000, &no_pulse).unwrap();
                prop_assert_eq!(&all.ids, &expected.concat());
                let n_ids = [0].iter().chain(&all.ends).zip(&all.ends).map(|(start, end)| end - start);
                prop_assert!(n_ids.eq(expected.iter().map(Vec::len)));
            }
        }

        #[test]
        fn words_of_every_length_keep_all_their_bytes(letters in prop::collection::vec(0usize..4, 1..200)) {
            let encoder = encoder(&["abab", "bcbc", "abcabc"], 5, "gpt2");
            let word: String = letters.iter().map(|&letter| ['a', 'b', 'c', 'z'][letter]).collect();
            let mut ids: Vec<u32> = Vec::new();
            encoder.encode(&word, Allowed::None, &mut ids, &no_pulse).unwrap();
            let mut bytes = Vec::new();
            encoder.vocab().decode(ids, &mut bytes).unwrap();
            prop_assert_eq!(bytes, word.into_bytes());
        }
    }

    /// Words of 1 to 20 letters, and one in sixteen with up to 300 more that mostly make few ids, drawn from so many different ones.
    fn words(seed: u64, n_words: u64, n_different: u64) -> String {
        let mix = |number: u64| {
            number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xD6E8_FEB8_6659_FD93)
        };
        let word = |index: u64| {
            let mut bits = mix((mix(seed ^ index) % n_different) ^ seed);
            let mut letters = String::from(" ");
            for _ in 0..1 + bits % 20 {
                letters.push(['l', 'o', 'w', 'e', 'r', 's', 't', 'd'][(bits >> 60) as usize % 8]);
                bits = mix(bits);
            }
            if bits % 16 == 0 {
                letters.extend(std::iter::repeat_n('z', (bits >> 32) as usize % 300));
            }
            letters
        };
        (0..n_words).map(word).collect()
    }

    #[test]
    fn an_id_for_each_byte_of_an_endless_word_goes_to_one_place() {
        let encoder = encoder(&PIECES, 0, "gpt2");
        let text = "z".repeat(2 * HUGE);
        let mut ids: Vec<u16> = Vec::new();
        encoder.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
        assert_eq!((ids.len(), ids.capacity()), (text.len(), text.len()));
    }

    #[test]
    fn an_interrupted_text_leaves_nothing_wrong_behind() {
        let encoder = encoder(&PIECES, 20, "gpt2");
        // More than is encoded between two pulses, so that questions are open at the first.
        let text = words(1, 250_000, u64::MAX);
        assert!(text.len() > 2 * PULSE_BYTES);
        let expected = encode_plainly(&encoder, &text, &SpecialTokens::default());
        let mut ids: Vec<u32> = Vec::new();
        encoder.session(|session| {
            assert!(session.encode(&text, Allowed::None, &mut ids, &|| Err(Error::Interrupted)).is_err());
            ids.clear();
            session.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
        });
        assert!(ids == expected);
        assert!(encoder.encode(&text, Allowed::None, &mut ids, &|| Err(Error::Interrupted)).is_err());
        ids.clear();
        encoder.encode(&text, Allowed::None, &mut ids, &no_pulse).unwrap();
        assert!(ids == expected);
    }

    #[test]
    fn what_one_thread_has_found_out_another_knows() {
        let encoder = encoder(&PIECES, 20, "gpt2");
        // Words of three letters, by thousands.
        let word = |number: usize| {
            let letter = |place: u32| char::from(b'a' + (number / 26usize.pow(place) % 26) as u8);
            format!(" {}{}{}", letter(0), letter(1), letter(2))
        };
        let text = |thousand: usize| -> String { (1_000 * thousand..1_000 * (thousand + 1)).map(word).collect() };
        let encode = |workspace: &mut Workspace, thousand: usize| {
            encoder.encode_segment(workspace, &text(thousand), &mut Vec::<u32>::new(), &no_pulse).unwrap();
        };
        encoder.with_workspace(|first| {
            encoder.with_workspace(|second| {
                // Only now is it known that there are two.
                first.teller.set_alone(false);
                encode(first, 1);
                encode(second, 2);
                let n_known = |workspace: &mut Workspace| {
                    let known = workspace.cache.first();
                    let keys = (1_000..2_000).map(|number| {
                        let key = crate::hash::pack(word(number).as_bytes(), 0, 4);
                        (key, workspace.cache.mixing().mix(key))
                    });
                    keys.filter(|&(key, mixed)| known.get(key, mixed).is_some()).count()
                };
                assert!(n_known(second) > n_known(first) / 2, "{} and {}", n_known(second), n_known(first));
                let mut ids: Vec<u32> = Vec::new();
                encoder.encode_segment(second, &text(1), &mut ids, &no_pulse).unwrap();
                assert_eq!(ids, encode_plainly(&encoder, &text(1), &SpecialTokens::default()));
            });
        });
    }

    #[test]
    fn a_special_token_that_is_refused_is_named_with_its_place() {
        let encoder = encoder(&PIECES, 10, "gpt2");
        let error = encoder.encode::<u32>("low<s>", Allowed::Refused, &mut Vec::new(), &no_pulse).unwrap_err();
        assert_eq!(error.to_string(), "special token \"<s>\" at byte 3");
    }

    #[test]
    fn bytes_that_are_no_text_are_encoded_too() {
        let encoder = encoder(&PIECES, 10, "gpt2");
        let mut ids = Vec::new();
        encoder.encode_bytes(b"low\xFF\xFElow", &mut ids, &no_pulse).unwrap();
        let mut bytes = Vec::new();
        encoder.vocab().decode(ids.iter().copied(), &mut bytes).unwrap();
        assert_eq!(bytes, b"low\xFF\xFElow");
    }
}
