//! Encoding with all its tables, against merging each pre-token afresh in the plainest way.

use crate::bytes;
use bytemill::encode::stream::{Stream, StreamAllowed};
use bytemill::encode::{Allowed, Encoder, no_interrupt};
use bytemill::pretokenize::Pattern;
use bytemill::train::count::{CHUNK_BYTES, Counter};
use bytemill::train::merges::{Ties, learn};
use bytemill::vocab::Vocab;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// What the vocabularies are learned from: words that share parts, runs, several scripts.
const LEARNT_FROM: &str = "low lower lowest newest widest aaaa aaaaaaaa aZésSſtT 'll's 0101 !!// \n\n \r\n ......\
    ababab abcabcabc  жжж рЖ一한あ😀😀 éé e\u{301}e\u{301} \u{a0}\u{a0} sl Sl lS aaB aBs ''' -- --- ----";

pub struct Tried {
    pub encoder: Arc<Encoder>,
    pairs: HashMap<(u32, u32), u32>,
}

impl Tried {
    /// A vocabulary of `n_merges` merges.
    pub fn new(n_merges: usize, pattern: &str, special: Vec<(String, u32)>) -> Self {
        let mut counter = Counter::new(Pattern::new(Some(pattern)).unwrap(), &[], 1, CHUNK_BYTES).unwrap();
        counter.add_text(LEARNT_FROM, &no_interrupt).unwrap();
        let learned = learn(&counter.finish(&no_interrupt).unwrap(), n_merges, Ties::Bytes, 1, 1, |_| Ok(())).unwrap();
        let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let (mut merges, mut pairs) = (Vec::new(), HashMap::new());
        for (merge, symbol) in learned.iter().zip(256..) {
            let (left, right) = (tokens[merge.left as usize].clone(), tokens[merge.right as usize].clone());
            tokens.push([left.clone(), right.clone()].concat());
            merges.push((left, right));
            pairs.insert((merge.left, merge.right), symbol);
        }
        let tokens = tokens.into_iter().zip(0..).map(|(token, id)| (id, token)).collect();
        let vocab = Vocab::from_merges(tokens, &merges, special).unwrap();
        let encoder = Arc::new(Encoder::new(vocab, Pattern::new(Some(pattern)).unwrap()).unwrap());
        Self { encoder, pairs }
    }

    /// The ids of one pre-token: look at all pairs, join the lowest and leftmost, begin again.
    fn merged(&self, pretoken: &[u8]) -> Vec<u32> {
        let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
        loop {
            let pairs = symbols.windows(2).enumerate();
            let best = pairs.filter_map(|(at, pair)| Some((*self.pairs.get(&(pair[0], pair[1]))?, at))).min();
            let Some((symbol, at)) = best else { return symbols };
            symbols.splice(at..at + 2, [symbol]);
        }
    }

    /// The ids of a text without special tokens.
    pub fn plainly(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.encoder.pattern().for_each(text, |pretoken| ids.extend(self.merged(pretoken))).unwrap();
        ids
    }
}

/// The encoders stay, with what they have seen, from one input to the next.
fn all() -> &'static [Tried] {
    static ALL: OnceLock<Vec<Tried>> = OnceLock::new();
    ALL.get_or_init(|| {
        [("gpt2", 0), ("gpt2", 200), ("cl100k", 12), ("cl100k", 200), ("o200k", 60), ("llama3", 200), (r"\S+", 60)]
            .map(|(pattern, n_merges)| Tried::new(n_merges, pattern, Vec::new()))
            .into()
    })
}

/// Ids are those of plain merging: at first, from the tables, on threads, from a stream; and decode to the text.
///
/// # Panics
/// Where they are not.
pub fn encoder(data: &[u8]) {
    let text = bytes::text(data);
    let tried = &all()[usize::from(data.last().copied().unwrap_or(0)) % all().len()];
    let expected = tried.plainly(&text);
    for _ in 0..2 {
        let mut ids: Vec<u32> = Vec::new();
        tried.encoder.encode(&text, Allowed::All, &mut ids, &no_interrupt).unwrap();
        assert_eq!(ids, expected, "{:?} on {text:?}", tried.encoder.pattern());
    }
    let ids: Vec<u16> = tried.encoder.encode_parallel(&text, Allowed::None, 2, &no_interrupt).unwrap();
    assert!(ids.iter().map(|&id| u32::from(id)).eq(expected.iter().copied()), "{text:?} on threads");
    assert_eq!(streamed(&tried.encoder, &text, data), expected, "{text:?} from a stream");
    let mut decoded = Vec::new();
    tried.encoder.vocab().decode(expected.iter().copied(), &mut decoded).unwrap();
    assert_eq!(decoded, text.as_bytes());
    any_bytes(tried, data);
}

/// The text in pieces whose sizes `data` says.
pub fn streamed(encoder: &Arc<Encoder>, text: &str, data: &[u8]) -> Vec<u32> {
    let mut stream = Stream::new(encoder.clone(), StreamAllowed::All, 1);
    let (mut ids, mut at) = (Vec::new(), 0);
    for &byte in data.iter().cycle().take(16) {
        let end = text.ceil_char_boundary((at + 1 + usize::from(byte)).min(text.len()));
        stream.text().push_str(&text[at..end]);
        stream.encode_ready(&mut ids, &no_interrupt).unwrap();
        at = end;
    }
    stream.text().push_str(&text[at..]);
    stream.finish(&mut ids, &no_interrupt).unwrap();
    ids
}

/// Bytes that are no text keep their value, and what is text between them has its own ids.
fn any_bytes(tried: &Tried, data: &[u8]) {
    let mut ids: Vec<u32> = Vec::new();
    tried.encoder.encode_bytes(data, &mut ids, &no_interrupt).unwrap();
    let mut expected = Vec::new();
    for chunk in data.utf8_chunks() {
        expected.extend(tried.plainly(chunk.valid()));
        expected.extend(tried.merged(chunk.invalid()));
    }
    assert_eq!(ids, expected, "{data:?} as bytes");
}
