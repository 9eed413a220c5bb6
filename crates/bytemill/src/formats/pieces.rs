//! SentencePiece's `.model`, a protocol buffer: its pieces are read here, the other fields are returned as they are.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>

use std::collections::HashSet;

/// The pieces of a model, by id.
#[derive(Debug, Default)]
pub struct Pieces<'d> {
    /// Their texts.
    pub texts: Vec<&'d str>,
    /// Their scores.
    pub scores: Vec<f32>,
    /// Their types.
    pub kinds: Vec<u32>,
    /// All other fields of the model.
    pub rest: Vec<u8>,
}

const MAX_PIECES: usize = 1 << 21;
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const BYTES: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// The pieces of a model, or `None` for a file that is damaged or unusual.
pub fn read_pieces(mut data: &[u8]) -> Option<Pieces<'_>> {
    let mut pieces = Pieces::default();
    while !data.is_empty() {
        let before = data;
        let (number, kind, value) = field(&mut data)?;
        if (number, kind) != (1, BYTES) {
            pieces.rest.extend_from_slice(&before[..before.len() - data.len()]);
            continue;
        }
        let (mut text, mut score, mut piece_kind, mut piece) = ("", 0.0, 1, value);
        while !piece.is_empty() {
            match field(&mut piece)? {
                (1, BYTES, value) => text = std::str::from_utf8(value).ok()?,
                (2, FOUR_BYTES, value) => score = f32::from_le_bytes(value.try_into().ok()?),
                (3, VARINT, mut value) => piece_kind = u32::try_from(varint(&mut value)?).ok()?,
                _ => return None,
            }
        }
        pieces.texts.push(text);
        pieces.scores.push(score);
        pieces.kinds.push(piece_kind);
        if pieces.texts.len() > MAX_PIECES {
            return None;
        }
    }
    Some(pieces)
}

/// Takes a field from the start of a message: its number, its wire type and its value.
fn field<'d>(data: &mut &'d [u8]) -> Option<(u64, u64, &'d [u8])> {
    let key = varint(data)?;
    let (number, kind) = (key >> 3, key & 7);
    let n_bytes = match kind {
        VARINT => {
            let mut after = *data;
            varint(&mut after)?;
            data.len() - after.len()
        }
        EIGHT_BYTES => 8,
        BYTES => usize::try_from(varint(data)?).ok()?,
        FOUR_BYTES => 4,
        _ => return None,
    };
    let (value, after) = data.split_at_checked(n_bytes)?;
    *data = after;
    (number > 0).then_some((number, kind, value))
}

/// Takes a number of variable length, of at most nine bytes.
fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..9 {
        let byte = *data.get(at)?;
        number |= u64::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            *data = &data[at + 1..];
            return Some(number);
        }
    }
    None
}

/// A merge, given by the bytes of its two parts.
type Merge<'t> = (&'t [u8], &'t [u8]);

/// Every way to split every piece into two, the pieces of the best score first, and the ranks of these merges if pieces have equal
/// scores. `pieces` are scores, ids and texts in UTF-8.
///
/// A single character may be a part of a piece without being one itself, as in a model from which pieces were removed.
pub fn piece_merges<'t>(mut pieces: Vec<(f64, u32, &'t str)>) -> (Vec<Merge<'t>>, Option<Vec<u32>>) {
    let known: HashSet<&[u8], hashbrown::DefaultHashBuilder> =
        pieces.iter().map(|(_, _, text)| text.as_bytes()).collect();
    // Without the sign of a zero.
    pieces.sort_unstable_by(|one, other| (other.0 + 0.0).total_cmp(&(one.0 + 0.0)).then(one.1.cmp(&other.1)));
    let (mut merges, mut ranks) = (Vec::with_capacity(2 * pieces.len()), Vec::with_capacity(2 * pieces.len()));
    let (mut rank, mut last, mut is_shared) = (0, None, false);
    for (score, _, text) in pieces {
        let n_before = merges.len();
        let last_character = text.char_indices().next_back().map_or(0, |(at, _)| at);
        for (index, (at, _)) in text.char_indices().skip(1).enumerate() {
            let (left, right) = text.as_bytes().split_at(at);
            if (index == 0 || known.contains(left)) && (at == last_character || known.contains(right)) {
                merges.push((left, right));
            }
        }
        if merges.len() > n_before {
            is_shared |= last == Some(score);
            rank += u32::from(last.is_some_and(|last| last != score));
            last = Some(score);
            ranks.resize(merges.len(), rank);
        }
    }
    (merges, is_shared.then_some(ranks))
}

#[cfg(test)]
#[path = "tests/pieces.rs"]
mod tests;
