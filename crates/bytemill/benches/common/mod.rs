//! What benches and instruction counts work on: generated text, the same everywhere, and a vocabulary learned from it.
//!
//! The text has what decides an encoder's speed in real text: words by a Zipf law with a tail that never repeats, lengths
//! that fall with frequency, punctuation, numbers, capitals, line ends; no sense. `BYTEMILL_BENCH_TEXT` names a file to use
//! in its place.

use bytemill::encode::{Encoder, no_interrupt};
use bytemill::pretokenize::Pattern;
use bytemill::train::count::{CHUNK_BYTES, Counter, Counts};
use bytemill::train::merges::{Ties, learn};
use bytemill::vocab::Vocab;

/// A small generator of random numbers (SplitMix64), whose sequence no release of a library changes.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `n`.
    #[expect(clippy::cast_possible_truncation, reason = "the product's upper half is below n")]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// A number below `n`, of which k + 1 comes about 1 / k times as often as 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    fn zipf(&mut self, n: usize) -> usize {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((n as f64 + 1.0).powf(uniform) as usize).min(n) - 1
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const LATIN: [&str; 40] = [
    "e", "a", "o", "i", "th", "er", "in", "an", "re", "on", "st", "en", "le", "or", "ti", "ar", "se", "co", "de", "ra",
    "ro", "li", "ma", "ch", "pl", "tr", "ing", "ion", "ent", "al", "ly", "ness", "un", "pre", "ver", "qu", "by", "k",
    "x", "z",
];
const OTHER_SCRIPTS: [&[&str]; 5] = [
    &["о", "е", "ста", "но", "то", "ен", "на", "ко", "ра", "ни", "про", "пол", "ость", "ть", "ла", "ж", "щи"],
    &["的", "是", "不", "了", "在", "人", "有", "我", "他", "这", "中", "大", "来", "上", "国", "说", "们", "为", "和"],
    &["ul", "ß", "ä", "sch", "ü", "ei", "ö", "ung", "é", "è", "ç", "ñ", "ão", "ł", "ż", "ą", "ni", "te"],
    &["α", "το", "και", "ει", "ν", "ς", "μ", "ό", "έ", "ρ", "π", "σ", "λη", "θ"],
    &["है", "के", "में", "की", "ा", "न", "र", "स", "त", "ि", "क", "ल", "ों", "प्र"],
];

/// Kinds of generated text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    English,
    Code,
    Multilingual,
}

pub const KINDS: [(&str, Kind); 3] =
    [("english", Kind::English), ("code", Kind::Code), ("multilingual", Kind::Multilingual)];

fn word(chance: &mut Chance, syllables: &[&str], rank: usize) -> String {
    let n = 1 + (rank > 30) as usize + (rank > 1_000) as usize + chance.below(2) * (rank > 300) as usize;
    (0..n).map(|_| chance.pick(syllables)).collect()
}

/// `n_bytes` of text, or a little less: it ends with a whole character.
pub fn generated(kind: Kind, n_bytes: usize, seed: u64) -> String {
    let mut chance = Chance::new(seed ^ 0x00C0_FFEE);
    let scripts: Vec<&[&str]> = match kind {
        Kind::Multilingual => OTHER_SCRIPTS.to_vec(),
        _ => vec![&LATIN],
    };
    // The words are the same whatever the seed, so that a vocabulary learned from one text fits the next.
    let mut spelling = Chance::new(7);
    let words: Vec<Vec<String>> = scripts
        .iter()
        .map(|syllables| (0..20_000).map(|rank| word(&mut spelling, syllables, rank)).collect())
        .collect();
    let mut text = String::with_capacity(n_bytes + 128);
    while text.len() < n_bytes {
        let script = chance.below(scripts.len());
        for n in 0..8 + chance.below(16) {
            let is_rare = chance.below(50) == 0;
            let rare = if is_rare { word(&mut chance, scripts[script], 5_000) } else { String::new() };
            let common = &words[script][chance.zipf(20_000)];
            let word = if is_rare { &rare } else { common };
            if kind == Kind::Code {
                code_word(&mut chance, word, &mut text);
                continue;
            }
            if n > 0 && !(scripts[script][0] == "的" && chance.below(8) > 0) {
                text.push(' ');
            }
            if n == 0 && word.is_ascii() {
                text.push_str(&word[..1].to_uppercase());
                text.push_str(&word[1..]);
            } else {
                text.push_str(word);
            }
            match chance.below(60) {
                0..4 => text.push(','),
                4 => text.push_str("'s"),
                5 => text.push_str(&format!(" {}", chance.below(3_000))),
                6 => text.push_str(" (see"),
                7 => text.push(')'),
                8 => text.push_str(" “x”"),
                _ => {}
            }
        }
        text.push_str(if kind == Kind::Code { "\n" } else { chance.pick(&[". ", ".\n", ".\n\n", "? ", "。"]) });
    }
    text.truncate(boundary(&text, n_bytes));
    text
}

/// The last boundary of characters at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// An identifier, a sign, an indentation: what lines of code are made of.
fn code_word(chance: &mut Chance, word: &str, text: &mut String) {
    match chance.below(12) {
        0 => text.push_str(chance.pick(&["\n    ", "\n        ", "\n\t\t", "\n\n"])),
        1 => text.push_str(chance.pick(&[" = ", " == ", "->", "::", ");", "({", "});", " // ", "[0]", " + "])),
        2 => text.push_str(&format!("{}_", word.to_uppercase())),
        3 => text.push_str(&format!("{}", chance.below(70_000))),
        4 => text.push_str(&format!("(\"{word}\", ")),
        5 => text.push('.'),
        _ => {
            text.push_str(word);
            text.push_str(chance.pick(&["_", " ", "(", ".", " "]));
        }
    }
}

/// The file that `BYTEMILL_BENCH_TEXT` names, else generated text.
pub fn text(kind: Kind, n_bytes: usize, seed: u64) -> String {
    match std::env::var_os("BYTEMILL_BENCH_TEXT") {
        None => generated(kind, n_bytes, seed),
        Some(path) => {
            let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let text = String::from_utf8_lossy(&bytes);
            let start = boundary(&text, (seed as usize).wrapping_mul(n_bytes) % text.len().max(1));
            text[start..boundary(&text, (start + n_bytes).min(text.len()))].to_owned()
        }
    }
}

/// The pre-tokens of a text, counted.
pub fn counted(text: &str, pattern: &str) -> Counts {
    let mut counter = Counter::new(Pattern::new(Some(pattern)).unwrap(), &[], 1, CHUNK_BYTES).unwrap();
    counter.add_text(text, &no_interrupt).unwrap();
    counter.finish(&no_interrupt).unwrap()
}

/// An encoder with `n_merges` merges learned from `text`.
pub fn encoder(text: &str, pattern: &str, n_merges: usize) -> Encoder {
    let learned = learn(&counted(text, pattern), n_merges, Ties::Bytes, 1, 1, |_| Ok(())).unwrap();
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let mut merges = Vec::new();
    for merge in &learned {
        let (left, right) = (tokens[merge.left as usize].clone(), tokens[merge.right as usize].clone());
        tokens.push([left.clone(), right.clone()].concat());
        merges.push((left, right));
    }
    let tokens = tokens.into_iter().zip(0..).map(|(token, id)| (id, token)).collect();
    let vocab = Vocab::from_merges(tokens, &merges, Vec::new()).unwrap();
    Encoder::new(vocab, Pattern::new(Some(pattern)).unwrap()).unwrap()
}
