use super::super::tests::{PIECES, encoder};
use super::*;
use crate::sys::interrupt::no_interrupt;
use crate::vocab::pair_table::NONE;
use proptest::prelude::*;
use std::collections::HashMap;

/// The definition, step by step: which of the possible merges are left out is drawn for all of them, whatever happens.
fn merge_by_definition(encoder: &Encoder, pretoken: &[u8], probability: f64, random: &mut Random) -> Vec<u32> {
    let table = encoder.vocab().pairs();
    let mut symbols: Vec<u32> = pretoken.iter().map(|&byte| u32::from(byte)).collect();
    loop {
        let possible = symbols.windows(2).enumerate().map(|(at, pair)| (table.get(pair[0], pair[1]), at));
        let mut kept: Vec<(u32, usize)> = possible.filter(|&(symbol, _)| symbol != NONE).collect();
        kept.retain(|_| random.next_f64() >= probability);
        let Some(&(symbol, at)) = kept.iter().min() else { return symbols };
        drop(symbols.splice(at..at + 2, [symbol]));
    }
}

fn with_dropout(encoder: &Encoder, text: &str, probability: f64, seed: u64) -> Vec<u32> {
    let mut ids = Vec::new();
    encoder.encode_with_dropout(text, Allowed::All, probability, seed, &mut ids, &no_interrupt).unwrap();
    ids
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_left_out_is_encoding_and_everything_left_out_is_bytes(
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..60),
        probability in 0.0f64..1.0,
        seed: u64,
    ) {
        let (encoder, text) = (encoder(&PIECES, 60, "gpt2"), pieces.concat());
        let mut expected: Vec<u32> = Vec::new();
        encoder.encode(&text, Allowed::All, &mut expected, &no_interrupt).unwrap();
        prop_assert_eq!(with_dropout(&encoder, &text, 0.0, seed), expected);
        for probability in [probability, 1.0] {
            let ids = with_dropout(&encoder, &text, probability, seed);
            let mut bytes = Vec::new();
            encoder.vocab().decode(ids.iter().copied(), &mut bytes).unwrap();
            prop_assert_eq!(bytes, text.as_bytes());
            prop_assert_eq!(with_dropout(&encoder, &text, probability, seed), ids);
        }
    }
}

/// Pearson's statistic of two samples over the ways in which a word is divided, by its number of degrees of freedom.
#[test]
fn words_are_divided_as_often_as_by_the_definition() {
    let encoder = encoder(&["lower", "lowest", "newer", "widest"], 40, "gpt2");
    for (word, probability) in [("lowest", 0.1), ("newestlower", 0.5), ("lowerwidest", 0.3)] {
        let n = 20_000;
        let mut found: HashMap<Vec<u32>, [f64; 2]> = HashMap::new();
        let mut random = Random::new(1);
        for seed in 0..n {
            found.entry(with_dropout(&encoder, word, probability, seed)).or_default()[0] += 1.0;
            let symbols = merge_by_definition(&encoder, word.as_bytes(), probability, &mut random);
            let ids = symbols.iter().map(|&symbol| encoder.vocab().symbol_id(symbol)).collect();
            found.entry(ids).or_default()[1] += 1.0;
        }
        let often: Vec<[f64; 2]> = found.into_values().filter(|[a, b]| a + b >= 20.0).collect();
        assert!(often.len() > 3, "{often:?}");
        let statistic: f64 = often.iter().map(|[a, b]| (a - b).powi(2) / (a + b)).sum();
        let degrees = (often.len() - 1) as f64;
        // Five standard deviations of the distribution.
        assert!(statistic < degrees + 5.0 * (2.0 * degrees).sqrt(), "{word}: {statistic} of {degrees}");
    }
}
