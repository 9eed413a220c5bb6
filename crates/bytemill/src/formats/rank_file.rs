//! Rank files: on each line a token in base64, a space, and its rank.

use crate::vocab::TokenList;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The tokens of a rank file; None where a line is not quite as such files are written.
///
/// Whether tokens and ranks contradict each other is for [`crate::vocab::Vocab::from_ranked`] to say.
#[must_use]
pub fn read_ranks(data: &[u8]) -> Option<TokenList> {
    // A line of the published files has 16 to 19 bytes, of which 6 or 7 are the token's.
    let mut tokens = TokenList::with_capacity(data.len() / 14, data.len() / 2);
    for line in data.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let space = line.iter().position(|&byte| byte == b' ')?;
        let rank = number(&line[space + 1..])?;
        let mut decoded = false;
        let append = |bytes: &mut Vec<u8>| {
            let start = bytes.len();
            // Four characters are three bytes; what the padding says is not there is cut off again.
            bytes.resize(start + space / 4 * 3 + 3, 0);
            let n_bytes = STANDARD.decode_slice_unchecked(&line[..space], &mut bytes[start..]);
            decoded = matches!(n_bytes, Ok(1..));
            bytes.truncate(start + n_bytes.unwrap_or(0));
        };
        tokens.push_with(rank, append).ok()?;
        if !decoded {
            return None;
        }
    }
    Some(tokens)
}

/// A number of up to ten digits and 32 bits.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    let mut value = 0u64;
    for &digit in digits {
        value = 10 * value + u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    u32::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<Vec<(u32, Vec<u8>)>> {
        Some(read_ranks(text.as_bytes())?.iter().map(|(rank, token)| (rank, token.to_vec())).collect())
    }

    #[test]
    fn lines_end_as_they_like_and_may_be_empty() {
        let expected = vec![(5, b"ab".to_vec()), (4_294_967_295, vec![0, 255, 1, 2])];
        for text in ["YWI= 5\nAP8BAg== 4294967295", "\nYWI= 005\r\n\r\n\nAP8BAg== 4294967295\n"] {
            assert_eq!(read(text).as_ref(), Some(&expected));
        }
    }

    #[test]
    fn anything_else_is_left_to_others() {
        let lines = [
            "YWI=",
            "YWI= ",
            " 5",
            "YWI=  5",
            "YWI=\t5",
            "YWI= 5 ",
            " YWI= 5",
            "YWI= +5",
            "YWI= -5",
            "YWI= 5x",
            "YWI 5",
            "YWJ= 5",
            "Y*I= 5",
            "= 5",
            "==== 5",
            "YWI== 5",
            "YWI=YWI= 5",
            "YWI= 4294967296",
            "YWI= 00000000005",
            "YWI= ٣",
            "YWI= 5\rYWM= 6",
            "日 5",
            "\u{feff}YWI= 5",
        ];
        for line in lines {
            assert_eq!(read(line), None, "{line:?}");
            assert_eq!(read(&format!("YQ== 1\n{line}\nYg== 2\n")), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn tokens_come_back(tokens in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 1..40)), 0..40)) {
            let lines: Vec<String> =
                tokens.iter().map(|(rank, token)| format!("{} {rank}\n", STANDARD.encode(token))).collect();
            prop_assert_eq!(read(&lines.concat()), Some(tokens));
        }

        #[test]
        fn no_bytes_make_it_panic(data in prop::collection::vec(prop::sample::select(b"YWI=A/+5 \n\r\t0\xff".to_vec()), 0..60)) {
            let _ = read_ranks(&data);
        }
    }
}
