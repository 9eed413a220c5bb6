use super::*;
use proptest::prelude::*;

/// Bytes with many truncated, overlong, surrogate and out-of-range sequences.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec!["a", "é", "一", "😀", "\u{FFFD}"]).prop_map(|text| text.as_bytes().to_vec()),
        prop::sample::select(vec![0x80u8, 0xBF, 0xC0, 0xC3, 0xE0, 0xE4, 0xED, 0xA0, 0xF0, 0x9F, 0xF4, 0x90, 0xFF])
            .prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn chunks_give_the_same_text_as_the_whole(bytes in bytes(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        for malformed in [Malformed::Refuse, Malformed::Replace, Malformed::Skip] {
            let mut stream = Utf8Stream::new(malformed);
            let mut out = String::new();
            let mut start = 0;
            let mut result = Ok(());
            for &cut in &cuts {
                result = result.and_then(|()| stream.push(&bytes[start..cut], &mut out));
                start = cut;
            }
            result = result.and_then(|()| stream.finish(&mut out));
            match (malformed, std::str::from_utf8(&bytes)) {
                (Malformed::Refuse, Err(error)) => {
                    let Err(Error::Utf8 { start, .. }) = result else { panic!("{bytes:?} was taken") };
                    prop_assert_eq!(start, error.valid_up_to());
                }
                (Malformed::Skip, _) => {
                    prop_assert!(result.is_ok());
                    prop_assert_eq!(&out, &bytes.utf8_chunks().map(|chunk| chunk.valid()).collect::<String>());
                }
                _ => {
                    prop_assert!(result.is_ok());
                    prop_assert_eq!(&out, &String::from_utf8_lossy(&bytes));
                }
            }
        }
    }
}
