//! Special tokens: found as by looking at every place, and the same in streams and on threads.

use crate::encoder::{Tried, streamed};
use bytemill::encode::{Allowed, no_interrupt};
use bytemill::special::SpecialTokens;

const CHARACTERS: [char; 8] = ['a', 'b', '<', '|', '>', ' ', 'é', '\n'];

fn word(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| CHARACTERS[usize::from(byte) % CHARACTERS.len()]).collect()
}

/// Leftmost, and of those longest: at each place the longest token that begins there.
fn plainly(tokens: &[(String, u32)], text: &str) -> Vec<(usize, usize, u32)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let here = tokens.iter().filter(|(token, _)| text[at..].starts_with(token.as_str()));
        if let Some((token, id)) = here.max_by_key(|(token, _)| token.len()) {
            found.push((at, at + token.len(), *id));
            at += token.len();
        } else {
            at = text.ceil_char_boundary(at + 1);
        }
    }
    found
}

/// Up to four special tokens over a few characters, and a text of the same.
///
/// # Panics
/// Where they are found elsewhere than by looking at every place, or ids differ.
pub fn special_tokens(data: &[u8]) {
    let Some((&n, mut data)) = data.split_first() else { return };
    let mut tokens: Vec<(String, u32)> = Vec::new();
    for id in 1000..1000 + u32::from(n % 5) {
        let Some((&size, rest)) = data.split_first() else { return };
        let (name, rest) = rest.split_at(rest.len().min(usize::from(size) % 6));
        tokens.push((word(name), id));
        data = rest;
    }
    let text = word(data);
    let is_sound = tokens
        .iter()
        .enumerate()
        .all(|(place, (token, _))| !token.is_empty() && tokens[..place].iter().all(|(earlier, _)| earlier != token));
    let special = SpecialTokens::new(tokens.clone());
    assert_eq!(special.is_ok(), is_sound, "{tokens:?}");
    let Ok(special) = special else { return };
    let found: Vec<_> = special.find(&text).map(|found| (found.start, found.end, tokens[found.index].1)).collect();
    let expected = plainly(&tokens, &text);
    assert_eq!(found, expected, "{tokens:?} in {text:?}");

    let tried = Tried::new(20, "cl100k", tokens);
    let (mut ids, mut at) = (Vec::new(), 0);
    for (start, end, id) in expected {
        ids.extend(tried.plainly(&text[at..start]));
        ids.push(id);
        at = end;
    }
    ids.extend(tried.plainly(&text[at..]));
    let mut ours: Vec<u32> = Vec::new();
    tried.encoder.encode(&text, Allowed::All, &mut ours, &no_interrupt).unwrap();
    assert_eq!(ours, ids, "{:?} in {text:?}", special.tokens());
    let ours: Vec<u32> = tried.encoder.encode_parallel(&text, Allowed::All, 3, &no_interrupt).unwrap();
    assert_eq!(ours, ids, "{:?} in {text:?} on threads", special.tokens());
    assert_eq!(streamed(&tried.encoder, &text, data), ids, "{:?} in {text:?} from a stream", special.tokens());
    assert_eq!(tried.encoder.refuse_special(&text).is_err(), special.find(&text).next().is_some());
}
